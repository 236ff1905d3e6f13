"""Text that comes from files, on its way to people: nothing that shows it obeys it."""

from __future__ import annotations

import html
import re
from typing import Any, Final

_REPLACEMENT: Final = "\ufffd"
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


def printable(text: object) -> str:
    r"""Replace invisible characters; line breaks and tabs stay.

    Examples
    --------
    >>> printable("conv\x1b[31m\u202egpj")
    'conv�[31m�gpj'
    """
    plain = str(text)
    if plain.isprintable():
        return plain
    return "".join(c if c.isprintable() or c in "\n\t" else _REPLACEMENT for c in plain)


def one_line(text: object) -> str:
    """As `printable`, with line breaks and runs of blanks as one blank."""
    return " ".join(printable(text).split())


def shortened(text: str, letters: int) -> str:
    return text if len(text) <= letters else text[: letters - 1] + "…"


SMALLEST_SHARE: Final = 1e-3
"""Threshold of what reads as none."""


def percent(share: float) -> str:
    """A share of an error.

    Examples
    --------
    >>> percent(-0.6123), percent(-3.7e-7)
    ('−61.2 %', 'less than 0.1 %')
    """
    if abs(share) < SMALLEST_SHARE:
        return f"less than {100 * SMALLEST_SHARE:g} %"
    return f"{100 * share:.3g} %".replace("-", "−")


def measured(value: float, error: float, unit: str = "") -> str:
    """A number with its standard error.

    Examples
    --------
    >>> measured(100.0, 23.0, " %"), measured(3.1e-9, 4.2e-10)
    ('100 ± 20 %', '3.1e-09 ± 4e-10')
    """
    return f"{value:.4g} ± {float(f'{error:.1g}'):g}{unit}"


def markup(text: object) -> str:
    r"""Text for HTML, as it is.

    Examples
    --------
    >>> markup("<b>\u202e")
    '&lt;b&gt;�'
    """
    return html.escape(printable(text))


def markdown(text: object) -> str:
    r"""Text for one line or one cell of Markdown: nobody is mentioned, and nothing is loaded.

    Examples
    --------
    >>> print(markdown("@all | <b>"))
    &#64;all \| &lt;b&gt;
    """
    escaped = one_line(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("@", "&#64;")
    return re.sub(r"([\\|`*\[\]~]|(?<!\w)_|_(?!\w))", r"\\\1", escaped)


def spreadsheet_cell(value: Any) -> Any:
    """A text that no spreadsheet takes for a formula.

    Examples
    --------
    >>> spreadsheet_cell("=HYPERLINK(1)"), spreadsheet_cell("add.out"), spreadsheet_cell(-1.5)
    ("'=HYPERLINK(1)", 'add.out', -1.5)
    """
    if not isinstance(value, str):
        return value
    plain = printable(value)
    return f"'{plain}" if plain.startswith(_FORMULA) else plain
