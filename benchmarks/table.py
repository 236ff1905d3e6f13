"""The table of ratios, for people and as JSON."""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console
from rich.table import Table

from benchmarks.measure import TOOLS, Measured, Samples

if TYPE_CHECKING:
    from collections.abc import Sequence

_WIDTH: Final = 150


@dataclass(frozen=True, slots=True)
class Row:
    """One line: what was measured on what, both tools as text, and upstream over etviz."""

    program: str
    what: str
    upstream: str
    etviz: str
    ratio: float | None = None


def rows(measured: Sequence[Measured]) -> list[Row]:
    """All lines of the table."""
    found = [row for item in measured for row in _rows_of(item)]
    return found + _growth(measured)


def _rows_of(item: Measured) -> list[Row]:
    upstream, etviz = item.samples["upstream"], item.samples["etviz"]
    if item.task == "import":
        return [_seconds("", "import", upstream, etviz)]
    name = item.program.title if item.program else ""
    if item.task == "metadata":
        torch = "with" if etviz.first("torch") else "without"
        return [_seconds(name, f"metadata, imports counted (etviz: {torch} torch)", upstream, etviz)]
    table = [
        _seconds(name, "files → gap table (upstream: one metric; etviz: all)", upstream, etviz),
        _row(name, "peak memory above the import", upstream, etviz, "peak_mb", "MB"),
    ]
    whole = etviz.median("whole_seconds")
    if whole is not None:
        table.insert(1, Row(name, "… and introduced gaps, which upstream does not have", "–", _number(whole, "s")))
    if upstream.first("again") is not None:
        table.append(_seconds(name, "one more metric", upstream, etviz, "again"))
    counts = etviz.first("compared") or [0, 0]
    shown = "none: it raises" if upstream.first("error") else f"{upstream.first('rows')} rows"
    table.append(Row(name, "compared", shown, f"{etviz.first('rows')} rows, {counts[0]} of {counts[1]} instr."))
    return table


def _seconds(program: str, what: str, upstream: Samples, etviz: Samples, name: str = "seconds") -> Row:
    return _row(program, what, upstream, etviz, name, "s")


def _row(program: str, what: str, upstream: Samples, etviz: Samples, name: str, unit: str) -> Row:
    theirs, ours = upstream.median(name), etviz.median(name)
    ratio = theirs / ours if theirs is not None and ours else None
    text = _number(theirs, unit)
    if upstream.first("error") and unit == "s":
        text = f"{upstream.first('error')} after {text}"
    return Row(program, what, text, _number(ours, unit), ratio)


def _number(value: float | None, unit: str) -> str:
    if value is None:
        return "–"
    if unit == "s" and value < 0.1:
        return f"{1000 * value:.{0 if value >= 0.01 else 1}f} ms"
    return f"{value:.2f} {unit}" if unit == "s" else f"{value:,.0f} {unit}"


def _growth(measured: Sequence[Measured]) -> list[Row]:
    """Time for an instruction in the deepest stack over that in the shallowest: 1 is linear growth."""
    stacks = [m for m in measured if m.task == "gaps" and m.program is not None and m.program.layers]
    if len(stacks) < 2:
        return []
    stacks.sort(key=lambda m: m.program.layers if m.program else 0)
    first, last = stacks[0], stacks[-1]
    layers = [m.program.layers if m.program else 0 for m in (first, last)]
    counts = [(m.samples["etviz"].first("compared") or [0, 0])[1] for m in (first, last)]
    cells = {}
    for tool in TOOLS:
        few, many = (m.samples[tool].median("seconds") for m in (first, last))
        if few is None or many is None or not all(counts):
            return []
        cells[tool] = f"{(many / counts[1]) / (few / counts[0]):.2f}"
    return [
        Row(
            f"{layers[0]} → {layers[1]} layers",
            "growth of time per instruction (1: linear)",
            cells["upstream"],
            cells["etviz"],
        )
    ]


def show(table: Sequence[Row], repeat: int) -> None:
    """Print the table."""
    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    out = Table(title=f"upstream Inspector and etviz on the same files, medians of {repeat}", title_justify="left")
    for name in ("program", "what"):
        out.add_column(name)
    for name in ("upstream", "etviz", "ratio"):
        out.add_column(name, justify="right")
    last = None
    for row in table:
        if last not in (None, row.program):
            out.add_section()
        name = "" if row.program == last else row.program
        out.add_row(name, row.what, row.upstream, row.etviz, "" if row.ratio is None else _ratio(row.ratio))
        last = row.program
    console.print(out)
    console.print(", ".join(f"{key} {value}" for key, value in machine().items()), highlight=False)


def _ratio(value: float) -> str:
    return f"{value:,.0f} ×" if value >= 100 else f"{value:.1f} ×"


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    packages = {name: version(name) for name in ("executorch", "torch", "numpy", "pandas")}
    cores = os.cpu_count()
    threads = os.environ.get("OMP_NUM_THREADS", cores)
    return {
        "python": platform.python_version(),
        **packages,
        "cores": cores,
        "threads": threads,
        "system": platform.system(),
    }


def as_json(measured: Sequence[Measured], table: Sequence[Row], repeat: int) -> dict[str, Any]:
    """Everything that was measured, every sample included."""
    return {
        "machine": machine(),
        "repeat": repeat,
        "rows": [{name: getattr(row, name) for name in Row.__slots__} for row in table],
        "samples": [
            {
                "task": item.task,
                "program": item.program.name if item.program else None,
                **{tool: item.samples[tool].results for tool in TOOLS},
            }
            for item in measured
        ],
    }
