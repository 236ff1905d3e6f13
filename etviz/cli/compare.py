"""`etviz compare`: two or more sets of artifacts side by side."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from etviz.cli import artifacts as given
from etviz.cli.console import err, out, plain_text, print_json
from etviz.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence


def compare(
    sources: Annotated[
        list[Path], typer.Argument(metavar="A B ...", help="Folders with artifacts (or ETDumps in such folders).")
    ],
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write an HTML page.")] = None,
    by: Annotated[str, typer.Option("--by", help="The metric to compare.")] = "introduced_severity",
    top: Annotated[int, typer.Option("--top", min=1, help="Number of operators to print.")] = 10,
    inputs: given.InputsOption = None,
    as_json: given.JsonOption = False,
) -> None:
    """Two or more programs side by side, joined by operator: what became worse from the first to the others."""
    from etviz.api import compare as put_side_by_side
    from etviz.artifacts.files import check_target
    from etviz.cli.gaps import records

    if len(sources) < 2:
        raise UsageError(f"compare takes two or more folders, found {len(sources)}")
    if output is not None:
        check_target(output, "the comparison")
    found = [given.find(source, inputs) if source.is_dir() else _beside(source, inputs) for source in sources]
    comparison = put_side_by_side(*(item.load() for item in found), labels=_labels(sources))
    worst = comparison.worst(top, by)
    if output is not None:
        comparison.to_html(output, by)
        err.print(f"{plain_text(output)}: {len(comparison.table)} operators", highlight=False)
    if as_json:
        verdicts = {label: item.digest.verdict for label, item in comparison.inspections.items()}
        print_json({"verdicts": verdicts, "worst": records(worst)})
        return
    for line in comparison.summary().splitlines():
        out.print(plain_text(line), highlight=False)
    for _, row in worst.iterrows():
        values = " → ".join(
            f"{row[f'{by}.{label}']:.3g}" for label in comparison.labels if f"{by}.{label}" in worst.columns
        )
        where = plain_text(row["module"] or row["source"])
        out.print(
            f"  {row['change']:>9.3g}  {plain_text(row['operator'])} [dim]{where}[/dim]  {values}", highlight=False
        )


def _beside(etdump: Path, inputs: Sequence[str] | None) -> given.Artifacts:
    """An ETDump with whatever else stands in its folder."""
    found = given.find(etdump.parent) if etdump.parent.is_dir() and etdump.is_file() else given.Artifacts(etdump)
    return replace(found, etdump=etdump, inputs=tuple(inputs or ()))


def _labels(sources: list[Path]) -> list[str]:
    """The shortest ends of the paths that tell them apart."""
    parts = [path.resolve().parts for path in sources]
    for length in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-length:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    return [f"{'/'.join(part[-2:])} {index + 1}" for index, part in enumerate(parts)]
