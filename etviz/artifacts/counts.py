"""How many operators of a graph are delegated, counted as upstream's `get_delegation_info` counts them."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from etviz.artifacts.ir import Graph, refs


def count_nodes(graph: Graph) -> dict[str, Any]:
    """Calls by operator type: ``{"subgraphs": n, "delegated": {op: n}, "non_delegated": {op: n}}``.

    An operator's type is its node's name without the number; a delegate's inside is counted, its call is not.
    """
    inside: Counter[str] = Counter()
    subgraphs = [graph.subgraphs[n.subgraphs[0]] for n in graph.nodes if n.target == "delegate"]
    for subgraph in subgraphs:
        inside += _types(subgraph)
    outside = _types(graph)
    return {"subgraphs": len(subgraphs), "delegated": dict(inside), "non_delegated": dict(outside)}


def _types(graph: Graph) -> Counter[str]:
    used = {*refs(graph.outputs), *graph.mutations.values()}
    for node in graph.nodes:
        used.update(refs((node.args, node.kwargs)))
    counts: Counter[str] = Counter()
    for node in graph.nodes:
        if node.target in ("delegate", "aten.copy_.default") or (node.target == "getitem" and node.name not in used):
            continue
        counts["getitem" if node.target == "getitem" else re.sub(r"_\d+$", "", node.name)] += 1
    return counts
