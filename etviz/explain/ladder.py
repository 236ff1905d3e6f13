"""The stages between a model and its run, and the first one at which an operator's value is another.

Every stage is evaluated on the same inputs: the float model, the exported program, the edge program, whatever else the
ETRecord keeps, the lowered program; the last is what the runtime logged. Lowering keeps the name of an operator of the
exported program, so its values are joined by that name, each where the next operators read it: a value that is put on
a quantization grid is taken after that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from etviz.comparison.measurement import as_tensor, measure, why_not_comparable
from etviz.errors import EtvizError
from etviz.evaluation.evaluator import Evaluator, Value
from etviz.evaluation.interpreter import flat_values
from etviz.evaluation.noise import total_noise
from etviz.evaluation.spill import SpillFile
from etviz.explain.quantization.operators import Values, find_partners
from etviz.graph.inline import inline, without_mutation
from etviz.graph.ir import Node
from etviz.graph.quantize_ops import Grid, grid_of, is_dequantize, is_quantize
from etviz.graph.uses import Key
from etviz.tensors.metrics import NAN, level, unavoidable

if TYPE_CHECKING:
    import torch

    from etviz.comparison.gap import Gap
    from etviz.evaluation.replay import Replay

RUNTIME: Final = "runtime"
LOWERED: Final = "lowered"
FLOAT, EXPORTED, QUANTIZED = "float", "exported", "quantized"
SAME, ROUNDING, QUANTIZATION, DIFFERS, NO_PARTNER = "same", "rounding", "quantization", "differs", "no partner"
COLUMNS: Final = (
    *("operator", "output", "module", "stage", "against", "rmse", "max_abs", "sqnr_db", "noise", "severity"),
    *("status", "reason"),
)
"""Columns of the ladder's frame."""

Fresh = Callable[[], Evaluator]


@dataclass(slots=True)
class _Stage:
    """One stage: its values by operator, and by place among the final outputs; and the noise of each.

    `steps` are those of the grids that values were put on.
    """

    name: str
    values: dict[str, torch.Tensor] = field(default_factory=dict)
    outputs: list[Any] = field(default_factory=list)
    noise: dict[str, float] = field(default_factory=dict)
    output_noise: list[float] = field(default_factory=list)
    steps: dict[str, float] = field(default_factory=dict)
    problem: str = ""


def ladder(replay: Replay, gaps: Sequence[Gap], run: int = 0) -> pd.DataFrame:
    """Compare each stage with the one before it, for every operator and final output of one execution.

    `gaps` are all gap rows; those of the execution are the runtime's values. The frame has a row for each operator and
    stage from the second on, see `COLUMNS`; rows of final outputs have an empty ``operator``.
    """
    with SpillFile() as file:
        fresh: dict[str, Fresh] = {FLOAT: replay.fresh_float} if replay.fresh_float is not None else {}
        kept = dict(replay.stages)
        if FLOAT in fresh and EXPORTED in kept:
            kept = {QUANTIZED: kept.pop(EXPORTED), **kept}
        fresh |= {**kept, LOWERED: replay.fresh}
        lowered = Values(inline(replay.fresh().graph).graph)
        stages = [_evaluated(name, make, replay, run, file, lowered) for name, make in fresh.items()]
        stages.append(_runtime(replay, gaps, run, stages[-1]))
    modules = {name: item.module for name, item in lowered.operators.items()}
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


def _evaluated(name: str, make: Fresh, replay: Replay, run: int, file: SpillFile, lowered: Values) -> _Stage:
    """A stage from its graph; one that can't be evaluated says why. `lowered` are the values of the last graph."""
    stage = _Stage(name)
    try:
        original = make()
        flat = without_mutation(inline(original.graph).graph)
        partners = find_partners(Values(flat), lowered) if name == FLOAT else ()
        folded = {item.op: item.floating for item in partners if item.value is not None and not item.output}
        readings = {node: operator for operator, node in (folded or _readings(flat)).items()}

        def keep(node: Node, value: Value) -> None:
            for output, item in enumerate(flat_values(value.reference)):
                tensor = as_tensor(item)
                if tensor is not None and (operator := readings.get((node.name, output))) is not None:
                    stage.values[operator] = file.put(tensor)

        evaluator = Evaluator(flat, original.constants, original.limits)
        inputs = [execution.inputs for execution in replay.executions[: run + 1]]
        for given in inputs:
            stage.values.clear()
            stage.outputs = list(evaluator.run(given, keep))
        wanted = [(run, node) for node, _ in readings]
        noise, outputs = total_noise(lambda: Evaluator(flat, original.constants, original.limits), inputs, wanted)
        stage.noise = {
            readings[node, at]: rms for (of, node, at), rms in noise.items() if of == run and (node, at) in readings
        }
        stage.output_noise = outputs[run]
        metas = {node.name: node.outputs for node in flat.nodes}
        scales = {name: metas[node][at] for (node, at), name in readings.items() if at < len(metas.get(node, ()))}
        stage.steps = {name: meta.scale for name, meta in scales.items() if meta is not None and meta.scale}
    except EtvizError as error:
        stage.problem = str(error)
    return stage


def _readings(graph: Any) -> dict[str, Key]:
    """By operator of the exported program: the value that the next operators read; of those that became one value."""
    values = Values(graph)
    found: dict[str, Key] = {}
    for operator in values.operators.values():
        for key in values.values_of(operator)[:1] if len(operator.last) == 1 else ():
            quantize = values.quantized.get(key)
            readers = values.readers.get((quantize.name, 0), ()) if quantize is not None else ()
            found[operator.name] = next(((node.name, 0) for node in readers if is_dequantize(node)), key)
    return found


def _runtime(replay: Replay, gaps: Sequence[Gap], run: int, lowered: _Stage) -> _Stage:
    """What the runtime logged; its noise is that of the lowered program."""
    stage = _Stage(RUNTIME, noise=lowered.noise, output_noise=lowered.output_noise, steps=lowered.steps)
    flat = inline(replay.fresh().graph)
    values = Values(flat.graph)
    places: dict[Key, str] = {}
    for operator, key in _readings(flat.graph).items():
        places[key] = operator
        node = values.nodes.get(key[0])
        if node is not None and is_dequantize(node) and (source := next(node.reads(), "")):
            places[values.value(source)] = operator
    for gap in gaps:
        key = flat.written.get((gap.instruction, gap.output)) if gap.run == run else None
        key = None if key is None else key if key[1] else values.value(key[0])
        if key is None or (operator := places.get(key)) is None:
            continue
        node = values.nodes.get(key[0])
        logged = gap.runtime
        if node is not None and is_quantize(node):
            grid = grid_of(node)
            numbers = () if grid is None else (grid.scale, grid.zero_point, grid.qmin, grid.qmax)
            if not numbers or not all(isinstance(number, (int, float)) for number in numbers):
                continue
            logged = Grid(float(numbers[0]), *(int(number) for number in numbers[1:])).dequantize(logged)
        stage.values.setdefault(operator, logged)
    stage.outputs = replay.executions[run].log.outputs()
    return stage


def _steps(values: Sequence[tuple[_Stage, Any, float, float | None]]) -> list[dict[str, Any]]:
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


def _missing(stage: _Stage) -> str:
    if stage.problem:
        return stage.problem
    if stage.name == RUNTIME:
        return "the runtime logged no value of it: it is inside of a delegate, or was folded"
    return "the stage has no operator of that name: it was decomposed or folded"


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
