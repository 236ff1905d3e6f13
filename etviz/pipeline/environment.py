"""Lowers a model in another environment, with its executorch and torch."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch

from etviz.artifacts.files import room_for, whole_files
from etviz.artifacts.known_files import note_written
from etviz.artifacts.scratch import Scratch
from etviz.errors import UsageError
from etviz.pipeline.environment_child import versions
from etviz.pipeline.lower import LoweringError, export
from etviz.pipeline.worker import worker_in

if TYPE_CHECKING:
    from torch.export import ExportedProgram

_FILES: Final = {"pte": "model.pte", "etrecord": "etrecord.bin"}
_STEPS: Final = {
    "import": "find what it takes to lower a model",
    "export": "export the model",
    "read": "read the program that torch {torch} exported here",
    "quantize": "quantize the model",
    "lower": "lower the model",
    "emit": "emit the program",
    "save": "save the program",
}
_ADVICE: Final = 'let it be exported there: name what makes the model in the recipe, model="file.py:name"'


def interpreter(python: Any) -> str:
    """`UsageError` if not executable; links stay, since they tell the environment."""
    if not isinstance(python, (str, os.PathLike)):
        raise UsageError(f"python must be the path of an interpreter, found {type(python).__name__}")
    path = Path(python).expanduser().absolute()
    if path.is_file() and os.access(path, os.X_OK):
        return str(path)
    raise UsageError(f"python must be the interpreter of another environment (…/bin/python); {path} is none")


def versions_in(python: str) -> dict[str, str]:
    return worker_in(python).run({"work": "versions"}) if python else versions()


def lower_elsewhere(
    python: str,
    model: torch.nn.Module | ExportedProgram,
    example_inputs: Sequence[Any],
    folder: Path,
    *,
    partitioner: str | None = None,
    quantizer: str | None = None,
    calibration: Sequence[Sequence[Any]] | None = None,
    strict: bool = True,
    made_by: str | None = None,
    timeout: float | None = None,
) -> dict[str, Path]:
    """Lower into ``model.pte`` and, where it can, ``etrecord.bin``; return the files by kind.

    `partitioner`, `quantizer` and `made_by` (the model, which takes the weights of `model`) name callables there:
    ``package.module:name`` or ``file.py:name``. `LoweringError` if a step fails there; `ExecutionError` if the process
    fails.
    """
    with Scratch() as scratch, room_for():
        values: dict[str, Any] = {"inputs": list(example_inputs)}
        values["calibration"] = [tuple(batch) for batch in calibration] if calibration is not None else [example_inputs]
        request: dict[str, Any] = {"work": "lower", "strict": strict, "model": made_by or ""}
        request |= {"program": str(Path(scratch) / "model.pt2"), "values": str(Path(scratch) / "values.pt")}
        request |= {"partitioner": partitioner or "", "quantizer": quantizer or ""}
        if made_by is None:
            torch.export.save(export(model, tuple(example_inputs), strict=strict), request["program"])
        else:
            values["weights"] = model.state_dict() if isinstance(model, torch.nn.Module) else dict(model.state_dict)
        torch.save(values, request["values"])
        with whole_files(folder) as fresh:
            answer = worker_in(python).run(request | {"folder": str(fresh)}, timeout)
            if answer["problem"]:
                raise LoweringError(failed(answer["step"], answer["problem"], versions_in(python)))
            for name in _FILES.values():
                (folder / name).unlink(missing_ok=True)
            written = [kind for kind, name in _FILES.items() if (fresh / name).is_file()]
    files = {kind: folder / _FILES[kind] for kind in written}
    note_written(files.values())
    return files


def failed(step: str, problem: str, versions: Mapping[str, str]) -> str:
    what = _STEPS.get(step, step).format(torch=torch.__version__)
    advice = f"; {_ADVICE}" if step == "read" else ""
    return f"executorch {versions['executorch']} with torch {versions['torch']} can't {what}: {problem}{advice}"
