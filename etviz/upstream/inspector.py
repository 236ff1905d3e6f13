"""Reads an upstream Inspector."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import torch

_MILLISECONDS: Final = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3, "cycles": 1.0}
_NANOSECONDS: Final = 1e6


@dataclass(frozen=True, slots=True)
class HeldEvent:
    """An event: its times in nanoseconds, and the values of its first run.

    `chain` is -1 for the framework's events; `inside` is the backend's identifier in a delegate.
    """

    name: str
    chain: int
    instruction: int
    inside: int | str | None
    ticks: list[int]
    metadata: list[bytes]
    values: list[Any]


@dataclass(frozen=True, slots=True)
class HeldRun:
    name: str
    index: int | None
    events: list[HeldEvent]
    outputs: list[Any]


@dataclass(frozen=True, slots=True)
class HeldInspector:
    """The content of an upstream Inspector.

    `milliseconds` is one unit of its source time scale. `has_other_layouts`: its program has non-contiguous values.
    """

    runs: list[HeldRun]
    milliseconds: float
    metadata_parser: Any
    has_other_layouts: bool
    save_etrecord: Callable[[str], None]


def held_by_inspector(inspector: Any) -> HeldInspector:
    from executorch.devtools.inspector._inspector_utils import RESERVED_FRAMEWORK_EVENT_NAMES

    shown = _MILLISECONDS[inspector._target_time_scale.value] * _NANOSECONDS
    runs = []
    for block in inspector.event_blocks:
        events = [_held_event(event, shown, RESERVED_FRAMEWORK_EVENT_NAMES) for event in block.events]
        index = block.bundled_input_index
        known = index if index is not None and index >= 0 else None
        runs.append(HeldRun(block.name, known, events, list(block.run_output or [])))
    parsers = (event._delegate_metadata_parser for block in inspector.event_blocks for event in block.events)
    etrecord = inspector._etrecord
    return HeldInspector(
        runs,
        _MILLISECONDS[inspector._source_time_scale.value],
        next((parser for parser in parsers if parser is not None), None),
        any(not value.is_contiguous() for value in _edge_values(etrecord)),
        etrecord.save if etrecord is not None else lambda path: None,
    )


def _held_event(event: Any, shown: float, framework: Any) -> HeldEvent:
    raw = event.perf_data.raw if event.perf_data is not None else []
    metadata = event.raw_delegate_debug_metadatas
    return HeldEvent(
        event.name,
        -1 if event.name in framework else 0,
        event._instruction_id or 0,
        event.delegate_debug_identifier,
        [round(time * shown) for time in raw],
        [item.encode("latin-1") if isinstance(item, str) else bytes(item) for item in metadata],
        list(event.debug_data),
    )


def _edge_values(etrecord: Any) -> Iterator[Any]:
    edge = etrecord.edge_dialect_program if etrecord is not None else None
    programs = edge.values() if isinstance(edge, dict) else [edge] if edge is not None else []
    for program in programs:
        for node in program.graph.nodes:
            value = node.meta.get("val")
            if node.op == "call_function" and isinstance(value, torch.Tensor):
                yield value
