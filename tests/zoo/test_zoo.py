"""The quick part of the zoo: no culprit in a correct program, and the right one where a fault was planted.

`make zoo` does the same with all programs. What is made for it is kept in ``.zoo``, so a second run only loads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from tests.zoo.certificate import LIMIT
from tests.zoo.judge import judge, judge_fault
from tests.zoo.made import WAYS
from tests.zoo.maker import make, make_plant
from tests.zoo.plants import PLANTS
from tests.zoo.programs import RECIPES
from tests.zoo.report import ratio

QUICK = [name for name, recipe in RECIPES.items() if recipe.quick]
QUICK_PLANTS = [name for name, plant in PLANTS.items() if plant.quick]
VISIBLE = 20.0
"""By how many times its rounding a planted operator is off at least."""

ALARMS: Mapping[tuple[str, str], str] = {}
"""Why a correct program is given a culprit today, or called broken."""
NOT_NAMED: Mapping[tuple[str, str], str] = {}
"""Why a planted operator is not named today."""
NOT_EXPLAINED: Mapping[tuple[str, str], str] = {}
"""Why attribution or zoom do not tell it today."""


def _each(names: Iterable[str], known: Mapping[tuple[str, str], str], ways: Iterable[str] = WAYS) -> list[Any]:
    """Every name in every way of loading; those that are known to fail are expected to."""
    return [
        pytest.param(name, way, marks=pytest.mark.xfail(reason=known[name, way], strict=False))
        if (name, way) in known
        else (name, way)
        for name in names
        for way in ways
    ]


@pytest.mark.parametrize(("name", "way"), _each(QUICK, ALARMS))
def test_correct_program_is_left_alone(name: str, way: str) -> None:
    said = judge(make(RECIPES[name]), way)
    assert said.first == "", said
    assert said.level not in ("bad", "error"), said


@pytest.mark.parametrize(("name", "way"), _each(QUICK_PLANTS, NOT_NAMED))
def test_planted_fault_is_named(name: str, way: str) -> None:
    """With the ETRecord alone it may also be said that the operator's own error is not known."""
    named = judge_fault(make_plant(PLANTS[name]), way, deep=False)
    assert named.outcome == "found" or (named.outcome, way) == ("not known", "ETRecord"), named


@pytest.mark.parametrize(("name", "way"), _each(QUICK_PLANTS, NOT_EXPLAINED, ["record"]))
def test_planted_fault_is_explained(name: str, way: str) -> None:
    """Attribution gives the operator the error; zoom names it inside of its delegate, or says that it can't."""
    named = judge_fault(make_plant(PLANTS[name]), way)
    assert named.share == pytest.approx(1, abs=0.2), named
    assert named.inside in ("", "named", "unfaithful"), named


@pytest.mark.parametrize("name", QUICK)
def test_correct_program_is_correct(name: str) -> None:
    assert max(map(ratio, make(RECIPES[name]).facts["local"])) < LIMIT


@pytest.mark.parametrize("name", QUICK_PLANTS)
def test_planted_fault_is_one_and_visible(name: str) -> None:
    facts = make_plant(PLANTS[name]).facts
    (culprit,) = facts["culprits"]
    others = [check for check in facts["local"] if check["node"] != culprit["name"]]
    assert facts["size"] > VISIBLE
    assert max(map(ratio, others), default=0.0) < LIMIT
