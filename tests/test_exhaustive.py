"""What `make test` leaves out has a test in `make test` that stands for it."""

from __future__ import annotations

import pytest

from tests.conftest import COLLECTED
from tests.exhaustive import KEPT, LEFT_OUT, ONLY_THERE


def test_what_is_left_out_has_a_test_that_stands_for_it(request: pytest.FixtureRequest) -> None:
    """Of the files that this run collects."""
    collected = request.config.stash[COLLECTED]
    files = {name.partition("::")[0] for name in collected}
    tests = {name.partition("[")[0] for name in collected}
    left_out = {f"{file}::{test}": other for file, all_of in LEFT_OUT.items() for test, other in all_of.items()}
    kept = {
        f"{file}::{test}[{own}]" for file, all_of in KEPT.items() for test, parts in all_of.items() for own in parts
    }
    stand = {*kept, *left_out.values()}
    assert [name for name in stand if name.partition("::")[0] in files and not collected.get(name, False)] == []
    assert [name for name in left_out if name.partition("::")[0] in files and name not in tests] == []
    assert {*left_out} >= {*ONLY_THERE}
