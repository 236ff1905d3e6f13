"""Runs a `.pte` in a child process."""

from __future__ import annotations

import bisect
import itertools
import logging
import os
import re
import shutil
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import torch

from etviz.artifacts.etdump.debug_buffer import DebugBuffer
from etviz.artifacts.etdump.etdump import ETDump, read_etdump
from etviz.artifacts.files import PathLike, room_for, whole_files
from etviz.artifacts.known_files import identity, is_known, note_written
from etviz.artifacts.program.logged import debug_buffer_bytes
from etviz.artifacts.program.program import place_of_length, read_program
from etviz.artifacts.scratch import Scratch
from etviz.errors import ExecutionError, UsageError, checked
from etviz.pipeline.interpreters import how_to_run
from etviz.pipeline.worker import WORKER, Worker, worker_in
from etviz.upstream.libraries import GIVE_A_LIBRARY, missing_operators

logger = logging.getLogger(__name__)

_ETDUMP, _DEBUG_BUFFER = "etdump.etdp", "debug_buffer.bin"
TIMING: Final = "timing.etdp"
_TIMED: Final = 0.5
_MOST_TIMED: Final = 10
_LONGEST: Final = 5.0
"""Seconds of an execution from which it is not run again."""
_LONGEST_SEARCH: Final = 60.0
_SMALLEST_BUFFER: Final = 64 << 10
_LARGEST_BUFFER: Final = 64 << 30
_UNTRACED: Final = (
    "The runtime wrote no ETDump: that executorch was built without event tracing, as wheels older than 1.5 are"
)
_LACKING: Final = re.compile(r"Backend (\w+) is not registered")
_CRASHES: Final = tuple(-getattr(signal, name, 0) for name in ("SIGABRT", "SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL"))
_OVERFLOW: Final = ("buffer_data_sink", "debug buffer")
_REFUSED: Final = re.compile(
    r"(?:KernelCall|CALL_DELEGATE execute) failed at instruction (?:0:)?(\d+)(?: in operator (\S+):)?"
)


@dataclass(frozen=True, slots=True)
class ChildRun:
    """`outputs` and `seconds` are by execution; unwanted files are None."""

    outputs: list[list[Any]]
    etdump: Path | None = None
    debug_buffer: Path | None = None
    seconds: tuple[float, ...] = ()
    dump: ETDump | None = None


@checked
def execute(
    pte: PathLike,
    runs: Sequence[Sequence[Any]],
    *,
    method: str = "forward",
    methods: Sequence[str] = (),
    workdir: PathLike | None = None,
    debug_buffer_size: int | None = None,
    timeout: float | None = None,
    progress: Callable[[int], None] | None = None,
    data: PathLike | None = None,
    python: str = "",
    cancel: threading.Event | None = None,
    passing: bool = False,
) -> ChildRun:
    """Run a program on flat inputs, once for each item of `runs`.

    `workdir` gets ``etdump.etdp`` and ``debug_buffer.bin``. `debug_buffer_size` is bytes: None takes the program's
    needs, and doubles them if that was too small. `timeout` is seconds for all executions. `data` has the weights
    outside the `.pte`. `passing` files are temporary: the ledger need not know them.

    `ExecutionError` if the child process fails, takes too long, or is cancelled.
    """
    if debug_buffer_size is not None and debug_buffer_size <= 0:
        raise UsageError(f"debug_buffer_size must be positive, found {debug_buffer_size}")
    request, needed = _request(pte, list(dict.fromkeys([method, *methods])), data)
    size = debug_buffer_size or needed * max(len(runs), 1)
    worker = worker_in(python) if python else WORKER
    if methods:
        request["methods"] = list(methods)
    with Scratch() as scratch, room_for():
        if workdir is None:
            outputs, seconds = _run(worker, request, runs, Path(scratch), timeout, progress, cancel)
            return ChildRun(outputs, seconds=seconds)
        folder = Path(workdir).absolute()
        with whole_files(folder) as fresh:
            request |= {"etdump": str(fresh / _ETDUMP), "debug_buffer": str(fresh / _DEBUG_BUFFER)}
            while True:
                try:
                    sized = request | {"debug_buffer_size": size}
                    outputs, seconds = _run(worker, sized, runs, Path(scratch), timeout, progress, cancel)
                    break
                except ExecutionError as error:
                    if debug_buffer_size or not _overflowed(error) or 2 * size > _LARGEST_BUFFER:
                        raise
                    logger.info("the debug buffer of %d bytes was too small; running again with twice as much", size)
                    size *= 2
            if not (fresh / _ETDUMP).is_file():
                raise ExecutionError(_UNTRACED)
            dump = _trim(fresh)
            has_buffer = (fresh / _DEBUG_BUFFER).exists()
        if not passing:
            note_written(folder / name for name in (_ETDUMP, _DEBUG_BUFFER))
        buffer = folder / _DEBUG_BUFFER if has_buffer else None
        return ChildRun(outputs, folder / _ETDUMP, buffer, seconds, replace(dump, path=str(folder / _ETDUMP)))


def time_again(
    pte: PathLike,
    runs: Sequence[Sequence[Any]],
    run: ChildRun,
    workdir: PathLike,
    *,
    timeout: float | None,
    data: PathLike | None,
) -> Path | None:
    """Runs without a debug buffer, which takes time.

    One execution is repeated for half a second, up to ten times; several are run once.
    """
    took = max(*run.seconds, 1e-6) if run.seconds else _LONGEST
    if took >= _LONGEST:
        return None
    count = 1 + min(max(int(_TIMED / took), 1), _MOST_TIMED) if len(runs) == 1 else 1
    request, _ = _request(pte, ["forward"], data)
    folder = Path(workdir).absolute()
    try:
        with Scratch() as scratch, room_for(folder), whole_files(folder) as fresh:
            request |= {"etdump": str(fresh / TIMING), "debug_buffer": str(Path(scratch) / _DEBUG_BUFFER)}
            _run(WORKER, request, [*runs] * count, Path(scratch), timeout, None)
    except ExecutionError as error:
        logger.info("the program could not be timed without a debug buffer (%s)", error)
        return None
    note_written([folder / TIMING])
    return folder / TIMING


def _request(pte: PathLike, methods: Sequence[str], data: PathLike | None) -> tuple[dict[str, Any], int]:
    """And the bytes of debug buffer that each execution needs."""
    needs = [_needs(pte, name) for name in methods]
    request = {"work": "run", "foreign": not is_known([pte]), "pte": str(Path(pte).absolute()), "method": methods[0]}
    request["namespaces"] = sorted({name for _, names in needs for name in names})
    weights = {} if data is None else {"data": str(Path(data).absolute())}
    return request | weights, max(size for size, _ in needs)


def _needs(pte: PathLike, method: str) -> tuple[int, list[str]]:
    try:
        return _needed(os.fspath(pte), method, identity(pte))
    except OSError:
        return _needed.__wrapped__(os.fspath(pte), method, "")


@lru_cache(maxsize=8)
def _needed(pte: str, method: str, state: str) -> tuple[int, list[str]]:
    program = read_program(pte)
    if method not in (names := [m.name for m in program.methods]):
        raise UsageError(f"the program {pte} has no method {method!r}; it has {names}")
    kernels = {instruction.operator for instruction in program.method(method).instructions if instruction.operator}
    namespaces = sorted({kernel.partition("::")[0] for kernel in kernels})
    return max(debug_buffer_bytes(program, method), _SMALLEST_BUFFER), namespaces


def _run(
    worker: Worker,
    request: dict[str, Any],
    runs: Sequence[Sequence[Any]],
    scratch: Path,
    timeout: float | None,
    progress: Callable[[int], None] | None,
    cancel: threading.Event | None = None,
) -> tuple[list[list[Any]], tuple[float, ...]]:
    inputs, outputs = scratch / "inputs.pt", scratch / "outputs.pt"
    torch.save([list(run) for run in runs], inputs)
    request = request | {"inputs": str(inputs), "outputs": str(outputs)}
    try:
        answer = worker.run(request, timeout, progress, cancel)
    except ExecutionError as error:
        if missing := missing_operators(error.last_lines):
            problem = f"The runtime has no kernel for {', '.join(missing)}; {GIVE_A_LIBRARY}"
            raise ExecutionError(problem, error.exit_status, error.last_lines) from None
        if lacking := _lacking(error):
            problem = f"The runtime here has no {lacking}, to which {request['pte']} delegates; {how_to_run(lacking)}"
            raise ExecutionError(problem, error.exit_status) from None
        if refused := _refused(request, error):
            lines = itertools.takewhile(lambda said: not said.startswith("Traceback"), error.last_lines)
            raise ExecutionError(refused, error.exit_status, [*lines]) from None
        if not _overflowed(error):
            if error.exit_status in _CRASHES and (where := _crashing_instruction(worker, request, scratch, cancel)):
                raise ExecutionError(f"{error.problem} {where}", error.exit_status, error.last_lines) from None
            raise
        problem = "The debug buffer was too small and the runtime aborted; give a larger debug_buffer_size="
        raise ExecutionError(problem, error.exit_status, error.last_lines) from None
    return torch.load(outputs, weights_only=True), tuple(answer.get("seconds", ()))


def _crashing_instruction(
    worker: Worker, request: dict[str, Any], scratch: Path, cancel: threading.Event | None
) -> str:
    method, copy = read_program(request["pte"]).method(request["method"]), scratch / "cut.pte"
    calls = [instruction for instruction in method.instructions if instruction.chain == 0]
    shutil.copyfile(request["pte"], copy)
    place, end = place_of_length(copy, method.name), time.monotonic() + _LONGEST_SEARCH
    plain = {name: request[name] for name in request.keys() - {"etdump", "debug_buffer"}} | {"pte": str(copy)}
    searching = Worker() if worker is WORKER else worker  # its children end with the search

    def crashes(length: int) -> bool:
        with copy.open("r+b") as file:
            file.seek(place)
            file.write(length.to_bytes(4, "little"))
        try:
            searching.run(plain, max(end - time.monotonic(), 0.0), cancel=cancel)
        except ExecutionError as error:
            if error.exit_status is None:  # too slow, or cancelled
                raise
            return error.exit_status in _CRASHES
        return False

    try:
        length = bisect.bisect_left(range(len(calls) + 1), x=True, key=crashes)
    except ExecutionError:
        return ""
    finally:
        searching.stop()
    if not 0 < length <= len(calls):
        return ""
    call = calls[length - 1]
    return f"in instruction {call.index} ({call.operator or method.backend(call) or call.kind})"


def _lacking(error: ExecutionError) -> str:
    matches = (_LACKING.search(line) for line in error.last_lines)
    return next((match[1] for match in matches if match is not None), "")


def _refused(request: dict[str, Any], error: ExecutionError) -> str:
    line = next(filter(None, map(_REFUSED.search, error.last_lines)), None)
    if line is None:
        return ""
    for name in (request["method"], *request.get("methods", ())):
        method = read_program(request["pte"]).method(name)
        call = method.by_position.get((0, int(line[1])))
        if call is not None and (line[2] or call.operator) == call.operator:
            specs = (method.values[at].tensor for value in call.inputs for at in method.tensors(value))
            reads = ", ".join(f"{spec.dtype} {list(spec.sizes)}" for spec in specs if spec is not None)
            return (
                f"Instruction {call.index} ({call.operator or method.backend(call)}) refuses what it reads ({reads}). "
                "Where its kernel lacks this dtype or number of axes, give a partitioner whose backend takes the "
                "operator, or write it with other operators"
            )
    return ""


def _overflowed(error: ExecutionError) -> bool:
    return error.exit_status == -signal.SIGABRT and any(
        mark in line.lower() for line in error.last_lines for mark in _OVERFLOW
    )


def _trim(folder: Path) -> ETDump:
    """The runtime's bindings write the debug buffer at full capacity; beside a damaged ETDump it stays whole."""
    buffer, dump = folder / _DEBUG_BUFFER, read_etdump(folder / _ETDUMP)
    if buffer.exists():
        used = 0 if dump.problems else DebugBuffer(buffer).used(dump.tensor_refs())
        if 0 < used < buffer.stat().st_size:
            os.truncate(buffer, used)
    return dump
