"""Writes flatbuffers, and a program with one delegate, by executorch's schemas and its `flatc`.

Nothing is lowered, and executorch's compiler is not imported, which takes seconds.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import struct
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

SCHEMA: Final = "exir/_serialize/program.fbs"
_HEADER: Final = struct.Struct("<4sIQQQ")
_MAGIC: Final = b"eh00"
"""After offset and file identifier. Its length follows, the program's, where segments begin, and their length."""
_SEGMENT: Final = 128
_PLANNED: Final = 16
_IN_SEGMENT: Final = 1
_LOW: Final = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class TensorPlace:
    """A contiguous input or output; `code` is that of its scalar type in executorch's schema."""

    shape: tuple[int, ...]
    dim_order: tuple[int, ...]
    code: int
    itemsize: int


def package_file(name: str) -> Path:
    """A file of executorch; importing some of its packages takes seconds."""
    spec = importlib.util.find_spec("executorch")
    roots = list(spec.submodule_search_locations or ()) if spec is not None else []
    return Path(*roots[:1], name)


def flatbuffer(schema: Path, value: Mapping[str, Any]) -> bytes:
    """The value, whose tables are mappings, as the schema has it. NaN and Inf are texts."""
    own = package_file("data/bin/flatc")
    command = str(own) if own.is_file() else os.environ.get("FLATC_EXECUTABLE", "flatc")
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "value.json"
        text.write_text(json.dumps(value))
        subprocess.run([command, "--binary", "-o", folder, str(schema), str(text)], check=True)
        return next(path for path in Path(folder).iterdir() if path != text).read_bytes()


def delegate_program(
    backend_id: str,
    compile_specs: Sequence[tuple[str, bytes]],
    payload: bytes,
    named: Mapping[str, bytes],
    inputs: Sequence[TensorPlace],
    outputs: Sequence[TensorPlace],
) -> bytes:
    """A `.pte` whose method ``forward`` calls a delegate with this payload and its `named` data."""
    planned, values = 0, [_tensor(place) for place in inputs]
    for place in outputs:
        offset = {"memory_offset_low": planned & _LOW, "memory_offset_high": planned >> 32}
        values.append(_tensor(place) | {"allocation_info": {"memory_id": 1, **offset}})
        planned = aligned(planned + math.prod(place.shape) * place.itemsize, _PLANNED)
    segments, data = [], bytearray()
    for content in (b"", payload, *named.values()):
        data.extend(bytes(aligned(len(data), _SEGMENT) - len(data)))
        segments.append({"offset": len(data), "size": len(content)})
        data += content
    delegate = {
        "id": backend_id,
        "processed": {"location": _IN_SEGMENT, "index": 1},
        "compile_specs": [{"key": key, "value": list(value)} for key, value in compile_specs],
    }
    call = {"delegate_index": 0, "args": list(range(len(values)))}
    plan = {
        "name": "forward",
        "container_meta_type": {"encoded_inp_str": "", "encoded_out_str": ""},
        "values": [{"val_type": "Tensor", "val": value} for value in values],
        "inputs": list(range(len(inputs))),
        "outputs": list(range(len(inputs), len(values))),
        "chains": [{"instructions": [{"instr_args_type": "DelegateCall", "instr_args": call}]}],
        "operators": [],
        "delegates": [delegate],
        "non_const_buffer_sizes": [0, planned],
    }
    program = {
        "version": 0,
        "execution_plan": [plan],
        "constant_buffer": [],  # executorch reads both lists unasked
        "backend_delegate_data": [],
        "segments": segments,
        "constant_segment": {"segment_index": 0, "offsets": [0]},  # no constants
        "named_data": [{"key": key, "segment_index": at} for at, key in enumerate(named, 2)],
    }
    body = flatbuffer(package_file(SCHEMA), program)
    size = len(body) + _HEADER.size
    start = aligned(size, _SEGMENT)
    root = int.from_bytes(body[:4], "little") + _HEADER.size
    header = _HEADER.pack(_MAGIC, _HEADER.size, size, start, len(data))
    return b"".join([root.to_bytes(4, "little"), body[4:8], header, body[8:], bytes(start - size), data])


def _tensor(place: TensorPlace) -> dict[str, Any]:
    return {"scalar_type": place.code, "sizes": list(place.shape), "dim_order": list(place.dim_order)}


def aligned(size: int, to: int) -> int:
    return -(-size // to) * to
