# pyright: reportPrivateUsage=false
"""Small programs that set off one of upstream's traps each, and both tools on the files of a run."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.devtools import Inspector
from executorch.devtools.inspector import Event
from executorch.exir import EdgeProgramManager, ExecutorchProgramManager, to_edge_transform_and_lower
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram, export

import etviz
from etviz.pipeline.execute import execute
from tests.programs import FILES, Executed
from tests.shelf import Shelf


class EarlyOutput(nn.Module):
    """One delegate with two outputs of the same shape, the first of them read again inside of it."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.second = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        early = torch.relu(self.first(x))
        return early, torch.sigmoid(self.second(early))


class HalfInside(nn.Module):
    """Float32 at both ends, float16 in the middle."""

    def forward(self, x: Tensor) -> Tensor:
        y = torch.sin(x).to(torch.float16) * 2
        return torch.cos(y.float()) + x


class Masked(nn.Module):
    """Scores to which a mask of -10,000 is added; a layer norm of small values follows."""

    def __init__(self) -> None:
        super().__init__()
        self.scores = nn.Linear(16, 16)
        self.norm = nn.LayerNorm(16)
        self.register_buffer("mask", torch.triu(torch.full((16, 16), -1e4), 1))
        self.mask: Tensor

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.cumsum(self.scores(x) + self.mask, -1)
        return torch.softmax(hidden, -1) @ self.norm(x)


class Rows(nn.Module):
    """Any number of rows."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(10, 10)

    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(self.linear(x)) + 1


class Running(nn.Module):
    """Adds up what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(2, 3))
        self.total: Tensor

    def forward(self, x: Tensor) -> Tensor:
        self.total.add_(x)
        return torch.cos(self.total) * 2


@dataclass(frozen=True, eq=False)
class Case:
    """A lowered program and its files, made once a test run; only the files are there in every process.

    Attributes
    ----------
    made
        Set in the process that made it.
    """

    name: str
    folder: Path
    made: Lowering | None = None

    @cached_property
    def _lowered(self) -> Lowering:
        return self.made or lower(self.name)

    @property
    def programs(self) -> Mapping[str, ExportedProgram]:
        """What was exported, by method."""
        return self._lowered.programs

    @property
    def manager(self) -> ExecutorchProgramManager:
        """What was emitted."""
        return self._lowered.manager

    @property
    def runs(self) -> Sequence[tuple[Any, ...]]:
        """The inputs of each execution."""
        return self._lowered.runs

    def path(self, kind: str) -> Path:
        """One of the artifacts, by its argument of `etviz.load`."""
        return self.folder / FILES[kind]


@dataclass(frozen=True)
class Lowering:
    """A program while it was lowered."""

    programs: Mapping[str, ExportedProgram]
    runs: Sequence[tuple[Any, ...]]
    edge: EdgeProgramManager
    manager: ExecutorchProgramManager


def _one(model: nn.Module, *runs: tuple[Any, ...], delegated: bool = False, **options: Any) -> Any:
    return {"forward": export(model.eval(), runs[0], **options)}, list(runs), delegated


def _two_methods() -> Any:
    x = torch.randn(2, 10)
    programs = {"forward": export(Rows().eval(), (x,)), "encode": export(HalfFree().eval(), (x,))}
    return programs, [(x,)], False


class HalfFree(nn.Module):
    """The second method."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cumsum(torch.cos(x), -1)


CASES: dict[str, Callable[[], Any]] = {
    "early": lambda: _one(EarlyOutput(), (torch.randn(3, 8),), delegated=True),
    "half": lambda: _one(HalfInside(), (torch.randn(4, 4),)),
    "masked": lambda: _one(Masked(), (torch.randn(16, 16),), delegated=True),
    "rows": lambda: _one(Rows(), (torch.randn(2, 10),), dynamic_shapes=({0: Dim("rows", min=1, max=8)},)),
    "running": lambda: _one(Running(), *[(torch.ones(2, 3) * k,) for k in (1, 1, 1)]),
    "two_methods": _two_methods,
}


def lower(name: str) -> Lowering:
    """Export, lower and emit."""
    with torch.random.fork_rng(), torch.enable_grad():
        torch.manual_seed(0)
        programs, runs, delegated = CASES[name]()
    partitioner: Any = [XnnpackPartitioner()] if delegated else None
    edge = to_edge_transform_and_lower(programs, partitioner=partitioner, generate_etrecord=True)
    manager = edge.to_executorch()
    manager.get_etrecord().update_representative_inputs(runs[0])
    return Lowering(programs, runs, edge, manager)


def make(name: str, shelf: Shelf) -> Case:
    """A program of `CASES`; it is lowered and run, and all its files are written, if no process has done so yet."""
    lowered = list[Lowering]()

    def fill(folder: Path) -> None:
        found = lower(name)
        found.manager.save(str(folder / FILES["pte"]))
        found.manager.get_etrecord().save(str(folder / FILES["etrecord"]))
        etviz.record(found.edge, found.manager, folder / FILES["record"])
        execute(folder / FILES["pte"], [list(run) for run in found.runs], workdir=folder)
        lowered.append(found)

    return Case(name, shelf.folder(f"{name}-case", fill), *lowered)


def rerun(case: Case | Executed, runs: Sequence[Sequence[Any]], folder: Path, **options: Any) -> etviz.Inspection:
    """Run a program again on flat inputs, and load what that gave with the program's own files."""
    execute(case.path("pte"), runs, workdir=folder, method=options.get("method", "forward"))
    return load(case, folder, **options)


def load(case: Case | Executed, folder: Path | None = None, **options: Any) -> etviz.Inspection:
    """Load the files of a case, those of the run from `folder` if it is given."""
    where = folder or case.folder
    given: dict[str, Any] = {"etrecord": case.path("etrecord"), "pte": case.path("pte")}
    given["debug_buffer"] = where / FILES["debug_buffer"]
    return etviz.load(where / FILES["etdump"], **given | options)


def upstream(case: Case | Executed, folder: Path | None = None, **options: Any) -> Inspector:
    """The upstream Inspector on the same files."""
    where = folder or case.folder
    given: dict[str, Any] = {"etrecord": str(case.path("etrecord"))}
    given["debug_buffer_path"] = str(where / FILES["debug_buffer"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Inspector(etdump_path=str(where / FILES["etdump"]), **given | options)


def mse(reference: Tensor, runtime: Tensor) -> float:
    """Mean squared error by NumPy, in float64."""
    difference = runtime.detach().numpy().astype(np.float64) - reference.detach().numpy().astype(np.float64)
    return float(np.mean(difference**2))


def upstream_gaps(inspector: Inspector, **options: Any) -> list[float]:
    """Every MSE that upstream shows."""
    return [float(row[0]) for row in inspector.calculate_numeric_gap("MSE", **options)["gap"]]


def timed(inspector: Inspector) -> dict[tuple[str, str, int | None], Event]:
    """Every timed event by block, name and instruction (none for the framework's own)."""
    found = dict[tuple[str, str, int | None], Event]()
    for block in inspector.event_blocks:
        for event in block.events:
            framework = event.name.startswith(("Method::", "Program::"))
            found[block.name, event.name, None if framework else event._instruction_id] = event
    return found


def assert_same_events(found: etviz.Inspection, inspector: Inspector, factor: float = 1.0) -> None:
    """The same events, in the same order, with the same statistics; upstream's times are `factor` as large."""
    expected, events = timed(inspector), found.events
    numbers = [None if number is pd.NA else int(number) for number in events["instruction"]]
    assert list(zip(events["event_block"], events["name"], numbers, strict=True)) == list(expected)
    for at, event in enumerate(expected.values()):
        data: Any = event.perf_data
        assert events["count"][at] == len(data.raw)
        assert np.multiply(events["samples_ms"][at], factor) == pytest.approx(data.raw, rel=1e-9, abs=1e-9)
        assert events["std_ms"][at] == pytest.approx(pd.Series(data.raw).std() / factor, rel=1e-6, nan_ok=True)
        for column in ("avg", "p10", "p50", "p90", "min", "max"):
            theirs = getattr(data, column)
            assert events[f"{column}_ms"][at] * factor == pytest.approx(theirs, rel=1e-9, abs=1e-9)
        assert inspector._etrecord is None or events["backend"][at] == (event.delegate_backend_name or "")
