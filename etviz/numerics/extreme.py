"""Sums of squares of float64 numbers whose squares are no float64 numbers any more."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

from etviz.numerics.metrics import Sums

_SMALL: Final = 2.0**-480
_LARGE: Final = 2.0**480
_BLOCK: Final = 1 << 15

Floats = npt.NDArray[np.float64]


def is_extreme(sums: Sums) -> bool:
    """True if squares may have become 0 or infinite on the way."""
    return any(0 < value < _SMALL or _LARGE < value < math.inf for value in (sums.max_d, sums.max_r))


def add_scaled(sums: Sums, reference: Floats, runtime: Floats) -> None:
    """Gather the squares again, in units near the largest value; both arrays flat, of the same length.

    The units are powers of two, so dividing by them is exact.
    """
    d_unit, r_unit = _unit(sums.max_d), _unit(sums.max_r)
    dd = rr = qq = rq = 0.0
    with np.errstate(invalid="ignore", over="ignore"):
        for start in range(0, len(runtime), _BLOCK):
            r, q = reference[start : start + _BLOCK], runtime[start : start + _BLOCK]
            keep = np.isfinite(r) & np.isfinite(q)
            r, q = r[keep], q[keep]
            d = (q - r) / d_unit
            dd += float(np.dot(d, d))
            r, q = r / r_unit, q / r_unit
            rr, qq, rq = rr + float(np.dot(r, r)), qq + float(np.dot(q, q)), rq + float(np.dot(r, q))
    sums.dd, sums.rr, sums.qq, sums.rq = dd, rr, qq, rq
    sums.d_unit, sums.r_unit = d_unit, r_unit


def _unit(largest: float) -> float:
    if not 0 < largest < math.inf:
        return 1.0
    return math.ldexp(1.0, max(-1021, math.frexp(largest)[1] - 1))
