"""The affine end of an instruction: its last operators, if the output is an affine function of what enters them.

The effect of a difference that arrives there is ⟨gradient, difference⟩ where it enters.
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
    """Names of its operators, and of the values within a delegate and the arguments that enter it."""

    nodes: frozenset[str]
    values: frozenset[str]
    given: frozenset[str]


def affine_end(graph: Graph, node: Node, differ: frozenset[str]) -> AffineEnd | None:
    """For the arguments that `differ`; None without a product, or if what enters it is read elsewhere, too."""
    inner, names, read = Graph("", nodes=[node], outputs=[Ref(node.name)]), {n: n for n in node.reads()}, node.reads()
    if node.target == "delegate":
        inner = graph.inside(node)
        given = zip(inner.user_inputs(), node.args, strict=False)
        names = {item.name: leaf.name for item, leaf in given if isinstance(leaf, Ref)}
    names = {name: outer for name, outer in names.items() if outer in differ}
    uses, differing = Uses(inner), {*names}
    if len(uses.results) != 1 or len(read) != len({*read}) or any(item.subgraphs for item in inner.nodes):
        return None
    for item in inner.nodes:
        if not differing.isdisjoint(item.reads()):
            differing.add(item.name)
    end, entering = set[str](), set[str]()
    for item in reversed(inner.nodes):
        ends = {user.name for user in uses.users.get(item.name, ())} <= end and uses.count(item.name)
        if ends and item.name in differing and _is_affine(item, differing):
            end.add(item.name)
            entering |= differing.intersection(item.reads())
    entering -= end
    users = {user.name for name in entering for user in uses.users[name]}
    if (
        not users <= end
        or entering & uses.results
        or not any(n.name in end and n.target in PRODUCTS for n in inner.nodes)
    ):
        return None
    return AffineEnd(frozenset(end), frozenset(entering - {*names}), frozenset(names[n] for n in entering & {*names}))


def _is_affine(node: Node, differing: set[str]) -> bool:
    if node.target in PRODUCTS:
        operand = node.args[PRODUCTS[node.target][0]] if node.args else None
        return isinstance(operand, Ref) and [name for name in node.reads() if name in differing] == [operand.name]
    return node.target in _SUMS or (only_moves(node) and len(node.outputs) == 1)
