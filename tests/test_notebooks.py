"""The notebooks run from top to bottom in a fresh kernel, and are committed without outputs and widget state."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.kernels import Kernels

FOLDER = Path(__file__).parents[1] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
TIMEOUT = 300


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


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_runs(path: Path, kernels: Kernels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTER_PATH", os.pathsep.join([str(kernels.path), str(Path(sys.prefix) / "share/jupyter")]))
    monkeypatch.setenv("TQDM_DISABLE", "1")
    notebook: Any = nbformat.read(path, as_version=4)
    client = NotebookClient(notebook, timeout=TIMEOUT, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    kinds = {kind for output in outputs for kind in output.get("data", {})}
    assert "application/vnd.jupyter.widget-view+json" in kinds
    texts = [output.text for output in outputs if output.output_type == "stream"]
    assert any("Compared: " in text for text in texts)
