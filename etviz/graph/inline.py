"""A graph with its delegates' operators inlined, named like ``lowered_module_0/aten_relu_default``."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from etviz.graph.ir import Graph, Ref, map_arg
from etviz.graph.uses import Key, item_of


@dataclass(slots=True)
class Inlined:
    """A graph without delegates that evaluates to the same values.

    `written` maps an ``(instruction, output)`` to a value, `inside` a delegate's instruction to its operators' prefix.
    """

    graph: Graph
    written: dict[tuple[int, int], Key] = field(default_factory=dict)
    inside: dict[int, str] = field(default_factory=dict)


def inline(graph: Graph) -> Inlined:
    """Replace delegate calls by the delegates' nodes; branches stay."""
    flat = Inlined(Graph(graph.name, inputs=[replace(item) for item in graph.inputs]))
    names = _copy(flat, graph, "", {item.name: Ref(item.name) for item in graph.inputs})
    flat.graph.outputs = [_renamed(out, names) for out in graph.outputs]
    return flat


def _copy(flat: Inlined, graph: Graph, prefix: str, names: dict[str, Any]) -> dict[str, Any]:
    for node in graph.nodes:
        args, kwargs = tuple(_renamed(node.args, names)), _renamed(node.kwargs, names)
        if node.target == "delegate":
            inner = graph.inside(node)
            flat.inside[node.instruction] = start = f"{prefix}{inner.name}/"
            names[node.name] = values = _enter(flat, inner, start, args)
            written = [(value.name, 0) if isinstance(value, Ref) else None for value in values]
        elif (item := item_of(node)) is not None and isinstance(args[0], list):
            names[node.name] = args[0][item[1]]
            continue
        else:
            name, subgraphs = prefix + node.name, tuple(prefix + name for name in node.subgraphs)
            flat.graph.nodes.append(replace(node, name=name, args=args, kwargs=kwargs, subgraphs=subgraphs))
            flat.graph.subgraphs |= {prefix + name: graph.subgraphs[name] for name in node.subgraphs}
            names[node.name] = Ref(name)
            written = [(name, output) for output in range(len(node.outputs))]
        if node.instruction >= 0:
            flat.written |= {(node.instruction, output): key for output, key in enumerate(written) if key}
    for target, name in graph.mutations.items():
        if isinstance(value := names[name], Ref):
            flat.graph.mutations[target] = value.name
    return names


def _enter(flat: Inlined, inner: Graph, prefix: str, args: tuple[Any, ...]) -> list[Any]:
    given = iter(args)
    names: dict[str, Any] = {}
    for item in inner.inputs:
        if item.kind == "user":
            names[item.name] = next(given, None)
        else:
            names[item.name] = Ref(prefix + item.name)
            flat.graph.inputs.append(replace(item, name=prefix + item.name))
    _copy(flat, inner, prefix, names)
    return [_renamed(out, names) for out in inner.outputs]


def _renamed(value: Any, names: dict[str, Any]) -> Any:
    return map_arg(value, lambda leaf: names.get(leaf.name, leaf) if isinstance(leaf, Ref) else leaf)
