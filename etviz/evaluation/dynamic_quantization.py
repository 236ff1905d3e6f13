"""Activations that a delegate quantizes with a scale that it chooses at run time: what error that alone makes.

The graph chooses one scale for the whole tensor. XNNPACK has no such kernel and chooses one for each row (for each
image before a convolution), so its results differ from the graph's by about the error of the quantization itself. That
error, and not the rounding of float32, is what such a delegate's gap has to be measured by. It is computed by leaving
the quantization out.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

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
_WHOLE: Final = re.compile(r"quantized_decomposed\.choose_qparams(_symmetric)?\.")


def is_dynamic(graph: Graph) -> bool:
    """True if a delegate's graph chooses the scale of activations when it runs."""
    return any(map(chooses_grid, graph.nodes))


def note(graph: Graph) -> str:
    """What to say of the gaps of such a delegate."""
    whole = any(_WHOLE.match(node.target) for node in graph.nodes)
    return PER_ROW if whole and graph.backend_id == "XnnpackBackend" else ANY


def without_quantization(graph: Graph) -> Graph:
    """The same graph with every dynamically quantized activation as it was before."""
    uses = Uses(graph)

    def plain(node: Node) -> Node:
        made = uses.nodes.get(converted(node)) if is_dequantize(node) else None
        grid = grid_arguments(made.target, made.args, made.kwargs) if made is not None and is_quantize(made) else None
        if made is None or grid is None or not isinstance(grid.scale, Ref):
            return node
        chosen = uses.nodes.get(uses.value(grid.scale.name)[0])
        if chosen is None or not chooses_grid(chosen):
            return node
        return replace(node, target="aten.alias.default", args=(Ref(converted(made)),), kwargs={})

    return replace(graph, nodes=[plain(node) for node in graph.nodes], mutations={})


def steps(
    call: Callable[[Graph, Sequence[Any]], list[Any]], graph: Graph, args: Sequence[Any], outputs: Sequence[Any]
) -> list[float | None]:
    """Step of the grid whose rounding error is as large as that of the dynamic quantization, for each output.

    Uniform rounding to a grid of step s has an RMS error of s/√12, as in `metrics.unavoidable`; so s = √12 · RMS of the
    difference that the quantization makes. None where that is 0 or not finite. `call` evaluates a graph; `args` went
    in, and `outputs` came out with the quantization.
    """
    return [step(value, plain) for value, plain in zip(outputs, call(without_quantization(graph), args), strict=True)]


def step(value: Any, plain: Any) -> float | None:
    """As `steps`, of one output: with the quantization, and without."""
    import torch

    if not isinstance(value, torch.Tensor) or not value.is_floating_point() or not value.numel():
        return None
    error = (value.double() - plain.double()).square().mean().sqrt().item()
    return math.sqrt(12.0) * error if math.isfinite(error) and error > 0 else None
