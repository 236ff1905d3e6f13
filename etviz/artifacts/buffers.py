"""Memory for large tensors that follow one another: memory that nothing refers to goes to the next tensor.

The system clears each new page, which takes longer than the computation.
"""

from __future__ import annotations

import ctypes
import functools
import math
import threading
import weakref
from collections.abc import Sequence
from typing import Any, ClassVar, Final

import torch

LARGE: Final = 1 << 20
"""Number of elements from which reuse pays."""
_KEPT: Final = 320 << 20
"""Maximum bytes to keep; a tensor of more than half of them is not kept."""


class Buffers:
    """Elements are not set."""

    _shared: ClassVar[weakref.ref[Buffers] | None] = None

    def __init__(self) -> None:
        self._kept: list[torch.Tensor] = []
        self._lock = threading.Lock()

    @classmethod
    def shared(cls) -> Buffers:
        buffers = cls._shared() if cls._shared is not None else None
        if buffers is None:
            buffers = cls()
            cls._shared = weakref.ref(buffers)
        return buffers

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        size = math.prod(shape) * dtype.itemsize
        with self._lock:
            free = [kept for kept in self._kept if size <= kept.nbytes <= 2 * size and _owners(kept) == _OURS]
            buffer = min(free, key=lambda kept: kept.nbytes, default=None)
            if buffer is None:
                buffer = torch.empty(size, dtype=torch.uint8)
                self._keep(buffer)
            return buffer[:size].view(dtype).view(tuple(shape))

    def _keep(self, memory: torch.Tensor) -> None:
        if 2 * memory.nbytes > _KEPT or not _owners(memory):
            return
        while sum(kept.nbytes for kept in self._kept) + memory.nbytes > _KEPT:
            self._kept.pop(0)
        self._kept.append(memory)


def give_back() -> None:
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
"""Owners of kept memory that no tensor uses: the kept tensor, and the storage object of the query."""


def _owners(memory: torch.Tensor) -> int:
    private = torch._C  # pyright: ignore[reportPrivateUsage]
    count = getattr(private, "_storage_Use_Count", None)  # what torch's own memory pools ask
    address = getattr(memory.untyped_storage(), "_cdata", None)
    return count(address) if count is not None else 0
