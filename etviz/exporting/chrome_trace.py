"""A Chrome trace of what the runtime timed: it opens in Perfetto and in chrome://tracing.

One process, with a track for the framework's own events, one for the portable kernels, one for the calls of each
backend, and one for the operators that a backend timed inside of its calls. Executions follow each other: each starts
a little after the end of the one before, as the clocks of separate processes have no common zero. Every call carries
the gap of its worst output.

The format is that of "Trace Event Format" (Google): complete events (``"ph": "X"``), `ts` and `dur` in µs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from etviz._version import __version__
from etviz.artifacts.etdump import ProfileEvents
from etviz.artifacts.files import PathLike
from etviz.artifacts.ir import Graph
from etviz.artifacts.saving import check_target, whole_file
from etviz.errors import UsageError
from etviz.exporting.figures import figures, shape_text, worst_of
from etviz.exporting.tracks import Tracks
from etviz.graph.instruction import describe, owners_of
from etviz.graph.tree import delegate_label, describe_outputs
from etviz.profile import CALLS, Profile, durations

if TYPE_CHECKING:
    from etviz.inspection import Inspection

PROCESS: Final = 1
_PAUSE_US: Final = 100.0
_US_PER_MS: Final = 1e3
_HALF: Final = 1 << 31
_WRAP: Final = 1 << 32

Event = dict[str, Any]


def write_chrome_trace(inspection: Inspection, graph: Graph, profile: Profile | None, path: PathLike) -> Path:
    """Write the trace of what `profile` holds for the method `graph`; see `Inspection.to_chrome_trace`."""
    target = check_target(path, "the trace")
    if profile is None or not any(len(block.profile) for block in profile.blocks):
        raise UsageError("the ETDump holds no timed event, so there is no trace; run with event tracing on")
    text = json.dumps(chrome_trace(inspection, graph, profile), allow_nan=False, separators=(",", ":"))
    with whole_file(target, "the trace") as partial:
        partial.write_text(text, "utf-8")
    return target


def chrome_trace(inspection: Inspection, graph: Graph, profile: Profile) -> dict[str, Any]:
    """The trace in the JSON object format, without NaN and infinities."""
    about = _Instructions(inspection, graph)
    runs = iter(inspection.coverage["event_block"].unique().tolist())
    tracks, events, begin = Tracks(), [], 0.0
    for number, block in enumerate(profile.blocks):
        run = next(runs, None) if block.name == "Execute" else None
        start, length = timeline(block.profile, profile.factor)
        for at in np.lexsort((-np.nan_to_num(length), start)).tolist():
            told = about.event(block.profile, at, run)
            lane, event = told.pop("lane"), told | {"pid": PROCESS, "ts": begin + start[at]}
            event["args"] |= {"event_block": number, "block": block.name}
            if np.isnan(length[at]):
                event |= {"ph": "i", "s": "t", "tid": tracks.lane(lane, event["ts"], 0.0)}
                event["args"]["note"] = "it ends before it starts, so its duration is not known"
            else:
                event |= {"ph": "X", "dur": length[at], "tid": tracks.lane(lane, event["ts"], float(length[at]))}
            events.append(event)
        begin += float(np.nanmax(start + np.nan_to_num(length), initial=0.0)) + _PAUSE_US
    return {
        "traceEvents": [*_names(inspection.title, tracks), *events],
        "displayTimeUnit": "ms",
        "otherData": {"title": inspection.title, "written_by": f"etviz {__version__}"},
    }


def timeline(events: ProfileEvents, factor: float) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Start since the first event, and duration, of each event, in µs; a duration that is not known is NaN.

    A clock of 32 bits that wraps around goes on; events are in the order in which they ended.
    """
    if not len(events):
        return np.zeros(0), np.zeros(0)
    length = durations(events, factor) * _US_PER_MS
    start, end = events.start, events.end
    late = end.copy()
    if int(max(start.max(), end.max())) < _WRAP:
        laps = 1 + np.concatenate([[0], np.cumsum(np.diff(end.astype(np.int64)) < -_HALF)])
        late = end + laps.astype(np.uint64) * np.uint64(_WRAP)
    ticks = np.where(end < start, end + np.uint64(_WRAP) - start, end - start)
    early = late - np.where(np.isnan(length), np.uint64(0), ticks)
    return (early - early.min()).astype(float) * factor * _US_PER_MS, length


class _Instructions:
    """What a trace says about the instruction of an event."""

    def __init__(self, inspection: Inspection, graph: Graph) -> None:
        self._owners = owners_of(graph)
        self._nodes = {node.instruction: node for node in graph.walk() if node.instruction >= 0}
        self._graph = graph
        gaps = inspection.gaps
        self._gaps: Mapping[Any, Any] = worst_of(
            gaps, zip(gaps["event_block"].tolist(), gaps["instruction"].tolist(), strict=True)
        )

    def event(self, events: ProfileEvents, at: int, run: int | None) -> Event:
        """Name, category, track and arguments of one event."""
        name, inside = str(events.name[at] or ""), events.delegate_debug_id[at]
        instruction = int(events.instruction_id[at]) if events.chain[at] >= 0 else -1
        node = self._nodes.get(instruction)
        told = describe(self._owners.get(instruction, self._graph), node, 0) if node else {}
        backend = told.get("backend", "")
        if inside is not None:
            args = {"event": str(inside), "instruction": instruction, "backend": backend}
            return {
                "name": str(inside),
                "cat": "operator",
                "lane": f"{backend or 'delegates'}: operators",
                "args": args,
            }
        if instruction < 0:
            return {"name": name, "cat": "framework", "lane": "framework", "args": {"event": name}}
        lane = (backend or "delegates") if name == "DELEGATE_CALL" or backend else "portable kernels"
        args = {"event": name, "instruction": instruction}
        if name not in CALLS or node is None:
            return {"name": name, "cat": "kernel", "lane": lane, "args": args}
        row = self._gaps.get((run, instruction))
        args |= {"op": told["op"], "source": told["source"], "module": told["module"]}
        args["shape"] = describe_outputs(node) if row is None else shape_text(row)
        if row is not None:
            args |= {"output": int(row["output"]), "module": row["module"], "source": row["source"]} | figures(row)
            args["status"] = row["status"]
        inner = self._owners.get(instruction, self._graph).subgraphs.get(node.subgraphs[0]) if node.subgraphs else None
        label = delegate_label(inner) if inner is not None else told["op"].removeprefix("aten::")
        return {"name": label, "cat": "call", "lane": lane, "args": args}


def _names(title: str, tracks: Tracks) -> list[Event]:
    """Names and order of the process and its tracks."""
    found: list[Event] = [{"ph": "M", "pid": PROCESS, "name": "process_name", "args": {"name": title}}]
    for number, name in tracks.names.items():
        about = {"ph": "M", "pid": PROCESS, "tid": number}
        found.append(about | {"name": "thread_name", "args": {"name": name}})
        found.append(about | {"name": "thread_sort_index", "args": {"sort_index": tracks.place(name)}})
    return found
