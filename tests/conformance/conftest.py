"""The programs of `cases.py`, each made once a session."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest

from tests.conformance.cases import Case, make


@pytest.fixture(scope="session")
def case(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Case]:
    """Any program of `cases.py` by name."""
    return functools.cache(lambda name: make(name, tmp_path_factory.mktemp(name)))
