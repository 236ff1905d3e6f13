"""The quick part of the zoo: no culprit in a correct program, and the right one where a fault was planted.

`make zoo` does the same with all programs. What is made for it is kept, so a second run only loads.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.zoo import judge
from tests.zoo.certificate import LIMIT
from tests.zoo.made import WAYS, ratio
from tests.zoo.maker import make, make_plant
from tests.zoo.plants import PLANTS
from tests.zoo.programs import RECIPES

QUICK = [name for name, recipe in RECIPES.items() if recipe.quick]
QUICK_PLANTS = [name for name, plant in PLANTS.items() if plant.quick]
VISIBLE = 20.0
"""By how many times its rounding a planted operator is off at least."""


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[judge.JudgeProcess]:
    """Judges files where nothing was lowered."""
    process = judge.JudgeProcess()
    yield process
    process.close()


@pytest.mark.parametrize("name", QUICK)
@pytest.mark.parametrize("way", WAYS)
def test_correct_program_is_left_alone(name: str, way: str, elsewhere: judge.JudgeProcess) -> None:
    said = (judge if way == "record" else elsewhere).judge(make(RECIPES[name]), way)
    assert said.first == "", said
    assert said.level not in ("bad", "error"), said


@pytest.mark.parametrize("name", QUICK_PLANTS)
@pytest.mark.parametrize("way", [way for way in WAYS if way != "record"])
def test_planted_fault_is_named(name: str, way: str, elsewhere: judge.JudgeProcess) -> None:
    """With the ETRecord alone it may also be said that the operator's own error is not known."""
    named = elsewhere.judge_fault(make_plant(PLANTS[name]), way, deep=False)
    assert named.outcome == "found" or (named.outcome, way) == ("not known", "ETRecord"), named


@pytest.mark.parametrize("name", QUICK_PLANTS)
def test_planted_fault_is_named_and_explained(name: str) -> None:
    """Attribution gives the operator the error; zoom names it inside of its delegate."""
    named = judge.judge_fault(make_plant(PLANTS[name]), "record")
    assert named.outcome == "found", named
    assert named.share == pytest.approx(1, abs=0.2), named
    assert named.inside in ("", "named"), named


@pytest.mark.parametrize("way", WAYS)
def test_the_setting_that_the_runtime_computed_with_is_named(way: str) -> None:
    found = make_plant(PLANTS["pooled_cnn fp32 portable: padding not counted in an average"]).load(way)
    finding = found.diagnosis(look_inside=False)["finding"]
    (fingerprint,) = found.row(finding["row"]).fingerprints().to_dict("records")
    assert fingerprint["name"] == "another setting"
    assert fingerprint["score"] > 0.99
    said = "he values fit avg_pool2d with count_include_pad=False (the program says True)"
    assert f"T{said}" in fingerprint["evidence"]
    assert f"t{said}" in finding["text"]


def test_a_setting_of_one_of_several_alike_is_fitted() -> None:
    """The second of two bounds."""
    found = make_plant(PLANTS["pooled_cnn fp32 xnnpack: saturating range"]).load("record")
    row = found.diagnosis(look_inside=False)["finding"]["row"]
    said = found.row(row).fingerprints()["evidence"][0]
    assert said.startswith("The values fit hardtanh with max_val=1.5 (the program says 6.0)")


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
