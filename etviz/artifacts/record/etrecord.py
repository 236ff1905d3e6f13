"""ETRecord: an uncompressed zip of graphs, weights and debug maps, read lazily as slices of the mapped file.

Graphs do not go through upstream's `deserialize`: it would evaluate expressions found in the file.
"""

from __future__ import annotations

import mmap
import os
import threading
import zlib
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from etviz.artifacts.files import (
    PathLike,
    check_unchanged,
    identity_of,
    open_archive,
    open_artifact,
    parse_json,
    stored_at,
    stored_bytes,
    wrong_kind,
)
from etviz.errors import ArtifactError
from etviz.graph.from_export import read_exported_program
from etviz.graph.ir import Graph
from etviz.graph.ir_json import MalformedGraphError

if TYPE_CHECKING:
    from etviz.artifacts.record.torch_file import TensorFile, TensorFiles

_IDENTIFIER: Final = "ETRECORD_V0"
_EDGE: Final = "edge_dialect_exported_program/"
_TRANSFORMED: Final = "edge_after_transform/"
"""The edge program after transform passes, before delegation."""
_BLOCK: Final = 1 << 20
_ADVICE: Final = "write it again with ETRecord.save()"
_UNPACK: Final = "take the file as ETRecord.save() wrote it, or zip its members again without compression (zip -0)"
_TRUNCATED: Final = "the ETRecord is truncated: its directory is missing"
_SUFFIXES: Final = ("_state_dict", "_constants", "_example_inputs")


class ETRecord:
    def __init__(self, path: PathLike) -> None:
        self.path = os.fspath(path)
        self._map: mmap.mmap = open_artifact(path, "an ETRecord", "save it with ETRecord.save(path)")
        self._data = memoryview(self._map)
        self.identity = identity_of(self._data)
        if bytes(self._data[:2]) != b"PK":
            raise wrong_kind(path, bytes(self._data[:64]), "an ETRecord", "give the file from ETRecord.save()")
        self._members = self._read_members()
        self._tensors: dict[str, TensorFile] = {}
        self._opening = threading.Lock()
        if _IDENTIFIER not in self._members:
            raise ArtifactError(
                path,
                f"this zip archive has no member {_IDENTIFIER}, so it is not an ETRecord",
                "give the file from ETRecord.save()",
                found=sorted(self._members)[:5],
                expected=_IDENTIFIER,
            )

    def _read_members(self) -> dict[str, memoryview]:
        try:
            with open_archive(self._data) as (_, members):
                stored = {name: stored_bytes(self._data, info) for name, info in members.items()}
        except ValueError as error:
            cut = "not a zip file" in str(error)  # the directory stands at the end
            problem = _TRUNCATED if cut else f"the archive is damaged ({error})"
            if "is compressed" in str(error):
                problem = f"the ETRecord was packed again, so it can't be read where it lies ({error})"
                raise ArtifactError(self.path, problem, _UNPACK) from error
            raise ArtifactError(self.path, problem, _ADVICE) from error
        first = bytes(self._data[30 : 30 + int.from_bytes(self._data[26:28], "little")])
        if first.decode("utf-8", "replace") not in stored:  # the directory is that of an archive inside
            raise ArtifactError(self.path, _TRUNCATED, _ADVICE)
        return stored

    def check(self) -> None:
        block = memoryview(bytearray(_BLOCK))
        with open_archive(self._data) as (_, members), Path(self.path).open("rb", buffering=0) as file:
            for name, info in members.items():
                checksum, left = 0, info.file_size
                file.seek(stored_at(self._data, info))
                while left and (size := file.readinto(block[: min(left, _BLOCK)])):
                    checksum, left = zlib.crc32(block[:size], checksum), left - size
                if left or checksum != info.CRC:
                    problem = f"the checksum of {name} is wrong: the file was damaged on the way"
                    raise ArtifactError(self.path, problem, "copy it again, or " + _ADVICE, where=name)

    def member(self, name: str) -> memoryview | None:
        check_unchanged(self._data)
        return self._members.get(name)

    @cached_property
    def methods(self) -> list[str]:
        names = [name.removeprefix(_EDGE) for name in self._members if name.startswith(_EDGE)]
        return sorted(name for name in names if not name.endswith(_SUFFIXES))

    def json(self, name: str) -> Any:
        data = self.member(name)
        if data is None:
            return None
        try:
            return parse_json(data)
        except ValueError as error:
            raise ArtifactError(self.path, f"{name} is not JSON ({error})", _ADVICE, where=name) from error

    def debug_handles(self, method: str) -> dict[int, tuple[int, ...]]:
        """Instruction id → debug handles of its edge operators."""
        table = self._table("debug_handle_map", method)
        return {key: _handles(self.path, value) for key, value in table.items()}

    def backends(self, method: str) -> dict[int, str]:
        table = self._table("delegate_map", method)
        return {key: str(value.get("name", "")) for key, value in table.items() if isinstance(value, dict)}

    def delegate_handles(self, method: str) -> dict[int, dict[str, tuple[int, ...]]]:
        """By delegate call: backend's identifiers, as text → debug handles of edge operators."""
        handles_by_key = {}
        for key, value in self._table("delegate_map", method).items():
            table = value.get("delegate_map") if isinstance(value, dict) else None
            if isinstance(table, dict):
                handles_by_key[key] = {str(name): _handles(self.path, handles) for name, handles in table.items()}
        return handles_by_key

    def delegate_info(self, method: str) -> dict[str, Any]:
        """Backends' records about their delegates, by name of the lowered module."""
        told = self.json("delegate_info")
        info = {str(key): value for key, value in told.items()} if isinstance(told, dict) else {}
        members = [name for name in self._members if name.startswith("delegate_info/")]
        info |= {name.removeprefix("delegate_info/"): self.json(name) for name in members}
        start = f"{method}/"
        return {key.removeprefix(start): value for key, value in info.items() if key.startswith(start)}

    def _table(self, member: str, method: str) -> dict[int, Any]:
        data = self.json(member)
        if not isinstance(data, dict):
            return {}
        table = data.get(method, {})
        try:
            numbers = {int(key): value for key, value in table.items()}
            if numbers and not -1 <= min(numbers) <= max(numbers) < 1 << 31:
                raise ValueError("an instruction's number is out of range")
            return numbers
        except (AttributeError, TypeError, ValueError) as error:
            raise ArtifactError(self.path, f"{member} is not a table by instruction", _ADVICE, where=member) from error

    def has_member(self, member: str) -> bool:
        return member in self._members

    @cached_property
    def programs(self) -> list[str]:
        names = [name.removesuffix("_state_dict") for name in self._members if name.endswith("_state_dict")]
        names = [name for name in names if name in self._members]
        return sorted(names, key=lambda name: (not name.startswith("exported_program"), not name.startswith(_EDGE)))

    @property
    def further(self) -> list[str]:
        return [name for name in self.programs if not name.startswith(("exported_program", _EDGE, _TRANSFORMED))]

    def edge_graph(self, method: str) -> Graph:
        return self.graph(self._edge_program(method))

    def edge_weights(self, method: str) -> TensorFiles:
        return self.weights(self._edge_program(method))

    def _edge_program(self, method: str) -> str:
        return next((start + method for start in (_TRANSFORMED, _EDGE) if start + method in self._members), "")

    def graph(self, name: str) -> Graph:
        data = self.json(name)
        if data is None:
            raise ArtifactError(self.path, f"there is no program {name}", _ADVICE, where=name)
        try:
            return read_exported_program(data)
        except MalformedGraphError as error:
            raise ArtifactError(self.path, f"{name} is damaged ({error})", _ADVICE, where=name) from error

    def weights(self, program: str) -> TensorFiles:
        from etviz.artifacts.record.torch_file import TensorFiles

        files = (self.tensors(program + kind) for kind in ("_constants", "_state_dict"))
        return TensorFiles(*(file for file in files if file is not None))

    def tensors(self, name: str) -> TensorFile | None:
        from etviz.artifacts.record.torch_file import TensorFile

        data = self.member(name)
        with self._opening:
            if data is not None and name not in self._tensors:
                self._tensors[name] = TensorFile(data, self.path, name)
        return self._tensors.get(name)

    def representative_inputs(self) -> Any:
        """A tuple, a list of tuples, or None; raises as `load_all`."""
        return self._loaded("representative_inputs")

    def reference_outputs(self, method: str) -> list[Any]:
        stored = self._loaded("reference_outputs")
        outputs = stored.get(method) if isinstance(stored, dict) else None
        return list(outputs) if isinstance(outputs, (list, tuple)) else []

    def example_inputs(self, method: str) -> Any:
        return self._loaded(f"{_EDGE}{method}_example_inputs")

    def _loaded(self, name: str) -> Any:
        from etviz.artifacts.record.torch_file import load_all

        data = self.member(name)
        return None if data is None else load_all(data, self.path, name)


def _handles(path: str, value: Any) -> tuple[int, ...]:
    items = value if isinstance(value, list) else [value]
    if not all(isinstance(handle, int) and abs(handle) < 1 << 63 for handle in items):
        raise ArtifactError(path, "debug_handle_map holds values other than integers", _ADVICE)
    return tuple(items)
