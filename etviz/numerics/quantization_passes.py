"""The two passes of the quantization split over one execution: the float model's, then the quantized program's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from etviz.artifacts.ir import Node, Ref
from etviz.graph.inline import Key
from etviz.numerics.comparison import COMPARED, MISMATCH, measure
from etviz.numerics.grids import Grid, grid_arguments, is_dequantize
from etviz.numerics.operator_values import Values
from etviz.numerics.partners import Partner, find_partners
from etviz.numerics.quantized_weights import WeightPair, weight_error, weight_pairs
from etviz.numerics.reference import Evaluator, Value, flat_values
from etviz.numerics.spill import SpillFile

if TYPE_CHECKING:
    import torch

NOT_LOGGED: Final = "no runtime value"
NO_PARTNER: Final = "no partner"
Logged = Mapping[Key, Sequence[tuple[int, "torch.Tensor"]]]
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


class Plan:
    """What belongs together, found once for all executions."""

    def __init__(self, floats: Values, quantized: Values) -> None:
        self.floats, self.quantized = floats, quantized
        self.partners = find_partners(floats, quantized)
        self.weights = weight_pairs(floats, quantized, self.partners)
        self.wanted = {partner.floating for partner in self.partners if partner.value is not None}
        self.by_value: dict[Key, Partner] = {}
        self.by_quantized: dict[Key, Partner] = {}
        self.by_dequantized: dict[Key, Partner] = {}
        self.by_weight: dict[Key, list[WeightPair]] = {}
        self.parameters: set[Key] = set()
        for partner in self.partners:
            if partner.value is not None:
                self.by_value[partner.value] = partner
            if partner.quantize is not None:
                self._add_grid(partner, partner.quantize)
        for pair in self.weights:
            self.by_weight.setdefault(pair.dequantized, []).append(pair)

    def _add_grid(self, partner: Partner, quantize: Node) -> None:
        key = (quantize.name, 0)
        self.by_quantized[key] = partner
        for user in self.quantized.users.get(key, ()):
            if is_dequantize(user):
                self.by_dequantized[user.name, 0] = partner
        for argument in grid_arguments(quantize) or ():
            if isinstance(argument, Ref):
                self.parameters.add(self.quantized.key(argument.name))


def float_values(evaluator: Evaluator, inputs: Sequence[Any], plan: Plan, file: SpillFile) -> dict[Key, torch.Tensor]:
    """The float model's values that are needed, in a file."""
    import torch

    found: dict[Key, torch.Tensor] = {}

    def keep(node: Node, value: Value) -> None:
        for output, item in enumerate(flat_values(value.reference)):
            if (node.name, output) in plan.wanted and isinstance(item, torch.Tensor):
                found[node.name, output] = file.put(item)

    given = []
    for item, value in zip(evaluator.graph.user_inputs(), inputs, strict=False):
        dtype = getattr(torch, item.meta.dtype, None) if item.meta is not None else None
        floating = isinstance(value, torch.Tensor) and value.is_floating_point() and dtype is not None
        given.append(value.to(dtype) if floating else value)
    evaluator.run([*given, *inputs[len(given) :]], keep)
    return found


class Pass:
    """One execution of the quantized program: measures each value when it is computed, and forgets it."""

    def __init__(
        self,
        plan: Plan,
        floats: Mapping[Key, torch.Tensor],
        logged: Logged,
        constants: Mapping[str, torch.Tensor],
        float_constants: Mapping[str, torch.Tensor] | None,
    ) -> None:
        self._plan, self._floats, self._logged = plan, floats, logged
        self._constants, self._float_constants = constants, float_constants
        self._parameters: dict[Key, Any] = {}
        self._grids: dict[str, Grid | None] = {}
        self._found: dict[tuple[Key, bool], dict[str, Any]] = {}
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
                self._measure(plan.by_value[key], item, self._logged.get(key, ()))
            elif key in plan.by_quantized:
                self._take_integers(plan.by_quantized[key], key, item)
            elif key in plan.by_dequantized:
                self._take_numbers(plan.by_dequantized[key], key, item)

    def _take_integers(self, partner: Partner, key: Key, integers: torch.Tensor) -> None:
        grid = self._grids[key[0]] = self._grid(partner)
        if grid is None:
            return
        numbers = grid.dequantize(integers)
        self._measure(partner, numbers, self._logged.get(key, ()), grid, integers, logged_integers=True)

    def _take_numbers(self, partner: Partner, key: Key, numbers: torch.Tensor) -> None:
        """A dequantized value: rows of its own, and the measure itself where the grid is not one of all elements."""
        grid = self._grids.get(partner.quantize.name) if partner.quantize is not None else None
        if grid is None or self._logged.get(key):
            self._measure(partner, numbers, self._logged.get(key, ()), grid, on_grid=True)

    def _grid(self, partner: Partner) -> Grid | None:
        arguments = grid_arguments(partner.quantize) if partner.quantize is not None else None
        read = [self._scalar(argument) for argument in arguments or ()]
        if not read or not all(isinstance(value, (int, float)) for value in read) or not read[0]:
            return None
        return Grid(float(read[0]), int(read[1]), int(read[2]), int(read[3]))

    def _scalar(self, argument: Any) -> Any:
        if not isinstance(argument, Ref):
            return argument
        item = self._plan.quantized.inputs.get(argument.name)
        key = self._plan.quantized.key(argument.name)
        value = self._constants.get(item.target) if item is not None else self._parameters.get(key)
        return value.item() if value is not None and getattr(value, "numel", lambda: 0)() == 1 else None

    def _measure(
        self,
        partner: Partner,
        quantized: torch.Tensor,
        logged: Sequence[tuple[int, torch.Tensor]],
        grid: Grid | None = None,
        integers: torch.Tensor | None = None,
        *,
        logged_integers: bool = False,
        on_grid: bool = False,
    ) -> None:
        """Compare one value of the quantized program with the float one, and with the runtime's where it is logged."""
        floats, place = self._floats.get(partner.floating), (partner.floating, grid is not None or on_grid)
        found = self._found.setdefault(place, {"row": -1})
        if floats is None or floats.shape != quantized.shape:
            shape = None if floats is None else tuple(floats.shape)
            found["reason"] = f"its shape is {tuple(quantized.shape)}, that of the float value is {shape}"
            return
        if "quantization_rmse" not in found:
            found |= _numbers("quantization", floats, quantized) | {"shape": tuple(quantized.shape)}
        if grid is not None:
            found |= {"scale": grid.scale, "zero_point": grid.zero_point, "qmin": grid.qmin, "qmax": grid.qmax}
            found["error_steps"] = found["quantization_rmse"] / abs(grid.scale)
        if grid is not None and integers is not None:
            found["saturated"] = grid.saturated(floats, integers)
        for row, runtime in logged:
            values = grid.dequantize(runtime) if logged_integers and grid is not None else runtime
            if values.shape != quantized.shape:
                continue
            numbers = found | _numbers("backend", quantized, values) | _numbers("total", floats, values)
            if not 0 <= found["row"] <= row:
                found |= numbers | {"row": row}
            self.rows[row] = RowSplit(numbers, floats, grid, logged_integers)

    def operators(self, weights: Mapping[str, Mapping[str, Any]], reasons: Mapping[str, str]) -> list[dict[str, Any]]:
        """A dict for each float operator, in program order; `reasons` says by node why it has no runtime value."""
        found = []
        for partner in self._plan.partners:
            about = {"op": partner.op, "output": partner.output, "module": partner.module, "row": -1}
            raw = self._found.get((partner.floating, False))
            measured = self._found.get((partner.floating, True), raw) if partner.value is not None else None
            reason, status = partner.note, COMPARED
            if measured is None or "quantization_rmse" not in measured:
                reason = partner.reason or (measured or {}).get("reason") or "it was not executed"
                found.append(about | {"status": NO_PARTNER, "reason": reason})
                continue
            measured = dict(measured)
            if measured["row"] < 0 and raw is not None and raw["row"] >= 0:
                early = {name: raw[name] for name in raw if name.startswith(("row", "backend", "total"))}
                measured |= early
                reason = "; ".join(filter(None, (reason, "its runtime value is from before its quantization")))
            if measured.pop("mismatched", False):
                status = MISMATCH
            elif measured["row"] < 0:
                status = NOT_LOGGED
                reason = "; ".join(filter(None, (reason, _why_not_logged(partner, reasons))))
            found.append(about | dict(weights.get(partner.op, {})) | measured | {"status": status, "reason": reason})
        return found


def _why_not_logged(partner: Partner, reasons: Mapping[str, str]) -> str:
    nodes = [partner.quantize.name] if partner.quantize is not None else []
    nodes += [partner.value[0]] if partner.value is not None else []
    return next((reasons[name] for name in nodes if name in reasons), "the runtime logged no value of it")


def _numbers(part: str, reference: torch.Tensor, value: torch.Tensor) -> dict[str, float]:
    sums, metrics = measure(reference, value, None)
    found = {f"{part}_rmse": metrics["rmse"], f"{part}_sqnr_db": metrics["sqnr_db"]}
    return found | ({"mismatched": True} if sums.mismatched else {})
