"""Splits each operator's error: quantization (float eager against quantized eager) and backend (against runtime)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from etviz.comparison.gap import COMPARED, MISMATCH, Gap
from etviz.comparison.measurement import measure
from etviz.errors import UsageError
from etviz.evaluation.replay import Replay, question
from etviz.evaluation.spill import SpillFile
from etviz.explain.quantization.delegates import ZoomedCall, reasons_inside
from etviz.explain.quantization.weight_error import WeightPair, weight_error, weight_pairs
from etviz.explain.stages.exported_operators import Partner, find_partners
from etviz.explain.stages.stages import NO_PARTNER, Hook, ProgramForm, read_grid
from etviz.graph.ir import Node, Ref, refs
from etviz.graph.quantize_ops import Grid, grid_of, is_dequantize
from etviz.graph.uses import Key

if TYPE_CHECKING:
    import torch


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
Logged = dict[Key, list[tuple[int, "torch.Tensor"]]]


@dataclass(slots=True)
class RowSplit:
    """`integers`: the row holds integers of the grid, not the numbers that they stand for."""

    numbers: dict[str, float]
    floats: torch.Tensor
    grid: Grid | None = None
    integers: bool = False

    def comparable(self) -> torch.Tensor:
        return self.grid.position(self.floats) if self.integers and self.grid is not None else self.floats


@dataclass(slots=True)
class Split:
    """`operators` has a dict for each execution and operator; `rows` is by number."""

    operators: list[dict[str, Any]] = field(default_factory=list)
    rows: dict[int, RowSplit] = field(default_factory=dict)


@question
def split(replay: Replay, gaps: Sequence[Gap], zooms: Sequence[ZoomedCall] = ()) -> Split:
    if replay.fresh_float is None:
        raise UsageError(
            "the float model is not known: use etviz.debug with quantizer= or reference=, keep it with "
            "etviz.record(…, reference=), or add it to the ETRecord before it is saved: "
            'etrecord.add_extra_export_modules({"float": float_exported_program.run_decompositions({})})'
        )
    floating, lowered = ProgramForm.of(replay.fresh_float()), ProgramForm.of(replay.fresh())
    partners = list(find_partners(floating.values, lowered.values))
    pairs = weight_pairs(floating.values, lowered.values, partners)
    inputs = [execution.inputs for execution in replay.executions]
    runs = range(len(inputs))
    with SpillFile() as file:
        wanted = {partner.floating: file.put for partner in partners if partner.value is not None}
        floats = floating.evaluate(inputs, lambda _: wanted, runs)
        parts = [
            _SplitExecution(partners, lowered, floats[run].values, _logged(lowered, gaps, zooms, run), floating, pairs)
            for run in runs
        ]
        lowered.evaluate(inputs, lambda run: parts[run].hooks(weights=not run), runs)
    result = Split()
    calls = {item.first + at: item.instruction for item in zooms for at in range(len(item.zoom.comparison.gaps))}
    for run, part in enumerate(parts):
        for operator in part.operators(parts[0].weights, reasons_inside(lowered, zooms, run)):
            row = operator["row"]
            instruction = gaps[row].instruction if 0 <= row < len(gaps) else calls.get(row, -1)
            result.operators.append({"run": run, "instruction": instruction} | operator)
        result.rows |= part.rows
    return result


def split_frame(result: Split, runs: Sequence[tuple[int, int, Any]]) -> pd.DataFrame:
    rows = []
    for operator in result.operators:
        block, index, _ = runs[operator["run"]]
        rows.append({"event_block": block, "input_index": index, "weight": ""} | operator)
    numeric = [*NUMBERS, *GRID, "weight_rmse", "weight_sqnr_db"]
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype(dict.fromkeys(numeric, float))


def _logged(form: ProgramForm, gaps: Sequence[Gap], zooms: Sequence[ZoomedCall], run: int) -> Logged:
    parts = [(0, gaps, None)]
    parts += [(zoomed.first, zoomed.zoom.comparison.gaps, zoomed) for zoomed in zooms if zoomed.zoom.faithful is True]
    logged: Logged = {}
    for first, part_gaps, zoomed in parts:
        for row, gap in enumerate(part_gaps, first):
            if (gap.run if zoomed is None else zoomed.run) != run:
                continue
            key = form.logged(gap, None if zoomed is None else zoomed.instruction)
            if key is not None:
                logged.setdefault(key, []).append((row, gap.runtime))
    return logged


def _parameters(quantize: Node) -> list[Any]:
    grid = grid_of(quantize)
    return [grid.scale, grid.zero_point, grid.qmin, grid.qmax] if grid is not None else []


class _SplitExecution:
    def __init__(
        self,
        partners: Sequence[Partner],
        lowered: ProgramForm,
        floats: Mapping[Key, torch.Tensor],
        logged: Logged,
        floating: ProgramForm,
        pairs: Sequence[WeightPair],
    ) -> None:
        self._partners, self._lowered, self._floats, self._logged = partners, lowered, floats, logged
        self._floating, self._pairs = floating, pairs
        self._parameters: dict[Key, Any] = {}
        self._grids: dict[str, Grid | None] = {}
        self._measured: dict[tuple[Key, bool], dict[str, Any]] = {}
        self.rows: dict[int, RowSplit] = {}
        self.weights: dict[str, dict[str, Any]] = {}

    def hooks(self, *, weights: bool) -> dict[Key, Hook]:
        hooks: dict[Key, Hook] = {}
        values = self._lowered.values
        for partner in self._partners:
            if partner.value is not None:
                hooks[partner.value] = partial(self._measure, partner, partner.value, on_grid=False)
            if partner.quantize is None:
                continue
            key = (partner.quantize.name, 0)
            hooks[key] = partial(self._integers, partner, key)
            for node in filter(is_dequantize, values.readers.get(key, ())):
                hooks[node.name, 0] = partial(self._dequantized, partner, (node.name, 0))
            for name in refs(_parameters(partner.quantize)):
                hooks.setdefault(values.value(name), partial(self._parameters.__setitem__, values.value(name)))
        for pair in self._pairs if weights else ():
            before = hooks.get(pair.dequantized)
            hooks[pair.dequantized] = partial(self._weigh, pair, before)
        return hooks

    def _weigh(self, pair: WeightPair, before: Hook | None, weight: torch.Tensor) -> None:
        if before is not None:
            before(weight)
        self.weights[pair.op] = weight_error(pair, weight, self._floating.values, self._floating.constants)

    def _integers(self, partner: Partner, key: Key, integers: torch.Tensor) -> None:
        quantize = self._lowered.values.nodes[key[0]]
        grid = self._grids[key[0]] = read_grid(quantize, self._number)
        if grid is not None:
            self._measure(partner, key, grid.dequantize(integers), grid, integers)

    def _dequantized(self, partner: Partner, key: Key, value: torch.Tensor) -> None:
        grid = self._grids.get(partner.quantize.name) if partner.quantize is not None else None
        if grid is None or self._logged.get(key):  # rows of its own, or several grids
            self._measure(partner, key, value, grid)

    def _number(self, argument: Any) -> Any:
        if not isinstance(argument, Ref):
            return argument
        values = self._lowered.values
        held = values.inputs.get(argument.name)
        scale = self._lowered.constants.get(held.target) if held else self._parameters.get(values.value(argument.name))
        return scale.item() if scale is not None and scale.numel() == 1 else None

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
        rows = []
        for partner in self._partners:
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
