"""The distribution of a pair of tensors, in two passes without large memory."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import torch

from etviz import native
from etviz.errors import UsageError
from etviz.tensors.blocks import Floats, Ints, blocks, class_counts, flat, floats

BLOCK: Final = 1 << 18
_REFERENCE, _RUNTIME, _ERROR = range(3)


@dataclass(slots=True)
class Statistics:
    """Of an array's finite elements; `zeros` is a share of all."""

    count: int = 0
    minimum: float = math.nan
    maximum: float = math.nan
    mean: float = math.nan
    std: float = math.nan
    rms: float = math.nan
    zeros: float = math.nan


@dataclass(slots=True)
class Histogram:
    """Counts of reference and runtime over shared bins, and of the error over separate bins.

    Attributes
    ----------
    edges
        float64, ``bins + 1`` ascending edges for both tensors.
    reference, runtime
        int64, finite elements in each bin; `reference` may be None.
    error_edges, error
        The same for runtime − reference over finite pairs; None without a reference.
    nonfinite
        int64 4 × 4: elements by class of the reference (row) and of the runtime (column), in the order of `CLASSES`.
    statistics
        Of ``reference``, ``runtime`` and ``error``, and of ``float`` if requested.
    floats
        int64, the float model's values over the shared bins, if requested.
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
    reference: torch.Tensor | None, runtime: torch.Tensor, bins: int = 64, float_values: torch.Tensor | None = None
) -> Histogram:
    """In 1 to 4096 bins, which cover the float model's values (`float_values`) too.

    A `ValueError` if `bins` is out of range or the shapes differ.
    """
    if not 1 <= bins <= 4096:
        raise UsageError(f"bins must be from 1 to 4096, found {bins}")
    if reference is not None and reference.shape != runtime.shape:
        raise ValueError(f"shapes differ: {tuple(reference.shape)} and {tuple(runtime.shape)}")
    integers = not runtime.dtype.is_floating_point
    pair = _PairContent(reference, runtime)
    limits = pair.limits(_RUNTIME)
    if reference is None:
        edges = bin_edges(*limits, bins, integers=integers)
        (counts,) = pair.count(edges, edges)
        return Histogram(edges, counts, statistics=pair.statistics())
    limits = _around(limits, pair.limits(_REFERENCE))
    quantized = None if float_values is None else _PairContent(None, float_values)
    if quantized is not None:
        low, high = quantized.limits(_RUNTIME)
        limits = _around(limits, (np.floor(low), np.ceil(high)) if integers else (low, high))
    edges = bin_edges(*limits, bins, integers=integers)
    error_edges = bin_edges(*pair.limits(_ERROR), bins, integers=integers)
    in_reference, in_runtime, in_error = pair.count(edges, error_edges)
    counted = Histogram(edges, in_runtime, in_reference, error_edges, in_error, pair.classes, pair.statistics())
    if quantized is not None:
        (counted.floats,) = quantized.count(edges, edges)
        counted.statistics["float"] = quantized.statistics()["runtime"]
    return counted


def statistics(values: torch.Tensor) -> Statistics:
    return histogram(None, values, 1).statistics["runtime"]


def counts_over(values: torch.Tensor, edges: Floats) -> Ints:
    return _PairContent(None, values).count(edges, edges)[0]


def worst_elements(reference: torch.Tensor, runtime: torch.Tensor, n: int = 10) -> list[dict[str, Any]]:
    """``index``, ``reference`` and ``runtime`` of the largest errors, worst first, exact elements omitted.

    Elements that are non-finite in only one tensor come first.
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
        best = sorted(best, key=lambda element: (-element[0], element[1]))[:n]
        start += len(d)
    shape = tuple(runtime.shape)
    return [
        {"index": tuple(int(i) for i in np.unravel_index(at, shape)) if shape else (), "reference": r, "runtime": q}
        for _, at, r, q in best
    ]


class _PairContent:
    def __init__(self, reference: torch.Tensor | None, runtime: torch.Tensor) -> None:
        self._reference, self._runtime = reference, runtime
        self._known = (_RUNTIME,) if reference is None else (_REFERENCE, _RUNTIME, _ERROR)
        self._series = (native.Series * 3)(*(native.Series(low=math.inf, high=-math.inf),) * 3)
        self.classes = np.zeros((4, 4), np.int64)
        for r, q in self._blocks():
            count, classes = q.numel(), self.classes.ctypes.data
            if not native.describe(_elements(r), _elements(q), count, self._series, classes):
                self._describe(r, q)

    def limits(self, part: int) -> tuple[float, float]:
        about = self._series[part]
        return (about.low, about.high) if about.count else (math.nan, math.nan)

    def count(self, edges: Floats, error_edges: Floats) -> list[Ints]:
        every = (edges, edges, error_edges)
        counts = [np.zeros(len(each) - 1, np.int64) for each in every]
        bins = (native.Bins * 3)(
            *(
                native.Bins(each.ctypes.data, _scale(each), len(held), held.ctypes.data)
                for each, held in zip(every, counts, strict=True)
            )
        )
        for r, q in self._blocks():
            if not native.count(_elements(r), _elements(q), q.numel(), self._series, bins):
                self._count(r, q, every, counts)
        return [counts[part] for part in self._known]

    def statistics(self) -> dict[str, Statistics]:
        elements = self._runtime.numel()
        names = ("reference", "runtime", "error")
        return {names[part]: _statistics(self._series[part], elements) for part in self._known}

    def _blocks(self) -> Iterator[tuple[torch.Tensor | None, torch.Tensor]]:
        q, r = flat(self._runtime), None if self._reference is None else flat(self._reference)
        for start in range(0, q.numel(), BLOCK):
            part = slice(start, start + BLOCK)
            yield None if r is None else _readable(r[part]), _readable(q[part])

    def _describe(self, r: torch.Tensor | None, q: torch.Tensor) -> None:
        arrays = _arrays(r, q)
        if r is not None:
            self.classes += class_counts(arrays[_REFERENCE], arrays[_RUNTIME])
        for part in self._known:
            values, about = _finite(arrays[part]), self._series[part]
            if len(values):
                about.low, about.high = min(about.low, values.min()), max(about.high, values.max())
                about.sum += values.sum()
                about.squares += np.dot(values, values)
                about.count += len(values)
                about.zeros += np.count_nonzero(values == 0)

    def _count(self, r: torch.Tensor | None, q: torch.Tensor, edges: Sequence[Floats], counts: list[Ints]) -> None:
        arrays = _arrays(r, q)
        for part in self._known:
            values, about = _finite(arrays[part]), self._series[part]
            if len(values):
                about.spread += np.square(values - about.sum / about.count).sum()
                counts[part] += np.histogram(values, edges[part])[0]


def _elements(tensor: torch.Tensor | None) -> native.Elements:
    if tensor is None:
        return native.NOTHING
    return native.Elements(tensor.data_ptr(), str(tensor.dtype).removeprefix("torch."))


def _readable(tensor: torch.Tensor) -> torch.Tensor:
    known = str(tensor.dtype).removeprefix("torch.") in native.KINDS
    return tensor if known else torch.from_numpy(floats(tensor))


def _arrays(r: torch.Tensor | None, q: torch.Tensor) -> list[Floats]:
    runtime = floats(q)
    reference = runtime if r is None else floats(r)
    return [reference, runtime, runtime - reference]


def _finite(values: Floats) -> Floats:
    return values if np.isfinite(values.sum()) else values[np.isfinite(values)]


def _around(one: tuple[float, float], other: tuple[float, float]) -> tuple[float, float]:
    return float(np.fmin(one[0], other[0])), float(np.fmax(one[1], other[1]))


def _scale(edges: Floats) -> float:
    scale = (len(edges) - 1) / (edges[-1] - edges[0])
    return float(scale) if math.isfinite(scale) else 0.0


def _statistics(about: native.Series, elements: int) -> Statistics:
    zeros = about.zeros / elements if elements else math.nan
    if not about.count:
        return Statistics(zeros=zeros)
    std, rms = math.sqrt(about.spread / about.count), math.sqrt(about.squares / about.count)
    return Statistics(about.count, about.low, about.high, about.sum / about.count, std, rms, zeros)


def bin_edges(low: float, high: float, bins: int, *, integers: bool) -> Floats:
    """Ascending edges; bins of integers hold whole numbers."""
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
