"""`etviz demo`."""

from __future__ import annotations

import sys
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from etviz.cli.artifacts import JsonOption
from etviz.cli.console import err, out, plain_text, print_json
from etviz.cli.decode import told
from etviz.cli.gaps import records, worst_table
from etviz.errors import UsageError

if TYPE_CHECKING:
    from etviz.demo.digits_demo import Demo
    from etviz.demo.language_model import LanguageDemo

_WORST: Final = 5


def demo(
    folder: Annotated[
        Path | None,
        typer.Option("--out", help="Folder of what is made: etviz-demo, or etviz-demo-llm with --llm."),
    ] = None,
    show: Annotated[bool, typer.Option("--open", help="Open the report in the browser.")] = False,
    runner: Annotated[
        str | None, typer.Option(help="cpp: run it with the C++ runner (make runner); or a command, as in etviz run.")
    ] = None,
    llm: Annotated[bool, typer.Option("--llm", help="A language model, its tokens, and a fault of its cache.")] = False,
    as_json: JsonOption = False,
) -> None:
    """A real model, trained here in seconds, quantized, lowered, run and compared; and a planted fault, found."""
    steps = err if as_json else out

    def say(text: str) -> None:
        steps.print(f"[bold]-[/bold] {plain_text(text)} …")

    if llm:
        if runner or show:
            raise UsageError("--llm has no report and no other runner; leave out --open and --runner")
        from etviz.demo.language_model import run_language_demo

        _tell(run_language_demo(folder or Path("etviz-demo-llm"), say), as_json=as_json)
        return
    from etviz.demo.digits_demo import run_demo

    result = run_demo(folder or Path("etviz-demo"), say, runner)
    if as_json:
        _print_json(result)
    else:
        _print(result)
    if show and not webbrowser.open(result.report.resolve().as_uri()):
        err.print("etviz: no browser was found to open the report")


def _tell(result: LanguageDemo, *, as_json: bool) -> None:
    run, planted = result.run, result.planted
    if as_json:
        facts = {"what": result.what} | told(result.answer) | {"summary": planted.summary()}
        body = {"folder": str(result.folder), "summary": run.summary(), "float": result.against_float.summary()}
        print_json(body | {"planted": facts})
        return
    for heading, decoded in (("Against the float model", result.against_float), ("As exported", run)):
        out.print()
        out.print(heading, style="bold")
        _say(decoded.summary())
    out.print()
    out.print("With a planted fault", style="bold")
    _say(f"Planted: {result.what}.")
    _say(planted.summary(), "bold red")
    for name, text in told(result.answer).items():
        _say(f"{name.capitalize()}: {text}", "bold green" if name == "proof" else "bold")
    out.print()
    _say(f"Artifacts are in {result.folder}/, the faulty program in {result.folder / 'planted'}/. Next:")
    ids = " ".join(map(str, run.sequences[0].ids[: run.sequences[0].prompted]))
    out.print(f"  etviz decode {result.folder / 'planted'} --ids '{ids}' --why", soft_wrap=True)


def _print_json(result: Demo) -> None:
    digest = result.inspection.analysis.digest
    planted = result.planted
    fault = {
        "folder": str(planted.folder),
        "what": planted.what,
        "finding": planted.finding,
        "accuracy": planted.accuracy,
        "proved_accuracy": planted.proved,
        "verdict": planted.inspection.analysis.digest.verdict,
    }
    files = {"folder": str(result.folder), "notebook": str(result.notebook), "report": str(result.report)}
    accuracy = {"float_accuracy": result.float_accuracy, "executorch_accuracy": result.executorch_accuracy}
    worst = records(result.inspection.worst(_WORST))
    body = files | {"images": result.images} | accuracy | {"verdict": digest.verdict, "rows": worst}
    print_json(body | {"planted": fault})


def _print(result: Demo) -> None:
    planted, inspection = result.planted, result.planted.inspection
    out.print()
    out.print("As exported", style="bold")
    _say(result.inspection.analysis.digest.verdict)
    _say(
        f"Accuracy on {result.images} test images: float {_percent(result.float_accuracy)}, "
        f"ExecuTorch int8 {_percent(result.executorch_accuracy)}."
    )
    out.print()
    out.print("With a planted fault", style="bold")
    _say(f"Planted: {planted.what}.")
    _say(f"Accuracy {_percent(result.executorch_accuracy)} → {_percent(planted.accuracy)}.", "bold red")
    _say(f"Culprit: {planted.finding}", "bold")
    _say(f"Proof: with its correct output substituted, {_percent(planted.proved)}.", "bold green")
    out.print()
    out.print("Worst by introduced severity:")
    out.print(worst_table(inspection.worst(_WORST)))
    out.print()
    _say(f"Artifacts are in {result.folder}/, those with the fault in {planted.folder}/. Why, in more words:")
    out.print(f"  etviz why {planted.folder}", soft_wrap=True)
    _say("The linked view, without a kernel:")
    out.print(f"  {result.report}", soft_wrap=True)
    _say("In a notebook:")
    out.print(f"  {_jupyter()} {result.notebook}", soft_wrap=True)


def _say(text: str, style: str = "") -> None:
    out.print(plain_text(text), style=style)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _jupyter() -> str:
    beside = Path(sys.executable).with_name("jupyter-lab")
    return f"{beside.relative_to(Path.cwd())}" if beside.is_relative_to(Path.cwd()) else "jupyter lab"
