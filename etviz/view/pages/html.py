"""HTML files that request nothing, and run nothing but their view.

Other people's text reaches a page escaped, or compressed in base64. The content-security policy names the hashes of the
only style sheet and script.
"""

from __future__ import annotations

import base64
import hashlib
import re
from html import escape
from pathlib import Path
from typing import Final

from etviz.errors import ArtifactError
from etviz.text import markup

STATIC: Final = Path(__file__).parents[1] / "static"
_POLICY: Final = "default-src 'none'; style-src '{style}'; base-uri 'none'; form-action 'none'"
_SCRIPT_POLICY: Final = "; script-src '{script}'; require-trusted-types-for 'script'; trusted-types 'none'"
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
{body}
</body>
</html>
"""


def html_page(title: str, style: str, body: str, script: str = "") -> bytes:
    """A whole page: `title` is plain text, `body` HTML without style attributes, which the policy forbids."""
    style = _harmless(style, r"<(?=/style)", r"\\3C ")
    policy = _POLICY.format(style=_hash(style))
    if script:
        script = _harmless(script, r"<(?=/?script|!--)", r"\\x3C")
        policy += _SCRIPT_POLICY.format(script=_hash(script))
        body += f"\n<script>{script}</script>"
    text = _PAGE.format(policy=escape(policy, quote=False), title=markup(title), style=style, body=body)
    # Names of files may hold bytes that are no text; they must not keep a page from being written.
    return text.encode("utf-8", "backslashreplace")


def view_page(title: str, summary: str, data: bytes, static: Path = STATIC) -> bytes:
    """`summary` is HTML for paper, without scripts, and until the view is ready; `static` has the built view."""
    held = base64.b64encode(data).decode("ascii")
    body = f'<div id="etviz"></div>\n{summary}\n<script type="application/octet-stream" id="etviz-data">{held}</script>'
    return html_page(title, _asset(static / "report.css"), body, _asset(static / "report.js"))


def _asset(path: Path) -> str:
    try:
        # The parser turns every line end into \n before the hash is taken.
        return path.read_text("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    except FileNotFoundError:
        advice = "run `make install` in a clone, or install etviz from a wheel"
        raise ArtifactError(path, "the view of the report is not built", advice) from None


def _harmless(source: str, ends: str, instead: str) -> str:
    """Escape, inside strings, text that would end the element or change its parsing."""
    return re.sub(ends, instead, source, flags=re.IGNORECASE)


def _hash(source: str) -> str:
    digest = hashlib.sha256(source.encode("utf-8")).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"
