"""`etviz demo`."""

from __future__ import annotations

import sys
import webbrowser
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from etviz.cli.console import err, out

_OTHER_COLUMNS = 62
"""Characters that the worst rows need beside the operator's name."""


def demo(
    folder: Annotated[Path, typer.Option("--out", help="Folder for artifacts, notebook and report.")] = Path(
        "etviz-demo"
    ),
    show: Annotated[bool, typer.Option("--open", help="Open the report in the browser.")] = False,
) -> None:
    """A real model, trained here in seconds, quantized, lowered, run and compared."""
    from etviz.demo import run_demo

    result = run_demo(folder, lambda text: out.print(f"[bold]-[/bold] {text} …"))
    inspection = result.inspection
    out.print()
    out.print(f"[bold]{inspection.digest.verdict}[/bold]")
    for fact in inspection.digest.facts:
        out.print(f"  {fact.label}: {fact.value}", highlight=False)
    out.print(
        f"  Accuracy on {result.images} test images: float {100 * result.float_accuracy:.1f} %, "
        f"ExecuTorch int8 {100 * result.executorch_accuracy:.1f} %",
        highlight=False,
    )
    out.print(_worst_table(inspection))
    out.print(f"Artifacts are in {folder}/. Open the linked view:", highlight=False)
    out.print(f"  {_jupyter()} {result.notebook}", highlight=False, soft_wrap=True)
    out.print(f"Or, without a kernel, the report: {result.report}", highlight=False, soft_wrap=True)
    if show and not webbrowser.open(result.report.resolve().as_uri()):
        err.print("etviz: no browser was found to open the report", highlight=False)


def _worst_table(inspection: object) -> Table:
    """The worst rows, as wide as the terminal."""
    from etviz.graph.source import short_operator
    from etviz.inspection import Inspection

    table = Table(title="Worst by introduced severity", title_justify="left", box=None, pad_edge=False)
    if not isinstance(inspection, Inspection):
        return table
    table.add_column("#", justify="right", no_wrap=True, min_width=3)
    table.add_column("operator", overflow="ellipsis", no_wrap=True, max_width=max(16, out.width - _OTHER_COLUMNS))
    numbers = {"introduced": "introduced_severity", "severity": "severity", "rmse": "rmse", "SQNR dB": "sqnr_db"}
    for label in numbers:
        table.add_column(label, justify="right", no_wrap=True, min_width=max(len(label), 8))
    table.add_column("source", overflow="ellipsis", no_wrap=True, min_width=12)
    for _, row in inspection.worst(5).iterrows():
        name = f"{row['backend']}: {row['reference_ops']}" if row["backend"] else short_operator(str(row["op"]))
        cells = (f"{row[column]:.3g}" for column in numbers.values())
        table.add_row(str(row["instruction"]), name, *cells, str(row["source"]))
    return table


def _jupyter() -> str:
    beside = Path(sys.executable).with_name("jupyter-lab")
    return f"{beside.relative_to(Path.cwd())}" if beside.is_relative_to(Path.cwd()) else "jupyter lab"
