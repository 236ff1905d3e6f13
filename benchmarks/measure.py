"""Runs tasks in fresh processes, etviz and upstream by turns, and takes medians."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tqdm.auto import tqdm

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from benchmarks.artifacts import Artifacts, Program

TOOLS: Final = ("upstream", "etviz")
_LIMIT: Final = 1800.0
_NOTHING: Final[dict[str, str]] = {}


@dataclass(slots=True)
class Samples:
    """What the repetitions of one task gave, one dict each (see `tasks.py`)."""

    results: list[dict[str, Any]] = field(default_factory=list)

    def median(self, name: str) -> float | None:
        """Median of a quantity, None if it was not measured."""
        values = [result[name] for result in self.results if result.get(name) is not None]
        return statistics.median(values) if values else None

    def first(self, name: str) -> Any:
        """A quantity that is the same each time, None if it was not found."""
        return self.results[0].get(name) if self.results else None


@dataclass(slots=True)
class Measured:
    """Tools on one task and program.

    Attributes
    ----------
    task
        Without the tool's name, which is put behind it.
    program
        None for tasks without files.
    way
        Which files etviz gets: ``record``, ``derived`` (`.pte` and ETRecord), ``etrecord``.
    cold
        Nothing was loaded before in the process.
    busy
        Another process works on each core.
    kept
        The noise of the program on these inputs was kept by an earlier process.
    foreign
        The files count as another machine's, which a child process evaluates.
    """

    task: str
    program: Program | None
    way: str = "record"
    cold: bool = False
    busy: bool = False
    kept: bool = False
    foreign: bool = False
    tools: tuple[str, ...] = TOOLS
    samples: dict[str, Samples] = field(default_factory=lambda: {tool: Samples() for tool in TOOLS})

    def options(self, tool: str) -> dict[str, Any]:
        """Arguments of the task's function."""
        if self.task == "eager":
            return {"program": self.program.name if self.program else ""}
        if self.task == "pairing":
            return {"way": self.way}
        if not self.task.startswith("gaps") or self.program is None:
            return {}
        ours = {"way": self.way, "kept": self.kept, "foreign": self.foreign}
        return {"cold": self.cold} | (ours if tool == "etviz" else {})


class MeasurementError(RuntimeError):
    """A process that measures has failed; that is a fault of the benchmark or of etviz, not a result."""


def plan(programs: Sequence[Program]) -> list[Measured]:
    """Imports once; all else on the first program; gap tables of all, and a report of the one with the most layers."""
    first, only = programs[0], ("etviz",)
    largest = max(programs, key=lambda program: program.layers)
    return [
        Measured("import", None),
        *(Measured(f"{name}_command", None, tools=only) for name in ("version", "info", "gaps")),
        Measured("metadata", first),
        *(Measured("gaps", program) for program in programs),
        *(Measured("eager", program, tools=("eager",)) for program in programs),
        Measured("attribution", first, tools=only),
        *(Measured("gaps", first, way, tools=only) for way in ("derived", "etrecord")),
        Measured("gaps", first, cold=True),
        *(Measured("gaps", first, way, cold=True, tools=only) for way in ("derived", "etrecord")),
        *(Measured("gaps_introduced", first, way, cold=True, tools=only) for way in ("record", "derived", "etrecord")),
        *(Measured(task, first, cold=True, kept=True, tools=only) for task in ("gaps", "gaps_introduced")),
        *(Measured("gaps", first, cold=True, kept=kept, foreign=True, tools=only) for kept in (False, True)),
        Measured("gaps", first, busy=True),
        *(Measured("report", program, tools=only) for program in dict.fromkeys((first, largest))),
    ]


def growth(programs: Sequence[Program]) -> list[Measured]:
    """How time and memory grow with the layers, with the record and without; upstream raises on most of them."""
    only = ("etviz",)
    stacks = [program for program in programs if program.layers]
    return [
        *(Measured("gaps", program, way, tools=only) for way in ("record", "derived") for program in stacks),
        *(Measured("pairing", program, "derived", tools=only) for program in stacks),
    ]


def run(plans: Sequence[Measured], artifacts: dict[str, Artifacts], repeat: int) -> None:
    """Fill the samples. The tools take turns, so that a busy moment of the machine hits both; one run goes before."""
    bar = tqdm(total=sum(len(item.tools) for item in plans) * (repeat + 1), desc="measure", unit="run")
    for measured, tool, warm in _order(plans, repeat):
        name = measured.program.name if measured.program else ""
        bar.set_postfix_str(f"{measured.task} {name} {tool}")
        files = artifacts[name].paths if name else _NOTHING
        task = measured.task if tool == measured.task else f"{measured.task}_{tool}"
        with _company(os.cpu_count() or 1 if measured.busy else 0):
            result = _sample(task, files, artifacts["tiny"].paths, measured.options(tool))
        if warm:
            measured.samples.setdefault(tool, Samples()).results.append(result)
        bar.update()
    bar.close()


def _order(plans: Sequence[Measured], repeat: int) -> Iterator[tuple[Measured, str, bool]]:
    for measured in plans:
        for round_ in range(repeat + 1):
            for tool in measured.tools:
                yield measured, tool, round_ > 0


@contextmanager
def _company(count: int) -> Generator[None]:
    """So many processes that never rest."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in others:
            process.kill()
            process.wait()


def _compiled() -> dict[str, str]:
    """An environment in which modules are compiled once, as in an installed package."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"PYTHONPYCACHEPREFIX": str(Path(tempfile.gettempdir()) / f"etviz-bench-{os.getuid()}")}


def _sample(task: str, files: dict[str, str], tiny: dict[str, str], options: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="etviz-bench-") as folder:
        request, answer = Path(folder) / "request.json", Path(folder) / "answer.json"
        order = {"task": task, "files": files, "tiny": tiny, "options": options, "answer": str(answer)}
        request.write_text(json.dumps(order), encoding="utf-8")
        command = [sys.executable, "-m", "benchmarks.tasks", str(request)]
        how: dict[str, Any] = {"capture_output": True, "text": True, "errors": "replace", "timeout": _LIMIT}
        done = subprocess.run(command, **how, env=_compiled(), check=False)
        if done.returncode or not answer.exists():
            last = "\n".join(done.stderr.splitlines()[-15:])
            raise MeasurementError(f"{task} failed with status {done.returncode}:\n{last}")
        return json.loads(answer.read_text(encoding="utf-8"))
