"""The error for each index of an axis."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from etviz.errors import UsageError
from etviz.tensors.blocks import BLOCK, Floats, check_pair, finite, flat, floats, whole

if TYPE_CHECKING:
    import torch


@dataclass(slots=True)
class AxisSums:
    """For each index of one axis: Σd², Σd⁴, Σr², max|d| and the number of finite pairs."""

    dd: Floats
    d4: Floats
    rr: Floats
    max_d: Floats
    count: npt.NDArray[np.int64]


@dataclass(slots=True)
class ChannelError:
    """The error for each index of one axis, in float64.

    `rmse` and `max_abs` are in the tensor's units, NaN without a finite pair; `share` is of the tensor's Σd², 0
    without an error.
    """

    axis: int
    rmse: Floats
    max_abs: Floats
    share: Floats
    count: npt.NDArray[np.int64]
    nonfinite: npt.NDArray[np.int64]


def channel_error(reference: torch.Tensor, runtime: torch.Tensor, axis: int) -> ChannelError:
    """A scalar counts as shape ``(1,)``; a `UsageError` if the tensors can't be compared or the axis does not exist."""
    check_pair(reference, runtime)
    shape = tuple(runtime.shape) or (1,)
    number = whole(axis, "axis")
    if not -len(shape) <= number < len(shape):
        raise UsageError(f"axis must be from {-len(shape)} to {len(shape) - 1} for the shape {shape}, found {axis}")
    number %= len(shape)
    sums = axis_sums(reference.reshape(shape), runtime.reshape(shape), number)
    total = sums.dd.sum()
    with np.errstate(invalid="ignore", divide="ignore"):
        rmse = np.sqrt(sums.dd / sums.count)
        share = sums.dd / total if total > 0 else np.zeros_like(sums.dd)
    each = int(np.prod(shape[:number] + shape[number + 1 :], dtype=np.int64))
    largest = np.where(sums.count > 0, sums.max_d, np.nan)
    return ChannelError(number, rmse, largest, share, sums.count, each - sums.count)


def axis_sums(reference: torch.Tensor, runtime: torch.Tensor, axis: int) -> AxisSums:
    shape = tuple(runtime.shape)
    size = shape[axis]
    outer, inner = (int(np.prod(part, dtype=np.int64)) for part in (shape[:axis], shape[axis + 1 :]))
    sums = AxisSums(np.zeros(size), np.zeros(size), np.zeros(size), np.zeros(size), np.zeros(size, np.int64))
    if not runtime.numel():
        return sums
    sides = flat(reference), flat(runtime)
    for part, first, count in _boxes(outer, size, inner):
        r, q = (floats(side[part]).reshape(-1, count, min(inner, BLOCK, part.stop - part.start)) for side in sides)
        keep = finite(r, q)
        if keep is not None:
            r, q = np.where(keep, r, 0.0), np.where(keep, q, 0.0)
        here = slice(first, first + count)
        with np.errstate(over="ignore"):
            d = np.square(q - r)
            sums.dd[here] += d.sum((0, 2))
            largest = np.sqrt(d.max((0, 2)))
            sums.d4[here] += np.square(d, out=d).sum((0, 2))
            sums.rr[here] += np.square(r).sum((0, 2))
        np.maximum(sums.max_d[here], largest, out=sums.max_d[here])
        sums.count[here] += d.size // count if keep is None else keep.sum((0, 2))
    return sums


def _boxes(outer: int, size: int, inner: int) -> Iterator[tuple[slice, int, int]]:
    row = size * inner
    if row <= BLOCK:
        step = BLOCK // row
        for start in range(0, outer, step):
            yield slice(start * row, min(start + step, outer) * row), 0, size
    elif inner <= BLOCK:
        step = BLOCK // inner
        for start in range(outer):
            for first in range(0, size, step):
                count = min(step, size - first)
                begin = start * row + first * inner
                yield slice(begin, begin + count * inner), first, count
    else:
        for line in range(outer * size):
            for begin in range(line * inner, (line + 1) * inner, BLOCK):
                yield slice(begin, min(begin + BLOCK, (line + 1) * inner)), line % size, 1
