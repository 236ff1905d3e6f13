"""`etviz.from_inspector`: an Inspector keeps neither paths nor all content; it becomes an ETDump and a debug buffer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from etviz.analysis.profile import TO_MS
from etviz.artifacts.etdump.etdump import DebugEvent, ETDump, ProfileEvents, RunBlock
from etviz.artifacts.etdump.value_writer import ValueWriter
from etviz.artifacts.scratch import Scratch
from etviz.errors import UsageError
from etviz.loading.artifact_set import ArtifactSet
from etviz.loading.load import read
from etviz.upstream.inspector import HeldEvent, HeldRun, held_by_inspector

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from executorch.devtools import Inspector

    from etviz.analysis.findings import Findings
    from etviz.artifacts.files import PathLike

_TICK: Final = TO_MS["ns"]
_NO_STRIDES: Final = (
    "The program has values that are not stored row by row, and an Inspector keeps values without their strides: those "
    "of two and more dimensions are not compared. Give etdump= and debug_buffer= to compare them."
)
_FIRST_ONLY: Final = "An Inspector keeps the values of the first of several equal runs only."


def held_findings(
    inspector: Inspector,
    etdump: PathLike | None,
    debug_buffer: PathLike | None,
    pte: PathLike | None,
    record: PathLike | None,
    inputs: Any,
) -> Findings:
    if not hasattr(inspector, "event_blocks"):
        raise UsageError(f"inspector must be an executorch.devtools.Inspector, found {type(inspector).__name__}")
    if debug_buffer is not None and etdump is None:
        raise UsageError("debug_buffer= means nothing without the ETDump that refers to it; give etdump= too")
    held = held_by_inspector(inspector)
    folder = Scratch()
    place, notes = Path(folder.name), []
    etrecord = place / "etrecord.bin"
    try:
        held.save_etrecord(str(etrecord))
    except Exception as error:  # noqa: BLE001 - upstream fails in many ways here
        etrecord.unlink(missing_ok=True)
        notes.append(f"The Inspector's ETRecord can't be written, so there is no reference from it: {error}")
    dump: ETDump | PathLike = etdump if etdump is not None else place
    factor = held.milliseconds
    if etdump is None:
        readable = not held.has_other_layouts
        if not readable:
            notes.append(_NO_STRIDES)
        if any(len(event.ticks) > 1 for run in held.runs for event in run.events if event.values):
            notes.append(_FIRST_ONLY)
        dump, factor = write_back(held.runs, place, readable), _TICK
        buffer = place / "debug_buffer.bin"
        debug_buffer = buffer if buffer.exists() else None
    artifacts = ArtifactSet.open(
        dump, etrecord=etrecord if etrecord.exists() else None, debug_buffer=debug_buffer, pte=pte, record=record
    )
    return read(
        artifacts, inputs, None, factor, held.metadata_parser, title="Inspector", notes=tuple(notes), keep_alive=folder
    )


def write_back(runs: Sequence[HeldRun], folder: Path, readable: bool) -> ETDump:
    """Not `readable` if the memory order is unknown: tensors of two and more dimensions are left out."""
    writer = ValueWriter(folder / "debug_buffer.bin", readable=readable)
    blocks = tuple(RunBlock(run.name, run.index, _profile(run.events), tuple(_values(run, writer))) for run in runs)
    return ETDump(str(folder), blocks, [], made=True)


def _profile(events: Sequence[HeldEvent]) -> ProfileEvents:
    rows = [(event, at) for event in events for at in range(len(event.ticks))]

    def column(values: list[Any], dtype: Any) -> Any:
        array = np.empty(len(values), dtype)
        array[:] = values
        return array

    ends = [event.ticks[at] for event, at in rows]
    return ProfileEvents(
        name=column([None if event.inside is not None else event.name for event, _ in rows], object),
        chain=column([event.chain for event, _ in rows], np.int64),
        instruction_id=column([event.instruction for event, _ in rows], np.int64),
        delegate_debug_id=column([event.inside for event, _ in rows], object),
        metadata=column([event.metadata[at] if at < len(event.metadata) else None for event, at in rows], object),
        start=np.zeros(len(rows), np.uint64),
        end=column(ends, np.uint64),
    )


def _values(run: HeldRun, writer: ValueWriter) -> Iterator[DebugEvent]:
    seen: set[tuple[int, int, int | str | None]] = set()
    for event in run.events:
        key = event.chain, event.instruction, event.inside
        if key in seen or not event.values:
            continue
        seen.add(key)
        yield from writer.events(event.chain, event.instruction, event.values, inside=event.inside)
    yield from writer.events(-1, 0, run.outputs, output=True)
