"""Running a `.pte` in a child process, with a time limit and a debug buffer that is large enough."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from etviz.artifacts.debug_buffer import DebugBuffer
from etviz.artifacts.etdump import read_etdump
from etviz.artifacts.files import PathLike
from etviz.artifacts.program import debug_buffer_bytes, read_program
from etviz.errors import ExecutionError, UsageError
from etviz.pipeline.process import KEPT_LINES, close, collect, how_it_ended, kill, start, too_slow

logger = logging.getLogger(__name__)

DEFAULT_TIMEOUT: Final = 600.0
"""Seconds that a run may take if the caller names no limit."""
_LARGEST_BUFFER: Final = 64 << 30


@dataclass(frozen=True, slots=True)
class Run:
    """What a run left behind.

    Attributes
    ----------
    outputs
        Outputs of each execution, in order: tensors and plain values.
    etdump, debug_buffer
        The files; None where they were not asked for.
    debug_buffer_size
        Bytes that the debug buffer had while running.
    """

    outputs: list[list[Any]]
    etdump: Path | None = None
    debug_buffer: Path | None = None
    debug_buffer_size: int = 0
    messages: tuple[str, ...] = field(default=())


def execute(
    pte: PathLike,
    runs: Sequence[Sequence[Any]],
    *,
    method: str = "forward",
    workdir: PathLike | None = None,
    debug_buffer_size: int | None = None,
    timeout: float | None = None,
    progress: Callable[[int], None] | None = None,
) -> Run:
    """Run a program on flat inputs, once for each item of `runs`.

    Parameters
    ----------
    pte
        The program.
    runs
        Flat inputs (tensors and plain values) of each execution.
    method
        Name of the method.
    workdir
        Folder for ``etdump.etdp`` and ``debug_buffer.bin``, made if it is missing; None runs without them.
    debug_buffer_size
        Bytes; None sizes it from the program, and doubles it where that was too small.
    timeout
        Seconds for the whole child process, `DEFAULT_TIMEOUT` if None.
    progress
        Called with the number of executions done, from a helper thread.

    Raises
    ------
    ArtifactError
        If the `.pte` can't be read.
    ExecutionError
        If the child process fails, crashes, or exceeds the time limit.
    UsageError
        If the program has no such method, or `debug_buffer_size` or `timeout` make no sense.
    """
    if debug_buffer_size is not None and debug_buffer_size <= 0:
        raise UsageError(f"debug_buffer_size must be positive, found {debug_buffer_size}")
    if timeout is not None and timeout <= 0:
        raise UsageError(f"timeout must be positive, found {timeout}")
    estimate = _estimate(pte, method)
    with tempfile.TemporaryDirectory(prefix="etviz-") as scratch:
        if workdir is None:
            return _attempt(pte, runs, method, Path(scratch), None, 0, timeout, progress)
        with _fresh_folder(Path(workdir)) as fresh:
            size = debug_buffer_size or estimate * max(len(runs), 1)
            while True:
                try:
                    run = _attempt(pte, runs, method, Path(scratch), fresh, size, timeout, progress)
                    break
                except ExecutionError as error:
                    overflow = _overflowed(error.exit_status, error.last_lines)
                    if debug_buffer_size or not overflow or 2 * size > _LARGEST_BUFFER:
                        raise
                    logger.info("the debug buffer of %d bytes was too small; running again with twice as much", size)
                    size *= 2
            _trim(run)
            return _publish(run, Path(workdir))


@contextlib.contextmanager
def _fresh_folder(workdir: Path) -> Generator[Path]:
    """A folder inside of `workdir` for files that are not whole yet.

    A run that fails leaves those of an earlier one as they are, and what an Inspection has mapped is never written to.
    """
    try:
        workdir.mkdir(parents=True, exist_ok=True)
        folder = tempfile.TemporaryDirectory(prefix=".etviz-", dir=workdir)
    except OSError as error:
        raise UsageError(f"workdir {workdir} can't be written to ({error.strerror or error})") from error
    with folder as name:
        yield Path(name)


def _publish(run: Run, workdir: Path) -> Run:
    """Give the files of a whole run their names."""
    places: dict[str, Path | None] = {}
    for kind in ("etdump", "debug_buffer"):
        path: Path | None = getattr(run, kind)
        there = path is not None and path.exists()
        places[kind] = path.replace(workdir / path.name) if path is not None and there else None
    return replace(run, **places)


def _estimate(pte: PathLike, method: str) -> int:
    program = read_program(pte)
    if method not in (names := [m.name for m in program.methods]):
        raise UsageError(f"the program {os.fspath(pte)} has no method {method!r}; it has {names}")
    return max(debug_buffer_bytes(program, method), 1 << 16)


def _attempt(
    pte: PathLike,
    runs: Sequence[Sequence[Any]],
    method: str,
    scratch: Path,
    workdir: Path | None,
    size: int,
    timeout: float | None,
    progress: Callable[[int], None] | None,
) -> Run:
    import torch

    inputs, outputs, request = scratch / "inputs.pt", scratch / "outputs.pt", scratch / "request.json"
    torch.save([list(run) for run in runs], inputs)
    etdump = workdir / "etdump.etdp" if workdir else None
    buffer = workdir / "debug_buffer.bin" if workdir else None
    body = {
        "pte": os.fspath(pte),
        "method": method,
        "inputs": str(inputs),
        "outputs": str(outputs),
        "etdump": str(etdump) if etdump else None,
        "debug_buffer": str(buffer) if buffer else None,
        "debug_buffer_size": size,
    }
    request.write_text(json.dumps(body), encoding="utf-8")
    lines = run_child("etviz.pipeline.child", request, timeout, progress)
    try:
        found = torch.load(outputs, weights_only=True)
    except Exception as error:
        raise ExecutionError(
            f"The child process ended without an error, but its outputs can't be read ({error})",
            0,
            lines[-KEPT_LINES:],
        ) from error
    return Run(found, etdump, buffer, size, tuple(lines))


def run_child(
    module: str,
    request: Path,
    timeout: float | None,
    progress: Callable[[int], None] | None = None,
) -> list[str]:
    """Run ``python -m module request``; returns the lines that it wrote to stderr.

    Raises
    ------
    ExecutionError
        If it exits with another status than 0, is killed by a signal, or exceeds `timeout` seconds.
    """
    limit = DEFAULT_TIMEOUT if timeout is None else timeout
    child = start(module, str(request))
    lines: list[str] = []
    readers = [
        threading.Thread(target=collect, args=(child.stderr, lines), daemon=True),
        threading.Thread(target=_read_progress, args=(child.stdout, progress), daemon=True),
    ]
    for reader in readers:
        reader.start()
    try:
        status = child.wait(limit)
    except subprocess.TimeoutExpired:
        kill(child)
        raise too_slow(limit, lines) from None
    except BaseException:
        kill(child)
        raise
    finally:
        for reader in readers:
            reader.join(2)
        close(child)
    if status:
        raise ExecutionError(_explain(status, lines), status, lines[-KEPT_LINES:])
    return lines


def _explain(status: int, lines: Sequence[str]) -> str:
    if _overflowed(status, lines):
        return "The debug buffer was too small and the runtime aborted; give a larger debug_buffer_size="
    return how_it_ended(status)


def _overflowed(status: int | None, lines: Sequence[str]) -> bool:
    return status == -signal.SIGABRT and any("buffer" in line.lower() for line in lines)


def _read_progress(stream: Any, progress: Callable[[int], None] | None) -> None:
    for line in stream:
        word, _, number = line.partition(" ")
        if word == "run" and progress is not None and number.strip().isdigit():
            progress(int(number))


def _trim(run: Run) -> None:
    """Cut the debug buffer to what the ETDump refers to; the runtime's bindings write it at full capacity."""
    if run.etdump is None or run.debug_buffer is None or not run.debug_buffer.exists():
        return
    used = DebugBuffer(run.debug_buffer).used(read_etdump(run.etdump).tensor_refs())
    if 0 < used < run.debug_buffer.stat().st_size:
        os.truncate(run.debug_buffer, used)
