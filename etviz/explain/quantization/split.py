"""The quantization split: float eager, quantized eager and runtime, for every operator of a quantized model.

Float against quantized eager is the error of quantization; quantized eager against runtime is the backend's. The value
of an operator is taken where the next operators read it: on its quantization grid where it is put on one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from etviz.comparison.gap import COMPARED, MISMATCH
from etviz.comparison.measurement import measure
from etviz.errors import UsageError
from etviz.evaluation.evaluator import Evaluator
from etviz.evaluation.spill import SpillFile
from etviz.evaluation.values import Value, flat_values
from etviz.explain.quantization.delegates import ZoomedCall, inside_of
from etviz.explain.quantization.operators import Partner, Values, find_partners
from etviz.explain.quantization.weights import WeightPair, weight_error, weight_pairs
from etviz.graph.inline import Inlined, inline
from etviz.graph.ir import Node, Ref, refs
from etviz.graph.quantize_ops import Grid, grid_of, is_dequantize
from etviz.graph.uses import Key

if TYPE_CHECKING:
    import torch

    from etviz.comparison.gap import Gap
    from etviz.evaluation.replay import Replay

NUMBERS: Final = (
    *("quantization_rmse", "quantization_sqnr_db", "backend_rmse", "backend_sqnr_db", "total_rmse", "total_sqnr_db"),
    *("error_steps", "saturated"),
)
GRID: Final = ("scale", "zero_point", "qmin", "qmax")
COLUMNS: Final = (
    *("event_block", "input_index", "row", "instruction", "op", "output", "module", "shape"),
    *NUMBERS,
    *GRID,
    *("weight", "weight_rmse", "weight_sqnr_db", "status", "reason"),
)
NOT_LOGGED: Final = "no runtime value"
NO_PARTNER: Final = "no partner"
Logged = dict[Key, list[tuple[int, "torch.Tensor"]]]
"""What the runtime logged in one execution: by value of the inlined graph, rows and their tensors."""


@dataclass(slots=True)
class RowSplit:
    """One row: its numbers, the float model's values at the same place, and the grid that they are put on.

    `integers` tells that the row holds integers of the grid, not the numbers that they stand for.
    """

    numbers: dict[str, float]
    floats: torch.Tensor
    grid: Grid | None = None
    integers: bool = False

    def comparable(self) -> torch.Tensor:
        """The float values in the row's own units."""
        return self.grid.position(self.floats) if self.integers and self.grid is not None else self.floats


@dataclass(slots=True)
class Split:
    """What the split gave: a dict for each execution and operator (see `split_frame`), and rows by index.

    Rows inside of delegates count on after the gap rows.
    """

    operators: list[dict[str, Any]] = field(default_factory=list)
    rows: dict[int, RowSplit] = field(default_factory=dict)


def split(replay: Replay, gaps: Sequence[Gap], zooms: Sequence[ZoomedCall] = ()) -> Split:
    """Run the float model and the quantized one side by side, and compare them with what the runtime logged.

    `gaps` are all gap rows, in order; zoomed delegates have further runtime values. A `UsageError` if the float model
    is not known.
    """
    if replay.fresh_float is None:
        raise UsageError(
            "the float model is not known: use etviz.debug with quantizer= or reference=, keep it with "
            "etviz.record(…, reference=), or add it to the ETRecord before it is saved: "
            'etrecord.add_extra_export_modules({"float": float_exported_program.run_decompositions({})})'
        )
    floating, original = replay.fresh_float(), replay.fresh()
    flat = inline(original.graph)
    evaluator = Evaluator(flat.graph, original.constants, original.limits)
    plan = _Plan(Values(floating.graph), Values(flat.graph))
    result, weights = Split(), {}
    with SpillFile() as file:
        for run, execution in enumerate(replay.executions):
            logged, inside = _logged_values(flat, plan.quantized, gaps, run), inside_of(flat, zooms, run)
            for key, rows in inside.logged.items():
                logged.setdefault(key, []).extend(rows)
            floats = _float_values(floating, execution.inputs, plan, file)
            walk = _Pass(plan, floats, logged, evaluator.constants, None if weights else floating.constants)
            evaluator.run(execution.inputs, walk.seen)
            weights = weights or walk.weights
            for item in walk.operators(weights, inside.reasons):
                row = item["row"]
                instruction = gaps[row].instruction if 0 <= row < len(gaps) else inside.instructions.get(row, -1)
                result.operators.append({"run": run, "instruction": instruction} | item)
            result.rows |= walk.rows
    return result


def split_frame(result: Split, runs: Sequence[tuple[int, int, Any]]) -> pd.DataFrame:
    """One row for each operator and execution; `runs` are ``(event block, input index, comparison)``."""
    rows = []
    for item in result.operators:
        block, index, _ = runs[item["run"]]
        rows.append({"event_block": block, "input_index": index, "weight": ""} | item)
    numeric = [*NUMBERS, *GRID, "weight_rmse", "weight_sqnr_db"]
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype(dict.fromkeys(numeric, float))


def _logged_values(flat: Inlined, values: Values, gaps: Sequence[Gap], run: int) -> Logged:
    """The gap rows of one execution."""
    logged: Logged = {}
    for row, gap in enumerate(gaps):
        if gap.run == run and (key := flat.written.get((gap.instruction, gap.output))) is not None:
            logged.setdefault(key if key[1] else values.value(key[0]), []).append((row, gap.runtime))
    return logged


def _float_values(evaluator: Evaluator, inputs: Sequence[Any], plan: _Plan, file: SpillFile) -> dict[Key, torch.Tensor]:
    """The float model's values that are needed, in a file."""
    import torch

    values: dict[Key, torch.Tensor] = {}

    def keep(node: Node, value: Value) -> None:
        for output, item in enumerate(flat_values(value.reference)):
            if (node.name, output) in plan.wanted and isinstance(item, torch.Tensor):
                values[node.name, output] = file.put(item)

    given = list(inputs)
    for at, (item, value) in enumerate(zip(evaluator.graph.user_inputs(), inputs, strict=False)):
        dtype = getattr(torch, item.meta.dtype, None) if item.meta is not None else None
        if dtype is not None and isinstance(value, torch.Tensor) and value.is_floating_point():
            given[at] = value.to(dtype)
    evaluator.run(given, keep)
    return values


class _Plan:
    """What belongs together, found once for all executions."""

    def __init__(self, floats: Values, quantized: Values) -> None:
        self.floats, self.quantized = floats, quantized
        self.partners = list(find_partners(floats, quantized))
        self.wanted = {partner.floating for partner in self.partners if partner.value is not None}
        self.by_value = {partner.value: partner for partner in self.partners if partner.value is not None}
        self.by_quantized: dict[Key, Partner] = {}
        self.by_dequantized: dict[Key, Partner] = {}
        self.by_weight: dict[Key, list[WeightPair]] = {}
        self.parameters: set[Key] = set()
        for partner in self.partners:
            if partner.quantize is None:
                continue
            key = (partner.quantize.name, 0)
            self.by_quantized[key] = partner
            readers = quantized.readers.get(key, ())
            self.by_dequantized |= {(node.name, 0): partner for node in readers if is_dequantize(node)}
            self.parameters.update(map(quantized.value, refs(_parameters(partner.quantize))))
        for pair in weight_pairs(floats, quantized, self.partners):
            self.by_weight.setdefault(pair.dequantized, []).append(pair)


def _parameters(quantize: Node) -> list[Any]:
    """Scale, zero point, least and largest integer of a quantize; nothing if not all elements share them."""
    grid = grid_of(quantize)
    return [grid.scale, grid.zero_point, grid.qmin, grid.qmax] if grid is not None else []


class _Pass:
    """One execution of the quantized program: measures each value when it is computed, and forgets it."""

    def __init__(
        self,
        plan: _Plan,
        floats: Mapping[Key, torch.Tensor],
        logged: Logged,
        constants: Mapping[str, torch.Tensor],
        float_constants: Mapping[str, torch.Tensor] | None,
    ) -> None:
        self._plan, self._floats, self._logged = plan, floats, logged
        self._constants, self._float_constants = constants, float_constants
        self._parameters: dict[Key, Any] = {}
        self._grids: dict[str, Grid | None] = {}
        self._measured: dict[tuple[Key, bool], dict[str, Any]] = {}
        self.rows: dict[int, RowSplit] = {}
        self.weights: dict[str, dict[str, Any]] = {}

    def seen(self, node: Node, value: Value) -> None:
        """Take the values of one node."""
        import torch

        plan = self._plan
        for output, item in enumerate(flat_values(value.reference)):
            key = (node.name, output)
            if key in plan.parameters:
                self._parameters[key] = item
            if not isinstance(item, torch.Tensor):
                continue
            if key in plan.by_weight and self._float_constants is not None:
                for pair in plan.by_weight[key]:
                    self.weights[pair.op] = weight_error(pair, item, plan.floats, self._float_constants)
            if key in plan.by_value:
                self._measure(plan.by_value[key], key, item, on_grid=False)
            elif key in plan.by_quantized:
                grid = self._grids[key[0]] = self._grid(node)
                if grid is not None:
                    self._measure(plan.by_quantized[key], key, grid.dequantize(item), grid, item)
            elif key in plan.by_dequantized:
                partner = plan.by_dequantized[key]
                grid = self._grids.get(partner.quantize.name) if partner.quantize is not None else None
                if grid is None or self._logged.get(key):  # rows of its own, or a grid that not all elements share
                    self._measure(partner, key, item, grid)

    def _grid(self, quantize: Node) -> Grid | None:
        read = [self._scalar(argument) for argument in _parameters(quantize)]
        if not read or not all(isinstance(value, (int, float)) for value in read) or not read[0]:
            return None
        return Grid(float(read[0]), int(read[1]), int(read[2]), int(read[3]))

    def _scalar(self, argument: Any) -> Any:
        if not isinstance(argument, Ref):
            return argument
        item = self._plan.quantized.inputs.get(argument.name)
        key = self._plan.quantized.value(argument.name)
        value = self._constants.get(item.target) if item is not None else self._parameters.get(key)
        return value.item() if value is not None and getattr(value, "numel", lambda: 0)() == 1 else None

    def _measure(
        self,
        partner: Partner,
        key: Key,
        quantized: torch.Tensor,
        grid: Grid | None = None,
        integers: torch.Tensor | None = None,
        *,
        on_grid: bool = True,
    ) -> None:
        """Compare one value of the quantized program with the float one, and with the runtime's where it is logged.

        Where `integers` stand for the value, those are what is logged.
        """
        floats = self._floats.get(partner.floating)
        told = self._measured.setdefault((partner.floating, on_grid), {"row": -1})
        if floats is None or floats.shape != quantized.shape:
            shape = None if floats is None else tuple(floats.shape)
            told["reason"] = f"its shape is {tuple(quantized.shape)}, that of the float value is {shape}"
            return
        if "quantization_rmse" not in told:
            told |= _numbers("quantization", floats, quantized) | {"shape": tuple(quantized.shape)}
        if grid is not None:
            told |= {name: getattr(grid, name) for name in GRID}
            told["error_steps"] = told["quantization_rmse"] / abs(grid.scale)
        if grid is not None and integers is not None:
            told["saturated"] = grid.saturated(floats, integers)
        for row, runtime in self._logged.get(key, ()):
            values = grid.dequantize(runtime) if integers is not None and grid is not None else runtime
            if values.shape != quantized.shape:
                continue
            numbers = told | _numbers("backend", quantized, values) | _numbers("total", floats, values)
            if not 0 <= told["row"] <= row:
                told |= numbers | {"row": row}
            self.rows[row] = RowSplit(numbers, floats, grid, integers is not None)

    def operators(self, weights: Mapping[str, Mapping[str, Any]], reasons: Mapping[str, str]) -> list[dict[str, Any]]:
        """A dict for each float operator, in program order; `reasons` says by node why it has no runtime value."""
        rows = []
        for partner in self._plan.partners:
            about = {"op": partner.op, "output": partner.output, "module": partner.module, "row": -1}
            raw = self._measured.get((partner.floating, False))
            measured = self._measured.get((partner.floating, True), raw) if partner.value is not None else None
            if measured is None or "quantization_rmse" not in measured:
                reason = partner.reason or (measured or {}).get("reason") or "it was not executed"
                rows.append(about | {"status": NO_PARTNER, "reason": reason})
                continue
            measured, status, notes = dict(measured), COMPARED, [partner.note]
            if measured["row"] < 0 and raw is not None and raw["row"] >= 0:
                measured |= {name: raw[name] for name in raw if name.startswith(("row", "backend", "total"))}
                notes.append("its runtime value is from before its quantization")
            if measured.pop("mismatched", False):
                status = MISMATCH
            elif measured["row"] < 0:
                status = NOT_LOGGED
                notes.append(_why_not_logged(partner, reasons))
            told = {"status": status, "reason": "; ".join(filter(None, notes))}
            rows.append(about | dict(weights.get(partner.op, {})) | measured | told)
        return rows


def _why_not_logged(partner: Partner, reasons: Mapping[str, str]) -> str:
    nodes = [partner.quantize.name] if partner.quantize is not None else []
    nodes += [partner.value[0]] if partner.value is not None else []
    return next((reasons[name] for name in nodes if name in reasons), "the runtime logged no value of it")


def _numbers(part: str, reference: torch.Tensor, value: torch.Tensor) -> dict[str, float]:
    sums, metrics = measure(reference, value, None)
    numbers = {f"{part}_rmse": metrics["rmse"], f"{part}_sqnr_db": metrics["sqnr_db"]}
    return numbers | ({"mismatched": True} if sums.mismatched else {})
