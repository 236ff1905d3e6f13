"""Operators that draw random numbers, which differ between runtime and reference."""

from __future__ import annotations

from typing import Final

from etviz.graph.ir import Graph, Node

_DRAWING: Final = {
    "bernoulli", "bernoulli_p", "multinomial", "normal", "normal_functional", "poisson", "rand", "rand_like", "randint",
    "randint_like", "randn", "randn_like", "randperm", "uniform",
}  # fmt: skip
_DROPPING: Final = {"alpha_dropout", "dropout", "feature_dropout", "native_dropout"}
"""Operators that draw only in training mode."""


def draws(node: Node) -> bool:
    name = node.target.partition(".")[2].partition(".")[0]
    if name in _DROPPING:
        probability = node.args[1] if len(node.args) > 1 else node.kwargs.get("p", 0.5)
        train = node.args[2] if len(node.args) > 2 else node.kwargs.get("train", True)
        return train is not False and probability != 0
    return name in _DRAWING


def drawing(graph: Graph) -> list[Node]:
    return [
        node
        for node in graph.nodes
        if draws(node) or any(name in graph.subgraphs and drawing(graph.subgraphs[name]) for name in node.subgraphs)
    ]
