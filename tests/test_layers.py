"""Imports run downwards, as pyproject.toml has it (``tool.importlinter``)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from importlinter.cli import lint_imports


@pytest.fixture(autouse=True)
def _loggers_go_on() -> Iterator[None]:
    """import-linter configures logging, which turns off all loggers that are there."""
    on = [each for each in logging.root.manager.loggerDict.values() if isinstance(each, logging.Logger)]
    on = [logger for logger in on if not logger.disabled]
    yield
    for logger in on:
        logger.disabled = False


@pytest.mark.parametrize("contract", ["flow", "circles"])
def test_imports_keep_the_contracts(contract: str, capsys: pytest.CaptureFixture[str]) -> None:
    pyproject = Path(__file__).parent.parent / "pyproject.toml"
    status = lint_imports(str(pyproject), limit_to_contracts=(contract,), no_cache=True)
    assert status == 0, capsys.readouterr().out
