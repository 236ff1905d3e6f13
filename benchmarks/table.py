"""The table of ratios, for people and as JSON."""

from __future__ import annotations

import math
import os
import platform
import statistics
import sys
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console
from rich.table import Table

from benchmarks.measure import TOOLS, Measured, Samples

if TYPE_CHECKING:
    from collections.abc import Sequence

_WIDTH: Final = 150
_KEPT: Final = {
    "kept_": "files → gap table of a program that was loaded before, with the same inputs",
    "kept_whole_": "… and introduced gaps, of a program that was loaded before",
}
_WAYS: Final = {"record": "with the record", "derived": "from .pte and ETRecord", "etrecord": "from the ETRecord alone"}


@dataclass(frozen=True, slots=True)
class Row:
    """One line: what was measured on what, both tools as text, and upstream over etviz.

    `forwards` is etviz's wall time and processor time over those of the program's eager forward.
    """

    program: str
    what: str
    upstream: str
    etviz: str
    ratio: float | None = None
    forwards: str = ""


def rows(measured: Sequence[Measured]) -> list[Row]:
    """All lines of the table, those of a program together."""
    found = [row for item in measured for row in _rows_of(item, _upstream(item, measured), _eager(item, measured))]
    order = list(dict.fromkeys(row.program for row in found))
    return sorted(found, key=lambda row: order.index(row.program)) + _growth(measured)


def _upstream(item: Measured, measured: Sequence[Measured]) -> Samples:
    """Upstream's samples of the same program in the same state; it knows one way to load."""
    same = (
        m for m in measured if m.task == "gaps" and (m.program, m.cold, m.busy) == (item.program, item.cold, item.busy)
    )
    return (
        item.samples["upstream"] if "upstream" in item.tools else next((m.samples["upstream"] for m in same), Samples())
    )


def _eager(item: Measured, measured: Sequence[Measured]) -> Samples:
    same = (m for m in measured if m.task == "eager" and m.program is item.program)
    return next((m.samples["eager"] for m in same), Samples())


def _forwards(etviz: Samples, eager: Samples, part: str = "") -> str:
    pairs = [(etviz.median(part + name), eager.median(name)) for name in ("seconds", "processor")]
    return " / ".join(f"{took / unit:.1f}" for took, unit in pairs if took is not None and unit)


def _rows_of(item: Measured, upstream: Samples, eager: Samples) -> list[Row]:
    etviz, name = item.samples["etviz"], item.program.title if item.program else ""
    if item.task == "pairing":
        return [Row(name, f"pairing, {_WAYS[item.way]}", "–", _number(etviz.median("seconds"), "s"))]
    if item.task == "report":
        size, rows = _number(etviz.median("report_mb"), "MB"), etviz.first("rows") or 0
        seconds = _number(etviz.median("seconds"), "s")
        return [Row(name, f"report with all histograms, {rows:,} rows", "–", f"{seconds}, {size}")]
    if item.task == "eager":
        return [Row(name, "one eager forward", "–", _number(eager.median("seconds"), "s"), forwards="1 / 1")]
    if item.task == "attribution":
        seconds = _number(etviz.median("seconds"), "s")
        return [Row(name, "attribution", "–", seconds, forwards=_forwards(etviz, eager))]
    if item.task == "gaps_introduced":
        what, whole = f"… and introduced gaps, {_WAYS[item.way]}{_state(item)}", etviz.median("whole_seconds")
        return [Row(name, what, "–", _number(whole, "s"), forwards=_forwards(etviz, eager, "whole_"))]
    if item.cold or item.busy or item.way != "record":
        state = _state(item)
        first = _seconds(name, f"files → gap table, {_WAYS[item.way]}{state}", upstream, etviz)
        found = [replace(first, forwards=_forwards(etviz, eager))]
        if item.cold:
            found.append(_row(name, f"peak memory, {_WAYS[item.way]}{state}", upstream, etviz, "peak_mb", "MB"))
        else:
            whole = _number(etviz.median("whole_seconds"), "s")
            found.append(Row(name, "… and introduced gaps", "–", whole, forwards=_forwards(etviz, eager, "whole_")))
        return found
    if item.program is None:
        return [_of_no_program(item, upstream, etviz)]
    if item.task == "metadata":
        torch = "with" if etviz.first("torch") else "without"
        return [_seconds(name, f"metadata, imports counted (etviz: {torch} torch)", upstream, etviz)]
    first = _seconds(name, "files → gap table (upstream: one metric; etviz: all)", upstream, etviz)
    table = [
        replace(first, forwards=_forwards(etviz, eager)),
        _row(name, "peak memory above the import", upstream, etviz, "peak_mb", "MB"),
    ]
    whole = etviz.median("whole_seconds")
    if whole is not None:
        forwards = _forwards(etviz, eager, "whole_")
        what = "… and introduced gaps, which upstream does not have"
        table.insert(1, Row(name, what, "–", _number(whole, "s"), forwards=forwards))
        table[2:2] = [
            Row(name, what, "–", _number(etviz.median(f"{part}seconds"), "s"), forwards=_forwards(etviz, eager, part))
            for part, what in _KEPT.items()
        ]
    if upstream.first("again") is not None:
        table.append(_seconds(name, "one more metric", upstream, etviz, "again"))
    counts = etviz.first("compared") or [0, 0]
    shown = f"{upstream.first('rows')} rows" if upstream.first("rows") is not None else "–"
    shown = "none: it raises" if upstream.first("error") else shown
    table.append(Row(name, "compared", shown, f"{etviz.first('rows')} rows, {counts[0]} of {counts[1]} instr."))
    return table


def _state(item: Measured) -> str:
    states = {
        ", cold": item.cold,
        ", loaded before": item.kept,
        ", files of another machine": item.foreign,
        ", a busy process on each core": item.busy,
    }
    return "".join(state for state, holds in states.items() if holds)


def _of_no_program(item: Measured, upstream: Samples, etviz: Samples) -> Row:
    if item.task == "import":
        return _seconds("", "import", upstream, etviz)
    text = f"{_number(etviz.median('seconds'), 's')}, first line after {_number(etviz.median('first'), 's')}"
    return Row("", f"the command {item.task.removesuffix('_command')}, a small program", "–", text)


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
    """Exponents of power laws through time and memory over the instructions of the stacks: 1 is linear growth."""
    found = []
    for task, way in dict.fromkeys((m.task, m.way) for m in measured if m.task in _GROWING):
        stacks = [m for m in measured if (m.task, m.way) == (task, way) and m.program is not None and m.program.layers]
        layers = {m.program.layers for m in stacks if m.program}
        if len(layers) < 2:  # one program in several states has no growth
            continue
        title, of = f"{min(layers)} to {max(layers)} layers", f"{_GROWING[task]}, {_WAYS[way]}"
        for what, quantity in (("time", "seconds"), ("peak memory", "peak_mb")):
            points = (_points(stacks, tool, quantity) for tool in TOOLS)
            upstream, own = (f"{_law(known)[0]:.2f}" if len(known) > 1 else "–" for known in points)
            found.append(Row(title, f"growth of {what} with instructions, as an exponent: {of}", upstream, own))
        exponent, factor = _law(_points(stacks, "etviz", "seconds"))
        at = _number(factor * _MANY**exponent, "s")
        found.append(Row(title, f"{_MANY:,} instructions, by that law: {of}", "–", at))
    return found


_GROWING: Final = {"gaps": "files → gap table", "pairing": "pairing"}
_MANY: Final = 10_000


def _points(stacks: Sequence[Measured], tool: str, quantity: str) -> list[tuple[float, float]]:
    """Instructions and a quantity of each stack, where both are known."""
    sizes = [(m.samples["etviz"].first("compared") or [0, 0])[1] for m in stacks]
    values = [m.samples[tool].median(quantity) for m in stacks]
    return [(size, value) for size, value in zip(sizes, values, strict=True) if size and value]


def _law(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Exponent and factor of the power law that fits best."""
    fit = statistics.linear_regression(*zip(*([math.log(v) for v in point] for point in points), strict=True))
    return fit.slope, math.exp(fit.intercept)


def show(table: Sequence[Row], repeat: int) -> None:
    """Print the table."""
    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    out = Table(title=f"upstream Inspector and etviz on the same files, medians of {repeat}", title_justify="left")
    for name in ("program", "what"):
        out.add_column(name)
    for name in ("upstream", "etviz", "ratio", "forwards"):
        out.add_column(name, justify="right")
    last = None
    for row in table:
        if last not in (None, row.program):
            out.add_section()
        name = "" if row.program == last else row.program
        out.add_row(
            name, row.what, row.upstream, row.etviz, "" if row.ratio is None else _ratio(row.ratio), row.forwards
        )
        last = row.program
    console.print(out)
    console.print("forwards: etviz's wall time / processor time over those of the program's eager forward")
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
        "processor": _processor(),
    }


def _processor() -> str:
    about = Path("/proc/cpuinfo")
    lines = about.read_text().splitlines() if about.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


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
