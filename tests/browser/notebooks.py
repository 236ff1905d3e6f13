"""Writing the notebook that a test needs."""

from __future__ import annotations

import textwrap
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_notebook


def write_notebook(path: Path, *cells: str) -> Path:
    """Write a notebook with the given code cells (indented source is fine) for the Python kernel."""
    notebook = new_notebook(
        cells=[new_code_cell(textwrap.dedent(source).strip()) for source in cells],
        metadata={
            "kernelspec": {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"},
            "language_info": {"name": "python"},
        },
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, path)
    return path
