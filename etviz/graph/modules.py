"""Modules by path: which instructions belong to `encoder.layers.0`, and which only partly do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from etviz.artifacts.ir import Graph, Node


class Members(NamedTuple):
    """Instructions of a module, ascending.

    Attributes
    ----------
    whole
        Everything that they compute is the module's.
    shared
        Delegates that compute operators of other modules too.
    """

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
    """The path of every module that calls an operator, and of its ancestors; the model itself is the empty path."""
    found = {""}
    for _, paths in _paths(graph):
        for path in paths:
            parts = path.split(".")
            found.update(".".join(parts[:end]) for end in range(1, len(parts) + 1))
    return found


def members(graph: Graph, module: str) -> Members:
    """Instructions of a module."""
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
    """Each node with the modules of the operators that it computes."""
    for node in graph.nodes:
        if node.target == "delegate" and node.subgraphs and node.subgraphs[0] in graph.subgraphs:
            inner = graph.subgraphs[node.subgraphs[0]]
            yield node, [item.module for item in inner.nodes if item.target != "getitem"]
        elif node.target == "cond":
            for name in node.subgraphs:
                yield from _paths(graph.subgraphs[name])
        else:
            yield node, [node.module]
