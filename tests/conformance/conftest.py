"""The programs of `cases.py`."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest

from tests.conformance.cases import Case, make
from tests.shelf import Shelf


@pytest.fixture(scope="session")
def case(shelf: Shelf) -> Callable[[str], Case]:
    """Any program of `cases.py` by name."""
    return functools.cache(lambda name: make(name, shelf))
