"""Runs a piece of a program alone, in a child process: a delegate's subgraph, or one operator."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from tqdm.auto import tqdm

from etviz.artifacts.files import room_for
from etviz.artifacts.scratch import Scratch
from etviz.errors import BackendRefusedError, ExecutionError
from etviz.graph.ir import Graph
from etviz.graph.ir_json import TextTable, dump_graph
from etviz.pipeline.interpreters import interpreter_of
from etviz.pipeline.worker import WORKER
from etviz.upstream.executorch import backend_module, runs_here
from etviz.upstream.xnnpack import BACKEND

_STEPS = ("start", "lower", "run", "read")


class RanDelegate(NamedTuple):
    pte: str
    method: str
    instruction: int
    record: str = ""
    data: str = ""


@dataclass(frozen=True, slots=True)
class Piece:
    """A delegate's subgraph, or portable operators if `Graph.backend_id` is empty.

    `rounds` counts how often a loop executed it (this is the last), 0 outside loops.
    """

    graph: Graph
    constants: Mapping[str, torch.Tensor]
    inputs: Sequence[Any]
    outputs: Sequence[Any]
    ran: RanDelegate | None = None
    rounds: int = 0


@dataclass(frozen=True, slots=True)
class AloneRun:
    """Inner `values` are mapped from a file; `left_out` has reasons for other candidates.

    `plain` are the outputs as the program computes them alone; None stands for `outputs`.
    `implementation` is empty for the backend's own kernels. `parts` are operators that the backend runs as part of
    another one. `precision` is that of `plain`, empty if it is that of the values.
    """

    outputs: list[torch.Tensor]
    values: dict[str, torch.Tensor]
    left_out: dict[str, str]
    plain: list[torch.Tensor] | None
    lowered: bool = True
    implementation: str = ""
    parts: Mapping[str, str] = field(default_factory=dict)
    precision: str = ""


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
    """Run a piece on its inputs, with the candidates that the backend can return as further outputs.

    If the program is known and the backend has an interpreter, the delegate runs as in the `.pte`. Else, and for
    `keep_pte`, the piece is lowered again. `timeout` is seconds. `BackendRefusedError` if the piece can't be lowered or
    run; `ExecutionError` if the child process fails.
    """
    bars: Any = partial(tqdm, disable=True) if quiet else tqdm  # `disable=False` would win over TQDM_DISABLE
    with Scratch() as folder, room_for(), bars(total=len(_STEPS), desc=label, leave=False) as bar:

        def step(done: int) -> None:
            bar.set_postfix_str(_STEPS[min(done, len(_STEPS) - 1)])
            bar.update(done - bar.n)
            if progress is not None:
                progress(done, len(_STEPS))

        step(0)
        request = _request(piece, candidates, Path(folder), keep_pte)
        answer = _interpret(piece, request, timeout, step, cancel) if keep_pte is None else None
        lowered = answer is None
        if answer is None:
            _add_constants(piece, request)
            answer = WORKER.run(request | {"work": "relower"}, timeout, step, cancel)
        if answer["problem"]:
            raise _refusal(piece.graph.backend_id, answer["step"], answer["problem"])
        saved = torch.load(request["outputs"], weights_only=True, mmap=True)
        step(len(_STEPS))
    count = len(piece.graph.outputs)
    values = dict(zip(answer["names"], saved["outputs"][count:], strict=True))
    told = interpreter_of(piece.graph.backend_id)
    implementation = told.implementation if told is not None and not lowered else ""
    plain, parts = saved["plain"], answer.get("parts", {})
    outputs, precision = saved["outputs"][:count], answer.get("precision", "")
    return AloneRun(outputs, values, answer["left_out"], plain, lowered, implementation, parts, precision)


def _interpret(
    piece: Piece,
    request: dict[str, Any],
    timeout: float | None,
    step: Callable[[int], None],
    cancel: threading.Event | None,
) -> dict[str, Any] | None:
    backend = piece.graph.backend_id
    interpreter = interpreter_of(backend)
    if interpreter is None or (piece.ran is None and not interpreter.implementation):
        return None
    if not interpreter.is_installed():
        problem = f"{interpreter.package} is not installed: {interpreter.command}"
        raise BackendRefusedError(backend, "run", problem, missing=True)
    if piece.ran is None:
        raise BackendRefusedError(backend, "run", f"the {interpreter.implementation} needs the .pte; give pte=")
    try:
        answer = WORKER.run(request | {"work": "inside", "interpreter": interpreter.function}, timeout, step, cancel)
    except ExecutionError as error:
        if error.exit_status is None:
            raise
        answer = {"problem": f"{error.problem}, {' '.join(error.last_lines[-3:])}"}
    if answer["problem"] and interpreter.implementation:
        problem = str(answer["problem"]).rstrip(".") + interpreter.other_version()
        raise BackendRefusedError(interpreter.implementation, "run", problem)
    return None if answer["problem"] else answer


def alterations(
    piece: Piece, timeout: float | None = None, cancel: threading.Event | None = None
) -> list[tuple[str, str]]:
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
    used = {placeholder.target for placeholder in piece.graph.inputs if placeholder.kind != "user"}
    torch.save({name: piece.constants[name].detach().clone() for name in used}, request["constants"])


def own_copy(value: Any) -> Any:
    """A view of a mapped file would be saved with the whole file."""
    if not isinstance(value, torch.Tensor):
        return value
    layout = torch.contiguous_format if value.is_contiguous() else torch.preserve_format
    return value.detach().clone(memory_format=layout)
