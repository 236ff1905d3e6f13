"""When operators can have been executed: after their inputs and before their readers."""

from __future__ import annotations

import math
from collections.abc import Collection, Container, Iterable, Mapping

from etviz.graph.ir import Graph, Node
from etviz.graph.quantize_ops import conversion
from etviz.graph.uses import is_size, item_of, only_moves

Span = tuple[float, float]


class Order:
    """`delegates` execute several operators at once."""

    def __init__(self, graph: Graph, delegates: Container[int]) -> None:
        self._nodes = graph.nodes
        self._delegates = delegates
        self._executed, self._left_out = _executed(graph)

    def spans(self, possible: Mapping[str, Collection[int]], certain: Collection[str] = ()) -> dict[str, Span]:
        executed = self._executed.union(certain)
        first: dict[str, float] = {}
        after: dict[str, float] = {}
        for node in self._nodes:
            after[node.name] = max((first[name] for name in node.reads() if name in first), default=-1)
            span = after[node.name], math.inf
            first[node.name] = min(self._fitting(node, possible, span, executed), default=after[node.name])
        before = dict.fromkeys(first, math.inf)
        for node in reversed(self._nodes):
            span = -1, before[node.name]
            last = max(self._fitting(node, possible, span, executed), default=before[node.name])
            for name in node.reads():
                if name in before:
                    before[name] = min(before[name], last)
        return {name: (after[name], before[name]) for name in executed | self._left_out}

    def fits(self, instruction: int, span: Span) -> bool:
        """True if an instruction may have executed an operator; only a delegate also executes its inputs."""
        after, before = span
        if instruction in self._delegates:
            return after <= instruction <= before
        return after < instruction < before

    def _fitting(
        self, node: Node, possible: Mapping[str, Collection[int]], span: Span, executed: Container[str]
    ) -> list[int]:
        if node.name not in executed:
            return []
        return [instruction for instruction in possible.get(node.name, ()) if self.fits(instruction, span)]


def instructions_by_name(options: Iterable[tuple[int, Collection[str]]]) -> dict[str, list[int]]:
    by_name: dict[str, list[int]] = {}
    for instruction, names in options:
        for name in names:
            by_name.setdefault(name, []).append(instruction)
    return by_name


def takers(options: Mapping[int, Collection[str]]) -> dict[str, set[int]]:
    alike: dict[frozenset[str], set[int]] = {}
    for instruction, names in options.items():
        alike.setdefault(frozenset(names), set()).add(instruction)
    return {name: calls for names, calls in alike.items() if len(names) == len(calls) for name in names}


def _executed(graph: Graph) -> tuple[frozenset[str], frozenset[str]]:
    """Operators that one instruction executes, and operators executed unless elided (views).

    Weights may be computed ahead; delegates may copy a conversion.
    """
    fixed = {placeholder.name for placeholder in graph.inputs if placeholder.kind == "constant"}
    executed, left_out = set(), set()
    for node in graph.nodes:
        if all(name in fixed for name in node.reads()):
            fixed.add(node.name)
        elif item_of(node) is None and not is_size(node) and not node.subgraphs and not conversion(node.target):
            (left_out if only_moves(node) else executed).add(node.name)
    return frozenset(executed), frozenset(left_out)
