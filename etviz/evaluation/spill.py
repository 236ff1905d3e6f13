"""Reference values that do not fit into memory, kept in a temporary file that vanishes with the process."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


class SpillFile:
    """Tensors written one after another, and read back as views of the file, which last longer than this object."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="etviz-")  # noqa: SIM115 - closed in __exit__
        self._end = 0

    def __enter__(self) -> SpillFile:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def put(self, tensor: torch.Tensor) -> torch.Tensor:
        """Write a tensor; returns one of the same values that lies in the file."""
        import torch

        values = tensor.detach().contiguous()
        if not values.numel():
            return values
        raw = values.reshape(-1).view(torch.uint8).numpy()
        start = -(-self._end // 64) * 64
        self._file.seek(start)
        self._file.write(raw.data)
        self._file.flush()
        self._end = start + raw.nbytes
        mapped = np.memmap(self._file, np.uint8, "c", start, (raw.nbytes,))
        return torch.from_numpy(mapped).view(values.dtype).reshape(values.shape)
