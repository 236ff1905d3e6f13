"""Replaces operators that overwrite a value (``relu_``) by operators that return a new one.

torch's schemas tell which values share their elements.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Final

from etviz.graph.ir import Graph, Node, Ref, refs, renamed
from etviz.graph.uses import Key, item_of
from etviz.upstream.operators import operator_of, schema_of

_SCATTERS: Final = {
    "aten.select.int": "aten.select_scatter.default",
    "aten.slice.Tensor": "aten.slice_scatter.default",
    "aten.alias.default": "",
}
"""Views that can be written to, and the operators that put the view's elements back."""
_NUMBER: Final = "aten._local_scalar_dense.default"
_ALIAS: Final = "aten.alias.default"
_CONVERSION: Final = "aten.to."
_SAME: Final = (_CONVERSION, "aten.alias.", "aten.detach.", "aten.lift_fresh.")


def functional(graph: Graph) -> Graph:
    """If elements can't be put back through a view, the in-place operator stays, and the evaluator refuses it.

    Assertions, which have no result, are left out.
    """
    state = _State(graph)
    for at, node in enumerate(graph.nodes):
        if not node.target.startswith("aten._assert"):
            state.add(at, replace(node, target=_NUMBER) if node.target == "aten.item.default" else node)
    kept = {i.target: state.latest[i.name].name for i in graph.inputs if i.kind != "user" and i.name in state.latest}
    outputs = [state.renamed(out) for out in graph.outputs]
    return replace(graph, nodes=state.nodes, outputs=outputs, mutations={**graph.mutations, **kept})


@dataclass(slots=True)
class _State:
    graph: Graph
    nodes: list[Node] = field(default_factory=list)
    latest: dict[str, Ref] = field(default_factory=dict)
    views: dict[str, tuple[str, Node]] = field(default_factory=dict)
    last: dict[str, int] = field(default_factory=dict)
    dtypes: dict[str, str] = field(default_factory=dict)
    items: Counter[Key | None] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        metas = {placeholder.name: placeholder.meta for placeholder in self.graph.inputs}
        metas |= {node.name: node.outputs[0] for node in self.graph.nodes if len(node.outputs) == 1}
        self.dtypes = {name: meta.dtype for name, meta in metas.items() if meta is not None}
        self.last = {name: at for at, node in enumerate(self.graph.nodes) for name in node.reads()}
        buffers = (placeholder.name for placeholder in self.graph.inputs if placeholder.kind != "user")
        self.items = Counter(map(item_of, self.graph.nodes))
        self.last |= dict.fromkeys((*refs(self.graph.outputs), *buffers), len(self.graph.nodes))

    def renamed(self, value: Any) -> Any:
        return renamed(value, self.latest)

    def add(self, at: int, node: Node) -> None:
        bound = _bound(node)
        written = bound.get(_role(node.target, write=True))
        now = replace(node, args=tuple(self.renamed(node.args)), kwargs=self.renamed(node.kwargs))
        if isinstance(written, Ref):
            path = [written.name, *self._bases(written.name)]
            later = [name for name in (path[-1], *self._views_of(path[-1])) if self.last.get(name, -1) > at]
            if set(later) <= {written.name} or all(self.views[name][1].target in _SCATTERS for name in path[:-1]):
                library, name, overload = node.target.split(".")
                self.nodes.append(replace(now, target=f"{library}.{name.removesuffix('_')}.{overload}"))
                self.latest[written.name] = Ref(node.name)
                self._put_back(at, path if later else path[:1])
                self._view_again(at, [name for name in later if name not in path])
                self.views[node.name] = written.name, Node(node.name, _ALIAS, (), {"self": written})
                return
        self.nodes.append(now)
        item = item_of(node)
        viewed = node.args[0] if item is not None else bound.get(_role(node.target, write=False))
        if item is not None and item[0] not in self.views and self.items[item] == 1:
            return  # results of an operator that returns no views share nothing
        if isinstance(viewed, Ref) and (view := self._view(node, bound, viewed)) is not None:
            self.views[node.name] = viewed.name, view

    def _view(self, node: Node, bound: Mapping[str | None, Any], source: Ref) -> Node | None:
        if not node.target.startswith(_SAME):
            return node
        if node.target.startswith(_CONVERSION):  # it returns its argument if nothing changes, else a copy
            types = self.dtypes.get(source.name), self.dtypes.get(node.name)
            if bound.get("copy") or (None not in types and types[0] != types[1]):
                return None
            if None in types or bound.get("memory_format") is not None:
                return node
        return Node(node.name, _ALIAS, (), {"self": source})

    def _bases(self, name: str) -> Iterator[str]:
        while name in self.views:
            name = self.views[name][0]
            yield name

    def _views_of(self, root: str) -> list[str]:
        return [name for name in self.views if root in self._bases(name)]

    def _put_back(self, at: int, path: list[str]) -> None:
        for name, base in pairwise(path):
            view = self.views[name][1]
            if view.target == _ALIAS:
                self.latest[base] = self.latest[name]
                continue
            given = {**self.renamed(_bound(view)), "src": self.latest[name]}
            put = Node(f"{base}.{at}", _SCATTERS[view.target], (), given)
            put.origin = put.name
            self.nodes.append(put)
            self.latest[base] = Ref(put.name)

    def _view_again(self, at: int, names: list[str]) -> None:
        for name in names:
            view = self.views[name][1]
            again = replace(view, name=f"{name}.{at}", args=self.renamed(view.args), kwargs=self.renamed(view.kwargs))
            again.origin = again.name
            self.nodes.append(again)
            self.latest[name] = Ref(again.name)


def _bound(node: Node) -> dict[str | None, Any]:
    names = _roles(node.target)[0] if node.args else ()
    return {**dict(zip(names, node.args, strict=False)), **node.kwargs}


def _role(target: str, *, write: bool) -> str | None:
    """None if the operator has none; serialized arguments may have an empty name."""
    _, written, viewed = _roles(target)
    return (written if write else viewed) or None


@functools.cache
def _roles(target: str) -> tuple[tuple[str, ...], str, str]:
    if not target.startswith("aten."):
        return (), "", ""
    try:
        schema = schema_of(operator_of(target))
    except (AttributeError, ValueError):
        return (), "", ""
    aliased = [argument.name for argument in schema.arguments if argument.alias_info is not None]
    writes = any(argument.alias_info is not None and argument.alias_info.is_write for argument in schema.arguments)
    first = aliased[0] if aliased else ""
    return tuple(argument.name for argument in schema.arguments), first if writes else "", "" if writes else first
