"""Latency of instructions and of operators inside delegates, in milliseconds.

Durations are ``end − start`` in the device's clock; `source_time_scale` gives its unit.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import fmean
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from etviz.analysis.inner_events import JoinedEvent, join_events
from etviz.artifacts.etdump.etdump import ProfileEvents, RunBlock
from etviz.artifacts.files import parse_json
from etviz.errors import UsageError
from etviz.graph.ir import Graph, Node
from etviz.graph.labels import describe, inside_of, owners_of
from etviz.graph.modules import is_within, members, module_paths
from etviz.upstream.emulated import EMULATED

if TYPE_CHECKING:
    import pandas as pd


MetadataParser = Callable[[list[bytes]], Any]
TimeConverter = Callable[[str, int], float]
"""Milliseconds from the name of an event inside a delegate, and a time of that backend's clock."""

TO_MS: Final = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3, "cycles": 1.0}
"""Cycles stay cycles."""
AUTO: Final = "auto"
"""Cycles where a microcontroller's log tells so, else nanoseconds, which ExecuTorch's platforms count."""
CALLS: Final = ("OPERATOR_CALL", "DELEGATE_CALL")
_HALF: Final = 1 << 31
_WRAP: Final = 1 << 32
COLUMNS: Final = (
    *("event_block", "name", "instruction", "backend", "op_types", "count", "avg_ms", "p10_ms", "p50_ms", "p90_ms"),
    *("min_ms", "max_ms", "std_ms", "samples_ms", "module", "source", "operator", "confidence"),
)
METADATA: Final = "delegate_debug_metadatas"
_LONGEST_NAME: Final = 80


def scale_factor(source_time_scale: Any) -> float:
    """Milliseconds of one unit; `UsageError` for an unknown one."""
    source_time_scale = getattr(source_time_scale, "value", source_time_scale)
    if source_time_scale == AUTO:
        return TO_MS["ns"]
    if source_time_scale not in TO_MS:
        raise UsageError(f"source_time_scale must be one of {', '.join((*TO_MS, AUTO))}, found {source_time_scale!r}")
    return TO_MS[source_time_scale]


def durations(profile: ProfileEvents, factor: float) -> npt.NDArray[np.float64]:
    """Milliseconds of each event.

    A wrapped 32-bit clock is put right; an end before its start on any other gives NaN.
    """
    start, end = profile.start, profile.end
    wrapped = end < start
    ticks = np.where(wrapped, end + np.uint64(_WRAP) - start, end - start).astype(float)
    ticks[wrapped & ((start >= _WRAP) | (end >= _WRAP))] = np.nan
    return ticks * factor


def spans(events: ProfileEvents, factor: float) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Milliseconds from the first event's start to each event's, and durations; NaN where unknown.

    A 32-bit clock that wraps around goes on; events are in the order in which they ended.
    """
    if not len(events):
        return np.zeros(0), np.zeros(0)
    length = durations(events, factor)
    start, end = events.start, events.end
    late = end.copy()
    if int(max(start.max(), end.max())) < _WRAP:
        laps = 1 + np.concatenate([[0], np.cumsum(np.diff(end.astype(np.int64)) < -_HALF)])
        late = end + laps.astype(np.uint64) * np.uint64(_WRAP)
    ticks = np.where(end < start, end + np.uint64(_WRAP) - start, end - start)
    early = late - np.where(np.isnan(length), np.uint64(0), ticks)
    return (early - early.min()).astype(float) * factor, length


def instruction_latency(blocks: Iterable[RunBlock], factor: float) -> dict[int, float]:
    """Mean milliseconds over all blocks; of an instruction in a loop all its rounds together."""
    samples: dict[int, list[float]] = {}
    for block in blocks:
        profile = block.profile
        rows = np.flatnonzero(np.isin(profile.name.astype(str), CALLS) & (profile.chain >= 0))
        times = durations(profile, factor)[rows]
        totals: dict[int, float] = {}
        for instruction, time in zip(profile.instruction_id[rows].tolist(), times.tolist(), strict=True):
            totals[instruction] = totals.get(instruction, 0.0) + time
        for instruction, time in totals.items():
            samples.setdefault(instruction, []).append(time)
    return {instruction: fmean(times) for instruction, times in samples.items()}


def emulated_calls(blocks: Iterable[RunBlock]) -> dict[int, str]:
    names: dict[int, str] = {}
    for block in blocks:
        events = block.profile
        for at in np.flatnonzero(events.name.astype(str) == "DELEGATE_CALL").tolist():
            (told,) = _objects([bytes(events.metadata[at] or b"")]) or (None,)
            name = told.get(EMULATED) if isinstance(told, dict) else None
            if isinstance(name, str):
                names[int(events.instruction_id[at])] = name[:_LONGEST_NAME]
    return names


@dataclass(frozen=True)
class Profile:
    """The events that the runtime timed.

    `factor` is milliseconds of one unit of the device's clock. `parser` takes the metadata of each sample of an event
    (a list of bytes). `distorted`: values were logged while the times were taken.
    """

    blocks: Sequence[RunBlock] = ()
    factor: float = TO_MS["ns"]
    parser: MetadataParser | None = None
    converter: TimeConverter | None = None
    note: str = ""
    distorted: bool = False

    @cached_property
    def executions(self) -> list[ProfileEvents]:
        return [block.profile for block in self.blocks if block.name == "Execute" and len(block.profile)]

    @cached_property
    def typical(self) -> int:
        """The execution whose duration is the median; the shorter one of two."""
        took = [np.max(sum(spans(events, self.factor)), initial=0.0) for events in self.executions]
        return int(np.argsort(np.nan_to_num(took), kind="stable")[(len(took) - 1) // 2]) if took else 0

    @cached_property
    def samples(self) -> dict[_Key, _Samples]:
        return _collect(self)

    def ran(self) -> list[set[int]]:
        return [set(execution.instruction_id[execution.chain >= 0].tolist()) for execution in self.executions]

    def joined(self, graph: Graph, handles: Handles = MappingProxyType({})) -> dict[int, dict[str, JoinedEvent]]:
        timed: dict[int, dict[str, None]] = {}
        for _, name, instruction, inner in self.samples:
            if inner:
                timed.setdefault(instruction, {})[name] = None
        return {at: _joined(graph, at, list(names), handles.get(at, {})) for at, names in timed.items()}

    def inside(self, graph: Graph, instruction: int, handles: Mapping[str, Sequence[int]]) -> dict[str, float]:
        events = {key: event for key, event in self.samples.items() if key[3] and key[2] == instruction}
        joined = _joined(graph, instruction, [key[1] for key in events], handles)
        times: dict[str, float] = {}
        for (_, name, _, _), samples in events.items():
            if name in joined:
                node = joined[name].node.name
                times[node] = times.get(node, 0.0) + float(np.mean(samples.times))
        return times


@dataclass(slots=True)
class _Samples:
    times: list[float] = field(default_factory=list)
    metadata: list[bytes] = field(default_factory=list)


_Key = tuple[str, str, int, bool]


Handles = Mapping[int, Mapping[str, Sequence[int]]]
"""By instruction of a delegate call: its backend's identifiers, as text, to debug handles."""


def events_frame(profile: Profile, graph: Graph, handles: Handles = MappingProxyType({})) -> pd.DataFrame:
    """A row for each event, its times over all executions.

    Columns
    -------
    event_block
        ``Default`` (loading) or ``Execute``.
    name
        Upstream's: ``OPERATOR_CALL``, ``native_call_add.out``, ``DELEGATE_CALL``, the backend's name for an event
        inside a delegate, ``Method::execute`` and the like for the framework's.
    instruction
        None for the framework's own events.
    backend, op_types, module, source
        Of the instruction, or of an inner event's operator: backend id, functional operators in order, and where the
        first output comes from.
    operator, confidence
        Of an event inside a delegate: the edge operator that it timed; ``certain`` by the delegate map or the event's
        name, ``likely`` if a kind has as many events as operators; empty where it is not known.
    count
        Number of samples.
    avg_ms, p10_ms, p50_ms, p90_ms, min_ms, max_ms, std_ms
        Over the samples; percentiles are interpolated linearly; the standard deviation is that of a sample (n − 1), NaN
        for a single one.
    samples_ms
        A tuple in the order of the executions.
    delegate_debug_metadatas
        The parser's result for the metadata, None where the backend attached none. Without a parser, JSON objects (of
        Vulkan's backend) are read, a list with one for each sample; else the column is missing.

    ``attrs["note"]`` says whether logging values was timed too, and how much longer that took. A `UsageError` if the
    parser fails.
    """
    import pandas as pd

    owners = owners_of(graph)
    nodes = graph.by_instruction()
    rows, collected = [], profile.samples
    joined = profile.joined(graph, handles)
    parser = profile.parser
    for (block, name, instruction, inner), samples in collected.items():
        row: dict[str, Any] = {"event_block": block, "name": name}
        row |= _about(owners.get(instruction, graph), nodes.get(instruction), inner=inner)
        row["instruction"] = instruction if instruction >= 0 else None
        row |= _statistics(samples.times)
        if inner and (told := joined[instruction].get(name)) is not None:
            place = describe(inside_of(graph, instruction), told.node, 0)
            row |= {"op_types": [told.node.target], "operator": told.node.name, "confidence": told.confidence}
            row |= {name: place[name] for name in ("module", "source")}
        row[METADATA] = None
        if inner:
            row[METADATA] = _parse(parser, name, samples.metadata) if parser is not None else _objects(samples.metadata)
        rows.append(row)
    attached = parser is not None or any(row[METADATA] is not None for row in rows)
    columns = [*COLUMNS, METADATA] if attached else list(COLUMNS)
    frame = pd.DataFrame(rows, columns=columns).astype({"instruction": "Int64"})
    frame.attrs["note"] = profile.note
    return frame


def _collect(profile: Profile) -> dict[_Key, _Samples]:
    collected: dict[_Key, _Samples] = {}
    for block in profile.blocks:
        events = block.profile
        times = durations(events, profile.factor).tolist()
        for at, time in enumerate(times):
            inside = events.delegate_debug_id[at]
            name = str(inside) if inside is not None else str(events.name[at] or "")
            if inside is not None and profile.converter is not None:
                time = converted(profile.converter, name, int(events.start[at]), int(events.end[at]))
            instruction = int(events.instruction_id[at]) if events.chain[at] >= 0 else -1
            samples = collected.setdefault((block.name, name, instruction, inside is not None), _Samples())
            samples.times.append(time)
            samples.metadata.append(bytes(events.metadata[at] or b""))
    return collected


def _about(owner: Graph, node: Node | None, *, inner: bool) -> dict[str, Any]:
    about: dict[str, Any] = {
        "backend": "",
        "op_types": [],
        "module": "",
        "source": "",
        "operator": "",
        "confidence": "",
    }
    if node is None:
        return about
    told = describe(owner, node, 0)
    if inner:
        return about | {"backend": told["backend"]}
    operators = [operator.target for operator in owner.inside(node).nodes if operator.target != "getitem"]
    if node.target != "delegate":
        operators = [node.target]
    return about | {"op_types": operators} | {name: told[name] for name in ("backend", "module", "source")}


def _joined(
    graph: Graph, instruction: int, names: Sequence[str], handles: Mapping[str, Sequence[int]]
) -> dict[str, JoinedEvent]:
    return join_events(inside_of(graph, instruction), names, handles)


def _objects(metadata: list[bytes]) -> list[Any] | None:
    if not any(text.lstrip()[:1] == b"{" for text in metadata):
        return None
    try:
        objects = [parse_json(memoryview(text)) if text else None for text in metadata]
    except ValueError:
        return None
    return objects if all(item is None or isinstance(item, dict) for item in objects) else None


def _statistics(times: Sequence[float]) -> dict[str, Any]:
    p10, p50, p90 = np.percentile(times, (10, 50, 90)).tolist()
    return {
        "count": len(times),
        "avg_ms": float(np.mean(times)),
        "p10_ms": p10,
        "p50_ms": p50,
        "p90_ms": p90,
        "min_ms": min(times),
        "max_ms": max(times),
        "std_ms": float(np.std(times, ddof=1)) if len(times) > 1 else float("nan"),
        "samples_ms": tuple(times),
    }


def converted(converter: TimeConverter, name: str, start: int, end: int) -> float:
    try:
        return float(converter(name, end)) - float(converter(name, start))
    except Exception as error:
        raise UsageError(
            f"delegate_time_scale_converter fails on the event {name!r} ({type(error).__name__}: {error}); "
            "it gets the name of an event and a time of the backend's clock, and returns milliseconds"
        ) from error


def _parse(parser: MetadataParser, name: str, metadata: list[bytes]) -> Any:
    if not any(metadata):
        return None
    try:
        return parser(metadata)
    except Exception as error:
        raise UsageError(
            f"delegate_metadata_parser fails on the metadata of the event {name!r} ({type(error).__name__}: {error}); "
            "it gets a list of bytes, one item for each sample"
        ) from error


@dataclass(frozen=True, slots=True)
class ModuleTotal:
    """Time and error of one module.

    `latency_ms` is the mean time of one execution: the sum over `instructions`, NaN if none was timed. `shared_ms` is
    the time of the delegates in `shared`, which compute operators of other modules too. `worst` is a gap row.
    """

    module: str
    latency_ms: float
    shared_ms: float
    instructions: list[int]
    shared: list[int]
    worst: pd.Series | None


def module_total(graph: Graph, latency: Mapping[int, float], ranked: pd.DataFrame, name: str) -> ModuleTotal:
    """Time and worst gap of a module (``encoder.layers.0``; empty: the model); `UsageError` if it has no operator."""
    paths = module_paths(graph)
    if name not in paths:
        raise UsageError(
            f"name must be the path of a module that calls an operator, found {name!r}; {_near(name, paths)}"
        )
    whole, shared = members(graph, name)
    rows = ranked[[is_within(str(path), name) for path in ranked["module"]]]
    time = _sum(latency, whole) if whole else float("nan")
    return ModuleTotal(name, time, _sum(latency, shared), whole, shared, rows.iloc[0] if len(rows) else None)


def _sum(latency: Mapping[int, float], instructions: Sequence[int]) -> float:
    times = [latency[instruction] for instruction in instructions if instruction in latency]
    return float(np.sum(times)) if times or not instructions else float("nan")


def _near(name: str, paths: set[str]) -> str:
    known = sorted(paths - {""})
    if not known:
        return "the files do not tell of modules; give record= or etrecord="
    close = difflib.get_close_matches(name, known, 5, 0.3) or known[:5]
    return f"there are for example {', '.join(close)}"
