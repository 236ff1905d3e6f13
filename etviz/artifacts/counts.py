"""How many operators of a graph are delegated, counted as upstream's `get_delegation_info` counts them."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from etviz.artifacts.ir import Graph


def count_nodes(graph: Graph) -> dict[str, Any]:
    """Calls by operator inside and outside of delegates, as `get_delegation_info` counts them."""
    delegated: Counter[str] = Counter()
    outside: Counter[str] = Counter()
    subgraphs = 0
    for node in graph.nodes:
        if node.target == "delegate":
            subgraphs += 1
            delegated.update(_op_type(inner.name) for inner in graph.subgraphs[node.subgraphs[0]].nodes)
        elif node.target != "aten.copy_.default":
            outside[_op_type(node.name)] += 1
    return {"subgraphs": subgraphs, "delegated": dict(delegated), "non_delegated": dict(outside)}


def _op_type(name: str) -> str:
    return re.sub(r"_\d+$", "", name)
