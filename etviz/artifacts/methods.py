"""The records of an ExecuTorch program: methods, values and instructions of a `.pte`.

`read_program` in `program.py` makes them. Weights stay on disk; only where they are is known.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from etviz.artifacts.scalar_types import SCALAR_TYPES, scalar_type_name
from etviz.errors import UsageError


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor as the program describes it.

    Attributes
    ----------
    scalar_type
        ExecuTorch's scalar type code.
    sizes
        The shape, or its upper bound where the shape is dynamic.
    dim_order
        Dimensions from outermost to innermost in memory; (0, 2, 3, 1) is channels-last.
    dynamism
        "static", "dynamic_bound" or "dynamic_unbound" (then `sizes` means nothing).
    data_index
        Index of its initial data, 0 for none.
    memory
        (memory id, offset) where the runtime plans it, None for constants and for data that the caller
        provides.
    name
        Its qualified name ("layer.weight"), where the program keeps one.
    external
        True if its data is in another file (`.ptd`).
    """

    scalar_type: int
    sizes: tuple[int, ...]
    dim_order: tuple[int, ...]
    dynamism: str
    data_index: int
    memory: tuple[int, int] | None
    name: str | None
    external: bool

    @property
    def dtype(self) -> str:
        """The scalar type's name in torch."""
        return scalar_type_name(self.scalar_type)

    @property
    def constant(self) -> bool:
        """True for weights: data that no instruction writes."""
        return self.memory is None and (self.data_index > 0 or self.external)

    @property
    def nbytes(self) -> int:
        """Bytes of its elements (at the upper bound of its sizes); 0 for an unknown scalar type."""
        known = SCALAR_TYPES.get(self.scalar_type)
        return math.prod(self.sizes) * known.itemsize if known else 0


@dataclass(frozen=True, slots=True)
class ProgramValue:
    """One slot of a method's value table.

    Attributes
    ----------
    kind
        "tensor", "int", "bool", "double", "string", "null", "int_list", "double_list", "bool_list",
        "tensor_list", "optional_tensor_list" or "unknown(…)".
    value
        A TensorSpec; a Python scalar; a tuple. The elements of "int_list", "tensor_list" and
        "optional_tensor_list" are value ids (None for an absent tensor).
    """

    kind: str
    value: Any

    @property
    def tensor(self) -> TensorSpec | None:
        """The tensor, if this is one."""
        return self.value if isinstance(self.value, TensorSpec) else None


@dataclass(frozen=True, slots=True)
class Delegate:
    """A part of the method that a backend runs.

    Attributes
    ----------
    backend
        The backend's id, such as "XnnpackBackend".
    nbytes
        Size of the backend's blob.
    compile_specs
        Pairs of key and bytes.
    """

    backend: str
    nbytes: int
    compile_specs: tuple[tuple[str | None, bytes], ...]


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction.

    Attributes
    ----------
    chain, index
        The same numbers that an ETDump has as chain and instruction id.
    kind
        "kernel", "delegate", "move", "jump" (if false), "free" or "unknown(…)".
    operator
        "aten::add.out" for a kernel call, else None.
    args
        Value ids as stored: for a kernel the operator's arguments, then its result once more; for a
        delegate its inputs, then its outputs.
    inputs, outputs
        Value ids that it reads, and those that it writes. A list of tensors is one value.
    delegate
        Index into the method's delegates, for a delegate call.
    target
        For a jump, the index where it continues if the condition (its input) is false.
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

    Attributes
    ----------
    inputs, outputs
        Value ids.
    instructions
        Of all chains, in order; programs have one chain today.
    delegates
        The delegate calls' backends.
    buffer_sizes
        Bytes of each planned memory; index 0 is reserved.
    """

    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    values: tuple[ProgramValue, ...]
    instructions: tuple[Instruction, ...]
    operators: tuple[str, ...]
    delegates: tuple[Delegate, ...]
    buffer_sizes: tuple[int, ...]

    @cached_property
    def by_position(self) -> dict[tuple[int, int], Instruction]:
        """Instructions by (chain, index)."""
        return {(item.chain, item.index): item for item in self.instructions}

    @property
    def has_loop(self) -> bool:
        """True if an instruction can run more than once: a jump leads back."""
        return any(item.target is not None and item.target <= item.index for item in self.instructions)

    def backend(self, instruction: Instruction) -> str | None:
        """Return the backend of a delegate call, None for other instructions."""
        return None if instruction.delegate is None else self.delegates[instruction.delegate].backend

    def tensors(self, value_id: int) -> tuple[int, ...]:
        """Return the ids of the tensors that a value consists of: itself, or a list's elements."""
        value = self.values[value_id]
        if value.kind == "tensor":
            return (value_id,)
        if value.kind in ("tensor_list", "optional_tensor_list"):
            return tuple(item for item in value.value if item is not None)
        return ()

    def literal(self, value_id: int) -> Any:
        """Return a value that is not a tensor as Python objects, with the integers of a list looked up."""
        value = self.values[value_id]
        return tuple(self.values[item].value for item in value.value) if value.kind == "int_list" else value.value


@dataclass(frozen=True, slots=True)
class Program:
    """A program file.

    Attributes
    ----------
    version
        Version of the schema.
    size
        Bytes of the program, weights included.
    segments
        (offset, size) in bytes of each data segment, offsets counted from the program's first byte.
    named_data
        Key and size of the data blobs that delegates share.
    """

    path: str
    version: int
    size: int
    methods: tuple[Method, ...]
    segments: tuple[tuple[int, int], ...]
    named_data: tuple[tuple[str | None, int], ...]

    def method(self, name: str = "forward") -> Method:
        """Return a method by name.

        Raises
        ------
        UsageError
            If there is none of this name.
        """
        for item in self.methods:
            if item.name == name:
                return item
        known = ", ".join(repr(item.name) for item in self.methods) or "none"
        raise UsageError(f"{self.path} has no method {name!r}; its methods: {known}")
