"""JSON from somebody else's file, with a limit on how many values it may hold.

An empty list takes two bytes of a file and eighty of memory; the limit keeps a small file from filling the machine.
"""

from __future__ import annotations

import json
from typing import Any, Final

import orjson

_MOST_VALUES: Final = 3_000_000
_MARKS: Final = (b",", b"[", b"{", b":")


def parse_json(data: bytes | memoryview) -> Any:
    """Parse a document; Infinity and NaN, which upstream writes, are read too.

    Raises
    ------
    ValueError
        If it is not JSON, is nested too deeply, or holds millions of values.
    """
    text = bytes(data)
    if sum(map(text.count, _MARKS)) > _MOST_VALUES:
        raise ValueError(f"it holds more than {_MOST_VALUES:,} values")
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        pass  # Infinity and NaN, and integers of more than 64 bits, are read by the standard library only
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
