"""``probes.json``: the probe and the output that return each instruction's value."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from etviz.artifacts.document import Document
from etviz.artifacts.files import PathLike
from etviz.errors import ArtifactError

FILE: Final = "probes.json"
MODEL: Final = "model"
MAGIC: Final = 0x6574_7669_7A70
VERSION: Final = 1
_ADVICE: Final = "make the probes again with etviz.probe()"
_DOCUMENT: Final = Document("a table of probes", "etviz-probes", VERSION, _ADVICE)


@dataclass(frozen=True, slots=True)
class ProbeValue:
    """One value among a probe's outputs, named if it is `inside` a delegate.

    `shape` is an upper bound if it is `dynamic`; `order` lists dimensions from outermost to innermost in memory.
    """

    instruction: int
    index: int
    position: int
    dtype: str
    shape: tuple[int, ...]
    order: tuple[int, ...]
    dynamic: bool = False
    inside: str = ""


@dataclass(frozen=True, slots=True)
class ProbeEntry:
    """One probe program; `mark` is the expected content of its last output."""

    name: str
    values: tuple[ProbeValue, ...]
    outputs: int
    mark: tuple[int, ...]


@dataclass(frozen=True)
class ProbeTable:
    """`own` counts the unmodified program's outputs, the first of every probe; `missing` has reasons."""

    path: str
    method: str
    pte_checksum: str
    own: int
    probes: tuple[ProbeEntry, ...]
    missing: dict[int, str]

    @cached_property
    def by_name(self) -> dict[str, ProbeEntry]:
        return {probe.name: probe for probe in self.probes}


def write_table(table: ProbeTable, path: PathLike) -> None:
    body = asdict(table)
    body.pop("path")
    _DOCUMENT.write(path, body, through=False)


def read_table(path: PathLike) -> ProbeTable:
    body = _DOCUMENT.read(path)
    try:
        probes = tuple(_entry(entry) for entry in body["probes"])
        missing = {int(key): str(reason) for key, reason in body["missing"].items()}
        method, checksum, plain_outputs = str(body["method"]), str(body["pte_checksum"]), int(body["own"])
        _check(probes, plain_outputs)
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise ArtifactError(path, f"the table of probes is damaged ({error})", _ADVICE) from error
    return ProbeTable(os.fspath(path), method, checksum, plain_outputs, probes, missing)


def _entry(body: Any) -> ProbeEntry:
    values = []
    for value in body["values"]:
        instruction, index, position = (int(value[name]) for name in ("instruction", "index", "position"))
        shape, order = (tuple(map(int, value[name])) for name in ("shape", "order"))
        about = bool(value["dynamic"]), str(value["inside"])
        values.append(ProbeValue(instruction, index, position, str(value["dtype"]), shape, order, *about))
    return ProbeEntry(str(body["name"]), tuple(values), int(body["outputs"]), tuple(map(int, body["mark"])))


def _check(probes: tuple[ProbeEntry, ...], plain_outputs: int) -> None:
    names = [probe.name for probe in probes]
    if len(set(names)) != len(names) or MODEL in names:
        raise ValueError("two probes have one name")
    for probe in probes:
        for value in probe.values:
            inside = 0 <= value.position < probe.outputs and value.index >= 0
            if not inside or min(value.shape, default=0) < 0 or len(value.shape) > 64:
                raise ValueError(f"{probe.name} has no such output")
        if not 0 <= plain_outputs < probe.outputs <= plain_outputs + len(probe.values) + 1:
            raise ValueError(f"{probe.name} has {probe.outputs} outputs, which does not fit its values")


def find_table(*beside: PathLike | None) -> ProbeTable | None:
    for path in beside:
        if path is None:
            continue
        folder = Path(path) if Path(path).is_dir() else Path(path).parent
        if (folder / FILE).is_file():
            return read_table(folder / FILE)
    return None
