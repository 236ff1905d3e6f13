"""The stages between a model and its run, and the first one at which an operator's value is another.

Every stage is evaluated on the same inputs: the float model, the exported program, the edge program, whatever else the
ETRecord keeps, the lowered program; the last is what the runtime logged. Lowering keeps the name of an operator of the
exported program, so its values are joined by that name, each where the next operators read it: a value that is put on
a quantization grid is taken after that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from etviz.comparison.measurement import as_tensor, measure, why_not_comparable
from etviz.evaluation.spill import SpillFile
from etviz.explain.stages import (
    NAMELESS,
    NO_PARTNER,
    QUANTIZED,
    RUNTIME,
    Places,
    Stage,
    evaluated,
    runtime_stage,
    stages_of,
)
from etviz.tensors.metrics import NAN, level, unavoidable

if TYPE_CHECKING:
    import torch

    from etviz.comparison.gap import Gap
    from etviz.evaluation.replay import Replay

SAME, ROUNDING, QUANTIZATION, DIFFERS = "same", "rounding", "quantization", "differs"
COLUMNS: Final = (
    *("operator", "output", "module", "stage", "against", "rmse", "max_abs", "sqnr_db", "noise", "severity"),
    *("status", "reason"),
)
"""Columns of the ladder's frame."""


def ladder(replay: Replay, gaps: Sequence[Gap], run: int = 0) -> pd.DataFrame:
    """Compare each stage with the one before it, for every operator and final output of one execution.

    `gaps` are all gap rows; those of the execution are the runtime's values. The frame has a row for each operator and
    stage from the second on, see `COLUMNS`; rows of final outputs have an empty ``operator``.
    """
    with SpillFile() as file:
        places = Places(replay.fresh().graph)
        stages = [evaluated(*item, replay, run, file, places.values) for item in stages_of(replay).items()]
        stages.append(runtime_stage(places, replay, gaps, run, stages[-1]))
    modules = {name: item.module for name, item in places.values.operators.items()}
    names = list(dict.fromkeys(name for stage in reversed(stages[:-1]) for name in stage.values))
    names.sort(key=lambda name: list(modules).index(name) if name in modules else -1)
    rows = []
    for name in names:
        about = {"operator": name, "output": 0, "module": modules.get(name, "")}
        values = [(s, s.values.get(name), s.noise.get(name, NAN), s.steps.get(name)) for s in stages]
        rows += [about | row for row in _steps(values)]
    for at in range(max(len(stage.outputs) for stage in stages)):
        values = [(s, _at(s.outputs, at), _at(s.output_noise, at, NAN), None) for s in stages]
        rows += [{"operator": "", "output": at, "module": ""} | row for row in _steps(values)]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _at(items: Sequence[Any], at: int, default: Any = None) -> Any:
    return items[at] if at < len(items) else default


def _steps(values: Sequence[tuple[Stage, Any, float, float | None]]) -> list[dict[str, Any]]:
    """A row for each stage after the first that has the value; `values` holds stage, value, noise and grid step.

    Where a stage puts a value on a grid for the first time, rounding to the grid is noise too.
    """
    rows, last, on_grid = [], None, None
    for stage, value, noise, step in values:
        if last is None:
            last, on_grid = ((stage, value), step) if value is not None else (None, None)
            continue
        if step is not None and on_grid is None:
            noise = max(unavoidable("", 0.0, step), 0.0 if math.isnan(noise) else noise)
        row = {"stage": stage.name, "against": last[0].name} | dict.fromkeys(COLUMNS[5:10], NAN)
        reason = _missing(stage) if value is None else why_not_comparable(last[1], value)
        before, after = as_tensor(last[1]), as_tensor(value)
        if reason or before is None or after is None:
            rows.append(row | {"status": NO_PARTNER, "reason": reason})
            continue
        numbers = _difference(before, after, noise)
        if stage.name == QUANTIZED and numbers["status"] == DIFFERS:
            numbers["status"] = QUANTIZATION
            numbers["severity"] = NAN if step is None else numbers["severity"]
        rows.append(row | numbers)
        last, on_grid = (stage, value), step
    return rows


def _missing(stage: Stage) -> str:
    if stage.problem:
        return stage.problem
    if stage.name == RUNTIME:
        return "the runtime logged no value of it: it is inside of a delegate, or was folded"
    return NAMELESS


def _difference(before: torch.Tensor, after: torch.Tensor, noise: float) -> dict[str, Any]:
    """The numbers of one step; its severity is relative to the noise, or to the precision where that is less."""
    sums, metrics = measure(before, after, None)
    rmse, dtype = metrics["rmse"], str(after.dtype).removeprefix("torch.")
    rms = math.sqrt(sums.rr / sums.count) * sums.r_unit if sums.count else 0.0
    least = max(unavoidable(dtype, rms), 0.0 if math.isnan(noise) else noise)
    severity = 0.0 if not rmse else rmse / least if least else math.inf
    beyond = sums.mismatched or level("severity", severity, dtype, noise=0.0) != "ok"
    status = DIFFERS if beyond else SAME if not rmse else ROUNDING
    numbers = {name: metrics[name] for name in ("rmse", "max_abs", "sqnr_db")}
    return numbers | {"noise": noise, "severity": severity, "status": status, "reason": ""}


def first_difference(frame: pd.DataFrame, operator: str = "", output: int = 0) -> Mapping[str, Any] | None:
    """The first stage at which a value differs beyond its noise, None if none does."""
    rows = frame[(frame["operator"] == operator) & (frame["output"] == output) & (frame["status"] == DIFFERS)]
    return None if rows.empty else {str(name): value for name, value in rows.iloc[0].items()}
