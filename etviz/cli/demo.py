"""`etviz demo`."""

from __future__ import annotations

import sys
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from etviz.cli.artifacts import JsonOption
from etviz.cli.console import err, out, print_json
from etviz.cli.gaps import records, show_summary, worst_table

if TYPE_CHECKING:
    from etviz.demo.demo import Demo

_WORST: Final = 5


def demo(
    folder: Annotated[Path, typer.Option("--out", help="Folder for artifacts, notebook and report.")] = Path(
        "etviz-demo"
    ),
    show: Annotated[bool, typer.Option("--open", help="Open the report in the browser.")] = False,
    as_json: JsonOption = False,
) -> None:
    """A real model, trained here in seconds, quantized, lowered, run and compared."""
    from etviz.demo.demo import run_demo

    steps = err if as_json else out
    result = run_demo(folder, lambda text: steps.print(f"[bold]-[/bold] {text} …"))
    if as_json:
        _print_json(result)
    else:
        _print(result)
    if show and not webbrowser.open(result.report.resolve().as_uri()):
        err.print("etviz: no browser was found to open the report", highlight=False)


def _print_json(result: Demo) -> None:
    digest = result.inspection.digest
    files = {"folder": str(result.folder), "notebook": str(result.notebook), "report": str(result.report)}
    accuracy = {"float_accuracy": result.float_accuracy, "executorch_accuracy": result.executorch_accuracy}
    worst = records(result.inspection.worst(_WORST))
    print_json(files | {"images": result.images} | accuracy | {"verdict": digest.verdict, "rows": worst})


def _print(result: Demo) -> None:
    out.print()
    show_summary(result.inspection)
    out.print(
        f"  Accuracy on {result.images} test images: float {100 * result.float_accuracy:.1f} %, "
        f"ExecuTorch int8 {100 * result.executorch_accuracy:.1f} %",
        highlight=False,
    )
    out.print("Worst by introduced severity:")
    out.print(worst_table(result.inspection.worst(_WORST)))
    out.print(f"Artifacts are in {result.folder}/. Open the linked view:", highlight=False)
    out.print(f"  {_jupyter()} {result.notebook}", highlight=False, soft_wrap=True)
    out.print(f"Or, without a kernel, the report: {result.report}", highlight=False, soft_wrap=True)


def _jupyter() -> str:
    beside = Path(sys.executable).with_name("jupyter-lab")
    return f"{beside.relative_to(Path.cwd())}" if beside.is_relative_to(Path.cwd()) else "jupyter lab"
