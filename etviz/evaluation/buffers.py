"""Memory for large tensors that follow one another.

The system clears each page of a tensor of many megabytes, which takes longer than the computation. So memory that
nothing refers to any longer is given to the next tensor.
"""

from __future__ import annotations

import ctypes
import functools
import math
import threading
import weakref
from typing import TYPE_CHECKING, Any, ClassVar, Final

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence


LARGE: Final = 1 << 20
"""Number of elements from which reuse pays."""
_KEPT: Final = 320 << 20
"""Bytes that are kept; a tensor of more than half of them is not."""


class Buffers:
    """Gives out tensors whose elements are not set."""

    _shared: ClassVar[weakref.ref[Buffers] | None] = None

    def __init__(self) -> None:
        self._kept: list[torch.Tensor] = []
        self._lock = threading.Lock()

    @classmethod
    def shared(cls) -> Buffers:
        """Those of all evaluations, for as long as there is one."""
        found = cls._shared() if cls._shared is not None else None
        if found is None:
            found = cls()
            cls._shared = weakref.ref(found)
        return found

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """A contiguous tensor; of memory that was in use before, where no tensor refers to it any longer."""
        size = math.prod(shape) * dtype.itemsize
        with self._lock:
            free = [item for item in self._kept if size <= item.nbytes <= 2 * size and _owners(item) == _OURS]
            found = min(free, key=lambda item: item.nbytes, default=None)
            if found is None:
                found = torch.empty(size, dtype=torch.uint8)
                self._keep(found)
            return found[:size].view(dtype).view(tuple(shape))

    def _keep(self, memory: torch.Tensor) -> None:
        if 2 * memory.nbytes > _KEPT or not _owners(memory):
            return
        while sum(item.nbytes for item in self._kept) + memory.nbytes > _KEPT:
            self._kept.pop(0)
        self._kept.append(memory)


def give_back() -> None:
    """Let the allocator return to the system what lies free between the tensors that are there."""
    trim = _trim()
    if trim is not None:
        trim(0)


@functools.cache
def _trim() -> Any:
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None


_OURS: Final = 2
"""Owners of memory that is kept, and of nothing else: the tensor, and the storage that is asked."""


def _owners(memory: torch.Tensor) -> int:
    """How many refer to a tensor's memory, views among them; 0 where torch does not tell."""
    private = torch._C  # pyright: ignore[reportPrivateUsage]
    count = getattr(private, "_storage_Use_Count", None)  # what torch's own memory pools ask
    address = getattr(memory.untyped_storage(), "_cdata", None)
    return count(address) if count is not None else 0
