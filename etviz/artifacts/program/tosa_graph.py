"""A TOSA flatbuffer (``tosa.fbs`` 1.0 and 1.1), and a copy that returns inner tensors."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from etviz.artifacts.flatbuffer import FlatBuffer, FlatTables
from etviz.errors import UsageError

_MAGIC: Final = b"TOSA"
_MAJOR: Final = 1
_ADVICE: Final = "lower the model again"
_OUTPUTS: Final = 4
DTYPES: Final = {
    1: "bool", 3: "int8", 4: "int16", 5: "int32", 6: "int48", 7: "float32", 8: "float16", 9: "bfloat16", 17: "int64",
}  # fmt: skip
_OPERATORS: Final = {
    2: "AVG_POOL2D", 3: "CONV2D", 5: "DEPTHWISE_CONV2D", 8: "MAX_POOL2D", 10: "TRANSPOSE_CONV2D", 57: "RESHAPE",
    61: "TRANSPOSE", 64: "RESIZE", 67: "CONST", 75: "CONST_SHAPE",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TosaOperator:
    """`kind` is the TOSA name, or ``op 12`` for other operators."""

    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TosaTensor:
    shape: tuple[int, ...]
    dtype: str
    constant: bool


@dataclass(frozen=True, slots=True)
class TosaGraph:
    """The first block: all but bodies of branches and loops."""

    version: str
    operators: tuple[TosaOperator, ...]
    tensors: dict[str, TosaTensor]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def is_tosa(data: memoryview | bytes) -> bool:
    return bytes(data[4:8]) == _MAGIC


def read_tosa(data: memoryview | bytes) -> TosaGraph:
    """`UsageError` if it has another version than 1."""
    root, block = _block(data)
    version = root.table(0)
    numbers = [int(version.scalar(at, "<i4", -1)[0]) for at in range(3)]
    if numbers[0] != _MAJOR:
        said = ".".join(map(str, numbers))
        raise UsageError(f"the delegate holds TOSA {said}; etviz reads TOSA {_MAJOR}.x: lower the model again")
    operators, tensors = block.vectors(1).tables(), block.vectors(2).tables()
    kinds = operators.scalar(0, "<u4").tolist()
    reads, writes = operators.vectors(3).strings(), operators.vectors(4).strings()
    shapes, dtypes = tensors.vectors(1, "<i4").tuples(), tensors.scalar(2, "<u4").tolist()
    filled = tensors.vectors(3, "<u1").length.tolist()
    whole = zip(tensors.strings(0).tolist(), shapes, dtypes, filled, strict=True)
    return TosaGraph(
        ".".join(map(str, numbers)),
        tuple(
            TosaOperator(_OPERATORS.get(kind, f"op {kind}"), tuple(r), tuple(w))
            for kind, r, w in zip(kinds, reads, writes, strict=True)
        ),
        {n: TosaTensor(shape, DTYPES.get(dtype, f"dtype {dtype}"), bool(size)) for n, shape, dtype, size in whole},
        tuple(block.vectors(3).strings()[0]),
        tuple(block.vectors(_OUTPUTS).strings()[0]),
    )


def returning(data: memoryview | bytes, names: Sequence[str]) -> bytes:
    """A copy that returns only these tensors.

    The names are appended, because offsets of a flatbuffer point forwards; everything else stays where it is.
    """
    _, block = _block(data)
    start = int(block.at[0])
    copy = bytearray(data)
    vtable = start - struct.unpack_from("<i", copy, start)[0]
    field = start + struct.unpack_from("<H", copy, vtable + 4 + 2 * _OUTPUTS)[0]
    if field == start or not bool(block.has(_OUTPUTS)[0]):
        raise UsageError("the TOSA graph returns nothing, so it can't return inner values either")
    copy += bytes(-len(copy) % 8)
    vector = len(copy)
    struct.pack_into("<I", copy, field, vector - field)
    copy += struct.pack("<I", len(names)) + bytes(4 * len(names))
    for at, name in enumerate(names):
        slot = vector + 4 + 4 * at
        struct.pack_into("<I", copy, slot, len(copy) - slot)
        text = name.encode()
        copy += struct.pack("<I", len(text)) + text + bytes(4 - len(text) % 4)
    return bytes(copy)


def _block(data: memoryview | bytes) -> tuple[FlatTables, FlatTables]:
    root = FlatBuffer(data, "the delegate's TOSA graph", "TOSA graph", _ADVICE).root()
    blocks = root.vectors(1).tables().vectors(1).tables()
    if not len(blocks):
        raise UsageError("the TOSA graph is empty; lower the model again")
    return root, blocks.take(np.arange(1))
