"""How much of a method's planned memory is in use while each instruction runs, from the `.pte`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from etviz.artifacts.program.program import Method


@dataclass(frozen=True, slots=True)
class PlannedMemory:
    """Memory use of one method.

    Attributes
    ----------
    live
        By instruction: bytes of values that exist and are made or read at or after it.
    made
        By instruction: bytes of the planned values that it makes.
    planned
        End of the last value, summed over all arenas: the bytes that the plan needs.
    """

    live: Mapping[int, int]
    made: Mapping[int, int]
    planned: int


def planned_memory(method: Method) -> PlannedMemory:
    """Compute the live bytes along a method.

    Values at the same place (views) count once. A dynamic shape counts with its upper bound. State and inputs live
    from the start, outputs to the end. A loop counts as one run.
    """
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    calls = [item for item in method.instructions if item.kind in ("kernel", "delegate")]
    end = max((item.index for item in method.instructions), default=0)
    for item in calls:
        for slot in _planned(method, item.args):
            first.setdefault(slot, item.index)
            last[slot] = item.index
    for slot in _planned(method, method.inputs):
        first[slot] = 0
        last.setdefault(slot, 0)  # where only a view of it is read
    for slot in _planned(method, method.outputs):
        last[slot] = end
    for slot, value in enumerate(method.values):
        if slot in first and value.tensor is not None and (value.tensor.data_index > 0 or value.tensor.name):
            first[slot], last[slot] = 0, end
    spans = {slot: _span(method, slot) for slot in first}
    live = {
        item.index: _covered(spans[slot] for slot in first if first[slot] <= item.index <= last[slot]) for item in calls
    }
    made = {
        item.index: _covered(spans[slot] for slot in _planned(method, item.args) if first[slot] == item.index)
        for item in calls
    }
    ends: dict[int, int] = {}
    for arena, _, stop in spans.values():
        ends[arena] = max(ends.get(arena, 0), stop)
    return PlannedMemory(live, made, sum(ends.values()))


def _planned(method: Method, values: Iterable[int]) -> list[int]:
    slots = dict.fromkeys(slot for value in values for slot in method.tensors(value))
    return [slot for slot in slots if (spec := method.values[slot].tensor) is not None and spec.memory is not None]


def _span(method: Method, slot: int) -> tuple[int, int, int]:
    spec = method.values[slot].tensor
    if spec is None or spec.memory is None:
        return 0, 0, 0
    arena, start = spec.memory
    return arena, start, start + spec.nbytes


def _covered(spans: Iterable[tuple[int, int, int]]) -> int:
    total, arena, reached = 0, -1, 0
    for place, start, stop in sorted(spans):
        reached = reached if place == arena else 0
        total += max(0, stop - max(start, reached))
        arena, reached = place, max(reached, stop)
    return total
