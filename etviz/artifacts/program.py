"""Reads the methods, values and instructions of a `.pte` straight from its flatbuffer."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from etviz.artifacts.files import PathLike, open_artifact, wrong_kind
from etviz.artifacts.flatbuffer import FlatBuffer, Tables, split
from etviz.artifacts.instructions import read_instructions
from etviz.artifacts.logged import LoggedValue, debug_buffer_bytes, logged_values
from etviz.artifacts.methods import Delegate, Instruction, Method, Program, ProgramValue, TensorSpec
from etviz.errors import ArtifactError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "Delegate",
    "Instruction",
    "LoggedValue",
    "Method",
    "Program",
    "ProgramValue",
    "TensorSpec",
    "debug_buffer_bytes",
    "logged_values",
    "parse_program",
    "read_program",
]

_ADVICE: Final = "export the program again with to_executorch(), and copy the whole file"
_IDENTIFIER: Final = re.compile(rb"ET\d\d")
_EXTENDED: Final = slice(8, 12)
_DYNAMISM: Final = ("static", "dynamic_bound", "dynamic_unbound")
_KINDS: Final = (
    "none",
    "null",
    "int",
    "bool",
    "double",
    "tensor",
    "string",
    "int_list",
    "double_list",
    "bool_list",
    "tensor_list",
    "optional_tensor_list",
)
_SCALARS: Final = {"int": "<i8", "bool": "<u1", "double": "<f8"}
_LISTS: Final = {
    "int_list": "<i8",
    "double_list": "<f8",
    "bool_list": "<u1",
    "tensor_list": "<i4",
    "optional_tensor_list": "<i4",
}
_IN_SEGMENT: Final = 1
_EXTERNAL: Final = 1

Span = tuple[int, int]


def read_program(path: PathLike) -> Program:
    """Read a program file, without its weights.

    Raises
    ------
    ArtifactError
        If it is missing, empty, something else, truncated, or damaged.
    """
    return parse_program(memoryview(open_artifact(path, "an ExecuTorch program", _ADVICE)), os.fspath(path))


def parse_program(data: memoryview, path: str) -> Program:
    """Read a program from bytes that came from `path`; see `read_program`."""
    if not _IDENTIFIER.fullmatch(bytes(data[4:8])):
        raise wrong_kind(path, bytes(data[:64]), "an ExecuTorch program (.pte)", "give the file from .save()")
    end, base = _extent(data, path)
    buffer = FlatBuffer(data[:end], path, "program", _ADVICE)
    root = buffer.root()
    segments = _read_segments(root, base, len(data))
    plans = root.vectors(1).tables()
    inline = [len(view) for view in root.vectors(3).tables().vectors(0, "<u1").views()]
    methods = tuple(_read_method(plans.take(np.array([row])), segments, inline) for row in range(len(plans)))
    named = root.vectors(7).tables()
    sizes = [_at(segments, index)[1] for index in named.scalar(1, "<u4").tolist()]
    return Program(
        path=path,
        version=int(root.scalar(0, "<u4")[0]),
        size=len(data),
        methods=methods,
        segments=tuple(segments),
        named_data=tuple(zip(named.strings(0).tolist(), sizes, strict=True)),
    )


def _extent(data: memoryview, path: str) -> tuple[int, int]:
    """Return where the flatbuffer ends and where the segments begin, from the extended header if any."""
    if bytes(data[_EXTENDED]) != b"eh00":
        return len(data), 0
    end, base = (int.from_bytes(data[start : start + 8], "little") for start in (16, 24))
    needed = max(end, base)
    if needed > len(data) or end < 8:
        problem = f"the program is truncated: it has {len(data)} bytes of at least {needed}"
        raise ArtifactError(path, problem, _ADVICE, where=len(data), found=len(data), expected=needed)
    return end, base


def _read_segments(root: Tables, base: int, size: int) -> list[Span]:
    tables = root.vectors(4).tables()
    pairs = zip(tables.scalar(0, "<u8").tolist(), tables.scalar(1, "<u8").tolist(), strict=True)
    spans = [(base + offset, length) for offset, length in pairs]
    needed = max((start + length for start, length in spans), default=0)
    if needed > size:
        problem = f"the program is truncated: it has {size} bytes of {needed}"
        raise ArtifactError(root.buffer.path, problem, _ADVICE, where=size, found=size, expected=needed)
    return spans


def _at(spans: Sequence[Span], index: int) -> Span:
    return spans[index] if index < len(spans) else (0, 0)


def _read_method(plan: Tables, segments: list[Span], inline: list[int]) -> Method:
    values = read_values(plan.vectors(2).tables())
    operators = plan.vectors(6).tables()
    names = tuple(
        f"{name}.{overload}" if overload else str(name)
        for name, overload in zip(operators.strings(0).tolist(), operators.strings(1).tolist(), strict=True)
    )
    delegates = _read_delegates(plan.vectors(7).tables(), segments, inline)
    inputs, outputs = (plan.vectors(field, "<i4").tuples()[0] for field in (3, 4))
    if any(not 0 <= item < len(values) for item in (*inputs, *outputs)):
        raise plan.buffer.damaged("a method's input or output is not among its values", int(plan.at[0]))
    return Method(
        name=str(plan.strings(0)[0]),
        inputs=inputs,
        outputs=outputs,
        values=values,
        instructions=read_instructions(plan.vectors(5).tables(), values, inputs, names, len(delegates)),
        operators=names,
        delegates=delegates,
        buffer_sizes=plan.vectors(8, "<i8").tuples()[0],
    )


def _read_delegates(tables: Tables, segments: list[Span], inline: list[int]) -> tuple[Delegate, ...]:
    data = tables.table(1)
    places = zip(data.scalar(0, "<i1").tolist(), data.scalar(1, "<u4").tolist(), strict=True)
    sizes = [
        _at(segments, index)[1] if place == _IN_SEGMENT else inline[index] if index < len(inline) else 0
        for place, index in places
    ]
    specs = tables.vectors(2)
    items = specs.tables()
    contents = items.vectors(1, "<u1").views()
    for content in contents:
        items.buffer.spend(len(content), 0)
    pairs = list(zip(items.strings(0).tolist(), map(bytes, contents), strict=True))
    grouped = split(pairs, specs.ends().tolist(), tuple)
    backends = [str(backend) for backend in tables.strings(0).tolist()]
    return tuple(Delegate(*item) for item in zip(backends, sizes, grouped, strict=True))


def read_values(tables: Tables) -> tuple[ProgramValue, ...]:
    """Read a method's value table; every id that a list holds is checked to be in it."""
    kinds = tables.scalar(0, "<u1")
    contents = tables.table(1)
    values: list[ProgramValue | None] = [None] * len(tables)
    for number in sorted(set(kinds.tolist())):
        rows = np.flatnonzero(kinds == number)
        kind = _KINDS[number] if number < len(_KINDS) else f"unknown({number})"
        for row, value in zip(rows.tolist(), _read_kind(kind, contents.take(rows)), strict=True):
            values[row] = ProgramValue(kind, value)
    complete = tuple(value for value in values if value is not None)
    _check_ids(tables, complete)
    return complete


def _read_kind(kind: str, tables: Tables) -> list[Any]:
    if kind == "tensor":
        return _read_tensors(tables)
    if kind in _SCALARS:
        numbers = tables.scalar(0, _SCALARS[kind])
        return (numbers != 0).tolist() if kind == "bool" else numbers.tolist()
    if kind == "string":
        return tables.strings(0).tolist()
    if kind not in _LISTS:
        return [None] * len(tables)
    items = tables.vectors(0, _LISTS[kind]).tuples()
    if kind == "bool_list":
        return [tuple(map(bool, item)) for item in items]
    if kind == "optional_tensor_list":
        return [tuple(None if element == -1 else element for element in item) for item in items]
    return items


def _check_ids(tables: Tables, values: tuple[ProgramValue, ...]) -> None:
    expected = {"int_list": "int", "tensor_list": "tensor", "optional_tensor_list": "tensor"}
    for row, value in enumerate(values):
        if value.kind in expected:
            ids = [item for item in value.value if item is not None]
            if any(not 0 <= item < len(values) or values[item].kind != expected[value.kind] for item in ids):
                raise tables.buffer.damaged("a list's element is not among the values", int(tables.at[row]))


def _read_tensors(tables: Tables) -> list[TensorSpec]:
    memory = tables.table(6)
    offset = memory.scalar(1, "<u4").astype(np.int64) + (memory.scalar(2, "<u4").astype(np.int64) << 32)
    extra = tables.table(9)
    dynamism = tables.scalar(8, "<i1").tolist()
    sizes = tables.vectors(2, "<i4")
    tables.buffer.require(_plausible(sizes.length, sizes.flat()), tables.at, "a tensor's sizes are impossible")
    planned = zip(memory.present.tolist(), memory.scalar(0, "<u4").tolist(), offset.tolist(), strict=True)
    columns = zip(
        tables.scalar(0, "<i1").tolist(),
        sizes.tuples(),
        tables.vectors(3, "<u1").tuples(),
        (_DYNAMISM[item] if 0 <= item < len(_DYNAMISM) else f"unknown({item})" for item in dynamism),
        tables.scalar(5, "<u4").tolist(),
        ((place, start) if has else None for has, place, start in planned),
        extra.strings(1).tolist(),
        (extra.scalar(2, "<i1") == _EXTERNAL).tolist(),
        strict=True,
    )
    return [TensorSpec(*column) for column in columns]


def _plausible(rank: npt.NDArray[np.int64], sizes: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
    """Tell which tensors have a possible number of dimensions and no negative size."""
    negative = np.bincount(np.repeat(np.arange(len(rank)), rank), sizes < 0, len(rank))
    return (rank <= 64) & (negative == 0)
