"""How many operators of a graph are delegated, counted as upstream's `get_delegation_info` counts them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from etviz.artifacts.ir import WHOLE, Graph, refs


def count_nodes(graph: Graph, elided: Sequence[str] = ()) -> dict[str, Any]:
    """Calls by operator type: ``{"subgraphs": n, "delegated": {op: n}, "non_delegated": {op: n}}``.

    An operator's type is its node's name without the number; a delegate's inside is counted, its call is not. `elided`
    names operators that the program had before emission.
    """
    inside: Counter[str] = Counter()
    subgraphs = [graph.subgraphs[n.subgraphs[0]] for n in graph.nodes if n.target == "delegate"]
    for subgraph in subgraphs:
        inside += _types(subgraph)
    outside = _types(graph) + Counter(map(_type, elided))
    return {"subgraphs": len(subgraphs), "delegated": dict(inside), "non_delegated": dict(outside)}


def _types(graph: Graph) -> Counter[str]:
    used = {*refs(graph.outputs), *graph.mutations.values()}
    for node in graph.nodes:
        used.update(refs((node.args, node.kwargs)))
    counts: Counter[str] = Counter()
    for node in graph.nodes:
        if node.target in ("delegate", "aten.copy_.default") or (node.target == "getitem" and node.name not in used):
            continue
        counts["getitem" if node.target == "getitem" else _type(node.name)] += 1
    return counts


def _type(name: str) -> str:
    return re.sub(r"_\d+$", "", name.removesuffix(WHOLE))
