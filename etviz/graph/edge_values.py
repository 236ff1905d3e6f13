"""The edge graph of an ETRecord as values with makers and users, in the form that derived pairing needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from etviz.artifacts.ir import Graph, Meta, Node, Ref, map_arg, refs


class EdgeValues:
    """Values of an edge graph by name.

    Attributes
    ----------
    nodes
        Operators by name, `getitem` left out.
    outputs
        Names of the values that each operator gives, in order.
    maker
        Operator that gives each value.
    users
        Operators that take each value.
    returned
        Values that the graph returns or writes to buffers.
    metas
        Shape and dtype of each value.
    by_target, by_handle
        Operators by functional name, and by debug handle.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes: dict[str, Node] = {n.name: n for n in graph.nodes if n.target != "getitem"}
        self.outputs: dict[str, list[str]] = {}
        self.maker: dict[str, str] = {}
        self.users: dict[str, list[str]] = {}
        self.metas: dict[str, Meta | None] = {i.name: i.meta for i in graph.inputs}
        self.by_target: dict[str, list[Node]] = {}
        self.by_handle: dict[int, list[Node]] = {}
        self._classes: dict[str, str] = {}
        items = self._items()
        for node in self.nodes.values():
            own = items.get(node.name) or [node.name]
            self.outputs[node.name] = own
            for position, name in enumerate(own):
                self.maker[name] = node.name
                self.metas[name] = node.outputs[position] if position < len(node.outputs) else None
            for name in refs((node.args, node.kwargs)):
                self.users.setdefault(name, []).append(node.name)
            self.by_target.setdefault(node.target, []).append(node)
            for handle in node.handles:
                self.by_handle.setdefault(handle, []).append(node)
        self.returned = {*refs(graph.outputs), *graph.mutations.values()}

    def _items(self) -> dict[str, list[str]]:
        """Names of the `getitem` nodes of each operator, by position."""
        found: dict[str, dict[int, str]] = {}
        for node in self.graph.nodes:
            if node.target == "getitem" and isinstance(node.args[0], Ref):
                found.setdefault(node.args[0].name, {}).setdefault(int(node.args[1]), node.name)
        return {name: [by[i] for i in sorted(by)] for name, by in found.items() if sorted(by) == list(range(len(by)))}

    def same(self, name: str) -> str:
        """Representative of all values that the same operators compute from the same inputs: they are equal."""
        if not self._classes:
            self._number()
        return self._classes.get(name, name)

    def _number(self) -> None:
        seen: dict[str, str] = {}
        for node in self.graph.nodes:
            if node.target == "getitem":
                key = f"getitem {self._classes.get(node.args[0].name, node.args[0].name)} {node.args[1]}"
            else:
                key = f"{node.target} {_canonical(node.args, self._classes)} {_canonical(node.kwargs, self._classes)}"
            self._classes[node.name] = seen.setdefault(key, node.name)
        for operator, names in self.outputs.items():
            if names == [operator]:
                continue
            first = self._classes[operator]
            for position, name in enumerate(names):
                self._classes[name] = self.outputs[first][position] if first in self.outputs else name

    def closure(self, outputs: Sequence[str], inputs: Mapping[str, Any]) -> list[Node] | None:
        """The operators between `inputs` and `outputs`, in order; None if they need a user input beside them."""
        users = {i.name for i in self.graph.inputs if i.kind == "user"}
        wanted, found = list(outputs), set()
        while wanted:
            name = wanted.pop()
            if name in inputs or name in found:
                continue
            if name in users:
                return None
            operator = self.maker.get(name)
            if operator is None:
                continue
            if operator not in found:
                found.add(operator)
                node = self.nodes[operator]
                wanted.extend(refs((node.args, node.kwargs)))
        return [node for name, node in self.nodes.items() if name in found]


def _canonical(value: Any, classes: Mapping[str, str]) -> str:
    return repr(map_arg(value, lambda leaf: Ref(classes.get(leaf.name, leaf.name)) if isinstance(leaf, Ref) else leaf))
