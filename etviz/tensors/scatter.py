"""Reference against runtime as a density: a scatter plot at the cost of its bins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from etviz.errors import UsageError
from etviz.tensors.blocks import Floats, check_pair, pairs, whole
from etviz.tensors.histogram import bin_edges

if TYPE_CHECKING:
    import torch

_MOST_BINS: Final = 1024


@dataclass(slots=True)
class Scatter:
    """Counts of pairs.

    `edges`: float64, ascending, for both axes. `counts`: int64, ``(bins, bins)``, elements by the bin of the runtime
    (row) and of the reference (column).
    """

    edges: Floats
    counts: npt.NDArray[np.int64]
    elements: int


def scatter(reference: torch.Tensor, runtime: torch.Tensor, bins: int = 64) -> Scatter:
    """Count pairs by both values, in 1 to 1024 bins per side; it shows a scale, an offset or a clipped range.

    Integers of a smaller range get one bin per number. A `UsageError` if the tensors can't be compared or `bins` is out
    of range.
    """
    check_pair(reference, runtime)
    if not 1 <= whole(bins, "bins") <= _MOST_BINS:
        raise UsageError(f"bins must be from 1 to {_MOST_BINS}, found {bins}")
    low, high = np.inf, -np.inf
    for r, q in pairs(reference, runtime):
        if len(r):
            low, high = min(low, r.min(), q.min()), max(high, r.max(), q.max())
    integers = not (runtime.dtype.is_floating_point or reference.dtype.is_floating_point)
    edges = bin_edges(float(low), float(high), bins, integers=integers)
    side = len(edges) - 1
    counts = np.zeros(side * side, np.int64)
    elements = 0
    for r, q in pairs(reference, runtime):
        elements += len(r)
        counts += np.bincount(_bin(q, edges) * side + _bin(r, edges), minlength=side * side)
    return Scatter(edges, counts.reshape(side, side), elements)


def _bin(values: Floats, edges: Floats) -> npt.NDArray[np.int64]:
    last = len(edges) - 2
    low, width = edges[0] / 2, edges[-1] / 2 - edges[0] / 2  # halves: the range may exceed the largest float64
    with np.errstate(over="ignore", divide="ignore"):
        factor = (last + 1) / width
    if not np.isfinite(factor):
        return np.clip(np.searchsorted(edges, values, "right") - 1, 0, last)
    bins = np.clip(((values / 2 - low) * factor).astype(np.int64), 0, last)
    bins -= values < edges[bins]
    bins += (values >= edges[bins + 1]) & (bins < last)
    return bins
