"""A piece of a program by itself: a delegate's subgraph or one operator, lowered again and run in a child process."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm.auto import tqdm

from etviz.artifacts.files import room_for
from etviz.artifacts.scratch import Scratch
from etviz.errors import EtvizError, ExecutionError
from etviz.graph.ir_json import TextTable, dump_graph
from etviz.pipeline.worker import WORKER
from etviz.upstream.executorch import backend_module, runs_here
from etviz.upstream.xnnpack import BACKEND

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    import torch

    from etviz.graph.ir import Graph

_STEPS = ("start", "lower", "run", "read")


class BackendRefusedError(EtvizError):
    """A backend does not lower, or does not run, a piece of a program by itself.

    Parameters
    ----------
    backend
        The backend's id, or ``portable kernels``.
    step
        ``build``, ``lower`` or ``run``.
    problem
        What upstream said.
    missing
        Whether this machine lacks the backend, so that no other piece is lowered or run either.
    """

    def __init__(self, backend: str, step: str, problem: str, *, missing: bool = False) -> None:
        super().__init__(backend, step, problem)
        self.backend = backend
        self.step = step
        self.problem = problem
        self.missing = missing

    def __str__(self) -> str:
        if self.step == "build":
            return (
                f"This part of the program can't be built again to look at it by itself: {self.problem.rstrip('.')}. "
                f"That is a fault of etviz, not of {self.backend}; look at another row, the gap of this one stands."
            )
        verb = "lower" if self.step != "run" else "run"
        text = f"{self.backend} does not {verb} this part of the program by itself: {self.problem.rstrip('.')}. "
        if not self.missing:
            return text + "Look at another row; the gap of this one stands."
        if self.step == "run":
            return text + "The runtime that is installed here must have that backend for this processor."
        return text + "Install what the backend needs to lower a model here, or look at another row."


@dataclass(frozen=True, slots=True)
class Piece:
    """What is to run alone.

    Attributes
    ----------
    graph
        Of a delegate, or of portable operators where `Graph.backend_id` is empty.
    constants
        Tensors by `Input.target`.
    inputs
        What the runtime had as user inputs.
    outputs
        What the runtime made of them.
    ran
        What the runtime executed, as path of the `.pte`, method and instruction; None where that is not known.
    rounds
        How often it was executed in a loop, of which this is the last time; 0 outside of loops.
    """

    graph: Graph
    constants: Mapping[str, torch.Tensor]
    inputs: Sequence[Any]
    outputs: Sequence[Any]
    ran: tuple[str, str, int] | None = None
    rounds: int = 0


@dataclass(frozen=True, slots=True)
class AloneRun:
    """What running a piece alone gave.

    Attributes
    ----------
    outputs
        The piece's own outputs.
    values
        Inner values by name, mapped from a file.
    left_out
        Why the other candidates have no value.
    plain
        The outputs without any inner value added; None where the piece's own outputs were the runtime's bit for bit.
    lowered
        Whether the piece was lowered again; else it is what the program has for it.
    """

    outputs: list[torch.Tensor]
    values: dict[str, torch.Tensor]
    left_out: dict[str, str]
    plain: list[torch.Tensor] | None
    lowered: bool = True


def run_alone(
    piece: Piece,
    candidates: Sequence[str] = (),
    *,
    label: str = "zoom",
    keep_pte: Path | None = None,
    timeout: float | None = None,
    progress: Callable[[int, int], None] | None = None,
    cancel: threading.Event | None = None,
    quiet: bool = False,
) -> AloneRun:
    """Run a piece on its inputs, with inner values as further outputs.

    Of a delegate of XNNPACK whose program is at hand, what ran is taken and given further outputs. All else is lowered
    to its backend again.

    Parameters
    ----------
    piece
        What to run.
    candidates
        Names of inner values to give back; those that the backend can't give are left out.
    label
        Name of the progress bar.
    keep_pte
        Where to keep the program.
    timeout
        Seconds for lowering and running, `etviz.pipeline.worker.DEFAULT_TIMEOUT` if None.
    progress
        Is told the steps done and their number.
    cancel
        Ends the child process when it is set.
    quiet
        Show no progress bar.

    Raises
    ------
    BackendRefusedError
        If the piece can't be lowered, or not be run, even without further outputs.
    ExecutionError
        If the child process crashes, takes too long, or is cancelled.
    """
    import torch

    bars: Any = partial(tqdm, disable=True) if quiet else tqdm  # `disable=False` would win over TQDM_DISABLE
    with (
        Scratch() as folder,
        room_for(),
        bars(total=len(_STEPS), desc=label, leave=False) as bar,
    ):

        def step(done: int) -> None:
            bar.set_postfix_str(_STEPS[min(done, len(_STEPS) - 1)])
            bar.update(done - bar.n)
            if progress is not None:
                progress(done, len(_STEPS))

        step(0)
        request = _request(piece, candidates, Path(folder), keep_pte)
        answer = _look_inside(piece, request, timeout, step, cancel) if keep_pte is None else None
        lowered = answer is None
        if answer is None:
            _add_constants(piece, request)
            answer = WORKER.run(request | {"work": "relower"}, timeout, step, cancel)
        if answer["problem"]:
            raise _refusal(piece.graph.backend_id, answer["step"], answer["problem"])
        saved = torch.load(request["outputs"], weights_only=True, mmap=True)
        step(len(_STEPS))
    own = len(piece.graph.outputs)
    values = dict(zip(answer["names"], saved["outputs"][own:], strict=True))
    return AloneRun(saved["outputs"][:own], values, answer["left_out"], saved["plain"], lowered)


def _look_inside(
    piece: Piece,
    request: dict[str, Any],
    timeout: float | None,
    step: Callable[[int], None],
    cancel: threading.Event | None,
) -> dict[str, Any] | None:
    """What the program itself gives, None where it can't be read or given further outputs."""
    if piece.ran is None or piece.graph.backend_id != BACKEND:
        return None
    try:
        answer = WORKER.run(request | {"work": "inside"}, timeout, step, cancel)
    except ExecutionError as error:
        if error.exit_status is None:
            raise
        return None
    return None if answer["problem"] else answer


def alterations(
    piece: Piece, timeout: float | None = None, cancel: threading.Event | None = None
) -> list[tuple[str, str]]:
    """What the program that ran has otherwise than XNNPACK makes of a piece here: names of operators, and what.

    Nothing for other backends, and where the two are of different structure. Fails as `run_alone` does.
    """
    if piece.ran is None or piece.graph.backend_id != BACKEND:
        return []
    with Scratch() as folder, room_for():
        request = _request(piece, [], Path(folder), None)
        _add_constants(piece, request)
        answer = WORKER.run(request | {"work": "alterations"}, timeout, None, cancel)
    return [(name, what) for name, what in answer["altered"]]


def _refusal(backend_id: str, step: str, problem: str) -> BackendRefusedError:
    if not backend_id:
        return BackendRefusedError("The portable runtime", step, problem)
    lacks = step == "lower" and problem.startswith("No module named")
    missing = not runs_here(backend_id) if step == "run" else lacks
    return BackendRefusedError(backend_id, step, problem, missing=missing)


def _request(piece: Piece, candidates: Sequence[str], folder: Path, keep_pte: Path | None) -> dict[str, Any]:
    """What the child process is asked for, its files in `folder`."""
    import torch

    table = TextTable()
    graph = dump_graph(piece.graph, table)
    (folder / "graph").write_text(json.dumps([graph, table.texts]), encoding="utf-8")
    values = {"inputs": piece.inputs, "expected": piece.outputs}
    torch.save({name: list(map(own_copy, items)) for name, items in values.items()}, folder / "tensors")
    return {
        "ran": piece.ran,
        "candidates": list(candidates),
        "module": backend_module(piece.graph.backend_id),
        "pte": str(keep_pte.absolute() if keep_pte is not None else folder / "model.pte"),
        **{name: str(folder / name) for name in ("graph", "tensors", "constants", "outputs")},
    }


def _add_constants(piece: Piece, request: dict[str, Any]) -> None:
    """Write the constants, which only lowering needs."""
    import torch

    used = {item.target for item in piece.graph.inputs if item.kind != "user"}
    torch.save({name: piece.constants[name].detach().clone() for name in used}, request["constants"])


def own_copy(value: Any) -> Any:
    """A tensor with a storage of its own (a view of a mapped file would be saved with the whole file)."""
    import torch

    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().clone(
        memory_format=torch.contiguous_format if value.is_contiguous() else torch.preserve_format
    )


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """True if two tensors are equal bit for bit, shape and dtype included."""
    import torch

    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return torch.equal(*(t.contiguous().reshape(-1).view(torch.uint8) for t in (a, b)))
