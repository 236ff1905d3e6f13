"""The page around a report: one HTML file that asks for nothing, and runs nothing but the view that is written in it.

Names, stack traces and file names are other people's text. They reach the page escaped, or compressed in base64, and
the content-security policy lets only the one script run whose hash it names.
"""

from __future__ import annotations

import base64
import hashlib
import re
from html import escape
from pathlib import Path
from typing import Final

from etviz.errors import ArtifactError

STATIC: Final = Path(__file__).parent / "static"

_POLICY: Final = (
    "default-src 'none'; script-src '{script}'; style-src '{style}'; "
    "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
_PAGE: Final = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<div id="etviz"></div>
{summary}
<script type="application/octet-stream" id="etviz-data">{data}</script>
<script>{script}</script>
</body>
</html>
"""


def html_page(title: str, summary: str, data: bytes) -> bytes:
    """The whole page.

    Parameters
    ----------
    title
        Title of the document, as plain text.
    summary
        HTML that is shown until the view is there, where it can't come, and on paper. Without style attributes: the
        policy forbids them.
    data
        What `etviz.view.container.pack` gave.
    """
    style = _harmless(_asset("report.css"), r"<(?=/style)", r"\\3C ")
    script = _harmless(_asset("report.js"), r"<(?=/?script|!--)", r"\\x3C")
    policy = _POLICY.format(script=_hash(script), style=_hash(style))
    text = _PAGE.format(
        policy=escape(policy, quote=False),
        title=escape(title),
        style=style,
        summary=summary,
        data=base64.b64encode(data).decode("ascii"),
        script=script,
    )
    # Names of files may hold bytes that are no text; they must not keep a report from being written.
    return text.encode("utf-8", "backslashreplace")


def _asset(name: str) -> str:
    path = STATIC / name
    try:
        # The parser turns every line end into \n before the hash is taken.
        return path.read_text("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    except FileNotFoundError:
        advice = "run `make install` in a clone, or install etviz from a wheel"
        raise ArtifactError(path, "the view of the report is not built", advice) from None


def _harmless(source: str, ends: str, instead: str) -> str:
    """Spell the start of what would end the element, or change how it is read, as an escape inside a string."""
    return re.sub(ends, instead, source, flags=re.IGNORECASE)


def _hash(source: str) -> str:
    digest = hashlib.sha256(source.encode("utf-8")).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"
