"""The process that runs programs and lowers pieces of them: the runtime may abort it, a backend may crash or hang.

Its imports cost seconds, so it stays until its parent ends, it is idle for long, or a request fails.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Pipe
from pathlib import Path
from typing import IO, Any, Final

import etviz
from etviz.errors import ExecutionError, UsageError, checked
from etviz.pipeline.service import IDLE, OUT_OF_MEMORY
from etviz.upstream.libraries import NAME_A_LIBRARY, users_libraries

DEFAULT_TIMEOUT: Final = 600.0
KEPT_LINES: Final = 20
PATIENT_THREADS: Final = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "20000", "KMP_BLOCKTIME": "1"}
"""Torch's threads wait for one another about 1 ms, longer than the gap between two operators, then sleep."""
_PATIENCE: Final = 0.1
_LAST_WORDS: Final = 2.0
_LONGEST_LINE: Final = 1 << 12
"""Characters after which a line is taken for two: it may have no end."""
_NOISE: Final = (
    *("cpuinfo_utils.cpp", "Failed to load ", "copyreg", "__new__"),
    *("torch/utils/_pytree.py", "with type id "),
)

# The parent's etviz, wherever it is, and nothing else from the folder that the process happens to run in.
_BOOTSTRAP: Final = """
import gc, sys
gc.disable()  # until what is needed is imported: the collector would walk through all of torch
sys.path = [path for path in sys.path if path]
import importlib, importlib.util
spec = importlib.util.spec_from_file_location("etviz", sys.argv[1])
sys.modules["etviz"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules["etviz"])
importlib.import_module(sys.argv[2]).main(*map(int, sys.argv[3:]))
"""
# Of etviz its files alone: another environment need not have what etviz depends on, and `etviz/__init__` imports some.
_BOOTSTRAP_ELSEWHERE: Final = """
import gc, importlib, sys, types
gc.disable()
sys.modules["etviz"] = types.ModuleType("etviz")
sys.modules["etviz"].__path__ = [sys.argv[1]]
importlib.import_module(sys.argv[2]).main(*map(int, sys.argv[3:]))
"""
_UTF8: Final = {"PYTHONUTF8": "1"}
"""ExecuTorch reads files of UTF-8 in the encoding of the locale, which may be ASCII."""
_OURS: Final = ("PYTHON", "VIRTUAL_ENV", "CONDA_", "__PYVENV_LAUNCHER__", "FLATC_EXECUTABLE")


class Worker:
    """Answers requests in child processes that stay; each takes one request at a time.

    The child's `module` has ``main(connection, parent)``: a file descriptor and the parent's process id. A worker that
    no longer `prepares` adds a 0.
    """

    def __init__(self, module: str = "etviz.pipeline.child", python: str = "") -> None:
        self._module, self._python = module, python
        self.prepares = True  # an idle child imports what a zoom needs
        self._forget()
        atexit.register(self.stop)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        """In a fork, the processes are still the parent's."""
        self._lock = threading.Lock()
        self._children: list[_Child] = []
        # Linux ends a process with the thread that started it, so that must be one that stays.
        self._starter = ThreadPoolExecutor(1, "starts etviz's processes")

    def warm(self) -> None:
        with contextlib.suppress(RuntimeError):  # the interpreter is shutting down
            self._starter.submit(self._start, another=False)

    @checked
    def run(
        self,
        request: Mapping[str, Any],
        timeout: float | None = None,
        progress: Callable[[int], None] | None = None,
        cancel: threading.Event | None = None,
        called: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
        setting: str = "timeout=",
    ) -> dict[str, Any]:
        """`ExecutionError` if the process fails, takes too long (by this setting), or `cancel` is set."""
        child = self._take()
        try:
            path = [str(Path(place).absolute()) for place in sys.path]
            environment = {"libraries": users_libraries(), "path": path}
            limit = DEFAULT_TIMEOUT if timeout is None else timeout
            answer = child.ask({**environment, **request}, limit, progress, cancel, called, setting)
        except BaseException:
            child.end()
            raise
        with self._lock:
            spare = any(other.is_free() for other in self._children)
            if not spare:
                child.release()
        if spare:
            child.end()
        return answer

    def stop(self) -> None:
        with self._lock:
            children, self._children = self._children, []
        for child in children:
            child.end()

    def _take(self) -> _Child:
        while True:
            try:
                child = self._starter.submit(self._start).result()
            except OSError as error:
                problem = f"The child process can't be started ({error.strerror or error})"
                raise ExecutionError(problem + _expected(self._python)) from error
            with self._lock:
                if not child.busy:  # another thread may have been faster
                    child.busy = True
                    return child

    def _start(self, *, another: bool = True) -> _Child:
        with self._lock:
            self._children = [child for child in self._children if child.is_alive()]
            for child in self._children:
                if child.is_free() or not another:
                    return child
            self._children.append(_Child(self._module, self._python, self.prepares))
            return self._children[-1]


class _Child:
    def __init__(self, module: str, python: str, prepares: bool) -> None:
        self._connection, theirs = Pipe()
        self._python, self._heard = python, False
        command = [sys.executable, "-c", _BOOTSTRAP, str(etviz.__file__)]
        if python:  # isolated, and nothing is written beside our files
            command = [python, "-I", "-B", "-c", _BOOTSTRAP_ELSEWHERE, str(Path(etviz.__file__).parent)]
        with theirs:
            fileno = theirs.fileno()
            self._process = subprocess.Popen(
                [*command, module, str(fileno), str(os.getpid()), *([] if prepares else ["0"])],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,
                env=PATIENT_THREADS | (environment_of(python) if python else dict(os.environ)) | _UTF8,
                pass_fds=[fileno],
            )
        self._lines: list[str] = []
        self._reader = threading.Thread(target=_collect, args=(self._process.stdout, self._lines), daemon=True)
        self._reader.start()
        self.busy = False
        self._free_since = time.monotonic()

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def is_free(self) -> bool:
        return not self.busy and self.is_alive() and time.monotonic() < self._free_since + 0.9 * IDLE

    def release(self) -> None:
        self.busy, self._free_since = False, time.monotonic()
        self._lines.clear()

    def ask(
        self,
        request: Mapping[str, Any],
        limit: float,
        progress: Callable[[int], None] | None,
        cancel: threading.Event | None,
        called: Callable[[dict[str, Any]], dict[str, Any]] | None,
        setting: str,
    ) -> dict[str, Any]:
        end = time.monotonic() + limit
        self._send(request)
        while True:
            left = end - time.monotonic()
            if cancel is not None and cancel.is_set():
                raise ExecutionError("The run was cancelled")
            if left <= 0:
                raise self._too_slow(limit, setting)
            reply = self._reply(min(_PATIENCE, left))
            if reply.get("unloadable"):
                raise UsageError(f"libraries: {reply['unloadable']}; {NAME_A_LIBRARY}")
            if "answer" in reply:
                return reply["answer"]
            if progress is not None and "step" in reply:
                progress(reply["step"])
            if called is not None and "call" in reply:
                self._send(called(reply["call"]))

    def _send(self, message: Mapping[str, Any]) -> None:
        with contextlib.suppress(BrokenPipeError):  # what it said before it crashed comes first
            self._connection.send_bytes(json.dumps(message).encode())

    def _reply(self, patience: float) -> dict[str, Any]:
        try:
            if not self._connection.poll(patience):
                return {}
            reply = json.loads(self._connection.recv_bytes())
            self._heard = True
            return reply
        except (EOFError, OSError):
            raise self._crashed() from None

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join(_LAST_WORDS)
        self._connection.close()

    def _too_slow(self, limit: float, setting: str) -> ExecutionError:
        return ExecutionError(
            f"The run did not end within {limit:g} s and was stopped; give a longer {setting} if it needs one",
            None,
            self._lines[-KEPT_LINES:],
        )

    def _crashed(self) -> ExecutionError:
        try:
            status = self._process.wait(_LAST_WORDS)
        except subprocess.TimeoutExpired:
            return ExecutionError("The child process does not answer any more", None, self._lines[-KEPT_LINES:])
        self._reader.join(_LAST_WORDS)
        problem = how_it_ended(status) + ("" if self._heard else _expected(self._python))
        return ExecutionError(problem, status, self._lines[-KEPT_LINES:])


def _expected(python: str) -> str:
    if not python:
        return ""
    return (
        f"; {python} must be the Python interpreter of an environment with executorch and torch (…/bin/python): try "
        f'{python} -c "import executorch.runtime", or name another one'
    )


def environment_of(python: str) -> dict[str, str]:
    variables = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
    ours = {str(Path(sys.executable).parent), str(Path(sys.prefix) / "bin")}
    places = [place for place in variables.get("PATH", os.defpath).split(os.pathsep) if place and place not in ours]
    return variables | {"PATH": os.pathsep.join([str(Path(python).parent), *places])}


def _collect(stream: IO[str], lines: list[str]) -> None:
    with stream:
        for line in iter(lambda: stream.readline(_LONGEST_LINE), ""):
            if (text := line.rstrip()) and not any(noise in text for noise in _NOISE):
                lines.append(text)
                del lines[: -10 * KEPT_LINES]


def how_it_ended(status: int) -> str:
    """An exit status in words, negative for a signal.

    Examples
    --------
    >>> how_it_ended(-6)
    'The child process was ended by signal SIGABRT'
    """
    if status == 0:
        return "The child process ended without an answer"
    if status == -signal.SIGKILL:
        return "The child process was killed (by the system's out-of-memory killer, most likely)"
    if status == OUT_OF_MEMORY:
        return "The child process took more memory than it may"
    if status < 0:
        known = {known_signal.value: known_signal.name for known_signal in signal.Signals}
        return f"The child process was ended by signal {known.get(-status, -status)}"
    return f"The child process failed with exit status {status}"


WORKER: Final = Worker()


@functools.cache
def worker_in(python: str) -> Worker:
    return Worker("etviz.pipeline.environment_child", python)


def warm() -> None:
    WORKER.warm()
