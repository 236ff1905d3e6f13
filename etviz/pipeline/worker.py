"""A child process that stays: importing what lowering needs takes seconds, and the next request finds it done.

It runs ``python -m module``, reads the path of a request a line, and answers ``run <step>`` while it works and
``done <status>`` at the end. It ends when its parent does, when it has had nothing to do for a while, when it crashes,
and when a request takes too long, is cancelled or interrupted; the next request starts a new one.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from etviz.errors import ExecutionError
from etviz.pipeline.process import KEPT_LINES, close, collect, how_it_ended, kill, start, too_slow

IDLE: Final = 300.0
"""Seconds without a request after which the process ends."""
_PATIENCE: Final = 0.1
"""Seconds between two looks at whether a request was cancelled."""


class Worker:
    """The process behind one module; requests wait for one another.

    Parameters
    ----------
    module
        What to run; its ``main`` loop is `serve`.
    """

    def __init__(self, module: str) -> None:
        self._module = module
        self._lock = threading.Lock()
        self._child: subprocess.Popen[str] | None = None
        self._said: queue.Queue[str] = queue.Queue()
        self._errors: list[str] = []
        atexit.register(self.stop)

    def run(
        self,
        request: Path,
        timeout: float,
        progress: Callable[[int], None] | None = None,
        cancel: threading.Event | None = None,
    ) -> int:
        """Do one request; returns its status.

        Raises
        ------
        ExecutionError
            If the process crashes, takes longer than `timeout` seconds, or `cancel` is set.
        """
        with self._lock:
            try:
                self._send(request)
                return self._await(timeout, progress, cancel)
            except BaseException:
                self.stop()
                raise

    def stop(self) -> None:
        """End the process, and what it has started."""
        child, self._child = self._child, None
        if child is None:
            return
        kill(child)
        close(child)

    def _send(self, request: Path) -> None:
        for _ in range(2):
            child = self._child if self._child is not None and self._child.poll() is None else self._start()
            try:
                if child.stdin is not None:
                    child.stdin.write(f"{request}\n")
                    child.stdin.flush()
                return
            except BrokenPipeError:  # it had just ended because it was idle
                self.stop()
        raise ExecutionError("The child process does not take a request")

    def _start(self) -> subprocess.Popen[str]:
        self.stop()
        self._said, self._errors = queue.Queue(), []
        child = self._child = start(self._module, stdin=subprocess.PIPE)
        for target, args in ((_read, (child.stdout, self._said)), (collect, (child.stderr, self._errors))):
            threading.Thread(target=target, args=args, daemon=True).start()
        return child

    def _await(self, timeout: float, progress: Callable[[int], None] | None, cancel: threading.Event | None) -> int:
        end = time.monotonic() + timeout
        while True:
            if cancel is not None and cancel.is_set():
                raise ExecutionError("The run was cancelled")
            left = end - time.monotonic()
            if left <= 0:
                raise too_slow(timeout, self._errors)
            try:
                word, _, number = self._said.get(timeout=min(_PATIENCE, left)).partition(" ")
            except queue.Empty:
                continue
            if word == "run" and progress is not None:
                progress(int(number))
            elif word == "done":
                return int(number)
            elif word == "":
                raise self._crashed()

    def _crashed(self) -> ExecutionError:
        child = self._child
        status = child.wait() if child is not None else None
        return ExecutionError(how_it_ended(status), status, self._errors[-KEPT_LINES:])


def _read(stream: object, said: queue.Queue[str]) -> None:
    """Hand on the answers; an empty one says that there will be no more."""
    with contextlib.suppress(ValueError):
        for line in stream:  # type: ignore[attr-defined]
            word, _, number = line.strip().partition(" ")
            if word in ("run", "done") and number.isdigit():
                said.put(f"{word} {number}")
    said.put("")


def serve(work: Callable[[str], int]) -> None:
    """The loop of the process: `work` gets the path of each request and returns its status."""
    import select

    while select.select([sys.stdin], [], [], IDLE)[0]:
        line = sys.stdin.readline()
        if not line:
            break
        status = work(line.rstrip("\n"))
        sys.stdout.write(f"done {status}\n")
        sys.stdout.flush()
    os._exit(0)  # taking torch and its libraries apart takes a second
