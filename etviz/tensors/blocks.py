"""Tensors of any dtype and strides as float64 blocks, so that no large tensor is copied as float64."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import torch

from etviz.errors import UsageError

BLOCK: Final = 1 << 15
"""Elements per block: they fit the cache, and torch starts no threads for them."""
CLASSES: Final = ("finite", "+inf", "-inf", "nan")

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.dtype == other.dtype == torch.bool:  # in a tenth of torch's time
        return np.array_equal(one.numpy(), other.numpy())
    return torch.equal(one, other)


def check_pair(reference: torch.Tensor, runtime: torch.Tensor) -> None:
    if reference.shape != runtime.shape:
        raise UsageError(
            f"shapes differ: the reference has {tuple(reference.shape)}, the runtime has {tuple(runtime.shape)}"
        )
    for name, tensor in (("reference", reference), ("runtime", runtime)):
        if tensor.dtype.is_complex:
            raise UsageError(f"the {name} is {tensor.dtype}, real numbers are expected; look at its real part instead")


@functools.cache
def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def is_small(tensor: torch.Tensor) -> bool:
    return tensor.dtype.is_floating_point and tensor.element_size() < 4


def flat(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().reshape(-1)


def floats(tensor: torch.Tensor, out: Floats | None = None) -> Floats:
    tensor = tensor.detach()
    values = (tensor.float() if is_small(tensor) else tensor).numpy()
    if out is None:
        return values.astype(np.float64, order="C")
    np.copyto(out, values, casting="unsafe")
    return out


def take(tensor: torch.Tensor, at: Ints) -> Floats:
    """As float64, without copying strided tensors."""
    tensor = tensor.detach()
    small = is_small(tensor)
    bits = tensor.view(torch.int8 if tensor.element_size() == 1 else torch.int16) if small else tensor
    if tensor.is_contiguous():
        taken = bits.reshape(-1).numpy()[at]
    else:
        taken = bits.numpy()[np.unravel_index(at, tuple(tensor.shape))]
    return floats(torch.from_numpy(taken).view(tensor.dtype) if small else torch.from_numpy(taken))


def blocks(*tensors: torch.Tensor, size: int = BLOCK) -> Iterator[tuple[Floats, ...]]:
    sides = [flat(tensor) for tensor in tensors]
    for start in range(0, sides[0].numel(), size):
        yield tuple(floats(side[start : start + size]) for side in sides)


def pairs(*tensors: torch.Tensor) -> Iterator[tuple[Floats, ...]]:
    """Blocks without elements that are non-finite in any tensor."""
    for values in blocks(*tensors):
        keep = finite(*values)
        yield values if keep is None else tuple(block[keep] for block in values)


def dot(x: Floats, y: Floats) -> float:
    """Σ x·y without BLAS, whose threads compete with torch's."""
    return float(np.einsum("i,i->", x, y))


def finite(*arrays: Floats) -> npt.NDArray[np.bool_] | None:
    with np.errstate(over="ignore", invalid="ignore"):
        if all(np.isfinite(array.sum()) for array in arrays):
            return None
    return np.logical_and.reduce([np.isfinite(array) for array in arrays])


def class_counts(reference: Floats, runtime: Floats) -> Ints:
    """Elements by class of the reference (row) and of the runtime (column)."""
    classes = (
        np.select([np.isnan(block), np.isposinf(block), np.isneginf(block)], [3, 1, 2], 0)
        for block in (reference, runtime)
    )
    return np.bincount(next(classes) * 4 + next(classes), minlength=16).reshape(4, 4)


def whole(value: object, name: str) -> int:
    """A `UsageError` for anything but an int, bools and fractions included."""
    try:
        if isinstance(value, (bool, np.bool_)):
            raise TypeError
        return operator.index(value)  # pyright: ignore[reportArgumentType]
    except TypeError:
        raise UsageError(f"{name} must be a whole number, found {value!r}") from None
