"""Pairing by debug handle, where an ETRecord is all that is known of the reference.

Instructions and edge operators that share handles form a group. A group is compared where only one pairing is
possible: a kernel that is the only instruction and the only operator of its group, or the one value that leaves the
group, which its last instruction must have made. Everything else is said to be grouped or not compared.

The operators of a group are cut out of the edge graph, so that they can be evaluated on what the runtime had as their
inputs. What lies between two groups and no instruction claims goes along where it only moves elements, reads sizes, or
follows from the weights: it adds no error of its own. Everything else that no instruction claims stays unknown.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from etviz.graph.ir import Graph, Input, Meta, Node, Ref
from etviz.graph.labels import instructions_text
from etviz.graph.uses import Uses, is_size, only_moves, operators

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch

    from etviz.artifacts.etdump.runtime_log import RuntimeLog

_MOST_TAKEN: Final = 256
"""Values between groups that one group may take along: each group computes them again."""


@dataclass(slots=True)
class Group:
    """Instructions and edge operators that share debug handles, each in program order."""

    instructions: list[int] = field(default_factory=list)
    operators: list[Node] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Match:
    """The edge values that answer the outputs of an instruction, in order, and the group that they leave."""

    instruction: int
    values: tuple[str, ...]
    group: Group


def group_by_handles(edge: Graph, handles: Mapping[int, tuple[int, ...]]) -> list[Group]:
    """Connected components of instructions and operators over shared handles."""
    parent: dict[int, int] = {}

    def find(handle: int) -> int:
        parent.setdefault(handle, handle)
        while parent[handle] != handle:
            parent[handle] = parent[parent[handle]]
            handle = parent[handle]
        return handle

    for own in handles.values():
        for handle in own[1:]:
            parent[find(handle)] = find(own[0])
    groups: dict[int, Group] = {}
    for instruction in sorted(handles):
        if handles[instruction]:
            groups.setdefault(find(handles[instruction][0]), Group()).instructions.append(instruction)
    for node in operators(edge.nodes):
        group = groups.get(find(node.handles[0])) if node.handles else None
        if group is not None:
            group.operators.append(node)
    return list(groups.values())


def match_groups(uses: Uses, groups: Sequence[Group], delegates: set[int]) -> tuple[list[Match], dict[int, str]]:
    """The pairings that can only be one way, and for every other instruction the reason why it has none."""
    matches, reasons = [], {}
    for group in groups:
        last = group.instructions[-1]
        if not group.operators:
            reasons.update(dict.fromkeys(group.instructions, "no edge operator has its debug handles"))
            continue
        leaving = _leaving(group, uses)
        if len(group.instructions) == 1 == len(group.operators) and last not in delegates:
            matches.append(Match(last, tuple(uses.outputs(group.operators[0])), group))
        elif len(leaving) == 1:
            matches.append(Match(last, (leaving[0],), group))
        else:
            reasons[last] = f"{len(leaving)} values leave its group of debug handles; which is which is not known"
        for instruction in group.instructions[:-1]:
            reasons[instruction] = f"grouped with instruction {last} by debug handle"
    return matches, reasons


def _leaving(group: Group, uses: Uses) -> list[str]:
    """Values of a group that are used outside of it."""
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

    `graph` holds the group's operators and gives the values of `match`. What it reads from elsewhere are its user
    inputs, in the order of `reads`; `direct` are those of them that the group's own operators read, with nothing in
    between.
    """

    match: Match
    graph: Graph
    reads: tuple[str, ...]
    direct: frozenset[str]

    @property
    def together(self) -> str:
        """What to say of a gap that several instructions made; empty if it is one."""
        ids = self.match.group.instructions
        return f"introduced by {instructions_text(ids)} together" if len(ids) > 1 else ""


class HandleGroups:
    """Which values of the ETRecord's edge graph the instructions of a method give, as far as debug handles tell.

    `nodes` are those of the method's skeleton by instruction, `handled` the instructions with debug handles. `matches`
    are the pairings that can only be one way, `reasons` say why other instructions have none. `makers` finds the match
    and the place among its outputs by name of a value; `cuts` what a match follows from, by instruction, unless its
    group has branches. `readers` are the instructions of matches that read the program's inputs.
    """

    def __init__(self, edge: Graph, program: Graph, handles: Mapping[int, tuple[int, ...]]) -> None:
        self.edge = edge
        self.nodes = {node.instruction: node for node in program.nodes if node.instruction >= 0}
        self._backends = {i: program.inside(node).backend_id for i, node in self.nodes.items()}
        delegates = {i for i, node in self.nodes.items() if node.target == "delegate"}
        known = {i: own for i, own in handles.items() if i in self.nodes}
        self.handled = frozenset(known)
        groups = group_by_handles(edge, known)
        self._uses = Uses(edge)
        self.matches, self.reasons = match_groups(self._uses, groups, delegates)
        self.makers = {name: (match, i) for match in self.matches for i, name in enumerate(match.values)}
        self._position = {node.name: i for i, node in enumerate(edge.nodes)}
        self._inputs = {item.name: item for item in edge.inputs}
        self._weights = {item.name for item in edge.inputs if item.kind == "constant"}
        self._claimed = {name: group for group in groups for op in group.operators for name in self._names(op)}
        self._free = self._taken_along()
        cuts = (self._cut(match) for match in self.matches)
        self.cuts = {cut.match.instruction: cut for cut in cuts if cut is not None}
        users = {item.name for item in edge.user_inputs()}
        self.readers = frozenset(i for i, cut in self.cuts.items() if users & set(cut.reads))

    def node(self, name: str) -> Node | None:
        """The node of the edge graph itself, not of its branches, that gives a value."""
        return self._uses.nodes.get(name)

    def meta(self, name: str) -> Meta | None:
        """What is known of an edge value, None if it is no tensor."""
        node = self._uses.nodes.get(name)
        if node is not None:
            return node.outputs[0] if node.outputs else None
        item = self._inputs.get(name)
        return item.meta if item is not None else None

    def buffer(self, name: str) -> str:
        """The mutable buffer that an input of the edge graph is, empty if it is none."""
        item = self._inputs.get(name)
        return item.target if item is not None and item.kind == "buffer" else ""

    def origin(self, name: str) -> str:
        """Where a value comes from that no instruction is paired with."""
        group, node = self._claimed.get(name), self._uses.nodes.get(name)
        if node is not None and node.subgraphs:
            return "which torch.cond gives"
        if group is None:
            return "which no instruction claims by debug handle"
        return f"a value of {instructions_text(group.instructions)} that is not paired"

    def _taken_along(self) -> set[str]:
        """Values that add no error of their own between two groups."""
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

    def _cut(self, match: Match) -> Cut | None:
        own = {name for op in match.group.operators if not op.subgraphs for name in self._names(op)}
        nodes, reads = self._back(match.values, own)
        if not reads.isdisjoint(match.values):
            return None
        inner = [node for node in nodes if node.name in own]
        direct = frozenset(name for node in inner for name in node.reads())
        inputs = [self._inputs[name] for name in sorted(reads & self._weights)]
        given = sorted(reads - self._weights)
        inputs += [Input(name, "user", meta=self.meta(name)) for name in given]
        graph = Graph(f"instruction_{match.instruction}", inputs, nodes, [Ref(name) for name in match.values])
        graph.backend_id = self._backends[match.instruction]
        return Cut(match, graph, tuple(given), direct)

    def _back(self, names: Sequence[str], own: set[str]) -> tuple[list[Node], set[str]]:
        """The nodes, in program order, that some values follow from, and where following them back ends."""
        needed: set[str] = set()
        reads: set[str] = set()
        waiting, left = list(names), _MOST_TAKEN
        while waiting:
            name = waiting.pop()
            if name in needed or name in reads:
                continue
            if name not in own:
                if name not in self._free or not left:
                    reads.add(name)
                    continue
                left -= 1
            needed.add(name)
            node = self._uses.nodes[name]
            waiting.extend(node.reads())
        return [self._uses.nodes[name] for name in sorted(needed, key=self._position.__getitem__)], reads


def logged_by_itself(groups: HandleGroups, cut: Cut, log: RuntimeLog) -> dict[str, torch.Tensor]:
    """By name of what a group reads: the value that its delegate logged as its input.

    A delegate does not say which of its inputs is which, so only those are told that no other has the shape and dtype
    of; none if it logged more or fewer than its group reads, or if other instructions of the group may have made them.
    """
    fitting = _fitting(groups, cut, log)
    taken = Counter(id(value) for values in fitting.values() for value in values)
    alone = {name: values[0] for name, values in fitting.items() if len(values) == 1 and name in cut.direct}
    return {name: value for name, value in alone.items() if taken[id(value)] == 1}


def logged_inputs_of(groups: HandleGroups, log: RuntimeLog) -> dict[str, list[torch.Tensor]]:
    """By name of a program's input: what a delegate that reads it logged, one of which it must be."""
    users = {item.name for item in groups.edge.user_inputs()}
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
    """By name of what a group reads: the inputs of its delegate, if that made the group alone, that it could be."""
    node = groups.nodes[cut.match.instruction]
    alone = node.target == "delegate" and len(cut.match.group.instructions) == 1
    values = log.values(node.instruction)[:-1] if alone else []
    if not values or len(values) != len(cut.reads):
        return {}
    return {name: [value for value in values if _fits(groups.meta(name), value)] for name in cut.reads}


def _fits(meta: Meta | None, value: Any) -> bool:
    """True if a value has the dtype and the shape that are known of an edge value; symbolic sizes fit any."""
    if meta is None or str(getattr(value, "dtype", "")) != f"torch.{meta.dtype}" or len(meta.shape) != value.dim():
        return False
    return all(not isinstance(size, int) or size == own for size, own in zip(meta.shape, value.shape, strict=True))
