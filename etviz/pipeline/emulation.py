"""Runs a program whose backends this machine lacks, each of their delegates in its reference implementation.

For each delegate call, the program runs up to it; the results are inputs of the following runs. The last run is whole;
its ETDump gets the interpreters' calls.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import torch
from tqdm.auto import tqdm

from etviz.artifacts.etdump.etdump import read_etdump
from etviz.artifacts.etdump.events import Layout
from etviz.artifacts.etdump.value_writer import ALIGNMENT, ValueWriter
from etviz.artifacts.files import PathLike, room_for
from etviz.artifacts.known_files import note_written
from etviz.artifacts.program.program import read_program
from etviz.artifacts.record.record_file import read_record
from etviz.artifacts.scratch import Scratch
from etviz.errors import BackendRefusedError, ExecutionError, UsageError
from etviz.graph.ir import Graph, refs
from etviz.graph.uses import Uses
from etviz.pipeline.execute import ChildRun, execute
from etviz.pipeline.interpreters import Interpreter, interpreter_of
from etviz.pipeline.relower import Piece, RanDelegate, run_alone
from etviz.upstream.emulated import DelegateCall, DelegateFree, MadeCall, with_calls
from etviz.upstream.executorch import runs_here

EMULATED: Final = "emulated"


@dataclass(frozen=True, slots=True)
class _Delegate:
    graph: Graph
    zeros: list[torch.Tensor]  # of outputs that are not known


@dataclass(slots=True)
class _Made:
    inputs: list[torch.Tensor]
    outputs: list[torch.Tensor]


def emulators(pte: PathLike, method: str = "forward") -> tuple[str, ...]:
    backends = dict.fromkeys(read_program(pte).method(method).backends)
    interpreters = (interpreter_of(backend) for backend in backends if not _stays(backend))
    return tuple(dict.fromkeys(interpreter.implementation for interpreter in interpreters if interpreter is not None))


def emulate(
    pte: PathLike,
    record: PathLike,
    runs: Sequence[Sequence[Any]],
    *,
    workdir: PathLike,
    timeout: float | None = None,
    data: PathLike | None = None,
) -> ChildRun:
    """As `execute`, with the delegates' graphs of `record`; `timeout` is seconds for each run.

    `UsageError` if a delegate has no reference implementation here, or stands in a branch or a loop.
    """
    path, folder = Path(pte).absolute(), Path(workdir).absolute()
    program = DelegateFree(path.read_bytes(), "forward", _stays)
    known = {call.instruction: _interpreter(call.backend_id) for call in program.calls}
    delegates = _delegates(record, program.calls, len(runs))
    counts = {at: len(delegate.zeros) for at, delegate in delegates.items()}
    made: dict[int, list[_Made]] = {}
    options: dict[str, Any] = {"timeout": timeout, "data": data, "passing": True}
    with Scratch() as scratch, room_for(), tqdm(total=len(program.calls) + 1, desc="emulate", leave=False) as bar:
        cut = Path(scratch) / "program.pte"
        for call in program.calls:
            bar.set_postfix_str(call.backend_id)
            graph = delegates[call.instruction].graph
            cut.write_bytes(program.program(counts, call, len(graph.user_inputs())))
            reached = execute(cut, _with_made(program.calls, made, delegates, runs), **options).outputs
            piece = Piece(graph, {}, [], [])
            ran = RanDelegate(str(path), "forward", call.instruction, os.fspath(record), os.fspath(data or ""))
            made[call.instruction] = [_make(replace(piece, ran=ran, inputs=inputs), timeout) for inputs in reached]
            bar.update()
        cut.write_bytes(program.program(counts))
        run = execute(cut, _with_made(program.calls, made, delegates, runs), workdir=folder, **options)
        bar.update()
    if run.etdump is None:
        raise UsageError("the runtime wrote no ETDump")
    buffer = folder / "debug_buffer.bin"
    _add_calls(run.etdump, buffer, known, made, len(runs))
    note_written([run.etdump, buffer])
    return replace(run, debug_buffer=buffer, dump=read_etdump(run.etdump))


def _add_calls(
    etdump: Path, buffer: Path, known: dict[int, Interpreter], made: dict[int, list[_Made]], count: int
) -> None:
    writer = ValueWriter(buffer, append=True)
    executions = [list(_logged(writer, known, made, at)) for at in range(count)]
    content, ordered = buffer.read_bytes() if buffer.exists() else b"", bytearray()

    def move(offset: int, code: int, sizes: Sequence[int]) -> int:
        ordered.extend(bytes(-len(ordered) % ALIGNMENT))
        start = len(ordered)
        ordered.extend(content[offset : offset + Layout(code, tuple(sizes), ()).nbytes])
        return start

    etdump.write_bytes(with_calls(etdump.read_bytes(), executions, move))
    buffer.write_bytes(ordered)


def _delegates(record: PathLike, calls: Sequence[DelegateCall], runs: int) -> dict[int, _Delegate]:
    graph = read_record(record).graphs["forward"]
    if graph.mutations and runs > 1:
        raise UsageError("runner='emulated' takes one call of a model that keeps state; give one tuple of inputs")
    insides = {node.instruction: graph.inside(node) for node in graph.nodes}
    delegates = {}
    for at in (call.instruction for call in calls):
        if at not in insides or not insides[at].nodes:
            raise UsageError(f"the record does not hold the graph of the delegate call {at}")
        uses, zeros = Uses(insides[at]), []
        for meta in (uses.meta(uses.value(name)) for name in refs(insides[at].outputs)):
            if meta is None or meta.sizes is None:
                raise UsageError(
                    "runner='emulated' takes delegates with known sizes only; export without dynamic shapes"
                )
            zeros.append(torch.zeros(meta.sizes, dtype=getattr(torch, meta.dtype)))
        delegates[at] = _Delegate(insides[at], zeros)
    return delegates


def _interpreter(backend_id: str) -> Interpreter:
    interpreter = interpreter_of(backend_id)
    if interpreter is None:
        raise UsageError(
            f"etviz has no reference implementation of {backend_id}; run it on the device, or register one "
            "(docs/backends.md)"
        )
    if not interpreter.is_installed():
        raise UsageError(f"runner='emulated' needs {interpreter.package} for {backend_id}: {interpreter.command}")
    return interpreter


def _stays(backend_id: str) -> bool:
    interpreter = interpreter_of(backend_id)
    return (interpreter is None or not interpreter.implementation) and runs_here(backend_id)


def _with_made(
    calls: Sequence[DelegateCall],
    made: dict[int, list[_Made]],
    delegates: dict[int, _Delegate],
    runs: Sequence[Sequence[Any]],
) -> list[list[Any]]:
    values = []
    for at, inputs in enumerate(runs):
        run_values = list(inputs)
        for call in calls:
            here = made.get(call.instruction)
            run_values += here[at].outputs if here is not None else delegates[call.instruction].zeros
        values.append(run_values)
    return values


def _make(piece: Piece, timeout: float | None) -> _Made:
    try:
        run = run_alone(piece, timeout=timeout, quiet=True)
        return _Made(list(piece.inputs), run.outputs if run.plain is None else run.plain)
    except BackendRefusedError as error:
        at = piece.ran.instruction if piece.ran is not None else -1
        raise ExecutionError(f"{error.backend} can't run the delegate call {at}: {error.problem}") from error


def _logged(
    writer: ValueWriter, known: dict[int, Interpreter], made: dict[int, list[_Made]], at: int
) -> Iterator[MadeCall]:
    for instruction, executions in made.items():
        call = executions[at]
        values = []
        for tensor in (*call.inputs, *call.outputs):
            _, ref = writer.value(tensor)
            values.append((ref.layout.scalar_type, ref.layout.sizes, ref.layout.strides, max(ref.offset, 0)))
        yield MadeCall(instruction, values, known[instruction].implementation)
