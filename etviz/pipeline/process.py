"""Child processes: modules that run in a session of their own, so that they end with all that they have started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from typing import Final

from etviz.errors import ExecutionError

KEPT_LINES: Final = 20
"""Lines of a child's stderr that an error shows."""
_NOISE: Final = ("cpuinfo_utils.cpp", "Failed to load ", "copyreg", "__new__", "torch/utils/_pytree.py")


def start(module: str, *arguments: str, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
    """Start ``python -m module arguments`` with pipes for stdout and stderr; `stdin` as for `subprocess.Popen`."""
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )


def kill(child: subprocess.Popen[str]) -> None:
    """End a process and what it has started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def close(child: subprocess.Popen[str]) -> None:
    """Close the pipes of a process that has ended."""
    for stream in (child.stdin, child.stdout, child.stderr):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()


def collect(stream: Iterable[str] | None, lines: list[str]) -> None:
    """Keep what a child writes to stderr until the pipe is closed: the last lines, without what torch always says."""
    with contextlib.suppress(ValueError):
        for line in stream or ():
            if (text := line.rstrip()) and not any(noise in text for noise in _NOISE):
                lines.append(text)
                del lines[: -10 * KEPT_LINES]


def too_slow(limit: float, lines: list[str]) -> ExecutionError:
    """The error of a run that took longer than `limit` seconds."""
    return ExecutionError(
        f"The run did not end within {limit:g} s and was stopped; give a longer timeout= if it needs one",
        None,
        lines[-KEPT_LINES:],
    )


def how_it_ended(status: int | None) -> str:
    """What an exit status says, negative for a signal.

    Examples
    --------
    >>> how_it_ended(3)
    'The child process failed with exit status 3'
    >>> how_it_ended(-6)
    'The child process was ended by signal SIGABRT'
    """
    if status == -signal.SIGKILL:
        return "The child process was killed (by the system's out-of-memory killer, most likely)"
    if status is not None and status < 0:
        known = {item.value: item.name for item in signal.Signals}
        return f"The child process was ended by signal {known.get(-status, -status)}"
    return f"The child process failed with exit status {status}"
