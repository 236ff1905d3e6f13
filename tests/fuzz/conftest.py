"""The sound files to damage, the worker, and the count of what was tried."""

from __future__ import annotations

import base64
import io
import re
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd
import pytest
from executorch.devtools import BundledProgram
from executorch.devtools.bundled_program.config import MethodTestCase, MethodTestSuite
from executorch.devtools.bundled_program.serialize import serialize_from_bundled_program_to_flatbuffer

from tests.fuzz.worker import MOST, Outcome, Server, Try, Worker, smaller
from tests.kinds.making import Made
from tests.programs import FILES, RECIPES, Executed

SECONDS = 5.0
SERVER = pytest.StashKey[Server]()
_NO_MEMORY = re.compile(r"(can't|[Uu]nable to) allocate|bad_alloc")
"""What torch, NumPy and C++ say; that a size which was given is not the one to allocate says a kernel by itself."""
_tried: dict[str, Counter[str]] = {}
_most: dict[str, tuple[float, float]] = {}
"""By kind, the most seconds of the processor and the most megabytes that one try took."""


class Attempts:
    """Gives tries to the worker, holds what comes out to the limits, and counts.

    The seconds are those of the processor, so that a busy machine fails nothing.
    """

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def __call__(self, name: str, reader: str, files: dict[str, Path]) -> Outcome:
        """Read files as they are."""
        one = Try(reader, files)
        found = self._worker.ask(one)
        _count(name, found)
        problem = _problem(one, found)
        assert not problem, problem
        return found

    def all(self, name: str, tries: Sequence[Try], *, named: bool = False) -> None:
        """Try all; what was found is told when all are done. `named`: an error has to name the damaged file."""
        problems = {}
        for one, found in zip(tries, self._worker.run(tries), strict=True):
            _count(name, found)
            if _problem(one, found, named=named):
                less, problem = self._smallest(one, found, named=named)
                problems.setdefault(problem.strip().splitlines()[-1], f"{less}\n{problem}")
        assert not problems, "\n\n".join([f"{len(problems)} findings", *problems.values()])

    def _smallest(self, one: Try, found: Outcome, *, named: bool) -> tuple[Try, str]:
        """What fails still with as few changes as possible."""
        for less in smaller(one):
            if _problem(less, again := self._worker.ask(less), named=named):
                return self._smallest(less, again, named=named)
        return one, _problem(one, found, named=named)


def _count(name: str, found: Outcome) -> None:
    _tried.setdefault(name, Counter())[found.kind] += 1
    seconds, megabytes = _most.get(name, (0.0, 0.0))
    _most[name] = max(seconds, found.seconds), max(megabytes, found.megabytes)


def _problem(one: Try, found: Outcome, *, named: bool = False) -> str:
    """What is wrong with what a try gave, empty if nothing is."""
    most = (MOST + sum(path.stat().st_size for path in one.files.values())) / (1 << 20)
    if found.kind in ("bug", "UnexpectedError") or _NO_MEMORY.search(found.text):
        return found.text
    if found.seconds >= SECONDS or found.megabytes > most:
        return f"{found.text}\nit took {found.seconds:.1f} s and {found.megabytes:.0f} MB"
    if named and found.kind != "value" and f"{one.damaged}/{one.files[one.damaged].name}" not in found.text:
        return f"{found.text}\nit does not name the file"
    return ""


def pytest_collection_finish(session: pytest.Session) -> None:
    if any("ask" in getattr(item, "fixturenames", ()) for item in session.items):
        session.config.stash[SERVER] = Server()


def pytest_unconfigure(config: pytest.Config) -> None:
    if SERVER in config.stash:
        config.stash[SERVER].close()


@pytest.fixture(scope="session")
def ask(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Attempts:
    """The worker's side of the tests."""
    return Attempts(Worker(request.config.stash[SERVER], tmp_path_factory.mktemp("damaged")))


@pytest.fixture(scope="session")
def sound(
    executed: Callable[[str], Executed], made: Callable[[str], Made], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., dict[str, Path]]:
    """Copies of a program's files, each in a folder of its own, so that none is found beside another."""
    folder = tmp_path_factory.mktemp("sound")

    def files(name: str, *kinds: str) -> dict[str, Path]:
        program = executed(name) if name in RECIPES else made(name)
        found = {}
        for kind in kinds:
            found[kind] = target = folder / f"{name}-{kind}" / FILES.get(kind, f"model.{kind}")
            if not target.exists():
                target.parent.mkdir(exist_ok=True)
                if kind in _MADE:
                    target.write_bytes(_MADE[kind](executed(name)))
                    continue
                shutil.copy(program.path(kind), target)
        return found

    return files


def bundled(program: Executed) -> bytes:
    """A program with two test cases."""
    cases = [MethodTestCase(program.inputs, program.model(*program.inputs)) for _ in range(2)]
    suites = [MethodTestSuite("forward", cases)]
    whole = BundledProgram(None, suites, str(program.path("pte")))
    return serialize_from_bundled_program_to_flatbuffer(whole)


def log(program: Executed) -> bytes:
    """What a device prints that has no file system."""
    names = {"etdump": "etdump.bin", "debug_buffer": "debug_buffer.bin"}
    blocks = [(base64.encodebytes(program.path(kind).read_bytes()).decode(), name) for kind, name in names.items()]
    return "\n".join(["I [runner] done", *(f'echo "{text}" | base64 -d >{name}' for text, name in blocks)]).encode()


def parquet(program: Executed) -> bytes:
    """A table as a study keeps them: numbers, and texts by the names of its columns."""
    texts = ["op", "backend", "reference_ops", "source", "reason"]
    gaps = pd.read_csv(io.StringIO(program.told("gaps")), dtype=dict.fromkeys(texts, str), keep_default_na=False)
    numbers = gaps.drop(columns=texts).apply(pd.to_numeric, errors="coerce").dropna(axis=1)
    return pd.concat([numbers, gaps[texts]], axis=1).to_parquet(index=False)


_MADE = {"bpte": bundled, "log": log, "parquet": parquet}


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many damaged files were tried, and what came out."""
    if not _tried:
        return
    terminalreporter.section("damaged files")
    for name, counts in sorted(_tried.items()):
        outcomes = ", ".join(f"{count:,} {kind}" for kind, count in counts.most_common())
        seconds, megabytes = _most[name]
        most = f"at most {seconds:.2f} s, and {megabytes:.0f} MB beyond what was reserved"
        terminalreporter.write_line(f"{counts.total():>9,}  {name}: {outcomes}; {most}")
    terminalreporter.write_line(f"{sum(counts.total() for counts in _tried.values()):>9,}  in all")
