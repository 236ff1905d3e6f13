"""A `.pte`: methods, values and instructions, read from its flatbuffer. Weights stay on disk."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from etviz.artifacts.files import PathLike, identity_of, open_artifact, wrong_kind
from etviz.artifacts.flatbuffer import FlatBuffer, FlatTables, split
from etviz.artifacts.recent import Recent
from etviz.artifacts.scalar_types import SCALAR_TYPES, scalar_type_name
from etviz.errors import ArtifactError, UsageError
from etviz.graph.language_operators import LANGUAGE_OPERATORS

_ADVICE: Final = "export the program again with to_executorch(), and copy the whole file"
_IDENTIFIER: Final = re.compile(rb"ET\d\d")
_EXTENDED: Final = slice(8, 12)
_DYNAMISM: Final = ("static", "dynamic_bound", "dynamic_unbound")
_KINDS: Final = (
    *("none", "null", "int", "bool", "double", "tensor", "string"),
    *("int_list", "double_list", "bool_list", "tensor_list", "optional_tensor_list"),
)
_SCALARS: Final = {"int": "<i8", "bool": "<u1", "double": "<f8"}
_LISTS: Final = {
    "int_list": "<i8",
    "double_list": "<f8",
    "bool_list": "<u1",
    "tensor_list": "<i4",
    "optional_tensor_list": "<i4",
}
_EXTERNAL: Final = 1
_METHODS: Final = Recent["tuple[Method, ...]"](4)
"""By file."""
_MOST_INSTRUCTIONS: Final = 1 << 17
"""Maximum number of instructions of a method: pairing takes a fraction of a millisecond for each."""
# A loop's body adds a row to its result with this operator: it writes its first argument.
_APPEND: Final = "executorch_prim::et_copy_index.tensor"
_INSTRUCTIONS: Final = ("none", "kernel", "delegate", "move", "jump", "free")


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor as the program describes it.

    `sizes` are an upper bound if `dynamism` is "dynamic_bound", and meaningless if it is "dynamic_unbound" (else
    "static"). `dim_order` lists dimensions from outermost to innermost; (0, 2, 3, 1) is channels-last. `data_index` is
    0 without initial data. `memory` is the planned (memory id, offset), None for constants and data that the caller
    provides. `external` data is in a `.ptd`. `name` is kept for mutable buffers.
    """

    scalar_type: int
    sizes: tuple[int, ...]
    dim_order: tuple[int, ...]
    dynamism: str
    data_index: int
    memory: tuple[int, int] | None
    external: bool
    name: str = ""

    @property
    def dtype(self) -> str:
        return scalar_type_name(self.scalar_type)

    @property
    def nbytes(self) -> int:
        """Upper bound; 0 for an unknown scalar type."""
        known = SCALAR_TYPES.get(self.scalar_type)
        return math.prod(self.sizes) * known.itemsize if known else 0


def dense_strides(sizes: Sequence[int], order: Sequence[int]) -> tuple[int, ...]:
    """Strides, in elements, of a dense tensor; `order` is outermost first.

    Examples
    --------
    >>> dense_strides((2, 3, 4, 5), (0, 2, 3, 1))
    (60, 1, 15, 3)
    """
    strides, step = [1] * len(sizes), 1
    for dimension in reversed(order):
        strides[dimension] = step
        step *= max(sizes[dimension], 1)
    return tuple(strides)


@dataclass(frozen=True, slots=True)
class ProgramValue:
    """One slot of a method's value table.

    `kind` is "tensor", "int", "bool", "double", "string", "null", a list of these such as "int_list", or "unknown(…)".
    Elements of "int_list" and lists of tensors are value ids (None if absent).
    """

    kind: str
    value: Any

    @property
    def tensor(self) -> TensorSpec | None:
        return self.value if isinstance(self.value, TensorSpec) else None


@dataclass(frozen=True, slots=True)
class Instruction:
    """`kind` is "kernel", "delegate", "move", "jump" (if false), "free" or "unknown(…)".

    `args`, `inputs` (read) and `outputs` (written) are value ids; a kernel's `args` are the operator's arguments, then
    its result again, a delegate's its inputs, then outputs. `delegate` is an index into the method's backends, `target`
    where a jump continues if its input is false.
    """

    chain: int
    index: int
    kind: str
    operator: str | None
    args: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    delegate: int | None = None
    target: int | None = None


@dataclass(frozen=True)
class Method:
    """An entry point of the program.

    `backends` ("XnnpackBackend"), `compile_specs` and `payloads` ((True, segment) or (False, index of inline data)) are
    by delegate.
    """

    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    values: tuple[ProgramValue, ...]
    instructions: tuple[Instruction, ...]
    backends: tuple[str, ...]
    compile_specs: tuple[tuple[tuple[str, bytes], ...], ...] = ()
    payloads: tuple[tuple[bool, int], ...] = ()

    @cached_property
    def by_position(self) -> dict[tuple[int, int], Instruction]:
        return {(instruction.chain, instruction.index): instruction for instruction in self.instructions}

    @cached_property
    def state(self) -> dict[tuple[int, int], str]:
        """Names of the mutable tensors that persist between executions, by memory id and offset."""
        specs = [value.tensor for value in self.values if value.tensor is not None]
        return {spec.memory: spec.name for spec in specs if spec.memory is not None and spec.name}

    @cached_property
    def shared(self) -> frozenset[tuple[tuple[int, int], tuple[int, ...], str]]:
        """Place, sizes and dtype of tensors outside the first memory, which a method has alone."""
        specs = [value.tensor for value in self.values if value.tensor is not None]
        return frozenset((s.memory, tuple(s.sizes), s.dtype) for s in specs if s.memory is not None and s.memory[0] > 1)

    @cached_property
    def nested(self) -> frozenset[int]:
        jumps = ((item.index, item.target) for item in self.instructions if item.target is not None)
        positions: set[int] = set()
        last = max((instruction.index for instruction in self.instructions), default=-1)
        done = 0
        for start, end in sorted((min(ends), max(ends)) for ends in jumps):
            positions.update(range(max(start, done), min(end, last + 1)))
            done = max(done, end)
        return frozenset(positions)

    def backend(self, instruction: Instruction) -> str | None:
        return None if instruction.delegate is None else self.backends[instruction.delegate]

    def tensors(self, value_id: int) -> tuple[int, ...]:
        value = self.values[value_id]
        if value.kind == "tensor":
            return (value_id,)
        if value.kind in ("tensor_list", "optional_tensor_list"):
            return tuple(tensor for tensor in value.value if tensor is not None)
        return ()

    def literal(self, value_id: int) -> Any:
        value = self.values[value_id]
        return tuple(self.values[item].value for item in value.value) if value.kind == "int_list" else value.value


@dataclass(frozen=True, slots=True)
class Program:
    """A program file.

    `named` data is shared by delegates (XNNPACK's weights), by key; `external` constants are in a `.ptd`, by name.
    `identity` is that of the mapped files, empty for a program in memory.
    """

    path: str
    methods: tuple[Method, ...]
    constants: tuple[memoryview, ...] = ()
    named: Mapping[str, memoryview] = field(default_factory=dict)
    segments: tuple[memoryview, ...] = ()
    inline: tuple[memoryview, ...] = ()
    external: Mapping[str, memoryview] = field(default_factory=dict)
    identity: tuple[int, ...] = ()

    def payload(self, method: str, instruction: int) -> memoryview | None:
        plan = self.method(method)
        delegates = (call.delegate for call in plan.instructions if call.index == instruction)
        delegate = next(delegates, None)
        if delegate is None or delegate >= len(plan.payloads):
            return None
        in_segment, at = plan.payloads[delegate]
        data = self.segments if in_segment else self.inline
        return data[at] if at < len(data) else None

    def constant(self, spec: TensorSpec) -> memoryview | None:
        if spec.external:
            data = self.external.get(spec.name, memoryview(b""))
        elif 0 < spec.data_index < len(self.constants) and spec.memory is None:
            data = self.constants[spec.data_index]
        else:
            return None
        return data[: spec.nbytes] if 0 < spec.nbytes <= len(data) else None

    def method(self, name: str = "forward") -> Method:
        for method in self.methods:
            if method.name == name:
                return method
        known = ", ".join(repr(method.name) for method in self.methods) or "none"
        raise UsageError(f"{self.path} has no method {name!r}; its methods: {known}")


def read_program(path: PathLike) -> Program:
    return parse_program(memoryview(open_artifact(path, "an ExecuTorch program", _ADVICE)), os.fspath(path))


def parse_program(data: memoryview, path: str) -> Program:
    if not _IDENTIFIER.fullmatch(bytes(data[4:8])):
        raise wrong_kind(path, bytes(data[:64]), "an ExecuTorch program (.pte)", "give the file from .save()")
    end, base = _extent(data, path)
    buffer = FlatBuffer(data[:end], path, "program", _ADVICE)
    root = buffer.root()
    segments = _segments(root, data, base)
    identity = identity_of(data)
    methods = _METHODS.get((identity, len(data)), partial(_read_methods, root)) if identity else _read_methods(root)
    inline = tuple(root.vectors(3).tables().vectors(0, "<u1").views())
    constants, named = _read_constants(root, segments), _read_named(root, segments)
    return Program(path, methods, constants, named, tuple(segments), inline, identity=identity)


def _read_methods(root: FlatTables) -> tuple[Method, ...]:
    plans = root.vectors(1).tables()
    return tuple(_read_method(plans.take(np.array([row]))) for row in range(len(plans)))


def place_of_length(path: PathLike, method: str) -> int:
    data = memoryview(open_artifact(path, "an ExecuTorch program", _ADVICE))
    plans = FlatBuffer(data[: _extent(data, os.fspath(path))[0]], os.fspath(path), "program", _ADVICE).root().vectors(1)
    plan = plans.tables().take(np.array([plans.tables().strings(0).tolist().index(method)]))
    return int(plan.vectors(5).tables().vectors(2).start[0]) - 4


def _segments(root: FlatTables, data: memoryview, base: int) -> list[memoryview]:
    tables = root.vectors(4).tables()
    pairs = list(zip(tables.scalar(0, "<u8").tolist(), tables.scalar(1, "<u8").tolist(), strict=True))
    needed = max((base + offset + length for offset, length in pairs), default=0)
    if needed > len(data):
        raise _truncated(root.buffer.path, len(data), needed)
    return [data[base + offset :][:length] for offset, length in pairs]


def _read_constants(root: FlatTables, segments: Sequence[memoryview]) -> tuple[memoryview, ...]:
    table = root.table(5)
    offsets, segment = table.vectors(1, "<u8").flat().tolist(), int(table.scalar(0, "<u4")[0])
    if not offsets or segment >= len(segments):
        return tuple(root.vectors(2).tables().vectors(0, "<u1").views())
    return tuple(segments[segment][offset:] for offset in offsets)


def _read_named(root: FlatTables, segments: Sequence[memoryview]) -> dict[str, memoryview]:
    tables = root.vectors(7).tables()
    pairs = zip(tables.strings(0).tolist(), tables.scalar(1, "<u4").tolist(), strict=True)
    return {str(key): segments[at] for key, at in pairs if at < len(segments)}


def _extent(data: memoryview, path: str) -> tuple[int, int]:
    if bytes(data[_EXTENDED]) != b"eh00":
        return len(data), 0
    end, base = (int.from_bytes(data[start : start + 8], "little") for start in (16, 24))
    needed = max(end, base)
    if needed > len(data) or end < 8:
        raise _truncated(path, len(data), needed, "at least ")
    return end, base


def _truncated(path: str, size: int, needed: int, least: str = "") -> ArtifactError:
    problem = f"the program is truncated: it has {size} bytes of {least}{needed}"
    return ArtifactError(path, problem, _ADVICE, where=size, found=size, expected=needed)


def _read_method(plan: FlatTables) -> Method:
    values = _read_values(plan.vectors(2).tables())
    operators = plan.vectors(6).tables()
    names = tuple(
        f"{name}.{overload}" if overload else str(name)
        for name, overload in zip(operators.strings(0).tolist(), operators.strings(1).tolist(), strict=True)
    )
    backends = tuple(map(str, plan.vectors(7).tables().strings(0).tolist()))
    inputs, outputs = (plan.vectors(field, "<i4").tuples()[0] for field in (3, 4))
    if any(not 0 <= value < len(values) for value in (*inputs, *outputs)):
        raise plan.buffer.damaged("a method's input or output is not among its values", int(plan.at[0]))
    return Method(
        name=str(plan.strings(0)[0]),
        inputs=inputs,
        outputs=outputs,
        values=values,
        instructions=_read_instructions(plan.vectors(5).tables(), values, inputs, names, len(backends)),
        backends=backends,
        compile_specs=_read_compile_specs(plan.vectors(7).tables()),
        payloads=_read_payloads(plan.vectors(7).tables()),
    )


def _read_payloads(delegates: FlatTables) -> tuple[tuple[bool, int], ...]:
    data = delegates.table(1)
    places = zip(data.scalar(0, "<i1").tolist(), data.scalar(1, "<u4").tolist(), strict=True)
    return tuple((location == 1, index) for location, index in places)


def _read_compile_specs(delegates: FlatTables) -> tuple[tuple[tuple[str, bytes], ...], ...]:
    specs = delegates.vectors(2)
    tables = specs.tables()
    pairs = list(zip(tables.strings(0).tolist(), tables.vectors(1, "<u1").views(), strict=True))
    for _, value in pairs:
        tables.buffer.spend(len(value), 0)
    return tuple(split([(str(key), bytes(value)) for key, value in pairs], specs.ends().tolist(), tuple))


def _read_values(tables: FlatTables) -> tuple[ProgramValue, ...]:
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


def _read_kind(kind: str, tables: FlatTables) -> list[Any]:
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


def _check_ids(tables: FlatTables, values: tuple[ProgramValue, ...]) -> None:
    expected = {"int_list": "int", "tensor_list": "tensor", "optional_tensor_list": "tensor"}
    for row, value in enumerate(values):
        if value.kind in expected:
            ids = [item for item in value.value if item is not None]
            if any(not 0 <= item < len(values) or values[item].kind != expected[value.kind] for item in ids):
                raise tables.buffer.damaged("a list's element is not among the values", int(tables.at[row]))


def _read_tensors(tables: FlatTables) -> list[TensorSpec]:
    memory = tables.table(6)
    offset = memory.scalar(1, "<u4").astype(np.int64) + (memory.scalar(2, "<u4").astype(np.int64) << 32)
    extra = tables.table(9)
    external = extra.scalar(2, "<i1") == _EXTERNAL
    dynamism = tables.scalar(8, "<i1").tolist()
    sizes = tables.vectors(2, "<i4")
    tables.buffer.require(_plausible(sizes.length, sizes.flat()), tables.at, "a tensor's sizes are impossible")
    shapes, orders = list(sizes.tuples()), list(tables.vectors(3, "<u1").tuples())
    ordered = [not order or sorted(order) == [*range(len(shape))] for shape, order in zip(shapes, orders, strict=True)]
    tables.buffer.require(np.array(ordered, bool), tables.at, "a tensor's dimension order is impossible")
    planned = zip(memory.present.tolist(), memory.scalar(0, "<u4").tolist(), offset.tolist(), strict=True)
    columns = zip(
        tables.scalar(0, "<i1").tolist(),
        shapes,
        orders,
        (_DYNAMISM[number] if 0 <= number < len(_DYNAMISM) else f"unknown({number})" for number in dynamism),
        tables.scalar(5, "<u4").tolist(),
        ((place, start) if has else None for has, place, start in planned),
        external.tolist(),
        (name or "" for name in extra.strings(1).tolist()),
        strict=True,
    )
    return [TensorSpec(*column) for column in columns]


def _plausible(rank: npt.NDArray[np.int64], sizes: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
    negative = np.bincount(np.repeat(np.arange(len(rank)), rank), sizes < 0, len(rank))
    return (rank <= 64) & (negative == 0)


class _Stored(NamedTuple):
    number: int = -1
    args: tuple[int, ...] = ()


def _read_instructions(
    chains: FlatTables, values: Sequence[ProgramValue], inputs: Sequence[int], operators: Sequence[str], delegates: int
) -> tuple[Instruction, ...]:
    vectors = chains.vectors(2)
    if (count := int(vectors.length.sum())) > _MOST_INSTRUCTIONS:
        problem = f"a method has {count:,} instructions; etviz reads up to {_MOST_INSTRUCTIONS:,}"
        raise ArtifactError(chains.buffer.path, problem, "lower the model as several methods", where=int(chains.at[0]))
    tables = vectors.tables()
    kinds = tables.scalar(0, "<u1")
    stored = _read_stored(tables, kinds)
    written = {row for row, value in enumerate(values) if _initialized(value)} | set(inputs)
    written.update(
        value
        for number, entry in zip(kinds.tolist(), stored, strict=True)
        if number < len(_INSTRUCTIONS) and _INSTRUCTIONS[number] == "kernel" and 0 <= entry.number < len(operators)
        for value in written_in_place(operators[entry.number], entry.args)
    )
    result: list[Instruction] = []
    chain = np.repeat(np.arange(len(chains)), vectors.length).tolist()
    index = (np.arange(len(tables)) - np.repeat(vectors.ends() - vectors.length, vectors.length)).tolist()
    for row, (number, entry) in enumerate(zip(kinds.tolist(), stored, strict=True)):
        kind = _INSTRUCTIONS[number] if number < len(_INSTRUCTIONS) else f"unknown({number})"
        numbers = {"kernel": len(operators), "delegate": delegates}.get(kind)
        if not _exists(entry, len(values), numbers):
            problem = "an instruction names something that does not exist"
            raise tables.buffer.damaged(problem, int(tables.at[row]))
        operator = operators[entry.number] if kind == "kernel" else None
        read, wrote = _flow(kind, operator, entry.args, values, written)
        written.update(wrote)
        written.update(item for value in wrote if values[value].kind == "tensor_list" for item in values[value].value)
        result.append(
            Instruction(
                chain=chain[row],
                index=index[row],
                kind=kind,
                operator=operator,
                args=entry.args,
                inputs=read,
                outputs=wrote,
                delegate=entry.number if kind == "delegate" else None,
                target=entry.number if kind == "jump" else None,
            )
        )
    return tuple(result)


_WRITE_BACK: Final = "aten::copy_"


def written_in_place(operator: str, args: Sequence[int]) -> list[int]:
    if operator == _WRITE_BACK:
        return list(args[:1])
    known = LANGUAGE_OPERATORS.get(f"{operator.partition('.')[0].replace('::', '.')}.default")
    places = [known.names.index(name) for name in known.writes] if known is not None else []
    return [args[at] for at in places if at < len(args)]


def _exists(entry: _Stored, values: int, numbers: int | None) -> bool:
    named = all(0 <= value < values for value in entry.args)
    return named and (numbers is None or 0 <= entry.number < numbers)


def _read_stored(tables: FlatTables, kinds: np.ndarray) -> list[_Stored]:
    stored = [_Stored()] * len(tables)
    contents = tables.table(1)
    for number in np.flatnonzero(np.bincount(kinds)).tolist():  # np.unique would import numpy.ma
        rows = np.flatnonzero(kinds == number)
        part = contents.take(rows)
        first = part.scalar(0, "<i4").tolist()
        kind = _INSTRUCTIONS[number] if number < len(_INSTRUCTIONS) else ""
        if kind in ("kernel", "delegate"):
            items = [_Stored(*pair) for pair in zip(first, part.vectors(1, "<i4").tuples(), strict=True)]
        elif kind == "move":
            second = part.scalar(1, "<i4").tolist()
            items = [_Stored(-1, pair) for pair in zip(first, second, strict=True)]
        elif kind == "jump":
            target = part.scalar(1, "<i4").tolist()
            items = [_Stored(to, (condition,)) for condition, to in zip(first, target, strict=True)]
        elif kind == "free":
            items = [_Stored(-1, (value,)) for value in first]
        else:
            continue
        for row, entry in zip(rows.tolist(), items, strict=True):
            stored[row] = entry
    return stored


def _initialized(value: ProgramValue) -> bool:
    tensor = value.tensor
    return tensor is None or tensor.data_index > 0 or tensor.external


def _flow(
    kind: str, operator: str | None, args: tuple[int, ...], values: Sequence[ProgramValue], written: set[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """A delegate's outputs are the last arguments not written before."""
    if operator == _APPEND:
        return args, args[:1]
    if kind == "kernel":
        return _kernel_flow(args, values)
    if kind == "delegate":
        count = next((n for n, value in enumerate(reversed(args)) if value in written), len(args))
        return args[: len(args) - count], args[len(args) - count :]
    if kind == "move":
        return args[:1], args[1:]
    return args, ()


def _kernel_flow(args: tuple[int, ...], values: Sequence[ProgramValue]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The result follows the arguments: `out` again, a list of several, or a symbolic operator's own value."""
    if not args:
        return (), ()
    *operands, result = args
    if operands and operands[-1] == result:
        return tuple(operands[:-1]), (result,)
    value = values[result]
    if value.kind == "tensor_list":
        parts = value.value
        if parts and tuple(operands[-len(parts) :]) == parts:
            return tuple(operands[: -len(parts)]), parts
        if operands and values[operands[-1]].kind == "tensor_list" and values[operands[-1]].value == parts:
            return tuple(operands[:-1]), (operands[-1],)
    return tuple(operands), (result,)
