"""Fingerprints: cheap tests on a bad pair that name the likely class of bug. Hypotheses, not verdicts.

Ordinary rounding has no fingerprint: a pair is looked at only where its error is above what its dtype explains
(the lower threshold of the metric ``severity``), and every score is less what chance would give.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

from etviz.numerics import altered, displaced
from etviz.numerics.blocks import check_pair
from etviz.numerics.confined import confined
from etviz.numerics.evidence import Fingerprint, Moments, Pair
from etviz.numerics.metrics import METRICS, Sums, unavoidable

if TYPE_CHECKING:
    import torch

FEWEST: Final = 8
"""Pairs below which nothing can be told from chance."""
LEAST: Final = 0.6
"""Score below which a hypothesis is not worth showing."""
_MARGIN: Final = 0.02

_TESTS: Final = (
    displaced.permuted,
    altered.sign,
    altered.truncation,
    displaced.shifted,
    altered.zero_point,
    altered.clipping,
    confined,
    altered.factor,
    altered.offset,
)
NAMES: Final = (
    "constant output",
    "permuted layout",
    "sign",
    "dtype truncation",
    "off-by-one shift",
    "wrong zero-point",
    "clipping",
    "border pixels",
    "single bad channel",
    "scale factor",
    "constant offset",
)
"""All fingerprints; of equal scores the more specific one comes first."""

_SPECIAL_CASES: Final = {"scale factor": ("sign",), "constant offset": ("wrong zero-point",)}
"""What is not said where a special case of it fits as well."""


def fingerprints(
    reference: torch.Tensor, runtime: torch.Tensor, *, scale: float | None = None, force: bool = False
) -> list[Fingerprint]:
    """Likely classes of bug of a pair, best first.

    Parameters
    ----------
    reference, runtime
        Real tensors of the same shape, any strides. Pairs of which one is not finite are left out.
    scale
        Step of the quantization grid that the value lies on, if it lies on one.
    force
        Also look at a pair whose error its precision explains.

    Returns
    -------
    list of Fingerprint
        Those with a score of at least 0.6; often none. Several may be true at once.

    Raises
    ------
    UsageError
        If the tensors can't be compared.
    """
    check_pair(reference, runtime)
    pair = Pair(reference, runtime, scale)
    moments = pair.moments
    if moments.count < FEWEST or not 0.0 < moments.dd < math.inf:
        return []
    if not force and not is_bad(moments, runtime.dtype, scale):
        return []
    constant = list(altered.constant_output(pair))
    if constant:
        return constant
    with np.errstate(over="ignore", invalid="ignore"):
        found = [item for test in _TESTS for item in test(pair) if item.score >= LEAST]
    scores = {item.name: item.score for item in found}
    found = [item for item in found if not _is_general(item, scores)]
    return sorted(found, key=lambda item: (-round(item.score, 3), NAMES.index(item.name)))


def is_bad(sums: Sums | Moments, dtype: torch.dtype, scale: float | None) -> bool:
    """True if an error is above what the value's dtype explains, by the lower threshold of the severity.

    Integers count as values on a grid of step 1. Where nothing could be compared it is False.
    """
    if not sums.count:
        return False
    name = str(dtype).removeprefix("torch.")
    thresholds = METRICS["severity"].thresholds
    on_grid = scale is not None or name not in thresholds
    warn = thresholds["quantized" if on_grid else name][0]
    unit = unavoidable(name, math.sqrt(sums.rr / sums.count), scale)
    return math.sqrt(sums.dd / sums.count) >= warn * unit


def _is_general(item: Fingerprint, scores: dict[str, float]) -> bool:
    special = _SPECIAL_CASES.get(item.name, ())
    return any(scores.get(name, 0.0) >= item.score - _MARGIN for name in special)
