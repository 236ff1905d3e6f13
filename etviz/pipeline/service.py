"""The common part of child processes: answer requests until the parent ends, and run a program on inputs.

Some children have another executorch and torch, and no etviz: this module imports only the standard library,
`etviz.upstream.libraries`, and torch when there is something to run.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
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

from etviz.upstream.libraries import load_kernels, load_library, set_users_libraries

try:
    import resource
except ImportError:  # Windows has none
    resource = None

IDLE: Final = 300.0
_PR_SET_PDEATHSIG: Final = 1
_LEISURE: Final = 0.5

_LOOK: Final = 0.02
OUT_OF_MEMORY: Final = 77
_OFTEN: Final = 0.05
"""Seconds between two progress messages: the parent stops its work for each."""

Message = dict[str, Any]


class Line:
    def __init__(self, say: Callable[[Message], None], hear: Callable[[], Message]) -> None:
        self._say, self._hear = say, hear

    def __call__(self, step: int) -> None:
        self._say({"step": step})

    def ask(self, question: Message) -> Message:
        self._say({"call": question})
        return self._hear()


Work = Callable[[Message, Line], Message]


def serve(
    connection: int, parent: int, needed: Sequence[str], work: Mapping[str, Work], later: Sequence[str] = ()
) -> None:
    """Answer requests on a descriptor until the parent process ends, or has sent none for `IDLE` seconds.

    Missing `needed` modules fail the request that needs them; `later` ones are imported when idle, one by one.
    """
    _end_with(parent)
    answers = Connection(connection)
    requests: queue.SimpleQueue[Message] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(answers, requests), daemon=True).start()

    def say(reply: Message) -> None:
        answers.send_bytes(json.dumps(reply).encode())

    line, status = Line(say, requests.get), 1
    try:
        _import(needed)
        leisure = _LEISURE
        while True:
            try:
                request = requests.get(timeout=leisure if later else IDLE)
            except queue.Empty:
                if not later:
                    raise
                _import(later[:1])
                later, leisure = later[1:], 0.0
                continue
            leisure = _LEISURE
            problem = _load_libraries(request.get("libraries", ()), request.get("path", ()))
            answer = {} if problem else work[request["work"]](request, line)
            say({"answer": answer, "unloadable": problem})
    except queue.Empty:
        status = 0
    except BaseException:  # noqa: BLE001 - the parent reads what happened, and starts another process
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # taking torch and its libraries apart takes a second


def _import(names: Sequence[str]) -> None:
    gc.disable()
    for name in names:
        with contextlib.suppress(ImportError):  # the request that needs it says so
            importlib.import_module(name)
    gc.freeze()
    gc.enable()


def _load_libraries(names: Sequence[str], path: Sequence[str]) -> str:
    sys.path += [place for place in path if names and place not in sys.path]
    for name in names:
        try:
            load_library(name)
        except Exception as error:  # noqa: BLE001 - a library of the user's may fail in its own way
            traceback.print_exc()
            return f"{name} can't be loaded ({type(error).__name__}: {error})"
    set_users_libraries(names)
    return ""


def _end_with(parent: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


def _listen(connection: Connection, requests: queue.SimpleQueue[Message]) -> None:
    with contextlib.suppress(EOFError, OSError):
        while True:
            requests.put(json.loads(connection.recv_bytes()))
    with contextlib.suppress(ProcessLookupError):
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(0)


def run_program(
    runtime: Any, verification: Any, request: Mapping[str, Any], step: Callable[[int], None]
) -> dict[str, Any]:
    """`runtime` and `verification` are classes of `executorch.runtime`."""
    import torch

    wanted: dict[str, Any] = {"data_path": request["data"]} if "data" in request else {}
    if "etdump" in request:
        wanted |= {"enable_etdump": True, "debug_buffer_size": request.get("debug_buffer_size", 0)}
    for namespace in request.get("namespaces", ()):
        load_kernels(namespace)
    program = runtime.get().load_program(Path(request["pte"]), verification=verification.Minimal, **wanted)
    outputs, seconds = [], []
    runs, said = torch.load(request["inputs"], weights_only=True), time.monotonic()
    names = request.get("methods") or [request["method"]] * len(runs)
    methods = {name: program.load_method(name) for name in dict.fromkeys([*names, request["method"]])}
    for done, (name, inputs) in enumerate(zip(names, runs, strict=True), 1):
        method = methods[name]
        start = time.perf_counter()
        try:
            results = method.execute(inputs)
        except RuntimeError as error:
            raise RuntimeError(f"{error}, in run {done - 1}" if len(runs) > 1 else str(error)) from None
        seconds.append(time.perf_counter() - start)
        outputs.append([_detached(value) for value in results])
        if done == len(runs) or time.monotonic() - said >= _OFTEN:
            step(done)
            said = time.monotonic()
    torch.save(outputs, request["outputs"])
    if "etdump" in request:
        program.write_etdump_result_to_file(request["etdump"], request["debug_buffer"])
    return {"seconds": seconds}


def _detached(value: Any) -> Any:
    """The runtime reuses the memory of its outputs in the next execution."""
    import torch

    return value.detach().clone() if isinstance(value, torch.Tensor) else value


@contextlib.contextmanager
def spared_memory(most: int | None = None) -> Generator[None]:
    """Let allocations beyond three quarters of the free memory, or `most` bytes, fail.

    Memory that libraries only reserve does not count. Where the system has no such limit, a thread ends the process.
    """
    spare = min(_free() * 3 // 4, sys.maxsize if most is None else most)
    limited = _limit(spare)
    watched = None if limited else _watch(spare)
    try:
        yield
    finally:
        if watched is not None:
            watched.set()
        if limited and resource is not None:
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(resource.RLIMIT_DATA, (limited, limited))


def _limit(spare: int) -> int:
    """Only Linux applies the limit to all memory; returns the earlier one, 0 without one."""
    if resource is None:
        return 0
    with contextlib.suppress(OSError, KeyError, ValueError):
        before = resource.getrlimit(resource.RLIMIT_DATA)[1]
        limit = min(_numbers("/proc/self/status")["VmData"] + spare, sys.maxsize)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, before))
        return before or resource.RLIM_INFINITY
    return 0


def _watch(spare: int) -> threading.Event | None:
    if resource is None:
        return None
    limit, done = _peak() + spare, threading.Event()

    def look() -> None:
        while not done.wait(_LOOK):
            if _peak() > limit:
                sys.stderr.write(f"MemoryError: the process took more than {spare:,} bytes\n")
                sys.stderr.flush()
                os._exit(OUT_OF_MEMORY)

    threading.Thread(target=look, daemon=True).start()
    return done


def _peak() -> int:
    """Bytes; Linux hands the parent's peak to a new process, but not in its own status."""
    with contextlib.suppress(OSError, KeyError, ValueError):
        return _numbers("/proc/self/status")["VmHWM"]
    if resource is None:
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _free() -> int:
    try:
        return min(_numbers("/proc/meminfo")["MemAvailable"], _left_to_group())
    except (OSError, KeyError, ValueError):
        return sys.maxsize


def _left_to_group() -> int:
    try:
        most, now = (
            Path("/sys/fs/cgroup", name).read_text("ascii").strip() for name in ("memory.max", "memory.current")
        )
        return max(0, int(most) - int(now))
    except (OSError, ValueError):  # "max" is no number
        return sys.maxsize


def _numbers(path: str) -> dict[str, int]:
    fields = (line.split(":", 1) for line in Path(path).read_text("ascii").splitlines())
    return {name: int(value.split()[0]) * 1024 for name, value in fields if value.endswith(" kB")}
