"""What etviz says of a program agrees with itself: every kind of program, every planted fault of the zoo.

`make test` takes the kinds and the quick plants; `make zoo` renders all plants that were made.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from torch import Tensor, nn

from tests.kinds.making import WAYS, Made
from tests.numerics.test_hypotheses import matrix, run_against
from tests.statements import contradictions
from tests.zoo import made
from tests.zoo.maker import make_plant
from tests.zoo.plants import PLANTS

QUICK = [name for name, plant in PLANTS.items() if plant.quick]


@pytest.mark.parametrize("way", WAYS)
def test_no_statement_about_a_kind_contradicts_another(kind: Made, way: str) -> None:
    assert contradictions(kind.load(way)) == []


@pytest.mark.parametrize("name", QUICK)
@pytest.mark.parametrize("way", made.WAYS)
def test_no_statement_about_a_planted_fault_contradicts_another(name: str, way: str) -> None:
    assert contradictions(make_plant(PLANTS[name]).load(way)) == []


@pytest.mark.parametrize("name", ["delegate_fp32", "delegate_int8", "channels_last"])
def test_no_statement_contradicts_another_after_a_zoom(made: Callable[[str], Made], name: str) -> None:
    inspection = made(name).load_own("exact")
    inspection.look_inside()
    assert contradictions(inspection) == []


@pytest.mark.parametrize("name", [name for name in QUICK if "xnnpack" in name])
def test_a_zoom_that_finds_the_fault_moves_every_statement(name: str) -> None:
    """The delegate is named at first; afterwards headline, first divergence and diagnosis name its operator."""
    inspection = make_plant(PLANTS[name]).load("record")
    before = inspection.first_divergence
    assert before is not None
    inspection.look_inside()
    after, body = inspection.first_divergence, inspection.diagnosis()
    assert after is not None
    assert contradictions(inspection) == []
    if inspection.analysis.inside and after["kind"] == "inner":
        assert int(str(after.name)) >= len(inspection.gaps)
        assert after["instruction"] == before["instruction"]
        assert body["culprit"]["inside_of"] == before.name
        if inspection.analysis.tables.constants == ():
            assert body["finding"]["row"] == after.name
            assert " inside #" in body["finding"]["text"]


class Factor(nn.Module):
    """A delegate whose first operator reads a constant that the call hands over."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.factor, self.first, self.second = factor, nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.sin(self.first(x))
        return torch.cumsum(h, -1) * self.factor + self.second(h)


def test_no_statement_contradicts_another_after_a_zoom_to_another_constant(tmp_path: Path) -> None:
    found = run_against(Factor(1.0), Factor(2.0), (matrix(4, 8),), tmp_path, partitioner=[XnnpackPartitioner()])
    found.look_inside()
    first = found.first_divergence
    assert first is not None
    assert first["kind"] == "inner"
    assert found.what_if(int(str(first.name))).after["matches"].all()
    assert contradictions(found) == []
