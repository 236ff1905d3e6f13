"""Quantized weights as operators take them.

An instruction is evaluated several times in a row: on the reference's inputs, on the runtime's, with other roundings.
Its weights are the same each time, and to dequantize them takes longer than to use them for one token.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

from etviz.evaluation.limits import nbytes
from etviz.graph.quantize_ops import unpacked_weights

if TYPE_CHECKING:
    from collections.abc import Callable

    from etviz.graph.ir import Graph, Node

_KEPT: Final = 128 << 20
"""Bytes of the values that were asked for last."""


class Unpacked:
    """Keeps the last ones of the weights that a program dequantizes."""

    def __init__(self) -> None:
        self._names: dict[int, tuple[Graph, frozenset[str]]] = {}
        self._values: OrderedDict[int, tuple[Node, Any]] = OrderedDict()
        self._size = 0

    def holds(self, graph: Graph, node: Node) -> bool:
        """True if a node's value is such a weight."""
        if id(graph) not in self._names:
            self._names[id(graph)] = graph, unpacked_weights(graph)  # the graph is kept, so its id stays its own
        return node.name in self._names[id(graph)][1]

    def value(self, node: Node, compute: Callable[[], Any]) -> Any:
        """The value of such a node."""
        if id(node) in self._values:
            self._values.move_to_end(id(node))
            return self._values[id(node)][1]
        value = compute()
        self._values[id(node)] = node, value
        self._size += nbytes(value)
        while self._size > _KEPT:
            self._size -= nbytes(self._values.popitem(last=False)[1][1])
        return value
