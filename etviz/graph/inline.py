"""A graph with its delegates' operators inlined, named like ``lowered_module_0/aten_relu_default``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from etviz.graph.ir import Graph, Node, Ref, renamed
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
    flat = Inlined(Graph(graph.name, inputs=[replace(placeholder) for placeholder in graph.inputs]))
    names = _copy(flat, graph, "", {placeholder.name: Ref(placeholder.name) for placeholder in graph.inputs})
    flat.graph.outputs = [renamed(out, names) for out in graph.outputs]
    return flat


def _copy(flat: Inlined, graph: Graph, prefix: str, names: dict[str, Any]) -> dict[str, Any]:
    for node in graph.nodes:
        args, kwargs = tuple(renamed(node.args, names)), renamed(node.kwargs, names)
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
    for placeholder in inner.inputs:
        if placeholder.kind == "user":
            names[placeholder.name] = next(given, None)
        else:
            names[placeholder.name] = Ref(prefix + placeholder.name)
            flat.graph.inputs.append(replace(placeholder, name=prefix + placeholder.name))
    _copy(flat, inner, prefix, names)
    return [renamed(out, names) for out in inner.outputs]


WRAPS: Final = ("higher_order.wrap_with_set_grad_enabled", "higher_order.wrap_with_autocast")
"""They run a graph under flags, which stand before the graph and its operands."""


def changes_nothing(target: str, flags: Sequence[Any]) -> bool:
    """Whether gradients are kept changes no value, and neither does autocast that is off."""
    return target == WRAPS[0] or flags[2] is False


def unwrap(graph: Graph, inner: Graph, given: Sequence[Any], names: Sequence[str], prefix: str) -> None:
    """Add a wrapped graph's nodes to the graph around it; its outputs get the `names`, its other nodes the prefix."""
    values: dict[str, Any] = dict(zip((item.name for item in inner.inputs if item.kind == "user"), given, strict=True))
    constants = [placeholder for placeholder in inner.inputs if placeholder.kind != "user"]
    graph.inputs += [replace(placeholder, name=prefix + placeholder.name) for placeholder in constants]
    values |= {placeholder.name: Ref(prefix + placeholder.name) for placeholder in constants}
    output_names: dict[str, str] = {}
    for name, out in zip(names, inner.outputs, strict=True):
        if isinstance(out, Ref) and out.name not in values:
            output_names.setdefault(out.name, name)
    metas = {node.name: node.outputs for node in inner.nodes} | {item.name: (item.meta,) for item in inner.inputs}
    values |= {node.name: Ref(output_names.get(node.name, prefix + node.name)) for node in inner.nodes}
    for node in inner.nodes:
        args, kwargs = tuple(renamed(node.args, values)), renamed(node.kwargs, values)
        subgraphs = tuple(prefix + name for name in node.subgraphs)
        graph.nodes.append(replace(node, name=values[node.name].name, args=args, kwargs=kwargs, subgraphs=subgraphs))
    graph.subgraphs |= {prefix + name: part for name, part in inner.subgraphs.items()}
    for name, out in zip(names, inner.outputs, strict=True):
        if (value := renamed(out, values)) != Ref(name):
            outputs = metas.get(out.name, ()) if isinstance(out, Ref) else ()
            graph.nodes.append(Node(name, "aten.alias.default", (value,), outputs=outputs))
