"""The program as text, in the form of upstream's `format_delegated_graph`.

Upstream prints the live program before `to_executorch()`. This is the emitted one, with new node numbers, or one
derived from files.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from etviz.graph.ir import LOOPS, Graph, Node, Ref, Tag
from etviz.graph.uses import Uses, item_of

_INDENT: Final = "  "
_DELEGATE: Final = "executorch_call_delegate"
_WRITE: Final = "aten.copy_.default"


def format_delegated_graph(graph: Graph) -> str:
    lines = ["graph():"]
    uses = Uses(graph)
    for item in graph.inputs:
        lines.append(f"{_INDENT}{_placeholder(item.name, uses)}")
    for node in graph.nodes:
        if node.target == _WRITE or (item_of(node) and not uses.count(node.name)):
            continue
        if node.target == "delegate":
            inner = graph.inside(node)
            lines.append(f"{_INDENT}%{inner.name} : [num_users=1] = get_attr[target={inner.name}]")
            lines.append(f"{_INDENT * 2}backend_id: {inner.backend_id}")
            lines.append(f"{_INDENT * 2}lowered graph():")
            lines.extend(f"{_INDENT * 3}{line}" for line in _inside(inner))
        lines.append(f"{_INDENT}{_call(node, uses)}")
    returned = [*(Ref(name) for name in graph.mutations.values()), *graph.outputs]
    lines.append(f"{_INDENT}return ({', '.join(map(_plain, returned))}{',' if len(returned) == 1 else ''})")
    return "\n".join(lines) + "\n"


def as_lowered(graph: Graph, by_position: Callable[[str, Any, Any], tuple[list[Any], dict[str, Any]]]) -> Graph:
    """A graph that was derived from files, as upstream has it after lowering.

    `by_position` orders arguments; constants of delegates and unread items are gone.
    """
    uses = Uses(graph)
    everything = [node.name for part in (graph, *graph.subgraphs.values()) for node in part.nodes]
    fresh = itertools.count(1 + max((_number(name) for name in everything if name.startswith("getitem")), default=-1))
    calls = [node.name for node in graph.nodes if node.target == "delegate"]
    names = {name: f"{_DELEGATE}_{at}" if at else _DELEGATE for at, name in enumerate(calls)}
    items = {call: [node.name for node in graph.nodes if (item_of(node) or ("",))[0] == call] for call in calls}
    last_first = [name for call in reversed(calls) for name in items[call]]  # as upstream lowers them
    names |= {name: f"getitem_{at}" if (at := next(fresh)) else "getitem" for name in last_first}
    constants = {item.name: at for at, item in enumerate(graph.inputs) if item.kind != "user"}
    nodes, inside = list[Node](), dict[str, Graph]()
    for name, inner in graph.subgraphs.items():
        inputs = inner.inputs
        if inner.backend_id:
            inputs = sorted(inputs, key=lambda item: constants.get(item.name, len(constants)))
        inside[name] = replace(inner, inputs=inputs, nodes=[_in_order(node, by_position) for node in inner.nodes])
    for node in graph.nodes:
        if node.target != _WRITE and (item_of(node) is None or uses.count(node.name)):
            nodes.append(_renamed(_in_order(node, by_position), names))
    inputs = [item for item in graph.inputs if item.kind == "user" or uses.count(item.name)]
    mutations = {target: names.get(name, name) for target, name in graph.mutations.items()}
    outputs = [_with_names(value, names) for value in graph.outputs]
    return replace(graph, inputs=inputs, nodes=nodes, subgraphs=inside, mutations=mutations, outputs=outputs)


def _number(name: str) -> int:
    last = name.rpartition("_")[2]
    return int(last) if last.isdecimal() else 0


def _in_order(node: Node, by_position: Callable[[str, Any, Any], tuple[list[Any], dict[str, Any]]]) -> Node:
    if not node.kwargs or "." not in node.target:
        return node
    args, kwargs = by_position(node.target, node.args, node.kwargs)
    return replace(node, args=tuple(args), kwargs=kwargs)


def _renamed(node: Node, names: Mapping[str, str]) -> Node:
    args, kwargs = _with_names(node.args, names), {key: _with_names(value, names) for key, value in node.kwargs.items()}
    return replace(node, name=names.get(node.name, node.name), args=args, kwargs=kwargs)


def _with_names(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, Ref):
        return Ref(names.get(value.name, value.name))
    return type(value)(_with_names(item, names) for item in value) if isinstance(value, (list, tuple)) else value


def _inside(graph: Graph) -> list[str]:
    uses = Uses(graph)
    lines = [_placeholder(item.name, uses) for item in graph.inputs]
    lines.extend(_call(node, uses) for node in graph.nodes)
    lines.append(f"return [{', '.join(map(_plain, graph.outputs))}]")
    return lines


def _placeholder(name: str, uses: Uses) -> str:
    return f"%{name} : [num_users={uses.count(name)}] = placeholder[target={name}]"


def _call(node: Node, uses: Uses) -> str:
    args = list(node.args)
    if node.target == "delegate":
        args.insert(0, Ref(node.subgraphs[0]))
    elif node.target == "cond":
        args = [args[0], *(Ref(name) for name in node.subgraphs), list(args[1])]
    elif node.target in LOOPS:
        args = [Ref(node.subgraphs[0]), *args[node.target == "map" :]]
    inside = ", ".join(_text(arg) for arg in args) + ("," if len(args) == 1 else "")
    kwargs = ", ".join(f"{name}: {_text(value)}" for name, value in node.kwargs.items())
    return (
        f"%{node.name} : [num_users={uses.count(node.name)}] = call_function[target={_target(node.target)}]"
        f"(args = ({inside}), kwargs = {{{kwargs}}})"
    )


def _target(target: str) -> str:
    if target == "delegate":
        return "torch.ops.higher_order.executorch_call_delegate"
    if target == "cond":
        return "torch.ops.higher_order.cond"
    if target in LOOPS:
        return f"torch.ops.higher_order.{'map_impl' if target == 'map' else target}"
    if target == "getitem":
        return "operator.getitem"
    if target.startswith("py."):
        return f"operator.{target.removeprefix('py.')}"
    return f"executorch.exir.dialects.edge._ops.{target}"


def _text(value: Any) -> str:
    if isinstance(value, Ref):
        return f"%{value.name}"
    if isinstance(value, Tag):
        return f"torch.{value.value}" if value.kind in ("dtype", "memory_format", "layout") else value.value
    if isinstance(value, list):
        return f"[{', '.join(map(_text, value))}]"
    if isinstance(value, tuple):
        return f"({', '.join(map(_text, value))}{',' if len(value) == 1 else ''})"
    return str(value)


def _plain(value: Any) -> str:
    return value.name if isinstance(value, Ref) else _text(value)
