"""BundledProgram (`.bpte`): a program, test inputs and expected outputs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from etviz.artifacts.files import PathLike, open_artifact, wrong_kind
from etviz.artifacts.flatbuffer import FlatBuffer, FlatTables, split
from etviz.artifacts.program.program import Program, parse_program, read_program
from etviz.artifacts.scalar_types import READ_TYPES, SCALAR_TYPES, scalar_type_name
from etviz.errors import ArtifactError

if TYPE_CHECKING:
    import torch


_ADVICE: Final = "write it again with serialize_from_bundled_program_to_flatbuffer(), and copy the whole file"
_TENSOR: Final = 1
_SCALARS: Final = {2: (int, "<i8"), 3: (bool, "<u1"), 4: (float, "<f8")}


@dataclass(frozen=True, slots=True, eq=False)
class BundledTensor:
    """A tensor of a test case, in stored memory order.

    Types that NumPy lacks come as bits: uint16 for bfloat16, uint8 for float8.
    """

    dtype: str
    data: npt.NDArray[Any]

    def tensor(self) -> torch.Tensor:
        import torch

        return torch.from_numpy(self.data.copy(order="K")).view(getattr(torch, self.dtype))


BundledValue = BundledTensor | int | float | bool | None


@dataclass(frozen=True, slots=True)
class BundledCase:
    """Expected outputs may be empty."""

    inputs: tuple[BundledValue, ...]
    expected_outputs: tuple[BundledValue, ...]

    def input_values(self) -> tuple[Any, ...]:
        return tuple(value.tensor() if isinstance(value, BundledTensor) else value for value in self.inputs)


@dataclass(frozen=True, slots=True)
class BundledProgram:
    """Test cases by method."""

    path: str
    suites: dict[str, tuple[BundledCase, ...]]
    program_bytes: memoryview

    def program(self) -> Program:
        return parse_program(self.program_bytes, self.path)


def read_bundled_program(path: PathLike) -> BundledProgram:
    name = os.fspath(path)
    data = memoryview(open_artifact(path, "a BundledProgram", _ADVICE))
    if bytes(data[4:8]) != b"BP08":
        raise wrong_kind(path, bytes(data[:64]), "a BundledProgram (.bpte)", "give the file of the bundle")
    root = FlatBuffer(data, name, "BundledProgram", _ADVICE).root()
    suites = root.vectors(1).tables()
    cases = suites.vectors(1)
    tables = cases.tables()
    pairs = zip(_read_values(tables, 0), _read_values(tables, 1), strict=True)
    grouped = split([BundledCase(*pair) for pair in pairs], cases.ends().tolist(), tuple)
    return BundledProgram(
        path=name,
        suites=dict(zip(map(str, suites.strings(0).tolist()), grouped, strict=True)),
        program_bytes=root.vectors(2, "<u1").views()[0],
    )


def bundled_or_plain(path: PathLike) -> Program:
    data = open_artifact(path, "an ExecuTorch program", "give the .pte")
    return read_bundled_program(path).program() if bytes(data[4:8]) == b"BP08" else read_program(path)


def _read_values(cases: FlatTables, field: int) -> list[tuple[BundledValue, ...]]:
    vectors = cases.vectors(field)
    tables = vectors.tables()
    kinds = tables.scalar(0, "<u1")
    contents = tables.table(1)
    values: list[BundledValue] = [None] * len(tables)
    rows = np.flatnonzero(kinds == _TENSOR)
    for row, tensor in zip(rows.tolist(), _read_tensors(contents.take(rows)), strict=True):
        values[row] = tensor
    for number, (make, dtype) in _SCALARS.items():
        rows = np.flatnonzero(kinds == number)
        for row, value in zip(rows.tolist(), contents.take(rows).scalar(0, dtype).tolist(), strict=True):
            values[row] = make(value)
    return split(values, vectors.ends().tolist(), tuple)


def _read_tensors(tables: FlatTables) -> list[BundledTensor]:
    columns = zip(
        tables.at.tolist(),
        tables.scalar(0, "<i1").tolist(),
        tables.vectors(1, "<i4").tuples(),
        tables.vectors(2, "<u1").views(),
        tables.vectors(3, "<u1").tuples(),
        strict=True,
    )
    return [_tensor(tables.buffer, *column) for column in columns]


def _tensor(
    buffer: FlatBuffer, at: int, code: int, sizes: Sequence[int], data: memoryview, order: Sequence[int]
) -> BundledTensor:
    known = SCALAR_TYPES.get(code)
    if known is None or known.name not in READ_TYPES:
        raise buffer.damaged(f"a test case's tensor has the scalar type {scalar_type_name(code)}", at)
    order = order or range(len(sizes))
    if len(sizes) > 64 or min(sizes, default=0) < 0 or sorted(order) != list(range(len(sizes))):
        raise buffer.damaged(f"a test case's tensor has sizes {sizes} and dim order {order}", at)
    stored = [sizes[dimension] for dimension in order]
    expected = int(np.prod(np.array(stored, object), initial=1)) * known.itemsize
    if expected != len(data):
        problem = f"a test case's tensor of sizes {tuple(sizes)} has {len(data)} bytes, not {expected}"
        raise ArtifactError(buffer.path, problem, _ADVICE, where=at, found=len(data), expected=expected)
    array = np.frombuffer(data, known.numpy).reshape(stored).transpose(np.argsort(order))
    return BundledTensor(known.name, array)
