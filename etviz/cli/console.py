"""Where commands write: results to stdout, everything else to stderr; colours only on a terminal."""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markup import escape
from rich.measure import Measurement
from rich.text import Text

from etviz.graph.labels import short_name
from etviz.text import printable

out: Final = Console(highlight=False)
err: Final = Console(stderr=True, highlight=False)
COLOUR: Final = {"ok": "green", "warn": "yellow", "bad": "red"}
_ARGUMENT: Final = re.compile(r"\b(etrecord|debug_buffer|pte|record|inputs|method|timing)=(?![\w'\"(\[{/])")
_PATIENCE: Final = {True: 0.1, False: 3.0}
"""Seconds after which a command says on stderr what it does: on a terminal, and in a log."""


@contextmanager
def doing(what: str, patience: Mapping[bool, float] | None = None) -> Generator[None]:
    terminal, said = err.is_terminal, threading.Event()

    def say() -> None:
        said.set()
        err.print(f"etviz: {printable(what)} …", soft_wrap=True, markup=False, end="\r" if terminal else "\n")

    timer = threading.Timer((patience or _PATIENCE)[terminal], say)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        if terminal and said.is_set():
            err.file.write("\x1b[2K\r")


def print_json(body: Any) -> None:
    sys.stdout.write(json.dumps(plain_json(body), indent=1, allow_nan=False, ensure_ascii=False) + "\n")


def plain_json(body: Any) -> Any:
    if isinstance(body, str):
        return printable(body)
    if isinstance(body, dict):
        return {printable(key): plain_json(value) for key, value in body.items()}
    return [plain_json(item) for item in body] if isinstance(body, (list, tuple)) else body


def plain_text(text: object) -> str:
    """Without markup or control characters that a terminal would obey."""
    return escape(printable(text))


class ShortName:
    def __init__(self, text: object) -> None:
        self._text = printable(text)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(short_name(self._text, options.max_width), no_wrap=True)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(1, max(1, len(self._text)))


def with_options(text: str) -> str:
    """A sentence about arguments in the words of the command line.

    Examples
    --------
    >>> with_options("There is no debug buffer; give debug_buffer=.")
    'There is no debug buffer; give --debug-buffer.'
    """
    return _ARGUMENT.sub(lambda found: "--" + found[1].replace("_", "-"), text)
