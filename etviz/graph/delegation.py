"""How much of a program is delegated: the numbers of upstream's `get_delegation_info`, from the record.

Upstream counts nodes of the live graph before `to_executorch()`; asked afterwards it counts memory allocations too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Delegation:
    """Counts of one method.

    Attributes
    ----------
    num_delegated_subgraphs
        Delegate calls.
    delegated, non_delegated
        Nodes by operator type (the node's name without its number), inside and outside of delegates.
    """

    num_delegated_subgraphs: int
    delegated: Mapping[str, int]
    non_delegated: Mapping[str, int]

    @classmethod
    def from_counts(cls, counts: Mapping[str, Any]) -> Delegation:
        """From the table that a record file holds."""
        return cls(int(counts["subgraphs"]), dict(counts["delegated"]), dict(counts["non_delegated"]))

    @property
    def num_delegated_nodes(self) -> int:
        """Nodes inside of delegates."""
        return sum(self.delegated.values())

    @property
    def num_non_delegated_nodes(self) -> int:
        """Calls that the portable runtime executes or resolves itself, `getitem` included."""
        return sum(self.non_delegated.values())

    @property
    def share(self) -> float:
        """Delegated nodes over all nodes, NaN for an empty program."""
        total = self.num_delegated_nodes + self.num_non_delegated_nodes
        return self.num_delegated_nodes / total if total else float("nan")

    @cached_property
    def by_operator(self) -> pd.DataFrame:
        """A row for each operator type, and a last row ``Total``; the columns are upstream's."""
        import pandas as pd

        rows = [
            {
                "op_type": op,
                "occurrences_in_delegated_graphs": self.delegated.get(op, 0),
                "occurrences_in_non_delegated_graphs": self.non_delegated.get(op, 0),
            }
            for op in sorted({*self.delegated, *self.non_delegated})
        ]
        total = {
            "op_type": "Total",
            "occurrences_in_delegated_graphs": self.num_delegated_nodes,
            "occurrences_in_non_delegated_graphs": self.num_non_delegated_nodes,
        }
        return pd.DataFrame([*rows, total])

    def summary(self) -> str:
        """The text that upstream's `get_summary` gives."""
        return (
            f"Total delegated subgraphs: {self.num_delegated_subgraphs}\n"
            f"Number of delegated nodes: {self.num_delegated_nodes}\n"
            f"Number of non-delegated nodes: {self.num_non_delegated_nodes}\n"
        )
