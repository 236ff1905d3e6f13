"""The HTML report: one file that opens without a kernel and without the network.

It holds the notebook's view and precomputed answers of a kernel; `TENSORS` controls their number.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timezone
from html import escape
from pathlib import Path
from typing import Any, Final

from tqdm.auto import tqdm

from etviz._version import __version__
from etviz.analysis.analysis import Analysis
from etviz.artifacts.files import PathLike, check_target, write_file
from etviz.errors import EtvizError, UsageError, during
from etviz.settings import TENSORS, options
from etviz.text import markup
from etviz.view.pages.container import laid_out, packed
from etviz.view.pages.html import view_page
from etviz.view.pages.html_tables import MARKS, html_facts, html_finding, html_table, worst_table
from etviz.view.pages.profile_svg import profile_svg
from etviz.view.payload.beside import Beside
from etviz.view.payload.program_payload import build_payload
from etviz.view.payload.tensor import BUILDERS, build_tensor
from etviz.view.payload.timeline import EventNames, build_timeline
from etviz.view.payload.wire import Answer

logger = logging.getLogger(__name__)

DETAILED: Final = 50
"""Number of rows, and of rows inside each zoomed delegate, whose worst elements a ``worst`` report lists."""

HELD: Final = 2500
"""Maximum number of rows, and of rows inside each zoomed delegate, with histograms, which take 0.5 kB each."""

MAPPED: Final = 20
"""As many rows have an error map, error by channel and scatter in a ``worst`` report."""

_MAP_SIZE: Final = 128
_IMAGE: Final = 4
"""Dimensions of a batch of images, whose channels are the second axis; other tensors have them last."""

_TIMED: Final = 20_000
_SCANNED: Final = 50
"""Rows that a timeline looks through in the time that one event takes."""

_PRINTED: Final = 25


@during("writing the report")
def write_report(
    analysis: Analysis, path: PathLike, tensors: str, title: str | None, others: Sequence[Analysis] = ()
) -> Path:
    check_tensors(tensors)
    target = check_target(path, "the report")
    page = report_page(analysis, tensors, title or analysis.title, others=others)
    return write_file(target, "the report", page)


def check_tensors(tensors: str) -> None:
    if tensors not in TENSORS:
        raise UsageError(f"tensors must be one of {', '.join(map(repr, TENSORS))}, found {tensors!r}")


def report_page(
    analysis: Analysis,
    tensors: str,
    title: str,
    beside: Beside | None = None,
    summary: str | None = None,
    others: Sequence[Analysis] = (),
    names: Sequence[str] = (),
    adds: Sequence[Callable[[dict[str, Any], list[bytes]], Answer]] = (),
) -> bytes:
    """The page in UTF-8; `others` are further methods, or calls, `names` label all, `adds` extends each payload."""
    methods = list(names) or [one.findings.shown_method for one in (analysis, *others)]
    held: dict[tuple[str, int], Answer] = {}
    for at, other in enumerate(others, 1):
        payload, rows, missing, asked = _answers(other, tensors, other.title, None, methods)
        block = laid_out(adds[at](*payload) if adds else payload, rows, missing, asked)
        held["method", at] = {"method": methods[at]}, [block]
    payload, rows, missing, asked = _answers(analysis, tensors, title, beside, methods)
    block = laid_out(adds[0](*payload) if adds else payload, rows, missing, asked | held)
    return view_page(f"{title} · etviz", summary or _summary(analysis, title), packed(block))


def _answers(
    analysis: Analysis, tensors: str, title: str, beside: Beside | None, methods: Sequence[str]
) -> tuple[Answer, dict[int, Answer], dict[int, str], dict[tuple[str, int], Answer]]:
    payload, buffers = build_payload(analysis, beside)
    payload |= {"title": title, "methods": list(methods)}
    rows, missing = _tensors(analysis, tensors, payload["compared"], beside)
    return (payload, buffers), rows, missing, _maps(analysis, tensors) | _timelines(analysis)


def _tensors(
    analysis: Analysis, tensors: str, rows: int, beside: Beside | None
) -> tuple[dict[int, Answer], dict[int, str]]:
    answers: dict[int, Answer] = {}
    missing: dict[int, str] = {}
    if tensors == "none":
        return answers, missing
    detailed = set(_worst_rows(analysis, DETAILED)) if tensors == "worst" else set[int]()
    for row in tqdm(held_rows(analysis, rows), desc="histograms", unit="row", leave=False, delay=1):
        try:
            answers[row] = build_tensor(analysis, row, worst=row in detailed, beside=beside)
        except EtvizError as error:
            missing[row] = str(error)
    return answers, missing


def held_rows(analysis: Analysis, rows: int, most: int = HELD) -> Sequence[int]:
    """Of `rows` rows those whose histograms a report holds: all, or the worst, the finding's and those with notes."""
    if rows <= most:
        return range(rows)
    finding = analysis.finder.finding()
    others = [finding.row] if finding is not None else []
    return sorted({*_worst_rows(analysis, most), *others, *analysis.noted} & {*range(rows)})


def _worst_rows(analysis: Analysis, number: int) -> Iterator[int]:
    first = 0
    for part in (analysis, *analysis.inside.values()):
        yield from (first + int(row) for row in part.worst(number).index)
        first += len(part.tables)


def _maps(analysis: Analysis, tensors: str) -> dict[tuple[str, int], Answer]:
    answers: dict[tuple[str, int], Answer] = {}
    rows = list(_worst_rows(analysis, MAPPED)) if tensors == "worst" else []
    for row in tqdm(rows, desc="maps", unit="row", leave=False, delay=1):
        try:
            ndim = analysis.values.pair(row).runtime.ndim
            axis = 1 if ndim >= _IMAGE else max(0, ndim - 1)
            for method, builder in BUILDERS.items():
                answers[method, row] = builder(analysis, {"row": row, "axis": axis, "size": _MAP_SIZE})
        except EtvizError as error:
            logger.debug("row %d has no maps: %s", row, error)
    return answers


def _timelines(analysis: Analysis) -> dict[tuple[str, int], Answer]:
    profile, answers, room = analysis.profile, {}, _TIMED
    scanned = len(analysis.tables.coverage) // _SCANNED
    sizes, known = [scanned + len(events) for events in profile.executions], EventNames(analysis)
    for run in sorted(range(len(sizes)), key=lambda run: (run != profile.typical, run)):
        room -= sizes[run]
        if room < 0 and answers:
            break
        answers["timeline", run] = build_timeline(analysis, {"run": run}, known)
    return answers


def _summary(analysis: Analysis, title: str) -> str:
    digest = analysis.digest
    rows = len(analysis.tables)
    table = worst_table(analysis, _PRINTED, styled=False)
    heading = f"The {_PRINTED} worst of {rows} rows" if rows > _PRINTED else "All rows, worst first"
    worst = f'<h2>{heading}</h2>\n<div class="etv-summary-table">{table}</div>' if table else ""
    made = f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC"
    return f"""\
<main class="etv-summary" data-level="{escape(digest.level)}">
<h1>{markup(title)}</h1>
<p class="etv-summary-verdict">{MARKS[digest.level]} {markup(digest.verdict)}</p>
{html_finding(analysis)}
{profile_svg(analysis)}
<ul>{html_facts(digest)}</ul>
<noscript><p>With JavaScript on, this page shows every row, the delegated graph and the histograms.</p></noscript>
{worst}
{_noted(analysis)}
<p class="etv-summary-made">Written by etviz {escape(__version__)} on {made}.</p>
</main>"""


def _noted(analysis: Analysis) -> str:
    notes = analysis.noted
    told = "".join(f"<li>{markup(analysis.rows.find(row).name)}: {markup(text)}</li>" for row, text in notes.items())
    return f"<h2>Notes</h2>\n<ul>{told}</ul>" if told else ""


_MEGABYTE: Final = 1_000_000
_FRAME: Final = (
    '<iframe title="{title}" sandbox="allow-scripts" referrerpolicy="no-referrer" '
    'style="display:block;width:100%;height:{height}px;border:1px solid rgba(128,128,128,.35)" srcdoc="{page}">'
    "</iframe>\n<noscript>{table}</noscript>"
)


def embedded_html(analysis: Analysis, height: int) -> str:
    """The report as the output of a cell, which survives in the HTML of nbconvert without a kernel.

    An iframe within ``etviz.options.embed_megabytes``, else the worst rows. There is no widget beside it: nbconvert
    stores the state of every widget and then shows an empty one.
    """

    def page_with(tensors: str) -> bytes:
        return report_page(analysis, tensors, analysis.title)

    return framed(analysis.title, height, page_with, html_table(analysis))


def framed(title: str, height: int, page_with: Callable[[str], bytes], table: str) -> str:
    limit = options.embed_megabytes * _MEGABYTE
    for tensors in reversed(TENSORS[: TENSORS.index(options.embed_tensors) + 1]):
        page = escape(page_with(tensors).decode("utf-8"))
        frame = _FRAME.format(title=markup(title), height=height, page=page, table=table)
        if len(frame.encode("utf-8")) <= limit:
            return frame
    return (
        f"{table}<p>The report is larger than etviz.options.embed_megabytes = {options.embed_megabytes:g} allows; "
        "write it with to_html().</p>"
    )
