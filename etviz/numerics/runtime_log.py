"""What the runtime logged in one execution, instruction by instruction, as torch tensors over the mapped buffer."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from etviz.artifacts.debug_buffer import DebugBuffer
from etviz.artifacts.etdump import DebugEvent, RunBlock, TensorRef
from etviz.artifacts.files import Residency
from etviz.errors import ArtifactError

if TYPE_CHECKING:
    import torch

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
        self._bytes: torch.Tensor | None = None
        self._residency = Residency(buffer.data if buffer is not None else memoryview(b""))
        self._events: dict[int, list[DebugEvent]] = {}
        for event in block.debug:
            if event.chain != FRAMEWORK_CHAIN and not event.is_output and event.delegate_debug_id is None:
                self._events.setdefault(event.instruction_id, []).append(event)

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

    def outputs(self) -> list[Any]:
        """The program's final outputs as logged."""
        results = [event for event in self.block.debug if _is_result(event)]
        return [self._value(event, at, -1) for event in results for at in _positions(event)]

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
            return self.tensor(ref)
        except ArtifactError as error:
            self.problems[instruction] = error.problem
            return None

    def tensor(self, ref: TensorRef) -> torch.Tensor:
        """A tensor of the buffer, as a view of the mapped file.

        Raises
        ------
        ArtifactError
            If it can't be in this file, or has a dtype that torch lacks.
        """
        import torch

        buffer = self._buffer
        if buffer is None:
            raise ArtifactError("", "there is no debug buffer", "give debug_buffer=")
        raw = buffer.raw(ref)
        self._residency.add(len(raw))
        dtype = getattr(torch, ref.dtype, None)
        if not isinstance(dtype, torch.dtype):
            raise ArtifactError(buffer.path, f"a tensor has the dtype {ref.dtype}, which torch lacks")
        if not len(raw):
            return torch.empty(ref.sizes, dtype=dtype)
        flat = self._whole()[ref.offset : ref.offset + len(raw)]
        if ref.offset % dtype.itemsize:
            flat = flat.clone()
        return flat.view(dtype).as_strided(ref.sizes, ref.strides)

    def _whole(self) -> torch.Tensor:
        import torch

        if self._bytes is None and self._buffer is not None:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="The given buffer is not writable")
                self._bytes = torch.frombuffer(self._buffer.data, dtype=torch.uint8)
        if self._bytes is None:
            raise ArtifactError("", "there is no debug buffer", "give debug_buffer=")
        return self._bytes


def _is_result(event: DebugEvent) -> bool:
    """True for a final output; the runtime marks tensors only, but logs plain numbers beside them."""
    return event.is_output or (event.chain == FRAMEWORK_CHAIN and event.kind in _NUMBERS)


def _positions(event: DebugEvent) -> range:
    """Positions of the values that an event holds."""
    return range(len(event.tensors) if event.kind in _TENSORS else 1)


def _offsets(events: Iterable[DebugEvent]) -> list[int]:
    return [ref.offset for event in events for ref in event.tensors if ref.offset >= 0]
