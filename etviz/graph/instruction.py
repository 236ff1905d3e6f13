"""What one instruction is, for people: its kind, its operator, and where in the model it comes from."""

from __future__ import annotations

from typing import Any

from etviz.artifacts.ir import Graph, Node, Ref
from etviz.graph.source import reference_operators, source_line


def describe(graph: Graph, node: Node, output: int) -> dict[str, Any]:
    """Kind, operator, backend, reference operators, module, source and stack of one output of an instruction."""
    if node.target != "delegate":
        return {
            "kind": "inner" if graph.backend_id else "kernel",
            "op": node.target if graph.backend_id else node.kernel or node.target,
            "backend": graph.backend_id,
            "reference_ops": node.origin,
            "module": node.module,
            "source": source_line(node.stack),
            "stack": node.stack,
        }
    inner = graph.subgraphs.get(node.subgraphs[0]) if node.subgraphs else None
    maker = _maker(inner, output) if inner else None
    return {
        "kind": "delegate",
        "op": "DELEGATE_CALL",
        "backend": inner.backend_id if inner else "",
        "reference_ops": ", ".join(reference_operators(inner)) if inner else "",
        "module": maker.module if maker else "",
        "source": source_line(maker.stack) if maker else "",
        "stack": maker.stack if maker else "",
    }


def _maker(inner: Graph, output: int) -> Node | None:
    """The operator inside a delegate that makes one of its outputs; its own code is looked for past conversions."""
    nodes = {node.name: node for node in inner.nodes}
    found = inner.outputs[output] if output < len(inner.outputs) else None
    node = nodes.get(found.name) if isinstance(found, Ref) else None
    while node is not None and not node.stack and node.args and isinstance(node.args[0], Ref):
        node = nodes.get(node.args[0].name)
    return node


def owners_of(graph: Graph) -> dict[int, Graph]:
    """The graph (the method itself or one of its branches) that each instruction stands in."""
    owners = {node.instruction: graph for node in graph.nodes if node.instruction >= 0}
    for node in graph.nodes:
        if node.target == "cond":
            for name in node.subgraphs:
                owners |= owners_of(graph.subgraphs[name])
    return owners
