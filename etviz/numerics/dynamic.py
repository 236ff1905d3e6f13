"""Activations that a delegate quantizes with a scale that it chooses at run time: what error that alone makes.

The graph chooses one scale for the whole tensor. XNNPACK has no such kernel and chooses one for each row (for each
image before a convolution), so its results differ from the graph's by about the error of the quantization itself. That
error, and not the rounding of float32, is what such a delegate's gap has to be measured by. It is computed by leaving
the quantization out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from etviz.artifacts.ir import Graph, Node, Ref

PER_ROW: Final = (
    "this delegate quantizes activations at run time; XNNPACK chooses a scale for each row, the reference one for the "
    "whole tensor, so severity is relative to the error of that quantization"
)
ANY: Final = (
    "this delegate quantizes activations with a scale chosen at run time, which a backend may choose in its own way; "
    "severity is relative to the error of that quantization"
)
_CHOOSE: Final = "quantized_decomposed.choose_qparams."
_QUANTIZE: Final = "quantized_decomposed.quantize_per_tensor.tensor"
_DEQUANTIZE: Final = "quantized_decomposed.dequantize_per_tensor.tensor"


def is_dynamic(graph: Graph) -> bool:
    """True if a delegate's graph chooses the scale of activations when it runs."""
    return any(node.target.startswith(_CHOOSE) for node in graph.nodes)


def note(graph: Graph) -> str:
    """What to say of the gaps of such a delegate."""
    return PER_ROW if graph.backend_id == "XnnpackBackend" else ANY


def without_quantization(graph: Graph) -> Graph:
    """The same graph with every dynamically quantized activation as it was before."""
    makers = {node.name: node for node in graph.nodes}

    def chosen(scale: Any) -> bool:
        item = makers.get(scale.name) if isinstance(scale, Ref) else None
        source = makers.get(item.args[0].name) if item is not None and item.target == "getitem" else None
        return source is not None and source.target.startswith(_CHOOSE)

    def plain(node: Node) -> Node:
        source = _first(node)
        made = makers.get(source.name) if isinstance(source, Ref) and node.target == _DEQUANTIZE else None
        if made is None or made.target != _QUANTIZE or not chosen(_second(made)):
            return node
        return replace(node, target="aten.alias.default", args=(_first(made),), kwargs={})

    return replace(graph, nodes=[plain(node) for node in graph.nodes], mutations={})


def _first(node: Node) -> Any:
    return node.args[0] if node.args else node.kwargs.get("input")


def _second(node: Node) -> Any:
    return node.args[1] if len(node.args) > 1 else node.kwargs.get("scale")


def steps(
    call: Callable[[Graph, Sequence[Any]], list[Any]], graph: Graph, args: Sequence[Any], outputs: Sequence[Any]
) -> list[float | None]:
    """Step of the grid whose rounding error is as large as that of the dynamic quantization, for each output.

    Uniform rounding to a grid of step s has an RMS error of s/√12, as in `metrics.unavoidable`; so s = √12 · RMS of
    the difference that the quantization makes.

    Parameters
    ----------
    call
        Evaluates a graph.
    graph
        Of the delegate.
    args, outputs
        What went in, and what came out with the quantization.

    Returns
    -------
    list
        None where the quantization makes no difference, or none that is finite.
    """
    import torch

    found: list[float | None] = []
    for value, plain in zip(outputs, call(without_quantization(graph), args), strict=True):
        step = None
        if isinstance(value, torch.Tensor) and value.is_floating_point() and value.numel():
            error = (value.double() - plain.double()).square().mean().sqrt().item()
            step = math.sqrt(12.0) * error if math.isfinite(error) and error > 0 else None
        found.append(step)
    return found
