"""An ETRecord's edge graph as values, for derived pairing."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any

from etviz.graph.ir import Graph, Meta, Node, Ref, map_arg
from etviz.graph.uses import Uses, by_handles, item_of, operators


class EdgeValues(Uses):
    """By name, with makers and users.

    `classes` maps equal inputs to the first of them. `by_target` is by functional name. `given` names an operator's
    values, in order; `places` are places in the program.
    """

    def __init__(self, graph: Graph, classes: Mapping[str, str] | None = None) -> None:
        super().__init__(graph)
        self.operators = {node.name: node for node in operators(graph.nodes)}
        self.places = {name: place for place, name in enumerate(self.operators)}
        self.given = {name: self.outputs(node) for name, node in self.operators.items()}
        self.maker = {value: name for name, values in self.given.items() for value in values}
        self.metas: dict[str, Meta | None] = {placeholder.name: placeholder.meta for placeholder in graph.inputs}
        self.by_target: dict[str, list[Node]] = {}
        self.by_handle = by_handles(graph.nodes)
        self._users = {placeholder.name for placeholder in graph.user_inputs()}
        self._classes = dict(classes or {})
        self._members: dict[str, list[str]] = {}
        for node in self.operators.values():
            for at, value in enumerate(self.given[node.name]):
                self.metas[value] = node.outputs[at] if at < len(node.outputs) else None
            self.by_target.setdefault(node.target, []).append(node)

    def same(self, name: str) -> str:
        """Representative of the equal values that the same operators compute from the same inputs."""
        if not self._members:
            self._number()
        return self._classes.get(name, name)

    def alike(self, name: str) -> list[str]:
        return self._members.get(self.same(name), [name])

    def _number(self) -> None:
        first: dict[str, str] = {}
        for node in self.graph.nodes:
            item = item_of(node)
            made = self._classes.get(item[0], item[0]) if item is not None else ""
            if item is not None and made in self.given:
                self._classes[node.name] = next(iter(self.given[made][item[1] :]), node.name)
            else:
                given = f"{_canonical(node.args, self._classes)} {_canonical(node.kwargs, self._classes)}"
                key = f"{node.target} {node.subgraphs} {given}"
                self._classes[node.name] = first.setdefault(key, node.name)
        for name in (*(item.name for item in self.graph.inputs), *(node.name for node in self.graph.nodes)):
            self._members.setdefault(self._classes.get(name, name), []).append(name)

    def closure(self, outputs: Sequence[str], inputs: Container[str]) -> list[Node] | None:
        """In order; None if they need another user input."""
        wanted, needed = list(outputs), set[str]()
        while wanted:
            name = wanted.pop()
            if name in inputs:
                continue
            if name in self._users:
                return None
            operator = self.maker.get(name)
            if operator is not None and operator not in needed:
                needed.add(operator)
                wanted.extend(self.operators[operator].reads())
        return [self.operators[name] for name in sorted(needed, key=self.places.__getitem__)]


def _canonical(value: Any, classes: Mapping[str, str]) -> str:
    return repr(map_arg(value, lambda leaf: Ref(classes.get(leaf.name, leaf.name)) if isinstance(leaf, Ref) else leaf))
