"""`etviz dump`: all tensors of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from etviz.cli import artifacts as given
from etviz.cli.console import doing, err, plain_text


def dump(
    artifacts: given.Artifacts,
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder.")] = Path("tensors"),
) -> None:
    """Every tensor of the run and its reference, as safetensors files with an index (index.json)."""
    inspection = artifacts.load()
    with doing("writing the tensors"):
        written = inspection.export.tensors(output)
    err.print(f"{plain_text(written)}: {len(inspection.gaps)} rows")
