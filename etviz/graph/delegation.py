"""How much of a program is delegated: upstream's `get_delegation_info`, from the record."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from etviz.graph.ir import WHOLE, Graph
from etviz.graph.uses import Uses, item_of

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Delegation:
    """Counts of delegates, and of nodes by name without number."""

    num_delegated_subgraphs: int
    delegated: Mapping[str, int]
    non_delegated: Mapping[str, int]

    @classmethod
    def from_counts(cls, counts: Mapping[str, Any]) -> Delegation:
        return cls(int(counts["subgraphs"]), dict(counts["delegated"]), dict(counts["non_delegated"]))

    @property
    def num_delegated_nodes(self) -> int:
        return sum(self.delegated.values())

    @property
    def num_non_delegated_nodes(self) -> int:
        """Calls outside delegates, `getitem` included."""
        return sum(self.non_delegated.values())

    @property
    def share(self) -> float:
        """Delegated nodes over all nodes, NaN for an empty program."""
        total = self.num_delegated_nodes + self.num_non_delegated_nodes
        return self.num_delegated_nodes / total if total else float("nan")

    @property
    def counts(self) -> dict[str, int]:
        names = ("num_delegated_subgraphs", "num_delegated_nodes", "num_non_delegated_nodes")
        return {name: getattr(self, name) for name in names}

    @cached_property
    def by_operator(self) -> pd.DataFrame:
        """One row per operator type and a last row ``Total``; the columns are upstream's."""
        import pandas as pd

        operators = sorted({*self.delegated, *self.non_delegated})
        rows = [(op, self.delegated.get(op, 0), self.non_delegated.get(op, 0)) for op in operators]
        rows.append(("Total", self.num_delegated_nodes, self.num_non_delegated_nodes))
        columns = ("op_type", "occurrences_in_delegated_graphs", "occurrences_in_non_delegated_graphs")
        return pd.DataFrame(rows, columns=columns)

    def summary(self) -> str:
        return (
            f"Total delegated subgraphs: {self.num_delegated_subgraphs}\n"
            f"Number of delegated nodes: {self.num_delegated_nodes}\n"
            f"Number of non-delegated nodes: {self.num_non_delegated_nodes}\n"
        )


def count_nodes(graph: Graph, elided: Sequence[str] = ()) -> dict[str, Any]:
    """Count calls by operator type: ``{"subgraphs": n, "delegated": {op: n}, "non_delegated": {op: n}}``.

    A delegate's operators count, its call does not; `elided` operators were removed by emission.
    """
    inside: Counter[str] = Counter()
    subgraphs = [graph.inside(node) for node in graph.nodes if node.target == "delegate"]
    for subgraph in subgraphs:
        inside += _types(subgraph)
    outside = _types(graph) + Counter(map(_type, elided))
    return {"subgraphs": len(subgraphs), "delegated": dict(inside), "non_delegated": dict(outside)}


def _types(graph: Graph) -> Counter[str]:
    uses, counts = Uses(graph), Counter[str]()
    for node in graph.nodes:
        if item_of(node):
            counts["getitem"] += uses.count(node.name) > 0
        elif node.target not in ("delegate", "aten.copy_.default"):
            counts[_type(node.name)] += 1
    return counts


def _type(name: str) -> str:
    return re.sub(r"_\d+$", "", name.removesuffix(WHOLE))
