"""Values as bits, for comparing two runs exactly."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import xxhash


def digest(values: Iterable[Any]) -> bytes:
    """A hash (XXH3, 128 bits) of values with their types and shapes, for any strides."""
    sha = xxhash.xxh3_128()
    for value in values:
        if isinstance(value, torch.Tensor):
            sha.update(f"{value.dtype}{tuple(value.shape)}".encode())
            sha.update(np.ascontiguousarray(bits(value)).data)
        else:
            sha.update(repr(value).encode())
    return sha.digest()


def octets(tensor: torch.Tensor) -> torch.Tensor:
    plain = tensor.detach().contiguous()
    return plain.as_strided((plain.numel(),), (1,)).view(torch.uint8)  # the stride of one element may be any


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return torch.equal(octets(a), octets(b))


def bits(tensor: torch.Tensor) -> npt.NDArray[Any]:
    """The elements as integers of their size, in the tensor's shape; a complex number as two."""
    plain = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    sizes = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return plain.detach().contiguous().view(sizes[plain.element_size()]).numpy()
