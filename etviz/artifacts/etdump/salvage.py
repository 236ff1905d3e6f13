"""Finds the events in an ETDump whose writer stopped at an unsupported tensor type.

The writer fills its buffer from the end, so later events have lower addresses.
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np
import numpy.typing as npt

from etviz.artifacts.etdump.events import Events, read_events
from etviz.artifacts.flatbuffer import FlatBuffer, FlatTables, Ints
from etviz.errors import ArtifactError

_BLOCK_NAME: Final = re.compile(rb"\x07\x00\x00\x00(Default|Execute)\x00")
_STEP: Final = 1 << 18
_MOST_REJECTED: Final = 64
_EVENT_SIZE: Final = 8
# The vtable of an Event, and the fields that every event of this kind stores.
_PROFILE: Final = ((6, (4,)), {7})
_DEBUG: Final = ((10, (0, 0, 4)), {2})


def salvage_events(buffer: FlatBuffer) -> list[tuple[str, Events]]:
    at = np.concatenate([_candidates(buffer, start) for start in range(4, max(buffer.size, 5), _STEP)])
    at = _readable(buffer, at[::-1])
    if not len(at):
        return []
    starts = [match.start() for match in _BLOCK_NAME.finditer(buffer.data)][::-1]
    if not starts or starts[0] < at[0]:
        starts.insert(0, buffer.size)
    ends = np.searchsorted(-at, -np.array([*starts[1:], -1]))
    names = [buffer.text(start) if start < buffer.size else "" for start in starts]
    blocks = zip(names, read_events(FlatTables(buffer, at), ends.tolist()), strict=True)
    return [(name, events) for name, events in blocks if len(events.profile) or events.debug]


def _candidates(buffer: FlatBuffer, start: int) -> Ints:
    at = np.arange(start, min(start + _STEP, buffer.size - _EVENT_SIZE + 1), 4)
    vtable = at - buffer.gather(at, "<i4")
    inside = (vtable >= 0) & (vtable <= buffer.size - 10)
    at, vtable = at[inside], vtable[inside]
    kinds = [_matches(buffer, at, vtable, *kind) for kind in (_PROFILE, _DEBUG)]
    return at[kinds[0] | kinds[1]]


def _matches(
    buffer: FlatBuffer, at: Ints, vtable: Ints, shape: tuple[int, tuple[int, ...]], stored: set[int]
) -> npt.NDArray[np.bool_]:
    size, slots = shape
    matching = (buffer.gather(vtable, "<u2") == size) & (buffer.gather(vtable + 2, "<u2") == _EVENT_SIZE)
    for index, slot in enumerate(slots):
        matching &= buffer.gather(np.where(matching, vtable + 4 + 2 * index, 0), "<u2") == slot
    rows = np.flatnonzero(matching)
    inner = at[rows] + 4 + buffer.gather(at[rows] + 4, "<u4")
    matching[rows] = [_stores(buffer, position, stored) for position in inner.tolist()]
    return matching


def _stores(buffer: FlatBuffer, position: int, stored: set[int]) -> bool:
    try:
        table = FlatTables(buffer, np.array([position], np.int64))
        return all(table.has(field)[0] for field in stored)
    except ArtifactError:
        return False


def _readable(buffer: FlatBuffer, at: Ints) -> Ints:
    kept: list[Ints] = []
    pending = [at]
    rejected = 0
    while pending and rejected <= _MOST_REJECTED:
        part = pending.pop()
        try:
            read_events(FlatTables(buffer, part), [len(part)])
            kept.append(part)
        except ArtifactError:
            if len(part) == 1:
                rejected += 1
            else:
                middle = len(part) // 2
                pending += [part[middle:], part[:middle]]
    return np.concatenate(kept) if kept and rejected <= _MOST_REJECTED else np.empty(0, np.int64)
