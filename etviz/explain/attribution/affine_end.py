"""The affine end of an instruction: its last operators, where the output is an affine function of what enters them.

There, the difference that arrives needs no evaluation: its effect on the output is ⟨gradient, difference⟩ where it
enters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from etviz.graph.ir import Graph, Node, Ref
from etviz.graph.quantize_ops import LINEAR
from etviz.graph.uses import Uses, only_moves

PRODUCTS: Final = {
    LINEAR: (0, 1),
    "aten.mm.default": (0, 1),
    "aten.addmm.default": (1, 2),
    "aten.convolution.default": (0, 1),
}
"""Products that are linear in one argument: its position, and the weight's."""
_SUMS: Final = frozenset(("aten.add.Tensor", "aten.sub.Tensor"))


@dataclass(frozen=True, slots=True)
class AffineEnd:
    """Names of the operators, of values within a delegate that enter them, and of arguments that do."""

    nodes: frozenset[str]
    values: frozenset[str]
    given: frozenset[str]


def affine_end(graph: Graph, node: Node) -> AffineEnd | None:
    """That of an instruction with one output; None without a product, or if what enters is read elsewhere, too."""
    fixed = {item.name for item in graph.inputs if item.kind == "constant"}
    inner, outer = graph, {name: name for name in node.reads() if name not in fixed}
    if node.target == "delegate":
        inner = graph.inside(node)
        named = zip((item.name for item in inner.user_inputs()), node.args, strict=False)
        outer = {name: leaf.name for name, leaf in named if isinstance(leaf, Ref)}
        nodes, users, results = inner.nodes, Uses(inner).users, inner.results()
    else:
        nodes, users, results = [node], {name: [node] for name in outer}, [node.name]
    if (
        len(results) != 1
        or len(node.reads()) != len({*node.reads()})
        or any(item.subgraphs for item in nodes if item is not node)
    ):
        return None
    differing = {*outer}
    for item in nodes:
        if not differing.isdisjoint(item.reads()):
            differing.add(item.name)
    end, entering = set[str](), set[str]()
    for item in reversed(nodes):
        read = {user.name for user in users.get(item.name, ())}
        if item.name in differing and read <= end and (read or item.name in results) and _is_affine(item, differing):
            end.add(item.name)
            entering.discard(item.name)
            entering |= differing.intersection(item.reads())
    if not any(item.name in end and item.target in PRODUCTS for item in nodes):
        return None
    if any(name in results or {user.name for user in users[name]} - end for name in entering):
        return None
    return AffineEnd(
        frozenset(end), frozenset(entering - {*outer}), frozenset(outer[name] for name in entering & {*outer})
    )


def _is_affine(node: Node, differing: set[str]) -> bool:
    if node.target in PRODUCTS:
        operand = node.args[PRODUCTS[node.target][0]] if node.args else None
        return isinstance(operand, Ref) and [name for name in node.reads() if name in differing] == [operand.name]
    return node.target in _SUMS or (only_moves(node) and len(node.outputs) == 1)
