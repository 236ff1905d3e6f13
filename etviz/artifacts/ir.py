"""The program's graph as plain data: what runs, on what, and where it came from.

One small form for every graph that etviz evaluates: the emitted program kept in a record file, the subgraph of a
delegate, and the edge graph of an ETRecord. It holds no tensors and needs no torch, so that `etviz info` can read it
in milliseconds, and it is built and checked here only: what comes out of `Graph.from_json` is safe to walk.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

Json = Any

WHOLE = "__all"
"""Ends the name of a node whose outputs have names of their own, where the file gives it none."""

OBSERVED = "observed"
"""Target of a call whose inside is not known: its arguments are the values of its outputs, none if these neither."""

MAX_DEPTH = 64
"""Deepest nesting of arguments and of subgraphs; deeper input is refused."""

_MOST_REPEATED = 10_000


@dataclass(frozen=True, slots=True)
class Ref:
    """The value of another node of the same graph."""

    name: str


@dataclass(frozen=True, slots=True)
class Tag:
    """A constant that JSON has no word for: ``kind`` is ``dtype``, ``memory_format``, ``layout`` or ``device``."""

    kind: str
    value: str


@dataclass(frozen=True, slots=True)
class Meta:
    """What is known of one value before anything runs.

    `shape` holds ints, or the symbol's text where a size is dynamic. `scale` is the step of the quantization grid that
    the value lies on (None: not on a grid, or not known).
    """

    dtype: str
    shape: tuple[int | str, ...]
    scale: float | None = None


@dataclass(slots=True)
class Node:
    """One call of the graph.

    `target` is the functional operator (``aten.add.Tensor``), ``getitem``, ``delegate``, ``cond`` or a Python operator
    (``py.add``). `kernel` is the operator that the runtime executes (``aten::add.out``). `instruction` is the
    id that ETDump events carry, -1 where the runtime executes nothing for this node.
    """

    name: str
    target: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    outputs: tuple[Meta | None, ...] = ()
    instruction: int = -1
    kernel: str = ""
    handles: tuple[int, ...] = ()
    origin: str = ""
    stack: str = ""
    module: str = ""
    subgraphs: tuple[str, ...] = ()


@dataclass(slots=True)
class Input:
    """A placeholder: ``user`` input, or a ``constant``/``buffer`` (mutable) found under `target` among the weights."""

    name: str
    kind: str
    target: str = ""
    meta: Meta | None = None
    persistent: bool = True


@dataclass(slots=True)
class Graph:
    """Inputs, nodes in program order, and what the caller gets back.

    `mutations` maps a buffer (`Input.target`) to the value that overwrites it when the graph has run. `backend_id` and
    `compile_specs` are set for the subgraph of a delegate. `subgraphs` holds delegates and branches by name.
    """

    name: str
    inputs: list[Input] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=list)
    mutations: dict[str, str] = field(default_factory=dict)
    subgraphs: dict[str, Graph] = field(default_factory=dict)
    backend_id: str = ""
    compile_specs: list[tuple[str, bytes]] = field(default_factory=list)

    def walk(self) -> Iterator[Node]:
        """Every node of this graph and of its branches (delegates are not entered), in program order."""
        for node in self.nodes:
            if node.target != "delegate":
                for name in node.subgraphs:
                    yield from self.subgraphs[name].walk()
            yield node

    def user_inputs(self) -> list[Input]:
        """The inputs that a caller passes, in order."""
        return [i for i in self.inputs if i.kind == "user"]


def unfolds_too_far(graph: Graph) -> bool:
    """True if walking the graph visits far more nodes than it stores: subgraphs that are named again and again."""
    stored, walked = _count(graph)
    return walked > 2 * stored + _MOST_REPEATED


def _count(graph: Graph) -> tuple[int, int]:
    """Nodes that are stored, and nodes that are met if each call enters its subgraphs."""
    inside = {name: _count(sub) for name, sub in graph.subgraphs.items()}
    stored = len(graph.nodes) + sum(count for count, _ in inside.values())
    entered = (inside[name][1] for node in graph.nodes for name in node.subgraphs if name in inside)
    return stored, len(graph.nodes) + sum(entered)


def refs(value: Any) -> Iterator[str]:
    """Names of the nodes that an argument refers to, in order."""
    if isinstance(value, Ref):
        yield value.name
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from refs(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from refs(item)


def map_arg(value: Any, leaf: Callable[[Any], Any]) -> Any:
    """`value` with `leaf` applied to everything that is not a list, tuple or dict."""
    if isinstance(value, (list, tuple)):
        return [map_arg(item, leaf) for item in value]
    if isinstance(value, dict):
        return {key: map_arg(item, leaf) for key, item in value.items()}
    return leaf(value)


def spread_scales(graph: Graph) -> None:
    """Write the quantization step of each value into its `Meta`, through delegates and `getitem`."""
    scales: dict[str, list[float | None]] = {}
    for node in graph.nodes:
        if node.target == "delegate":
            found = output_scales(graph.subgraphs[node.subgraphs[0]])
        elif node.target == "getitem":
            source, index = node.args
            known = scales.get(source.name, [])
            found = [known[index] if isinstance(index, int) and 0 <= index < len(known) else None]
        else:
            found = [_scale_of(node)]
        scales[node.name] = found
        if any(found):
            node.outputs = tuple(
                replace(meta, scale=found[i] if i < len(found) else None) if meta else None
                for i, meta in enumerate(node.outputs)
            )


def output_scales(graph: Graph) -> list[float | None]:
    """Quantization step of each output of a graph, None where it is not on a grid."""
    metas = {node.name: node.outputs[0] for node in graph.nodes if node.outputs}
    found = [metas.get(out.name) if isinstance(out, Ref) else None for out in graph.outputs]
    return [meta.scale if meta is not None else None for meta in found]


def _scale_of(node: Node) -> float | None:
    """Step of the grid that a node's value lies on: that of a per-tensor dequantize, 1 for a quantize."""
    name = node.target.split(".")
    if len(name) > 1 and name[0] == "quantized_decomposed":
        scale = node.kwargs.get("scale", node.args[1] if len(node.args) > 1 else None)
        if name[1] == "dequantize_per_tensor" and isinstance(scale, float):
            return scale
        if name[1].startswith("quantize_per"):
            return 1.0
    return None


def finite_or_text(value: float) -> float | dict[str, str]:
    """A float as JSON can hold it."""
    return value if math.isfinite(value) else {"$": "float", "v": repr(value)}
