"""The values that one execution logged, by instruction, over the mapped buffer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from etviz.artifacts.etdump.events import TensorRef
from etviz.errors import ArtifactError, FileChangedError

if TYPE_CHECKING:
    import torch

    from etviz.artifacts.etdump.debug_buffer import DebugBuffer
    from etviz.artifacts.etdump.etdump import DebugEvent, RunBlock

FRAMEWORK_CHAIN = -1
_NUMBERS = ("int", "double", "bool")
_TENSORS = ("tensor", "tensor_list")


class RuntimeLog:
    """The values of one block; `written` has, by instruction, where later calls log its results."""

    def __init__(
        self,
        block: RunBlock,
        buffer: DebugBuffer | None,
        written: Mapping[int, tuple[int, Sequence[tuple[int, int] | None]]] = MappingProxyType({}),
    ) -> None:
        self.block = block
        self.problems: dict[int, str] = {}
        self._buffer = buffer
        self._stored: dict[int, list[Any]] = {}
        self._inside: dict[int, list[tuple[int | str, Any]]] = {}
        for event in block.debug:
            if event.chain == FRAMEWORK_CHAIN or event.is_output:
                continue
            identifier, stored = event.delegate_debug_id, _stored(event)
            if identifier is None:
                self._stored.setdefault(event.instruction_id, []).extend(stored)
            else:
                self._inside.setdefault(event.instruction_id, []).extend((identifier, item) for item in stored)
        for instruction, (results, places) in written.items():
            self._stored[instruction] = self._with_written(instruction, results, places)

    def _with_written(self, instruction: int, results: int, places: Sequence[tuple[int, int] | None]) -> list[Any]:
        given = self._stored.get(instruction, [])[:results]
        later = [self._stored.get(place[0], ()) if place is not None else () for place in places]
        written = [
            seen[place[1]] if place and place[1] < len(seen) else None
            for place, seen in zip(places, later, strict=True)
        ]
        if None in written:
            self.problems[instruction] = "no later call of the execution logs what it wrote"
        return [*given, *written] if given or any(item is not None for item in written) else []

    @property
    def instructions(self) -> list[int]:
        return sorted(self._stored)

    def values(self, instruction: int) -> list[Any]:
        """None marks an unreadable value."""
        return [self._value(item, instruction) for item in self._stored.get(instruction, ())]

    def some_values(self, instruction: int, first: int, count: int) -> list[Any]:
        stored = self._stored.get(instruction, ())[first : first + count]
        return [self._value(item, instruction) for item in stored]

    def last_values(self, instruction: int, count: int) -> list[Any] | None:
        """A delegate call logs its inputs first; None if values are missing."""
        stored = self._stored.get(instruction, ())
        if not 0 < count <= len(stored):
            return None
        return [self._value(item, instruction) for item in stored[-count:]]

    def inside(self, instruction: int) -> list[tuple[int | str, Any]]:
        return [(identifier, self._value(item, instruction)) for identifier, item in self._inside.get(instruction, ())]

    def outputs(self) -> list[Any]:
        values = [self._value(item, -1) for event in self.block.debug if _is_result(event) for item in _stored(event)]
        return [value.clone() if hasattr(value, "clone") else value for value in values]

    def offsets(self, instruction: int) -> list[int]:
        return _offsets(self._stored.get(instruction, ()))

    def output_offsets(self) -> list[int]:
        return _offsets(ref for event in self.block.debug if event.is_output for ref in event.tensors)

    def _value(self, stored: Any, instruction: int) -> Any:
        return self._tensor(stored, instruction) if isinstance(stored, TensorRef) else stored

    def _tensor(self, ref: TensorRef, instruction: int) -> torch.Tensor | None:
        if self._buffer is None:
            self.problems[instruction] = "there is no debug buffer"
            return None
        try:
            return self._buffer.tensor(ref)
        except FileChangedError:
            raise
        except ArtifactError as error:
            self.problems[instruction] = error.problem
            return None


def _is_result(event: DebugEvent) -> bool:
    """The runtime marks only tensors as outputs, but logs plain numbers beside them."""
    return event.is_output or (event.chain == FRAMEWORK_CHAIN and event.kind in _NUMBERS)


def _stored(event: DebugEvent) -> Sequence[Any]:
    return event.tensors if event.kind in _TENSORS else (event.value,)


def _offsets(stored: Iterable[Any]) -> list[int]:
    return [item.offset for item in stored if isinstance(item, TensorRef) and item.offset >= 0]
