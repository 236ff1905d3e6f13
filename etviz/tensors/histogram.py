"""What a pair of tensors looks like: histograms on shared bins, statistics, the elements that are worst.

Worked in blocks, like the metrics, so a large tensor costs time but no memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from etviz.tensors.blocks import Floats, Ints, blocks, class_counts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import torch

BLOCK: Final = 1 << 18


@dataclass(slots=True)
class Statistics:
    """Of the finite elements of one array; `zeros` is a share of all elements."""

    count: int = 0
    minimum: float = math.nan
    maximum: float = math.nan
    mean: float = math.nan
    std: float = math.nan
    rms: float = math.nan
    zeros: float = math.nan


@dataclass(slots=True)
class Histogram:
    """Counts of reference and runtime over shared bins, and of the error over its own.

    Attributes
    ----------
    edges
        float64, ``bins + 1`` ascending edges that both tensors share.
    reference, runtime
        int64, finite elements in each bin; `reference` is None where there is no reference.
    error_edges, error
        The same for runtime − reference, over pairs where both are finite; None without a reference.
    nonfinite
        int64 4 × 4: elements by class of the reference (row) and of the runtime (column), in the order of `CLASSES`.
    statistics
        Of ``reference``, ``runtime`` and ``error``, and of ``float`` if asked for.
    floats
        int64, the float model's values over the shared bins, if asked for.
    """

    edges: Floats
    runtime: Ints
    reference: Ints | None = None
    error_edges: Floats | None = None
    error: Ints | None = None
    nonfinite: Ints | None = None
    statistics: dict[str, Statistics] = field(default_factory=dict)
    floats: Ints | None = None


@np.errstate(over="ignore", invalid="ignore")
def histogram(
    reference: torch.Tensor | None, runtime: torch.Tensor, bins: int = 64, floats: torch.Tensor | None = None
) -> Histogram:
    """Histogram of a pair of tensors of one shape.

    Parameters
    ----------
    reference
        None where there is no reference.
    runtime
        What the runtime logged.
    bins
        Number of bins, from 1 to 4096.
    floats
        Values of the float model, which the shared bins reach around too.

    Raises
    ------
    ValueError
        If `bins` is out of range or the shapes differ.
    """
    if not 1 <= bins <= 4096:
        raise ValueError(f"bins must be from 1 to 4096, found {bins}")
    if reference is not None and reference.shape != runtime.shape:
        raise ValueError(f"shapes differ: {tuple(reference.shape)} and {tuple(runtime.shape)}")
    integers = not runtime.dtype.is_floating_point
    run = _describe(lambda: _blocks(runtime))
    stats = {"runtime": run}
    if reference is None:
        edges = bin_edges(run.minimum, run.maximum, bins, integers=integers)
        return Histogram(edges, _count(_blocks(runtime), edges), statistics=stats)
    ref = _describe(lambda: _blocks(reference))
    err = _describe(lambda: _errors(reference, runtime))
    low, high = np.fmin(ref.minimum, run.minimum), np.fmax(ref.maximum, run.maximum)
    if floats is not None:
        stats["float"] = own = _describe(lambda: _blocks(floats))
        outer = (np.floor(own.minimum), np.ceil(own.maximum)) if integers else (own.minimum, own.maximum)
        low, high = np.fmin(low, outer[0]), np.fmax(high, outer[1])
    edges = bin_edges(float(low), float(high), bins, integers=integers)
    error_edges = bin_edges(err.minimum, err.maximum, bins, integers=integers)
    return Histogram(
        edges,
        _count(_blocks(runtime), edges),
        _count(_blocks(reference), edges),
        error_edges,
        _count(_errors(reference, runtime), error_edges),
        sum((class_counts(r, q) for r, q in blocks(reference, runtime, size=BLOCK)), np.zeros((4, 4), np.int64)),
        stats | {"reference": ref, "error": err},
        None if floats is None else _count(_blocks(floats), edges),
    )


def counts_over(values: torch.Tensor, edges: Floats) -> Ints:
    """Finite elements of a tensor in each bin; those beyond the edges are in none."""
    return _count(_blocks(values), edges)


def worst_elements(reference: torch.Tensor, runtime: torch.Tensor, n: int = 10) -> list[dict[str, Any]]:
    """The elements with the largest error; those non-finite in only one tensor come first.

    Returns
    -------
    list of dict
        ``index`` (a tuple), ``reference``, ``runtime``, worst first; elements without any error are left out.
    """
    best: list[tuple[float, int, float, float]] = []
    start = 0
    for r, q in blocks(reference, runtime, size=BLOCK):
        with np.errstate(invalid="ignore"):
            d = np.abs(q - r)
        same = (r == q) | (np.isnan(r) & np.isnan(q))
        d = np.where(same, 0.0, np.where(np.isnan(d), np.inf, d))
        for at in np.argpartition(d, -min(n, len(d)))[-n:] if len(d) else ():
            if d[at] > 0:
                best.append((float(d[at]), start + int(at), float(r[at]), float(q[at])))
        best = sorted(best, key=lambda item: (-item[0], item[1]))[:n]
        start += len(d)
    shape = tuple(runtime.shape)
    return [
        {"index": tuple(int(i) for i in np.unravel_index(at, shape)) if shape else (), "reference": r, "runtime": q}
        for _, at, r, q in best
    ]


def _blocks(tensor: torch.Tensor) -> Iterator[Floats]:
    return (block for (block,) in blocks(tensor, size=BLOCK))


def _errors(reference: torch.Tensor, runtime: torch.Tensor) -> Iterator[Floats]:
    return (q - r for r, q in blocks(reference, runtime, size=BLOCK))


def _describe(blocks: Callable[[], Iterator[Floats]]) -> Statistics:
    low, high = math.inf, -math.inf
    count = total = zeros = elements = 0.0
    squares = 0.0
    for block in blocks():
        elements += len(block)
        zeros += np.count_nonzero(block == 0)
        finite = block[np.isfinite(block)] if not np.isfinite(block.sum()) else block
        if len(finite):
            low, high = min(low, float(finite.min())), max(high, float(finite.max()))
            count += len(finite)
            total += float(finite.sum())
            squares += float(np.dot(finite, finite))
    if not count:
        return Statistics(zeros=zeros / elements if elements else math.nan)
    mean = total / count
    spread = sum(float(np.square(f - mean).sum()) for b in blocks() if len(f := b[np.isfinite(b)]))
    return Statistics(
        int(count), low, high, mean, math.sqrt(spread / count), math.sqrt(squares / count), zeros / elements
    )


def bin_edges(low: float, high: float, bins: int, *, integers: bool) -> Floats:
    """Ascending edges from the least to the largest value; integers get bins of whole numbers."""
    if not (math.isfinite(low) and math.isfinite(high)):
        low, high = 0.0, 1.0
    if integers and high - low < bins:
        return np.arange(math.floor(low), math.floor(high) + 2, dtype=np.float64) - 0.5
    if low == high:
        margin = abs(low) * 0.05 or 0.5
        low, high = low - margin, high + margin
    halved = np.linspace(low / 2, high / 2, bins + 1) * 2  # high − low may be more than the largest float64
    edges = halved if math.isinf(high - low) else np.linspace(low, high, bins + 1)
    if not np.all(np.diff(edges) > 0):
        return np.array([low, np.nextafter(high, math.inf)])
    return edges


def _count(blocks: Iterator[Floats], edges: Floats) -> Ints:
    counts = np.zeros(len(edges) - 1, np.int64)
    for block in blocks:
        finite = block if np.isfinite(block.sum()) else block[np.isfinite(block)]
        counts += np.histogram(finite, edges)[0]
    return counts
