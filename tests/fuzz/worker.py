"""The processes that read damaged files, and the side of the tests that gives them work.

A server is a fork of the test process from before its first test, so it has imported everything. It reads the sound
files once; from then on a fork of it tries a few hundred damaged ones, one after the other, and answers each with what
came out, how long it took and how much memory. Its address space is limited, and a try that takes too long ends it, as
a crash does. Then the try that ended it is found: the last one alone, or, where that one is innocent, the shortest row
of tries that ends with it.
"""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import gc
import json
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tests.forks import fork

SPARE = 4 << 30
"""Bytes of address space beyond what a process has at its start; beyond that an allocation fails."""
SECONDS = 30
"""Of the processor, after which a try counts as one that hangs."""
PATIENCE = 120
"""Seconds after which it does so in any case."""
MOST = 448 << 20
"""Bytes that a try may allocate beyond its files' size, limited as in the child that evaluates foreign files; what a
try has allocated is measured from outside, and held to the same number."""
BATCH = 250
"""Tries of one fork."""


@dataclass(frozen=True)
class Try:
    """What to read: `files`, of which the one called `damaged` is changed first.

    Attributes
    ----------
    reader
        A function of `tests.fuzz.reading`.
    how
        A way of changing files, with an argument after a colon; for the reader ``call`` the operator.
    changes
        Given to it.
    """

    reader: str
    files: Mapping[str, Path]
    damaged: str = ""
    how: str = "as it is"
    changes: Sequence[Any] = ()


@dataclass(frozen=True)
class Outcome:
    """What one try gave: `kind` is ``value``, ``refused``, the name of an error of etviz, or ``bug``."""

    kind: str
    text: str = ""
    seconds: float = 0.0
    megabytes: float = 0.0


class Server:
    """A fork of this process that answers until `close`, or until this process ends."""

    def __init__(self) -> None:
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the process
        (theirs, asked), (answers, told) = os.pipe(), os.pipe()
        self._pid = fork(serve, theirs, told, self.errors.fileno())
        for end in (theirs, told):
            os.close(end)
        self.asked, self.answers = os.fdopen(asked, "w"), os.fdopen(answers)

    def close(self) -> None:
        self.asked.close()
        self.answers.close()
        os.waitpid(self._pid, 0)


class Worker:
    """What gives the server work."""

    def __init__(self, server: Server, folder: Path) -> None:
        self._server, self.folder = server, folder

    def ask(self, one: Try) -> Outcome:
        """What a single try gives."""
        return next(iter(self.run([one])))

    def run(self, tries: Sequence[Try]) -> Iterator[Outcome]:
        """What each of them gives, in order."""
        at = 0
        while at < len(tries):
            batch = tries[at : at + BATCH]
            found, end = self._forked(batch)
            yield from found
            at += len(found)
            if len(found) < len(batch):
                yield self._blamed(batch[: len(found) + 1], end)
                at += 1

    def _blamed(self, batch: Sequence[Try], end: str) -> Outcome:
        """A bug, with as few tries as end a process."""
        low, high = 0, len(batch) - 1
        if len(self._forked(batch[high:])[0]):  # innocent by itself
            while low < high:
                middle = (low + high + 1) // 2
                low, high = (
                    (low, middle - 1) if len(self._forked(batch[middle:])[0]) == len(batch) - middle else (middle, high)
                )
            high = low
        guilty = "\n".join(map(str, batch[high:][-20:]))
        return Outcome("bug", f"the process {end} at the last of {len(batch) - high} tries\n{guilty}")

    def _forked(self, tries: Sequence[Try]) -> tuple[list[Outcome], str]:
        """What a fork gave before it ended, and how it ended."""
        asked = self._server.asked
        asked.write(json.dumps([str(self.folder), *map(asdict, tries)], default=str) + "\n")
        asked.flush()
        found = []
        for line in self._server.answers:
            answer = json.loads(line)
            if "ended" in answer:
                return found, answer["ended"] + self._last_lines()
            found.append(Outcome(**answer))
        raise RuntimeError(f"the server ended{self._last_lines()}")

    def _last_lines(self) -> str:
        errors = self._server.errors
        errors.seek(0)
        text = errors.read()
        errors.seek(0)
        errors.truncate()
        return f"\n{text[-2000:]}" if text else ""


def serve() -> None:
    """Let forks try what is asked for, until there is no more."""
    import torch

    from tests.fuzz.operators import load_libraries
    from tests.fuzz.reading import READERS

    faulthandler.enable(2)
    torch.set_num_threads(1)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    known, inherited = set[str](), _reserved(_memory())
    for line in sys.stdin:
        load_libraries()
        folder, *asked = json.loads(line)
        tries = [Try(**one | {"files": {kind: Path(path) for kind, path in one["files"].items()}}) for one in asked]
        for one in tries:
            if (key := f"{one.reader} {one.files}") not in known and one.files and one.how != "as it is":
                known.add(key)
                with contextlib.suppress(Exception):
                    READERS[one.reader](one.files)
        gc.collect()
        gc.freeze()
        child = os.fork()
        if not child:
            _try_all(tries, Path(folder), answers, Peak(inherited))
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        told = {-signal.SIGALRM: f"took more than {PATIENCE} s", -signal.SIGPROF: f"computed more than {SECONDS} s"}
        died = f"died of {signal.Signals(-status).name}" if status < 0 else f"ended with {status}"
        answers.write(json.dumps({"ended": told.get(status, died)}) + "\n")
        answers.flush()


def _try_all(tries: Sequence[Try], folder: Path, answers: Any, peak: Peak) -> None:
    """In a fork: each try, held to limits from outside."""
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + SPARE, size + SPARE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for number in (signal.SIGALRM, signal.SIGPROF):
        signal.signal(number, signal.SIG_DFL)
    for one in tries:
        signal.setitimer(signal.ITIMER_REAL, PATIENCE)
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        answers.write(json.dumps(asdict(_outcome(one, folder, peak))) + "\n")
        answers.flush()


def _outcome(one: Try, folder: Path, peak: Peak) -> Outcome:
    from etviz.errors import EtvizError
    from etviz.pipeline.service import spared_memory
    from tests.fuzz.operators import RefusedError, call
    from tests.fuzz.reading import READERS

    way, _, other = one.how.partition(":")
    files = dict(one.files)
    if way in _ways():
        whole = files[one.damaged]
        files[one.damaged] = place = folder / one.damaged / whole.name
        content = _ways()[way](whole.read_bytes(), one.changes, *filter(None, [other]))
        place.parent.mkdir(exist_ok=True)
        place.unlink(missing_ok=True)
        place.write_bytes(content)
    peak.reset()
    start = time.process_time()
    try:
        read = functools.partial(call, one.how, *one.changes) if one.reader == "call" else READERS[one.reader]
        with spared_memory(MOST + sum(path.stat().st_size for path in files.values())):
            kind, text = "value", str(read(files))
    except EtvizError as error:
        kind, text = type(error).__name__, str(error)
    except RefusedError as error:
        kind, text = "refused", str(error)
    except BaseException:  # noqa: BLE001 - whatever else comes out is what the tests look for
        kind, text = "bug", traceback.format_exc()
    return Outcome(kind, text[-4000:], time.process_time() - start, peak.read() / 1024)


@functools.cache
def _ways() -> dict[str, Callable[..., bytes]]:
    from tests.fuzz.calls import damage_calls
    from tests.fuzz.mutations import damage, damage_archive
    from tests.fuzz.structure import damage_graph, damage_tensors, exchange_members

    return {
        "bytes": damage,
        "archive": damage_archive,
        "calls": damage_calls,
        "tensors": damage_tensors,
        "graph": damage_graph,
        "members": exchange_members,
    }


class Peak:
    """The most memory that this process allocated since the last `reset`, in kilobytes.

    `spared_memory` limits neither pages of files nor the stack, and what was reserved before is filled without being
    allocated again; so none of these count. What the server had reserved before it read anything, `inherited`, does.
    """

    def __init__(self, inherited: int) -> None:
        self._inherited = inherited
        self._forget = os.open("/proc/self/clear_refs", os.O_WRONLY)
        self.reset()

    def reset(self) -> None:
        """Begin anew."""
        os.write(self._forget, b"5")
        self._before = _memory()

    def read(self) -> int:
        """Since then."""
        now, before = _memory(), self._before
        unlimited = sum(max(0, now[name] - before[name]) for name in ("RssFile", "RssShmem", "VmStk"))
        reserved = max(0, _reserved(before) - self._inherited)
        return max(0, now["VmHWM"] - before["VmRSS"] - unlimited - reserved)


def _memory() -> dict[str, int]:
    lines = map(str.split, Path("/proc/self/status").read_text("ascii").splitlines())
    return {words[0][:-1]: int(words[1]) for words in lines if words[-1:] == ["kB"]}


def _reserved(memory: Mapping[str, int]) -> int:
    return memory["VmData"] + memory["VmStk"] - memory["RssAnon"]


def smaller(one: Try) -> Iterator[Try]:
    """The same with one change less."""
    for at in range(len(one.changes) if len(one.changes) > 1 else 0):
        yield replace(one, changes=[*one.changes[:at], *one.changes[at + 1 :]])
