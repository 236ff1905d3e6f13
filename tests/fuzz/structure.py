"""Files that are sound in every detail and not true: what stands in one place stands in another, and fits there.

The readers have nothing to find fault with. What is tried here is what holds files against one another, and the
evaluation of graphs whose types, shapes and weights are not those that they claim.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Sequence
from typing import Any

from tests import tampering
from tests.fuzz.mutations import Change

_CODES = (0, 1, 2, 3, 4, 6, 7, 11, 27)
_DTYPES = ("float32", "float64", "float16", "bfloat16", "int64", "int32", "int8", "uint8", "bool", "complex64")
_SIZES = (0, 1, 2, 3, 64, 4096, 1 << 20, 1 << 31, 1 << 40, 1 << 62)


def damage_tensors(content: bytes, changes: Sequence[Change]) -> bytes:
    """An ETDump whose tensors have other types, sizes, strides and places, each for itself and with one another."""
    data, tensors = bytearray(content), tampering.described(content)
    for what, where, value in changes:
        one, other = tensors[where % len(tensors)], tensors[value % len(tensors)]
        kind = what % 7
        if kind == 0:
            tampering.set_dtype(data, one, _CODES[value % len(_CODES)])
        elif kind == 1:
            tampering.turn(data, one)
        elif kind == 2:
            tampering.transpose(data, one)
        elif kind == 3:
            tampering.exchange(data, one, other)
        elif kind == 4:
            tampering.copy_offset(data, one, other)
        elif kind == 5 and one.rank:
            tampering.put(data, one.sizes + 8 * (value % one.rank), _SIZES[value // 7 % len(_SIZES)])
        elif one.rank:
            tampering.put(data, one.strides + 8 * (value % one.rank), _SIZES[value // 7 % len(_SIZES)])
    return bytes(data)


def damage_graph(content: bytes, changes: Sequence[Change]) -> bytes:
    """A record whose nodes, constants and instructions have exchanged something, or are of another type and shape."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = [(info, archive.read(info)) for info in archive.infolist()]
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for info, data in members:
            if info.filename == "record.json":
                body = json.loads(data)
                for change in changes:
                    _exchange(body, *change)
                data = json.dumps(body).encode()
            archive.writestr(info, data)
    return stream.getvalue()


def _exchange(body: Any, what: int, where: int, value: int) -> None:
    graph = body["graphs"][0][1]
    inside = [sub["nodes"] for _, sub in graph["subgraphs"]]
    nodes = ([graph["nodes"], *inside])[where % (1 + len(inside))] or graph["nodes"]
    one, other = nodes[where // 7 % len(nodes)], nodes[value % len(nodes)]
    metas = [meta for node in nodes for meta in node[4] or () if meta]
    meta = metas[where // 11 % len(metas)] if metas else None
    kind = what % 8
    if kind == 0:  # two targets
        one[1], other[1] = other[1], one[1]
    elif kind == 1:  # two instructions, with their kernels
        one[5:7], other[5:7] = other[5:7], one[5:7]
    elif kind == 2 and body["places"]:  # two constants
        first, second = (body["places"][at % len(body["places"])] for at in (where, value))
        first[1:], second[1:] = second[1:], first[1:]
    elif kind == 3:  # all that two nodes take
        one[2:4], other[2:4] = other[2:4], one[2:4]
    elif kind == 4 and meta is not None:
        meta[0] = _DTYPES[value % len(_DTYPES)]
    elif kind == 5 and meta is not None:
        meta[1] = meta[1][::-1] if value % 2 else [_SIZES[value // 7 % len(_SIZES)], *meta[1][1:]]
    elif kind == 6:  # a constant under another's name, a user's input as a constant
        inputs = graph["inputs"]
        first, second = (inputs[at % len(inputs)] for at in (where, value))
        first[1:], second[1:] = second[1:], first[1:]
    else:
        nodes[where // 7 % len(nodes)], nodes[value % len(nodes)] = other, one


def exchange_members(content: bytes, changes: Sequence[Change], other: str) -> bytes:
    """An ETRecord of which some members are another one's, with checksums that fit."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive, zipfile.ZipFile(other) as second:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
        foreign = {info.filename: second.read(info) for info in second.infolist()}
    for what, where, value in changes:
        shared = sorted(members.keys() & foreign.keys())
        if what % 4:
            name = shared[where % len(shared)]
            members[name] = foreign[name]
        else:
            names = sorted(foreign)
            members[shared[where % len(shared)]] = foreign[names[value % len(names)]]
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return stream.getvalue()
