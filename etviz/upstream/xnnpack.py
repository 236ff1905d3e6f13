"""What XNNPACK's backend writes into a program: its schema, its header, and a way to write something else."""

from __future__ import annotations

import contextlib
import importlib
import importlib.resources
import json
import tempfile
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any, Final

BACKEND: Final = "XnnpackBackend"
_GRAPH: Final = "executorch.backends.xnnpack.serialization"

Look = Callable[[bytes, Mapping[str, bytes]], object]
"""Is shown a payload, and the data that the program keeps by name."""


def schema() -> str:
    """The flatbuffer schema of a payload."""
    return importlib.resources.files(_GRAPH).joinpath("schema.fbs").read_text()


def parts(payload: memoryview) -> tuple[memoryview, memoryview]:
    """The flatbuffer of a payload, and the constants behind it; a ValueError if it has no header."""
    serialize = importlib.import_module(f"{_GRAPH}.xnnpack_graph_serialize")
    header = serialize.XNNHeader.from_bytes(bytes(payload[: serialize.XNNHeader.EXPECTED_LENGTH]))
    start, end = header.flatbuffer_offset, header.flatbuffer_offset + header.flatbuffer_size
    return payload[start:end], payload[header.constant_data_offset :][: header.constant_data_size]


def pack(graph: dict[str, Any], constants: bytes) -> bytes:
    """The payload of a graph that is given as in the schema's JSON."""
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
    """Content that upstream holds in memory, or in a file."""
    return buffer.to_bytes() if hasattr(buffer, "to_bytes") else bytes(buffer)


@contextlib.contextmanager
def payloads(look: Look) -> Generator[None]:
    """Let `look` see the payload of every delegate that is lowered."""
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
