"""Who does the work: any executor that follows `concurrent.futures`."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Generator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from etviz.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

PROCESSES: Final = "processes"
_WIDTH: Final = 8
"""Pieces of work that an executor of unknown size is given at a time, halved."""


class Here(Executor):
    """Does each piece of work in this thread, when it is asked for."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """The finished future; an interrupt goes through."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - the future hands it on
            future.set_exception(error)
        return future


@contextmanager
def executor_of(given: Executor | int | str | None) -> Generator[tuple[Executor, int]]:
    """The executor that the user means, and how many pieces of work it does at a time.

    Parameters
    ----------
    given
        None for this process; a number of processes, or ``"processes"``; anything with ``submit``.

    Raises
    ------
    UsageError
        If it is none of these.
    """
    if given is None:
        yield Here(), 1
        return
    if given == PROCESSES or (isinstance(given, int) and not isinstance(given, bool)):
        count = given if isinstance(given, int) else len(os.sched_getaffinity(0))
        if count < 1:
            raise UsageError(f"executor must be a positive number of processes, found {given}")
        # Fresh processes: a fork of one that has torch's threads may hang.
        pool = ProcessPoolExecutor(count, multiprocessing.get_context("spawn"))
        try:
            yield pool, count
        finally:
            pool.shutdown(cancel_futures=True)
        return
    if not callable(getattr(given, "submit", None)):
        raise UsageError(
            f'executor must be a concurrent.futures.Executor, a number of processes, "{PROCESSES}" or None, '
            f"found {type(given).__name__}"
        )
    width = getattr(given, "_max_workers", None)
    yield given, width if isinstance(width, int) else _WIDTH  # type: ignore[misc]
