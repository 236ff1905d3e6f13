"""What the fingerprint tests work on: a bad pair, its sums, a sample of it, and how much of the error a guess explains.

A hypothesis predicts the runtime's values from the reference's. Its score is the share of the squared error that the
prediction takes away, ``1 − (Σ(q − p)² / (n − k)) / (Σ(q − r)² / n)``: the adjusted coefficient of determination
(H. Theil, "Economic Forecasts and Policy", 1961) with `k` fitted parameters, so that fitting noise earns nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from etviz.numerics.blocks import Floats, blocks, dot, pairs, take

if TYPE_CHECKING:
    import torch

SAMPLE: Final = 1 << 13
"""Elements that a guess is tried on before it is confirmed on all of them."""
_KNOWN: Final = 0.9
"""Share of the pairs that a prediction must say something about."""

Predict = Callable[[Floats], Floats]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """A likely class of bug.

    Attributes
    ----------
    name
        One of `etviz.numerics.fingerprints.NAMES`.
    score
        From 0 to 1: the share of the squared error that it explains, less what chance would.
    evidence
        One sentence with the figures.
    """

    name: str
    score: float
    evidence: str


@dataclass(slots=True)
class Moments:
    """Sums over the pairs where both are finite: r the reference, q the runtime, d = q − r."""

    count: int = 0
    sd: float = 0.0
    dd: float = 0.0
    rr: float = 0.0
    qq: float = 0.0
    rd: float = 0.0
    low_r: float = math.inf
    high_r: float = -math.inf
    low_q: float = math.inf
    high_q: float = -math.inf

    def add(self, r: Floats, q: Floats) -> None:
        """Take in some pairs."""
        if not len(r):
            return
        d = q - r
        self.count += len(r)
        self.sd += float(d.sum())
        self.dd += dot(d, d)
        self.rr += dot(r, r)
        self.qq += dot(q, q)
        self.rd += dot(r, d)
        self.low_r, self.high_r = min(self.low_r, float(r.min())), max(self.high_r, float(r.max()))
        self.low_q, self.high_q = min(self.low_q, float(q.min())), max(self.high_q, float(q.max()))


class Pair:
    """A reference and a runtime tensor of one shape.

    Parameters
    ----------
    reference, runtime
        Real tensors of the same shape, any strides.
    scale
        Step of the quantization grid that the value lies on, if it lies on one.
    """

    def __init__(self, reference: torch.Tensor, runtime: torch.Tensor, scale: float | None = None) -> None:
        self.reference, self.runtime = reference.detach(), runtime.detach()
        self.shape = tuple(runtime.shape)
        self.scale = scale

    @cached_property
    def moments(self) -> Moments:
        """Sums over all pairs."""
        found = Moments()
        with np.errstate(over="ignore", invalid="ignore"):
            for r, q in pairs(self.reference, self.runtime):
                found.add(r, q)
        return found

    @cached_property
    def sample(self) -> tuple[Ints, Floats, Floats]:
        """Flat positions, reference and runtime values of some pairs where both are finite; of all if they are few."""
        n = self.runtime.numel()
        at = np.arange(n) if n <= SAMPLE else np.sort(np.random.default_rng(0).integers(0, n, SAMPLE))
        r, q = take(self.reference, at), take(self.runtime, at)
        keep = np.isfinite(r) & np.isfinite(q)
        return at[keep], r[keep], q[keep]

    def likely(self, predicted: Floats, least: float) -> bool:
        """True if a prediction for the sample's pairs explains at least a share of the sample's error."""
        _, r, q = self.sample
        return share_explained(r, q, predicted) >= least

    def confirmed(self, predict: Predict, parameters: int = 0) -> float:
        """Share of the whole error that a function of the reference's values explains."""
        return self._score(((r, q, predict(r)) for r, q in pairs(self.reference, self.runtime)), parameters)

    def confirmed_by(self, reference: torch.Tensor, runtime: torch.Tensor, predicted: torch.Tensor) -> float:
        """The same for a prediction as a tensor; all three are parts of the pair's shape."""
        return self._score(blocks(reference, runtime, predicted), 0)

    def _score(self, triples: Iterable[tuple[Floats, ...]], parameters: int) -> float:
        seen = known = 0
        error = left = 0.0
        with np.errstate(over="ignore", invalid="ignore"):
            for r, q, p in triples:
                finite = np.isfinite(r) & np.isfinite(q)
                use = finite & np.isfinite(p)
                seen += np.count_nonzero(finite)
                d, e = (q - r)[use], (q - p)[use]
                known += len(d)
                error += dot(d, d)
                left += dot(e, e)
        if known < _KNOWN * seen or known <= parameters:
            return 0.0
        return adjusted(left, error, known, parameters)


def adjusted(left: float, error: float, count: int, parameters: int = 0) -> float:
    """Share of the squared error `error` of `count` pairs that is explained when `left` remains, from 0 to 1."""
    if not (error > 0.0 and math.isfinite(error) and count > parameters):
        return 0.0
    found = 1.0 - (left / (count - parameters)) / (error / count)
    return max(0.0, min(1.0, found)) if math.isfinite(found) else 0.0


def share_explained(r: Floats, q: Floats, predicted: Floats) -> float:
    """The same for arrays of finite `r` and `q`; what `predicted` knows nothing about (NaN) is left out."""
    use = np.isfinite(predicted)
    if np.count_nonzero(use) < _KNOWN * len(r):
        return 0.0
    d, e = (q - r)[use], (q - predicted)[use]
    return adjusted(dot(e, e), dot(d, d), len(d))


def percent(share: float) -> str:
    """A share for a sentence.

    Examples
    --------
    >>> percent(0.98765), percent(1.0), percent(0.99999)
    ('98.8 %', '100 %', 'over 99.9 %')
    """
    if 0.9995 <= share < 1.0:
        return "over 99.9 %"
    return f"{100 * share:.3g} %"
