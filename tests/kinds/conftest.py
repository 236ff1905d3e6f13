"""Makes the program of each kind once a session."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest

from tests.kinds.making import Made, make
from tests.kinds.recipes import KINDS


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Made]:
    """The program of any kind; it is made when it is first asked for."""
    return functools.cache(lambda name: make(name, KINDS[name], tmp_path_factory.mktemp(name)))


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, made: Callable[[str], Made]) -> Made:
    """Each kind in turn."""
    return made(request.param)
