"""Pairs the operators of two programs by dataflow.

Two operators are partners if they are of one kind and read partners. Constants pair by name, or by their numbers. The
readers of an operator without a partner are matched as if they read its first argument. Last, operators of different
kinds at the same place between partners are paired.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from etviz.evaluation.operator_rules import by_position
from etviz.graph.ir import Graph, Meta, Node, Ref, refs
from etviz.graph.uses import Key, Uses, is_size, operators

_CHECKS: Final = ("aten._assert", "aten.sym_constrain")


class Side:
    def __init__(self, graph: Graph) -> None:
        self.uses = Uses(graph)
        self.graph = graph
        self.nodes = [node for node in operators(graph.nodes) if not node.target.startswith(_CHECKS)]
        self.partner: dict[Key, Key] = {}
        self.given = {node.name: arguments(node) for node in self.nodes}
        self.reads = {name: [self.uses.value(ref) for ref in refs(given)] for name, given in self.given.items()}
        self.metas: dict[Key, Meta | None] = {(placeholder.name, 0): placeholder.meta for placeholder in graph.inputs}
        self.metas |= {(node.name, at): meta for node in self.nodes for at, meta in enumerate(node.outputs)}
        self.readers: dict[Key, list[Node]] = defaultdict(list)
        for node in self.nodes:
            for key in dict.fromkeys(self.reads[node.name]):
                self.readers[key].append(node)
        self.returned = {self.uses.value(name) for name in graph.results()}

    def is_matched(self, node: Node) -> bool:
        return (node.name, 0) in self.partner

    def known(self, key: Key) -> Key | None:
        while key not in self.partner:
            reads = self.reads.get(key[0])
            if not reads:
                return None
            key = reads[0]
        return key

    def sources(self, node: Node) -> tuple[Key | None, ...]:
        return tuple(self.known(key) for key in self.reads[node.name])


def arguments(node: Node) -> list[Any]:
    given, named = by_position(node.target, node.args, node.kwargs) if node.kwargs else (list(node.args), {})
    return [*given, *named.values()]


@dataclass(slots=True)
class Alignment:
    """`more` and `fewer` name operators that only the program, or only the reference, has."""

    program: Side
    reference: Side
    more: list[str] = field(default_factory=list)
    fewer: list[str] = field(default_factory=list)


def align(
    program: Graph, reference: Graph, constants: Mapping[str, str], known: Mapping[Key, Key] = MappingProxyType({})
) -> Alignment:
    """Pair the values of two functional graphs.

    `constants`: by input of the reference, the program's input with the same numbers. `known`: by value of the
    reference, its partner.
    """
    right, wrong = Side(reference), Side(program)
    for a, b in known.items():
        _pair(right, wrong, a, b)
    for a, b in zip(reference.user_inputs(), program.user_inputs(), strict=False):
        _pair(right, wrong, (a.name, 0), (b.name, 0))
    for name, other in constants.items():
        _pair(right, wrong, (name, 0), (other, 0))
    open_nodes: dict[str, list[Node]] = defaultdict(list)
    for node in wrong.nodes:
        open_nodes[node.target].append(node)
    exact: dict[tuple[str, Any], list[Node]] = defaultdict(list)
    for node in wrong.nodes:
        exact[node.target, tuple(wrong.reads[node.name])].append(node)
    pending = [node for node in right.nodes if not right.is_matched(node)]
    while pending:
        pending = [node for node in pending if not _match_exactly(right, wrong, node, exact)]
        at = next((at for at, node in enumerate(pending) if _match_roughly(right, wrong, node, open_nodes)), None)
        if at is None:
            break
        del pending[at]
    _match_replaced(right, wrong, pending)
    fewer = [node.name for node in pending if not right.is_matched(node)]
    return Alignment(wrong, right, [node.name for node in wrong.nodes if not wrong.is_matched(node)], fewer)


def _pair(right: Side, wrong: Side, a: Key, b: Key) -> None:
    right.partner[a], wrong.partner[b] = b, a


def _pair_nodes(right: Side, wrong: Side, a: Node, b: Node) -> None:
    for output in range(max(1, min(len(a.outputs), len(b.outputs)))):
        _pair(right, wrong, (a.name, output), (b.name, output))


def _match_exactly(right: Side, wrong: Side, node: Node, exact: Mapping[tuple[str, Any], list[Node]]) -> bool:
    sources = tuple(right.partner.get(key) for key in right.reads[node.name])
    if None in sources:
        return False
    return _match_best(right, wrong, node, exact.get((node.target, sources), ()))


def _match_roughly(right: Side, wrong: Side, node: Node, open_nodes: Mapping[str, list[Node]]) -> bool:
    """Skip operators without a partner; half of what is read has to answer."""
    sources = right.sources(node)
    partners = [None if key is None else right.partner[key] for key in sources]
    best: dict[float, list[Node]] = defaultdict(list)
    for other in open_nodes.get(node.target, ()):
        theirs = wrong.sources(other) if not wrong.is_matched(other) else ()
        if not partners or len(theirs) != len(partners):
            continue
        same = sum(a == b and a is not None for a, b in zip(partners, theirs, strict=True)) / len(partners)
        if same == 1 or (same >= 0.5 and node.module == other.module):
            best[same].append(other)
    return bool(best) and _match_best(right, wrong, node, best[max(best)])


def _match_best(right: Side, wrong: Side, node: Node, others: Any) -> bool:
    free = [other for other in others if not wrong.is_matched(other)]
    if not free:
        return False
    plain, module = _plain(right.given[node.name]), node.module
    best = max(free, key=lambda other: (_plain(wrong.given[other.name]) == plain) + 2 * (other.module == module))
    _pair_nodes(right, wrong, node, best)
    return True


def _plain(given: Any) -> str:
    return repr([None if isinstance(leaf, Ref) else leaf for leaf in given])


def _match_replaced(right: Side, wrong: Side, pending: list[Node]) -> None:
    for node in pending:
        for reader in right.readers[node.name, 0]:
            answer = right.partner.get((reader.name, 0))
            theirs = wrong.reads.get(answer[0]) if answer is not None else None
            reads = right.reads[reader.name]
            if theirs is None or len(theirs) != len(reads) or right.is_matched(node):
                continue
            key = theirs[reads.index((node.name, 0))]
            other = wrong.uses.nodes.get(key[0])
            if other is None or wrong.is_matched(other) or _shape(right, (node.name, 0)) != _shape(wrong, key):
                continue
            sources = {right.partner.get(read) for read in right.reads[node.name]}
            if sources & set(wrong.reads[other.name]):
                _pair_nodes(right, wrong, node, other)


def _shape(side: Side, key: Key) -> Any:
    meta = side.metas.get(key)
    return (meta.shape, meta.dtype) if meta is not None else None


@dataclass(slots=True)
class Between:
    """The program's own operator `node`, in place of the reference's `value`.

    `first` is another one that it reads. `chains` are the reference's readers: all but the last are called once more.
    `results` are outputs and buffers.
    """

    node: Node
    value: Key
    first: str
    chains: list[tuple[Node, ...]]
    results: list[int | str]


def put_in_between(alignment: Alignment) -> Iterator[Between]:
    """Yields operators that only the program has and that keep the shape of what they read."""
    right, wrong = alignment.reference, alignment.program
    results = list(_results(right, wrong))
    places, put = _places(alignment, results), dict[str, Key]()
    for node in wrong.nodes:
        reads = wrong.reads[node.name]
        if node.name not in places or not reads or len(node.outputs) != 1 or is_size(node):
            continue
        source = put.get(reads[0][0]) or wrong.partner.get(reads[0])
        if source is None or _shape(wrong, (node.name, 0)) != _shape(wrong, reads[0]):
            continue
        several = [place for place, _ in places[node.name] if _shape(right, place) == _shape(right, source)]
        first = reads[0][0] if reads[0][0] in put else ""
        value = put[node.name] = several[0] if several and not first else source
        chains = [chain for place, chain in places[node.name] if place == value and chain]
        yield Between(node, value, first, chains, [at for out, _, at in results if out == (node.name, 0)])


def _results(right: Side, wrong: Side) -> Iterator[tuple[Key, Key, int | str]]:
    for at, (out, other) in enumerate(zip(wrong.graph.outputs, right.graph.outputs, strict=False)):
        if isinstance(out, Ref) and isinstance(other, Ref):
            yield wrong.uses.value(out.name), right.uses.value(other.name), at
    targets = {(item.name, 0): item.target for item in wrong.graph.inputs}
    for item in right.graph.inputs:
        out = wrong.graph.mutations.get(targets.get(right.partner.get((item.name, 0), ("", 0)), ""))
        if out is not None and item.target in right.graph.mutations:
            yield wrong.uses.value(out), right.uses.value(right.graph.mutations[item.target]), item.target


def _places(
    alignment: Alignment, results: Iterable[tuple[Key, Key, int | str]]
) -> dict[str, list[tuple[Key, tuple[Node, ...]]]]:
    """What the reference has where operators read one of the program's own.

    Such a reader's twin is called once more if it does the same.
    """
    right, wrong, only = alignment.reference, alignment.program, set(alignment.more)
    places: dict[str, list[tuple[Key, tuple[Node, ...]]]] = {}
    for node in reversed([node for node in wrong.nodes if node.name in only]):
        found: dict[tuple[Key, str], tuple[Node, ...]] = {}
        for reader in wrong.readers[node.name, 0]:
            at, partner = wrong.reads[reader.name].index((node.name, 0)), wrong.partner.get((reader.name, 0))
            chains: list[tuple[Node, ...]] = [(right.uses.nodes[partner[0]],)] if partner is not None else []
            for place, chain in places.get(reader.name, ()):
                twin = right.uses.nodes.get(place[0])
                if twin is not None and _does_the_same(twin, reader):
                    chains.append((twin, *chain))
                else:
                    found[place, ""] = ()
            for chain in chains:
                reads = right.reads[chain[0].name]
                if at < len(reads):
                    found[reads[at], chain[0].name] = chain
        found |= {(place, ""): () for out, place, _ in results if out == (node.name, 0)}
        places[node.name] = [(place, chain) for (place, _), chain in found.items()]
    return places


def _does_the_same(twin: Node, node: Node) -> bool:
    same = twin.target == node.target and len(twin.outputs) == 1
    given, other = (by_position(each.target, each.args, each.kwargs) for each in (twin, node))
    return same and _plain([*given[0], *given[1].values()]) == _plain([*other[0], *other[1].values()])


def left_out(alignment: Alignment) -> dict[Key, tuple[Key, list[str]]]:
    """By value that only operators without a partner read: their result, in the same shape, and their names.

    Where the program has operators of its own instead, nothing is left out.
    """
    right, only, ends = alignment.reference, set(alignment.fewer), dict[Key, tuple[Key, list[str]]]()
    wrong, more = alignment.program, set(alignment.more)
    for key, partner in right.partner.items():
        if key[0] not in right.reads or any(reader.name in more for reader in wrong.readers.get(partner, ())):
            continue
        inside, pending, last = list[str](), [key], set[Key]()
        while pending:
            at = pending.pop()
            readers = right.readers.get(at, [])
            if at in right.returned or any(reader.name not in only for reader in readers):
                last.add(at)
            new = [reader.name for reader in readers if reader.name in only and reader.name not in inside]
            inside += new
            pending += [(name, 0) for name in new]
        if len(last) == 1 and key not in last and _shape(right, key) == _shape(right, next(iter(last))):
            ends[key] = next(iter(last)), inside
    return ends
