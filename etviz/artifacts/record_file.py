"""The record file (`model.etviz`): what exact pairing, introduced error and zoom need beside the `.pte`.

A zip: `record.json`, the graphs of all methods with the place of every constant; `constants.safetensors`, those
constants that the ETRecord does not hold; and `reference.safetensors`, those weights of a float reference that the
ETRecord does not hold, where there is such a reference (since version 2). No pickle, no code, a version, and the
checksum of the `.pte` that it belongs to.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from etviz.artifacts.files import PathLike, open_artifact, wrong_kind
from etviz.artifacts.ir import Graph
from etviz.artifacts.ir_json import MalformedGraphError, TextTable, dump_graph, load_graph
from etviz.artifacts.json_text import parse_json
from etviz.errors import ArtifactError

VERSION: Final = 2
REFERENCE: Final = "reference.safetensors"
"""The member with weights of the float reference; also their `Place.member`."""

_READABLE: Final = (1, 2)
LISTINGS: Final = "delegated_graph"
"""Key in `Record.extra`: the lowered program as upstream's `format_delegated_graph` writes it, by method."""
_JSON: Final = "record.json"
_CONSTANTS: Final = "constants.safetensors"
_METHODS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_MOST_JSON: Final = 64 << 20
_LOCAL_HEADER: Final = 30
_ADVICE: Final = "write it again with etviz.record(edge_manager, executorch_manager, path)"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a constant's values are: a member of the ETRecord and a name in it.

    An empty `member` is the record's own constants, `REFERENCE` its weights of the float reference.
    """

    member: str
    name: str


@dataclass(slots=True)
class Record:
    """The lowered program as it was emitted.

    Attributes
    ----------
    graphs
        Graph of each method.
    places
        Where the values of each constant (`Input.target`) are.
    pte_checksum
        Of the `.pte`, see `etviz.artifacts.checksum`.
    delegation
        By method: ``{"delegated": {op: n}, "non_delegated": {op: n}, "subgraphs": n}``, counted before emission.
    own
        Safetensors bytes of the constants that no ETRecord has.
    extra
        What else is kept: names of the tensors among `own` that are the representative inputs (``inputs``), and
        `LISTINGS`.
    references
        By method: the graph of the float model that the quantization split compares with.
    reference_weights
        Safetensors bytes of those weights of `references` that no ETRecord has.
    reference_crc
        CRC-32 of these bytes as the file states it, None for a record that was not read from a file.
    """

    graphs: dict[str, Graph]
    places: dict[str, Place]
    pte_checksum: str
    delegation: dict[str, Any] = field(default_factory=dict)
    own: bytes = b""
    extra: dict[str, Any] = field(default_factory=dict)
    references: dict[str, Graph] = field(default_factory=dict)
    reference_weights: bytes | memoryview = b""
    reference_crc: int | None = field(default=None, compare=False)


def write_record(record: Record, path: PathLike) -> None:
    """Write a record file; it appears under its name only when it is whole.

    Raises
    ------
    OSError
        If the file can't be written.
    """
    table = TextTable()
    graphs = [[method, dump_graph(graph, table)] for method, graph in record.graphs.items()]
    body = {
        "format": "etviz-record",
        "version": VERSION,
        "pte_checksum": record.pte_checksum,
        "graphs": graphs,
        "references": [[method, dump_graph(graph, table)] for method, graph in record.references.items()],
        "texts": table.texts,
        "places": [[key, place.member, place.name] for key, place in record.places.items()],
        "delegation": record.delegation,
        "extra": record.extra,
    }
    target = Path(path)
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        with zipfile.ZipFile(partial, "w") as archive:
            archive.writestr(_JSON, json.dumps(body, separators=(",", ":")), zipfile.ZIP_DEFLATED, 6)
            archive.writestr(_CONSTANTS, record.own, zipfile.ZIP_STORED)
            if len(record.reference_weights):
                archive.writestr(REFERENCE, record.reference_weights, zipfile.ZIP_STORED)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def read_record(path: PathLike) -> Record:
    """Read a record file.

    Raises
    ------
    ArtifactError
        If it is missing, not a record, of a newer version, or damaged.
    """
    data = memoryview(open_artifact(path, "an etviz record", _ADVICE))
    if bytes(data[:2]) != b"PK":
        raise wrong_kind(path, bytes(data[:64]), "an etviz record", _ADVICE)
    text, own, weights = _members(path)
    body = _parse(path, text)
    try:
        texts = _texts(body["texts"])
        graphs = {str(method): load_graph(graph, texts) for method, graph in body["graphs"]}
        references = {str(method): load_graph(graph, texts) for method, graph in body.get("references", ())}
        places = {str(key): Place(str(member), str(name)) for key, member, name in body["places"]}
        checksum = str(body["pte_checksum"] if "pte_checksum" in body else f"sha256:{body['pte_sha256']}")
        delegation, extra = body["delegation"], body["extra"]
        _check_tables(list(graphs), delegation, extra)
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise ArtifactError(path, f"the record is damaged ({error})", _ADVICE, where=_JSON) from error
    found = Record(graphs, places, checksum, dict(delegation), own, dict(extra), references)
    if weights is not None:
        found.reference_weights, found.reference_crc = _stored(path, data, weights), weights.CRC
    return found


def _check_tables(methods: list[str], delegation: Any, extra: Any) -> None:
    """Refuse a delegation table that lacks a method or a count, and inputs in another form than they are written."""
    if not isinstance(delegation, Mapping) or not isinstance(extra, Mapping):
        raise MalformedGraphError("a table has the wrong type")
    for method in methods:
        counts = delegation[method]
        numbers = [counts["subgraphs"], *counts["delegated"].values(), *counts["non_delegated"].values()]
        if not all(isinstance(number, int) for number in numbers):
            raise MalformedGraphError(f"the delegation of {method} is not counted in integers")
    listings = extra.get(LISTINGS, {})
    if not isinstance(listings, Mapping) or not all(isinstance(text, str) for text in listings.values()):
        raise MalformedGraphError("the listings of the lowered program are not texts by method")
    for value in extra.get("inputs", ()):
        if not isinstance(value, Mapping) or not (isinstance(value.get("tensor"), str) or "value" in value):
            raise MalformedGraphError("a representative input is neither a tensor's name nor a value")


def _stored(path: PathLike, data: memoryview, info: zipfile.ZipInfo) -> memoryview:
    """The bytes of a member that is stored as it is, where they lie in the mapped file."""
    head = bytes(data[info.header_offset : info.header_offset + _LOCAL_HEADER])
    start = info.header_offset + _LOCAL_HEADER
    start += int.from_bytes(head[26:28], "little") + int.from_bytes(head[28:30], "little")
    if info.compress_type != zipfile.ZIP_STORED or start + info.file_size > len(data):
        raise ArtifactError(path, "its weights are compressed, or reach beyond the end", _ADVICE, where=info.filename)
    return data[start : start + info.file_size]


def _members(path: PathLike) -> tuple[bytes, bytes, zipfile.ZipInfo | None]:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            if sorted(set(names) - {REFERENCE}) != sorted([_JSON, _CONSTANTS]) or len(names) > len(set(names)):
                raise ArtifactError(
                    path, f"a record has the members {_JSON} and {_CONSTANTS}; found {names[:5]}", _ADVICE
                )
            if any(info.compress_type not in _METHODS or info.flag_bits & 1 for info in archive.infolist()):
                raise ArtifactError(path, "a member is encrypted, or packed in an unusual way", _ADVICE)
            info = archive.getinfo(_JSON)
            size = Path(path).stat().st_size
            if info.file_size > _MOST_JSON or archive.getinfo(_CONSTANTS).file_size > size:
                raise ArtifactError(path, "a member claims an absurd size", _ADVICE, where=_JSON)
            with archive.open(info) as member:
                text = member.read(_MOST_JSON + 1)
            weights = archive.getinfo(REFERENCE) if REFERENCE in names else None
            return text, archive.read(_CONSTANTS), weights
    except (zipfile.BadZipFile, OSError, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise ArtifactError(path, f"the archive is damaged ({error})", _ADVICE) from error
    except Exception as error:
        if type(error).__module__ != "zlib":
            raise
        raise ArtifactError(path, f"the archive is damaged ({error})", _ADVICE) from error


def _parse(path: PathLike, text: bytes) -> dict[str, Any]:
    try:
        body = parse_json(text)
    except ValueError as error:
        raise ArtifactError(path, f"{_JSON} is not JSON ({error})", _ADVICE, where=_JSON) from error
    if not isinstance(body, dict) or body.get("format") != "etviz-record":
        raise ArtifactError(path, f"{_JSON} is not an etviz record", _ADVICE, where=_JSON)
    if body.get("version") not in _READABLE:
        raise ArtifactError(
            path,
            f"the record has version {body.get('version')}; this etviz reads versions up to {VERSION}",
            "read it with the etviz that wrote it, or write it again",
            where=_JSON,
            found=body.get("version"),
            expected=VERSION,
        )
    return body


def _texts(value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise MalformedGraphError("the table of texts is not a list of texts")
    return value
