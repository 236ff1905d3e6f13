"""The program's graph as plain data: what runs, on what, and where it came from.

One small form for every graph that etviz evaluates: the emitted program kept in a record file, the subgraph of a
delegate, and the edge graph of an ETRecord. It holds no tensors and needs no torch, so that `etviz info` can read it
in milliseconds, and it is built and checked here only: what comes out of `Graph.from_json` is safe to walk.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Json = Any

WHOLE = "__all"
"""Ends the name of a node whose outputs have names of their own, where the file gives it none."""

OBSERVED = "observed"
"""Target of a call whose inside is not known: its arguments are the values of its outputs, none if these neither."""

LOOPS = ("map", "scan")
"""Targets of nodes that run their subgraph once for each row of some tensors; see `etviz.graph.loops`."""

CONTROL = ("cond", *LOOPS)
"""Targets of nodes that run graphs whose nodes are instructions of the method: branches, and what loops run."""

MAX_DEPTH = 64
"""Deepest nesting of arguments and of subgraphs; deeper input is refused."""

_MOST_REPEATED = 10_000


@dataclass(frozen=True, slots=True)
class Ref:
    """The value of another node of the same graph."""

    name: str


@dataclass(frozen=True, slots=True)
class Tag:
    """A constant that JSON has no word for.

    ``kind`` is ``dtype``, ``memory_format``, ``layout``, ``device``, ``symbol`` (of a size), or ``graph``: what an
    operator runs that etviz does not know.
    """

    kind: str
    value: str


@dataclass(frozen=True, slots=True)
class Meta:
    """The properties of one value that are known before anything runs.

    `shape` holds ints, or the symbol's text where a size is dynamic. `scale` is the step of the quantization grid that
    the value lies on (None: not on a grid, or not known).
    """

    dtype: str
    shape: tuple[int | str, ...]
    scale: float | None = None


@dataclass(slots=True)
class Node:
    """One call of the graph.

    `target` is the functional operator (``aten.add.Tensor``), ``getitem``, ``delegate``, one of `CONTROL` or a Python
    operator (``py.add``). `kernel` is the operator that the runtime executes (``aten::add.out``). `instruction` is the
    id that ETDump events carry, -1 where the runtime executes nothing for this node.
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
        """Names of the values that it takes, in order, each as often as it takes it."""
        known = self._read
        if known is None or known[0] is not self.args or known[1] is not self.kwargs:
            self._read = known = self.args, self.kwargs, tuple(refs((self.args, self.kwargs)))
        return known[2]


@dataclass(slots=True)
class Input:
    """A placeholder: ``user`` input, or a ``constant``/``buffer`` (mutable) found under `target` among the weights."""

    name: str
    kind: str
    target: str = ""
    meta: Meta | None = None


@dataclass(slots=True)
class Graph:
    """Inputs, nodes in program order, and what the caller gets back.

    `mutations` maps a buffer (`Input.target`) to the value that overwrites it when the graph has run. `backend_id` and
    `compile_specs` are set for the subgraph of a delegate. `subgraphs` holds delegates and branches by name.
    `delegated` names the nodes that a backend runs, where the graph is that of before delegation.
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
        """Every node of this graph, of its branches and of what its loops run, in program order; not of delegates."""
        for node in self.nodes:
            for branch in self.branches(node):
                yield from branch.walk()
            yield node

    def user_inputs(self) -> list[Input]:
        """The inputs that a caller passes, in order."""
        return [i for i in self.inputs if i.kind == "user"]

    def results(self) -> list[str]:
        """Names of the values that are left when it has run: its outputs, and what overwrites buffers."""
        return [*refs(self.outputs), *self.mutations.values()]

    def inside(self, call: Node) -> Graph:
        """The subgraph of a delegate call; an empty one where it is not known, and for any other node."""
        name = call.subgraphs[0] if call.target in ("delegate", OBSERVED) and call.subgraphs else ""
        return self.subgraphs.get(name) or Graph("")

    def is_delegated(self, node: Node) -> bool:
        """True if a backend runs the node."""
        return bool(self.backend_id) or node.name in self.delegated

    def branches(self, node: Node) -> list[Graph]:
        """Both branches of a `torch.cond`, the true one first; what a loop runs; none for other nodes."""
        return [self.subgraphs[name] for name in node.subgraphs] if node.target in CONTROL else []

    def handed(self, node: Node) -> list[Any]:
        """What a node of `CONTROL` hands to the user inputs of its graphs, in order."""
        return list(node.args[1]) if node.target == "cond" else [leaf for part in node.args for leaf in part]


def unfolds_too_far(graph: Graph) -> bool:
    """True if walking the graph visits far more nodes than it stores: subgraphs that are named again and again."""
    stored, walked = _count(graph)
    return walked > 2 * stored + _MOST_REPEATED


def _count(graph: Graph) -> tuple[int, int]:
    """Nodes that are stored, and nodes that are met if each call enters its subgraphs."""
    inside = {name: _count(sub) for name, sub in graph.subgraphs.items()}
    stored = len(graph.nodes) + sum(count for count, _ in inside.values())
    entered = (inside[name][1] for node in graph.nodes for name in node.subgraphs if name in inside)
    return stored, len(graph.nodes) + sum(entered)


def refs(value: Any) -> Iterator[str]:
    """Names of the nodes that an argument refers to, in order."""
    found: list[str] = []
    _collect_refs((value,), found)
    return iter(found)


def _collect_refs(value: Any, found: list[str]) -> None:
    for item in value.values() if isinstance(value, dict) else value:
        if isinstance(item, Ref):
            found.append(item.name)
        elif isinstance(item, (list, tuple, dict)) and item:
            _collect_refs(item, found)


def map_arg(value: Any, leaf: Callable[[Any], Any]) -> Any:
    """`value` with `leaf` applied to everything that is not a list, tuple or dict."""
    if isinstance(value, (list, tuple)):
        return [map_arg(item, leaf) for item in value]
    if isinstance(value, dict):
        return {key: map_arg(item, leaf) for key, item in value.items()}
    return leaf(value)


def pairs_of_args(value: Any, other: Any) -> Iterator[tuple[Any, Any]]:
    """Everything that is not a list, tuple or dict, beside what stands at the same place of `other`."""
    if isinstance(value, dict):
        value, other = list(value.values()), [other[key] for key in value]
    if isinstance(value, (list, tuple)):
        for a, b in zip(value, other, strict=False):
            yield from pairs_of_args(a, b)
    else:
        yield value, other
