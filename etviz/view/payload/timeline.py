"""One execution on a time axis: calls, and below each call the events inside.

Operators that a backend timed with another clock start with their call.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from etviz.analysis.analysis import Analysis
from etviz.analysis.profile import CALLS, converted, spans
from etviz.artifacts.etdump.etdump import ProfileEvents
from etviz.errors import UsageError
from etviz.graph.labels import node_label, owners_of
from etviz.view.payload.program_payload import INNER, table_rows
from etviz.view.payload.wire import Answer, MessageBuffers, encode

KINDS: Final = ("framework", "call", "operator", "kernel")
_FRAMEWORK, _CALL, _OPERATOR, _KERNEL = range(len(KINDS))
_LEVELS: Final = (0, 1, 2, 2)
_SLACK: Final = 1e-9
_MOST_LEVELS: Final = 12
OWN_CLOCK: Final = "A delegate's operators are timed by another clock: they are drawn from the start of their call."


def build_timeline(analysis: Analysis, params: dict[str, Any], known: EventNames | None = None) -> Answer:
    """Sorted by start; ``{"run"}`` is a number among the timed executions; timelines of one analysis share `known`."""
    run, profile = params.get("run"), analysis.profile
    executions = profile.executions
    if not isinstance(run, int) or isinstance(run, bool) or not 0 <= run < len(executions):
        raise UsageError(f"run must be one of the {len(executions)} timed executions, found {run!r}")
    events, buffers = executions[run], MessageBuffers()
    start, length = spans(events, profile.factor)
    chained = events.chain >= 0
    kinds = np.full(len(events), _FRAMEWORK)
    kinds[chained] = _KERNEL
    kinds[chained & np.isin(events.name.astype(str), CALLS)] = _CALL
    kinds[[inner is not None for inner in events.delegate_debug_id]] = _OPERATOR
    own_clock = _settle(analysis, events, kinds, start, length)
    names, operators, confidences, rows = (known or EventNames(analysis)).told(events, kinds, run)
    containing = np.where(kinds == _FRAMEWORK, -np.nan_to_num(length), 0.0)
    order = np.lexsort((containing, np.array(_LEVELS)[kinds], start))
    levels = _levels(start[order], np.nan_to_num(length[order]), kinds[order])
    answer: dict[str, Any] = {
        "run": run,
        "count": len(order),
        "start": buffers.add(start[order], "float64"),
        "length": buffers.add(length[order], "float64"),
        "level": buffers.add(levels, "uint8"),
        "kind": buffers.add(kinds[order], "uint8"),
        "row": buffers.add(np.array(rows, np.int64)[order], "int32"),
        "instruction": buffers.add(np.where(chained, events.instruction_id, -1)[order], "int32"),
        "notes": [OWN_CLOCK] if own_clock else [],
    }
    for name, texts in (("name", names), ("operator", operators), ("confidence", confidences)):
        codes, words = encode([texts[at] for at in order])
        answer |= {name: buffers.add(codes, "int32"), f"{name}s": words}
    return answer, buffers.data


def _settle(
    analysis: Analysis,
    events: ProfileEvents,
    kinds: npt.NDArray[np.int64],
    start: npt.NDArray[np.float64],
    length: npt.NDArray[np.float64],
) -> bool:
    converter = analysis.profile.converter
    calls = np.flatnonzero(kinds == _CALL)
    inside = np.flatnonzero(kinds == _OPERATOR)
    moved = False
    first = 0
    for call in calls.tolist():  # in the order in which they ended; what is inside of a call ended before it
        at = inside[(inside >= first) & (inside < call)]
        at = at[events.instruction_id[at] == events.instruction_id[call]]
        first = call + 1
        if not len(at):
            continue
        begin, end = start[call], start[call] + np.nan_to_num(length[call])
        if converter is not None:
            names = [str(events.delegate_debug_id[k]) for k in at]
            ticks = list(zip(names, events.start[at].tolist(), events.end[at].tolist(), strict=True))
            earliest = int(events.start[at].min())
            length[at] = [converted(converter, name, int(a), int(b)) for name, a, b in ticks]
            start[at] = [begin + converted(converter, name, earliest, int(a)) for name, a, _ in ticks]
            moved = True
        elif np.any(start[at] < begin - _SLACK) or np.any(start[at] + np.nan_to_num(length[at]) > end + _SLACK):
            start[at] += begin - start[at].min()
            moved = True
    if moved:
        start -= start.min()
    return moved


class EventNames:
    """What is known of timed events: names, operators, and rows of the table."""

    def __init__(self, analysis: Analysis) -> None:
        self._graph = graph = analysis.graph
        self._owners = owners_of(graph)
        self._nodes = graph.by_instruction()
        self._joined = analysis.profile.joined(graph, analysis.findings.inner_handles)
        self._blocks = list(dict.fromkeys(analysis.tables.coverage["event_block"].tolist())) or [None]
        rows, _ = table_rows(analysis)
        ranks = [name for name in ("introduced_severity", "severity") if name in rows]
        known = rows[ranks].apply(pd.to_numeric, errors="coerce").fillna(-1.0)
        ordered = rows.loc[known.sort_values(ranks, ascending=False, kind="stable").index] if ranks else rows
        ordered = ordered[ordered["instruction"].notna()]
        fields = (*(ordered[name].tolist() for name in ("instruction", "kind")), ordered[INNER].fillna("").tolist())
        self._rows = list(zip(ordered.index.tolist(), _blocks(ordered), *fields, strict=True))
        kinds = zip(analysis.tables.gaps, _blocks(rows), rows["kind"].tolist(), strict=False)
        self._inner = [
            (row, block, (gap.instruction, gap.node.name))
            for row, (gap, block, kind) in enumerate(kinds)
            if kind == "inner"
        ]

    def told(
        self, events: ProfileEvents, kinds: npt.NDArray[np.int64], run: int
    ) -> tuple[list[str], list[str], list[str], list[int]]:
        outer, inner = self._places(run)
        names, operators, confidences, rows = [], [], [], []
        for at, kind in enumerate(kinds.tolist()):
            instruction = int(events.instruction_id[at])
            name, row, operator, confidence = str(events.name[at] or ""), -1, "", ""
            if kind == _OPERATOR:
                name = str(events.delegate_debug_id[at])
                told = self._joined.get(instruction, {}).get(name)
                if told is not None:
                    operator, confidence = told.node.name, told.confidence
                    row = inner.get((instruction, operator), -1)
            elif kind != _FRAMEWORK:
                row = outer.get(instruction, -1)
                node = self._nodes.get(instruction)
                if kind == _CALL and node is not None:
                    name = node_label(self._owners.get(instruction, self._graph), node)
            for held, value in ((names, name), (operators, operator), (confidences, confidence), (rows, row)):
                held.append(value)
        return names, operators, confidences, rows

    def _places(self, run: int) -> tuple[Mapping[int, int], Mapping[tuple[int, str], int]]:
        here = {None, self._blocks[min(run, len(self._blocks) - 1)]}  # a timed run has the values of the logged one
        outer: dict[int, int] = {}
        inner: dict[tuple[int, str], int] = {}
        for row, block, instruction, kind, name in self._rows:
            if block not in here:
                continue
            if name:
                inner.setdefault((int(instruction), str(name)), row)
            elif kind != "inner":
                outer.setdefault(int(instruction), row)
        for row, block, key in self._inner:
            if block in here:
                inner.setdefault(key, row)
        return outer, inner


def _blocks(rows: pd.DataFrame) -> list[int | None]:
    return [None if pd.isna(block) else int(block) for block in rows["event_block"].tolist()]


def _levels(
    start: npt.NDArray[np.float64], length: npt.NDArray[np.float64], kinds: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    ends: list[float] = []
    levels = np.zeros(len(start), np.int64)
    for at, (begin, long, kind) in enumerate(zip(start.tolist(), length.tolist(), kinds.tolist(), strict=True)):
        level = _LEVELS[kind]
        while level < len(ends) and ends[level] > begin + _SLACK and level < _MOST_LEVELS:
            level += 1
        ends += [-np.inf] * (level + 1 - len(ends))
        ends[level] = max(ends[level], begin + long)
        levels[at] = level
    return levels
