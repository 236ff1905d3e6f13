"""2-D maps of an error, by blocks, for any strides."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from etviz.errors import UsageError
from etviz.tensors.blocks import BLOCK, Floats, check_pair, floats, whole
from etviz.tensors.histogram import worst_elements

if TYPE_CHECKING:
    import torch

_MOST_CELLS: Final = 4096


@dataclass(slots=True)
class ErrorMap:
    """A downsampled 2-D slice of a tensor.

    Attributes
    ----------
    axes
        Axes down and across; one for a vector, none for a scalar.
    index
        Position of the slice on every axis; the entries of `axes` are unused.
    values
        float64, ``(height, width)``: the largest ``|error|`` of each block, or its value of largest magnitude, with the
        sign. NaN if the block holds a non-finite element.
    kinds
        uint8, as `values`: 0 finite, 1 +Inf, 2 −Inf, 3 NaN. A map of the error shows the runtime's first.
    low, high
        Least and largest finite cell; NaN without one.
    """

    of: str
    shape: tuple[int, ...]
    axes: tuple[int, ...]
    index: tuple[int, ...]
    block: tuple[int, int]
    values: Floats
    kinds: npt.NDArray[np.uint8]
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

    `axes` run down and across, by default the last two with more than one element. `index` is by default that of the
    largest error. `size` is the maximum number of cells per side, from 1 to 4096. A `UsageError` if the tensors can't
    be compared, or an argument does not fit.
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
    values, kinds = _downsample(planes, block)
    seen = values[np.isfinite(values)]
    low, high = (float(seen.min()), float(seen.max())) if len(seen) else (math.nan, math.nan)
    return ErrorMap(of, shape, across, at, block, values, kinds, low, high)


def _axes(shape: tuple[int, ...], axes: Sequence[int] | None) -> tuple[int, ...]:
    wanted = min(2, len(shape))
    if axes is None:
        long = [axis for axis, length in enumerate(shape) if length != 1]
        short = [axis for axis in reversed(range(len(shape))) if axis not in long]
        return tuple(sorted((*long[-wanted:], *short[: max(0, wanted - len(long))]))) if wanted else ()
    chosen = [whole(axis, "axes") for axis in _items(axes, "axes")]
    if len(chosen) != wanted or any(not -len(shape) <= axis < len(shape) for axis in chosen):
        raise UsageError(f"axes must be {wanted} different axes of the shape {shape}, found {axes}")
    chosen = [axis % len(shape) for axis in chosen]
    if len(set(chosen)) != wanted:
        raise UsageError(f"axes must be {wanted} different axes of the shape {shape}, found {axes}")
    return tuple(chosen)


def _index(shape: tuple[int, ...], index: Sequence[int], axes: tuple[int, ...]) -> tuple[int, ...]:
    places = [whole(place, "index") for place in _items(index, "index")]
    if len(places) != len(shape):
        raise UsageError(f"index must have {len(shape)} entries for the shape {shape}, found {index}")
    for axis, (place, length) in enumerate(zip(places, shape, strict=True)):
        if axis not in axes and not -length <= place < length:
            raise UsageError(f"index {place} is out of range for axis {axis} of the shape {shape}")
    return tuple(place % max(1, length) for place, length in zip(places, shape, strict=True))


def _items(value: Any, name: str) -> list[Any]:
    try:
        if isinstance(value, Iterable) and not isinstance(value, str):
            return list(value)
    except TypeError:  # a tensor without axes can be iterated, by its type
        pass
    raise UsageError(f"{name} must be a sequence of whole numbers, found {value!r}")


def _worst(reference: torch.Tensor, runtime: torch.Tensor) -> tuple[int, ...]:
    worst = worst_elements(reference, runtime, 1)
    return worst[0]["index"] if worst else (0,) * runtime.ndim


def _plane(tensor: torch.Tensor, axes: tuple[int, ...], index: tuple[int, ...]) -> torch.Tensor:
    if not tensor.numel():
        return tensor.new_empty((0, 0))
    for axis in reversed(range(tensor.ndim)):
        if axis not in axes:
            tensor = tensor.select(axis, index[axis])
    if len(axes) == 2 and axes[0] > axes[1]:
        tensor = tensor.t()
    return tensor if tensor.ndim == 2 else tensor.reshape(1, -1)


def _downsample(planes: Sequence[torch.Tensor], block: tuple[int, int]) -> tuple[Floats, npt.NDArray[np.uint8]]:
    height, width = planes[0].shape
    cells = np.full((-(-height // block[0]), -(-width // block[1])), -np.inf)
    kinds = np.zeros(cells.shape, np.uint8)
    if not cells.size:
        return np.empty((0, 0)), kinds
    least = np.full_like(cells, np.inf)
    starts = np.arange(0, width, block[1])
    step = max(1, BLOCK // width)
    for first in range(0, height, step):
        rows = [floats(plane[first : first + step]) for plane in planes]
        with np.errstate(invalid="ignore", over="ignore"):
            values = rows[0] if len(rows) == 1 else np.abs(rows[1] - rows[0])
        lost = ~np.isfinite(values)
        values[lost] = np.nan
        into = np.arange(first, first + len(values)) // block[0]
        if lost.any():
            np.maximum.at(kinds, into, np.maximum.reduceat(_kinds(rows, lost), starts, axis=1))
        np.maximum.at(cells, into, np.maximum.reduceat(values, starts, axis=1))
        np.minimum.at(least, into, np.minimum.reduceat(values, starts, axis=1))
    return np.where(np.abs(least) > np.abs(cells), least, cells), kinds


def _kinds(rows: Sequence[Floats], lost: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint8]:
    kinds = np.zeros(lost.shape, np.uint8)
    for values in reversed(rows):
        kind = np.where(np.isnan(values), 3, np.where(values == np.inf, 1, np.where(values == -np.inf, 2, 0)))
        kinds = np.where(kinds == 0, kind, kinds).astype(np.uint8)
    # The difference of two finite numbers can be too large for float64.
    return np.where(lost & (kinds == 0), 1, kinds).astype(np.uint8)
