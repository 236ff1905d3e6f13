"""Where in a tensor the error is: along one axis, and in a 2-D slice.

Everything is worked in blocks, honours strides, and leaves pairs of which one is not finite out of the sums.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from etviz.errors import UsageError
from etviz.numerics.blocks import BLOCK, Floats, check_pair, finite, flat, floats, whole
from etviz.numerics.histogram import worst_elements

if TYPE_CHECKING:
    import torch

_MOST_CELLS: Final = 4096


@dataclass(slots=True)
class AxisSums:
    """For each index of one axis: Σd², Σd⁴, Σr², max|d| and the number of pairs, where both are finite."""

    dd: Floats
    d4: Floats
    rr: Floats
    max_d: Floats
    count: npt.NDArray[np.int64]


@dataclass(slots=True)
class ChannelError:
    """The error for each index of one axis.

    Attributes
    ----------
    axis
        The axis, from 0.
    rmse, max_abs
        float64, in the tensor's own units; NaN where no pair is finite.
    share
        float64, share of Σd² of the whole tensor; 0 everywhere where there is no error.
    count
        int64, pairs where both are finite.
    nonfinite
        int64, pairs that were left out.
    """

    axis: int
    rmse: Floats
    max_abs: Floats
    share: Floats
    count: npt.NDArray[np.int64]
    nonfinite: npt.NDArray[np.int64]


def channel_error(reference: torch.Tensor, runtime: torch.Tensor, axis: int) -> ChannelError:
    """RMSE, largest error and share of the squared error for each index of an axis.

    Parameters
    ----------
    reference, runtime
        Tensors of the same shape. A tensor of no dimensions counts as one of shape ``(1,)``.
    axis
        From ``-ndim`` to ``ndim - 1``.

    Raises
    ------
    UsageError
        If the tensors can't be compared or there is no such axis.
    """
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
    """Σd², Σr², max|d| and pairs for each index of an axis (0 ≤ `axis` < ndim)."""
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
    """Parts of a flat ``(outer, size, inner)`` array, each a box: where, its first index on the axis, how many."""
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


@dataclass(slots=True)
class ErrorMap:
    """A 2-D slice of a tensor, made small enough to be looked at.

    Attributes
    ----------
    of
        ``error``, ``reference`` or ``runtime``.
    shape
        Of the tensor.
    axes
        The axes that run down and across; one for a tensor of one dimension, none for a single number.
    index
        Where the slice lies on every axis; the entries of `axes` mean nothing.
    block
        Elements in a cell, down and across.
    values
        float64, ``(height, width)``. Each cell shows of its block the largest ``|error|``, or the value that is largest
        in magnitude (with its sign), so that one bad element stays visible; NaN where an element of it is not finite.
    low, high
        Least and largest finite value of the cells; NaN where there is none.
    """

    of: str
    shape: tuple[int, ...]
    axes: tuple[int, ...]
    index: tuple[int, ...]
    block: tuple[int, int]
    values: Floats
    low: float
    high: float


def error_map(
    reference: torch.Tensor,
    runtime: torch.Tensor,
    of: str = "error",
    axes: Sequence[int] | None = None,
    index: Sequence[int] | None = None,
    size: int = 256,
) -> ErrorMap:
    """A slice of the error, of the reference or of the runtime's values.

    Parameters
    ----------
    reference, runtime
        Tensors of the same shape.
    of
        ``error``: ``|runtime − reference|``; ``reference``; ``runtime``.
    axes
        The axes that run down and across. By default the last two that have more than one element.
    index
        An index for every axis of the tensor. By default the slice that holds the largest error.
    size
        Most cells a side, from 1 to 4096; larger slices are downsampled.

    Raises
    ------
    UsageError
        If the tensors can't be compared, or an argument does not fit the shape.
    """
    check_pair(reference, runtime)
    if of not in ("error", "reference", "runtime"):
        raise UsageError(f"of must be 'error', 'reference' or 'runtime', found {of!r}")
    if not 1 <= whole(size, "size") <= _MOST_CELLS:
        raise UsageError(f"size must be from 1 to {_MOST_CELLS}, found {size}")
    shape = tuple(runtime.shape)
    across = _axes(shape, axes)
    at = _worst(reference, runtime) if index is None else _index(shape, index, across)
    chosen = {"error": (reference, runtime), "reference": (reference,), "runtime": (runtime,)}[of]
    planes = [_plane(tensor.detach(), across, at) for tensor in chosen]
    height, width = planes[0].shape
    block = (max(1, -(-height // size)), max(1, -(-width // size)))
    values = _downsample(planes, block)
    seen = values[np.isfinite(values)]
    low, high = (float(seen.min()), float(seen.max())) if len(seen) else (math.nan, math.nan)
    return ErrorMap(of, shape, across, at, block, values, low, high)


def _axes(shape: tuple[int, ...], axes: Sequence[int] | None) -> tuple[int, ...]:
    wanted = min(2, len(shape))
    if axes is None:
        long = [axis for axis, length in enumerate(shape) if length != 1]
        short = [axis for axis in reversed(range(len(shape))) if axis not in long]
        return tuple(sorted((*long[-wanted:], *short[: max(0, wanted - len(long))]))) if wanted else ()
    found = [whole(axis, "axes") for axis in _items(axes, "axes")]
    if len(found) != wanted or any(not -len(shape) <= axis < len(shape) for axis in found):
        raise UsageError(f"axes must be {wanted} different axes of the shape {shape}, found {axes}")
    found = [axis % len(shape) for axis in found]
    if len(set(found)) != wanted:
        raise UsageError(f"axes must be {wanted} different axes of the shape {shape}, found {axes}")
    return tuple(found)


def _index(shape: tuple[int, ...], index: Sequence[int], axes: tuple[int, ...]) -> tuple[int, ...]:
    found = [whole(item, "index") for item in _items(index, "index")]
    if len(found) != len(shape):
        raise UsageError(f"index must have {len(shape)} entries for the shape {shape}, found {index}")
    for axis, (item, length) in enumerate(zip(found, shape, strict=True)):
        if axis not in axes and not -length <= item < length:
            raise UsageError(f"index {item} is out of range for axis {axis} of the shape {shape}")
    return tuple(item % max(1, length) for item, length in zip(found, shape, strict=True))


def _items(value: Any, name: str) -> list[Any]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise UsageError(f"{name} must be a sequence of whole numbers, found {value!r}")
    return list(value)


def _worst(reference: torch.Tensor, runtime: torch.Tensor) -> tuple[int, ...]:
    """Where the error is largest, values that are non-finite in only one of the two first; the origin without any."""
    found = worst_elements(reference, runtime, 1)
    return found[0]["index"] if found else (0,) * runtime.ndim


def _plane(tensor: torch.Tensor, axes: tuple[int, ...], index: tuple[int, ...]) -> torch.Tensor:
    """The slice as a view of two dimensions."""
    if not tensor.numel():
        return tensor.new_empty((0, 0))
    for axis in reversed(range(tensor.ndim)):
        if axis not in axes:
            tensor = tensor.select(axis, index[axis])
    if len(axes) == 2 and axes[0] > axes[1]:
        tensor = tensor.t()
    return tensor if tensor.ndim == 2 else tensor.reshape(1, -1)


def _downsample(planes: Sequence[torch.Tensor], block: tuple[int, int]) -> Floats:
    """Each block's largest |difference| of two planes, or the value of one plane that is largest in magnitude."""
    height, width = planes[0].shape
    cells = np.full((-(-height // block[0]), -(-width // block[1])), -np.inf)
    if not cells.size:
        return np.empty((0, 0))
    least = np.full_like(cells, np.inf)
    starts = np.arange(0, width, block[1])
    step = max(1, BLOCK // width)
    for first in range(0, height, step):
        rows = [floats(plane[first : first + step]) for plane in planes]
        with np.errstate(invalid="ignore", over="ignore"):
            values = rows[0] if len(rows) == 1 else np.abs(rows[1] - rows[0])
        values[~np.isfinite(values)] = np.nan
        into = np.arange(first, first + len(values)) // block[0]
        np.maximum.at(cells, into, np.maximum.reduceat(values, starts, axis=1))
        np.minimum.at(least, into, np.minimum.reduceat(values, starts, axis=1))
    return np.where(np.abs(least) > np.abs(cells), least, cells)
