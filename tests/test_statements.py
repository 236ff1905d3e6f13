"""What etviz says of a program agrees with itself: every kind of program, every planted fault of the zoo.

`make test` takes the kinds and the quick plants; `make zoo` renders all plants that were made.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.kinds.making import WAYS, Made
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
