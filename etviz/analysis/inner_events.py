"""Joins the events that a backend timed inside a delegate to the delegate's operators.

A join is certain if the backend names the operator. XNNPACK names only the kind, but runs operators in graph order: a
kind with as many events as operators likely has them in that order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from etviz.graph.ir import Graph, Node
from etviz.graph.uses import operators

CERTAIN, LIKELY = "certain", "likely"
_NAMESAKES: Final = (
    *("Abs", "Add", "Convolution", "ELU", "Exp", "Floor", "GELU", "HardSwish", "Leaky ReLU"),
    *("Log", "Maximum", "Mean", "Minimum", "PReLU", "Sigmoid", "Tanh"),
)
_KINDS: Final = {
    **{name: name.lower().replace(" ", "_") for name in _NAMESAKES},
    "Average Pooling": "avg_pool2d",
    "Batch Matrix Multiply": "bmm",
    "Ceiling": "ceil",
    "Clamp": "relu hardtanh clamp relu6",
    "Concatenate": "cat",
    "Constant Pad": "constant_pad_nd",
    "Convert": "quantize_per_tensor dequantize_per_tensor quantize_per_token dequantize_per_token",
    "Copy": "clone _clone_dim_order",
    "Deconvolution": "convolution",
    "Divide": "div",
    "Fully Connected": "linear addmm mm",
    "Max Pooling": "max_pool2d",
    "Multiply": "mul",
    "Negate": "neg",
    "Reciprocal Square Root": "rsqrt",
    "Slice": "slice_copy",
    "Softmax": "_softmax",
    "Square": "pow",
    "Square Root": "sqrt",
    "Static Reshape": "view_copy unsqueeze_copy squeeze_copy",
    "Subtract": "sub",
    "Transpose": "permute_copy transpose_copy",
}
"""By the beginning of an event's name in XNNPACK: the edge operators that it may be."""


class JoinedEvent(NamedTuple):
    """`confidence` is `CERTAIN` or `LIKELY`."""

    node: Node
    confidence: str


def join_events(inner: Graph, names: Sequence[str], handles: Mapping[str, Sequence[int]]) -> dict[str, JoinedEvent]:
    """`names` of events are in the order of timing; `handles` maps identifiers, as text, to debug handles."""
    nodes = list(operators(inner.nodes))
    by_name = {node.name: node for node in nodes}
    joined: dict[str, JoinedEvent] = {}
    kinds: dict[str, list[str]] = {}
    for name in names:
        carried = set(handles.get(name, ()))
        told = [node for node in nodes if not carried.isdisjoint(node.handles)] or [by_name.get(name.split(".")[0])]
        if told[-1] is not None:
            joined[name] = JoinedEvent(told[-1], CERTAIN)
        elif (kind := name.partition(" (")[0].partition(" #")[0]) in _KINDS:
            kinds.setdefault(kind, []).append(name)
    for kind, events in kinds.items():
        wanted = _KINDS[kind].split()
        fitting = [node for node in nodes if node.target.split(".")[1] in wanted]
        if len(fitting) == len(events):
            joined |= {name: JoinedEvent(node, LIKELY) for name, node in zip(events, fitting, strict=True)}
    return joined
