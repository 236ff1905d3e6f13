"""A few of the random programs, of each precision: none is called broken."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from tests.zoo import judge, random_programs
from tests.zoo.made import WAYS


def _first(precision: str, folder: Path) -> tuple[int, dict[str, judge.Said]]:
    """The first program of a precision that can be made, and what is said of it."""
    for seed in range(100):
        if random_programs.recipe(seed).precision == precision:
            with contextlib.suppress(random_programs.NotMadeError):
                return seed, random_programs.examine(seed, folder / str(seed))
    raise AssertionError(f"none of {precision} could be made")


@pytest.mark.parametrize("precision", sorted(set(random_programs.PRECISIONS)))
def test_a_random_program_is_left_alone(precision: str, tmp_path: Path) -> None:
    seed, said = _first(precision, tmp_path)
    assert list(said) == list(WAYS)
    assert all(item.calm for item in said.values()), (seed, said)


def test_a_value_between_two_steps_may_be_rounded_to_either(tmp_path: Path) -> None:
    # A linear gives −99.4993 steps in float64. XNNPACK rounds it to −100, the reference to −99; integers follow.
    said = random_programs.examine(720_034, tmp_path)
    assert list(said) == list(WAYS)
    assert all(item.calm for item in said.values()), said


@pytest.mark.parametrize("count", [1, 6])
def test_two_faults_are_both_named_and_nothing_else(count: int, tmp_path: Path) -> None:
    made = 0
    for seed in range(100):
        with contextlib.suppress(random_programs.NotMadeError):
            changed, named = random_programs.two_faults(seed, tmp_path / str(seed))
            assert sorted(set(named)) == changed, seed
            made += 1
        if made == count:
            return
    raise AssertionError("too few could be made")
