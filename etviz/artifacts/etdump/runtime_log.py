"""What the runtime logged in one execution, instruction by instruction, as torch tensors over the mapped buffer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from etviz.errors import ArtifactError

if TYPE_CHECKING:
    from collections.abc import Iterable

    import torch

    from etviz.artifacts.etdump.debug_buffer import DebugBuffer
    from etviz.artifacts.etdump.etdump import DebugEvent, RunBlock, TensorRef

FRAMEWORK_CHAIN = -1
_NUMBERS = ("int", "double", "bool")
_TENSORS = ("tensor", "tensor_list")


class RuntimeLog:
    """The values of one block.

    Parameters
    ----------
    block
        An "Execute" block of an ETDump.
    buffer
        The debug buffer, None if there is none: then there are no values.

    Attributes
    ----------
    problems
        By instruction: why a value that was logged can't be read.
    """

    def __init__(self, block: RunBlock, buffer: DebugBuffer | None) -> None:
        self.block = block
        self.problems: dict[int, str] = {}
        self._buffer = buffer
        self._events: dict[int, list[DebugEvent]] = {}
        self._inside: dict[int, list[DebugEvent]] = {}
        for event in block.debug:
            if event.chain != FRAMEWORK_CHAIN and not event.is_output:
                table = self._events if event.delegate_debug_id is None else self._inside
                table.setdefault(event.instruction_id, []).append(event)

    @property
    def instructions(self) -> list[int]:
        """Ids of the instructions with logged values, ascending."""
        return sorted(self._events)

    def values(self, instruction: int) -> list[Any]:
        """Everything that an instruction logged, in order: tensors, plain values, None where it can't be read."""
        return [self._value(event, at, instruction) for event, at in self._places(instruction)]

    def last_values(self, instruction: int, count: int) -> list[Any] | None:
        """The outputs of a delegate call, which logs its inputs before them; None if there are fewer values."""
        places = self._places(instruction)
        if not 0 < count <= len(places):
            return None
        return [self._value(event, at, instruction) for event, at in places[-count:]]

    def inside(self, instruction: int) -> list[tuple[int | str, Any]]:
        """What a backend logged inside of its call, in order: its own identifier of the value, and the value."""
        return [
            (event.delegate_debug_id, self._value(event, at, instruction))
            for event in self._inside.get(instruction, ())
            for at in _positions(event)
            if event.delegate_debug_id is not None
        ]

    def outputs(self) -> list[Any]:
        """The program's final outputs as logged: copies, which last longer than the file does."""
        results = [event for event in self.block.debug if _is_result(event)]
        values = [self._value(event, at, -1) for event in results for at in _positions(event)]
        return [value.clone() if hasattr(value, "clone") else value for value in values]

    def offsets(self, instruction: int) -> list[int]:
        """Where the tensors of an instruction lie in the debug buffer."""
        return _offsets(self._events.get(instruction, ()))

    def output_offsets(self) -> list[int]:
        """Where the program's final outputs lie in the debug buffer."""
        return _offsets(event for event in self.block.debug if event.is_output)

    def _places(self, instruction: int) -> list[tuple[DebugEvent, int]]:
        return [(event, at) for event in self._events.get(instruction, ()) for at in _positions(event)]

    def _value(self, event: DebugEvent, at: int, instruction: int) -> Any:
        return self._tensor(event.tensors[at], instruction) if event.kind in _TENSORS else event.value

    def _tensor(self, ref: TensorRef, instruction: int) -> torch.Tensor | None:
        if self._buffer is None:
            self.problems[instruction] = "there is no debug buffer"
            return None
        try:
            return self._buffer.tensor(ref)
        except ArtifactError as error:
            self.problems[instruction] = error.problem
            return None


def _is_result(event: DebugEvent) -> bool:
    """True for a final output; the runtime marks tensors only, but logs plain numbers beside them."""
    return event.is_output or (event.chain == FRAMEWORK_CHAIN and event.kind in _NUMBERS)


def _positions(event: DebugEvent) -> range:
    """Positions of the values that an event holds."""
    return range(len(event.tensors) if event.kind in _TENSORS else 1)


def _offsets(events: Iterable[DebugEvent]) -> list[int]:
    return [ref.offset for event in events for ref in event.tensors if ref.offset >= 0]
