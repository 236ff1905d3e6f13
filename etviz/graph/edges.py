"""Edges between the nodes of the program tree: who reads which value."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from etviz.graph.ir import Graph, Node, Ref, refs
from etviz.graph.tree import Tree
from etviz.graph.uses import item_of


class DataEdge(NamedTuple):
    """One value that is read, with its output index at the source.

    For a value that leaves a delegate or branch, the target is the delegate or the `cond`, and `argument` is its
    output.
    """

    source: int
    output: int
    target: int
    argument: int


class _EdgeValue(NamedTuple):
    node: int
    output: int
    maker: int = -1


_Values = Sequence[_EdgeValue | None]


def data_edges(tree: Tree, graph: Graph) -> list[DataEdge]:
    if "method" not in tree.kind:
        return []
    walk = _Walk(tree)
    walk.block(graph, tree.kind.index("method") + 1, {})
    return list(dict.fromkeys(walk.edges))


@dataclass(slots=True)
class _Walk:
    tree: Tree
    edges: list[DataEdge] = field(default_factory=list)

    def block(self, graph: Graph, at: int, known: dict[str, _Values], *, inside: bool = False) -> None:
        for node in graph.nodes:
            if (item := item_of(node)) is not None:
                known[node.name] = known.get(item[0], ())[item[1] : item[1] + 1]
                continue
            for argument, value in _operands(node, known):
                self._read(value, at, argument, inside=inside)
            if node.target == "delegate" and node.subgraphs and not inside:
                known[node.name] = self._delegate(node, graph.inside(node), at, known)
            else:
                if not inside:
                    self._branches(graph, node, at + 1, known)
                known[node.name] = [_EdgeValue(at, output) for output in range(max(1, len(node.outputs)))]
            at += self.tree.size[at]

    def _read(self, value: _EdgeValue, target: int, argument: int, *, inside: bool) -> None:
        self.edges.append(DataEdge(value.node, value.output, target, argument))
        if value.maker >= 0 and not inside:
            self.edges.append(DataEdge(value.maker, 0, target, argument))

    def _delegate(self, node: Node, inner: Graph, at: int, known: Mapping[str, _Values]) -> _Values:
        given = itertools.zip_longest(inner.user_inputs(), node.args[: len(inner.user_inputs())])
        names: dict[str, _Values] = {placeholder.name: [_first(argument, known)] for placeholder, argument in given}
        self.block(inner, at + 1, names, inside=True)
        values = []
        for output, out in enumerate(inner.outputs):
            made = _first(out, names)
            maker = made.node if made is not None and at < made.node < at + self.tree.size[at] else -1
            if made is not None and maker >= 0:
                self.edges.append(DataEdge(maker, made.output, at, output))
            values.append(_EdgeValue(at, output, maker))
        return values

    def _branches(self, graph: Graph, node: Node, at: int, known: Mapping[str, _Values]) -> None:
        call = at - 1
        for branch in graph.branches(node):
            operands = graph.handed(node)
            given = zip(branch.user_inputs(), operands, strict=False)
            names: dict[str, _Values] = {placeholder.name: [_first(argument, known)] for placeholder, argument in given}
            self.block(branch, at + 1, names)
            for output, out in enumerate(branch.outputs):
                made = _first(out, names)
                if made is not None and made.node > at:
                    self.edges.append(DataEdge(made.node, made.output, call, output))
            at += self.tree.size[at]


def _operands(node: Node, known: Mapping[str, _Values]) -> list[tuple[int, _EdgeValue]]:
    arguments = [*node.args, *node.kwargs.values()]
    return [
        (at, value)
        for at, argument in enumerate(arguments)
        for name in refs(argument)
        for value in known.get(name, ())
        if value is not None
    ]


def _first(argument: Any, known: Mapping[str, _Values]) -> _EdgeValue | None:
    values = known.get(argument.name, ()) if isinstance(argument, Ref) else ()
    return values[0] if values else None
