"""What `make test` leaves out has a test in `make test` that stands for it."""

from __future__ import annotations

import pytest

from tests.conftest import COLLECTED
from tests.exhaustive import MATRIX, ONLY_THERE


def test_what_is_left_out_has_a_test_that_stands_for_it(request: pytest.FixtureRequest) -> None:
    """Of the files that this run collects."""
    collected = request.config.stash[COLLECTED]
    files = {name.partition("::")[0] for name in collected}
    named = {*MATRIX, *MATRIX.values()}
    assert [name for name in named if name.partition("::")[0] in files and name not in collected] == []
    assert [name for name, other in MATRIX.items() if other in MATRIX] == []
    assert {name.partition("[")[0] for name in MATRIX} >= {*ONLY_THERE}
