"""`etviz gaps`: the gap table in a terminal, as CSV or as JSON."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.table import Table

from etviz.cli import artifacts as given
from etviz.cli.console import COLOUR, ShortName, err, out, plain_text, print_json, with_options
from etviz.json_numbers import or_none
from etviz.tensors.metrics import figure
from etviz.text import spreadsheet_cell

if TYPE_CHECKING:
    import pandas as pd

    from etviz.inspection import Inspection

_SOURCE: Final = 20
ByOption = Annotated[str, typer.Option("--by", help="The column to rank by, worst first.")]
_SHOWN: Final = ("severity", "introduced_severity", "rmse", "sqnr_db")


class Format(str, Enum):
    table = "table"
    csv = "csv"
    json = "json"


def gaps(
    artifacts: given.Artifacts,
    by: ByOption = "introduced_severity",
    top: given.TopOption = 10,
    style: Annotated[Format, typer.Option("--format", help="table, csv or json.")] = Format.table,
    as_json: given.JsonOption = False,
) -> None:
    """The rows with the largest numeric gaps between reference and runtime."""
    inspection = artifacts.load()
    if style is Format.csv and not as_json:
        rows = inspection.worst(top or len(inspection.gaps), by)
        sys.stdout.write(rows.map(spreadsheet_cell).to_csv(index_label="row"))
    else:
        show(inspection, by, top, as_json or style is Format.json)


def show(
    inspection: Inspection, by: str, top: int, as_json: bool, more: Mapping[str, Any] = MappingProxyType({})
) -> None:
    rows = inspection.worst(top or len(inspection.gaps), by)
    if as_json:
        print_json({**headline(inspection), **more, "rows": records(rows)})
        return
    show_summary(inspection)
    if not rows.empty:
        out.print(worst_table(rows, by))
        if len(rows) < len(inspection.gaps):
            err.print(f"{len(rows)} of {len(inspection.gaps)} rows; --top 0 prints all")


def headline(inspection: Inspection) -> dict[str, Any]:
    digest = inspection.analysis.digest
    return {"title": inspection.analysis.title, "verdict": digest.verdict, "notes": list(digest.notes)}


def records(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """For JSON: unknown numbers are None, infinite ones text."""

    def value(cell: Any) -> Any:
        if isinstance(cell, float):
            return or_none(cell)
        return list(cell) if isinstance(cell, tuple) else cell

    texts = rows.reset_index(names="row").astype(object).to_dict("records")
    return [{str(name): value(cell) for name, cell in row.items()} for row in texts]


def show_summary(inspection: Inspection) -> None:
    digest = inspection.analysis.digest
    out.print(plain_text(with_options(digest.verdict)), style=f"bold {COLOUR.get(digest.level, '')}".strip())
    for fact in digest.facts:
        mark = f"[{COLOUR[fact.level]}]●[/]" if fact.level in COLOUR else "●"
        out.print(f"  {mark} {plain_text(fact.label)}: {plain_text(fact.value)}")
    for note in digest.notes:
        out.print(f"  [yellow]![/] {plain_text(with_options(note))}")


def worst_table(rows: pd.DataFrame, by: str = "introduced_severity") -> Table:
    columns = list(dict.fromkeys([by, *_SHOWN] if by in rows and by not in given_texts(rows) else _SHOWN))
    columns = columns[: max(1, min(len(columns), (out.width - 40) // 12))]
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("row", no_wrap=True, min_width=3)
    table.add_column("operator", no_wrap=True, ratio=3)
    for column in columns:
        label = column.replace("introduced_", "introduced ").replace("introduced severity", "introduced")
        table.add_column(label.replace("_db", " dB"), justify="right", no_wrap=True)
    if out.width >= 70:
        longest = max((len(str(source)) for source in rows["source"]), default=0)
        table.add_column("source", no_wrap=True, width=max(6, min(longest, _SOURCE)))
    table.expand = True
    for _, row in rows.iterrows():
        address, _, name = str(row["name"]).partition(" ")
        cells = [address, ShortName(name), *(number(float(row[column])) for column in columns)]
        table.add_row(*cells, *([ShortName(row["source"])] if out.width >= 70 else []))
    return table


def given_texts(rows: pd.DataFrame) -> set[str]:
    return set(rows.select_dtypes(exclude="number").columns)


def number(value: float) -> str:
    return "–" if math.isnan(value) else figure(value)
