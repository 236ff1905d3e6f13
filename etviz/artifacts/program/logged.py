"""The values that one execution logs into the debug buffer, known before it runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from etviz.artifacts.program.program import Instruction, Method, Program

_ALIGNMENT: Final = 64
_SILENT_OPERATORS: Final = "executorch_prim::"
# A loop ends when its counter has reached the size of the tensor that it goes along.
_REACHED: Final = "executorch_prim::eq.Scalar"
_SIZE: Final = "aten::sym_size.int"
_LOGGED_KINDS: Final = ("tensor", "tensor_list")


class LoggedValue(NamedTuple):
    """A value that the runtime logs; a list of tensors is one value.

    `position` is (chain, instruction index), None for the method's outputs; `value` is an id.
    """

    position: tuple[int, int] | None
    value: int


def logged_values(method: Method) -> Iterator[LoggedValue]:
    for instruction in method.instructions:
        for value in logged_by(method, instruction):
            yield LoggedValue((instruction.chain, instruction.index), value)
    for value in method.outputs:
        yield LoggedValue(None, value)


def logged_by(method: Method, instruction: Instruction) -> tuple[int, ...]:
    """Value ids; operators on symbolic numbers log nothing."""
    if instruction.kind == "delegate":
        return instruction.args
    if instruction.kind != "kernel" or str(instruction.operator).startswith(_SILENT_OPERATORS):
        return ()
    return tuple(value for value in instruction.outputs if method.values[value].kind in _LOGGED_KINDS)


def debug_buffer_bytes(program: Program, method: str = "forward") -> int:
    """Upper bound of the debug buffer of one execution, in bytes; `UsageError` without this method.

    Each logged tensor counts with its largest sizes, times the maximum number of runs of its instruction. A loop counts
    once if its number of rounds is not a tensor's size.
    """
    plan = program.method(method)
    rounds = _rounds(plan)
    total = _ALIGNMENT
    for position, value in logged_values(plan):
        specs = (plan.values[tensor].tensor for tensor in plan.tensors(value))
        size = sum(_aligned(spec.nbytes) for spec in specs if spec is not None)
        total += size * rounds.get(position, 1)
    return total


def _rounds(method: Method) -> dict[tuple[int, int] | None, int]:
    writers = {value: instruction for instruction in method.instructions for value in instruction.outputs}
    begins: dict[tuple[int, int], list[int]] = {}
    rounds: dict[tuple[int, int] | None, int] = {}
    for instruction in method.instructions:
        if instruction.target is not None and instruction.target <= instruction.index:
            begins.setdefault((instruction.chain, instruction.target), []).append(_rows(method, writers, instruction))
    if not begins:
        return rounds
    times = 1
    for instruction in method.instructions:
        position = (instruction.chain, instruction.index)
        for count in begins.get(position, ()):
            times *= count
        rounds[position] = times
        if instruction.target is not None and instruction.target <= instruction.index:
            times //= _rows(method, writers, instruction)
    return rounds


def _rows(method: Method, writers: dict[int, Instruction], jump: Instruction) -> int:
    condition = writers.get(jump.inputs[0])
    if condition is None or condition.operator != _REACHED or len(condition.inputs) < 2:
        return 1
    size = writers.get(condition.inputs[1])
    if size is None or size.operator != _SIZE or len(size.inputs) < 2:
        return 1
    spec, dimension = method.values[size.inputs[0]].tensor, method.literal(size.inputs[1])
    known = spec is not None and isinstance(dimension, int) and 0 <= dimension < len(spec.sizes)
    return max(spec.sizes[dimension], 1) if spec is not None and known else 1


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT
