"""The process that reads damaged files, and the side of the tests that gives it work.

It answers each request, a line of JSON, with what came out, how long it took and how much memory. Its address space is
limited, a request that it does not answer in time ends it, and so does a crash: all three fail the test.
"""

from __future__ import annotations

import functools
import json
import os
import resource
import select
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SPARE = 4 << 30
"""Bytes of address space beyond what the process has at its start; beyond that an allocation fails."""
PATIENCE = 120
"""Seconds until a request counts as never answered."""


@dataclass(frozen=True)
class Outcome:
    """What one request gave: `kind` is ``value``, the name of an error of etviz, or ``bug``."""

    kind: str
    text: str = ""
    seconds: float = 0.0
    megabytes: float = 0.0


class Worker:
    """The process, started when it is first needed and again when it has died."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._process: subprocess.Popen[str] | None = None
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the worker

    @property
    def running(self) -> bool:
        """False before the first request, and after a crash."""
        return self._process is not None

    def ask(self, reader: str, files: Mapping[str, Path], damaged: str, how: str, changes: Sequence[Any]) -> Outcome:
        """Let it read `files`, of which the one called `damaged` is changed first."""
        request = {
            "reader": reader,
            "files": {kind: str(path) for kind, path in files.items()},
            "damaged": damaged,
            "how": how,
            "changes": changes,
            "folder": str(self.folder),
        }
        process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], PATIENCE)
        line = process.stdout.readline() if ready else ""
        if line:
            return Outcome(**json.loads(line))
        self.close(hard=True)
        self._errors.seek(0)
        last = self._errors.read()[-2000:]
        problem = f"died with {process.returncode}" if ready else f"did not answer in {PATIENCE} s"
        return Outcome("bug", f"the worker {problem}\n{last}")

    def _start(self) -> subprocess.Popen[str]:
        environment = os.environ | {"MALLOC_ARENA_MAX": "2", "OMP_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=environment,
            cwd=Path(__file__).parents[2],
        )
        return self._process

    def close(self, *, hard: bool = False) -> None:
        """End the process."""
        if self._process is not None:
            if hard:
                self._process.kill()
            self._process.communicate()
            self._process = None


def serve() -> None:
    """Answer requests until there are no more."""
    from etviz.errors import EtvizError
    from tests.fuzz.calls import damage_calls
    from tests.fuzz.mutations import damage, damage_archive
    from tests.fuzz.reading import READERS
    from tests.fuzz.structure import damage_graph, damage_tensors, exchange_members

    mutations = {
        "bytes": damage,
        "archive": damage_archive,
        "calls": damage_calls,
        "tensors": damage_tensors,
        "graph": damage_graph,
    }
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + SPARE, size + SPARE))
    for line in sys.stdin:
        request = json.loads(line)
        files = {kind: Path(path) for kind, path in request["files"].items()}
        read = READERS[request["reader"]]
        how, _, other = request["how"].partition(":")
        if other:
            mutations[how] = functools.partial(exchange_members, other=Path(other).read_bytes())
        if how in mutations:
            whole = files[request["damaged"]]
            place = Path(request["folder"]) / request["damaged"]
            place.mkdir(exist_ok=True)
            files[request["damaged"]] = place / whole.name
            content = mutations[how](whole.read_bytes(), request["changes"])
            files[request["damaged"]].unlink(missing_ok=True)
            files[request["damaged"]].write_bytes(content)
        before, start = _reset_peak(), time.process_time()
        try:
            kind, text = "value", str(read(files))
        except EtvizError as error:
            kind, text = type(error).__name__, str(error)
        except BaseException:  # noqa: BLE001 - whatever else comes out is what the tests look for
            kind, text = "bug", traceback.format_exc()
        seconds, peak = time.process_time() - start, (_peak() - before) / 1024
        answers.write(json.dumps({"kind": kind, "text": text[-4000:], "seconds": seconds, "megabytes": peak}) + "\n")
        answers.flush()


def _reset_peak() -> int:
    """Forget the highest memory use so far where the system can; returns it in kilobytes."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return _peak()


def _peak() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    serve()
