"""The events of an ETDump in the order in which they ended."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from etviz.artifacts.flatbuffer import FlatTables, split
from etviz.artifacts.scalar_types import SCALAR_TYPES, scalar_type_name

_KINDS: Final = ("null", "int", "bool", "float", "double", "tensor", "tensor_list", "string")
_SCALAR_FIELDS: Final = {"int": (3, "<i8"), "float": (4, "<f4"), "double": (5, "<f8"), "bool": (6, "<u1")}
_MOST_DIMENSIONS: Final = 64
_TENSOR: Final = _KINDS.index("tensor")
_TENSOR_LIST: Final = _KINDS.index("tensor_list")


@dataclass(frozen=True, slots=True)
class Layout:
    """Strides in elements; `nbytes` is 0 for an unknown scalar type."""

    scalar_type: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    numel: int = field(init=False, compare=False, repr=False)
    nbytes: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        known, numel = SCALAR_TYPES.get(self.scalar_type), math.prod(self.sizes)
        object.__setattr__(self, "numel", numel)
        object.__setattr__(self, "nbytes", numel * known.itemsize if known else 0)

    @property
    def dtype(self) -> str:
        return scalar_type_name(self.scalar_type)


@dataclass(frozen=True, slots=True)
class TensorRef:
    """A place in a debug buffer; `offset` is -1 for a tensor without elements."""

    layout: Layout
    offset: int


class DebugEvent(NamedTuple):
    """A value that the runtime logged; chain -1 marks the framework's own, without an instruction id.

    `kind` is "tensor", "tensor_list", "int", "float", "double", "bool", "string", "null" or "unknown(…)"; the format
    can't hold a string's `value`. `is_output` marks outputs of the program, `restored` values whose place etviz
    derived.
    """

    chain: int
    instruction_id: int
    delegate_debug_id: int | str | None
    kind: str
    value: Any
    is_output: bool
    restored: bool = False

    @property
    def tensors(self) -> tuple[TensorRef, ...]:
        if isinstance(self.value, TensorRef):
            return (self.value,)
        return self.value if isinstance(self.value, tuple) else ()


@dataclass(frozen=True, slots=True, eq=False)
class ProfileEvents:
    """Timed events as columns.

    `chain` is -1 for the framework; `name` is None inside a delegate, `delegate_debug_id` int, str or None; `start` and
    `end` are in units of the device's clock.
    """

    name: npt.NDArray[np.object_]
    chain: npt.NDArray[np.int64]
    instruction_id: npt.NDArray[np.int64]
    delegate_debug_id: npt.NDArray[np.object_]
    metadata: npt.NDArray[np.object_]
    start: npt.NDArray[np.uint64]
    end: npt.NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.name)

    def rows(self) -> Iterator[tuple[str | None, int, int]]:
        return zip(self.name.tolist(), self.chain.tolist(), self.instruction_id.tolist(), strict=True)

    def take(self, rows: npt.NDArray[Any]) -> ProfileEvents:
        return ProfileEvents(*(getattr(self, column.name)[rows] for column in fields(self)))


@dataclass(frozen=True, slots=True)
class Events:
    profile: ProfileEvents
    debug: tuple[DebugEvent, ...]


def read_events(events: FlatTables, ends: Sequence[int]) -> list[Events]:
    timed, logged = events.table(0), events.table(2)
    timed_rows, logged_rows = np.flatnonzero(timed.present), np.flatnonzero(logged.present)
    profile = _read_profile(timed.take(timed_rows))
    debug = _read_debug(logged.take(logged_rows))
    cuts, debug_cuts = (np.searchsorted(rows, ends).tolist() for rows in (timed_rows, logged_rows))
    profiles = split(range(len(profile)), cuts, lambda piece: profile.take(np.asarray(piece, np.int64)))
    return [Events(*part) for part in zip(profiles, split(debug, debug_cuts, tuple), strict=True)]


def _delegate_ids(tables: FlatTables, int_field: int) -> npt.NDArray[np.object_]:
    numbers = tables.scalar(int_field, "<i4", -1)
    ids = tables.strings(int_field + 1)
    rows = numbers != -1
    ids[rows] = numbers[rows].tolist()
    return ids


def _read_profile(tables: FlatTables) -> ProfileEvents:
    stored = tables.has(5)
    metadata = np.full(len(tables), None, object)
    for row, view in enumerate(tables.vectors(5, "<u1").views()):
        if stored[row]:
            tables.buffer.spend(len(view), int(tables.at[row]))
            metadata[row] = bytes(view)
    return ProfileEvents(
        name=tables.strings(0),
        chain=tables.scalar(1, "<i4").astype(np.int64),
        instruction_id=tables.scalar(2, "<i4", -1).astype(np.int64),
        delegate_debug_id=_delegate_ids(tables, 3),
        metadata=metadata,
        start=tables.scalar(6, "<u8"),
        end=tables.scalar(7, "<u8"),
    )


def _read_debug(tables: FlatTables) -> list[DebugEvent]:
    entries = tables.table(2)
    kinds = entries.scalar(0, "<i1")
    output = entries.table(7).scalar(0, "<u1") != 0
    columns = zip(
        tables.scalar(0, "<u8").view("<i8").tolist(),
        tables.scalar(1, "<i4", -1).tolist(),
        _delegate_ids(tables, 3).tolist(),
        (_KINDS[kind] if 0 <= kind < len(_KINDS) else f"unknown({kind})" for kind in kinds.tolist()),
        _read_values(entries, kinds).tolist(),
        output.tolist(),
        strict=True,
    )
    return [DebugEvent(*column) for column in columns]


def _read_values(entries: FlatTables, kinds: npt.NDArray[np.int8]) -> npt.NDArray[np.object_]:
    values = np.full(len(entries), None, object)
    for kind, (index, dtype) in _SCALAR_FIELDS.items():
        rows = np.flatnonzero(kinds == _KINDS.index(kind))
        numbers = _stored(entries.take(rows), index).scalar(0, dtype)
        values[rows] = (numbers != 0).tolist() if kind == "bool" else numbers.tolist()
    rows = np.flatnonzero(kinds == _TENSOR)
    for row, tensor in zip(rows.tolist(), read_tensors(_stored(entries.take(rows), 1)), strict=True):
        values[row] = tensor
    rows = np.flatnonzero(kinds == _TENSOR_LIST)
    lists = _stored(entries.take(rows), 2).vectors(0)
    tensors = split(read_tensors(lists.tables()), lists.ends().tolist(), tuple)
    for row, value in zip(rows.tolist(), tensors, strict=True):
        values[row] = value
    return values


def _stored(entries: FlatTables, field: int) -> FlatTables:
    tables = entries.table(field)
    entries.buffer.require(tables.present, entries.at, "a logged value is missing")
    return tables


def read_tensors(tables: FlatTables) -> list[TensorRef]:
    sizes, strides = tables.vectors(1, "<i8"), tables.vectors(2, "<i8")
    rank = np.maximum(sizes.length, strides.length)
    tables.buffer.require(rank <= _MOST_DIMENSIONS, tables.at, "a tensor has too many dimensions")
    columns = zip(
        tables.scalar(0, "<i1").tolist(),
        sizes.tuples(),
        strides.tuples(),
        tables.scalar(3, "<i8").tolist(),
        strict=True,
    )
    layouts: dict[tuple[Any, ...], Layout] = {}
    refs = []
    for scalar_type, extents, steps, offset in columns:
        key = scalar_type, extents, steps
        layout = layouts.get(key)
        if layout is None:
            layout = layouts[key] = Layout(scalar_type, extents, steps)
        refs.append(TensorRef(layout, offset))
    return refs
