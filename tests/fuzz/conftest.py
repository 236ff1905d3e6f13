"""The sound files to damage, the worker, and the count of what was tried."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from executorch.devtools import BundledProgram
from executorch.devtools.bundled_program.config import MethodTestCase, MethodTestSuite
from executorch.devtools.bundled_program.serialize import serialize_from_bundled_program_to_flatbuffer

from tests.fuzz.worker import Outcome, Worker
from tests.kinds.making import Made
from tests.programs import FILES, RECIPES, Executed

MEGABYTES = 512
SECONDS = 5.0
_tried: dict[str, Counter[str]] = {}
_most: dict[str, tuple[float, float]] = {}
"""By kind, the most seconds of the processor and the most megabytes that one try took."""

Ask = Callable[..., Outcome]


@pytest.fixture(scope="session")
def ask(sound: Callable[..., dict[str, Path]], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    """Ask the worker, hold it to the limits, and count.

    The seconds are those of the processor, so that a busy machine fails nothing.
    """
    worker = Worker(tmp_path_factory.mktemp("damaged"))
    warm_up = sound("counter", "etdump", "etrecord", "debug_buffer", "pte")

    def check(name: str, reader: str, files: dict[str, Path], damaged: str, how: str, changes: object) -> Outcome:
        if not worker.running:
            first = worker.ask("load", warm_up, "", "as it is", [])
            assert first.kind == "value", first.text
        found = worker.ask(reader, files, damaged, how, changes if isinstance(changes, list) else [])
        size = sum(path.stat().st_size for path in files.values()) / 1e6
        _tried.setdefault(name, Counter())[found.kind] += 1
        seconds, megabytes = _most.get(name, (0.0, 0.0))
        _most[name] = max(seconds, found.seconds), max(megabytes, found.megabytes)
        assert found.kind != "bug", found.text
        assert "allocate" not in found.text, found.text
        assert found.seconds < SECONDS, (found.seconds, found.text)
        assert found.megabytes < MEGABYTES + size, (found.megabytes, found.text)
        return found

    yield check
    worker.close()


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
                if kind == "bpte":
                    target.write_bytes(bundled(executed(name)))
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


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many damaged files were tried, and what came out."""
    if not _tried:
        return
    terminalreporter.section("damaged files")
    for name, counts in sorted(_tried.items()):
        outcomes = ", ".join(f"{count:,} {kind}" for kind, count in counts.most_common())
        seconds, megabytes = _most[name]
        most = f"at most {seconds:.2f} s and {megabytes:.0f} MB"
        terminalreporter.write_line(f"{counts.total():>9,}  {name}: {outcomes}; {most}")
    terminalreporter.write_line(f"{sum(counts.total() for counts in _tried.values()):>9,}  in all")
