"""Loops: `torch.map` and `scan` run a body once per row of some tensors and stack the results.

A node's arguments are ``(carries, rows, operands)``: the initial carries (none for a `map`), the tensors to slice, and
what every round receives unchanged. The body takes these and the round's number, and returns the next carries and a row
of each result. It includes the emitter's slices and copies, which the runtime logs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from etviz.graph.ir import Graph, Input, Node, Ref, renamed

ROUNDS: Final = "aten::sym_size.int"
TAKE: Final = "aten::select_copy.int_out"
COPY: Final = "aten::copy_"
APPEND: Final = "executorch_prim::et_copy_index.tensor"
AFTER_ROUND: Final = ("executorch_prim::add.Scalar", "executorch_prim::eq.Scalar")
RESET: Final = "executorch_prim::sub.Scalar"
"""Kernels that the emitter adds: number of rounds, a row, a carry, a row of the result, the counter."""


def body_of(graph: Graph, node: Node) -> Graph:
    return graph.subgraphs[node.subgraphs[0]]


def begin(name: str, carries: Sequence[Any]) -> list[Node]:
    return [Node(f"{name}_carry_{at}", "aten.clone.default", (carry,), kernel=COPY) for at, carry in enumerate(carries)]


def make_body(body: Graph, name: str, carries: int, rows: int) -> None:
    """From upstream's form, ``(carries, one row of each tensor, operands)``, to this module's."""
    users = body.user_inputs()
    taken = users[carries : carries + rows]
    whole = [Input(f"{placeholder.name}_rows", "user") for placeholder in taken]
    at = Input("round", "user")
    places = [(Ref(tensor.name), 0, Ref(at.name)) for tensor in whole]
    takes = [
        Node(placeholder.name, "aten.select_copy.int", place, outputs=(placeholder.meta,), kernel=TAKE)
        for placeholder, place in zip(taken, places, strict=True)
    ]
    given = iter([*users[:carries], *whole, *users[carries + rows :], at])
    others = [placeholder for placeholder in body.inputs if placeholder.kind != "user"]
    metas = {placeholder.name: placeholder.meta for placeholder in users[:carries]}
    copies = [
        Node(f"next_{placeholder.name}", "aten.clone.default", (out,), outputs=(metas[placeholder.name],), kernel=COPY)
        for placeholder, out in zip(users[:carries], body.outputs, strict=False)
    ]
    body.inputs = [*given, *others]
    body.nodes = [*takes, *body.nodes, *copies]
    body.outputs = [*(Ref(node.name) for node in copies), *body.outputs[carries:]]
    rename(body, f"{name}/")


def rename(graph: Graph, prefix: str) -> None:
    """Prefix the names of a branch or body: a branch's own ones may be those of the graph around it."""
    names = {item.name: Ref(prefix + item.name) for item in (*graph.inputs, *graph.nodes)}
    graph.inputs = [replace(item, name=prefix + item.name) for item in graph.inputs]
    for node in graph.nodes:
        node.name = prefix + node.name
        node.args, node.kwargs = tuple(renamed(node.args, names)), renamed(node.kwargs, names)
    graph.outputs = renamed(graph.outputs, names)
    graph.mutations = {target: prefix + name for target, name in graph.mutations.items()}
    run = (pair for node in graph.nodes for pair in zip(node.subgraphs, graph.branches(node), strict=False))
    for inner in dict(run).values():
        rename(inner, prefix)


def is_whole(graph: Graph, node: Node) -> bool:
    parts = node.args
    if len(parts) != 3 or len(node.subgraphs) != 1 or not all(isinstance(part, list) for part in parts):
        return False
    body = body_of(graph, node)
    carries, rows, operands = map(len, parts)
    return rows > 0 and len(body.user_inputs()) == carries + rows + operands + 1 and len(body.outputs) >= carries
