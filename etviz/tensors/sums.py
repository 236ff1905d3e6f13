"""One pass over a pair of tensors that gathers everything the metrics need.

Non-finite elements are counted by class and left out of the sums; they never become 0.
"""

from __future__ import annotations

import math
import threading
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch

from etviz.native import pair_sums
from etviz.tensors.blocks import BLOCK, Floats, class_counts, dot, dtype_name, equal, flat, floats, is_small, pairs
from etviz.tensors.metrics import NAN, TOLERANCES, Sums

_ROW: Final = 1 << 13
"""Elements per dot product: beyond 10,000 OpenBLAS starts threads that compete with torch's."""

_NONE: Final = ((0,) * 4,) * 3
_SMALL: Final = 2.0**-480
_LARGE: Final = 2.0**480

_local = threading.local()


def sums_of(reference: torch.Tensor, runtime: torch.Tensor, scale: float | None = None) -> Sums:
    """Gather the sums of two tensors of the same shape, any real dtype, any strides.

    An element is close if it is within `TOLERANCES` of the runtime's dtype or one step, `scale`, of its grid. Raises
    `ValueError` if the shapes differ, since broadcasting would compare an element repeatedly.
    """
    if reference.shape != runtime.shape:
        raise ValueError(f"shapes differ: reference {tuple(reference.shape)}, runtime {tuple(runtime.shape)}")
    rtol, atol = TOLERANCES.get(dtype_name(runtime.dtype), (0.0, 0.0))
    if scale is not None:
        atol = max(atol, 1.0001 * abs(scale))
    sums = _compiled(reference, runtime, rtol, atol) or _of_equal_flags(reference, runtime)
    if sums is None:
        with np.errstate(invalid="ignore", over="ignore"):
            sums = _Pass(reference, runtime, rtol, atol).gather()
    if _is_extreme(sums.max_d) or _is_extreme(sums.max_r):
        _scale(sums, reference, runtime)
    return sums


def _is_extreme(value: float) -> bool:
    return 0 < value < _SMALL or _LARGE < value < math.inf


def _compiled(reference: torch.Tensor, runtime: torch.Tensor, rtol: float, atol: float) -> Sums | None:
    count = runtime.numel()
    if not count or reference.dtype != torch.float32 or runtime.dtype != torch.float32:
        return None
    r, q = reference.contiguous(), runtime.contiguous()
    raw = pair_sums(r.data_ptr(), q.data_ptr(), count, rtol, atol)
    if raw is None:
        return None
    sums = Sums(count, count, raw.dd, raw.ad, raw.max_d, raw.rr, raw.qq, raw.rq, raw.max_r, raw.close)
    sums.max_ulp, sums.classes = float(raw.max_ulp), ((count, 0, 0, 0), *_NONE)
    return sums


def _of_equal_flags(reference: torch.Tensor, runtime: torch.Tensor) -> Sums | None:
    if not (reference.dtype == runtime.dtype == torch.bool and equal(reference, runtime)):
        return None
    count, ones = runtime.numel(), float(np.count_nonzero(runtime.numpy()))
    sums = Sums(count, count, 0.0, 0.0, 0.0, ones, ones, ones, float(ones > 0), count)
    sums.max_ulp, sums.classes = NAN, ((count, 0, 0, 0), *_NONE)
    return sums


class _Operand:
    def __init__(self, tensor: torch.Tensor) -> None:
        self.flat = flat(tensor)
        self.array: npt.NDArray[Any] | None = None if is_small(tensor) else self.flat.numpy()

    def floats(self, part: slice, out: Floats) -> Floats:
        if self.array is None:
            return floats(self.flat[part], out)
        np.copyto(out, self.array[part], casting="unsafe")
        return out


class _Pass:
    def __init__(self, reference: torch.Tensor, runtime: torch.Tensor, rtol: float, atol: float) -> None:
        self.reference, self.runtime = _Operand(reference), _Operand(runtime)
        self.same_dtype = reference.dtype == runtime.dtype
        self.bits = _bits(self.runtime.flat) if runtime.dtype.is_floating_point else None
        self.reference_bits = _bits(self.reference.flat) if self.bits is not None and self.same_dtype else None
        self.rtol, self.atol = rtol, atol
        self.sums = Sums(elements=runtime.numel(), max_ulp=NAN if self.bits is None else 0.0)
        self.classes = np.zeros((4, 4), np.int64)

    def gather(self) -> Sums:
        work = _work()
        for start in range(0, self.sums.elements, BLOCK):
            part = slice(start, min(start + BLOCK, self.sums.elements))
            r, q, d, a = (array[: part.stop - start] for array in work)
            if not self._add_identical(part, r):
                self._add(part, r, q, d, a)
        self.sums.classes = tuple(tuple(row) for row in self.classes.tolist())
        return self.sums

    def _add_identical(self, part: slice, r: Floats) -> bool:
        a, b = self.reference.array, self.runtime.array
        if not self.same_dtype or a is None or b is None or not np.array_equal(a[part], b[part]):
            return False
        self.reference.floats(part, r)
        squares = _dot(r, r)
        if not math.isfinite(squares):
            return False
        self._take(r, squares, squares, squares)
        self.sums.close += len(r)
        self.classes[0, 0] += len(r)
        return True

    def _add(self, part: slice, r: Floats, q: Floats, d: Floats, a: Floats) -> None:
        self.reference.floats(part, r)
        self.runtime.floats(part, q)
        np.subtract(q, r, out=d)
        squares, keep, sums = _dot(d, d), None, self.sums
        if math.isfinite(squares) or (np.isfinite(r).all() and np.isfinite(q).all()):
            self.classes[0, 0] += len(d)
        else:
            counts = class_counts(r, q)
            self.classes += counts
            sums.close += int(np.trace(counts) - counts[0, 0])
            keep = np.isfinite(r) & np.isfinite(q)
            r, q = r[keep], q[keep]
            d = q - r
            a = np.empty_like(d)
            squares = _dot(d, d)
        if not len(d):
            return
        self._take(r, _dot(r, r), _dot(q, q), _dot(r, q))
        sums.dd += squares
        np.abs(d, out=d)
        sums.ad += float(np.add.reduce(d))
        largest = float(np.maximum.reduce(d))
        sums.max_d = max(sums.max_d, largest)
        sums.close += len(d) if largest <= self.atol else self._count_close(r, d, a)
        if self.bits is not None:
            sums.max_ulp = max(sums.max_ulp, self._ulp(self.bits, part, keep))

    def _take(self, r: Floats, rr: float, qq: float, rq: float) -> None:
        sums = self.sums
        sums.count += len(r)
        sums.rr, sums.qq, sums.rq = sums.rr + rr, sums.qq + qq, sums.rq + rq
        sums.max_r = max(sums.max_r, float(np.maximum.reduce(r)), -float(np.minimum.reduce(r)))

    def _count_close(self, r: Floats, d: Floats, a: Floats) -> int:
        np.abs(r, out=a)
        a *= self.rtol
        a += self.atol
        return int(np.count_nonzero(d <= a))

    def _ulp(self, bits: npt.NDArray[Any], part: slice, keep: npt.NDArray[np.bool_] | None) -> float:
        a, b = bits[part], self.reference_bits
        b = _bits(self.reference.flat[part].to(self.runtime.flat.dtype)) if b is None else b[part]
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


def _bits(flat: torch.Tensor) -> npt.NDArray[Any]:
    sizes = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return flat.view(sizes[flat.element_size()]).numpy()


def _distance(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> float:
    """Largest number of floats of the dtype from one float to the other; −0 equals +0.

    Magnitudes are ordered as their bits, read as integers (B. Dawson, "Comparing floating point numbers", 2012).
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


def _scale(sums: Sums, reference: torch.Tensor, runtime: torch.Tensor) -> None:
    d_unit, r_unit = _unit(sums.max_d), _unit(sums.max_r)
    dd = rr = qq = rq = 0.0
    with np.errstate(invalid="ignore", over="ignore"):
        for r, q in pairs(reference, runtime):
            d = (q - r) / d_unit
            dd += dot(d, d)
            r, q = r / r_unit, q / r_unit
            rr, qq, rq = rr + dot(r, r), qq + dot(q, q), rq + dot(r, q)
    sums.dd, sums.rr, sums.qq, sums.rq = dd, rr, qq, rq
    sums.d_unit, sums.r_unit = d_unit, r_unit


def _unit(largest: float) -> float:
    if not 0 < largest < math.inf:
        return 1.0
    return math.ldexp(1.0, max(-1021, math.frexp(largest)[1] - 1))
