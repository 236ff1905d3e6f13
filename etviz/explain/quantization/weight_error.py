"""The error of quantized weights: the float model's against the numbers that the integers stand for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from etviz.comparison.measurement import measure
from etviz.explain.stages.exported_operators import ExportedOperator, OperatorValues, Partner
from etviz.graph.ir import Input, Node, Ref
from etviz.graph.quantize_ops import converted, granularity, grid_arguments, is_dequantize
from etviz.graph.uses import Key


@dataclass(frozen=True, slots=True)
class WeightPair:
    """`norm` is the folded batch norm."""

    op: str
    target: str
    dequantized: Key
    scheme: str
    norm: Node | None = None


def weight_pairs(floats: OperatorValues, quantized: OperatorValues, partners: Iterable[Partner]) -> list[WeightPair]:
    weights = []
    for partner in partners:
        if partner.value is None or partner.output:
            continue
        target = _weight(floats, floats.operators[partner.op])
        node = _dequantize(quantized, quantized.operators[partner.op])
        if target and node is not None:
            norm = floats.operators[partner.folded].norm if partner.folded else None
            weights.append(WeightPair(partner.op, target, (node.name, 0), _scheme(quantized, node), norm))
    return weights


def _matrix(values: OperatorValues, name: str) -> Input | None:
    found = values.inputs.get(name)
    known = found is not None and found.kind != "user" and found.meta is not None and len(found.meta.shape) > 1
    return found if known else None


def _weight(values: OperatorValues, operator: ExportedOperator) -> str:
    constants = (_matrix(values, name) for node in operator.nodes for name in node.reads())
    return next((item.target for item in constants if item and item.meta and "float" in item.meta.dtype), "")


def _dequantize(values: OperatorValues, operator: ExportedOperator) -> Node | None:
    sources = (values.nodes.get(values.value(name)[0]) for node in operator.nodes for name in node.reads())
    dequantizes = (node for node in sources if node is not None and is_dequantize(node))
    return next((node for node in dequantizes if _matrix(values, converted(node)) is not None), None)


def _scheme(values: OperatorValues, node: Node) -> str:
    meta, grid = values.inputs[converted(node)].meta, grid_arguments(node.target, node.args, node.kwargs)
    axis = f", axis {grid.axis}" if grid is not None and isinstance(grid.axis, int) else ""
    return f"{meta.dtype if meta else ''} {granularity(node.target).replace('_', ' ')}{axis}"


def weight_error(
    pair: WeightPair, dequantized: torch.Tensor, floats: OperatorValues, constants: Mapping[str, torch.Tensor]
) -> dict[str, Any]:
    """Without ``weight_rmse`` and ``weight_sqnr_db`` where the shapes differ."""
    error: dict[str, Any] = {"weight": pair.scheme}
    weight = constants[pair.target]

    def read(name: str) -> torch.Tensor:
        return constants[floats.inputs[name].target]

    if pair.norm is not None:
        folded = _fold(weight, pair.norm, read)
        if folded is None:
            return error
        weight = folded
    if weight.shape == dequantized.shape:
        metrics = measure(weight.contiguous(), dequantized.contiguous(), None)[1]
        error |= {"weight_rmse": metrics["rmse"], "weight_sqnr_db": metrics["sqnr_db"]}
    return error


def _fold(weight: torch.Tensor, norm: Node, read: Callable[[str], torch.Tensor]) -> torch.Tensor | None:
    """Each output channel times weight/√(var + eps) of the norm; None for other forms."""
    args = list(norm.args)
    if len(args) < 5 or not all(isinstance(args[i], Ref) for i in (3, 4)):
        return None
    eps = args[7] if norm.target.startswith("aten.batch_norm.") and len(args) > 7 else args[-1]
    if not isinstance(eps, float):
        return None
    variance = read(args[4].name)
    gamma = read(args[1].name) if isinstance(args[1], Ref) else torch.ones_like(variance)
    if weight.shape[0] != gamma.numel():
        return None
    return weight * (gamma * torch.rsqrt(variance + eps)).reshape(-1, *([1] * (weight.ndim - 1)))
