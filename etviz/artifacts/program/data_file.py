"""A `.ptd`: named data that a program keeps outside its `.pte`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from etviz.artifacts.files import PathLike, identity_of, open_artifact, wrong_kind
from etviz.artifacts.flatbuffer import FlatBuffer
from etviz.artifacts.program.program import Program
from etviz.errors import ArtifactError

_ADVICE: Final = "give the file that write_tensor_data_to_file() wrote together with the .pte"
_NAMED: Final = 5


def read_data_file(path: PathLike) -> Mapping[str, memoryview]:
    data = memoryview(open_artifact(path, "an ExecuTorch data file", _ADVICE))
    if bytes(data[4:8]) != b"FT01" or bytes(data[8:12]) != b"FH01":
        raise wrong_kind(path, bytes(data[:64]), "an ExecuTorch data file (.ptd)", _ADVICE)
    start, size, base = (int.from_bytes(data[at : at + 8], "little") for at in (16, 24, 32))
    end = start + size
    buffer = FlatBuffer(data[: min(end, len(data))], os.fspath(path), "data file", _ADVICE)
    root = buffer.root()
    segments = root.vectors(1).tables()
    offsets, lengths = segments.scalar(0, "<u8").tolist(), segments.scalar(1, "<u8").tolist()
    needed = max([end, *(base + offset + length for offset, length in zip(offsets, lengths, strict=True))])
    if needed > len(data):
        problem = f"the data file is truncated: it has {len(data)} bytes of {needed}"
        raise ArtifactError(path, problem, _ADVICE, where=len(data), found=len(data), expected=needed)
    named = root.vectors(2).tables()
    pairs = zip(named.strings(0).tolist(), named.scalar(1, "<u4").tolist(), strict=True)
    places: dict[str, int] = {}
    for key, at in pairs:
        if key in places:
            raise ArtifactError(path, f"the data file holds {key} twice", _ADVICE, found=key)
        if at < len(offsets):
            places[str(key)] = at
    return {key: data[base + offsets[at] :][: lengths[at]] for key, at in places.items()}


def with_data_file(program: Program, path: PathLike) -> Program:
    """`ArtifactError` if an entry is missing or has another size."""
    data = read_data_file(path)
    values = (value.tensor for method in program.methods for value in method.values)
    specs = [spec for spec in values if spec is not None and spec.external]
    wrong = [spec.name for spec in specs if spec.name not in data or len(data[spec.name]) < spec.nbytes]
    if wrong:
        named = ", ".join(dict.fromkeys(wrong[:_NAMED]))
        problem = f"the data file belongs to another program than {program.path}: it does not hold {named} as that says"
        raise ArtifactError(path, problem, _ADVICE, found=sorted(data)[:_NAMED], expected=wrong[:_NAMED])
    mapped = next((identity_of(part) for part in data.values()), ())
    identity = program.identity + mapped if mapped else ()
    return replace(program, external=data, named={**program.named, **data}, identity=identity)
