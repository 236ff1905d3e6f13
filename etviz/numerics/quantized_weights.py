"""The error of quantized weights: those of the float model against what the quantized integers stand for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from etviz.artifacts.ir import Node, Ref, refs
from etviz.graph.inline import Key
from etviz.numerics.comparison import measure
from etviz.numerics.grids import is_dequantize, weight_scheme
from etviz.numerics.operator_values import Operator, Values
from etviz.numerics.partners import Partner

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class WeightPair:
    """The weight of a float operator, and the dequantized one of the quantized program.

    `norm` is the batch norm that was folded into it.
    """

    op: str
    target: str
    dequantized: Key
    scheme: str
    norm: Node | None = None


def weight_pairs(floats: Values, quantized: Values, partners: Iterable[Partner]) -> list[WeightPair]:
    """The weights of all operators that have a partner with a quantized weight."""
    found = []
    for partner in partners:
        if partner.value is None or partner.output:
            continue
        target = _weight(floats, floats.operators[partner.op])
        node = _dequantize(quantized, quantized.operators[partner.op])
        if target and node is not None:
            norms = floats.operators[partner.folded].nodes if partner.folded else []
            norm = next((n for n in norms if "batch_norm" in n.target), None)
            stored = quantized.inputs[_name(node)].meta
            scheme = weight_scheme(node, stored.dtype if stored else "")
            found.append(WeightPair(partner.op, target, (node.name, 0), scheme, norm))
    return found


def _name(node: Node) -> str:
    return node.args[0].name if node.args and isinstance(node.args[0], Ref) else ""


def _weight(values: Values, operator: Operator) -> str:
    """Place of the first float parameter of two dimensions or more that an operator reads."""
    for node in operator.nodes:
        for name in refs((node.args, node.kwargs)):
            item = values.inputs.get(name)
            meta = item.meta if item is not None and item.kind != "user" else None
            if item is not None and meta is not None and "float" in meta.dtype and len(meta.shape) > 1:
                return item.target
    return ""


def _dequantize(values: Values, operator: Operator) -> Node | None:
    """The dequantize of a constant that an operator reads."""
    for node in operator.nodes:
        for name in refs((node.args, node.kwargs)):
            source = values.nodes.get(values.key(name)[0])
            if source is None or not is_dequantize(source):
                continue
            item = values.inputs.get(_name(source))
            if item is not None and item.kind != "user" and item.meta is not None and len(item.meta.shape) > 1:
                return source
    return None


def weight_error(
    pair: WeightPair, dequantized: torch.Tensor, floats: Values, constants: Mapping[str, torch.Tensor]
) -> dict[str, Any]:
    """``weight``, ``weight_rmse`` and ``weight_sqnr_db``; only the first where the shapes differ."""
    found: dict[str, Any] = {"weight": pair.scheme}
    weight = constants[pair.target]

    def read(name: str) -> torch.Tensor:
        return constants[floats.inputs[name].target]

    if pair.norm is not None:
        folded = _fold(weight, pair.norm, read)
        if folded is None:
            return found
        weight = folded
    if weight.shape == dequantized.shape:
        metrics = measure(weight.contiguous(), dequantized.contiguous(), None)[1]
        found |= {"weight_rmse": metrics["rmse"], "weight_sqnr_db": metrics["sqnr_db"]}
    return found


def _fold(weight: torch.Tensor, norm: Node, read: Callable[[str], torch.Tensor]) -> torch.Tensor | None:
    """A convolution's weight, each output channel times weight/√(var + eps) of the norm after it.

    None where the norm is in another form.
    """
    import torch

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
