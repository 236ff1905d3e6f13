"""The caches of a program after some calls: each entry at the runtime and at the reference, and its noise.

A cache is a floating buffer that calls write to, or an integer one with its scales and zero points. A call changes few
slots of the sequence's axis. A slot belongs to the call that wrote it last.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import pandas as pd
import torch

from etviz.evaluation.law import half_ulp
from etviz.evaluation.noise import Lanes, Spread, batches, larger
from etviz.evaluation.replay import Replay, question
from etviz.evaluation.several import lane_of
from etviz.tensors.metrics import THRESHOLD

COLUMNS: Final = (
    *("layer", "kind", "buffer", "head", "position", "slot", "step"),
    *("rmse", "max_abs", "reference_rms", "noise", "since", "severity"),
)
_SCALES, _ZERO_POINTS = "_scales", "_zero_points"
_KINDS: Final = {"keys": r"(^|_)(k|keys?)(_|$)", "values": r"(^|_)(v|values?)(_|$)"}
Places = list[tuple[int, int]]


@question
def caches(replay: Replay, calls: Places) -> dict[str, dict[str, list[Any]]]:
    """Compare the caches with the reference's; by buffer, columns of `COLUMNS` from ``head`` on.

    The runtime's entries are the logged values that went into the cache. Perturbed lanes, whose caches are kept between
    calls, give the noise. Its lower bound is one rounding of the entry, as in the gap table.
    """
    start = replay.fresh()
    written: dict[str, Slots] = {}
    spreads: dict[str, _EntryNoise] = {}
    reference: dict[str, torch.Tensor] = {}
    runtime: dict[str, torch.Tensor] = {}
    errors: dict[str, list[torch.Tensor]] = {}
    targets = list(start.graph.mutations)
    for seeds in batches(start.graph):
        lanes = Lanes(start, seeds)
        for at, (execution, place) in enumerate(zip(replay.executions, calls, strict=False)):
            before = {name: lanes.state.get(name, start.constants.get(name)) for name in targets}
            lanes.run(execution.inputs, logged=execution.logged)
            if seeds[0] == 0:
                for name in targets:
                    written.setdefault(name, Slots()).add(at, place, before[name], lanes.state[name])
                reference, runtime = _whole(lanes.state), _whole(lanes.runtime_state)
                for name in reference.keys() & runtime.keys():
                    errors.setdefault(name, []).append(_rms(reference[name], runtime[name], written[name]))
        for number in range(lanes.lanes):
            other = _whole(_lane(lanes.perturbed_state, number))
            for name in reference:
                spreads.setdefault(name, _EntryNoise(_rounding(lanes.state, name))).add(
                    reference[name], other[name], grid=number >= lanes.number
                )
    return {
        name: _entries(written[name], value, runtime[name], spreads[name], errors[name])
        for name, value in reference.items()
        if written[name].axis is not None and name in runtime
    }


def _rms(reference: torch.Tensor, runtime: torch.Tensor, slots: Slots) -> torch.Tensor:
    square = torch.where(reference == runtime, 0.0, runtime - reference).square()
    axis, heads = slots.axis or 0, slots.heads
    kept = square.movedim(axis, 0) if heads is None else square.movedim((axis, heads), (0, 1))
    return kept.reshape(kept.shape[0], 1 if heads is None else kept.shape[1], -1).mean(-1).sqrt()


def _lane(state: Mapping[str, Any], at: int) -> dict[str, Any]:
    return {name: lane_of(value, at) for name, value in state.items()}


def _whole(state: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    values: dict[str, torch.Tensor] = {}
    for name, value in state.items():
        if not isinstance(value, torch.Tensor) or value.ndim < 2 or name.endswith((_SCALES, _ZERO_POINTS)):
            continue
        if value.is_floating_point():
            values[name] = value.double()
        elif (scale := state.get(f"{name}{_SCALES}")) is not None:
            zero = state.get(f"{name}{_ZERO_POINTS}", 0)
            values[name] = (value.double() - zero) * scale.double()
    return values


def _rounding(state: Mapping[str, Any], name: str) -> torch.Tensor:
    """The RMS error of rounding each entry once: ``step/√12`` on a grid, ``ε/2·|x|`` in floating point."""
    value, scale = state[name], state.get(f"{name}{_SCALES}")
    if scale is None:
        return value.double().abs() * (half_ulp(value) or 0.0)
    return scale.double().abs().expand(value.shape) / math.sqrt(12.0)


class Slots:
    def __init__(self) -> None:
        self._changed: list[list[list[int]]] = []
        self._calls: list[tuple[int, tuple[int, int]]] = []
        self._sizes: tuple[int, ...] = ()

    def add(self, call: int, place: tuple[int, int], before: Any, after: Any) -> None:
        if not isinstance(after, torch.Tensor) or not isinstance(before, torch.Tensor) or before.shape != after.shape:
            return
        changed = (before != after) & ~((before != before) & (after != after))
        self._sizes = tuple(after.shape)
        others = [[axis for axis in range(after.ndim) if axis != kept] for kept in range(after.ndim)]
        self._changed.append([changed.sum(axes).nonzero().flatten().tolist() for axes in others])
        self._calls.append((call, place))

    @property
    def axis(self) -> int | None:
        """Axis along which a call changes the smallest part; None if every call changes all."""
        parts = [
            sum(len(changed[axis]) for changed in self._changed) / (size * len(self._changed)) if size else 1.0
            for axis, size in enumerate(self._sizes)
        ]
        best = min(range(len(parts)), key=parts.__getitem__, default=0)
        return best if parts and 0 < parts[best] < 1 else None

    @property
    def heads(self) -> int | None:
        """The first axis that is neither the batch, nor the sequence, nor the last one."""
        return next((at for at in range(1, len(self._sizes) - 1) if at != self.axis), None)

    def written(self) -> dict[int, tuple[int, int]]:
        slots: dict[int, tuple[int, int]] = {}
        axis = self.axis
        if axis is None:
            return slots
        for (call, (position, count)), changed in zip(self._calls, self._changed, strict=True):
            for at, slot in enumerate(in_order(changed[axis])[:count]):
                slots[slot] = call, position + at
        return slots


def in_order(slots: list[int]) -> list[int]:
    """As they were written: those before the end of a ring come first."""
    gaps = [at for at, (one, other) in enumerate(pairwise(slots), 1) if other != one + 1]
    return slots[gaps[0] :] + slots[: gaps[0]] if len(gaps) == 1 and slots[0] == 0 else slots


class _EntryNoise:
    def __init__(self, least: torch.Tensor) -> None:
        self._least = least
        self._lanes: list[tuple[bool, torch.Tensor]] = []
        self._reference = torch.zeros(())

    def add(self, reference: torch.Tensor, perturbed: torch.Tensor, *, grid: bool) -> None:
        self._reference = reference
        self._lanes.append((grid, perturbed))

    def of(self, place: tuple[Any, ...]) -> float:
        both = Spread(), Spread()
        for grid, perturbed in self._lanes:
            both[grid].add(perturbed[place], self._reference[place])
        measured = float(larger(both[0].noise, both[1].noise))
        return max(float(self._least[place].square().mean().sqrt()), measured)


def _entries(
    slots: Slots, reference: torch.Tensor, runtime: torch.Tensor, noise: _EntryNoise, errors: Sequence[torch.Tensor]
) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {name: [] for name in COLUMNS[3:-1]}
    axis, heads = slots.axis or 0, slots.heads
    for slot, (call, position) in sorted(slots.written().items(), key=lambda pair: pair[1]):
        for head in range(reference.shape[heads] if heads is not None else 1):
            place: list[Any] = [slice(None)] * reference.ndim
            place[axis] = slot
            if heads is not None:
                place[heads] = head
            expected, given = reference[tuple(place)], runtime[tuple(place)]
            difference = torch.where(expected == given, 0.0, given - expected)
            granted = noise.of(tuple(place))
            wrong = [at for at, error in enumerate(errors) if float(error[slot, head]) >= THRESHOLD * granted]
            row = {
                **{"head": head, "position": position, "slot": slot, "step": call},
                **{"rmse": float(difference.square().mean().sqrt()), "max_abs": float(difference.abs().max())},
                **{"reference_rms": float(expected.square().mean().sqrt()), "noise": granted},
                "since": next((at for at in wrong if at >= call), None),
            }
            for name, value in row.items():
                columns[name].append(value)
    return columns


def table(caches: Mapping[str, Mapping[str, Sequence[Any]]]) -> pd.DataFrame:
    parts = []
    numbers: dict[str, int] = {}
    for name, columns in caches.items():
        path, _, buffer = name.rpartition("/")[2].rpartition(".")
        within = re.search(r"\d+", path or buffer)
        layer = int(within[0]) if within else numbers.setdefault(path, len(numbers))
        kind = next((kind for kind, pattern in _KINDS.items() if re.search(pattern, buffer)), buffer)
        parts.append(pd.DataFrame(columns).assign(layer=layer, kind=kind, buffer=name.rpartition("/")[2]))
    if not parts:
        return pd.DataFrame({name: [] for name in COLUMNS})
    whole = pd.concat(parts, ignore_index=True)
    whole["since"] = whole["since"].astype("Int64")
    whole["severity"] = (whole["rmse"] / whole["noise"]).mask(whole["rmse"] == 0, 0.0)
    whole = whole.sort_values(["layer", "kind", "head", "step", "position"], kind="stable", ignore_index=True)
    return whole[list(COLUMNS)]


def first_beyond(cache: pd.DataFrame) -> pd.Series[Any] | None:
    beyond = cache[cache["since"].notna() | cache["rmse"].isna()]
    if beyond.empty:
        return None
    ordered = beyond.sort_values(["since", "layer", "severity"], ascending=[True, True, False], kind="stable")
    return ordered.iloc[0].copy()
