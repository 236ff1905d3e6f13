"""Follows NaN and Inf through the runtime's values, instruction by instruction.

An instruction *creates* non-finite values if only its runtime outputs have some, *carries* them if its inputs or
constants do too, and *loses* them if only its inputs do (a comparison or a mask hides a NaN).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from etviz.comparison.gap import CARRIED, CREATED, LOST
from etviz.comparison.undetermined import is_ill_defined, may_be_ill_defined
from etviz.evaluation.values import Value, flat_values
from etviz.graph.ir import Graph, Node
from etviz.graph.quantize_ops import converted, is_quantize
from etviz.graph.uses import item_of, only_moves
from etviz.tensors.finite import has_nan, has_nonfinite

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class NonFinite:
    def __init__(self, graph: Graph, inputs: Sequence[Any], constants: Mapping[str, Any]) -> None:
        self._graph, self._constants = graph, constants
        names = [placeholder.name for placeholder in graph.user_inputs()]
        given = dict(zip(names, inputs, strict=False))
        self._has = {name: [True] for name, value in given.items() if has_nonfinite(value)}
        self._seen = {*given}
        self.inputs = tuple(self._has)
        self._nan = {name for name in self._has if has_nan(given[name])}

    def see(self, node: Node, value: Value, known: Mapping[int, bool] | None = None) -> str:
        """Returns the node's role, empty if everything is finite."""
        if (item := item_of(node)) is not None:
            if (parts := self._has.get(item[0])) and any(parts[item[1] : item[1] + 1] or parts):
                self._has[node.name] = [True]
                self._nan |= {node.name} if item[0] in self._nan else set()
            self._seen |= {node.name} if item[0] in self._seen else set()
            return ""
        before = bool(self._has) and not self._has.keys().isdisjoint(node.reads())
        if not before and value.runtime is None and only_moves(node) and self._seen.issuperset(node.reads()):
            self._forget(node)  # what is moved is finite
            return ""
        computed = value.local if value.local is not None else value.reference
        values = value.runtime if value.runtime is not None else flat_values(computed)
        known = known or {}
        flags = [known[i] if i in known else has_nonfinite(item) for i, item in enumerate(values)]
        self._forget(node)
        if any(flags):
            self._has[node.name] = flags
            self._nan |= {node.name} if any(map(has_nan, values)) else set()
            return CARRIED if before or self._has_constant(node) else CREATED
        return LOST if before and node.instruction >= 0 else ""

    def _has_constant(self, node: Node) -> bool:
        read, inner = {*node.reads()}, self._graph.inside(node)
        stored = [item for item in self._graph.inputs if item.name in read] + inner.inputs
        targets = {item.target for item in stored if item.kind == "constant"}
        return any(target in self._constants and has_nonfinite(self._constants[target]) for target in targets)

    def _forget(self, node: Node) -> None:
        self._seen.add(node.name)
        self._has.pop(node.name, None)
        self._nan.discard(node.name)

    def is_ill_defined(self, graph: Graph, node: Node, value: Value, *, bad: bool) -> bool:
        """True if a node makes integers of NaN or Inf that it reads, or makes inside if its error is `bad`."""
        reads = self._has.keys() & node.reads() if self._has else set[str]()
        if node.subgraphs and value.again is not None:
            return bool(reads or bad) and may_be_ill_defined(graph, node, nan=True) and is_ill_defined(value.again)
        nan = (is_quantize(node) and bool(reads - {converted(node)})) or not self._nan.isdisjoint(reads)
        return bool(reads) and may_be_ill_defined(graph, node, nan=nan)
