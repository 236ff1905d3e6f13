"""`etviz verify`: the test sets of a BundledProgram."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from etviz.cli.artifacts import JsonOption, MethodOption
from etviz.cli.console import out, plain_text, print_json
from etviz.cli.gaps import records

if TYPE_CHECKING:
    import pandas as pd


def verify(
    bundle: Annotated[Path, typer.Argument(metavar="BPTE", help="A program with test sets (.bpte).")],
    rtol: Annotated[float, typer.Option(help="Relative tolerance.")] = 1e-3,
    atol: Annotated[float, typer.Option(help="Absolute tolerance.")] = 1e-5,
    method: MethodOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run the test sets of a BundledProgram; exit status 1 if an output differs from the expected one."""
    from etviz.gate.bundle import verify as run

    table = run(bundle, rtol=rtol, atol=atol, method=method)
    if as_json:
        print_json({"verified": bool(table.verified.all()), "outputs": records(table)})
    else:
        _print(table)
    if not table.verified.all():
        raise typer.Exit(1)


def _print(table: pd.DataFrame) -> None:
    for row in table.rename(columns={"index": "place"}).itertuples(index=False):
        name = f"{plain_text(row.method)}, test set {row.test_set}, output {row.output}"
        if row.verified:
            said = f"{row.dtype} {row.shape}, max |error| {row.max_abs:.3g}"
        elif row.reason:
            said = row.reason
        else:
            said = f"{row.off} of {row.elements} elements are off, the worst at {list(row.place)}: "
            said += f"{row.found} instead of {row.expected}"
        verdict = "[green]verified[/green]" if row.verified else "[red]FAILED[/red]"
        out.print(f"{verdict} {name}: {plain_text(said)}", soft_wrap=True)
    failed = int((~table.verified.astype(bool)).sum())
    if failed:
        out.print(f"[bold red]{failed} of {len(table)} outputs are not the expected ones[/bold red]")
    else:
        out.print(f"[bold green]{len(table)} outputs verified[/bold green]")
