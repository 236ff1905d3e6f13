"""Which operators of ``quantized_decomposed`` (PT2E) and ``torchao`` quantize or dequantize, and on which grid."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from etviz.graph.ir import Graph, Node, Ref
from etviz.graph.uses import item_of, only_moves

if TYPE_CHECKING:
    import torch

LIBRARIES: Final = ("quantized_decomposed", "torchao")
QUANTIZE, DEQUANTIZE, CHOOSE = "quantize", "dequantize", "choose_qparams"
_NAME: Final = re.compile(
    rf"(?:(?:{'|'.join(LIBRARIES)})[._])?(?:(?P<what>quantize|dequantize)_(?P<granularity>[a-z]\w*)|choose_qparams)"
)
_ORDER: Final = {
    "per_tensor": ("scale", "zero_point", "quant_min", "quant_max"),
    "per_token": ("scale", "zero_point", "quant_min", "quant_max"),
    "per_channel": ("scale", "zero_point", "axis", "quant_min", "quant_max"),
    "per_channel_group": ("scale", "zero_point", "quant_min", "quant_max", "dtype", "group_size"),
    "affine": ("block_size", "scale", "zero_point", "dtype", "quant_min", "quant_max"),
}
_ALSO: Final = {"scales": "scale", "zero_points": "zero_point"}


@functools.cache
def conversion(name: str) -> str:
    """Kind of an operator or node name: `QUANTIZE`, `DEQUANTIZE`, `CHOOSE` (a grid), or empty.

    Examples
    --------
    >>> conversion("torchao.dequantize_affine.default"), conversion("quantize_per_tensor_default_3"), conversion("add")
    ('dequantize', 'quantize', '')
    """
    match = _NAME.match(name)
    return (match["what"] or CHOOSE) if match else ""


@functools.cache
def granularity(target: str) -> str:
    """``per_tensor``, ``per_channel``, ``affine`` … of a quantize or dequantize; empty if unknown."""
    match = _NAME.match(target)
    return match["granularity"] if match and match["granularity"] in _ORDER else ""


def is_conversion(node: Node) -> bool:
    return bool(conversion(node.target))


def is_quantize(node: Node) -> bool:
    return conversion(node.target) == QUANTIZE


def is_dequantize(node: Node) -> bool:
    return conversion(node.target) == DEQUANTIZE


def unpacked_weights(graph: Graph) -> frozenset[str]:
    known = {placeholder.name for placeholder in graph.inputs if placeholder.kind == "constant"}
    unpacked = set[str]()
    for node in graph.nodes:
        if not (reads := node.reads()) or not known.issuperset(reads):
            continue
        if is_dequantize(node) or (only_moves(node) and not unpacked.isdisjoint(reads)):
            unpacked.add(node.name)
            known.add(node.name)
    return frozenset(unpacked)


LINEAR: Final = "aten.linear.default"


def product_weights(graph: Graph) -> frozenset[str]:
    weights = {node.name for node in graph.nodes if is_dequantize(node) and node.instruction < 0}
    weights &= unpacked_weights(graph) - set(graph.results())
    for node in graph.nodes:
        weight = node.kwargs.get("weight", node.args[1] if len(node.args) > 1 else None)
        once = isinstance(weight, Ref) and node.target == LINEAR and node.reads().count(weight.name) == 1
        weights -= set(node.reads()) - ({weight.name} if isinstance(weight, Ref) and once else set())
    return frozenset(weights)


def chooses_grid(node: Node) -> bool:
    return conversion(node.target) == CHOOSE


def converted(node: Node) -> str:
    value = node.args[0] if node.args else node.kwargs.get("input")
    return value.name if isinstance(value, Ref) else ""


@dataclass(frozen=True, slots=True)
class GridArguments:
    """The grid arguments of a quantize or dequantize; values of other nodes are `Ref`.

    `axis`, `group` and `block` say which elements share a scale, if the granularity leaves it open.
    """

    granularity: str
    scale: Any
    zero_point: Any
    qmin: Any
    qmax: Any
    axis: int | None = None
    group: int | None = None
    block: Sequence[int] | None = None

    def blocks(self, shape: Sequence[int]) -> list[int]:
        last = len(shape) - 1
        if self.granularity == "per_channel" and self.axis is not None:
            return [1 if axis == self.axis % len(shape) else size for axis, size in enumerate(shape)]
        if self.granularity == "per_token":
            return [size if axis == last else 1 for axis, size in enumerate(shape)]
        if self.granularity == "per_channel_group":
            return [(self.group or size) if axis == last else 1 for axis, size in enumerate(shape)]
        return list(shape if self.block is None else self.block)


def grid_arguments(target: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> GridArguments | None:
    kind = granularity(target)
    if not kind:
        return None
    named = {_ALSO.get(name, name): value for name, value in kwargs.items()}
    given = dict(zip(_ORDER[kind], args[1:], strict=False)) | named
    dtype = given.get("dtype") or given.get("input_dtype") or given.get("output_dtype")
    low, high = (given.get(name) for name in ("quant_min", "quant_max"))
    if low is None or high is None:
        low, high = _range(dtype)
    zero_point, *blocks = map(given.get, ("zero_point", "axis", "group_size", "block_size"))
    return GridArguments(kind, given.get("scale"), 0 if zero_point is None else zero_point, low, high, *blocks)


def _range(dtype: Any) -> tuple[int | None, int | None]:
    match = re.search(r"(u?)int(\d+)\b", str(getattr(dtype, "value", dtype)))
    if match is None:
        return None, None
    bits = int(match[2])
    return (0, 2**bits - 1) if match[1] else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def grid_of(node: Node) -> GridArguments | None:
    grid = grid_arguments(node.target, node.args, node.kwargs)
    shape = node.outputs[0].shape if node.outputs and node.outputs[0] is not None else ()
    if grid is None or grid.granularity not in ("per_tensor", "affine"):
        return None
    return grid if grid.block is None or tuple(grid.block) == shape else None


@dataclass(frozen=True, slots=True)
class Grid:
    """Numbers ``(q − zero_point)·scale`` for integers q from `qmin` to `qmax`."""

    scale: float
    zero_point: int
    qmin: int
    qmax: int

    @property
    def low(self) -> float:
        return (self.qmin - self.zero_point) * self.scale

    @property
    def high(self) -> float:
        return (self.qmax - self.zero_point) * self.scale

    def dequantize(self, values: torch.Tensor) -> torch.Tensor:
        import torch

        return (values.to(torch.float32) - self.zero_point) * self.scale

    def position(self, values: torch.Tensor) -> torch.Tensor:
        """Position of numbers on the grid, in steps, neither rounded nor clipped."""
        return values / self.scale + self.zero_point

    def saturated(self, floats: torch.Tensor, quantized: torch.Tensor) -> float:
        """Share of a float model's values that the grid clips, given the quantized integers of the same shape.

        An element counts if its quantized value is `qmin` or `qmax` and its float value lies more than half a step
        beyond, farther than rounding reaches.
        """
        if not floats.numel():
            return 0.0
        half = self.scale / 2
        below = (quantized == self.qmin) & (floats < self.low - half)
        above = (quantized == self.qmax) & (floats > self.high + half)
        return int((below | above).sum()) / floats.numel()


def spread_scales(graph: Graph) -> None:
    scales: dict[str, list[float | None]] = {}
    for node in graph.nodes:
        item = item_of(node)
        if node.target == "delegate":
            known = output_scales(graph.inside(node))
        elif item is not None:
            known = scales.get(item[0], [])[item[1] : item[1] + 1] or [None]
        else:
            known = [_step(node)]
        scales[node.name] = known
        if any(known):
            node.outputs = tuple(
                replace(meta, scale=known[i] if i < len(known) else None) if meta else None
                for i, meta in enumerate(node.outputs)
            )


def output_scales(graph: Graph) -> list[float | None]:
    metas = {node.name: node.outputs[0] for node in graph.nodes if node.outputs}
    outputs = [metas.get(out.name) if isinstance(out, Ref) else None for out in graph.outputs]
    return [meta.scale if meta is not None else None for meta in outputs]


def _step(node: Node) -> float | None:
    if is_quantize(node):
        return 1.0
    grid = grid_of(node) if is_dequantize(node) else None
    return grid.scale if grid is not None and isinstance(grid.scale, float) else None
