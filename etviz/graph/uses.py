"""Who uses a value, and which values an operator returns.

An operator with several outputs returns a list; ``getitem`` nodes name its elements.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from etviz.graph.ir import Graph, Meta, Node, Ref

Key = tuple[str, int]


def item_of(node: Node) -> Key | None:
    if node.target != "getitem" or len(node.args) != 2:
        return None
    source, at = node.args
    return (source.name, at) if isinstance(source, Ref) and isinstance(at, int) else None


def items(operator: Node, names: Iterable[str], metas: Sequence[Meta | None] = ()) -> list[Node]:
    return [
        Node(name, "getitem", (Ref(operator.name), at), outputs=tuple(metas[at : at + 1]))
        for at, name in enumerate(names)
    ]


def by_handles(nodes: Iterable[Node]) -> dict[int, list[Node]]:
    by_handle: dict[int, list[Node]] = {}
    for node in operators(nodes):
        for handle in node.handles:
            by_handle.setdefault(handle, []).append(node)
    return by_handle


def operators(nodes: Iterable[Node]) -> Iterator[Node]:
    return (node for node in nodes if node.target != "getitem")


class Uses:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes = {node.name: node for node in graph.nodes}
        self.users: dict[str, list[Node]] = {}
        self.results = frozenset(graph.results())
        for node in graph.nodes:
            for name in dict.fromkeys(node.reads()):
                self.users.setdefault(name, []).append(node)

    def count(self, name: str) -> int:
        return len(self.users.get(name, ())) + (name in self.results)

    def outputs(self, operator: Node) -> list[str]:
        named: dict[int, str] = {}
        for user in self.users.get(operator.name, ()):
            if (item := item_of(user)) is not None:
                named.setdefault(item[1], user.name)
        return [named[at] for at in sorted(named)] or [operator.name]

    def value(self, name: str) -> Key:
        """Operator and output index of a value; an input is its own operator."""
        node = self.nodes.get(name)
        return (node and item_of(node)) or (name, 0)

    def meta(self, key: Key) -> Meta | None:
        node = self.nodes.get(key[0])
        return node.outputs[key[1]] if node is not None and key[1] < len(node.outputs) else None


def unused(graph: Graph) -> frozenset[Key]:
    """Unread outputs of operators with several outputs, for example mean and rstd of a layer norm.

    An operator whose outputs all seem unread is skipped: its reader is unknown.
    """
    uses, unread = Uses(graph), set[Key]()
    for operator in operators(graph.nodes):
        users = uses.users.get(operator.name, ())
        read = [item_of(user) for user in users if uses.count(user.name)]
        if len(operator.outputs) > 1 and operator.name not in uses.results and read and None not in read:
            unread |= {(operator.name, at) for at in range(len(operator.outputs))} - {item for item in read if item}
    return frozenset(unread)


MOVING: Final = {
    "alias", "alias_copy", "clone", "detach_copy", "expand_copy", "permute_copy", "select_copy", "slice_copy",
    "split_copy", "split_with_sizes_copy", "squeeze_copy", "t_copy", "transpose_copy", "unbind_copy", "unsqueeze_copy",
    "view", "view_copy", "_clone_dim_order", "_h2d_copy", "_d2h_copy",
    "update_cache", "update_cache_with_indices", "update_cross_attn_cache",
}  # fmt: skip


def is_size(node: Node) -> bool:
    """True for sizes and arithmetic on them, which the runtime does not log."""
    library, _, rest = node.target.partition(".")
    return library in ("py", "executorch_prim") or rest.partition(".")[0] in ("sym_size", "sym_numel")


def gives_number(node: Node) -> bool:
    return is_size(node) or node.target == "aten._local_scalar_dense.default"


def only_moves(node: Node) -> bool:
    return item_of(node) is not None or node.target.partition(".")[2].partition(".")[0] in MOVING


def is_stateful(graph: Graph) -> bool:
    return bool(graph.mutations) or any(is_stateful(inner) for inner in graph.subgraphs.values())
