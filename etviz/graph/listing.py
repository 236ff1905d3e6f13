"""The program as text, in the form of upstream's `format_delegated_graph`.

Upstream prints the live program before `to_executorch()`. This is the emitted one, with new node numbers, or one
derived from files.
"""

from __future__ import annotations

from typing import Any, Final

from etviz.graph.ir import CONTROL, Graph, Node, Ref, Tag
from etviz.graph.uses import Uses, item_of

_INDENT: Final = "  "
WRITE: Final = "aten.copy_.default"
BODY: Final = "get_attr"
"""Target of a branch or a loop's body, which the node after it reads."""


def format_delegated_graph(graph: Graph) -> str:
    lines = ["graph():"]
    uses = Uses(graph)
    for placeholder in graph.inputs:
        lines.append(f"{_INDENT}{_placeholder(placeholder.name, uses)}")
    for node in graph.nodes:
        if node.target == WRITE or (item_of(node) and not uses.count(node.name)):
            continue
        if node.target == "delegate":
            inner = graph.inside(node)
            lines.append(f"{_INDENT}%{inner.name} : [num_users=1] = get_attr[target={inner.name}]")
            lines.append(f"{_INDENT * 2}backend_id: {inner.backend_id}")
            lines.append(f"{_INDENT * 2}lowered graph():")
            lines.extend(f"{_INDENT * 3}{line}" for line in _inside(inner))
        if node.target == BODY:
            lines.append(f"{_INDENT}%{node.name} : [num_users={uses.count(node.name)}] = get_attr[target={node.name}]")
            continue
        lines.append(f"{_INDENT}{_call(node, uses)}")
    returned = [*(Ref(name) for name in graph.mutations.values()), *graph.outputs]
    lines.append(f"{_INDENT}return ({', '.join(map(_plain, returned))}{',' if len(returned) == 1 else ''})")
    return "\n".join(lines) + "\n"


def _inside(graph: Graph) -> list[str]:
    uses = Uses(graph)
    lines = [_placeholder(placeholder.name, uses) for placeholder in graph.inputs]
    lines.extend(_call(node, uses) for node in graph.nodes)
    lines.append(f"return [{', '.join(map(_plain, graph.outputs))}]")
    return lines


def _placeholder(name: str, uses: Uses) -> str:
    return f"%{name} : [num_users={uses.count(name)}] = placeholder[target={name}]"


def _call(node: Node, uses: Uses) -> str:
    args = list(node.args)
    if node.target == "delegate":
        args.insert(0, Ref(node.subgraphs[0]))
    inside = ", ".join(_text(arg) for arg in args) + ("," if len(args) == 1 else "")
    kwargs = ", ".join(f"{name}: {_text(value)}" for name, value in node.kwargs.items())
    return (
        f"%{node.name} : [num_users={uses.count(node.name)}] = call_function[target={_target(node.target)}]"
        f"(args = ({inside}), kwargs = {{{kwargs}}})"
    )


def _target(target: str) -> str:
    if target == "delegate":
        return "torch.ops.higher_order.executorch_call_delegate"
    if target in CONTROL:
        return f"torch.ops.higher_order.{own_name(target)}"
    if target == "getitem" or target.startswith("py."):
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


def own_name(target: str) -> str:
    return "map_impl" if target == "map" else target


def _plain(value: Any) -> str:
    return value.name if isinstance(value, Ref) else _text(value)
