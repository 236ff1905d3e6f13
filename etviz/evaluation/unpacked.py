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
"""Bytes of the values that were asked for last; one is kept whatever its size."""


class Unpacked:
    """Keeps the last ones of the weights that a program dequantizes."""

    def __init__(self) -> None:
        self._names: dict[int, tuple[Graph, frozenset[str]]] = {}
        self._values: OrderedDict[int, tuple[Graph, Node, Any]] = OrderedDict()
        self._size = 0

    def holds(self, graph: Graph, node: Node) -> bool:
        """True if a node's value is such a weight."""
        if id(graph) not in self._names:
            self._names[id(graph)] = graph, unpacked_weights(graph)  # the graph is kept, so its id stays its own
        return node.name in self._names[id(graph)][1]

    def value(self, graph: Graph, node: Node, compute: Callable[[], Any]) -> Any:
        """The value of such a node."""
        kept = self._values.get(id(node))
        if kept is not None:
            self._values.move_to_end(id(node))
            return kept[2]
        value = compute()
        self._values[id(node)] = graph, node, value
        self._size += nbytes(value)
        while self._size > _KEPT and len(self._values) > 1:
            self._size -= nbytes(self._values.popitem(last=False)[1][2])
        return value

    def source(self, storage: int) -> tuple[Graph, Node] | None:
        """The node whose value has its elements at an address; None if no kept one has."""
        return next(
            (
                (graph, node)
                for graph, node, value in reversed(self._values.values())
                if value.untyped_storage().data_ptr() == storage
            ),
            None,
        )
