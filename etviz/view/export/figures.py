"""The figures of a gap row as JSON can hold them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from etviz.comparison.gap_tables import rank
from etviz.json_numbers import as_text

if TYPE_CHECKING:
    import pandas as pd

METRICS: Final = ("severity", "introduced_severity", "rmse", "sqnr_db")


def figures(row: Mapping[Any, Any]) -> dict[str, float | str]:
    """The known metrics of a row; infinities as texts, since JSON has no number for them.

    Examples
    --------
    >>> figures({"severity": 2.0, "rmse": float("nan"), "sqnr_db": float("inf")})
    {'severity': 2.0, 'sqnr_db': 'inf'}
    """
    known = {name: float(row[name]) for name in METRICS if name in row and row[name] is not None}
    return {name: as_text(value) for name, value in known.items() if not math.isnan(value)}


def worst_of(gaps: pd.DataFrame, keys: Iterable[Any]) -> dict[Any, Any]:
    """By severity; `keys` has one for each row of `gaps`."""
    by_row = dict(zip(gaps.index, keys, strict=True))
    worst: dict[Any, Any] = {}
    for at, row in rank(gaps, "severity").iterrows():
        worst.setdefault(by_row[at], row)
    return worst


def shape_text(row: Mapping[Any, Any]) -> str:
    return f"{row['dtype']} [{', '.join(map(str, row['shape']))}]"
