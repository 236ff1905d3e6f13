"""Modules by path: which instructions belong to `encoder.layers.0`, fully or partly."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from etviz.graph.ir import CONTROL, Graph, Node
from etviz.graph.uses import operators


class Members(NamedTuple):
    whole: list[int]
    shared: list[int]


def is_within(path: str, module: str) -> bool:
    """True if `path` is the module or one of its descendants.

    Examples
    --------
    >>> is_within("layers.1.norm", "layers.1"), is_within("layers.10", "layers.1"), is_within("layers.1", "")
    (True, False, True)
    """
    return not module or path == module or path.startswith(f"{module}.")


def module_paths(graph: Graph) -> set[str]:
    every = {""}
    for _, paths in _paths(graph):
        for path in paths:
            parts = path.split(".")
            every.update(".".join(parts[:end]) for end in range(1, len(parts) + 1))
    return every


def members(graph: Graph, module: str) -> Members:
    result = Members([], [])
    for node, paths in _paths(graph):
        if node.instruction < 0:
            continue
        inside = [is_within(path, module) for path in paths]
        if inside and all(inside):
            result.whole.append(node.instruction)
        elif any(inside):
            result.shared.append(node.instruction)
    return Members(sorted(result.whole), sorted(result.shared))


def _paths(graph: Graph) -> Iterator[tuple[Node, list[str]]]:
    for node in graph.nodes:
        if node.target == "delegate" and node.subgraphs:
            yield node, [inner.module for inner in operators(graph.inside(node).nodes)]
        elif node.target in CONTROL:
            for branch in graph.branches(node):
                yield from _paths(branch)
        else:
            yield node, [node.module]
