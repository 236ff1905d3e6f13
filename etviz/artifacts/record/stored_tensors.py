"""Tensors in safetensors form inside a mapped file.

The lazy reader of safetensors opens a path, which may name another file by then.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import xxhash

from etviz.artifacts.files import check_unchanged, parse_json
from etviz.errors import ArtifactError

if TYPE_CHECKING:
    import torch

MOST_HEADER: Final = 8 << 20
"""Maximum bytes of a header: some 80,000 tensors, which take 100 MB while they are read."""
_MOST_VALUES: Final = 1_200_000
_DTYPES: Final = {
    "BOOL": "bool",
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    **{f"F{bits}": f"float{bits}" for bits in (16, 32, 64)},
    **{f"I{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"U{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
}


def tensor_checksum(tensor: torch.Tensor) -> str:
    """16 hexadecimal digits of a contiguous tensor's dtype, shape and bytes."""
    import torch

    digest = xxhash.xxh3_64(f"{tensor.dtype} {list(tensor.shape)}".encode())
    digest.update(tensor.detach().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


class NamedTensors(Mapping[str, "torch.Tensor"]):
    """Tensors that are made on access; `_names` are known before."""

    _names: Collection[str]

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names  # without making it, as a Mapping would


class StoredTensors(NamedTensors):
    """The data is the header's length (uint64, little-endian), the header (JSON), the values."""

    def __init__(self, data: memoryview, checksums: Mapping[str, str], path: str) -> None:
        self._data, self._path = data, path
        self._names = self._checksums = checksums

    def __getitem__(self, name: str) -> torch.Tensor:
        check_unchanged(self._data)
        checksum = self._checksums[name]
        tensor = self._read(name)
        if tensor_checksum(tensor) != checksum:
            raise self._damaged(f"the checksum of {name} is wrong")
        return tensor

    @cached_property
    def _header(self) -> dict[str, Any]:
        size = self._header_size
        if len(self._data) < 8 or size > min(len(self._data) - 8, MOST_HEADER):
            raise self._damaged("its header reaches beyond the end")
        try:
            header = parse_json(self._data[8 : 8 + size], _MOST_VALUES)
        except ValueError as error:
            raise self._damaged(f"its header is not JSON: {error}") from error
        if not isinstance(header, dict):
            raise self._damaged("its header is not a table")
        return header

    @property
    def _header_size(self) -> int:
        return int.from_bytes(self._data[:8], "little")

    def _read(self, name: str) -> torch.Tensor:
        import torch

        try:
            entry, start = self._header[name], 8 + self._header_size
            dtype = getattr(torch, _DTYPES[entry["dtype"]])
            shape = [int(size) for size in entry["shape"]]
            first, last = (start + int(offset) for offset in entry["data_offsets"])
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise self._damaged(f"{name} is not described as a tensor: {error}") from error
        count = math.prod(shape)
        if not (min(shape, default=0) >= 0 and start <= first <= last <= len(self._data)):
            raise self._damaged(f"{name} reaches beyond the end")
        if count * dtype.itemsize != last - first:
            raise self._damaged(f"{name} has {last - first} bytes, its shape needs {count * dtype.itemsize}")
        if not count:
            return torch.empty(shape, dtype=dtype)
        return torch.frombuffer(bytearray(self._data[first:last]), dtype=dtype).reshape(shape)

    def _damaged(self, problem: str) -> ArtifactError:
        return ArtifactError(self._path, f"the record's tensors are damaged ({problem})", "write the record again")
