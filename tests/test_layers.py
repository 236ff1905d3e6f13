"""Imports run downwards, as pyproject.toml has it (``tool.importlinter``)."""

from __future__ import annotations

from pathlib import Path

import pytest
from importlinter.cli import lint_imports


@pytest.mark.parametrize("contract", ["flow", "circles"])
def test_imports_keep_the_contracts(contract: str, capsys: pytest.CaptureFixture[str]) -> None:
    pyproject = Path(__file__).parent.parent / "pyproject.toml"
    status = lint_imports(str(pyproject), limit_to_contracts=(contract,), no_cache=True)
    assert status == 0, capsys.readouterr().out
