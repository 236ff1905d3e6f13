"""Where commands write: results to stdout, everything else to stderr; colours only on a terminal."""

from __future__ import annotations

import json
import sys
from typing import Any, Final

from rich.console import Console
from rich.markup import escape

out: Final = Console()
err: Final = Console(stderr=True)


def print_json(body: Any) -> None:
    """Strict JSON on stdout, without colours and without line wrapping."""
    sys.stdout.write(json.dumps(body, indent=1, allow_nan=False, ensure_ascii=False) + "\n")


def plain_text(text: object) -> str:
    """Text from a file, shown as it is: no markup, no control characters that a terminal would obey."""
    return escape("".join(c if c.isprintable() else "\ufffd" for c in str(text)))
