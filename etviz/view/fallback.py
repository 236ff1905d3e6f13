"""What viewers without widgets show: the verdict and a table of the worst rows. No script, inline styles only."""

from __future__ import annotations

import math
from html import escape
from typing import Any, Final

from etviz.inspection import Inspection

_ROWS: Final = 10
_CELL: Final = "padding:2px 10px;text-align:left;border-bottom:1px solid rgba(128,128,128,.35);white-space:nowrap"
_MARKS: Final = {"ok": "✓", "warn": "!", "bad": "✗", "unknown": "?"}
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
    """Verdict, facts and the worst rows as HTML; every text is escaped."""
    digest = inspection.digest
    facts = "".join(f"<li>{escape(f.label)}: {escape(f.value)}</li>" for f in digest.facts)
    notes = "".join(f"<li>{escape(note)}</li>" for note in digest.notes)
    head = f"<p><b>{_MARKS[digest.level]} {escape(inspection.title)}</b> — {escape(digest.verdict)}</p>"
    return f"<div>{head}<ul>{facts}{notes}</ul>{_table(inspection, rows)}</div>"


def _table(inspection: Inspection, rows: int) -> str:
    worst = inspection.worst(rows)
    if worst.empty:
        return ""
    names = [(name, label) for name, label in _COLUMNS if name in worst]
    head = "".join(f'<th style="{_CELL}">{escape(label)}</th>' for _, label in names)
    body = "".join(
        "<tr>" + "".join(f'<td style="{_CELL}">{escape(_shown(row[name]))}</td>' for name, _ in names) + "</tr>"
        for _, row in worst.iterrows()
    )
    return f'<table style="border-collapse:collapse;font-size:90%"><tr>{head}</tr>{body}</table>'


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.3g}"
    text = str(value)
    return text if len(text) <= 60 else text[:57] + "…"
