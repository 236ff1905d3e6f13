"""The report as the output of a cell: it needs no kernel, so it is still there in the HTML that nbconvert makes.

The report is in an iframe of its own, without the rights of the page around it. There is no widget beside it: nbconvert
stores the state of every widget that was made and then shows an empty one in place of all else.
"""

from __future__ import annotations

from html import escape
from typing import Any, Final

from etviz.inspection import Inspection
from etviz.settings import TENSORS, options
from etviz.view.fallback import html_table
from etviz.view.report import report_page

_MEGABYTE: Final = 1_000_000
_FRAME: Final = (
    '<iframe title="{title}" sandbox="allow-scripts" referrerpolicy="no-referrer" '
    'style="display:block;width:100%;height:{height}px;border:1px solid rgba(128,128,128,.35)" srcdoc="{page}">'
    "</iframe>\n<noscript>{table}</noscript>"
)


def embedded(inspection: Inspection) -> dict[str, Any]:
    """The report, or, if it is too large even without tensors, the worst rows; with text for viewers without HTML."""
    return {"text/plain": repr(inspection), "text/html": embedded_html(inspection)}


def embedded_html(inspection: Inspection) -> str:
    """An iframe with the report in it, within ``etviz.options.embed_megabytes``."""
    table, limit = html_table(inspection), options.embed_megabytes * _MEGABYTE
    for tensors in reversed(TENSORS[: TENSORS.index(options.embed_tensors) + 1]):
        page = escape(report_page(inspection, tensors, inspection.title).decode("utf-8"))
        frame = _FRAME.format(title=escape(inspection.title), height=inspection.height, page=page, table=table)
        if len(frame.encode("utf-8")) <= limit:
            return frame
    return (
        f"{table}<p>The report is larger than etviz.options.embed_megabytes = {options.embed_megabytes:g} allows; "
        "write it with to_html().</p>"
    )
