"""What every child process does: it answers requests until its parent ends, and runs a program on some inputs.

Some children belong to environments that have no etviz, and another executorch and torch. So nothing is imported here
but the standard library, `etviz.upstream.libraries`, and torch when there is something to run.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Generator, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from etviz.upstream.libraries import load_kernels, load_library

IDLE: Final = 300.0
"""Seconds without a request after which a child ends."""
_PR_SET_PDEATHSIG: Final = 1
_LEISURE: Final = 0.5
"""Seconds without a request after which what may be needed later is imported."""

_OFTEN: Final = 0.05
"""Seconds between two words on how far a request is: who hears one stops what it does."""

Work = Callable[[dict[str, Any], Callable[[int], None]], dict[str, Any]]
"""Answers a request; is given what takes the steps that are done."""


def serve(
    connection: int, parent: int, needed: Sequence[str], work: Mapping[str, Work], later: Sequence[str] = ()
) -> None:
    """Answer requests until the parent ends, or has had none for a while.

    Parameters
    ----------
    connection, parent
        A file descriptor, and the parent's process id.
    needed
        Modules to import before the first request; one that is not there is left to the request that needs it.
    work
        By what a request asks for, who answers it.
    later
        Modules that only some requests need, which are imported as soon as there is nothing else to do.
    """
    _end_with(parent)
    answers = Connection(connection)
    requests: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(answers, requests), daemon=True).start()

    def say(**reply: Any) -> None:
        answers.send_bytes(json.dumps(reply).encode())

    status = 1
    try:
        _import(needed)
        while True:
            try:
                request = requests.get(timeout=_LEISURE if later else IDLE)
            except queue.Empty:
                if not later:
                    raise
                _import(later)
                later = ()
                continue
            problem = _load_libraries(request.get("libraries", ()), request.get("path", ()))
            answer = {} if problem else work[request["work"]](request, lambda step: say(step=step))
            say(answer=answer, unloadable=problem)
    except queue.Empty:
        status = 0
    except BaseException:  # noqa: BLE001 - the parent reads what happened, and starts another process
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # taking torch and its libraries apart takes a second


def _import(names: Sequence[str]) -> None:
    for name in names:
        with contextlib.suppress(ImportError):  # the request that needs it says so
            importlib.import_module(name)


def _load_libraries(names: Sequence[str], path: Sequence[str]) -> str:
    """Load the libraries that the user named, found where the parent finds them; returns why one can't be loaded."""
    sys.path += [place for place in path if names and place not in sys.path]
    for name in names:
        try:
            load_library(name)
        except Exception as error:  # noqa: BLE001 - a library of the user's may fail in its own way
            traceback.print_exc()
            return f"{name} can't be loaded ({type(error).__name__}: {error})"
    return ""


def _end_with(parent: int) -> None:
    """Let Linux end this process when its parent ends, even while the runtime computes."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


def _listen(connection: Connection, requests: queue.SimpleQueue[dict[str, Any]]) -> None:
    """Pass requests on; end this process, and what it has started, when nobody is there to send them."""
    with contextlib.suppress(EOFError, OSError):
        while True:
            requests.put(json.loads(connection.recv_bytes()))
    with contextlib.suppress(ProcessLookupError):
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(0)


def run_program(
    runtime: Any, verification: Any, request: Mapping[str, Any], step: Callable[[int], None]
) -> dict[str, Any]:
    """Run a program on the flat inputs that a request names, and keep the outputs, the ETDump and the debug buffer.

    `runtime` and `verification` are `Runtime` and `Verification` of `executorch.runtime`.
    """
    import torch

    wanted: dict[str, Any] = {"data_path": request["data"]} if "data" in request else {}
    if "etdump" in request:
        wanted |= {"enable_etdump": True, "debug_buffer_size": request.get("debug_buffer_size", 0)}
    for namespace in request.get("namespaces", ()):
        load_kernels(namespace)
    program = runtime.get().load_program(Path(request["pte"]), verification=verification.Minimal, **wanted)
    method = program.load_method(request["method"])
    outputs, seconds = [], []
    runs, said = torch.load(request["inputs"], weights_only=True), time.monotonic()
    for done, inputs in enumerate(runs, 1):
        start = time.perf_counter()
        found = method.execute(inputs)
        seconds.append(time.perf_counter() - start)
        outputs.append([_detached(value) for value in found])
        if done == len(runs) or time.monotonic() - said >= _OFTEN:
            step(done)
            said = time.monotonic()
    torch.save(outputs, request["outputs"])
    if "etdump" in request:
        program.write_etdump_result_to_file(request["etdump"], request["debug_buffer"])
    return {"seconds": seconds}


def _detached(value: Any) -> Any:
    """A copy: the runtime reuses the memory of its outputs in the next execution."""
    import torch

    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def limit_memory(spare: int) -> None:
    """Let allocations fail beyond what the process has now and so many bytes more, where the system can.

    Memory that is only reserved, as by libraries for later, does not count.
    """
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        limit = _numbers("/proc/self/status")["VmData"] + spare
        resource.setrlimit(resource.RLIMIT_DATA, (limit, resource.getrlimit(resource.RLIMIT_DATA)[1]))


@contextlib.contextmanager
def spared_memory() -> Generator[None]:
    """Leave the machine a quarter of the memory that is free, where the system can tell and see to it."""
    with contextlib.suppress(OSError, KeyError, ValueError):
        limit_memory(min(_numbers("/proc/meminfo")["MemAvailable"], _left_to_group()) * 3 // 4)
    try:
        yield
    finally:
        with contextlib.suppress(ImportError, OSError, ValueError):
            import resource

            most = resource.getrlimit(resource.RLIMIT_DATA)[1]
            resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def _left_to_group() -> int:
    """The bytes that the control group of this process may still take."""
    try:
        most, now = (
            Path("/sys/fs/cgroup", name).read_text("ascii").strip() for name in ("memory.max", "memory.current")
        )
        return max(0, int(most) - int(now))
    except (OSError, ValueError):  # "max" is no number
        return sys.maxsize


def _numbers(path: str) -> dict[str, int]:
    """What the system tells in kilobytes, in bytes."""
    fields = (line.split(":", 1) for line in Path(path).read_text("ascii").splitlines())
    return {name: int(value.split()[0]) * 1024 for name, value in fields if value.endswith(" kB")}
