"""The program's graph as plain data, without tensors and torch; `Graph.from_json` checks it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

Json = Any

WHOLE = "__all"
"""Suffix of the name of an unnamed node with several named outputs."""

OBSERVED = "observed"
"""Target of a call with unknown inside; its arguments are its outputs, if known."""

LOOPS = ("map", "scan")
"""Targets of nodes that run their subgraph once per row; see `etviz.graph.loops`."""

CONTROL = ("cond", *LOOPS)

MAX_DEPTH = 64
"""Maximum nesting of arguments and of subgraphs."""

_MOST_REPEATED = 10_000


@dataclass(frozen=True, slots=True)
class Ref:
    name: str


@dataclass(frozen=True, slots=True)
class Tag:
    """A constant without a JSON form.

    ``kind`` is ``dtype``, ``memory_format``, ``layout``, ``device``, ``symbol`` (of a size), or ``graph`` (the body of
    an unknown operator).
    """

    kind: str
    value: str


@dataclass(frozen=True, slots=True)
class Meta:
    """The properties of one value that are known before the run.

    `shape` holds ints, or a dynamic size's symbol. `scale` is the grid's step (None: no grid, or unknown).
    """

    dtype: str
    shape: tuple[int | str, ...]
    scale: float | None = None

    @property
    def sizes(self) -> tuple[int, ...] | None:
        """None if one is dynamic."""
        return None if str in map(type, self.shape) else cast("tuple[int, ...]", self.shape)

    def takes(self, sizes: Sequence[int]) -> bool:
        pairs = zip(self.shape, sizes, strict=False)
        return len(self.shape) == len(sizes) and all(isinstance(a, str) or a == b for a, b in pairs)


@dataclass(slots=True)
class Node:
    """One call of the graph.

    `target` is the functional operator (``aten.add.Tensor``), ``getitem``, ``delegate``, one of `CONTROL` or a Python
    operator (``py.add``); `kernel` the executed one (``aten::add.out``). `instruction` is the id of ETDump events, -1
    if the runtime executes nothing.
    """

    name: str
    target: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    outputs: tuple[Meta | None, ...] = ()
    instruction: int = -1
    kernel: str = ""
    handles: tuple[int, ...] = ()
    origin: str = ""
    stack: str = ""
    module: str = ""
    subgraphs: tuple[str, ...] = ()
    _read: tuple[Any, Any, tuple[str, ...]] | None = field(default=None, init=False, repr=False, compare=False)

    def reads(self) -> tuple[str, ...]:
        known = self._read
        if known is None or known[0] is not self.args or known[1] is not self.kwargs:
            self._read = known = self.args, self.kwargs, tuple(refs((self.args, self.kwargs)))
        return known[2]


@dataclass(slots=True)
class Input:
    """A placeholder: ``user`` input, or a ``constant``/``buffer`` (mutable) stored as `target` among the weights."""

    name: str
    kind: str
    target: str = ""
    meta: Meta | None = None


@dataclass(slots=True)
class Graph:
    """Inputs, nodes in program order, and outputs.

    `mutations` maps a buffer (`Input.target`) to the value that overwrites it after the run. `backend_id` and
    `compile_specs` belong to a delegate's subgraph. `delegated` names nodes that a backend runs, before delegation.
    """

    name: str
    inputs: list[Input] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=list)
    mutations: dict[str, str] = field(default_factory=dict)
    subgraphs: dict[str, Graph] = field(default_factory=dict)
    backend_id: str = ""
    compile_specs: list[tuple[str, bytes]] = field(default_factory=list)
    delegated: frozenset[str] = frozenset()

    def walk(self) -> Iterator[Node]:
        """Every node of this graph, its branches and loop bodies, in program order; not of delegates."""
        for node in self.nodes:
            for branch in self.branches(node):
                yield from branch.walk()
            yield node

    def by_instruction(self) -> dict[int, Node]:
        return {node.instruction: node for node in self.walk() if node.instruction >= 0}

    def user_inputs(self) -> list[Input]:
        return [i for i in self.inputs if i.kind == "user"]

    def results(self) -> list[str]:
        return [*refs(self.outputs), *self.mutations.values()]

    def inside(self, call: Node) -> Graph:
        name = call.subgraphs[0] if call.target in ("delegate", OBSERVED) and call.subgraphs else ""
        return self.subgraphs.get(name) or Graph("")

    def is_delegated(self, node: Node) -> bool:
        return bool(self.backend_id) or node.name in self.delegated

    def branches(self, node: Node) -> list[Graph]:
        """Both branches of a `cond`, the true one first, or a loop's body."""
        return [self.subgraphs[name] for name in node.subgraphs] if node.target in CONTROL else []

    def handed(self, node: Node) -> list[Any]:
        return list(node.args[1]) if node.target == "cond" else [leaf for part in node.args for leaf in part]


def unfolds_too_far(graph: Graph) -> bool:
    """True if a walk visits far more nodes than are stored, because subgraphs are shared."""
    stored, walked = _count(graph)
    return walked > 2 * stored + _MOST_REPEATED


def _count(graph: Graph) -> tuple[int, int]:
    inside = {name: _count(sub) for name, sub in graph.subgraphs.items()}
    stored = len(graph.nodes) + sum(count for count, _ in inside.values())
    entered = (inside[name][1] for node in graph.nodes for name in node.subgraphs if name in inside)
    return stored, len(graph.nodes) + sum(entered)


def refs(value: Any) -> Iterator[str]:
    names: list[str] = []
    _collect_refs((value,), names)
    return iter(names)


def _collect_refs(value: Any, names: list[str]) -> None:
    for part in value.values() if isinstance(value, dict) else value:
        if isinstance(part, Ref):
            names.append(part.name)
        elif isinstance(part, (list, tuple, dict)) and part:
            _collect_refs(part, names)


def map_arg(value: Any, leaf: Callable[[Any], Any]) -> Any:
    if isinstance(value, (list, tuple)):
        return [map_arg(item, leaf) for item in value]
    if isinstance(value, dict):
        return {key: map_arg(item, leaf) for key, item in value.items()}
    return leaf(value)


def renamed(value: Any, names: Mapping[str, Any]) -> Any:
    """With what `names` has in place of each `Ref` to one of them."""
    return map_arg(value, lambda leaf: names.get(leaf.name, leaf) if isinstance(leaf, Ref) else leaf)


def pairs_of_args(value: Any, other: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, dict):
        value, other = list(value.values()), [other[key] for key in value]
    if isinstance(value, (list, tuple)):
        for a, b in zip(value, other, strict=False):
            yield from pairs_of_args(a, b)
    else:
        yield value, other
