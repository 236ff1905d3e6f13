"""Checked, vectorised reading of flatbuffers.

Upstream's runtime trusts every offset and length; this reader checks each. The schema's depth is fixed, so cyclic
offsets can't loop. A budget proportional to the file bounds the work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from etviz.errors import ArtifactError

Ints = npt.NDArray[np.int64]

_SMALLEST_BUDGET = 1 << 16
_LARGEST_BUDGET = 1 << 27
_COST_OF_A_TABLE = 64


class FlatBuffer:
    def __init__(self, data: Any, path: str, what: str, advice: str) -> None:
        self.data = memoryview(data)
        self.size = len(self.data)
        self.path = path
        self._what = what
        self._advice = advice
        self._left = min(max(16 * self.size, _SMALLEST_BUDGET), _LARGEST_BUDGET)
        self._views: dict[str, npt.NDArray[Any]] = {}
        self._strings: dict[bytes, str] = {}

    def damaged(self, problem: str, where: int) -> ArtifactError:
        return ArtifactError(
            self.path, f"this {self._what} is damaged at byte {where}: {problem}", self._advice, where=where
        )

    def spend(self, cost: int, where: int) -> None:
        self._left -= cost
        if self._left < 0:
            raise self.damaged("its tables claim far more content than the file can hold", where)

    def require(self, ok: npt.NDArray[np.bool_], at: Ints, problem: str) -> None:
        if not ok.all():
            raise self.damaged(problem, int(at[np.argmin(ok)]))

    def gather(self, at: Ints, dtype: str) -> npt.NDArray[Any]:
        view = self._views.get(dtype)
        if view is None:
            length = max(self.size - np.dtype(dtype).itemsize + 1, 0)
            view = np.ndarray((length,), dtype, self.data if length else b"", strides=(1,) if length else None)
            self._views[dtype] = view
        if at.size:
            self.require((at >= 0) & (at < len(view)), at, "an offset points outside of the file")
        return view[at]

    def root(self, at: int = 0) -> FlatTables:
        start = np.array([at], np.int64)
        return FlatTables(self, start + self.gather(start, "<u4"))

    def text(self, at: int) -> str:
        length = int.from_bytes(self.data[at : at + 4], "little")
        end = at + 4 + length
        if end >= self.size or self.data[end] != 0:
            raise self.damaged("a string does not end inside the file", at)
        self.spend(length, at)
        raw = bytes(self.data[at + 4 : end])
        return self._strings.setdefault(raw, raw.decode("utf-8", "backslashreplace"))


class FlatTables:
    """Tables of one type at (n,) byte positions; -1 is an absent table of defaults."""

    def __init__(self, buffer: FlatBuffer, at: Ints) -> None:
        self.buffer = buffer
        self.at = at
        self.present = at >= 0
        here = at[self.present]
        vtable = here - buffer.gather(here, "<i4")
        vtable_size = buffer.gather(vtable, "<u2").astype(np.int64)
        inline_size = buffer.gather(vtable + 2, "<u2").astype(np.int64)
        fits = (vtable_size >= 4) & (vtable + vtable_size <= buffer.size)
        buffer.require(fits, here, "a table's field list does not fit")
        fits = (inline_size >= 4) & (here + inline_size <= buffer.size)
        buffer.require(fits, here, "a table does not fit")
        self._vtable = self._spread(vtable)
        self._vtable_size = self._spread(vtable_size)
        self._inline_size = self._spread(inline_size)

    def __len__(self) -> int:
        return len(self.at)

    def _spread(self, values: Ints) -> Ints:
        full = np.zeros(len(self.at), np.int64)
        full[self.present] = values
        return full

    def take(self, rows: npt.NDArray[Any]) -> FlatTables:
        return FlatTables(self.buffer, self.at[rows])

    def _field(self, index: int, width: int) -> Ints:
        slot = 4 + 2 * index
        at = np.full(len(self.at), -1, np.int64)
        rows = np.flatnonzero(self._vtable_size >= slot + 2)
        inside = self.buffer.gather(self._vtable[rows] + slot, "<u2").astype(np.int64)
        rows, inside = rows[inside > 0], inside[inside > 0]
        fits = (inside >= 4) & (inside + width <= self._inline_size[rows])
        self.buffer.require(fits, self.at[rows], "a field lies outside of its table")
        at[rows] = self.at[rows] + inside
        return at

    def has(self, index: int) -> npt.NDArray[np.bool_]:
        return self._field(index, 1) >= 0

    def scalar(self, index: int, dtype: str, default: float = 0) -> npt.NDArray[Any]:
        at = self._field(index, np.dtype(dtype).itemsize)
        values = np.full(len(at), default, dtype)
        rows = at >= 0
        values[rows] = self.buffer.gather(at[rows], dtype)
        return values

    def reference(self, index: int) -> Ints:
        """Target of an offset field, -1 where it is not stored."""
        at = self._field(index, 4)
        rows = at >= 0
        step = self.buffer.gather(at[rows], "<u4")
        self.buffer.require(step >= 4, at[rows], "an offset points into itself")
        at[rows] += step
        return at

    def table(self, index: int) -> FlatTables:
        return FlatTables(self.buffer, self.reference(index))

    def strings(self, index: int) -> npt.NDArray[np.object_]:
        """(n,) of str, None where it is not stored."""
        at = self.reference(index)
        known: dict[int, str | None] = {-1: None}
        for position in at.tolist():
            if position not in known:
                known[position] = self.buffer.text(position)
        texts = np.empty(len(at), object)
        texts[:] = [known[position] for position in at.tolist()]
        return texts

    def vectors(self, index: int, dtype: str = "<u4") -> Vectors:
        """A vector field of scalars, or of tables with the default `dtype`."""
        at = self.reference(index)
        length = np.zeros(len(at), np.int64)
        rows = at >= 0
        length[rows] = self.buffer.gather(at[rows], "<u4")
        fits = at + 4 + length * np.dtype(dtype).itemsize <= self.buffer.size
        self.buffer.require(fits | ~rows, at, "a list does not end inside the file")
        return Vectors(self.buffer, at + 4, length, dtype)


@dataclass(frozen=True, slots=True)
class Vectors:
    """A vector in each of n tables from byte position `start` (n,); absent vectors are empty."""

    buffer: FlatBuffer
    start: Ints
    length: Ints
    dtype: str

    def ends(self) -> Ints:
        return np.cumsum(self.length)

    def positions(self) -> Ints:
        total = int(self.length.sum())
        first = self.ends() - self.length
        width = np.dtype(self.dtype).itemsize
        return np.repeat(self.start - first * width, self.length) + np.arange(total) * width

    def _spend(self, cost: int) -> None:
        at = int(self.start[0]) if len(self.start) else 0
        self.buffer.spend(int(self.length.sum()) * cost, at)

    def flat(self) -> npt.NDArray[Any]:
        self._spend(np.dtype(self.dtype).itemsize)
        return self.buffer.gather(self.positions(), self.dtype)

    def tuples(self) -> list[tuple[Any, ...]]:
        values, ends = self.flat().tolist(), self.ends().tolist()
        return split(values, ends, tuple)

    def strings(self) -> list[list[str]]:
        at = self.positions()
        texts = [self.buffer.text(int(place)) for place in (at + self.buffer.gather(at, "<u4")).tolist()]
        return split(texts, self.ends().tolist(), list)

    def tables(self) -> FlatTables:
        self._spend(_COST_OF_A_TABLE)
        at = self.positions()
        step = self.buffer.gather(at, "<u4")
        self.buffer.require(step >= 4, at, "an offset points into itself")
        return FlatTables(self.buffer, at + step)

    def views(self) -> list[memoryview]:
        width = np.dtype(self.dtype).itemsize
        pairs = zip(self.start.tolist(), self.length.tolist(), strict=True)
        return [self.buffer.data[start : start + length * width] for start, length in pairs]


def split(values: Sequence[Any], ends: Sequence[int], make: Callable[[Sequence[Any]], Any]) -> list[Any]:
    """Cut `values` at each of `ends` and apply `make` to every piece.

    Examples
    --------
    >>> split([1, 2, 3], [2, 2, 3], tuple)
    [(1, 2), (), (3,)]
    """
    pieces: list[Any] = []
    start = 0
    for end in ends:
        pieces.append(make(values[start:end]))
        start = end
    return pieces
