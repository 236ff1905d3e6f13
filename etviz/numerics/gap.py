"""One pass over a reference and a runtime tensor that gathers everything the metrics need.

The pass works in blocks of `BLOCK` elements, so that no float64 copy of a large tensor is made and the block stays in
the processor's cache. Non-finite elements are counted by class and left out of the sums; they never become 0.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from etviz.numerics.metrics import NAN, TOLERANCES, Sums

if TYPE_CHECKING:
    import torch

BLOCK: Final = 1 << 15
"""Elements a block: five float64 work arrays of this length fit into 1.25 MB."""

Floats = npt.NDArray[np.float64]
_local = threading.local()


def compare(
    reference: torch.Tensor,
    runtime: torch.Tensor,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    scale: float | None = None,
) -> Sums:
    """Gather the sums of a pair.

    Parameters
    ----------
    reference, runtime
        Tensors of the same shape, any real dtype, any strides.
    rtol, atol
        Tolerances of `allclose`; by default those of the runtime value's dtype (`TOLERANCES`), and at least one step
        of the quantization grid.
    scale
        Step of that grid, if the value lies on one.

    Raises
    ------
    ValueError
        If the shapes differ: broadcasting would compare each element with several.
    """
    if reference.shape != runtime.shape:
        raise ValueError(f"shapes differ: reference {tuple(reference.shape)}, runtime {tuple(runtime.shape)}")
    dtype = str(runtime.dtype).removeprefix("torch.")
    default_rtol, default_atol = TOLERANCES.get(dtype, (0.0, 0.0))
    if scale is not None:
        default_atol = max(default_atol, 1.0001 * abs(scale))
    pair = _Pair(reference, runtime)
    return _gather(pair, default_rtol if rtol is None else rtol, default_atol if atol is None else atol)


class _Pair:
    """Flat views of the two tensors, and how to read a block of each as float64."""

    def __init__(self, reference: torch.Tensor, runtime: torch.Tensor) -> None:
        self.same_dtype = reference.dtype == runtime.dtype
        self.floating = runtime.dtype.is_floating_point
        self.reference, self.runtime = _flat(reference), _flat(runtime)
        self.elements = self.runtime.numel()
        self.dtype = runtime.dtype
        self.integers = not self.floating and not reference.dtype.is_floating_point

    def blocks(self) -> Any:
        for start in range(0, self.elements, BLOCK):
            yield self.reference[start : start + BLOCK], self.runtime[start : start + BLOCK]


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().reshape(-1)


def _work(length: int) -> list[Floats]:
    arrays = getattr(_local, "arrays", None)
    if arrays is None:
        arrays = _local.arrays = [np.empty(BLOCK) for _ in range(4)]
    return [array[:length] for array in arrays]


def as_float64(block: torch.Tensor, out: Floats) -> Floats:
    """The values of a block as float64, written to `out`."""
    if block.dtype.is_floating_point and block.element_size() < 4:
        block = block.float()
    np.copyto(out, block.numpy(), casting="unsafe")
    return out


def _gather(pair: _Pair, rtol: float, atol: float) -> Sums:
    sums = Sums(elements=pair.elements, max_ulp=0.0 if pair.floating else NAN)
    classes = np.zeros((4, 4), np.int64)
    for reference, runtime in pair.blocks():
        _add_block(sums, classes, pair, reference, runtime, rtol, atol)
    sums.classes = tuple(tuple(int(n) for n in row) for row in classes)
    return sums


def _add_block(
    sums: Sums,
    classes: npt.NDArray[np.int64],
    pair: _Pair,
    reference: torch.Tensor,
    runtime: torch.Tensor,
    rtol: float,
    atol: float,
) -> None:
    r, q, d, a = _work(len(runtime))
    as_float64(reference, r)
    as_float64(runtime, q)
    with np.errstate(invalid="ignore", over="ignore"):
        np.subtract(q, r, out=d)
        total = float(d.sum())
    if not np.isfinite(total) and not (np.isfinite(r).all() and np.isfinite(q).all()):
        finite = _count_classes(classes, sums, r, q)
        r, q = r[finite], q[finite]
        d = q - r
        a = np.empty_like(d)
        ulp = _ulp(pair, reference, runtime, finite)
    else:
        classes[0, 0] += len(d)
        ulp = _ulp(pair, reference, runtime, None)
    sums.count += len(d)
    if not len(d):
        return
    sums.max_ulp = max(sums.max_ulp, ulp) if pair.floating else NAN
    sums.rr += _dot(r, r)
    sums.qq += _dot(q, q)
    sums.rq += _dot(r, q)
    sums.dd += _dot(d, d)
    np.abs(d, out=d)
    sums.ad += float(d.sum())
    sums.max_d = max(sums.max_d, float(d.max()))
    np.abs(r, out=a)
    sums.max_r = max(sums.max_r, float(a.max()))
    a *= rtol
    a += atol
    sums.close += int(np.count_nonzero(d <= a))


def _dot(x: Floats, y: Floats) -> float:
    with np.errstate(over="ignore", invalid="ignore"):
        return float(np.dot(x, y))


def _count_classes(classes: npt.NDArray[np.int64], sums: Sums, r: Floats, q: Floats) -> npt.NDArray[np.bool_]:
    kinds = _classes(r) * 4 + _classes(q)
    counts = np.bincount(kinds, minlength=16).reshape(4, 4)
    classes += counts
    sums.close += int(np.trace(counts) - counts[0, 0])
    return kinds == 0


def _classes(x: Floats) -> npt.NDArray[np.int64]:
    """0 finite, 1 +inf, 2 −inf, 3 NaN."""
    return np.where(np.isnan(x), 3, np.where(np.isposinf(x), 1, np.where(np.isneginf(x), 2, 0)))


def _ulp(pair: _Pair, reference: torch.Tensor, runtime: torch.Tensor, keep: npt.NDArray[np.bool_] | None) -> float:
    """Largest distance in the order of representable numbers of the runtime's dtype, exact as an integer."""
    if not pair.floating:
        return NAN
    a, b = _ordinals(runtime), _ordinals(reference.to(pair.dtype))
    unsigned = f"u{a.dtype.itemsize}"
    distance = np.maximum(a, b).view(unsigned) - np.minimum(a, b).view(unsigned)
    if keep is not None:
        distance = distance[keep]
    return float(distance.max()) if len(distance) else 0.0


def _ordinals(block: torch.Tensor) -> npt.NDArray[Any]:
    """Position of each float in the order of all floats of its dtype: neighbours differ by 1, −0 and +0 by 0.

    An IEEE 754 number is a sign and a magnitude whose bits, read as an integer, are in the order of the numbers
    (B. Dawson, "Comparing floating point numbers", 2012); so the ordinal is that integer with the sign applied.
    """
    import torch

    size = block.element_size()
    bits = block.contiguous().view({1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[size]).numpy()
    sign = bits >> (8 * size - 1)
    magnitude = bits & np.iinfo(bits.dtype).max
    magnitude ^= sign
    magnitude -= sign
    return magnitude
