"""The record file (`model.etviz`), for exact pairing, introduced error and zoom.

A zip with `record.json` (graphs, location of every constant, version, checksum of the `.pte`) and
`tensors.safetensors` (what the ETRecord lacks).
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from etviz.artifacts.document import Document
from etviz.artifacts.files import PathLike, open_archive, open_artifact, stored_bytes, whole_file, wrong_kind
from etviz.artifacts.program.payload import Specification
from etviz.artifacts.recent import Recent
from etviz.artifacts.record.stored_tensors import StoredTensors, tensor_checksum
from etviz.errors import ArtifactError
from etviz.graph.ir import Graph
from etviz.graph.ir_json import MalformedGraphError, TextTable, dump_graph, load_graph

if TYPE_CHECKING:
    import torch


VERSION: Final = 3
LISTINGS: Final = "delegated_graph"
"""Key in `Record.extra`: the lowered program as upstream's `format_delegated_graph` prints it, by method."""
SPECIFICATIONS: Final = "specifications"
"""Key in `Record.extra`: by ``method/delegate`` the tensor with its specification's bytes, and origins."""
REFUSALS: Final = "refusals"
"""Key in `Record.extra`: why partitioners left nodes out, by node name."""
_JSON: Final = "record.json"
_TENSORS: Final = "tensors.safetensors"
_METHODS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_MOST_JSON: Final = 64 << 20
_ADVICE: Final = "write it again with etviz.record(edge_manager, executorch_manager, path)"
_GRAPHS: Final = Recent["tuple[dict[str, Graph], dict[str, Graph]]"](4)
"""By the digest of the text that they were read from."""
_DOCUMENT: Final = Document("an etviz record", "etviz-record", VERSION, _ADVICE)


@dataclass(frozen=True, slots=True)
class TensorPlace:
    """A member of the ETRecord (empty: the record's tensors) and a name in it."""

    member: str
    name: str


@dataclass(slots=True)
class Record:
    """The lowered program as it was emitted.

    `delegation` holds counts by method: ``{"delegated": {op: n}, "non_delegated": {op: n}, "subgraphs": n}``. `extra`
    also names the tensors of the representative inputs (``inputs``). `references` are by method the float graphs of the
    quantization split. `tensors` are in no ETRecord.
    """

    graphs: dict[str, Graph]
    places: dict[str, TensorPlace]
    pte_checksum: str
    delegation: dict[str, Any] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)
    references: dict[str, Graph] = field(default_factory=dict)
    tensors: Mapping[str, torch.Tensor] = field(default_factory=dict, compare=False)

    def specification(self, method: str, delegate: str) -> Specification | None:
        kept = self.extra.get(SPECIFICATIONS, {}).get(f"{method}/{delegate}")
        if kept is None:
            return None
        data = self.tensors[kept["data"]].numpy().tobytes() if kept["data"] else b""
        return Specification(data, kept["origins"])


def write_record(record: Record, path: PathLike) -> None:
    from safetensors.torch import save

    table, tensors = TextTable(), dict(record.tensors)
    body = {
        "format": "etviz-record",
        "version": VERSION,
        "pte_checksum": record.pte_checksum,
        "graphs": [[method, dump_graph(graph, table)] for method, graph in record.graphs.items()],
        "references": [[method, dump_graph(graph, table)] for method, graph in record.references.items()],
        "texts": table.texts,
        "places": [[key, place.member, place.name] for key, place in record.places.items()],
        "delegation": record.delegation,
        "extra": record.extra,
        "checksums": {name: tensor_checksum(tensor) for name, tensor in tensors.items()},
    }
    with whole_file(path, "the record") as partial, zipfile.ZipFile(partial, "w") as archive:
        archive.writestr(_JSON, json.dumps(body, separators=(",", ":")), zipfile.ZIP_DEFLATED, 6)
        archive.writestr(_TENSORS, save(tensors), zipfile.ZIP_STORED)


def read_record(path: PathLike) -> Record:
    """Its graphs are not to be changed: who reads the record again has the same ones."""
    data = memoryview(open_artifact(path, "an etviz record", _ADVICE))
    if bytes(data[:2]) != b"PK":
        raise wrong_kind(path, bytes(data[:64]), "an etviz record", _ADVICE)
    text, stored = _read_members(path, data)
    body = _DOCUMENT.parse(path, text, _JSON)
    try:
        graphs, references = map(dict, _GRAPHS.get(hashlib.blake2b(text).digest(), partial(_read_graphs, body)))
        places = {str(key): TensorPlace(str(member), str(name)) for key, member, name in body["places"]}
        delegation, extra, checksums = body["delegation"], body["extra"], body["checksums"]
        _check_tables(list(graphs), delegation, extra, checksums)
        tensors = StoredTensors(stored, checksums, str(path))
        return Record(graphs, places, str(body["pte_checksum"]), dict(delegation), dict(extra), references, tensors)
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise ArtifactError(path, f"the record is damaged ({error})", _ADVICE, where=_JSON) from error


def _read_graphs(body: Mapping[str, Any]) -> tuple[dict[str, Graph], dict[str, Graph]]:
    texts = _texts(body["texts"])
    graphs, references = (
        {str(method): load_graph(graph, texts) for method, graph in body[key]} for key in ("graphs", "references")
    )
    if not graphs:
        raise MalformedGraphError("it has no method")
    return graphs, references


def _is_specification(kept: Any) -> bool:
    origins = kept.get("origins") if isinstance(kept, Mapping) else None
    return (
        isinstance(origins, Mapping)
        and isinstance(kept.get("data"), str)
        and all(isinstance(name, str) for name in origins.values())
    )


def _check_tables(methods: list[str], delegation: Any, extra: Any, checksums: Any) -> None:
    if not all(isinstance(table, Mapping) for table in (delegation, extra, checksums)):
        raise MalformedGraphError("a table has the wrong type")
    for method in methods:
        counts = delegation[method]
        numbers = [counts["subgraphs"], *counts["delegated"].values(), *counts["non_delegated"].values()]
        if not all(isinstance(number, int) for number in numbers):
            raise MalformedGraphError(f"the delegation of {method} is not counted in integers")
    specifications = extra.get(SPECIFICATIONS, {})
    if not isinstance(specifications, Mapping) or not all(map(_is_specification, specifications.values())):
        raise MalformedGraphError("the specifications of its delegates are malformed")
    listings = extra.get(LISTINGS, {})
    if not isinstance(listings, Mapping) or not all(isinstance(text, str) for text in listings.values()):
        raise MalformedGraphError("the listings of the lowered program are not texts by method")
    for value in extra.get("inputs", ()):
        if not isinstance(value, Mapping) or not (isinstance(value.get("tensor"), str) or "value" in value):
            raise MalformedGraphError("a representative input is neither a tensor's name nor a value")


def _read_members(path: PathLike, data: memoryview) -> tuple[bytes, memoryview]:
    try:
        with open_archive(data) as (archive, members):
            if sorted(members) != [_JSON, _TENSORS]:
                problem = f"a record has the members {_JSON} and {_TENSORS}; found {sorted(members)[:5]}"
                raise ArtifactError(path, problem, _ADVICE)
            if members[_JSON].file_size > _MOST_JSON or members[_JSON].compress_type not in _METHODS:
                problem = "a member claims an absurd size, or is packed in an unusual way"
                raise ArtifactError(path, problem, _ADVICE, where=_JSON)
            with archive.open(_JSON) as member:
                return member.read(_MOST_JSON + 1), stored_bytes(data, members[_TENSORS])
    except ValueError as error:
        raise ArtifactError(path, f"the archive is damaged ({error})", _ADVICE) from error


def _texts(value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise MalformedGraphError("the table of texts is not a list of texts")
    return value
