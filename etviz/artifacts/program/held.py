"""The operators in a delegate's program, for backends whose program can be read where it can't be run.

Vulkan (also for WebGPU) and the native backend hold a flatbuffer, Core ML a model package with a MIL program.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from etviz.artifacts.flatbuffer import FlatBuffer
from etviz.errors import ArtifactError, UsageError

_ADVICE: Final = "lower the model again"
NATIVE: Final = b"NPTG", "native graph"
_LISTING: Final = 1 << 20
"""Bytes of the list of files at the end of Core ML's package that are read at most."""
_LEVELS: Final = ((502,), (2, 2, 3, 2), (3,))
"""Fields from Core ML's model to a MIL program, from it through the maps of functions and blocks, and to operations."""


class Held(NamedTuple):
    """An operator of the backend; `name` is the edge operator's, or empty, `number` the delegate map's, or -1."""

    kind: str
    name: str = ""
    number: int = -1

    def is_of(self, node: str) -> bool:
        """Core ML appends the type that it computes in."""
        return self.name.removesuffix("_cast_fp16") == node


def is_readable(backend_id: str) -> bool:
    return backend_id in _READERS


def held_operators(backend_id: str, payload: memoryview) -> list[Held] | None:
    """In program order, without those in branches; None for backends that are not known.

    `ArtifactError` or `UsageError` if the payload is damaged, or of another version.
    """
    read = _READERS.get(backend_id)
    return None if read is None else list(read(payload))


def _vulkan(payload: memoryview) -> Iterator[Held]:
    start, size = (int.from_bytes(payload[at : at + 4], "little") for at in (10, 14))
    if bytes(payload[4:8]) != b"VH00" or start + size > len(payload):
        raise UsageError(f"the delegate holds no Vulkan program (VH00): it starts with {bytes(payload[:8])!r}")
    graph = _flatbuffer(payload[start : start + size], b"VK00", "Vulkan program")
    calls = graph.root().vectors(1).tables()
    for name, number in zip(calls.strings(1).tolist(), calls.scalar(0, "<u4").tolist(), strict=True):
        yield Held(str(name), number=number)


def _native(payload: memoryview) -> Iterator[Held]:
    methods = _flatbuffer(payload, *NATIVE).root().vectors(1).tables()
    nodes = methods.table(1).vectors(0).tables()
    for name, kind, target in zip(
        nodes.strings(0).tolist(), nodes.scalar(1, "<i1").tolist(), nodes.strings(2).tolist(), strict=True
    ):
        if kind == 0:
            yield Held(str(target).removeprefix("torch.ops."), str(name))


def _flatbuffer(data: memoryview, version: bytes, what: str) -> FlatBuffer:
    require_version(data, version, what)
    return FlatBuffer(data, "the delegate's payload", what, _ADVICE)


def require_version(data: memoryview, version: bytes, what: str) -> None:
    if bytes(data[4:8]) != version:
        raise UsageError(f"the delegate's {what} has the version {bytes(data[4:8])!r}; etviz reads {version.decode()}")


def _core_ml(payload: memoryview) -> Iterator[Held]:
    try:
        tail = bytes(payload[-_LISTING:])[::-1].decode("latin-1")
        files, _ = json.JSONDecoder().raw_decode(tail)
        (region,) = (node["dataRegion"] for node in files["nodes"] if node["name"].endswith(".mlmodel"))
        start, size = int(region["offset"]), int(region["size"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(
            "the delegate's payload is no Core ML model package that lists its files at its end"
        ) from error
    if not 0 <= start <= start + size <= len(payload):
        raise UsageError("the model of the delegate's Core ML package lies outside of it")
    programs = [payload[start : start + size]]
    for path in _LEVELS:
        for number in path:
            programs = [item for program in programs for item in _fields(program, number)]
    for operation in programs:
        kind = next((bytes(item).decode("utf-8", "replace") for item in _fields(operation, 1)), "")
        names = (name for output in _fields(operation, 3) for name in _fields(output, 1))
        if kind != "const":
            yield Held(kind, next((bytes(name).decode("utf-8", "replace") for name in names), ""))


def _fields(message: memoryview, wanted: int) -> Iterator[memoryview]:
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind, size = key & 7, 0
        if kind == 0:
            _, at = _varint(message, at)
        elif kind == 2:
            size, at = _varint(message, at)
        else:
            size = {1: 8, 5: 4}.get(kind, -1)
        if size < 0 or at + size > len(message):
            raise ArtifactError("the delegate's payload", "this Core ML model is damaged", _ADVICE)
        if kind == 2 and key >> 3 == wanted:
            yield message[at : at + size]
        at += size


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at + shift // 7 >= len(message):
            break
        byte = message[at + shift // 7]
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at + shift // 7 + 1
    raise ArtifactError("the delegate's payload", "this Core ML model is damaged", _ADVICE)


_READERS: Final[dict[str, Callable[[Any], Iterator[Held]]]] = {
    "VulkanBackend": _vulkan,
    "NativeBackend": _native,
    "CoreMLBackend": _core_ml,
}
