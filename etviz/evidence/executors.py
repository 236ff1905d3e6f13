"""Executors of a study."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.connection import wait as wait_for
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any, Final

from etviz.errors import ExecutionError, UsageError
from etviz.pipeline.worker import WORKER
from etviz.text import one_line

PROCESSES: Final = "processes"
GUARD: Final = 'Each process imports the script, so the script has to do its work below if __name__ == "__main__"'
_PAYS: Final = 60.0
"""Seconds of remaining work from which new processes, which import torch, pay."""
_WIDTH: Final = 8


class WherePaying(Executor):
    """Works in the calling thread, and in new processes once much work is known to be left."""

    def __init__(self, pieces: int, count: int, pays: float = _PAYS) -> None:
        self._pieces, self._count, self._pays = pieces, count, pays
        self._done, self._seconds = 0, 0.0
        self._pool: ProcessPoolExecutor | None = None

    @property
    def is_here(self) -> bool:
        return self._pool is None

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        left = (self._pieces - self._done) * self._seconds / max(self._done, 1)
        if self._pool is None and left > self._pays and _crosses(fn, args, kwargs):
            self._pool = _processes(self._count)
        if self._pool is not None:
            return self._pool.submit(fn, *args, **kwargs)
        start, future = time.perf_counter(), Future[Any]()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - the future raises it
            future.set_exception(error)
        self._done, self._seconds = self._done + 1, self._seconds + time.perf_counter() - start
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait, cancel_futures=cancel_futures)


def is_here(pool: Executor) -> bool:
    return getattr(pool, "is_here", False) is True


def runs_a_script() -> bool:
    return getattr(sys.modules.get("__main__"), "__file__", None) is not None


def _crosses(*work: Any) -> bool:
    if runs_a_script():
        return False  # only the script knows whether it guards what it does at its top level
    try:
        ForkingPickler.dumps(work)
    except Exception:  # noqa: BLE001 - a user's function or tensor subclass refuses in its own way
        return False
    return True


def _processes(count: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(count, multiprocessing.get_context("spawn"), initializer=_begin)


def _begin() -> None:
    WORKER.prepares = False  # nobody zooms there, and the imports cost each core seconds
    _end_with_parent()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()

    def watch(sentinel: int) -> None:
        wait_for([sentinel])
        os._exit(1)

    if parent is not None:
        threading.Thread(target=watch, args=(parent.sentinel,), daemon=True).start()


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def executor_of(given: Executor | int | str | None, pieces: int | None = None) -> Generator[tuple[Executor, int]]:
    """The executor and its number of workers; a `UsageError` for an unknown one.

    None stays in this process until new ones pay; ``"processes"`` takes one for each core.
    """
    own: Executor | None = None
    count = 1 if pieces is None else _cores()
    if given is None:
        own = WherePaying((pieces or 0) * (count > 1), count)
    elif given == PROCESSES or (isinstance(given, int) and not isinstance(given, bool)):
        count = given if isinstance(given, int) else _cores()
        if count < 1:
            raise UsageError(f"executor must be a positive number of processes, found {given}")
        if getattr(multiprocessing.current_process(), "_inheriting", False):
            raise UsageError(f"a process of executor={given!r} ran the script that asks for it: {GUARD}")
        own = _processes(count)
    if own is not None:
        try:
            yield own, count
        finally:
            own.shutdown(cancel_futures=True)
        return
    if given is None or isinstance(given, (int, str)) or not callable(getattr(given, "submit", None)):
        raise UsageError(
            f'executor must be a concurrent.futures.Executor, a number of processes, "{PROCESSES}" or None, '
            f"found {type(given).__name__}"
        )
    width = getattr(given, "_max_workers", None)
    yield given, width if isinstance(width, int) else _WIDTH


class UnderWay:
    """Work on an executor, whose results are written to a folder as they come; its end cancels work that waits."""

    def __init__(self, write: Callable[[Any, Any], None], folder: Path) -> None:
        self._write, self._folder = write, folder
        self._items: dict[Future[Any], Any] = {}

    def __enter__(self) -> UnderWay:
        return self

    def __exit__(self, *_: object) -> None:
        for future in self._items:
            future.cancel()

    def add(self, pool: Executor, item: Any, function: Callable[..., Any], *args: Any) -> None:
        self._items[self._guarded(lambda: pool.submit(function, *args))] = item

    def take(self, most: int) -> None:
        """Write finished results, and wait until not more than `most` are under way."""
        while self._items:
            finished = [future for future in self._items if future.done()]
            if not finished and len(self._items) <= most:
                return
            for future in finished or wait(self._items, return_when=FIRST_COMPLETED).done:
                self._write(self._items.pop(future), self._guarded(future.result))

    def _guarded(self, ask: Callable[[], Any]) -> Any:
        try:
            return ask()
        except BrokenProcessPool as error:
            hint = f". {GUARD}" if runs_a_script() else ""
            raise ExecutionError(
                f"A worker was lost ({one_line(error).rstrip('.')}). Finished chunks are in {self._folder}: "
                f"start the study again with the same folder={hint}"
            ) from error
