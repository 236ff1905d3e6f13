"""ETDump: the runtime's recording, read from the flatbuffer.

Upstream's reader rejects a whole dump that has one float16 tensor. This one reads what a damaged dump still holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from etviz.artifacts.etdump.events import DebugEvent, Events, Layout, ProfileEvents, TensorRef, read_events
from etviz.artifacts.etdump.salvage import salvage_events
from etviz.artifacts.files import PathLike, open_artifact, path_of, wrong_kind
from etviz.artifacts.flatbuffer import FlatBuffer
from etviz.errors import ArtifactError

__all__ = ["DebugEvent", "ETDump", "Events", "Layout", "ProfileEvents", "RunBlock", "TensorRef", "read_etdump"]

_ADVICE: Final = "write it again with the runtime's ETDump support on, and copy the whole file"
_PREFIX: Final = 4
_KNOWN_VERSION: Final = 0


@dataclass(frozen=True, slots=True)
class RunBlock:
    """Named "Default" for loading, "Execute" for runs; `bundled_input_index` is the bundled test case."""

    name: str
    bundled_input_index: int | None
    profile: ProfileEvents
    debug: tuple[DebugEvent, ...]

    def tensor_refs(self) -> Iterator[TensorRef]:
        for event in self.debug:
            yield from event.tensors


@dataclass(frozen=True, slots=True)
class ETDump:
    """`problems` are sentences about doubtful parts; `made`: etviz made the dump."""

    path: str
    blocks: tuple[RunBlock, ...]
    problems: list[str]
    made: bool = False

    def tensor_refs(self) -> Iterator[TensorRef]:
        for block in self.blocks:
            yield from block.tensor_refs()


def read_etdump(path: PathLike) -> ETDump:
    name = path_of(path, "an ETDump")
    data = open_artifact(path, "an ETDump", _ADVICE)
    if data[8:12] != b"ED00":
        raise wrong_kind(path, data[:64], "an ETDump", "give the file that the runtime wrote as ETDump")
    size = int.from_bytes(data[:_PREFIX], "little") + _PREFIX
    if size > len(data):
        problem = f"the ETDump is truncated: it has {len(data)} bytes of {size}"
        raise ArtifactError(name, problem, _ADVICE, where=len(data), found=len(data), expected=size)
    view = memoryview(data)[:size]
    try:
        version, blocks = _read_blocks(FlatBuffer(view, name, "ETDump", _ADVICE))
    except ArtifactError as damage:
        return _read_damaged(FlatBuffer(view, name, "ETDump", _ADVICE), damage)
    problems = []
    if version != _KNOWN_VERSION:
        problems.append(f"The ETDump has version {version}; etviz knows version {_KNOWN_VERSION}.")
    return ETDump(name, tuple(blocks), problems)


def _read_blocks(buffer: FlatBuffer) -> tuple[int, list[RunBlock]]:
    root = buffer.root(_PREFIX)
    runs = root.vectors(1).tables()
    names = runs.strings(0).tolist()
    buffer.require(runs.has(0), runs.at, "an event block has no name")
    indices = [None if index < 0 else index for index in runs.scalar(1, "<i4", -1).tolist()]
    events = runs.vectors(3)
    parts = read_events(events.tables(), events.ends().tolist())
    blocks = [
        RunBlock(name, index, part.profile, part.debug) for name, index, part in zip(names, indices, parts, strict=True)
    ]
    return int(root.scalar(0, "<u4")[0]), blocks


def _read_damaged(buffer: FlatBuffer, damage: ArtifactError) -> ETDump:
    parts = salvage_events(buffer)
    if not parts:
        raise damage
    blocks = tuple(RunBlock(name, None, part.profile, part.debug) for name, part in parts)
    count = sum(len(block.profile) + len(block.debug) for block in blocks)
    problems = [
        f"The ETDump's structure is broken at byte {damage.where}: {count} events were found by searching "
        "for them. The runtime's writer leaves such a file when it meets a tensor type that it does not "
        "support (float16, bfloat16, complex64): values of these types are missing, and only the program (pte=) tells "
        "where they lie in the debug buffer."
    ]
    for position, block in enumerate(blocks):
        silent = _without_value(block)
        if silent:
            listed = ", ".join(map(str, silent[:20])) + (", …" if len(silent) > 20 else "")
            where = f"event block {position} ({block.name})"
            problems.append(f"In {where}, no value of {len(silent)} instructions is left: {listed}.")
    return ETDump(buffer.path, blocks, problems)


def _without_value(block: RunBlock) -> list[int]:
    if not block.debug:
        return []
    calls = (block.profile.name == "OPERATOR_CALL") | (block.profile.name == "DELEGATE_CALL")
    timed = set(block.profile.instruction_id[calls].tolist())
    return sorted(timed - {event.instruction_id for event in block.debug if event.chain >= 0})
