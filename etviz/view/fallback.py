"""What viewers without widgets or scripts show: the verdict and a table of the worst rows. No script."""

from __future__ import annotations

import math
import re
from html import escape
from typing import Any, Final

from pandas.api.types import is_numeric_dtype

from etviz.inspection import Inspection

MARKS: Final = {"ok": "✓", "warn": "!", "bad": "✗", "unknown": "?"}
"""A sign for each level of a summary."""

_ROWS: Final = 10
_CELL: Final = (
    ' style="padding:2px 10px;text-align:left;border-bottom:1px solid rgba(128,128,128,.35);white-space:nowrap"'
)
_TABLE: Final = ' style="border-collapse:collapse;font-size:90%"'
_COLUMNS: Final = (
    ("instruction", "#"),
    ("op", "operator"),
    ("backend", "backend"),
    ("reference_ops", "reference operators"),
    ("introduced_severity", "introduced severity"),
    ("severity", "severity"),
    ("rmse", "rmse"),
    ("sqnr_db", "SQNR (dB)"),
    ("source", "source"),
)


def html_table(inspection: Inspection, rows: int = _ROWS) -> str:
    """Verdict, facts and the worst rows as HTML with inline styles; every text is escaped."""
    digest = inspection.digest
    head = f"<p><b>{MARKS[digest.level]} {escape(inspection.title)}</b> — {escape(digest.verdict)}</p>"
    return f"<div>{head}<ul>{html_facts(inspection)}</ul>{worst_table(inspection, rows)}</div>"


def html_facts(inspection: Inspection) -> str:
    """Facts and notes as list items."""
    digest = inspection.digest
    texts = [*(f"{fact.label}: {fact.value}" for fact in digest.facts), *digest.notes]
    return "".join(f"<li>{escape(text)}</li>" for text in texts)


def worst_table(inspection: Inspection, rows: int, *, styled: bool = True) -> str:
    """The worst rows as a table; empty where nothing was compared.

    Parameters
    ----------
    inspection
        Whose rows.
    rows
        How many.
    styled
        Whether to write styles into the elements; a page with its own style sheet, and a policy, wants none.
    """
    worst = inspection.worst(rows)
    if worst.empty:
        return ""
    table, cell, write = (_TABLE, _CELL, escape) if styled else ("", "", _breakable)
    names = [(name, label) for name, label in _COLUMNS if name in worst]
    marks = {name: cell + (' class="etv-figure"' if is_numeric_dtype(worst[name]) else "") for name, _ in names}
    head = "".join(f"<th{marks[name]}>{escape(label)}</th>" for name, label in names)
    body = "".join(
        "<tr>" + "".join(f"<td{marks[name]}>{write(_shown(row[name]))}</td>" for name, _ in names) + "</tr>"
        for _, row in worst.iterrows()
    )
    return f"<table{table}><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.3g}"
    text = str(value)
    return text if len(text) <= 60 else text[:57] + "…"


def _breakable(text: str) -> str:
    """Escaped; a line may break after the separators of a name, which holds no spaces."""
    return re.sub(r"([._:/]+)(?=[^\W\d])", r"\1<wbr>", escape(text))
