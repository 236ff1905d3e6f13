"""Fixtures for all tests: every program of `programs.py`, made and run by `etviz.debug` once a session."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest

from tests.programs import RECIPES, Executed, run


@pytest.fixture(scope="session")
def executed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Executed]:
    """Any program by name; it is made when it is first asked for."""
    return functools.cache(lambda name: run(name, tmp_path_factory.mktemp(name)))


@pytest.fixture(params=RECIPES)
def program(request: pytest.FixtureRequest, executed: Callable[[str], Executed]) -> Executed:
    """Each program in turn."""
    return executed(request.param)
