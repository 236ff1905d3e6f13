"""Compiled passes; NumPy is the fallback without a C compiler."""

from __future__ import annotations

import ctypes
import functools
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

LIBRARY: Final = Path(__file__).parent / "_native.so"


class PairSums(ctypes.Structure):
    """Sums over a pair with ``d = q − r``; the names are as in `metrics.Sums`."""

    _fields_ = (
        ("dd", ctypes.c_double),
        ("rr", ctypes.c_double),
        ("qq", ctypes.c_double),
        ("rq", ctypes.c_double),
        ("ad", ctypes.c_double),
        ("max_d", ctypes.c_double),
        ("max_r", ctypes.c_double),
        ("close", ctypes.c_int64),
        ("max_ulp", ctypes.c_uint32),
    )


class Differences(ctypes.Structure):
    _fields_ = (("squares", ctypes.c_double), ("of_base", ctypes.c_double), ("largest", ctypes.c_double))


class Series(ctypes.Structure):
    """Sums over finite elements; `zeros` counts all."""

    _fields_ = (
        ("low", ctypes.c_double),
        ("high", ctypes.c_double),
        ("sum", ctypes.c_double),
        ("squares", ctypes.c_double),
        ("spread", ctypes.c_double),
        ("count", ctypes.c_int64),
        ("zeros", ctypes.c_int64),
    )


class Bins(ctypes.Structure):
    """`number` + 1 edges, bins per unit (0: binary search), counts."""

    _fields_ = (
        ("edges", ctypes.c_void_p),
        ("scale", ctypes.c_double),
        ("number", ctypes.c_int64),
        ("counts", ctypes.c_void_p),
    )


class Powers(NamedTuple):
    squares: float
    fourths: float
    largest: float


class Elements(NamedTuple):
    address: int
    dtype: str


NOTHING: Final = Elements(0, "float64")
_OPENMP: Final = re.compile(r"/\S*lib[gi]?omp\S*")
KINDS: Final = {"float32": 0, "float64": 1, "int8": 2, "uint8": 3, "bool": 3, "int16": 4, "int32": 5, "int64": 6}


@functools.cache
def _library() -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL(str(LIBRARY))
    except OSError:
        return None
    pointer, size, real, kind = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double, ctypes.c_int
    pair = [pointer, kind, pointer, kind, size]
    try:
        library.etviz_sums_f32.argtypes = [pointer, pointer, size, real, real, ctypes.POINTER(PairSums)]
        library.etviz_squares_f32.argtypes = [pointer, pointer, size, pointer]
        library.etviz_sums_f32.restype = library.etviz_squares_f32.restype = ctypes.c_int
        library.etviz_powers.argtypes, library.etviz_powers.restype = [pointer, kind, size, pointer], None
        library.etviz_describe.argtypes = [*pair, ctypes.POINTER(Series), pointer]
        library.etviz_count.argtypes = [*pair, ctypes.POINTER(Series), ctypes.POINTER(Bins)]
        library.etviz_describe.restype = library.etviz_count.restype = None
        library.etviz_errors_of_sums.argtypes = [pointer, size, size, kind, real, pointer]
        library.etviz_normalized.argtypes = [pointer, pointer, pointer, size, size, kind, pointer, pointer, pointer]
        library.etviz_normalized.restype = kind
        library.etviz_sizes.argtypes = [pointer, pointer, pointer, kind, pointer, real, real, size, pointer]
        library.etviz_inexact.argtypes = [pointer, pointer, size, pointer]
        library.etviz_sizes.restype, library.etviz_inexact.restype = kind, None
        library.etviz_narrow.argtypes = [pointer, kind, pointer, size, pointer, ctypes.POINTER(Differences)]
        library.etviz_dot.argtypes, library.etviz_dot.restype = [pointer, pointer, size], real
        library.etviz_narrow.restype = kind
        library.etviz_to_grid.argtypes = [pointer, pointer, size, pointer, pointer, kind]
        library.etviz_from_grid.argtypes = [pointer, size, kind, ctypes.c_float, ctypes.c_float, pointer]
        library.etviz_errors_of_sums.restype = ctypes.c_int
        library.etviz_read.argtypes, library.etviz_read.restype = [kind, pointer, size, size], ctypes.c_int
        library.etviz_share_threads.argtypes, library.etviz_share_threads.restype = [kind], None
        library.etviz_to_grid.restype = library.etviz_from_grid.restype = ctypes.c_int
    except AttributeError:  # compiled by an older etviz
        return None
    library.etviz_share_threads(_has_one_pool())
    if hasattr(os, "register_at_fork"):  # a fork has no threads, but OpenMP would wait for them
        os.register_at_fork(after_in_child=functools.partial(library.etviz_share_threads, 0))
    return library


def _has_one_pool() -> bool:
    # torch and the compiled passes start their threads with the same OpenMP
    try:
        maps = Path("/proc/self/maps").read_text("utf-8", "replace")
    except OSError:
        return False
    return len(set(_OPENMP.findall(maps))) == 1


def available() -> bool:
    return _library() is not None


def pair_sums(reference: int, runtime: int, count: int, rtol: float, atol: float) -> PairSums | None:
    """Sums of two flat, contiguous float32 arrays; None if an element is non-finite, or without compiled pass."""
    library = _library()
    if library is None:
        return None
    sums = PairSums()
    return sums if library.etviz_sums_f32(reference, runtime, count, rtol, atol, ctypes.byref(sums)) else None


def pair_squares(reference: int, runtime: int, count: int) -> tuple[float, float] | None:
    library, sums = _library(), (ctypes.c_double * 2)()
    finite = library is not None and library.etviz_squares_f32(reference, runtime, count, sums)
    return (sums[0], sums[1]) if finite else None


def powers(elements: Elements, count: int) -> Powers | None:
    library, sums = _library(), (ctypes.c_double * 3)()
    if library is None:
        return None
    library.etviz_powers(elements.address, {"float32": 4, "float64": 8}[elements.dtype], count, sums)
    return Powers(sums[0], sums[1], sums[2] ** 0.5)


def describe(reference: Elements, runtime: Elements, count: int, series: Any, classes: int) -> bool:
    """Add `count` pairs to the series of reference, runtime and error; False without a compiled pass.

    `classes` is the address of 4 × 4 int64: elements by class of the reference (row) and of the runtime (column).
    """
    library = _library()
    if library is None:
        return False
    library.etviz_describe(*_kind(reference), *_kind(runtime), count, series, classes)
    return True


def count(reference: Elements, runtime: Elements, number: int, series: Any, bins: Any) -> bool:
    library = _library()
    if library is None:
        return False
    library.etviz_count(*_kind(reference), *_kind(runtime), number, series, bins)
    return True


def errors_of_sums(terms: int, rows: int, count: int, bits: int, unit: float, out: int) -> bool:
    """Write four numbers of `etviz.evaluation.law` for each of the float64 `rows` of `count` terms.

    False if a square is not finite, or without a pass.
    """
    library = _library()
    return library is not None and bool(library.etviz_errors_of_sums(terms, rows, count, bits, unit, out))


def sizes_of_norm(
    x: int, values: int, weight: int, rows: int, count: int, bits: int, law: Sequence[float], out: int, statistics: int
) -> bool:
    """Of float32 rows, with the numbers of repeats.c; False as above."""
    library, given = _library(), (ctypes.c_double * 8)(*law)
    return library is not None and bool(
        library.etviz_normalized(x, values, weight or None, rows, count, bits, given, out, statistics)
    )


def sizes_of_function(
    values: int, exact: int, moved: Sequence[int], operand: int, part: float, half: float, count: int, out: int
) -> bool:
    """False if a number is not finite, or without a pass."""
    library, others = _library(), (ctypes.c_void_p * len(moved))(*moved)
    return library is not None and bool(
        library.etviz_sizes(values, exact, others, len(moved), operand or None, part, half, count, out)
    )


def sizes_of_inexact(values: int, exact: int, count: int, out: int) -> bool:
    """Write the magnitudes of those that are not `exact`."""
    library = _library()
    if library is None:
        return False
    library.etviz_inexact(values, exact, count, out)
    return True


def narrow(x: Elements, base: int, count: int, out: int) -> Differences | None:
    """Write floating `x` less its float64 `base` as float32; either address may be 0."""
    library, found = _library(), Differences()
    given = x.address, int(x.dtype == "float32"), base or None, count, out or None
    return found if library is not None and library.etviz_narrow(*given, ctypes.byref(found)) else None


def dot(x: int, y: int, count: int) -> float | None:
    library = _library()
    return library.etviz_dot(x, y, count) if library is not None else None


def to_grid(x: int, moves: int, count: int, grid: Sequence[float], out: int, dtype: str) -> bool:
    """`grid` has the part of `moves` that is added, 1/step, zero point, first and last; False without a pass."""
    library, given = _library(), (ctypes.c_float * 5)(*grid)
    return library is not None and bool(library.etviz_to_grid(x, moves, count, given, out, KINDS.get(dtype, -1)))


def from_grid(integers: int, count: int, dtype: str, scale: float, zero: float, out: int) -> bool:
    library = _library()
    return library is not None and bool(
        library.etviz_from_grid(integers, count, KINDS.get(dtype, -1), scale, zero, out)
    )


def read(file: int, start: int, out: int, count: int) -> bool:
    """False if the open file has fewer bytes, or without a pass."""
    library = _library()
    return library is not None and bool(library.etviz_read(file, out, start, count))


def _kind(elements: Elements) -> tuple[int, int]:
    return elements.address, KINDS[elements.dtype]
