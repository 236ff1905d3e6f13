"""`etviz outputs`: the final outputs of each run against their reference."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from etviz.cli import artifacts as given
from etviz.cli.console import err, out, plain_text, print_json
from etviz.cli.gaps import records
from etviz.errors import UsageError

_PICTURES = (".png", ".svg", ".pdf")
_SHOWN = ("rmse", "max_abs", "sqnr_db", "cosine")


def outputs(
    artifacts: given.Artifacts,
    plot: Annotated[Path | None, typer.Option(help="Write a picture: the RMSE of each output.")] = None,
    as_json: given.JsonOption = False,
) -> None:
    """The final outputs of each run against their reference, value by value (exit status 1 if one does not match)."""
    if plot is not None and plot.suffix not in _PICTURES:
        raise UsageError(f"--plot must end in one of {', '.join(_PICTURES)}, found {plot.name}")
    tables = {name: inspection.outputs for name, inspection in artifacts.load_all().items()}
    several = len(tables) > 1
    if plot is not None and several:
        raise UsageError(f"--plot shows one of {', '.join(tables)}; choose it with --method")
    table = next(iter(tables.values()))
    if plot is not None:
        from etviz.comparison.results import Results
        from etviz.view.plots import save

        save(Results(table).plot, plot)
    if as_json:
        print_json(
            [({"method": name} if several else {}) | row for name, one in tables.items() for row in records(one)]
        )
    else:
        for program, row in ((name, row) for name, one in tables.items() for _, row in one.iterrows()):
            shape = ", ".join(map(str, row["shape"]))
            numbers = "  ".join(f"{name} {row[name]:.6g}" for name in _SHOWN)
            said = numbers if not row["reason"] else str(row["reason"])
            mark = "[green]matches[/green]" if row["matches"] is True else f"[red]{plain_text(row['status'])}[/red]"
            of = f"{program} " if several else ""
            name = f"{of}run {int(row['event_block'])} output {int(row['output'])} {row['dtype']} ({shape})"
            out.print(f"{plain_text(name)}: {mark}  {plain_text(said)}")
        for name in (name for name, one in tables.items() if one.empty):
            of = f" of {name}" if several else ""
            err.print(plain_text(f"no final output{of} was compared; etviz info says what the files hold"))
    if any(one.empty or not all(value is True for value in one["matches"]) for one in tables.values()):
        raise typer.Exit(1)
