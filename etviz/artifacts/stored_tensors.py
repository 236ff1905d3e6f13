"""Tensors in safetensors form inside a mapped file, read one at a time and never copied as a whole.

The float weights that a record keeps for a quantized model may be as large as the model.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from etviz.errors import ArtifactError

if TYPE_CHECKING:
    import torch

_MOST_HEADER: Final = 64 << 20
_BLOCK: Final = 1 << 24
_ADVICE: Final = "write the record again"
_DTYPES: Final = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U8": "uint8",
    "U16": "uint16",
    "U32": "uint32",
    "U64": "uint64",
    "BOOL": "bool",
}


class StoredTensors(Mapping[str, "torch.Tensor"]):
    """Tensors by name.

    Parameters
    ----------
    data
        Safetensors bytes: the length of the header (uint64, little-endian), the header (JSON), the values.
    path, where
        The file and the place in it, for messages.
    crc
        CRC-32 that `data` must have, None if it is not to be checked.

    Raises
    ------
    ArtifactError
        If the bytes are damaged or not in this form. Names that are not there raise `KeyError`.
    """

    def __init__(self, data: memoryview | bytes, path: str, where: str, crc: int | None = None) -> None:
        self._data = memoryview(data)
        self._path, self._where = path, where
        if crc is not None and _checksum(self._data) != crc:
            raise self._damaged("its checksum is wrong")
        size = int.from_bytes(self._data[:8], "little")
        if len(self._data) < 8 or size > min(len(self._data) - 8, _MOST_HEADER):
            raise self._damaged("its header reaches beyond the end")
        try:
            header = json.loads(bytes(self._data[8 : 8 + size]))
        except (ValueError, RecursionError) as error:
            raise self._damaged(f"its header is not JSON: {error}") from error
        if not isinstance(header, dict):
            raise self._damaged("its header is not a table")
        self._start = 8 + size
        self._header: dict[str, Any] = {name: item for name, item in header.items() if name != "__metadata__"}

    def __len__(self) -> int:
        return len(self._header)

    def __iter__(self) -> Iterator[str]:
        return iter(self._header)

    def __getitem__(self, name: str) -> torch.Tensor:
        import torch

        item = self._header[name]
        try:
            dtype = getattr(torch, _DTYPES[item["dtype"]])
            shape = [int(size) for size in item["shape"]]
            first, last = (self._start + int(offset) for offset in item["data_offsets"])
        except (KeyError, TypeError, ValueError) as error:
            raise self._damaged(f"{name} is not described as a tensor: {error}") from error
        count = math.prod(shape)
        if not (min(shape, default=0) >= 0 and self._start <= first <= last <= len(self._data)):
            raise self._damaged(f"{name} reaches beyond the end")
        if count * dtype.itemsize != last - first:
            raise self._damaged(f"{name} has {last - first} bytes, its shape needs {count * dtype.itemsize}")
        if not count:
            return torch.empty(shape, dtype=dtype)
        return torch.frombuffer(bytearray(self._data[first:last]), dtype=dtype).reshape(shape)

    def _damaged(self, problem: str) -> ArtifactError:
        return ArtifactError(self._path, f"the record's weights are damaged ({problem})", _ADVICE, where=self._where)


def _checksum(data: memoryview) -> int:
    crc = 0
    for start in range(0, len(data), _BLOCK):
        crc = zlib.crc32(data[start : start + _BLOCK], crc)
    return crc
