"""A number in JSON, which knows neither NaN nor Inf: how every file and message of etviz writes one."""

from __future__ import annotations

import math


def as_text(value: float) -> float | str:
    """A number, or ``nan``, ``inf`` and ``-inf``: float() of the text gives the number again."""
    return value if math.isfinite(value) else repr(value)


def or_none(value: float) -> float | str | None:
    return None if math.isnan(value) else as_text(value)


def tagged(value: float) -> float | dict[str, str]:
    """A number, or an object, for files in which a text may stand at the same place."""
    return value if math.isfinite(value) else {"$": "float", "v": repr(value)}
