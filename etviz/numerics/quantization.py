"""The quantization split: float eager, quantized eager and runtime, for every operator of a quantized model.

Float against quantized eager is the error of quantization; quantized eager against runtime is the backend's. The value
of an operator is taken where the next operators read it: on its quantization grid where it is put on one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pandas as pd

from etviz.errors import UsageError
from etviz.graph.inline import Inlined, Key, inline
from etviz.numerics.comparison import Gap
from etviz.numerics.operator_values import Values
from etviz.numerics.quantization_inside import ZoomedCall, inside_of
from etviz.numerics.quantization_passes import Pass, Plan, RowSplit, float_values
from etviz.numerics.reference import Evaluator
from etviz.numerics.replay import Replay
from etviz.numerics.spill import SpillFile

NUMBERS: Final = (
    "quantization_rmse",
    "quantization_sqnr_db",
    "backend_rmse",
    "backend_sqnr_db",
    "total_rmse",
    "total_sqnr_db",
    "error_steps",
    "saturated",
)
GRID: Final = ("scale", "zero_point", "qmin", "qmax")
COLUMNS: Final = (
    *("event_block", "input_index", "row", "instruction", "op", "output", "module", "shape"),
    *NUMBERS,
    *GRID,
    *("weight", "weight_rmse", "weight_sqnr_db", "status", "reason"),
)


@dataclass(slots=True)
class Split:
    """What the split gave: a dict for each execution and operator (see `split_frame`), and rows by index.

    Rows inside of delegates count on after the gap rows.
    """

    operators: list[dict[str, Any]] = field(default_factory=list)
    rows: dict[int, RowSplit] = field(default_factory=dict)


def split(replay: Replay, gaps: Sequence[Gap], zooms: Sequence[ZoomedCall] = ()) -> Split:
    """Run the float model and the quantized one side by side, and compare them with what the runtime logged.

    Parameters
    ----------
    replay
        What ran, with the float model.
    gaps
        All gap rows; their position is their index.
    zooms
        The delegates that were zoomed into: further runtime values.

    Raises
    ------
    UsageError
        If the float model is not known.
    PairingError
        If one of the two can't be evaluated.
    """
    if replay.fresh_float is None:
        raise UsageError(
            "the float model is not known: use etviz.debug with quantizer= or reference=, "
            "or keep it with etviz.record(…, reference=)"
        )
    floating, original = replay.fresh_float(), replay.fresh()
    flat = inline(original.graph)
    evaluator = Evaluator(flat.graph, original.constants, original.limits)
    plan = Plan(Values(floating.graph), Values(flat.graph))
    found, weights = Split(), {}
    with SpillFile() as file:
        for run, execution in enumerate(replay.executions):
            logged, inside = logged_values(flat, plan.quantized, gaps, run), inside_of(flat, zooms, run)
            for key, rows in inside.logged.items():
                logged.setdefault(key, []).extend(rows)
            floats = float_values(floating, execution.inputs, plan, file)
            pass_ = Pass(plan, floats, logged, evaluator.constants, None if weights else floating.constants)
            evaluator.run(execution.inputs, pass_.seen)
            weights = weights or pass_.weights
            for item in pass_.operators(weights, inside.reasons):
                row = item["row"]
                instruction = gaps[row].instruction if 0 <= row < len(gaps) else inside.instructions.get(row, -1)
                found.operators.append({"run": run, "instruction": instruction} | item)
            found.rows |= pass_.rows
    return found


def logged_values(flat: Inlined, values: Values, gaps: Sequence[Gap], run: int) -> dict[Key, list[tuple[int, Any]]]:
    """The gap rows of one execution, by the value of the inlined graph that they hold."""
    found: dict[Key, list[tuple[int, Any]]] = {}
    for row, gap in enumerate(gaps):
        if gap.run == run and (key := flat.written.get((gap.instruction, gap.output))) is not None:
            name, output = key
            found.setdefault(values.key(name) if not output else key, []).append((row, gap.runtime))
    return found


def split_frame(found: Split, runs: Sequence[tuple[int, int, Any]]) -> pd.DataFrame:
    """One row for each operator and execution.

    Parameters
    ----------
    found
        From `split`.
    runs
        ``(event block, input index, comparison)`` of each execution.
    """
    rows = []
    for item in found.operators:
        block, index, _ = runs[item["run"]]
        rows.append({"event_block": block, "input_index": index, "weight": ""} | item)
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    numeric = [*NUMBERS, *GRID, "weight_rmse", "weight_sqnr_db"]
    return frame.astype(dict.fromkeys(numeric, float))
