"""The command line: ``etviz demo``. Exit status 0 fine, 1 a check failed, 2 bad usage or a bad artifact."""

from __future__ import annotations

import sys
import webbrowser
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from etviz import __version__
from etviz.errors import EtvizError

app = typer.Typer(
    help="Which operator broke a model's numerics on its way to ExecuTorch, and why.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_out = Console()
_err = Console(stderr=True)
_OTHER_COLUMNS = 62
"""Characters that the worst rows need beside the operator's name."""
_verbose = False


def _version(value: bool) -> None:
    if value:
        _out.print(__version__)
        raise typer.Exit


@app.callback()
def _options(
    verbose: Annotated[bool, typer.Option("--verbose", help="Show the whole trace of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    global _verbose
    _verbose = verbose


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", help="Folder for artifacts, notebook and report.")] = Path("etviz-demo"),
    show: Annotated[bool, typer.Option("--open", help="Open the report in the browser.")] = False,
) -> None:
    """A real model, trained here in seconds, quantized, lowered, run and compared."""
    from etviz.demo import run_demo

    result = run_demo(out, lambda text: _out.print(f"[bold]-[/bold] {text} …"))
    inspection = result.inspection
    _out.print()
    _out.print(f"[bold]{inspection.digest.verdict}[/bold]")
    for fact in inspection.digest.facts:
        _out.print(f"  {fact.label}: {fact.value}", highlight=False)
    _out.print(
        f"  Accuracy on {result.images} test images: float {100 * result.float_accuracy:.1f} %, "
        f"ExecuTorch int8 {100 * result.executorch_accuracy:.1f} %",
        highlight=False,
    )
    _out.print(_worst_table(inspection))
    _out.print(f"Artifacts are in {out}/. Open the linked view:", highlight=False)
    _out.print(f"  {_jupyter()} {result.notebook}", highlight=False, soft_wrap=True)
    _out.print(f"Or, without a kernel, the report: {result.report}", highlight=False, soft_wrap=True)
    if show and not webbrowser.open(result.report.resolve().as_uri()):
        _err.print("etviz: no browser was found to open the report", highlight=False)


def _worst_table(inspection: object) -> Table:
    """The worst rows, as wide as the terminal."""
    from etviz.graph.source import short_operator
    from etviz.inspection import Inspection

    table = Table(title="Worst by introduced severity", title_justify="left", box=None, pad_edge=False)
    if not isinstance(inspection, Inspection):
        return table
    table.add_column("#", justify="right", no_wrap=True, min_width=3)
    table.add_column("operator", overflow="ellipsis", no_wrap=True, max_width=max(16, _out.width - _OTHER_COLUMNS))
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


def main() -> None:
    """Run the command line; the console script."""
    try:
        app()
    except EtvizError as error:
        if _verbose:
            raise
        _err.print(f"etviz: {error}", style="red", highlight=False, soft_wrap=True, markup=False)
        sys.exit(2)
    except KeyboardInterrupt:
        _err.print("etviz: interrupted", highlight=False)
        sys.exit(130)


if __name__ == "__main__":
    main()
