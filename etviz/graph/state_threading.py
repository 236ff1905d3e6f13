"""Rewrites operators that write to their arguments as operators that return what they write.

A writing call returns the new value after its results, for later readers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from etviz.graph.ir import Graph, Meta, Node, Ref, map_arg
from etviz.graph.language_operators import LANGUAGE_OPERATORS
from etviz.graph.uses import item_of, items

Written = tuple[int | None, "Sequence[str]"]
"""Number of meaningful results (None for all), and names of the written values."""


def written_by(node: Node) -> Written:
    known = LANGUAGE_OPERATORS.get(node.target)
    if known is None:
        return None, ()
    given = dict(zip(known.names, node.args, strict=False)) | node.kwargs
    return known.results, [value.name for name in known.writes if isinstance(value := given.get(name), Ref)]


def thread_state(graph: Graph, written: Callable[[Node], Written] = written_by) -> None:
    """Each call returns what it writes; later readers are redirected."""
    metas: dict[str, Meta | None] = {placeholder.name: placeholder.meta for placeholder in graph.inputs}
    current: dict[str, str] = {}
    nodes: list[Node] = []

    def renamed(leaf: object) -> object:
        return Ref(current.get(leaf.name, leaf.name)) if isinstance(leaf, Ref) else leaf

    for node in graph.nodes:
        results, names = written(node)
        if current:
            node.args, node.kwargs = tuple(map_arg(node.args, renamed)), map_arg(node.kwargs, renamed)
        gives = results is not None and len(node.outputs) == results + len(names)
        functional = names and gives and node.outputs[-1] == metas.get(names[-1])
        made = give(node, node.outputs[:results], names, metas, current) if names and not functional else []
        metas |= {item.name: item.outputs[0] for item in (node, *made) if len(item.outputs) == 1}
        nodes += [node, *made]
    graph.nodes = nodes
    graph.outputs = map_arg(graph.outputs, renamed)
    graph.mutations = {target: current.get(name, name) for target, name in graph.mutations.items()}
    for placeholder in graph.inputs:
        if placeholder.name in current and placeholder.target:
            placeholder.kind = "buffer"
            graph.mutations.setdefault(placeholder.target, current[placeholder.name])


def give(
    node: Node,
    results: Sequence[Meta | None],
    names: Sequence[str],
    metas: Mapping[str, Meta | None],
    current: dict[str, str],
) -> list[Node]:
    """Returns the nodes of the results and of the written values."""
    node.outputs = (*results, *(metas.get(name) for name in names))
    if len(node.outputs) == 1:
        current |= dict.fromkeys(names, node.name)
        return []
    made = [f"{node.name}_{at}" for at in range(len(node.outputs))]
    originals = {value: key for key, value in current.items()}
    current |= {originals.get(name, name): new for name, new in zip(names, made[len(results) :], strict=True)}
    return items(node, made, node.outputs)


def seen_later(graph: Graph) -> dict[int, tuple[int, list[tuple[int, int] | None]]]:
    """By instruction that writes: its number of results, and where later delegate calls log each written value.

    A place is an instruction and an index in its log.
    """
    readers: dict[str, tuple[int, int]] = {}
    named: dict[tuple[str, int], str] = {}
    for node in graph.nodes:
        if (item := item_of(node)) is not None:
            named[item] = node.name
        elif node.target == "delegate" and node.instruction >= 0:
            for at, leaf in enumerate(node.args):
                if isinstance(leaf, Ref):
                    readers.setdefault(leaf.name, (node.instruction, at))
    later: dict[int, tuple[int, list[tuple[int, int] | None]]] = {}
    for node in graph.nodes:
        names = written_by(node)[1]
        if node.instruction >= 0 and names:
            first = len(node.outputs) - len(names)
            values = [named.get((node.name, first + at), node.name) for at in range(len(names))]
            later[node.instruction] = first, [readers.get(name) for name in values]
    return later
