"""`etviz compare`: two or more sets of artifacts side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.table import Table

from etviz.artifacts.files import check_target
from etviz.cli import artifacts as given
from etviz.cli.console import ShortName, err, out, plain_text, print_json
from etviz.cli.gaps import number, records
from etviz.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd

_PLACED: Final = 70


def compare(
    sources: Annotated[
        list[Path], typer.Argument(metavar="A B ...", help="Folders with artifacts (or ETDumps in such folders).")
    ],
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write an HTML page.")] = None,
    by: Annotated[str, typer.Option(help="The metric to compare.")] = "introduced_severity",
    top: Annotated[int, typer.Option(min=1, help="Number of operators to print.")] = 10,
    inputs: given.InputsOption = None,
    as_json: given.JsonOption = False,
) -> None:
    """Two or more programs side by side, joined by operator: what became worse from the first to the others."""
    from etviz.api import compare as put_side_by_side

    if len(sources) < 2:
        raise UsageError(f"compare takes two or more folders, found {len(sources)}")
    if output is not None:
        check_target(output, "the comparison")
    artifacts = [given.find(source, inputs) if source.is_dir() else _beside(source, inputs) for source in sources]
    comparison = put_side_by_side(*(files.load() for files in artifacts), labels=_labels(sources))
    worst = comparison.worst(top, by)
    if output is not None:
        comparison.to_html(output, by)
        err.print(f"{plain_text(output)}: {len(comparison.table)} operators")
    if as_json:
        verdicts = {label: inspection.analysis.digest.verdict for label, inspection in comparison.inspections.items()}
        print_json({"verdicts": verdicts, "worst": records(worst)})
        return
    for line in comparison.summary().splitlines():
        out.print(plain_text(line))
    out.print(_table(worst, comparison.labels))


def _table(worst: pd.DataFrame, labels: Sequence[str]) -> Table:
    by = worst.attrs["by"]
    known = [label for label in labels if f"{by}.{label}" in worst]
    table = Table(box=None, pad_edge=False, header_style="bold", expand=True)
    table.add_column(worst.attrs["change"], justify="right", no_wrap=True)
    table.add_column("operator", no_wrap=True, ratio=1)
    for label in known:
        table.add_column(ShortName(label), justify="right", no_wrap=True, min_width=6)
    placed = out.width >= _PLACED
    if placed:
        table.add_column("source", no_wrap=True)
    for _, row in worst.iterrows():
        values = [number(row[f"{by}.{label}"]) for label in known]
        place = [ShortName(row["source"])] if placed else []
        table.add_row(number(row["change"]), ShortName(row["operator"]), *values, *place)
    return table


def _beside(etdump: Path, inputs: Sequence[str] | None) -> given.Artifacts:
    artifacts = given.find(etdump.parent) if etdump.parent.is_dir() and etdump.is_file() else given.Artifacts(etdump)
    return replace(artifacts, etdump=etdump, inputs=tuple(inputs or ()))


def _labels(sources: list[Path]) -> list[str]:
    parts = [path.resolve().parts for path in sources]
    for length in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-length:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    return [f"{'/'.join(part[-2:])} {index + 1}" for index, part in enumerate(parts)]
