"""The operators of an XNNPACK delegate, from the program's bytes, and how two payloads differ."""

from __future__ import annotations

import contextlib
import itertools
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from etviz.artifacts.flatbuffer import FlatBuffer, FlatTables
from etviz.artifacts.program.payload import Payload
from etviz.errors import ArtifactError
from etviz.upstream import xnnpack

if TYPE_CHECKING:
    from etviz.artifacts.program.program import Instruction, Method, Program

_SCALARS: Final = {
    **{"uint": "<u4", "int": "<i4", "float": "<f4", "short": "<i2", "ushort": "<u2", "uint64": "<u8"},
    **{"ubyte": "<u1", "bool": "<u1", "byte": "<i1"},
}
_ADVICE: Final = "export the program again"
_RANGE: Final = "output_min_max"
_FOLDED: Final = {"XNNClamp", "XNNConvert", "XNNCopy", "XNNStaticConstantPad", "XNNStaticReshape", "XNNStaticTranspose"}
# XNNPACK moves them, leaves them out, or makes them part of another node
INPUT, OUTPUT, INSERTED = 1, 2, 65535
"""Flags of the inputs and outputs of a delegate; debug handle of nodes that XNNPACK inserted."""

Json = dict[str, Any]


@dataclass(slots=True)
class UnpackedPayload:
    graph: Json
    constants: memoryview
    named: Mapping[str, memoryview | bytes]

    def node(self, at: int) -> tuple[str, Json]:
        node = self.graph["xnodes"][at]
        return node["xnode_union_type"], node["xnode_union"] or {}

    def tensors(self) -> dict[int, Json]:
        values = (value["xvalue_union"] or {} for value in self.graph["xvalues"])
        whole = [value if "tensor_value" in value else {"tensor_value": value} for value in values]
        return {value["tensor_value"]["id_out"]: value for value in whole}

    def content(self, index: int) -> bytes:
        if not 0 < index < len(self.graph["constant_data"]):
            return b""
        place = self.graph["constant_data"][index]
        if place["named_key"]:
            return bytes(self.named[place["named_key"]])
        return bytes(self.constants[place["offset"] : place["offset"] + place["size"]])

    def used(self) -> dict[str, bytes]:
        keys = (place["named_key"] for place in self.graph["constant_data"])
        return {key: bytes(self.named[key]) for key in keys if key}


@dataclass(frozen=True, slots=True)
class Origin:
    """Debug handles of an output's operators, and the delegate's inputs.

    `slices` take a part along one axis: debug handle and start of the part.
    """

    handles: frozenset[int]
    inputs: frozenset[int]
    slices: frozenset[tuple[int, int]] = frozenset()


@dataclass(slots=True)
class PayloadChange:
    """Differing arguments of a node, and grid and content of its values by argument name."""

    handle: int
    arguments: Json = field(default_factory=dict)
    before: Json = field(default_factory=dict)
    contents: list[str] = field(default_factory=list)
    grids: list[str] = field(default_factory=list)
    missing: bool = False

    def __str__(self) -> str:
        if self.missing:
            return "no such operator"
        said = [f"{name} {_plain(new)} for {_plain(self.before[name])}" for name, new in self.arguments.items()]
        said += [f"another {name.removesuffix('_id')}" for name in self.contents]
        said += [f"another quantization of its {name.removesuffix('_id')}" for name in self.grids]
        return ", ".join(said)


def unpack(payload: Payload) -> UnpackedPayload:
    """`ArtifactError` or `ValueError` if it is no payload."""
    flat, constants = xnnpack.parts(payload.data)
    root = FlatBuffer(flat, "the delegate's payload", "XNNPACK payload", _ADVICE).root()
    return UnpackedPayload(_read(root, "XNNGraph")[0], constants, payload.named)


def origins(program: Program, method: Method, call: Instruction) -> list[Origin]:
    """By output of a delegate call; empty if the payload can't be read."""
    try:
        unpacked = _of_call(program, method, call)
        given = _externals(unpacked, OUTPUT)
        of_outputs = [_origin(unpacked, given[len(call.inputs) + at]["id_out"]) for at in range(len(call.outputs))]
    except (ArtifactError, ValueError, LookupError, OSError):
        return []
    return of_outputs if all(at < len(call.inputs) for origin in of_outputs for at in origin.inputs) else []


def layers(program: Program, method: Method) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """Instruction, debug handle, output sizes."""
    for call in method.instructions:
        with contextlib.suppress(ArtifactError, ValueError, LookupError, OSError):
            unpacked = _of_call(program, method, call)
            values = unpacked.tensors()
            for at, node in enumerate(unpacked.graph["xnodes"]):
                arguments = unpacked.node(at)[1]
                if "filter_id" in arguments and node["debug_handle"] != INSERTED:
                    sizes = values[arguments["output_id"]]["tensor_value"]["dims"]
                    yield call.index, node["debug_handle"], tuple(sizes)


def _of_call(program: Program, method: Method, call: Instruction) -> UnpackedPayload:
    data = program.payload(method.name, call.index) if call.kind == "delegate" else None
    if data is None or method.backend(call) != xnnpack.BACKEND:
        raise LookupError
    return unpack(Payload(data, program.named))


def _externals(unpacked: UnpackedPayload, flag: int) -> dict[int, Json]:
    values = (value["tensor_value"] for value in unpacked.tensors().values())
    return {value["external_id"]: value for value in values if value["flags"] & flag}


def _origin(unpacked: UnpackedPayload, value: int) -> Origin:
    makers: dict[int, list[int]] = {}
    for at in range(len(unpacked.graph["xnodes"])):
        for name, written in tensors_of(unpacked.node(at)[1]):
            if name.startswith("output"):
                makers.setdefault(written, []).append(at)
    wanted, values, nodes = [value], set[int](), set[int]()
    while wanted:
        value = wanted.pop()
        if value in values:
            continue
        values.add(value)
        for at in makers.get(value, ()):
            nodes.add(at)
            wanted.extend(read for name, read in tensors_of(unpacked.node(at)[1]) if not name.startswith("output"))
    handles = frozenset(unpacked.graph["xnodes"][at]["debug_handle"] for at in nodes) - {INSERTED}
    given = (at for at, tensor in _externals(unpacked, INPUT).items() if tensor["id_out"] in values)
    slices = ((unpacked.graph["xnodes"][at]["debug_handle"], *unpacked.node(at)) for at in nodes)
    starts = ((handle, [*filter(None, more["offsets"])]) for handle, kind, more in slices if kind == "XNNStaticSlice")
    return Origin(handles, frozenset(given), frozenset((handle, sum(at)) for handle, at in starts if len(at) < 2))


def pack_graph(unpacked: UnpackedPayload) -> bytes:
    return xnnpack.pack(_writable(unpacked.graph), bytes(unpacked.constants))


def changes(ran: UnpackedPayload, lowered: UnpackedPayload) -> list[PayloadChange]:
    """Of other structures, only operators that `ran` lacks."""
    if _structure(ran) != _structure(lowered):
        return list(_missing(ran, lowered))
    differences = []
    new_values, old_values = ran.tensors(), lowered.tensors()
    for at, node in enumerate(lowered.graph["xnodes"]):
        (_, new), (_, old) = ran.node(at), lowered.node(at)
        change = PayloadChange(node["debug_handle"])
        _compare_arguments(change, {**new, **_range(ran, at)}, {**old, **_range(lowered, at)})
        for name, value in tensors_of(new):
            _compare_values(change, name, (ran, new_values[value]), (lowered, old_values[value]))
        if change.arguments or change.contents or change.grids:
            differences.append(change)
    return differences


def _missing(ran: UnpackedPayload, lowered: UnpackedPayload) -> Iterator[PayloadChange]:
    old, new = ([node["xnode_union_type"] for node in unpacked.graph["xnodes"]] for unpacked in (lowered, ran))
    steps = SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    gone = [at for step, start, stop, *_ in steps if step in ("delete", "replace") for at in range(start, stop)]
    # an operator counts where all of its kind that may be missing are
    known = dict((Counter(old) - Counter(new)).items() & Counter(old[at] for at in gone).items()).keys() - _FOLDED
    for at in gone:
        if old[at] in known:
            yield PayloadChange(lowered.graph["xnodes"][at]["debug_handle"], missing=True)


def _structure(unpacked: UnpackedPayload) -> list[Any]:
    nodes = (unpacked.node(at) for at in range(len(unpacked.graph["xnodes"])))
    return [(kind, list(tensors_of(arguments))) for kind, arguments in nodes]


def tensors_of(arguments: Json) -> Iterator[tuple[str, int]]:
    return ((name, value) for name, value in arguments.items() if name.endswith("_id") and value < 2**32 - 1)


def _range(unpacked: UnpackedPayload, at: int) -> Json:
    return {_RANGE: unpacked.graph["xnodes"][at][_RANGE]}


def _compare_arguments(change: PayloadChange, new: Json, old: Json) -> None:
    for name, value in new.items():
        if value != old[name] and not name.endswith("_id"):
            change.arguments[name], change.before[name] = value, old[name]


def _compare_values(
    change: PayloadChange, name: str, new: tuple[UnpackedPayload, Json], old: tuple[UnpackedPayload, Json]
) -> None:
    grids, contents, scales = [], [], []
    for unpacked, value in (new, old):
        grid = dict(value.get("quant_params") or {})
        scales.append(unpacked.content(grid.pop("scale_buffer_idx", 0)))
        grids.append(grid)
        contents.append(unpacked.content(value["tensor_value"]["constant_buffer_idx"]))
    follows = name == "bias_id" and bool(change.grids)
    steps = [scale or grid.get("scale", 0.0) for grid, scale in zip(grids, scales, strict=True)]
    if contents[0] != contents[1] and not (follows and _one_bias(contents, steps)):
        change.contents.append(name)
    if (grids[0] != grids[1] or scales[0] != scales[1]) and not follows:
        change.grids.append(name)


def _one_bias(contents: Sequence[bytes], steps: Sequence[bytes | float]) -> bool:
    """A bias counts in the input's steps times the filter's: in others, it has other integers."""
    if any(isinstance(part, bytes) and len(part) % 4 for part in (*contents, *steps)):
        return False
    one, other = (np.frombuffer(content, np.int32).astype(float) for content in contents)
    a, b = (np.frombuffer(step, np.float32).astype(float) if isinstance(step, bytes) else step for step in steps)
    if len(one) != len(other) or np.array_equal(a, b) or {np.size(a), np.size(b)} - {1, len(one)}:
        return False
    return bool((np.abs(one * a - other * b) <= (a + b) / 2).all())


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return "[" + ", ".join(_plain(item) for item in value.values()) + "]"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _writable(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _writable(item) for name, item in value.items() if item is not None}
    if isinstance(value, (list, tuple)):
        return [_writable(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    type: str
    at: int


@cache
def _schema() -> tuple[dict[str, list[_Field]], dict[str, list[tuple[str, str]]]]:
    text = re.sub(r"//[^\n]*", "", xnnpack.schema())
    unions: dict[str, list[tuple[str, str]]] = {}
    for name, body in re.findall(r"union\s+(\w+)\s*\{(.*?)\}", text, re.DOTALL):
        members = (member.partition(":") for member in body.replace("\n", " ").split(",") if member.strip())
        unions[name] = [(left.strip(), (right or left).strip()) for left, _, right in members]
    tables: dict[str, list[_Field]] = {}
    for name, body in re.findall(r"table\s+(\w+)\s*\{(.*?)\}", text, re.DOTALL):
        fields, at = [], 0
        for field_name, kind, more in re.findall(r"(\w+)\s*:\s*(\[?\w+\]?)([^;]*);", body):
            at += kind in unions
            if "deprecated" not in more:
                fields.append(_Field(field_name, kind, at))
            at += 1
        tables[name] = fields
    return tables, unions


def _read(tables: FlatTables, name: str) -> list[Json]:
    known, unions = _schema()
    rows: list[Json] = [{} for _ in range(len(tables))]
    for table_field in known[name]:
        if table_field.type in unions:
            _read_union(tables, table_field, unions[table_field.type], rows)
            continue
        for row, value in zip(rows, _column(tables, table_field), strict=True):
            row[table_field.name] = value
    return rows


def _read_union(tables: FlatTables, table_field: _Field, members: list[tuple[str, str]], rows: list[Json]) -> None:
    kinds = tables.scalar(table_field.at - 1, "<u1").tolist()
    for row in rows:
        row |= {f"{table_field.name}_type": "NONE", table_field.name: None}
    for number, (member, table) in enumerate(members, 1):
        of_member = [at for at, kind in enumerate(kinds) if kind == number]
        if of_member:
            read = _read(FlatTables(tables.buffer, tables.reference(table_field.at)[of_member]), table)
            for at, value in zip(of_member, read, strict=True):
                rows[at] |= {f"{table_field.name}_type": member, table_field.name: value}


def _column(tables: FlatTables, table_field: _Field) -> list[Any]:
    known, _ = _schema()
    kind = table_field.type.strip("[]")
    if table_field.type.startswith("["):
        if kind in known:
            vectors = tables.vectors(table_field.at)
            values, starts = _read(vectors.tables(), kind), [0, *vectors.ends().tolist()]
            return [values[start:end] for start, end in itertools.pairwise(starts)]
        return list(map(list, tables.vectors(table_field.at, _SCALARS[kind]).tuples()))
    if kind == "string":
        return [text or "" for text in tables.strings(table_field.at)]
    if kind in known:
        present = tables.has(table_field.at)
        read = iter(_read(FlatTables(tables.buffer, tables.reference(table_field.at)[present]), kind))
        return [next(read) if here else None for here in present.tolist()]
    return tables.scalar(table_field.at, _SCALARS.get(kind, "<i2")).tolist()
