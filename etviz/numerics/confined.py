"""Fingerprints of an error that is confined to a part of the tensor: one index of an axis, the border of an image."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from etviz.numerics.blocks import Floats
from etviz.numerics.evidence import Fingerprint, Pair, percent
from etviz.numerics.location import axis_sums

_WIDTHS: Final = (1, 2, 3)
_LARGEST_IMAGE: Final = 1 << 22
"""Positions on the spatial axes up to which the border is looked at."""
_LARGEST: Final = 0.6
"""A region with more of the elements than this is no confinement."""
_WRONG: Final = 0.1
_FEWEST_LINES: Final = 32
"""Lines from which a single element can be called a channel."""


@dataclass(slots=True)
class _Maps:
    """Σd², Σd⁴ and Σr² of parts of a tensor, of `each` elements."""

    dd: Floats
    d4: Floats
    rr: Floats
    each: int

    def over(self, axes: tuple[int, ...]) -> _Maps:
        """Of larger parts: summed over axes of the parts."""
        each = self.each * math.prod(self.dd.shape[axis] for axis in axes)
        return _Maps(self.dd.sum(axes), self.d4.sum(axes), self.rr.sum(axes), each)

    def score(self, region: npt.NDArray[np.bool_]) -> tuple[float, float, float]:
        """How likely an error is confined to a region; its share of Σd²; its share of the elements.

        A share counts only beyond the region's share of the elements and of the reference's energy: rounding errors
        are large where the values are. And much of the region must be wrong: with the participation ratio
        (Σd²)² / Σd⁴ as the number of wrong elements, a tenth of it, or a few outliers happen to lie in it.
        """
        share, fraction = _part(self.dd[region].sum(), self.dd.sum()), float(region.mean())
        expected = max(fraction, _part(self.rr[region].sum(), self.rr.sum()))
        elements = np.count_nonzero(region) * self.each
        if not share > expected or fraction > _LARGEST or (elements < 2 and region.size < _FEWEST_LINES):
            return 0.0, share, fraction
        wrong = _part(self.dd[region].sum() ** 2, self.d4[region].sum())
        return (share - expected) / (1.0 - expected) * min(1.0, wrong / elements / _WRONG), share, fraction


def confined(pair: Pair) -> Iterator[Fingerprint]:
    """A single bad channel, and border pixels."""
    spatial = _spatial(pair.shape)
    first = spatial[0] if spatial else len(pair.shape)
    found: list[tuple[float, float, str]] = []
    for axis in range(first):
        found.append(_channel(_maps(pair, pair.shape, axis), axis))
    if spatial:
        image = tuple(pair.shape[axis] for axis in spatial)
        maps = _maps(pair, (*pair.shape[:first], math.prod(image)), first)
        maps.dd, maps.d4, maps.rr = (part.reshape(image) for part in (maps.dd, maps.d4, maps.rr))
        yield _border(maps, first)
        for k, axis in enumerate(spatial):
            lines = maps.over(tuple(other for other in range(len(image)) if other != k))
            found.append(_channel(lines, axis, edges=len(pair.shape) < 4))
    score, _, text = max(found, default=(0.0, 0.0, ""))
    yield Fingerprint("single bad channel", score, text)


def _maps(pair: Pair, shape: tuple[int, ...], axis: int) -> _Maps:
    sums = axis_sums(pair.reference.reshape(shape), pair.runtime.reshape(shape), axis)
    return _Maps(sums.dd, sums.d4, sums.rr, math.prod(shape) // shape[axis])


def _spatial(shape: Sequence[int]) -> list[int]:
    """The axes of an image: those after batch and channels, or the last two of three."""
    axes = list(range(2, len(shape))) if len(shape) >= 4 else [1, 2] if len(shape) == 3 else []
    return axes if math.prod(shape[axis] for axis in axes) <= _LARGEST_IMAGE else []


def _channel(lines: _Maps, axis: int, *, edges: bool = True) -> tuple[float, float, str]:
    """Score, how small the region is (to decide between equals), and evidence of the worst index of an axis."""
    worst, size = int(np.argmax(lines.dd)), len(lines.dd)
    if size < 2 or (not edges and worst in (0, size - 1)):
        return 0.0, 0.0, ""
    score, share, fraction = lines.score(np.arange(size) == worst)
    text = f"Index {worst} of axis {axis} (of {size}) holds {percent(share)} of the squared error."
    return round(score, 6), -fraction, text


def _border(maps: _Maps, first: int) -> Fingerprint:
    best = Fingerprint("border pixels", 0.0, "")
    for width in _WIDTHS:
        for where, region in _frames(maps.dd.shape, width, first):
            score, share, fraction = maps.score(region)
            if score > best.score + 1e-3:
                pixels = "pixel" if width == 1 else f"{width} pixels"
                text = f"The outermost {pixels} {where} ({percent(fraction)} of the elements) hold {percent(share)}"
                best = Fingerprint(best.name, score, f"{text} of the squared error.")
    return best


def _frames(image: Sequence[int], width: int, first: int) -> Iterator[tuple[str, npt.NDArray[np.bool_]]]:
    """The parts of a border, smallest first: one side, two opposite sides, all of them."""
    nowhere = np.zeros(tuple(image), bool)
    sides: list[tuple[str, npt.NDArray[np.bool_]]] = []
    opposite: list[tuple[str, npt.NDArray[np.bool_]]] = []
    for axis, size in enumerate(image):
        if size < 2 * width + 1:
            continue
        place = np.arange(size).reshape([-1 if k == axis else 1 for k in range(len(image))])
        start, end = place < width, place >= size - width
        name = f"axis {first + axis}"
        sides += [(f"at the start of {name}", nowhere | start), (f"at the end of {name}", nowhere | end)]
        opposite.append((f"at both ends of {name}", nowhere | start | end))
    yield from sides
    yield from opposite
    if len(opposite) > 1:
        yield "on all sides", np.logical_or.reduce([mask for _, mask in opposite])


def _part(part: float, whole: float) -> float:
    return float(part / whole) if whole > 0 and math.isfinite(whole) else 0.0
