"""Verdicts and tables as plain HTML, for viewers without widgets or scripts."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pandas.api.types import is_numeric_dtype

from etviz.analysis.summary import Summary
from etviz.comparison.gap_tables import ranking
from etviz.tensors.metrics import figure
from etviz.text import markup

if TYPE_CHECKING:
    import pandas as pd

    from etviz.analysis.analysis import Analysis

MARKS: Final = {"ok": "✓", "warn": "!", "bad": "✗", "unknown": "?"}
STATIC_TABLE: Final = "etviz-static"
"""Class by which js/labextension/fallback.ts finds the table to show for a view without its kernel."""
_ROWS: Final = 10
_PRINTED_TOKENS: Final = 25
_CELL: Final = (
    ' style="padding:2px 10px;text-align:left;border-bottom:1px solid rgba(128,128,128,.35);white-space:nowrap"'
)
_TABLE: Final = ' style="border-collapse:collapse;font-size:90%"'
_COLUMNS: Final = (
    *(("instruction", "#"), ("name", "operator"), ("backend", "backend")),
    *(("introduced_severity", "introduced severity"), ("severity", "severity"), ("rmse", "rmse")),
    *(("sqnr_db", "SQNR (dB)"), ("source", "source")),
)


class _HtmlColumn(NamedTuple):
    heading: str
    attributes: str
    cells: Iterable[str]


def _table(columns: Sequence[_HtmlColumn], attributes: str = "") -> str:
    head = "".join(f"<th{column.attributes}>{markup(column.heading)}</th>" for column in columns)
    rows = zip(*(column.cells for column in columns), strict=True)
    marks = [column.attributes for column in columns]
    body = "".join(
        "<tr>" + "".join(f"<td{mark}>{cell}</td>" for mark, cell in zip(marks, row, strict=True)) + "</tr>"
        for row in rows
    )
    return f"<table{attributes}><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def html_table(analysis: Analysis, rows: int = _ROWS) -> str:
    digest = analysis.digest
    head = f"<p><b>{MARKS[digest.level]} {markup(analysis.title)}</b> — {markup(digest.verdict)}</p>"
    head += html_finding(analysis)
    return f'<div class="{STATIC_TABLE}">{head}<ul>{html_facts(digest)}</ul>{worst_table(analysis, rows)}</div>'


def html_finding(analysis: Analysis) -> str:
    finding = analysis.finder.finding()
    return "" if finding is None else f"<p>{markup(finding.text)}</p>"


def html_facts(digest: Summary) -> str:
    texts = [*(f"{fact.label}: {fact.value}" for fact in digest.facts), *digest.notes]
    return "".join(f"<li>{markup(text)}</li>" for text in texts)


def worst_table(analysis: Analysis, rows: int, *, styled: bool = True) -> str:
    """Empty where nothing was compared; unstyled for pages with a style sheet and policy."""
    worst = analysis.worst(rows)
    if worst.empty:
        return ""
    cell, write = (_CELL, markup) if styled else ("", _breakable)
    columns = [
        _HtmlColumn(
            label,
            cell + (' class="etv-figure"' if is_numeric_dtype(worst[name]) else ""),
            (write(_shown(value)) for value in worst[name]),
        )
        for name, label in _COLUMNS
        if name in worst
    ]
    return _table(columns, _TABLE if styled else "")


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return "" if math.isnan(value) else figure(value)
    text = str(value)
    return text if len(text) <= 60 else text[:57] + "…"


def _breakable(text: str) -> str:
    return re.sub(r"([._:/]+)(?=[^\W\d])", r"\1<wbr>", markup(text))


def comparison_summary(verdicts: Mapping[str, Summary], table: pd.DataFrame, worst: pd.DataFrame, by: str) -> str:
    body = [f"<h1>{markup('etviz: ' + ', '.join(verdicts))}</h1>", _verdicts(verdicts)]
    if len(worst):
        body += ["<h2>What became worse</h2>", _side_by_side(list(verdicts), worst, by)]
    body += [f"<h2>Every operator: {markup(by)}</h2>", _side_by_side(list(verdicts), table, by)]
    return f'<main class="etv-summary">{"".join(body)}</main>'


def comparison_fragment(verdicts: Mapping[str, Summary], worst: pd.DataFrame, by: str) -> str:
    return f'<div class="{STATIC_TABLE}">{_verdicts(verdicts)}{_side_by_side(list(verdicts), worst, by)}</div>'


def tokens_summary(title: str, level: str, text: str, steps: pd.DataFrame, more: str = "") -> str:
    body = f"<h1>{markup(title)}</h1>{_tokens(level, text, steps)}{more}"
    return f'<main class="etv-summary" data-level="{level}">{body}</main>'


def tokens_fragment(title: str, level: str, text: str, steps: pd.DataFrame, more: str = "") -> str:
    return f'<div class="{STATIC_TABLE}"><p><b>{markup(title)}</b></p>{_tokens(level, text, steps)}{more}</div>'


def _tokens(level: str, text: str, steps: pd.DataFrame) -> str:
    first, *more = text.splitlines()
    told = f'<p class="etv-summary-verdict">{MARKS[level]} {markup(first)}</p>'
    told += f"<ul>{''.join(f'<li>{markup(line)}</li>' for line in more)}</ul>"
    worst = steps.assign(flips=~steps["agrees"]).sort_values(["flips", "kl"], ascending=False).head(_PRINTED_TOKENS)
    explained = {True: "yes", False: "no"}
    texts = [(name, name) for name in ("prompt", "step", "position")]
    texts += [("token", "text"), ("reference", "text_reference"), ("runtime", "text_runtime")]
    numbers = [("KL (nats)", "kl"), ("margin", "margin"), ("shift", "margin_shift"), ("noise", "margin_noise")]
    columns = [
        *(_HtmlColumn(heading, "", (markup(str(value)) for value in worst[name])) for heading, name in texts),
        *(_HtmlColumn(heading, "", map(_number, worst[name])) for heading, name in numbers),
        _HtmlColumn("noise explains it", "", (explained.get(value, "not known") for value in worst["explained"])),
    ]
    return told + _table(columns)


def _verdicts(verdicts: Mapping[str, Summary]) -> str:
    items = [
        f"<li>{MARKS[digest.level]} <b>{markup(label)}</b>: {markup(digest.verdict)}</li>"
        for label, digest in verdicts.items()
    ]
    return f"<ul>{''.join(items)}</ul>"


def _side_by_side(labels: Sequence[str], rows: pd.DataFrame, by: str) -> str:
    by = by if all(f"{by}.{label}" in rows for label in labels) else "severity"
    by = rows.attrs.get("by") or ranking(rows, by, labels)
    where = rows["module"].where(rows["module"] != "", rows["source"])
    columns = [
        _HtmlColumn("operator", ' class="o"', (markup(str(name)) for name in rows["operator"])),
        _HtmlColumn("module", ' class="o dim"', (markup(str(name)) for name in where)),
        *(_HtmlColumn(label, ' class="n"', map(_number, rows[f"{by}.{label}"])) for label in labels),
    ]
    if "change" in rows:
        columns.append(_HtmlColumn(rows.attrs["change"], ' class="n"', map(_number, rows["change"])))
    else:
        columns.append(_HtmlColumn("joined by", ' class="dim"', (markup(str(how)) for how in rows["joined"])))
    return _table(columns)


def _number(value: Any) -> str:
    number = float(value)
    return "–" if math.isnan(number) else figure(number)
