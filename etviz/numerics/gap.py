"""One pass over a reference and a runtime tensor that gathers everything the metrics need.

The pass works in blocks of `BLOCK` elements, so that no float64 copy of a large tensor is made and the block stays in
the processor's cache. Non-finite elements are counted by class and left out of the sums; they never become 0.
"""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from etviz.native import pair_sums
from etviz.numerics.extreme import add_scaled, is_extreme
from etviz.numerics.metrics import NAN, TOLERANCES, Sums

if TYPE_CHECKING:
    import torch

BLOCK: Final = 1 << 15
"""Elements a block: four float64 work arrays of this length fit into 1 MB."""
_ROW: Final = 1 << 13
"""Elements a dot product: beyond 10,000 OpenBLAS starts threads, which wait for torch's and torch's for them."""

Floats = npt.NDArray[np.float64]
Classes = npt.NDArray[np.int64]
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
    rtol = default_rtol if rtol is None else rtol
    atol = default_atol if atol is None else atol
    sums = _compiled(reference, runtime, rtol, atol)
    if sums is None:
        with np.errstate(invalid="ignore", over="ignore"):
            sums = _Pass(reference, runtime, rtol, atol).gather()
    if is_extreme(sums):
        sides = _Side(reference).array, _Side(runtime).array
        if sides[0] is not None and sides[1] is not None:
            add_scaled(sums, *(side.astype(np.float64) for side in sides if side is not None))
    return sums


def _compiled(reference: torch.Tensor, runtime: torch.Tensor, rtol: float, atol: float) -> Sums | None:
    """The sums from the compiled pass; None where it can't tell: other dtypes, or an element that is not finite."""
    import torch

    count = runtime.numel()
    if not count or reference.dtype != torch.float32 or runtime.dtype != torch.float32:
        return None
    r, q = reference.detach().reshape(-1), runtime.detach().reshape(-1)
    found = pair_sums(r.data_ptr(), q.data_ptr(), count, rtol, atol)
    if found is None:
        return None
    gathered = {name: getattr(found, name) for name in ("dd", "rr", "qq", "rq", "ad", "max_d", "max_r", "close")}
    classes = ((count, 0, 0, 0), *((0,) * 4,) * 3)
    return Sums(count, count, max_ulp=float(found.max_ulp), classes=classes, **gathered)


def as_float64(block: torch.Tensor, out: Floats) -> Floats:
    """The values of a block as float64, written to `out`."""
    if block.dtype.is_floating_point and block.element_size() < 4:
        block = block.float()
    np.copyto(out, block.numpy(), casting="unsafe")
    return out


class _Side:
    """One of the two tensors, flat; `array` is None for floats of less than 32 bits, which torch converts faster."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.flat = tensor.detach().reshape(-1)
        small = tensor.dtype.is_floating_point and tensor.element_size() < 4
        self.array: npt.NDArray[Any] | None = None if small else self.flat.numpy()

    def floats(self, part: slice, out: Floats) -> Floats:
        if self.array is None:
            return as_float64(self.flat[part], out)
        np.copyto(out, self.array[part], casting="unsafe")
        return out


class _Pass:
    """The pass over one pair, and the sums so far."""

    def __init__(self, reference: torch.Tensor, runtime: torch.Tensor, rtol: float, atol: float) -> None:
        self.reference, self.runtime = _Side(reference), _Side(runtime)
        self.dtype = runtime.dtype
        self.same_dtype = reference.dtype == runtime.dtype
        self.floating = runtime.dtype.is_floating_point
        self.bits = _bits(self.runtime.flat) if self.floating else None
        self.reference_bits = _bits(self.reference.flat) if self.floating and self.same_dtype else None
        self.rtol, self.atol = rtol, atol
        self.sums = Sums(elements=runtime.numel(), max_ulp=0.0 if self.floating else NAN)
        self.finite = 0
        self.classes: Classes | None = None

    def gather(self) -> Sums:
        """Go through all blocks."""
        work = _work()
        for start in range(0, self.sums.elements, BLOCK):
            part = slice(start, min(start + BLOCK, self.sums.elements))
            r, q, d, a = (array[: part.stop - start] for array in work)
            if not self._add_identical(part, r):
                self._add(part, r, q, d, a)
        classes = np.zeros((4, 4), np.int64) if self.classes is None else self.classes
        classes[0, 0] += self.finite
        self.sums.classes = tuple(tuple(row) for row in classes.tolist())
        return self.sums

    def _add_identical(self, part: slice, r: Floats) -> bool:
        """Add a block of equal, finite values, for which little is to be done; False if it is none."""
        a, b = self.reference.array, self.runtime.array
        if not self.same_dtype or a is None or b is None or not np.array_equal(a[part], b[part]):
            return False
        self.reference.floats(part, r)
        squares = _dot(r, r)
        if not math.isfinite(squares):
            return False
        sums, count = self.sums, len(r)
        self.finite += count
        sums.count += count
        sums.close += count
        sums.rr += squares
        sums.qq += squares
        sums.rq += squares
        sums.max_r = max(sums.max_r, _largest(r))
        return True

    def _add(self, part: slice, r: Floats, q: Floats, d: Floats, a: Floats) -> None:
        self.reference.floats(part, r)
        self.runtime.floats(part, q)
        np.subtract(q, r, out=d)
        squares = _dot(d, d)
        keep = None
        if not math.isfinite(squares) and not (np.isfinite(r).all() and np.isfinite(q).all()):
            keep = self._count_classes(r, q)
            r, q = r[keep], q[keep]
            d = q - r
            a = np.empty_like(d)
            squares = _dot(d, d)
        else:
            self.finite += len(d)
        if not len(d):
            return
        sums = self.sums
        sums.count += len(d)
        sums.dd += squares
        sums.rr += _dot(r, r)
        sums.qq += _dot(q, q)
        sums.rq += _dot(r, q)
        np.abs(d, out=d)
        sums.ad += float(np.add.reduce(d))
        largest = float(np.maximum.reduce(d))
        sums.max_d = max(sums.max_d, largest)
        sums.max_r = max(sums.max_r, _largest(r))
        sums.close += len(d) if largest <= self.atol else self._count_close(r, d, a)
        if self.bits is not None:
            sums.max_ulp = max(sums.max_ulp, self._ulp(self.bits, part, keep))

    def _count_close(self, r: Floats, d: Floats, a: Floats) -> int:
        np.abs(r, out=a)
        a *= self.rtol
        a += self.atol
        return int(np.count_nonzero(d <= a))

    def _count_classes(self, r: Floats, q: Floats) -> npt.NDArray[np.bool_]:
        kinds = _classes(r) * 4 + _classes(q)
        counts = np.bincount(kinds, minlength=16).reshape(4, 4)
        self.classes = counts if self.classes is None else self.classes + counts
        self.sums.close += int(np.trace(counts) - counts[0, 0])
        return kinds == 0

    def _ulp(self, bits: npt.NDArray[Any], part: slice, keep: npt.NDArray[np.bool_] | None) -> float:
        a = bits[part]
        b = self.reference_bits[part] if self.reference_bits is not None else None
        if b is None:
            b = _bits(self.reference.flat[part].to(self.dtype))
        return _distance(a, b) if keep is None else _distance(a[keep], b[keep])


def _work() -> list[Floats]:
    arrays = getattr(_local, "arrays", None)
    if arrays is None:
        arrays = _local.arrays = [np.empty(BLOCK) for _ in range(4)]
    return arrays


def _dot(x: Floats, y: Floats) -> float:
    rows = len(x) // _ROW
    if not rows:
        return float(np.dot(x, y))
    end = rows * _ROW
    total = float(np.vecdot(x[:end].reshape(rows, _ROW), y[:end].reshape(rows, _ROW)).sum())
    return total + float(np.dot(x[end:], y[end:]))


def _largest(x: Floats) -> float:
    return max(float(np.maximum.reduce(x)), -float(np.minimum.reduce(x)))


def _classes(x: Floats) -> npt.NDArray[np.int64]:
    """0 finite, 1 +inf, 2 −inf, 3 NaN."""
    return np.where(np.isnan(x), 3, np.where(np.isposinf(x), 1, np.where(np.isneginf(x), 2, 0)))


def _bits(flat: torch.Tensor) -> npt.NDArray[Any]:
    """The bits of floats as signed integers of their size."""
    import torch

    sizes = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return flat.view(sizes[flat.element_size()]).numpy()


def _distance(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> float:
    """Largest number of steps from one float to the other through all floats of their dtype; −0 and +0 are one.

    An IEEE 754 number is a sign and a magnitude whose bits, read as an integer, are in the order of the numbers
    (B. Dawson, "Comparing floating point numbers", 2012). So between numbers of one sign the steps are the difference
    of the bits; between numbers of different signs the way leads through 0 and is the sum of the magnitudes. Exact.
    """
    steps, signs = a - b, a ^ b
    crossing = 0
    if np.minimum.reduce(signs) < 0:
        at = np.flatnonzero(signs < 0)
        steps[at] = 0
        unsigned, magnitude = f"u{a.dtype.itemsize}", np.iinfo(a.dtype).max
        ways = (a[at] & magnitude).view(unsigned) + (b[at] & magnitude).view(unsigned)
        crossing = int(ways.max())
    return float(max(int(np.maximum.reduce(steps)), -int(np.minimum.reduce(steps)), crossing))
