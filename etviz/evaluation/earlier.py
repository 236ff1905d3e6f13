"""Noise of some executions, for others: as multiples of one rounding.

The multiple depends on the operators, one rounding on the size of an execution's values, or on their grid.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from etviz.evaluation.law import allowance
from etviz.tensors.metrics import MEASURED, UNKNOWN, Noise

if TYPE_CHECKING:
    from collections.abc import Sequence

K = TypeVar("K")
FIRST: Final = 8
"""Executions whose noise is measured. They tell the RMS of a single number, which varies most, to 1/√(2·8) of it."""


class Multiples(Generic[K]):
    """By value; the RMS over executions counts. `independent` elements: of noise without allowance."""

    def __init__(self) -> None:
        self._ratios: dict[K, list[float]] = defaultdict(list)
        self._factors: dict[K, float] = {}
        self.independent: dict[K, float] = {}

    def add(self, key: K, noise: float, rounding: float) -> None:
        if math.isfinite(noise) and rounding > 0:
            self._ratios[key].append(noise / rounding)
            self._factors.pop(key, None)

    def known(self) -> dict[K, float]:
        return {key: _rms(ratios) for key, ratios in self._ratios.items()}

    def noise(self, key: K, rounding: float) -> Noise:
        """Unknown if fewer than half of `FIRST` had any."""
        ratios = self._ratios.get(key, ())
        if 2 * len(ratios) < FIRST:  # some values are 0 in the first execution
            return UNKNOWN
        if key not in self._factors:
            each = self.independent.get(key)  # without it, the noise had its allowance
            wider = allowance(each, each * len(ratios)) if each is not None else 1.0
            self._factors[key] = _rms(ratios) * wider
        return Noise(self._factors[key] * rounding, MEASURED)


def _rms(ratios: Sequence[float]) -> float:
    return math.sqrt(math.fsum(ratio * ratio for ratio in ratios) / len(ratios))
