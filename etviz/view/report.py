"""The HTML report: one file that opens anywhere, without a kernel and without the network.

It holds the same view as a notebook (table, tree, tensor pane) over data that is written into the page. What the view
would ask a kernel for is answered beforehand; `TENSORS` says how much of it. Where no script runs, and on paper, the
page shows the verdict, the facts and the worst rows.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import datetime, timezone
from html import escape
from pathlib import Path
from typing import Final

from tqdm.auto import tqdm

from etviz import __version__
from etviz.artifacts.files import PathLike
from etviz.artifacts.saving import check_target, whole_file
from etviz.errors import EtvizError, UsageError
from etviz.inspection import Inspection
from etviz.settings import TENSORS
from etviz.view.container import Answer, pack
from etviz.view.fallback import MARKS, html_facts, worst_table
from etviz.view.page import html_page
from etviz.view.payload import build_payload, build_tensor
from etviz.view.tensor_payload import BUILDERS

logger = logging.getLogger(__name__)

DETAILED: Final = 50
"""Rows whose worst elements a ``worst`` report lists, and as many inside of each zoomed delegate."""

MAPPED: Final = 20
"""Rows whose error map, error by channel and scatter a ``worst`` report holds."""

_MAP_SIZE: Final = 128
_IMAGE: Final = 4
"""Dimensions of a batch of images: their channels are the second axis, those of other tensors the last."""

_PRINTED: Final = 25


def write_report(inspection: Inspection, path: PathLike, tensors: str, title: str | None) -> Path:
    """Write the report of an Inspection; see `Inspection.to_html`."""
    if tensors not in TENSORS:
        raise UsageError(f"tensors must be one of {', '.join(map(repr, TENSORS))}, found {tensors!r}")
    target = check_target(path, "the report")
    page = report_page(inspection, tensors, title or inspection.title)
    with whole_file(target, "the report") as partial:
        partial.write_bytes(page)
    return target


def report_page(inspection: Inspection, tensors: str, title: str) -> bytes:
    """The page itself, in UTF-8; `tensors` is one of `TENSORS`."""
    payload, buffers = build_payload(inspection)
    payload["title"] = title
    data = pack((payload, buffers), *_tensors(inspection, tensors, payload["compared"]), _maps(inspection, tensors))
    return html_page(f"{title} · etviz", _summary(inspection, title), data)


def _tensors(inspection: Inspection, tensors: str, rows: int) -> tuple[dict[int, Answer], dict[int, str]]:
    """The answers about the first `rows` rows, and why a row has none."""
    answers: dict[int, Answer] = {}
    missing: dict[int, str] = {}
    if tensors == "none":
        return answers, missing
    detailed = set(_worst_rows(inspection, DETAILED)) if tensors == "worst" else set[int]()
    for row in tqdm(range(rows), desc="histograms", unit="row", leave=False, delay=1):
        try:
            answers[row] = build_tensor(inspection, row, worst=row in detailed)
        except EtvizError as error:
            missing[row] = str(error)
    return answers, missing


def _worst_rows(inspection: Inspection, number: int) -> Iterator[int]:
    """The worst gap rows, and as many inside of each delegate that was zoomed into."""
    first = 0
    for part in (inspection, *inspection.zooms.values()):
        yield from (first + int(row) for row in part.worst(number).index)
        first += len(part.stacks)


def _maps(inspection: Inspection, tensors: str) -> dict[tuple[str, int], Answer]:
    """Where the error of the worst rows is, asked as the view asks at first; rows without a reference have none."""
    answers: dict[tuple[str, int], Answer] = {}
    rows = inspection.worst(MAPPED).index if tensors == "worst" else ()
    for row in tqdm(rows, desc="maps", unit="row", leave=False, delay=1):
        try:
            ndim = inspection.values(int(row))[1].ndim
            axis = 1 if ndim >= _IMAGE else max(0, ndim - 1)
            for method, builder in BUILDERS.items():
                answers[method, int(row)] = builder(inspection, {"row": int(row), "axis": axis, "size": _MAP_SIZE})
        except EtvizError as error:
            logger.debug("row %d has no maps: %s", row, error)
    return answers


def _summary(inspection: Inspection, title: str) -> str:
    """What is seen without a script and on paper."""
    digest = inspection.digest
    rows = len(inspection.gaps)
    table = worst_table(inspection, _PRINTED, styled=False)
    heading = f"The {_PRINTED} worst of {rows} rows" if rows > _PRINTED else "All rows, worst first"
    worst = f'<h2>{heading}</h2>\n<div class="etv-summary-table">{table}</div>' if table else ""
    made = f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC"
    return f"""\
<main class="etv-summary" data-level="{escape(digest.level)}">
<h1>{escape(title)}</h1>
<p class="etv-summary-verdict">{MARKS[digest.level]} {escape(digest.verdict)}</p>
<ul>{html_facts(inspection)}</ul>
<noscript><p>With JavaScript on, this page shows every row, the delegated graph and the histograms.</p></noscript>
{worst}
<p class="etv-summary-made">Written by etviz {escape(__version__)} on {made}.</p>
</main>"""


__all__ = ["DETAILED", "MAPPED", "TENSORS", "write_report"]
