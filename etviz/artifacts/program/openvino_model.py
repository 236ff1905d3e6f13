"""OpenVINO's model in a delegate's payload for the CPU: its layers as XML, after their weights."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple
from xml.etree import ElementTree

import numpy as np

from etviz.errors import UsageError

_HEADER: Final = struct.Struct("<6Q")
"""Places and sizes of options, weights and layers."""
_MASK: Final = np.array((48, 96, 112, 2, 4, 8, 63, 111, 114, 116, 120, 127), np.uint8)
"""OpenVINO stores the XML xor these bytes."""
_NO_OPERATORS: Final = ("Parameter", "Const", "Result")


class Port(NamedTuple):
    """A value of the model; `sizes` has −1 for a dynamic one."""

    layer: str
    port: str
    sizes: tuple[int, ...]


class Layer(NamedTuple):
    """An operator of the model; OpenVINO names it after the operator that it comes from, and `merged` into it."""

    name: str
    merged: frozenset[str]
    outputs: tuple[Port, ...]


class OpenvinoModel:
    """Its XML is `root`, and starts at `start`. `UsageError` for another device or version."""

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        try:
            *_, self.start, size = _HEADER.unpack_from(payload)
            text = masked(payload[self.start : self.start + size])
            if b"<!DOCTYPE" in text:
                raise ElementTree.ParseError("a document type")
            self.root = ElementTree.fromstring(text)
            self._layers, self._edges = self.root.find("layers"), self.root.find("edges")
        except (struct.error, ElementTree.ParseError) as error:
            raise UsageError("the delegate holds no model of OpenVINO 2025 for the CPU") from error

    def layers(self) -> Iterator[Layer]:
        for layer in self._layers if self._layers is not None else ():
            names = [item.get("value", "") for item in layer.findall("rt_info/*[@name='fused_names']")]
            merged = frozenset(_operator(name.strip()) for text in names for name in text.split(","))
            ports = layer.findall("output/port") if layer.get("type") not in _NO_OPERATORS else ()
            outputs = [
                Port(layer.get("id", ""), port.get("id", ""), tuple(int(dim.text or -1) for dim in port.findall("dim")))
                for port in ports
            ]
            yield Layer(_operator(layer.get("name", "")), merged, tuple(outputs))

    def returning(self, ports: Sequence[Port]) -> bytes:
        """The payload whose model also returns these values, after its own."""
        layers, edges = ElementTree.Element("layers"), ElementTree.Element("edges")
        layers.extend(self._layers if self._layers is not None else ())
        edges.extend(self._edges if self._edges is not None else ())
        number = 1 + max((int(layer.get("id", "0")) for layer in layers), default=0)
        for at, port in enumerate(ports):
            result = ElementTree.SubElement(
                layers, "layer", id=str(number + at), name=f"inner_{at}", type="Result", version="opset1"
            )
            given = ElementTree.SubElement(ElementTree.SubElement(result, "input"), "port", id="0")
            for size in port.sizes:
                ElementTree.SubElement(given, "dim").text = str(size)
            ends = {"from-layer": port.layer, "from-port": port.port, "to-layer": str(number + at), "to-port": "0"}
            ElementTree.SubElement(edges, "edge", ends)
        root = ElementTree.Element("net", self.root.attrib)
        root.extend([layers, edges, *(item for item in self.root if item.tag not in ("layers", "edges"))])
        text = masked(ElementTree.tostring(root))
        *places, _ = _HEADER.unpack_from(self._payload)
        return _HEADER.pack(*places, len(text)) + self._payload[_HEADER.size : self.start] + text


def masked(content: bytes) -> bytes:
    values = np.frombuffer(content, np.uint8)
    return (values ^ np.resize(_MASK, len(values))).tobytes()


def _operator(name: str) -> str:
    return name.partition("/")[0]
