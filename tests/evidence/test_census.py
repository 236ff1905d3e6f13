"""The same input again and again: a random kernel is found, and where it varies; other programs give the same bits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import etviz
from etviz.errors import UsageError
from etviz.evidence.census import count_runs
from etviz.evidence.subject import Subject
from tests.programs import Executed

Get = Callable[[str], Executed]


class Dice(nn.Module):
    """One kernel of the runtime draws random numbers, for one row of the result only; the rest reads it."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        steady = torch.cumsum(self.linear(x), -1)
        noise = torch.rand(1, 8)
        mixed = torch.cat([steady[:1], steady[1:2] + noise, steady[2:]])
        return torch.sin(mixed), torch.exp(-steady)


@pytest.fixture(scope="module")
def rolled() -> etviz.Census:
    """Thirty runs of a program that is not deterministic."""
    torch.manual_seed(3)
    return etviz.census(Dice().eval(), (torch.randn(4, 8),), n=30)


def test_the_first_instruction_that_varies_is_named(rolled: etviz.Census) -> None:
    table = rolled.table
    assert rolled.first is not None
    assert rolled.first["op"] == "aten::rand.out"
    varied = table[table["varied"]]
    assert rolled.varying == len(varied)
    assert {"aten::sin.out", "aten::cat.out"} <= set(varied["op"])
    assert not {"aten::cumsum.out", "aten::exp.out"} & set(varied["op"])
    assert list(varied.loc[varied["origin"].astype(bool), "op"]) == ["aten::rand.out"]


def test_how_often_and_where(rolled: etviz.Census) -> None:
    table = rolled.table.set_index("op")
    rand, cat = table.loc["aten::rand.out"], table.loc["aten::cat.out"]
    assert rand["distinct"] == rand["runs"] == 30
    assert rand["deviating"] == 29
    assert rand["low"] < rand["share"] == 29 / 30 < rand["high"]
    assert cat["differing"] == 8
    assert cat["elements"] == 32
    assert cat["where"] == "8 of 32 elements: axis 0 at 1"
    steady = table.loc["aten::exp.out"]
    assert (steady["share"], steady["low"]) == (0.0, 0.0)
    assert steady["high"] == pytest.approx(1.959964**2 / (30 + 1.959964**2), rel=1e-5)


def test_deviating_runs_are_kept(rolled: etviz.Census) -> None:
    number = int(rolled.table.set_index("op").loc["aten::cat.out", "instruction"])
    assert rolled.kept[0] == 0
    assert 1 < len(rolled.kept) < 30
    a, b = (rolled.tensors(number, run)[0] for run in rolled.kept[:2])
    differs = (a != b).numpy()
    assert differs[1].any()
    assert not np.delete(differs, 1, 0).any()
    steady = int(rolled.table.set_index("op").loc["aten::exp.out", "instruction"])
    assert torch.equal(rolled.tensors(steady, 0)[0], rolled.tensors(steady, rolled.kept[1])[0])
    with pytest.raises(UsageError, match="were not kept"):
        rolled.tensors(number, 29)
    with pytest.raises(UsageError, match="no instruction 99"):
        rolled.tensors(99, 0)


def test_the_summary_says_it(rolled: etviz.Census) -> None:
    assert "rand" in rolled.summary()
    assert "30 different values" in rolled.summary()


@pytest.mark.parametrize("name", ["encoder", "plain_cnn", "counter"])
def test_xnnpack_portable_kernels_and_a_state_are_deterministic(executed: Get, name: str) -> None:
    program = executed(name)
    census = etviz.census(program.folder, program.inputs, n=6)
    assert census.varying == 0
    assert census.first is None
    assert census.deviating == []
    assert set(census.table["instruction"]) == set(program.inspection.gaps["instruction"])
    assert (census.table["runs"] == 6).all()
    assert "gave the same bits" in census.summary()


def test_a_program_alone_will_do(executed: Get) -> None:
    program = executed("plain_cnn")
    found = count_runs(Subject({"pte": str(program.path("pte"))}), list(program.inputs), 2)
    assert found.varying == 0
    assert len(found.table)


def test_what_makes_no_sense_is_refused(executed: Get) -> None:
    program = executed("plain_cnn")
    for n in (1, 0, 2.5, True):
        with pytest.raises(UsageError):
            etviz.census(program.folder, program.inputs, n=n)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="tuple of the program's arguments"):
        etviz.census(program.folder, program.inputs[0])
    with pytest.raises(UsageError, match=r"inputs do not fit the program: .* must have the shape"):
        etviz.census(program.folder, (torch.zeros(3, 3),), n=2)
