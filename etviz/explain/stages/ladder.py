"""Compares each stage of one execution with the stage before it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from etviz.comparison.gap import ExecutionGaps
from etviz.comparison.measurement import as_tensor, measure, why_not_comparable
from etviz.evaluation.replay import Replay, question
from etviz.evaluation.spill import SpillFile
from etviz.explain.stages.stages import NAMELESS, NO_PARTNER, QUANTIZED, RUNTIME, Stage, Stages
from etviz.tensors.metrics import NAN, level, unavoidable

if TYPE_CHECKING:
    import torch


SAME, ROUNDING, QUANTIZATION, DIFFERS = "same", "rounding", "quantization", "differs"
COLUMNS: Final = (
    *("operator", "output", "module", "stage", "against", "rmse", "max_abs", "sqnr_db", "noise", "severity"),
    *("status", "reason"),
)
_UNSEEN: Final = "the runtime logged no value of it: it is inside a delegate, or was folded"


@question
def ladder(
    replay: Replay, comparisons: Sequence[tuple[ExecutionGaps, int | None]], run: int = 0, first: Sequence[Stage] = ()
) -> pd.DataFrame:
    """A row for each operator and stage from the second on; final outputs have an empty ``operator``.

    `comparisons` holds the execution's with None, each zoomed call's with its instruction; `first` a user's reference.
    """
    engine = Stages(replay)
    with SpillFile() as file:
        stages = [*first, *(engine.evaluate(name, file, [run])[0] for name in engine.makers)]
        stages.append(engine.runtime(comparisons, run, stages[-1]))
    modules = {name: operator.module for name, operator in engine.lowered.values.operators.items()}
    order = {name: at for at, name in enumerate(engine.lowered.values.nodes)}
    places = {name: order[operator.nodes[-1].name] for name, operator in engine.lowered.values.operators.items()}
    names = dict.fromkeys(name for stage in reversed(stages[:-1]) for name in stage.values)
    rows: list[dict[str, Any]] = []
    keys = {name: (operator, int(at[:-1] or 0)) for name in names for operator, _, at in [name.partition("[")]}
    for name in sorted(names, key=lambda name: places.get(keys[name][0], -1)):
        operator, output = keys[name]
        about = {"operator": operator, "output": output, "module": modules.get(operator, "")}
        values = [(s, s.values.get(name), s.noise.get(name, NAN), s.steps.get(name)) for s in stages]
        rows += (about | row for row in _steps(values))
    for at in range(max(len(stage.outputs) for stage in stages)):
        about = {"operator": "", "output": at, "module": ""}
        values = [(s, _at(s.outputs, at), _at(s.output_noise, at, NAN), None) for s in stages]
        rows += (about | row for row in _steps(values))
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _at(items: Sequence[Any], at: int, default: Any = None) -> Any:
    return items[at] if at < len(items) else default


def _steps(values: Sequence[tuple[Stage, Any, float, float | None]]) -> Iterator[dict[str, Any]]:
    """Rounding to a grid counts as noise in the stage that puts the value on the grid."""
    last, on_grid = None, None
    for stage, value, noise, step in values:
        row = {"stage": stage.name, "against": last[0].name if last else ""} | dict.fromkeys(COLUMNS[5:10], NAN)
        if last is None and not stage.problem:
            last, on_grid = ((stage, value), step) if value is not None else (None, None)
            continue
        reason = _missing(stage) if value is None or last is None else _incomparable(last, stage, value)
        before, after = as_tensor(last[1] if last else None), as_tensor(value)
        if reason or before is None or after is None:
            yield row | {"status": NO_PARTNER, "reason": reason}
            continue
        if step is not None and on_grid is None:
            noise = max(unavoidable("", 0.0, step), 0.0 if math.isnan(noise) else noise)
        numbers = _difference(before, after, noise)
        if stage.name == QUANTIZED and numbers["status"] == DIFFERS:
            numbers["status"] = QUANTIZATION
            numbers["severity"] = NAN if step is None else numbers["severity"]
        yield row | numbers
        last, on_grid = (stage, value), step


def _missing(stage: Stage) -> str:
    if stage.problem:
        return f"the stage {stage.name} can't be evaluated: {stage.problem}"
    return _UNSEEN if stage.name == RUNTIME else NAMELESS


def _incomparable(before: tuple[Stage, Any], stage: Stage, value: Any) -> str:
    shapes = [tuple(getattr(tensor, "shape", ())) for tensor in (before[1], value)]
    if shapes[0] != shapes[1]:
        return f"its shape is {shapes[0]} in the stage {before[0].name}, {shapes[1]} in the stage {stage.name}"
    return why_not_comparable(before[1], value)


def agree(before: torch.Tensor, after: torch.Tensor, noise: float) -> bool:
    same = not why_not_comparable(before, after) and before.dtype == after.dtype
    return same and _difference(before, after, noise)["status"] != DIFFERS


def _difference(before: torch.Tensor, after: torch.Tensor, noise: float) -> dict[str, Any]:
    sums, metrics = measure(before, after, None)
    rmse, dtype = metrics["rmse"], str(after.dtype).removeprefix("torch.")
    rms = math.sqrt(sums.rr / sums.count) * sums.r_unit if sums.count else 0.0
    least = max(unavoidable(dtype, rms), 0.0 if math.isnan(noise) else noise)
    same = not sums.mismatched and (not rmse or not sums.count)  # NaN and Inf at the same places only
    severity = 0.0 if same else rmse / least if least else math.inf
    beyond = sums.mismatched or level("severity", severity, dtype) != "ok"
    status = SAME if same else DIFFERS if beyond else ROUNDING
    numbers = {name: metrics[name] for name in ("rmse", "max_abs", "sqnr_db")}
    return numbers | {"noise": noise, "severity": severity, "status": status, "reason": ""}
