"""Pairs by debug handle, if only an ETRecord is known.

Instructions and operators form groups by handle, narrowed by names, shapes and execution order. A group is compared
only if one pairing is possible: its only kernel with its only operator; the one value that leaves the group, made by
its last instruction; or its only instruction's outputs of different shapes.

A group's operators are cut out of the edge graph and evaluated on the runtime's inputs, with unclaimed operators
between groups that only move elements, read sizes, or follow from the weights. If a group reads an unpaired value of
another group, both are cut out together and share the introduced error.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from etviz.graph.ir import Graph, Input, Meta, Node, Ref
from etviz.graph.labels import instructions_text
from etviz.graph.uses import Uses, by_handles, is_size, only_moves, operators
from etviz.pairing.order import Order, instructions_by_name, takers
from etviz.pairing.skeleton import kernels_of

if TYPE_CHECKING:
    import torch

    from etviz.artifacts.etdump.etdump import RunBlock, TensorRef
    from etviz.artifacts.etdump.runtime_log import RuntimeLog

_MOST_TAKEN: Final = 256
"""Maximum values between groups that a group may include."""
_MOST_ROUNDS: Final = 32
_MOST_TOGETHER: Final = 512
_VIEW: Final = "et_view"
"""Runtime name of a ``view_copy`` without copy."""

Logged = Mapping[int, "Sequence[TensorRef]"]
"""Tensors by the instruction that logged them; a delegate logs its inputs before its outputs."""


@dataclass(slots=True)
class Group:
    instructions: list[int] = field(default_factory=list)
    operators: list[Node] = field(default_factory=list)
    executors: dict[str, set[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HandleMatch:
    instruction: int
    values: tuple[str, ...]
    group: Group


def logged_tensors(block: RunBlock) -> dict[int, list[TensorRef]]:
    logged: dict[int, list[TensorRef]] = {}
    for event in block.debug:
        if event.delegate_debug_id is None and not event.is_output:
            logged.setdefault(event.instruction_id, []).extend(event.tensors)
    return logged


class _Candidates:
    def __init__(
        self, edge: Graph, handles: Mapping[int, tuple[int, ...]], nodes: Mapping[int, Node], logged: Logged
    ) -> None:
        self.operators = {node.name: node for node in operators(edge.nodes)}
        calls = {name: _call(node) for name, node in self.operators.items()}
        by_handle = by_handles(edge.nodes)
        self.left: dict[int, set[str]] = {}
        self._several = set[int]()
        for at, debug_handles in handles.items():
            shared = [node for handle in dict.fromkeys(debug_handles) for node in by_handle.get(handle, ())]
            kernel = _kernel(nodes[at]) if at in nodes else None
            named = [node for node in shared if calls[node.name] == kernel]
            fitting = [node for node in named if _fits_logged(node.outputs, logged.get(at, ()))]
            self.left[at] = {node.name for node in fitting or named or shared}
            if not named:  # a delegate, or a kernel that stands for other operators
                self._several.add(at)
        self._order = Order(edge, self._several)
        self._taken: dict[str, set[int]] = {}
        for _ in range(_MOST_ROUNDS):
            if not (self._take() | self._put_in_order()):
                break

    def _take(self) -> bool:
        """If n kernels compete for n operators, no other instruction can have these."""
        taken = self._taken = takers({at: names for at, names in self.left.items() if at not in self._several})
        return self._keep(lambda at, name: name not in taken or at in taken[name])

    def _put_in_order(self) -> bool:
        spans = self._order.spans(instructions_by_name(self.left.items()), self._taken.keys())
        return self._keep(lambda at, name: name not in spans or self._order.fits(at, spans[name]))

    def _keep(self, fits: Callable[[int, str], bool]) -> bool:
        kept = {at: {name for name in names if fits(at, name)} for at, names in self.left.items()}
        changed = {at: names for at, names in kept.items() if names and names != self.left[at]}
        self.left |= changed
        return bool(changed)


def _call(operator: Node) -> str:
    return operator.target.partition(".")[2].partition(".")[0]


def _kernel(instruction: Node) -> str | None:
    short = instruction.kernel.rpartition("::")[2].partition(".")[0]
    return "view_copy" if short == _VIEW else short or None


def _fits_logged(metas: Sequence[Meta | None], refs: Sequence[TensorRef]) -> bool:
    return len(metas) != len(refs) or all(map(_fits_ref, metas, refs))


def _fits_ref(meta: Meta | None, ref: TensorRef) -> bool:
    return meta is None or (meta.dtype == ref.layout.dtype and meta.takes(ref.layout.sizes))


def agreement(edge: Graph, handles: Mapping[int, tuple[int, ...]], block: RunBlock) -> int:
    """Number of kernels that fit an operator of their handles by name and shapes."""
    called = _called(edge, handles, block)
    return sum(any(_fits_logged(node.outputs, refs) for node in named) for _, named, refs in called)


def other_layers(edge: Graph, layers: Iterable[tuple[int, int, tuple[int, ...]]]) -> str:
    by_handle = by_handles(edge.nodes)
    for at, handle, sizes in layers:
        metas = [meta for node in by_handle.get(handle, ()) for meta in node.outputs]
        expected = [meta.sizes for meta in metas if meta is not None and meta.sizes is not None]
        if metas and len(expected) == len(metas) and math.prod(sizes) not in map(math.prod, expected):
            said = " or ".join(dict.fromkeys(map(str, expected)))
            return f"instruction {at} has a layer that gives the sizes {sizes}, its operator {said}"
    return ""


def other_sizes(edge: Graph, handles: Mapping[int, tuple[int, ...]], block: RunBlock) -> str:
    """The first kernel whose value has sizes that no operator of its name and handles gives, or empty."""
    for at, named, refs in _called(edge, handles, block):
        metas = [meta for node in named for meta in node.outputs]
        for ref in refs if metas and None not in metas else ():
            if not any(meta is not None and meta.takes(ref.layout.sizes) for meta in metas):
                shapes = " or ".join(dict.fromkeys(str(tuple(meta.shape)) for meta in metas if meta is not None))
                return f"instruction {at} ({_call(named[0])}) gives the sizes {ref.layout.sizes}, its operator {shapes}"
    return ""


def _called(
    edge: Graph, handles: Mapping[int, tuple[int, ...]], block: RunBlock
) -> Iterator[tuple[int, list[Node], Sequence[TensorRef]]]:
    """Kernels with the operators of their name and handles, and what they logged."""
    operator_of, logged = by_handles(edge.nodes), logged_tensors(block)
    for at, name in sorted(kernels_of([block]).items()):
        called = _kernel(Node("", "", kernel=name))
        candidates = (node for handle in handles.get(at, ()) for node in operator_of.get(handle, ()))
        if named := [node for node in candidates if _call(node) == called]:
            yield at, named, logged.get(at, ())


def group_by_handles(
    edge: Graph,
    handles: Mapping[int, tuple[int, ...]],
    nodes: Mapping[int, Node] | None = None,
    logged: Logged | None = None,
) -> list[Group]:
    parent: dict[str, str] = {}

    def find(name: str) -> str:
        while parent.setdefault(name, name) != name:
            parent[name] = parent[parent[name]]
            name = parent[name]
        return name

    options = _Candidates(edge, handles, nodes or {}, logged or {})
    for names in options.left.values():
        first = next(iter(names), "")
        for name in names:
            parent[find(name)] = find(first)
    groups: dict[str, Group] = {}
    for instruction in sorted(handles):
        if handles[instruction]:
            key = find(next(iter(options.left[instruction]), f"/{instruction}"))
            groups.setdefault(key, Group()).instructions.append(instruction)
    for name, node in options.operators.items():
        group = groups.get(find(name)) if name in parent else None
        if group is not None:
            group.operators.append(node)
            group.executors[name] = {at for at in group.instructions if name in options.left[at]}
    return list(groups.values())


def match_groups(
    uses: Uses, groups: Sequence[Group], delegates: set[int], logged: Logged | None = None
) -> tuple[list[HandleMatch], dict[int, str]]:
    matches, reasons = [], {}
    for group in groups:
        last = group.instructions[-1]
        if not group.operators:
            reasons.update(dict.fromkeys(group.instructions, "no edge operator has its debug handles"))
            continue
        leaving = _leaving(group, uses)
        if len(group.instructions) == 1 == len(group.operators) and last not in delegates:
            matches.append(HandleMatch(last, tuple(uses.outputs(group.operators[0])), group))
        elif len(leaving) == 1:
            matches.append(HandleMatch(last, (leaving[0],), group))
        elif len(group.instructions) == 1 and (ordered := _ordered(uses, leaving, (logged or {}).get(last, ()))):
            matches.append(HandleMatch(last, ordered, group))
        else:
            reasons[last] = f"{len(leaving)} values leave its group of debug handles; which is which is not known"
        for instruction in group.instructions[:-1]:
            reasons[instruction] = f"grouped with instruction {last} by debug handle"
    return matches, reasons


def _ordered(uses: Uses, names: Sequence[str], refs: Sequence[TensorRef]) -> tuple[str, ...]:
    fitting = [[name for name in names if _fits_ref(_meta(uses, name), ref)] for ref in refs[-len(names) :]]
    ordered = tuple(fits[0] for fits in fitting if len(fits) == 1)
    return ordered if len(set(ordered)) == len(names) else ()


def _meta(uses: Uses, name: str) -> Meta | None:
    node = uses.nodes.get(name)
    return node.outputs[0] if node is not None and node.outputs else None


def _leaving(group: Group, uses: Uses) -> list[str]:
    names = [name for operator in group.operators for name in uses.outputs(operator)]
    inside = {node.name for node in group.operators}.union(names)
    return [
        name
        for name in names
        if name in uses.results or any(user.name not in inside for user in uses.users.get(name, ()))
    ]


@dataclass(frozen=True, slots=True)
class Cut:
    """The part of the edge graph that gives the values of a match.

    `graph` takes outside values in the order of `reads`; the group's operators read `direct` themselves.
    `instructions`, ascending, are all that their operators may belong to. `outer` calls `graph`.
    """

    match: HandleMatch
    graph: Graph
    reads: tuple[str, ...]
    direct: frozenset[str]
    groups: tuple[Group, ...]
    instructions: tuple[int, ...]
    outer: Graph

    @property
    def together(self) -> str:
        ids = self.instructions
        return f"introduced by {instructions_text(ids)} together" if len(ids) > 1 else ""


class HandleGroups:
    """The values that a method's instructions give, according to debug handles.

    `makers` maps a value to its match and output, `cuts` an instruction to its cut, unless its group has branches.
    """

    def __init__(
        self, edge: Graph, program: Graph, handles: Mapping[int, tuple[int, ...]], logged: Logged | None = None
    ) -> None:
        self.edge = edge
        self.nodes = {node.instruction: node for node in program.nodes if node.instruction >= 0}
        self._backends = {i: program.inside(node).backend_id for i, node in self.nodes.items()}
        delegates = {i for i, node in self.nodes.items() if node.target == "delegate"}
        known = {i: numbers for i, numbers in handles.items() if i in self.nodes}
        self.handled = frozenset(known)
        groups = group_by_handles(edge, known, self.nodes, logged)
        edge.delegated = frozenset(
            n for group in groups for n, executors in group.executors.items() if executors and executors <= delegates
        )
        self._uses = Uses(edge)
        self.matches, self.reasons = match_groups(self._uses, groups, delegates, logged)
        self.makers = {name: (match, i) for match in self.matches for i, name in enumerate(match.values)}
        self._position = {node.name: i for i, node in enumerate(edge.nodes)}
        self._inputs = {placeholder.name: placeholder for placeholder in edge.inputs}
        self._weights = {placeholder.name for placeholder in edge.inputs if placeholder.kind == "constant"}
        self._claimed = {name: group for group in groups for op in group.operators for name in self._names(op)}
        self._free = self._taken_along()
        self._wider: dict[tuple[int, ...], Cut | None] = {}
        cuts = (self._cut(match, (match.group,)) for match in self.matches)
        self.cuts = {cut.match.instruction: cut for cut in cuts if cut is not None}
        self.inputs = {kind: {item.name for item in edge.inputs if item.kind == kind} for kind in ("user", "buffer")}
        self.readers = {
            kind: {name: frozenset(i for i, cut in self.cuts.items() if name in cut.reads) for name in names}
            for kind, names in self.inputs.items()
        }

    def node(self, name: str) -> Node | None:
        return self._uses.nodes.get(name)

    def meta(self, name: str) -> Meta | None:
        return self._inputs[name].meta if name in self._inputs else _meta(self._uses, name)

    def buffer(self, name: str) -> str:
        placeholder = self._inputs.get(name)
        return placeholder.target if placeholder is not None and placeholder.kind == "buffer" else ""

    def origin(self, name: str) -> str:
        group, node = self._claimed.get(name), self._uses.nodes.get(name)
        if node is not None and node.subgraphs:
            return "which torch.cond gives"
        if group is None:
            return "which no instruction claims by debug handle"
        return f"a value of {instructions_text(group.instructions)} that is not paired"

    def _taken_along(self) -> set[str]:
        fixed, free = set(self._weights), set[str]()
        for node in self.edge.nodes:
            if node.subgraphs or (node.name in self._claimed and not is_size(node)):
                continue
            follows = all(name in fixed for name in node.reads())
            if follows:
                fixed.add(node.name)
            if follows or is_size(node) or only_moves(node):
                free.add(node.name)
        return free

    def _names(self, operator: Node) -> set[str]:
        return {operator.name, *self._uses.outputs(operator)}

    def widened(self, cut: Cut, missing: Iterable[str]) -> Cut | None:
        added = {id(group): group for name in missing if (group := self._claimed.get(name)) is not None}
        if not all(name in self._claimed for name in missing) or not added:
            return None
        groups = (*cut.groups, *(group for key, group in added.items() if key not in set(map(id, cut.groups))))
        if len(groups) == len(cut.groups) or sum(len(group.operators) for group in groups) > _MOST_TOGETHER:
            return None
        key = cut.match.instruction, *map(id, groups)
        if key not in self._wider:
            self._wider[key] = self._cut(cut.match, groups)
        return self._wider[key]

    def _cut(self, match: HandleMatch, groups: tuple[Group, ...]) -> Cut | None:
        grouped = {name for group in groups for op in group.operators if not op.subgraphs for name in self._names(op)}
        nodes, reads = self._back(match.values, grouped)
        if not reads.isdisjoint(match.values):
            return None
        inner = [node for node in nodes if node.name in grouped]
        direct = frozenset(name for node in inner for name in node.reads())
        inputs = [self._inputs[name] for name in sorted(reads & self._weights)]
        given = sorted(reads - self._weights)
        inputs += [Input(name, "user", meta=self.meta(name)) for name in given]
        graph = Graph(f"instruction_{match.instruction}", inputs, nodes, [Ref(name) for name in match.values])
        graph.backend_id = self._backends[match.instruction]
        executors = (group.executors.get(node.name, ()) for node in inner for group in groups)
        instructions = sorted({match.instruction}.union(*executors))
        call = Node(graph.name, "delegate", subgraphs=(graph.name,))
        outer = Graph(graph.name, nodes=[call], subgraphs={graph.name: graph})
        return Cut(match, graph, tuple(given), direct, groups, tuple(instructions), outer)

    def _back(self, names: Sequence[str], grouped: set[str]) -> tuple[list[Node], set[str]]:
        needed: set[str] = set()
        reads: set[str] = set()
        waiting, left = list(names), _MOST_TAKEN
        while waiting:
            name = waiting.pop()
            if name in needed or name in reads:
                continue
            if name not in grouped:
                if name not in self._free or not left:
                    reads.add(name)
                    continue
                left -= 1
            needed.add(name)
            node = self._uses.nodes[name]
            waiting.extend(node.reads())
        return [self._uses.nodes[name] for name in sorted(needed, key=self._position.__getitem__)], reads


def logged_by_itself(groups: HandleGroups, cut: Cut, log: RuntimeLog) -> dict[str, torch.Tensor]:
    """By name of a group's input: the value that its delegate logged.

    A delegate does not identify its inputs, so only inputs with a unique shape and dtype are returned. Empty if it
    logged another number than its group reads, or other instructions may have made them.
    """
    fitting = _fitting(groups, cut, log)
    taken = Counter(id(value) for values in fitting.values() for value in values)
    alone = {name: values[0] for name, values in fitting.items() if len(values) == 1 and name in cut.direct}
    return {name: value for name, value in alone.items() if taken[id(value)] == 1}


def logged_inputs_of(groups: HandleGroups, log: RuntimeLog) -> dict[str, list[torch.Tensor]]:
    users = {placeholder.name for placeholder in groups.edge.user_inputs()}
    logged: dict[str, list[torch.Tensor]] = {}
    for cut in groups.cuts.values():
        if users.isdisjoint(cut.direct):
            continue
        for name, values in _fitting(groups, cut, log).items():
            known = logged.get(name)
            if name in users & cut.direct and values and (known is None or len(values) < len(known)):
                logged[name] = values
    return logged


def _fitting(groups: HandleGroups, cut: Cut, log: RuntimeLog) -> dict[str, list[torch.Tensor]]:
    node = groups.nodes[cut.match.instruction]
    alone = node.target == "delegate" and len(cut.instructions) == 1
    values = log.values(node.instruction)[:-1] if alone else []
    if not values or len(values) != len(cut.reads):
        return {}
    return {name: [value for value in values if _fits(groups.meta(name), value)] for name in cut.reads}


def _fits(meta: Meta | None, value: Any) -> bool:
    return meta is not None and str(getattr(value, "dtype", "")) == f"torch.{meta.dtype}" and meta.takes(value.shape)
