"""XNNPACK's payload: schema, header, and a way to write another one."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import struct
import tempfile
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any, Final

BACKEND: Final = "XnnpackBackend"
_GRAPH: Final = "executorch.backends.xnnpack.serialization"
_HEADER: Final = struct.Struct("<8sHIIIQ")
_MAGIC: Final = b"XH00"
"""At byte 4; then the header's length, and offset and size of flatbuffer and constants."""

Look = Callable[[bytes, Mapping[str, bytes]], object]


def schema() -> str:
    """The flatbuffer schema of a payload; raises `FileNotFoundError` if it is missing here."""
    package, *inner = _GRAPH.split(".")
    spec = importlib.util.find_spec(package)  # importing the backend takes seconds
    roots = list(spec.submodule_search_locations or ()) if spec is not None else []
    return Path(*roots[:1], *inner, "schema.fbs").read_text()


def parts(payload: memoryview) -> tuple[memoryview, memoryview]:
    """The flatbuffer of a payload, and the constants after it; raises `ValueError` without a header."""
    if len(payload) < _HEADER.size or bytes(payload[4:8]) != _MAGIC:
        raise ValueError("it has no header of XNNPACK's")
    _, _, start, size, constants, length = _HEADER.unpack(payload[: _HEADER.size])
    return payload[start:][:size], payload[constants:][:length]


def pack(graph: dict[str, Any], constants: bytes) -> bytes:
    serialize: Any = importlib.import_module(f"{_GRAPH}.xnnpack_graph_serialize")
    original = serialize.convert_to_flatbuffer
    serialize.convert_to_flatbuffer = _compiled
    try:
        return serialize.serialize_xnnpack_binary(graph, bytearray(constants))
    finally:
        serialize.convert_to_flatbuffer = original


def _compiled(graph: dict[str, Any]) -> bytes:
    flatbuffer = importlib.import_module("executorch.exir._serialize._flatbuffer")
    with tempfile.TemporaryDirectory() as folder:
        source, text = Path(folder) / "schema.fbs", Path(folder) / "graph.json"
        source.write_text(schema())
        text.write_text(json.dumps(graph))
        flatbuffer._flatc_compile(folder, str(source), str(text))
        return (Path(folder) / "graph.bin").read_bytes()


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

    preprocess.serialize_xnnpack_binary, preprocess.NamedDataStore = serialize, store
    try:
        yield
    finally:
        preprocess.serialize_xnnpack_binary, preprocess.NamedDataStore = original, store_class
