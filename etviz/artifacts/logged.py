"""What one execution of a method logs into the debug buffer, known before it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from etviz.artifacts.methods import Instruction, Method, Program

_ALIGNMENT: Final = 64
_SILENT_OPERATORS: Final = "executorch_prim::"
_LOGGED_KINDS: Final = ("tensor", "tensor_list")


class LoggedValue(NamedTuple):
    """A value that the runtime logs.

    Attributes
    ----------
    position
        (chain, instruction index), or None for an output of the whole method.
    value
        Value id. A list of tensors is logged as one value.
    """

    position: tuple[int, int] | None
    value: int


def logged_values(method: Method) -> Iterator[LoggedValue]:
    """Yield the values that one execution logs, in the order of logging, each instruction once.

    Kernel calls log what they write, delegate calls all their arguments, and the method its outputs.
    """
    for instruction in method.instructions:
        for value in logged_by(method, instruction):
            yield LoggedValue((instruction.chain, instruction.index), value)
    for value in method.outputs:
        yield LoggedValue(None, value)


def logged_by(method: Method, instruction: Instruction) -> tuple[int, ...]:
    """Return the ids of the values that one call logs; operators on symbolic numbers log nothing."""
    if instruction.kind == "delegate":
        return instruction.args
    if instruction.kind != "kernel" or str(instruction.operator).startswith(_SILENT_OPERATORS):
        return ()
    return tuple(item for item in instruction.outputs if method.values[item].kind in _LOGGED_KINDS)


def debug_buffer_bytes(program: Program, method: str = "forward") -> int:
    """Return how large a debug buffer one execution of a method needs at most.

    An upper bound where shapes are bounded and no instruction runs more than once (`Method.has_loop`
    tells): every logged tensor at its largest sizes, rounded up to the runtime's alignment.

    Raises
    ------
    UsageError
        If the program has no such method.
    """
    found = program.method(method)
    sizes = (
        _aligned(spec.nbytes)
        for item in logged_values(found)
        for tensor in found.tensors(item.value)
        if (spec := found.values[tensor].tensor) is not None
    )
    return sum(sizes) + _ALIGNMENT


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT
