"""Files that this machine did not write are evaluated in a child process first: if they end it, that is the answer.

The child does what the caller is about to do, with the same code on the same files, in memory and time that the files
justify; checksums alone, which evaluate nothing, are taken by the caller. Of what it computes only the noise is told,
which takes longest in a large program. That it lived to the end is what counts, and is remembered
(`etviz.artifacts.ledger`), so that the same files are rehearsed once. The child stays for the next files.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from etviz.artifacts.ledger import identity, is_known, note_evaluated
from etviz.artifacts.scratch import Scratch
from etviz.errors import ArtifactError, EtvizError, ExecutionError
from etviz.pipeline.service import limit_memory, serve
from etviz.pipeline.worker import Worker
from etviz.settings import options

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

logger = logging.getLogger(__name__)

_SECONDS: Final = 120.0
_SECONDS_PER_BYTE: Final = 2e-6
_SPARE: Final = 1 << 30
"""Bytes of its own that the child may have beside as many as the files have."""
WORKER: Final = Worker("etviz.loading.rehearsal")


def rehearse(
    files: Mapping[str, str], inputs: Any, method: str | None, *, introduced: bool = True, outputs: Any = None
) -> list[dict[str, Any]] | None:
    """Evaluate files in a child process, if `etviz.options.isolation` asks for it.

    Parameters
    ----------
    files
        Paths by kind, as `ArtifactSet.named` has them.
    inputs, method, introduced, outputs
        As for `etviz.load`.

    Returns
    -------
    list of dict or None
        What `told_noise` says of the executions; None if nothing was evaluated.

    Raises
    ------
    ExecutionError
        If the child process crashes, or takes more memory or time than the files justify.
    ArtifactError
        If a file is changed meanwhile.
    """
    if options.isolation == "never" or (options.isolation == "auto" and is_known(files)):
        return None
    WORKER.warm()
    import torch

    before = {kind: _state(path) for kind, path in files.items()}
    size = sum(Path(path).stat().st_size for path in files.values())
    request = {"work": "rehearse", "method": method, "introduced": introduced, "size": size}
    request["files"] = {kind: str(Path(path).absolute()) for kind, path in files.items()}
    with Scratch() as scratch:
        request["values"] = str(Path(scratch) / "values.pt")
        torch.save([_portable(inputs), _portable(outputs)], request["values"])
        try:
            answer = WORKER.run(request, _SECONDS + _SECONDS_PER_BYTE * size)
        except ExecutionError as error:
            problem = (
                f"These files were evaluated in a process of their own, and that failed: {error.problem.rstrip('.')}. "
                "They are damaged, or made to do that; etviz.options.isolation = 'never' evaluates them here"
            )
            raise ExecutionError(problem, error.exit_status, error.last_lines) from None
    for kind, path in files.items():
        if _state(path) != before[kind]:
            raise ArtifactError(path, "the file was changed while it was read", "load it again when it is complete")
    if answer["whole"]:
        note_evaluated(before)
    return answer.get("noise")


def _state(path: str) -> str:
    try:
        return identity(path)
    except OSError as error:
        raise ArtifactError(path, "the file was taken away while it was read", "load it again") from error


def _portable(value: Any) -> Any:
    """Values as a torch file holds them: paths as absolute texts, arrays as tensors."""
    if isinstance(value, os.PathLike) or (isinstance(value, str) and Path(value).exists()):
        return str(Path(value).absolute())
    if isinstance(value, (list, tuple)):
        items = [_portable(item) for item in value]
        return items if isinstance(value, list) else tuple(items)
    if isinstance(value, dict):
        return {key: _portable(item) for key, item in value.items()}
    if hasattr(value, "__array_interface__"):
        import torch

        return torch.as_tensor(value)
    return value


def main(connection: int, parent: int) -> None:
    """The child process; see `etviz.pipeline.worker`."""
    serve(connection, parent, ("torch", "etviz.loading.load"), {"rehearse": _rehearse})


def _rehearse(request: dict[str, Any], step: Callable[[int], None]) -> dict[str, Any]:
    """Do what the parent is about to do; an error of etviz is one there too."""
    import torch

    from etviz.comparison.noise import told_noise
    from etviz.loading.artifact_set import ArtifactSet
    from etviz.loading.load import read
    from etviz.loading.outputs import outputs_findings

    options.isolation = options.look_inside = "never"
    limit_memory(request["size"] + _SPARE)
    try:
        inputs, outputs = torch.load(request["values"], weights_only=True)
    except Exception:  # noqa: BLE001 - objects of the caller's own, which no file holds
        return {"whole": False}
    files, method, introduced = request["files"], request["method"], request["introduced"]
    try:
        if outputs is not None:
            given = {kind: files.get(kind) for kind in ("etrecord", "pte", "record", "data")}
            outputs_findings(outputs, inputs=inputs, method=method, introduced=introduced, **given)
            return {"whole": True}
        found = read(ArtifactSet.open(**files, checked=False), inputs, method, 1.0, introduced=introduced)
    except EtvizError:
        return {"whole": False}
    return {"whole": True, "noise": told_noise([run.comparison for run in found.compared.runs])}
