"""The error of quantizing activations with a scale that the delegate chooses at run time.

The graph chooses one scale per tensor, XNNPACK one per row (per image before a convolution), so their results differ by
about the quantization error. That error, by which the gap is measured, is computed by omitting the quantization. Values
that happen to lie on the graph's grid, as small whole numbers do, are put on another one.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

from etviz.graph.ir import Graph, Node, Ref
from etviz.graph.quantize_ops import chooses_grid, converted, grid_arguments, is_dequantize, is_quantize
from etviz.graph.uses import Uses

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PER_ROW: Final = (
    "this delegate quantizes activations at run time; XNNPACK chooses a scale for each row, the reference one for the "
    "whole tensor, so severity is relative to the error of that quantization"
)
ANY: Final = (
    "this delegate quantizes activations with a scale chosen at run time, which a backend may choose in its own way; "
    "severity is relative to the error of that quantization"
)
OTHER: Final = (1 + math.sqrt(5)) / 2
"""Factor to another grid's step: the golden ratio, whose multiples are farthest from whole numbers."""
_ON_GRID: Final = 3e-3
"""Step relative to an output's size below which the values may lie on the grid; 8 bits make larger steps."""
_WHOLE: Final = re.compile(r"quantized_decomposed\.choose_qparams(_symmetric)?\.")


def is_dynamic(graph: Graph) -> bool:
    return any(map(chooses_grid, graph.nodes))


def note(graph: Graph) -> str:
    whole = any(_WHOLE.match(node.target) for node in graph.nodes)
    return PER_ROW if whole and graph.backend_id == "XnnpackBackend" else ANY


class OtherGrids(NamedTuple):
    """A graph that chooses grids, without them and with other ones."""

    without: Graph
    other: Graph

    @classmethod
    def of(cls, graph: Graph) -> OtherGrids:
        return cls(without_quantization(graph), on_other_grids(graph))


def without_quantization(graph: Graph) -> Graph:
    uses = Uses(graph)

    def plain(node: Node) -> Node:
        made = uses.nodes.get(converted(node)) if is_dequantize(node) else None
        if made is None or not is_quantize(made) or _chosen_scale(uses, made) is None:
            return node
        return replace(node, target="aten.alias.default", args=(Ref(converted(made)),), kwargs={})

    return replace(graph, nodes=[plain(node) for node in graph.nodes], mutations={})


def on_other_grids(graph: Graph) -> Graph:
    uses, nodes, wider = Uses(graph), list[Node](), dict[str, Ref]()
    scales = {scale for node in graph.nodes if (scale := _chosen_scale(uses, node)) is not None}
    for node in graph.nodes:
        on_grid = is_quantize(node) or is_dequantize(node)
        nodes.append(_reading(node, wider) if on_grid else node)
        if node.name in scales:
            widened = f"{node.name}_on_another_grid"
            scaled = replace(node, name=widened, target="aten.mul.Scalar", args=(Ref(node.name), OTHER), kwargs={})
            nodes.append(scaled)
            wider[node.name] = Ref(widened)
    return replace(graph, nodes=nodes, mutations={})


def _reading(node: Node, instead: dict[str, Ref]) -> Node:
    def other(value: Any) -> Any:
        return instead.get(value.name, value) if isinstance(value, Ref) else value

    return replace(
        node, args=tuple(map(other, node.args)), kwargs={name: other(value) for name, value in node.kwargs.items()}
    )


def _chosen_scale(uses: Uses, node: Node) -> str | None:
    grid = grid_arguments(node.target, node.args, node.kwargs) if is_quantize(node) else None
    if grid is None or not isinstance(grid.scale, Ref):
        return None
    chosen = uses.nodes.get(uses.value(grid.scale.name)[0])
    return grid.scale.name if chosen is not None and chooses_grid(chosen) else None


def steps(
    call: Callable[[Graph, Sequence[Any]], list[Any]], grids: OtherGrids, args: Sequence[Any], outputs: Sequence[Any]
) -> list[float | None]:
    """For each output, the step s of the grid whose rounding error equals that of the dynamic quantization.

    Uniform rounding has an RMS error of s/√12 (`metrics.unavoidable`), so s = √12 · RMS of the quantization's
    difference; None if that is 0 or not finite.
    """
    plain = call(grids.without, args)
    own_steps = list(map(step, outputs, plain))
    if any(_lies_on_grid(value, grid_step) for value, grid_step in zip(outputs, own_steps, strict=True)):
        others = map(step, call(grids.other, args), plain)
        pairs = zip(own_steps, others, strict=True)
        own_steps = [max(grid_step or 0.0, (other or 0.0) / OTHER) or None for grid_step, other in pairs]
    return own_steps


def step(value: Any, plain: Any) -> float | None:
    if not isinstance(value, torch.Tensor) or not value.is_floating_point() or not value.numel():
        return None
    error = (value.double() - plain.double()).square().mean().sqrt().item()
    return math.sqrt(12.0) * error if math.isfinite(error) and error > 0 else None


def _lies_on_grid(value: Any, grid_step: float | None) -> bool:
    if not isinstance(value, torch.Tensor) or not value.is_floating_point() or not value.numel():
        return False
    return (grid_step or 0.0) <= _ON_GRID * value.double().square().mean().sqrt().item()
