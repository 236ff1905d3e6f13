"""`etviz calls`: recorded calls compared with the expected ones."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from etviz.cli.artifacts import JsonOption, MethodOption
from etviz.cli.console import out, plain_text, print_json
from etviz.cli.gaps import records


def calls(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a recording, or its calls.bin.")],
    pte: Annotated[
        Path | None, typer.Option(help="The program, beside its record or ETRecord; by default in DIR.")
    ] = None,
    method: MethodOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare recorded calls with those that the program expects; exit status 1 if one is wrong."""
    from etviz.calls.lint import ERROR, lint_calls

    table = lint_calls(folder, program=pte if pte is not None else folder, method=method)
    wrong = int((table["level"] == ERROR).sum())
    if as_json:
        print_json({"errors": wrong, "findings": records(table)})
    else:
        for row in table.itertuples(index=False):
            mark = "[red]" if row.level == ERROR else "[yellow]"
            said = f"call {row.call}: {row.what} is {row.found}, expected {row.expected}"
            out.print(f"{mark}{plain_text(said)}[/]", soft_wrap=True)
        colour = "red" if wrong else "green"
        out.print(f"[bold {colour}]{wrong} errors, {len(table) - wrong} notes[/]")
    if wrong:
        raise typer.Exit(1)
