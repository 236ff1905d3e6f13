"""Tensors in torch's file format inside an ETRecord, read safely and lazily.

`torch.load` with ``weights_only=True`` is the only reader, so no code in a file runs; the archive is first checked to
hold no more than its bytes. In an active fake mode torch notes each storage's offset and reads no data, so tensors
become slices of the mapped file. The mode is only pretended.
"""

from __future__ import annotations

import functools
import hashlib
import re
import warnings
from collections import ChainMap
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, Final

import torch
from torch._guards import TracingContext, tracing

from etviz.artifacts.buffers import LARGE, Buffers
from etviz.artifacts.files import MappedFile, Residency, as_file, check_unchanged, open_archive, stored_at, stored_bytes
from etviz.artifacts.recent import Recent
from etviz.artifacts.record.stored_tensors import NamedTensors
from etviz.errors import ArtifactError
from etviz.upstream.libraries import load_operator_library

_REPEATED: Final = 64 << 20
"""Maximum bytes that a broadcast tensor may claim beyond its storage."""
_READ: Final = 1 << 16
"""Bytes from which reading pays: opening the file takes longer than copying less from its pages."""
_DEEPEST: Final = 64
_MOST_VALUES: Final = 1_000_000
_TABLES: Final = Recent["dict[str, torch.Tensor]"](8)
"""By what an archive tells of its tensors: torch takes a tenth of another load to read a table of 2,000."""
_DATA: Final = re.compile(r"[^/]*/data/\d+")
"""A member with a tensor's data."""
_A_MODE: Final[Any] = SimpleNamespace(shape_env=None)
_ADVICE: Final = "write the ETRecord again with ETRecord.save()"


class TensorFile(NamedTensors):
    """Tensors saved with `torch.save`, as read-only views; unaligned ones are copied on each access."""

    def __init__(self, data: memoryview, path: str, member: str) -> None:
        self._path, self._member, self._data = path, member, data
        self._residency = Residency(data)
        told = _check_archive(data, path, member)
        self._names = self._tensors = _TABLES.get(told, self._table)

    def _table(self) -> dict[str, torch.Tensor]:
        path, member = self._path, self._member
        try:
            with tracing(TracingContext(_A_MODE)):
                loaded = _load(self._data)
        except Exception as error:
            raise ArtifactError(
                path, f"{member} can't be read ({_first_line(error)})", _ADVICE, where=member
            ) from error
        if not isinstance(loaded, Mapping):
            raise ArtifactError(path, f"{member} is not a table of tensors", _ADVICE, where=member)
        table = {str(name): t for name, t in loaded.items() if isinstance(t, torch.Tensor)}
        if not all(map(_is_plain, table.values())):
            raise ArtifactError(path, f"{member} holds a tensor that is not a plain one", _ADVICE, where=member)
        return table

    def __getitem__(self, name: str) -> torch.Tensor:
        return self._view(name, aligned=True)

    def in_place(self, name: str) -> torch.Tensor:
        return self._view(name, aligned=False)

    def _view(self, name: str, *, aligned: bool) -> torch.Tensor:
        fake = self._tensors[name]
        storage = fake.untyped_storage()
        size = _reach(fake)  # torch 2.10 claims more bytes of a storage than there are
        start = getattr(storage, "_checkpoint_offset", None)
        if not size:
            return torch.empty(fake.shape, dtype=fake.dtype)
        if start is None or start < 0 or size > storage.nbytes() or start + size > len(self._data):
            raise ArtifactError(self._path, f"the data of {name} is not in {self._member}", _ADVICE, where=name)
        check_unchanged(self._data)
        raw = _bytes(self._data[start : start + size])
        if aligned and raw.data_ptr() % fake.dtype.itemsize:
            raw = self._copy(raw)
        else:
            self._residency.add(size)
        return raw.view(fake.dtype).as_strided(fake.shape, fake.stride(), fake.storage_offset())

    def _copy(self, raw: torch.Tensor) -> torch.Tensor:
        file = self._data.obj
        copied = torch.empty_like(raw) if raw.nbytes < LARGE else Buffers.shared().empty(raw.shape, raw.dtype)
        if isinstance(file, MappedFile) and raw.nbytes >= _READ:
            start = raw.data_ptr() - _bytes(memoryview(file)).data_ptr()
            if file.read_into(copied.numpy().data, start):
                return copied
        self._residency.add(raw.nbytes)
        return copied.copy_(raw)


def _bytes(data: memoryview) -> torch.Tensor:
    _warn_once()
    return torch.frombuffer(data, dtype=torch.uint8)


@functools.cache
def _warn_once() -> None:
    """Let torch warn now, unheard, that a buffer is not writable: to hide each warning takes longer than a view."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given buffer is not writable")
        torch.frombuffer(b"\0", dtype=torch.uint8)


class TensorFiles(ChainMap[str, "torch.Tensor"]):
    """The first with a name wins."""

    def __init__(self, *files: TensorFile) -> None:
        super().__init__(*files)  # pyright: ignore[reportArgumentType] - they are only read
        self._files = files

    def in_place(self, name: str) -> torch.Tensor:
        return next(file for file in self._files if name in file).in_place(name)


def load_all(data: memoryview, path: str, member: str, advice: str = _ADVICE) -> Any:
    """`ArtifactError` if it holds more than tensors, lists, tuples, dicts and plain values."""
    _check_archive(data, path, member, advice)
    try:
        loaded = torch.load(as_file(data), weights_only=True)
    except Exception as error:
        raise ArtifactError(path, f"{member} can't be read ({_first_line(error)})", advice, where=member) from error
    pending, seen = [(loaded, 0)], 0
    while pending:
        value, depth = pending.pop()
        seen += 1
        if depth > _DEEPEST or seen > _MOST_VALUES:
            raise ArtifactError(path, f"{member} holds too many values", advice, where=member)
        if isinstance(value, torch.Tensor) and not (value.device.type == "cpu" and _is_plain(value)):
            raise ArtifactError(path, f"{member} holds a tensor that is not a plain one", advice, where=member)
        if isinstance(value, (list, tuple, Mapping)):
            items = value.values() if isinstance(value, Mapping) else value
            pending.extend((item, depth + 1) for item in items)
    return loaded


def _load(data: memoryview) -> Any:
    try:
        return torch.load(as_file(data), weights_only=True)
    except Exception as error:
        if "torchao." not in str(error) or load_operator_library("torchao"):
            raise
        return torch.load(as_file(data), weights_only=True)


def _check_archive(data: memoryview, path: str, member: str, advice: str = _ADVICE) -> bytes:
    """A digest of all that an archive tells of its tensors: where each member stands, and all but their data."""
    check_unchanged(data)
    told = hashlib.blake2b()
    try:
        with open_archive(data) as (_, members):
            for name, info in members.items():
                stored = stored_bytes(data, info)
                told.update(repr((name, stored_at(data, info), info.file_size)).encode())
                told.update(stored if not _DATA.fullmatch(name) else b"")
            return told.digest()
    except ValueError as error:
        raise ArtifactError(path, f"{member} can't be read ({error})", advice, where=member) from error


def _is_plain(tensor: torch.Tensor) -> bool:
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_nested:
        return False
    return tensor.numel() * tensor.element_size() <= tensor.untyped_storage().nbytes() + _REPEATED


def _reach(tensor: torch.Tensor) -> int:
    if not tensor.numel():
        return 0
    last = tensor.storage_offset() + sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    return int(last + 1) * tensor.itemsize


def _first_line(error: Exception) -> str:
    if type(error).__name__ == "UnpicklingError":  # whose text tells how to run the code in it
        return "it holds more than tensors, numbers, lists and dicts"
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
