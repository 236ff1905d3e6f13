r"""Recorded calls: the file ``calls.bin``, in which an app keeps the inputs of every call of a program.

Numbers are little-endian. The file begins with the eight bytes ``ETVCALLS`` and the version, a u32 (1). Each record:

====== =====================================================
u32    number of bytes of the record after this number
u8     kind: ``C`` a call, ``R`` a reset, ``N`` a note, ``L`` the limit was reached
====== =====================================================

- ``R`` (the program was loaded, or its state was reset) and ``N`` (a note, such as ``generate``): UTF-8 text.
- ``L``: nothing; later calls were not recorded.
- ``C``: u16 length of the method's name, the name, u16 number of inputs, and each input in the program's order:

====== =====================================================
u8     0 nothing, 1 tensor, 2 int, 3 double, 4 bool
tensor u8 scalar type (ExecuTorch's number), u8 number of dimensions, u32 each size, then the elements in row-major
       order
int    i64
double f64
bool   u8
====== =====================================================
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

import torch

from etviz.artifacts.files import PathLike, check_target, make_folder, open_artifact
from etviz.artifacts.program.raw_values import raw_bytes
from etviz.artifacts.scalar_types import READ_TYPES, SCALAR_TYPES, torch_dtype
from etviz.errors import ArtifactError, UsageError

FILE: Final = "calls.bin"
MAGIC: Final = b"ETVCALLS"
VERSION: Final = 1
LIMIT: Final = 1 << 30
_MOST: Final = 1 << 20
_LONGEST: Final = 4096
_WHAT: Final = "a recording of calls"
_ADVICE: Final = "record the calls with etviz.record_calls or etviz_calls.h"


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """One call: its flat inputs, the `notes` since the call before, and `fresh` after a load or reset."""

    method: str
    inputs: tuple[Any, ...]
    fresh: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CallLog:
    """`notes` follow the last call, `cut` says what is missing at the end."""

    path: str
    calls: tuple[RecordedCall, ...]
    notes: tuple[str, ...] = ()
    cut: str = ""

    def inputs(self, method: str | None = None) -> list[Any]:
        names = sorted({call.method for call in self.calls})
        if not names or (method is not None and method not in names):
            said = f"the method {method!r}" if method is not None else "a method"
            raise UsageError(f"calls: {self.path} has no call of {said}; methods: {', '.join(names) or 'none'}")
        if len(names) > 1:
            return [(call.method, call.inputs) for call in self.calls]
        return [call.inputs for call in self.calls]


class Writer:
    """Replaces the recording in a folder; after `limit` bytes it writes ``L`` and stops."""

    def __init__(self, folder: PathLike, limit: int = LIMIT) -> None:
        target = Path(os.fspath(folder))
        make_folder(target)
        self.path = check_target(target / FILE, _WHAT)
        self._file: BinaryIO = self.path.open("wb")
        self._left = limit
        self._file.write(MAGIC + struct.pack("<I", VERSION))

    def call(self, method: str, inputs: Sequence[Any]) -> None:
        name = method.encode()
        parts = [struct.pack("<cH", b"C", len(name)), name, struct.pack("<H", len(inputs))]
        for value in inputs:
            parts += _written(value)
        self._write(parts)

    def reset(self, why: str) -> None:
        self._write([b"R", why.encode()[:_LONGEST]])

    def note(self, text: str) -> None:
        self._write([b"N", text.encode()[:_LONGEST]])

    def _write(self, parts: list[bytes]) -> None:
        size = sum(map(len, parts))
        if self._file.closed or self._left < 0:
            return
        self._left -= size + 4
        if self._left < 0:
            parts, size = [b"L"], 1
        self._file.write(struct.pack("<I", size) + b"".join(parts))
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def _written(value: Any) -> list[bytes]:
    if isinstance(value, torch.Tensor):
        kind = READ_TYPES.get(str(value.dtype).removeprefix("torch."))
        if kind is None:
            raise UsageError(f"calls with tensors of {value.dtype} can't be recorded")
        shape = struct.pack(f"<BBB{value.ndim}I", 1, kind.code, value.ndim, *value.shape)
        return [shape, raw_bytes(value.detach().contiguous())]
    if isinstance(value, bool):
        return [struct.pack("<BB", 4, value)]
    if isinstance(value, int):
        return [struct.pack("<Bq", 2, value)]
    if isinstance(value, float):
        return [struct.pack("<Bd", 3, value)]
    return [b"\0"]


def call_file(path: PathLike) -> Path:
    place = Path(os.fspath(path))
    return place / FILE if place.is_dir() else place


def read_calls(path: PathLike) -> CallLog:
    name = str(call_file(path))
    data = memoryview(open_artifact(name, _WHAT, _ADVICE))
    start = len(MAGIC) + 4
    if bytes(data[: len(MAGIC)]) != MAGIC or len(data) < start:
        raise ArtifactError(name, f"this is not {_WHAT}: it does not begin with {MAGIC.decode()}", _ADVICE)
    (version,) = struct.unpack_from("<I", data, len(MAGIC))
    if version != VERSION:
        raise ArtifactError(
            name, f"it has version {version}; this etviz reads version {VERSION}", "update etviz, or record again"
        )
    calls: list[RecordedCall] = []
    notes: list[str] = []
    fresh, cut = False, ""
    for number in range(_MOST + 1):
        if start == len(data):
            break
        size = struct.unpack_from("<I", data, start)[0] if start + 4 <= len(data) else len(data)
        if start + 4 + size > len(data):
            cut = f"call {len(calls)} is cut off: the recording ended while it was written"
            break
        if number == _MOST:
            raise ArtifactError(name, f"it has more than {_MOST:,} records", "record fewer calls")
        record = _Record(data[start + 4 : start + 4 + size], name, start)
        start += 4 + size
        kind = record.take("c")
        if kind == b"L":
            cut = f"the recording reached its limit after call {len(calls) - 1}"
            break
        if kind == b"C":
            method, inputs = record.call()
            calls.append(RecordedCall(method, inputs, fresh, tuple(notes)))
            fresh, notes = False, []
        elif kind in (b"R", b"N"):
            text = record.rest()
            fresh = fresh or kind == b"R"
            notes.append(text if kind == b"N" else f"reset: {text}")
        else:
            raise record.damaged(f"a record of the unknown kind {kind!r}")
    return CallLog(name, tuple(calls), tuple(notes), cut)


class _Record:
    def __init__(self, data: memoryview, path: str, start: int) -> None:
        self._data, self._path, self._start, self._at = data, path, start, 0

    def damaged(self, what: str) -> ArtifactError:
        return ArtifactError(self._path, f"it has {what}", _ADVICE, where=f"byte {self._start + 4 + self._at}")

    def bytes(self, count: int) -> memoryview:
        if count > len(self._data) - self._at:
            raise self.damaged(f"a record of {len(self._data)} bytes with values beyond its end")
        self._at += count
        return self._data[self._at - count : self._at]

    def take(self, form: str) -> Any:
        return struct.unpack(f"<{form}", self.bytes(struct.calcsize(f"<{form}")))[0]

    def rest(self) -> str:
        return bytes(self._data[self._at : self._at + _LONGEST]).decode(errors="replace")

    def call(self) -> tuple[str, tuple[Any, ...]]:
        name = bytes(self.bytes(self.take("H"))).decode(errors="replace")
        inputs = tuple(self._value() for _ in range(self.take("H")))
        if self._at != len(self._data):
            raise self.damaged("a call with bytes behind its last input")
        return name, inputs

    def _value(self) -> Any:
        kind = self.take("B")
        if kind == 1:
            return self._tensor()
        if kind == 4:
            return bool(self.take("B"))
        if kind in (2, 3):
            return self.take("q" if kind == 2 else "d")
        if kind:
            raise self.damaged(f"an input of the unknown kind {kind}")
        return None

    def _tensor(self) -> torch.Tensor:
        code, dimensions = self.take("B"), self.take("B")
        sizes = [self.take("I") for _ in range(dimensions)]
        kind = SCALAR_TYPES.get(code)
        dtype = torch_dtype(kind.name) if kind is not None else None
        if kind is None or dtype is None:
            raise self.damaged(f"a tensor of the unknown type {code}")
        content = self.bytes(kind.itemsize * math.prod(sizes))
        flat = torch.frombuffer(bytearray(content), dtype=dtype) if len(content) else torch.empty(0, dtype=dtype)
        return flat.reshape(sizes)
