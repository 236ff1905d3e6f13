"""XNNPACK's payload: schema, header, and a way to write another one."""

from __future__ import annotations

import contextlib
import importlib
import struct
from collections.abc import Callable, Generator, Mapping
from typing import Any, Final

from etviz.upstream.delegate_file import aligned, flatbuffer, package_file
from etviz.upstream.executorch import swapped

BACKEND: Final = "XnnpackBackend"
_SCHEMA: Final = "backends/xnnpack/serialization/schema.fbs"
_ALIGNMENT: Final = 16
_HEADER: Final = struct.Struct("<8sHIIIQ")
_MAGIC: Final = b"XH00"
"""At byte 4; then the header's length, and offset and size of flatbuffer and constants."""

Look = Callable[[bytes, Mapping[str, bytes]], object]


def schema() -> str:
    """The flatbuffer schema of a payload; raises `FileNotFoundError` if it is missing here."""
    return package_file(_SCHEMA).read_text("utf-8")


def parts(payload: memoryview) -> tuple[memoryview, memoryview]:
    """The flatbuffer of a payload, and the constants after it; raises `ValueError` without a header."""
    if len(payload) < _HEADER.size or bytes(payload[4:8]) != _MAGIC:
        raise ValueError("it has no header of XNNPACK's")
    _, _, start, size, constants, length = _HEADER.unpack(payload[: _HEADER.size])
    return payload[start:][:size], payload[constants:][:length]


def pack(graph: Mapping[str, Any], constants: bytes) -> bytes:
    body, start = flatbuffer(package_file(_SCHEMA), graph), aligned(_HEADER.size, _ALIGNMENT)
    end = start + aligned(len(body), _ALIGNMENT)
    header = _HEADER.pack(bytes(4) + _MAGIC, _HEADER.size, start, len(body), end, len(constants))
    return header.ljust(start, b"\0") + body.ljust(end - start, b"\0") + constants


def _bytes(buffer: Any) -> bytes:
    return buffer.to_bytes() if hasattr(buffer, "to_bytes") else bytes(buffer)


@contextlib.contextmanager
def payloads(look: Look) -> Generator[None]:
    """Call `look` with the payload of every delegate that is lowered."""
    preprocess: Any = importlib.import_module("executorch.backends.xnnpack.xnnpack_preprocess")
    original, store_class = preprocess.serialize_xnnpack_binary, preprocess.NamedDataStore
    stores: list[Any] = []

    def store() -> Any:
        stores.append(store_class())
        return stores[-1]

    def serialize(graph: Any, constants: bytearray) -> bytes:
        kept = stores[-1].get_named_data_store_output()
        payload = original(graph, constants)
        look(payload, {name: _bytes(kept.buffers[entry.buffer_index]) for name, entry in kept.pte_data.items()})
        return payload

    with swapped(preprocess, serialize_xnnpack_binary=serialize, NamedDataStore=store):
        yield
