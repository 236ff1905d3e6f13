"""Changes what an ETDump says of the tensors that were logged, in place: a sound file that is not true."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from etviz.artifacts.flatbuffer import FlatBuffer, FlatTables

_PREFIX = 4
_TENSOR, _TENSOR_LIST = 5, 6


@dataclass(frozen=True)
class Described:
    """Where an ETDump describes one tensor.

    Attributes
    ----------
    instruction
        Who logged it, -1 for an output of the program.
    dtype, sizes, strides, offset
        Byte positions.
    rank
        Number of sizes and of strides.
    """

    instruction: int
    dtype: int
    sizes: int
    strides: int
    offset: int
    rank: int


def described(content: bytes) -> list[Described]:
    """The tensors of an ETDump, in the order of logging, but those with a field that is not stored (a default)."""
    events = FlatBuffer(memoryview(content), "", "ETDump", "").root(_PREFIX).vectors(1).tables().vectors(3).tables()
    logged = events.table(2)
    found = []
    for row in range(len(logged)):
        event = logged.take(np.array([row]))
        entry = event.table(2)
        kind = int(entry.scalar(0, "<i1")[0]) if entry.present[0] else 0
        if kind not in (_TENSOR, _TENSOR_LIST):
            continue
        tensors = entry.table(1) if kind == _TENSOR else entry.table(2).vectors(0).tables()
        output = bool(entry.table(7).scalar(0, "<u1")[0])
        instruction = -1 if output else int(event.scalar(1, "<i4", -1)[0])
        found += [_described(tensors.take(np.array([at])), instruction) for at in range(len(tensors))]
    return [item for item in found if min(item.dtype, item.sizes, item.strides, item.offset) >= 0]


def _described(tensor: FlatTables, instruction: int) -> Described:
    sizes, strides = tensor.vectors(1, "<i8"), tensor.vectors(2, "<i8")
    dtype, offset = (int(tensor._field(at, width)[0]) for at, width in ((0, 1), (3, 8)))  # pyright: ignore[reportPrivateUsage]
    return Described(instruction, dtype, int(sizes.start[0]), int(strides.start[0]), offset, int(sizes.length[0]))


def get(content: bytes | bytearray, at: int, count: int = 1) -> tuple[int, ...]:
    """Numbers of 64 bits."""
    return struct.unpack_from(f"<{count}q", content, at)


def put(content: bytearray, at: int, *numbers: int) -> None:
    """Overwrite numbers of 64 bits."""
    struct.pack_into(f"<{len(numbers)}q", content, at, *numbers)


def set_dtype(content: bytearray, tensor: Described, code: int) -> None:
    """Say that its elements are of another type."""
    content[tensor.dtype] = code


def turn(content: bytearray, tensor: Described) -> None:
    """Say that its sizes are the other way round; its strides fit them."""
    sizes = get(content, tensor.sizes, tensor.rank)[::-1]
    put(content, tensor.sizes, *sizes)
    step, strides = 1, []
    for size in reversed(sizes):
        strides.insert(0, step)
        step *= size
    put(content, tensor.strides, *strides)


def transpose(content: bytearray, tensor: Described) -> None:
    """Say that it lies in memory the other way round, its last dimension outermost; its sizes stay."""
    step, strides = 1, []
    for size in get(content, tensor.sizes, tensor.rank):
        strides.append(step)
        step *= size
    put(content, tensor.strides, *strides)


def exchange(content: bytearray, one: Described, other: Described) -> None:
    """Say of each of two tensors that it is where the other one is."""
    mine, its = get(content, one.offset), get(content, other.offset)
    put(content, one.offset, *its)
    put(content, other.offset, *mine)


def copy_offset(content: bytearray, one: Described, other: Described) -> None:
    """Say that a tensor is where another one is."""
    put(content, one.offset, *get(content, other.offset))


Change = Callable[[bytearray, list[Described]], None]
