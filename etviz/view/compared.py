"""Inspections side by side as HTML: verdicts, and a table with the chosen metric of every operator."""

from __future__ import annotations

import base64
import hashlib
import math
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from etviz.artifacts.files import PathLike
from etviz.artifacts.saving import whole_file
from etviz.numerics.metrics import METRICS
from etviz.view.fallback import MARKS

if TYPE_CHECKING:
    from etviz.comparing import Comparison

_STYLE: Final = """
:root { color-scheme: light dark; --line: #8884; --bar: #2a78d633; --worse: #d6452a; --better: #2a8a4a; }
body { font: 14px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 80rem; padding: 0 1rem; }
h1 { font-size: 1.3rem; } h2 { font-size: 1.05rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; font-size: 13px; }
th, td { text-align: left; padding: 3px 10px; border-bottom: 1px solid var(--line); vertical-align: top; }
th { position: sticky; top: 0; background: Canvas; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.o { word-break: break-word; } .dim { opacity: .65; } .worse { color: var(--worse); font-weight: 600; }
.better { color: var(--better); }
@media print { th { position: static; } }
"""
_SHOWN: Final = 12


def write_compared(comparison: Comparison, path: PathLike, by: str) -> Path:
    """Write the page; see `Comparison.to_html`."""
    style = f"sha256-{base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode('ascii')}"
    title = "etviz: " + ", ".join(comparison.labels)
    body = [f"<h1>{escape(title)}</h1>", _verdicts(comparison)]
    worst = comparison.worst(_SHOWN, by)
    if len(worst):
        body += ["<h2>What became worse</h2>", _table(comparison, worst, by, change=True)]
    body += [f"<h2>Every operator: {escape(by)}</h2>", _table(comparison, comparison.table, by, change=False)]
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f"<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src '{style}'; "
        "base-uri 'none'; form-action 'none'\">"
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>{''.join(body)}</body></html>\n"
    )
    with whole_file(path, "the comparison") as partial:
        partial.write_bytes(page.encode("utf-8", "backslashreplace"))
    return Path(path)


def compared_fragment(comparison: Comparison) -> str:
    """What a notebook cell shows of a Comparison."""
    worst = comparison.worst(_SHOWN)
    return f"<div>{_verdicts(comparison)}{_table(comparison, worst, 'introduced_severity', change=True)}</div>"


def _verdicts(comparison: Comparison) -> str:
    items = [
        f"<li>{MARKS[inspection.digest.level]} <b>{escape(label)}</b>: {escape(inspection.digest.verdict)}</li>"
        for label, inspection in comparison.inspections.items()
    ]
    return f"<ul>{''.join(items)}</ul>"


def _table(comparison: Comparison, rows: Any, by: str, *, change: bool) -> str:
    labels = comparison.labels
    column = by if all(f"{by}.{label}" in rows for label in labels) else "severity"
    if column.startswith("introduced_") and rows[[f"{column}.{label}" for label in labels]].isna().all(axis=None):
        column = column.removeprefix("introduced_")
    decibel = METRICS[column.removeprefix("introduced_")].unit == "dB"
    head = ["<th>operator</th>", "<th>module</th>"]
    head += [f'<th class="n">{escape(label)}</th>' for label in labels]
    head += [f'<th class="n">{"loss in dB" if decibel else "times worse"}</th>'] if change else ["<th>joined by</th>"]
    lines = []
    for _, row in rows.iterrows():
        cells = [f'<td class="o">{escape(str(row["operator"]))}</td>']
        cells.append(f'<td class="o dim">{escape(str(row["module"] or row["source"]))}</td>')
        cells += [f'<td class="n">{_number(row[f"{column}.{label}"])}</td>' for label in labels]
        if change:
            worse = float(row["change"]) > (1.0 if decibel else 2.0)
            cells.append(f'<td class="n{" worse" if worse else ""}">{_number(row["change"])}</td>')
        else:
            cells.append(f'<td class="dim">{escape(str(row["joined"]))}</td>')
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return f"<table><thead><tr>{''.join(head)}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def _number(value: Any) -> str:
    number = float(value)
    return "–" if math.isnan(number) else f"{number:.3g}"
