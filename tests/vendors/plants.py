"""Faults in the TOSA graph or OpenVINO's model of a `.pte`: bytes are changed in place, the record stays true."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import etviz
from etviz.artifacts.flatbuffer import FlatBuffer, FlatTables
from etviz.artifacts.program.openvino_model import OpenvinoModel, masked
from etviz.artifacts.program.program import read_program
from etviz.artifacts.program.tosa_graph import is_tosa
from etviz.artifacts.record.checksum import checksum_of
from etviz.artifacts.record.record_file import read_record, write_record
from etviz.pipeline.emulation import emulate
from tests.vendors.models import Inputs

KINDS = {2: "AVG_POOL2D", 3: "CONV2D", 5: "DEPTHWISE_CONV2D", 8: "MAX_POOL2D", 10: "TRANSPOSE_CONV2D", 11: "CLAMP"}
KINDS |= {15: "ADD", 28: "MUL", 31: "TABLE", 54: "REDUCE_SUM", 61: "TRANSPOSE", 66: "RESCALE"}
CONVOLUTIONS = ("CONV2D", "DEPTHWISE_CONV2D", "TRANSPOSE_CONV2D")
DTYPES = {3: np.int8, 4: np.int16, 5: np.int32, 7: np.float32}
Change = Callable[[np.ndarray[Any, Any]], None]


@dataclass(frozen=True)
class Plant:
    """A fault: its kind, TOSA's output or OpenVINO's layer, and how to change the bytes at a place of the blob."""

    kind: str
    output: str
    start: int
    dtype: Any
    count: int
    change: Change

    def into(self, blob: bytearray) -> None:
        """Change the bytes."""
        self.change(np.frombuffer(blob, self.dtype, self.count, self.start))


def plants(blob: bytes) -> Iterator[Plant]:
    """Every fault that can be planted in a blob, in program order."""
    return _in_tosa(blob) if is_tosa(blob) else _in_openvino(blob)


def _in_tosa(blob: bytes) -> Iterator[Plant]:
    block = FlatBuffer(blob, "", "TOSA graph", "").root().vectors(1).tables().vectors(1).tables()
    operators, tensors = block.vectors(1).tables(), block.vectors(2).tables()
    data = tensors.vectors(3, "<u1")
    shapes = dict(zip(tensors.strings(0).tolist(), tensors.vectors(1, "<i4").tuples(), strict=True))
    held = {
        name: (start, DTYPES.get(dtype), length)
        for name, start, length, dtype in zip(
            tensors.strings(0).tolist(),
            data.start.tolist(),
            data.length.tolist(),
            tensors.scalar(2, "<u4").tolist(),
            strict=True,
        )
    }

    def constant(kind: str, output: str, name: str, change: Change) -> Iterator[Plant]:
        start, dtype, length = held.get(name, (0, None, 0))
        if dtype is not None and length:
            yield Plant(kind, output, start, dtype, length // np.dtype(dtype).itemsize, change)

    for at in range(len(operators)):
        one = operators.take(np.array([at]))
        kind = KINDS.get(int(one.scalar(0, "<u4")[0]), "")
        names, output = _texts(one, 3), _texts(one, 4)[0]
        if kind in CONVOLUTIONS:
            yield from constant("weight", output, names[1], _scaled)
            yield from constant("bias", output, names[2], _scaled)
            yield from constant("zero point", output, names[3], _far) if held[names[3]][1] == np.int8 else ()
            yield from _pad(one, output)
        elif kind == "RESCALE":
            yield from constant("scale", output, names[1], _halved)
            yield from constant("shift", output, names[2], _one_more)
        elif kind == "TABLE":
            yield from constant("table", output, names[1], _reversed)
        elif kind == "TRANSPOSE":
            yield from _axes(one, output, shapes[names[0]])


def _texts(table: FlatTables, field: int) -> list[str]:
    vectors, buffer = table.vectors(field), table.buffer
    places = vectors.positions()
    return [buffer.text(int(at)) for at in (places + buffer.gather(places, "<u4")).tolist()]


def _scaled(values: np.ndarray[Any, Any]) -> None:
    values[:] = (values * 0.4).astype(values.dtype)


def _far(values: np.ndarray[Any, Any]) -> None:
    values[:] = np.where(values > 0, values - 40, values + 40).astype(values.dtype)


def _halved(values: np.ndarray[Any, Any]) -> None:
    values //= 2


def _one_more(values: np.ndarray[Any, Any]) -> None:
    values += 1


def _reversed(values: np.ndarray[Any, Any]) -> None:
    values[:] = values[::-1].copy()


def _pad(operator: FlatTables, output: str) -> Iterator[Plant]:
    """Move the padding of a convolution to one side: shapes stay."""
    pad = operator.table(2).vectors(0, "<i4")
    values = pad.flat().tolist()
    if len(values) == 4 and values[0] and values[1]:

        def change(found: np.ndarray[Any, Any]) -> None:
            found[:2] = found[0] + found[1], 0

        yield Plant("padding", output, int(pad.start[0]), np.int32, 4, change)


def _axes(operator: FlatTables, output: str, shape: tuple[int, ...]) -> Iterator[Plant]:
    """Swap two axes of equal length."""
    perms = operator.table(2).vectors(0, "<i4")
    values = perms.flat().tolist()
    if change := _swapped(values, shape):
        yield Plant("axis", output, int(perms.start[0]), np.int32, len(values), change)


def _swapped(order: Sequence[int], shape: Sequence[int]) -> Change | None:
    pairs = [(a, b) for a in range(len(order)) for b in range(a) if shape[order[a]] == shape[order[b]] > 1]
    if not pairs:
        return None
    a, b = pairs[0]

    def change(found: np.ndarray[Any, Any]) -> None:
        found[[a, b]] = found[[b, a]]

    return change


OPERANDS = {("Convolution", 1): "weight", ("GroupConvolution", 1): "weight", ("FullyConnected", 1): "weight"}
OPERANDS |= {("ConvolutionBackpropData", 1): "weight", ("FullyConnected", 2): "bias", ("Add", 1): "bias"}
OPERANDS |= {("Multiply", 1): "scale", ("Subgraph", 1): "scale"}
HELD = {"f32": np.float32, "i32": np.int32, "i64": np.int64}


def _in_openvino(blob: bytes) -> Iterator[Plant]:
    model = OpenvinoModel(blob)
    weights, text = int.from_bytes(blob[16:24], "little"), masked(blob[model.start :]).decode()
    by_id = {layer.get("id"): layer for layer in model.root.findall("layers/layer")}
    for edge in model.root.findall("edges/edge"):
        const, user = by_id[edge.get("from-layer")], by_id[edge.get("to-layer")]
        data, place = const.find("data"), int(edge.get("to-port", "0"))
        if const.get("type") != "Const" or data is None or data.get("element_type") not in HELD:
            continue
        dtype, start = HELD[data.attrib["element_type"]], weights + int(data.attrib["offset"])
        count, name = int(data.attrib["size"]) // np.dtype(dtype).itemsize, user.get("id", "")
        kind = OPERANDS.get((user.get("type", ""), place))
        if kind and dtype == np.float32:
            yield Plant(kind, name, start, dtype, count, _scaled)
        elif user.get("type") == "Transpose":
            order = np.frombuffer(blob, dtype, count, start).tolist()
            shape = [int(dim.text or 0) for dim in user.findall("input/port[@id='0']/dim")]
            if change := _swapped(order, shape):
                yield Plant("axis", name, start, dtype, count, change)
    for found in re.finditer(r'(pads_begin="1(?:, 1)*") (pads_end="1(?:, 1)*")', text):
        name = re.findall(r'<layer id="(\d+)"', text[: found.start()])[-1]
        moved = f"{found[1].replace('1', '2')} {found[2].replace('1', '0')}"
        yield Plant("padding", name, model.start + found.start(), np.uint8, len(moved), _written(found[0], moved))


def _written(before: str, after: str) -> Change:
    def change(found: np.ndarray[Any, Any]) -> None:
        found ^= np.frombuffer(before.encode(), np.uint8) ^ np.frombuffer(after.encode(), np.uint8)

    return change


def planted(folder: Path, to: Path, instruction: int, plant: Plant) -> tuple[Path, Path]:
    """Write a `.pte` with the fault in its delegate, and a record that belongs to it; returns both."""
    content = bytearray((folder / "model.pte").read_bytes())
    payload = read_program(folder / "model.pte").payload("forward", instruction)
    assert payload is not None
    blob = bytearray(payload)
    place = content.find(blob)
    plant.into(blob)
    content[place : place + len(blob)] = blob
    to.mkdir(parents=True, exist_ok=True)
    pte, record = to / "model.pte", to / "model.etviz"
    pte.write_bytes(content)
    known = read_record(folder / "model.etviz")
    write_record(dataclasses.replace(known, pte_checksum=checksum_of(bytes(content))), record)
    return pte, record


def executed(pte: Path, record: Path, etrecord: Path, inputs: Inputs) -> etviz.Inspection:
    """What a program with a fault computes, against its true record."""
    folder = pte.parent
    emulate(pte, record, [list(inputs)], workdir=folder)
    return etviz.load(folder / "etdump.etdp", debug_buffer=folder / "debug_buffer.bin", pte=pte, record=record,
                      etrecord=etrecord)  # fmt: skip
