"""A few of the random programs, of each precision: none is called broken."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.zoo import random_programs
from tests.zoo.made import WAYS


def _first_of_each() -> dict[str, int]:
    """The first seed of each precision."""
    found: dict[str, int] = {}
    for seed in range(50):
        found.setdefault(random_programs.recipe(seed).precision, seed)
    return found


@pytest.mark.parametrize(("precision", "seed"), _first_of_each().items())
def test_a_random_program_is_left_alone(precision: str, seed: int, tmp_path: Path) -> None:
    said = random_programs.examine(seed, tmp_path)
    assert list(said) == list(WAYS)
    assert all(item.calm for item in said.values()), (precision, said)
    assert said["record"].compared > 0
