"""Reference values that do not fit into memory, in a temporary file that vanishes with the process."""

from __future__ import annotations

import mmap
import tempfile
from typing import Final

import numpy as np
import torch

from etviz.tensors.digest import octets

_SEGMENT: Final = 64 << 20
"""Bytes that are mapped at once: each mapping takes a descriptor, and a process may have few."""
_ALIGNMENT: Final = 64


class SpillFile:
    """Tensors are read as views of the file that outlive this object."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="etviz-")  # noqa: SIM115 - closed in __exit__
        self._start = self._end = 0
        self._segment = np.empty(0, np.uint8)

    def __enter__(self) -> SpillFile:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def put(self, tensor: torch.Tensor) -> torch.Tensor:
        values = tensor.detach().contiguous()
        if not values.numel():
            return values
        raw = octets(values).numpy()
        start = -(-self._end // _ALIGNMENT) * _ALIGNMENT
        if start + raw.nbytes > self._start + len(self._segment):
            start = self._map(max(raw.nbytes, _SEGMENT))
        self._file.seek(start)
        self._file.write(raw.data)
        self._file.flush()
        self._end = start + raw.nbytes
        mapped = self._segment[start - self._start : self._end - self._start]
        return torch.from_numpy(mapped).view(values.dtype).reshape(values.shape)

    def _map(self, size: int) -> int:
        self._start += -(-len(self._segment) // mmap.ALLOCATIONGRANULARITY) * mmap.ALLOCATIONGRANULARITY
        self._file.truncate(self._start + size)
        self._segment = np.memmap(self._file, np.uint8, "c", self._start, (size,))
        return self._start
