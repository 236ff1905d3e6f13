"""A Chrome trace of the timed events, for Perfetto and chrome://tracing.

A small gap parts executions, because separate processes have no common zero. Every call carries the gap of its worst
output. The format is "Trace Event Format" (Google): complete events (``"ph": "X"``), `ts` and `dur` in µs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from etviz._version import __version__
from etviz.analysis.analysis import Analysis
from etviz.analysis.profile import CALLS, spans
from etviz.artifacts.etdump.etdump import ProfileEvents
from etviz.artifacts.files import PathLike, check_target, write_file
from etviz.errors import UsageError, during
from etviz.graph.labels import describe, describe_outputs, node_label, owners_of
from etviz.view.export.figures import figures, shape_text, worst_of

PROCESS: Final = 1
_PAUSE_US: Final = 100.0
_US_PER_MS: Final = 1e3

Event = dict[str, Any]


@during("writing the trace")
def write_chrome_trace(analysis: Analysis, path: PathLike) -> Path:
    target = check_target(path, "the trace")
    if not any(len(block.profile) for block in analysis.profile.blocks):
        raise UsageError("the ETDump holds no timed event, so there is no trace; run with event tracing on")
    text = json.dumps(chrome_trace(analysis), allow_nan=False, separators=(",", ":"))
    return write_file(target, "the trace", text)


def chrome_trace(analysis: Analysis) -> dict[str, Any]:
    about, profile = _Instructions(analysis), analysis.profile
    runs, count = analysis.tables.coverage["event_block"].unique().tolist(), 0
    tracks, events, begin = Tracks(), [], 0.0
    for number, block in enumerate(profile.blocks):
        executed = block.name == "Execute" and bool(runs)
        run = runs[min(count, len(runs) - 1)] if executed else None  # a timed run has the values of the logged one
        count += executed
        start, length = (times * _US_PER_MS for times in spans(block.profile, profile.factor))
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
        "traceEvents": [*_names(analysis.title, tracks), *events],
        "displayTimeUnit": "ms",
        "otherData": {"title": analysis.title, "written_by": f"etviz {__version__}"},
    }


class _Instructions:
    def __init__(self, analysis: Analysis) -> None:
        graph = analysis.graph
        self._owners = owners_of(graph)
        self._nodes = graph.by_instruction()
        self._graph = graph
        gaps = analysis.tables.rows
        self._gaps: Mapping[Any, Any] = worst_of(
            gaps, zip(gaps["event_block"].tolist(), gaps["instruction"].tolist(), strict=True)
        )

    def event(self, events: ProfileEvents, at: int, run: int | None) -> Event:
        name, inside = str(events.name[at] or ""), events.delegate_debug_id[at]
        instruction = int(events.instruction_id[at]) if events.chain[at] >= 0 else -1
        node = self._nodes.get(instruction)
        told = describe(self._owners.get(instruction, self._graph), node, 0) if node else {}
        backend = told.get("backend", "")
        if inside is not None:
            args = {"event": str(inside), "instruction": instruction, "backend": backend}
            lane = f"{backend or 'delegates'}: operators"
            return {"name": str(inside), "cat": "operator", "lane": lane, "args": args}
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
        owner = self._owners.get(instruction, self._graph)
        label = node_label(owner, node) if node.subgraphs else told["op"].removeprefix("aten::")
        return {"name": label, "cat": "call", "lane": lane, "args": args}


def _names(title: str, tracks: Tracks) -> list[Event]:
    events: list[Event] = [{"ph": "M", "pid": PROCESS, "name": "process_name", "args": {"name": title}}]
    for number, name in tracks.names.items():
        about = {"ph": "M", "pid": PROCESS, "tid": number}
        events.append(about | {"name": "thread_name", "args": {"name": name}})
        events.append(about | {"name": "thread_sort_index", "args": {"sort_index": tracks.place(name)}})
    return events


_FIRST: Final = ("framework", "portable kernels")
_SLACK_US: Final = 1e-6
"""Microseconds: ends that are the same tick may differ by the rounding of start plus duration."""


@dataclass(slots=True)
class Tracks:
    """Numbers the tracks in the order in which they are met; `names` by number."""

    names: dict[int, str] = field(default_factory=dict)
    _lanes: dict[str, list[int]] = field(default_factory=dict)
    _open: dict[int, list[float]] = field(default_factory=dict)

    def lane(self, name: str, start: float, length: float) -> int:
        """Number of an event's track, new if it would cross another event; events come by start, the longer first.

        Examples
        --------
        >>> tracks = Tracks()
        >>> [tracks.lane("cpu", *event) for event in ((0, 10), (2, 3), (8, 5), (20, 1))]
        [1, 1, 2, 1]
        >>> tracks.names
        {1: 'cpu', 2: 'cpu (2)'}
        """
        end = start + length
        lanes = self._lanes.setdefault(name, [])
        for number in lanes:
            ends = self._open[number]
            while ends and ends[-1] <= start + _SLACK_US:
                ends.pop()
            if not ends or end <= ends[-1] + _SLACK_US:
                ends.append(end)
                return number
        number = len(self.names) + 1
        self.names[number] = f"{name} ({len(lanes) + 1})" if lanes else name
        self._open[number] = [end]
        lanes.append(number)
        return number

    def place(self, name: str) -> int:
        order = sorted(self.names.values(), key=lambda one: (_FIRST.index(one) if one in _FIRST else len(_FIRST), one))
        return order.index(name)
