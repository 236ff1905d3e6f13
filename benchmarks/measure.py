"""Runs tasks in fresh processes, etviz and upstream by turns, and takes medians."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tqdm.auto import tqdm

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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
    """Both tools on one task and program; `program` is None for tasks without files."""

    task: str
    program: Program | None
    samples: dict[str, Samples] = field(default_factory=lambda: {tool: Samples() for tool in TOOLS})


class MeasurementError(RuntimeError):
    """A process that measures has failed; that is a fault of the benchmark or of etviz, not a result."""


def plan(programs: Sequence[Program]) -> list[Measured]:
    """Imports once, metadata of the first program, gap tables of all."""
    found = [Measured("import", None)]
    found += [Measured("metadata", program) for program in programs[:1]]
    return found + [Measured("gaps", program) for program in programs]


def run(plans: Sequence[Measured], artifacts: dict[str, Artifacts], repeat: int) -> None:
    """Fill the samples. The tools take turns, so that a busy moment of the machine hits both; one run goes before."""
    bar = tqdm(total=len(plans) * len(TOOLS) * (repeat + 1), desc="measure", unit="run")
    for measured, tool, warm in _order(plans, repeat):
        name = measured.program.name if measured.program else ""
        bar.set_postfix_str(f"{measured.task} {name} {tool}")
        files = artifacts[name].paths if name else _NOTHING
        result = _sample(f"{measured.task}_{tool}", files, artifacts["tiny"].paths)
        if warm:
            measured.samples[tool].results.append(result)
        bar.update()
    bar.close()


def _order(plans: Sequence[Measured], repeat: int) -> Iterator[tuple[Measured, str, bool]]:
    for measured in plans:
        for round_ in range(repeat + 1):
            for tool in TOOLS:
                yield measured, tool, round_ > 0


def _sample(task: str, files: dict[str, str], tiny: dict[str, str]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="etviz-bench-") as folder:
        request, answer = Path(folder) / "request.json", Path(folder) / "answer.json"
        order = {"task": task, "files": files, "tiny": tiny, "answer": str(answer)}
        request.write_text(json.dumps(order), encoding="utf-8")
        command = [sys.executable, "-m", "benchmarks.tasks", str(request)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT, errors="replace", check=False)
        if done.returncode or not answer.exists():
            last = "\n".join(done.stderr.splitlines()[-15:])
            raise MeasurementError(f"{task} failed with status {done.returncode}:\n{last}")
        return json.loads(answer.read_text(encoding="utf-8"))
