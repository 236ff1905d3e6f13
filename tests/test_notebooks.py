"""The notebooks run from top to bottom in a fresh kernel, and are committed without outputs and widget state."""

from __future__ import annotations

import ast
import functools
import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from IPython.core.formatters import DisplayFormatter
from nbclient import NotebookClient

import etviz
from etviz.demo import digits
from tests.kernels import Kernels

FOLDER = Path(__file__).parents[1] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
TIMEOUT = 300
WIDGET = "application/vnd.jupyter.widget-view+json"


def test_there_are_notebooks() -> None:
    assert [path.name[:3] for path in NOTEBOOKS[:3]] == ["01-", "02-", "03-"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_committed_without_outputs(path: Path) -> None:
    notebook: Any = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert "widgets" not in notebook.metadata
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert not cell.outputs
            assert cell.execution_count is None


@pytest.fixture
def _levels() -> Iterator[None]:
    """A notebook sets those of some loggers."""
    loggers = [logging.getLogger(name) for name in ("torchao", "torch.utils._pytree")]
    before = [logger.level for logger in loggers]
    yield
    for logger, level in zip(loggers, before, strict=True):
        logger.setLevel(level)


@pytest.mark.slow
@pytest.mark.usefixtures("_levels")
def test_cells_of_the_first_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In this process, on a model that was trained for a shorter time; what a cell ends with can be displayed."""
    monkeypatch.setattr(digits, "train", functools.partial(digits.train, epochs=2))
    monkeypatch.setattr(etviz.options, "look_inside", "never")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    known, kinds = dict[str, Any](), set[str]()
    notebook: Any = nbformat.read(NOTEBOOKS[0], as_version=4)
    for cell in notebook.cells:
        statements = ast.parse(cell.source).body if cell.cell_type == "code" else []
        last = statements.pop() if statements and isinstance(statements[-1], ast.Expr) else None
        exec(compile(ast.Module(statements, []), NOTEBOOKS[0].name, "exec"), known)
        if isinstance(last, ast.Expr):
            shown = eval(compile(ast.Expression(last.value), NOTEBOOKS[0].name, "eval"), known)
            kinds |= {*DisplayFormatter().format(shown)[0]}
    assert WIDGET in kinds
    assert "Compared: " in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_runs(path: Path, kernels: Kernels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTER_PATH", os.pathsep.join([str(kernels.path), str(Path(sys.prefix) / "share/jupyter")]))
    monkeypatch.setenv("TQDM_DISABLE", "1")
    notebook: Any = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook, timeout=TIMEOUT, startup_timeout=TIMEOUT, resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    kinds = {kind for output in outputs for kind in output.get("data", {})}
    assert WIDGET in kinds
    texts = [output.text for output in outputs if output.output_type == "stream"]
    assert any("Compared: " in text for text in texts)
