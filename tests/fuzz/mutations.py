"""Damages files, on three levels: bytes, members of archives, and values of the JSON in them.

A change is three numbers, so that Hypothesis can make, shrink and print it; what they mean depends on the file.
"""

from __future__ import annotations

import io
import json
import struct
import zipfile
from collections.abc import Sequence
from typing import Any

Change = Sequence[int]
"""What to do, where, and with what."""

# Values that stand for lengths, offsets, sizes and signs gone wrong.
WORDS = (
    *(0, 1, 4, 7, 255, 256, 0x7FFF, 0x8000, 0xFFFF, 1 << 24, 0x7FFFFFFF, 0x80000000),
    *(0xFFFFFFF8, 0xFFFFFFFC, 0xFFFFFFFF, 1 << 62, (1 << 64) - 1),
)
DEEP: Any = 0
for _ in range(900):
    DEEP = [DEEP]
_HOSTILE: tuple[Any, ...] = (
    *(
        None,
        True,
        0,
        -1,
        1,
        10**6,
        10**12,
        2**31,
        2**63,
        -(2**63),
        2**64,
        10**40,
        0.5,
        -0.0,
        1e308,
        "",
        "\0",
        "../../x",
    ),
    *([], {}, [[]], [10**12], [10**6] * 4, [-1], ["a", 1], {"a": {}}, DEEP, "x" * 5000, "\U0001d518" * 50, "nan", "s0"),
    *("__import__('os').system('touch /tmp/canary')", "10**10**10", "aten.full.default", "aten.repeat.default"),
    *("aten.from_file.default", "os.system", "py.pow", "py.mul", "py.lshift", "prim.Print.default", "getitem", "cond"),
    *("delegate", "observed", "aten.empty.memory_format", "aten.arange.start_step", "aten.expand_copy.default"),
    *("quantized_decomposed.dequantize_per_tensor.default", "aten.set_.source_Tensor", "aten.mm.default", "float64"),
    *({"as_int": 10**12}, {"as_ints": [10**9, 10**9]}, {"as_expr": {"expr_str": "exit()", "hint": None}}),
    *({"as_sym_int": {"as_name": "s0"}}, {"as_float": "Infinity"}, {"$": "ref", "v": "x"}, {"$": "float", "v": "nan"}),
    *({"$": "dtype", "v": "load"}, {"$": "dict", "v": [["a", 1]]}, {"as_none": True}, {"as_string": "x"}),
)


# As texts, so that no document shares a list with another.
HOSTILE = tuple(map(json.dumps, _HOSTILE))


def damage(content: bytes, changes: Sequence[Change]) -> bytes:
    """Bytes overwritten, copied, cut out or put in; positions wrap around."""
    data = bytearray(content)
    for what, where, value in changes:
        at = where % max(len(data), 1)
        aligned = at - at % 4
        kind = what % 9
        if kind == 0:
            data[at : at + 1] = bytes([value % 256])
        elif kind == 1:
            data[at : at + 1] = bytes([data[at] ^ 1 << value % 8]) if data else b""
        elif kind == 2:
            data[aligned : aligned + 4] = struct.pack("<I", WORDS[value % len(WORDS)] & 0xFFFFFFFF)
        elif kind == 3:
            data[aligned : aligned + 8] = struct.pack("<Q", WORDS[value % len(WORDS)])
        elif kind == 4:
            data[aligned : aligned + 4] = struct.pack("<i", value % 8192 - 4096)
        elif kind == 5:
            source = value % max(len(data), 1)
            data[at : at + 8] = data[source : source + 8]
        elif kind == 6:
            data[at : at + value % 64] = b""
        elif kind == 7:
            data[at:at] = bytes(value % 32)
        elif value % 4 == 0:
            del data[at:]
    return bytes(data)


def damage_json(value: Any, changes: Sequence[Change]) -> Any:
    """Values replaced, removed, repeated or exchanged somewhere in a JSON document."""
    for what, where, with_what in changes:
        found = _descend(value, where)
        if found is None:
            return json.loads(HOSTILE[with_what % len(HOSTILE)])
        holder, key = found
        kind = what % 6
        if kind < 3:
            holder[key] = json.loads(HOSTILE[with_what % len(HOSTILE)])
        elif kind == 3:
            del holder[key]
        elif kind == 4 and isinstance(holder, list):
            holder.insert(with_what % (len(holder) + 1), json.loads(json.dumps(holder[key])))
        else:
            other = _descend(value, with_what)
            if other is not None:
                holder[key] = json.loads(json.dumps(other[0][other[1]]))
    return value


def _descend(value: Any, where: int) -> tuple[Any, Any] | None:
    """A place in a document: each digit of `where` picks a child, until none are left."""
    found = None
    while isinstance(value, (dict, list)) and value and (where or found is None):
        keys = list(value) if isinstance(value, dict) else range(len(value))
        key = keys[where % len(keys)]
        found = value, key
        where, value = where // len(keys), value[key]
    return found


def damage_archive(content: bytes, changes: Sequence[Change]) -> bytes:
    """One member of a zip archive damaged by its kind, or the archive's own directory."""
    (what, where, value), *rest = changes
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = [(info, archive.read(info)) for info in archive.infolist()]
    at = where % len(members)
    info, data = members[at]
    names = [info.filename for info, _ in members]
    kind = what % 12
    if kind < 8:
        try:
            data = _damage_member(info.filename, data, rest or [(what, where, value)])
        except RecursionError:  # json does not write what is nested as deep as the changes made it
            data = b"[" * 10_000 + data
    elif kind == 8:
        names[at] = ("../evil", "/etc/x", "a\\..\\b", "", names[value % len(names)], "ü" * 300)[value % 6]
    elif kind == 9:
        del members[at], names[at]
    elif kind == 10:
        return _lie(content, what + where + value)
    members = [(i, data if i is info else d) for i, d in members]
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", strict_timestamps=False) as archive:
        for (old, payload), name in zip(members, names, strict=True):
            compress = zipfile.ZIP_DEFLATED if kind == 11 and old is info else old.compress_type
            archive.writestr(name or "x", payload, compress)
    return stream.getvalue()


def _damage_member(name: str, data: bytes, changes: Sequence[Change]) -> bytes:
    if data[:2] == b"PK":
        return damage_archive(data, changes)
    if data[:1] in b"{[" and data:
        try:
            return json.dumps(damage_json(json.loads(data), changes)).encode()
        except ValueError:
            return damage(data, changes)
    if name.endswith(".safetensors") and len(data) > 8:
        size = int.from_bytes(data[:8], "little")
        header = json.dumps(damage_json(json.loads(data[8 : 8 + size]), changes)).encode()
        return struct.pack("<Q", len(header)) + header + data[8 + size :]
    return damage(data, changes)


def _lie(content: bytes, pick: int) -> bytes:
    """Another size, place or method of a member in the directory at the archive's end."""
    starts = [at for at in range(len(content) - 4) if content[at : at + 4] == b"PK\x01\x02"]
    if not starts:
        return content
    field, form = ((20, "<I"), (24, "<I"), (42, "<I"), (10, "<H"), (8, "<H"), (28, "<H"))[pick % 6]
    data = bytearray(content)
    word = WORDS[pick // 6 % len(WORDS)] & (0xFFFF if form == "<H" else 0xFFFFFFFF)
    struct.pack_into(form, data, starts[pick // 97 % len(starts)] + field, word)
    return bytes(data)
