"""Restores float16 and bfloat16 values, which the runtime writes into the debug buffer and fails to describe.

The timed calls and the program give the offsets, if every described value lies exactly at its derived offset.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from etviz.artifacts.etdump.debug_buffer import DebugBuffer
from etviz.artifacts.etdump.etdump import DebugEvent, ETDump, Layout, RunBlock, TensorRef
from etviz.artifacts.program.logged import logged_by
from etviz.artifacts.program.program import Method, TensorSpec, dense_strides
from etviz.artifacts.scalar_types import SCALAR_TYPES

# What ETDumpGen can describe.
_DESCRIBED: Final = frozenset((0, 1, 2, 3, 4, 6, 7, 11, 22, 27))
_ALIGNMENT: Final = 64
_MALLOC_ALIGNMENT: Final = 16
_CALLS: Final = ("OPERATOR_CALL", "DELEGATE_CALL")
_EXECUTED: Final = "Method::execute"


@dataclass(frozen=True, slots=True)
class _LostValue:
    position: tuple[int, int] | None
    specs: tuple[TensorSpec, ...]

    @property
    def lost(self) -> bool:
        return any(spec.scalar_type not in _DESCRIBED for spec in self.specs)


class _MismatchError(Exception):
    pass


def restore_lost_values(dump: ETDump, method: Method, buffer: DebugBuffer) -> ETDump:
    """All executions must be of `method`.

    Lists of 16-bit tensors stay lost: the runtime writes only the first.
    """
    if not dump.problems:
        return dump
    try:
        blocks, count = _restore(dump, method, buffer)
    except _MismatchError as reason:
        note = f"The lost values could not be restored from the debug buffer: {reason}."
        return replace(dump, problems=[*dump.problems, note])
    what = "1 lost value was" if count == 1 else f"{count} lost values were"
    note = f"{what} restored: the program tells their places in the debug buffer."
    return replace(dump, blocks=blocks, problems=[dump.problems[0], note])


def _restore(dump: ETDump, method: Method, buffer: DebugBuffer) -> tuple[tuple[RunBlock, ...], int]:
    known = [ref.offset for ref in dump.tensor_refs() if ref.offset >= 0]
    phases = {offset % _ALIGNMENT for offset in known}
    if len(phases) > 1:
        return _follow(dump, method, buffer, 0, 1)
    starts = sorted(phases) or range(0, _ALIGNMENT, _MALLOC_ALIGNMENT)
    ways = []
    reason = _MismatchError("no value is described that could tell where the first one begins")
    for start in starts:
        try:
            ways.append(_follow(dump, method, buffer, start, _ALIGNMENT))
        except _MismatchError as mismatch:
            reason = mismatch
    if len(ways) != 1:
        raise reason
    return ways[0]


def _follow(
    dump: ETDump, method: Method, buffer: DebugBuffer, start: int, alignment: int
) -> tuple[tuple[RunBlock, ...], int]:
    cursor = _Cursor(start, alignment)
    blocks = []
    restored: list[DebugEvent] = []
    for block in dump.blocks:
        debug = tuple(_follow_block(block, method, cursor))
        restored += [event for event in debug if event.restored]
        blocks.append(replace(block, debug=debug))
    if cursor.at > buffer.size:
        raise _MismatchError("the debug buffer is too small for them")
    if restored and buffer.is_blank(ref for event in restored for ref in event.tensors):
        raise _MismatchError("there is nothing but zeros")
    if restored and not any(ref.offset >= 0 for ref in dump.tensor_refs()):
        _check_outside(buffer, cursor.written)
    return tuple(blocks), len(restored)


class _Cursor:
    def __init__(self, start: int, alignment: int) -> None:
        self.at = start
        self.written: list[tuple[int, int]] = []
        self._start = start
        self._alignment = alignment

    def write(self, nbytes: int) -> int:
        if not nbytes:
            return -1
        place = self._start + -(-(self.at - self._start) // self._alignment) * self._alignment
        self.at = place + nbytes
        self.written.append((place, self.at))
        return place


def _follow_block(block: RunBlock, method: Method, cursor: _Cursor) -> Iterator[DebugEvent]:
    kept = iter(block.debug)
    for expected in _expectations(block, method):
        if expected.lost:
            yield from _lost_event(expected, cursor)
            continue
        for event in kept:
            _meet(event, cursor)
            yield event
            if event.delegate_debug_id is None:
                _compare(event, expected)
                break
        else:
            raise _MismatchError("the ETDump has fewer values than the program logs")
    for event in kept:
        if event.delegate_debug_id is None:
            raise _MismatchError("the ETDump has more values than the program logs")
        _meet(event, cursor)
        yield event


def _expectations(block: RunBlock, method: Method) -> Iterator[_LostValue]:
    for name, chain, index in block.profile.rows():
        if name == _EXECUTED:
            for value in method.outputs:
                yield _LostValue(None, _specs(method, value))
        elif name in _CALLS:
            instruction = method.by_position.get((chain, index))
            if instruction is None:
                raise _MismatchError(f"the program has no instruction {index}")
            for value in logged_by(method, instruction):
                yield _LostValue((chain, index), _specs(method, value))


def _specs(method: Method, value: int) -> tuple[TensorSpec, ...]:
    specs = (method.values[tensor].tensor for tensor in method.tensors(value))
    return tuple(spec for spec in specs if spec is not None)


def _meet(event: DebugEvent, cursor: _Cursor) -> None:
    for ref in event.tensors:
        if cursor.write(ref.layout.nbytes) != ref.offset:
            raise _MismatchError(f"the value at offset {ref.offset} is not where the program would log it")


def _compare(event: DebugEvent, expected: _LostValue) -> None:
    position = None if event.is_output or event.chain < 0 else (event.chain, event.instruction_id)
    types = [ref.layout.scalar_type for ref in event.tensors]
    if position != expected.position or types != [spec.scalar_type for spec in expected.specs]:
        raise _MismatchError(f"instruction {event.instruction_id} logged other values than the program describes")


def _lost_event(expected: _LostValue, cursor: _Cursor) -> Iterator[DebugEvent]:
    """The writer gives up a list at its first 16-bit tensor."""
    refs = []
    for spec in expected.specs:
        if spec.dynamism != "static" or sorted(spec.dim_order) != list(range(len(spec.sizes))):
            raise _MismatchError("a lost value has a dynamic shape")
        if spec.scalar_type not in SCALAR_TYPES:
            raise _MismatchError(f"the program gives a lost value the type {spec.dtype}")
        layout = Layout(spec.scalar_type, spec.sizes, dense_strides(spec.sizes, spec.dim_order))
        refs.append(TensorRef(layout, cursor.write(spec.nbytes)))
        if spec.scalar_type not in _DESCRIBED:
            break
    if len(refs) == len(expected.specs):
        chain, index = expected.position or (-1, 0)
        kind, value = ("tensor", refs[0]) if len(refs) == 1 else ("tensor_list", tuple(refs))
        output = expected.position is None
        yield DebugEvent(chain, index, None, kind, value, output, restored=True)


def _check_outside(buffer: DebugBuffer, written: Sequence[tuple[int, int]]) -> None:
    """Without a described value, accept a start only if all other bytes are zero."""
    ends = [0, *(end for _, end in written)]
    starts = [*(start for start, _ in written), ends[-1] + _ALIGNMENT]
    for end, start in zip(ends, starts, strict=True):
        if np.any(np.frombuffer(buffer.data[end:start], np.uint8)):
            raise _MismatchError("no value is described that could tell where the first one begins")
