"""What a group of debug handles computes by itself, and what it reads for that.

The operators of a group are cut out of the edge graph, so that they can be evaluated on what the runtime had as their
inputs. What lies between two groups and no instruction claims goes along where it only moves elements, reads sizes, or
follows from the weights: it adds no error of its own. Everything else that no instruction claims stays unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from etviz.artifacts.ir import Graph, Input, Meta, Node, Ref, refs
from etviz.numerics.handles import Match, group_by_handles, items_by_operator, match_groups, values_of

if TYPE_CHECKING:
    import torch

    from etviz.numerics.runtime_log import RuntimeLog

_MOVING: Final = {
    "alias", "alias_copy", "clone", "detach_copy", "expand_copy", "permute_copy", "select_copy", "slice_copy",
    "split_copy", "split_with_sizes_copy", "squeeze_copy", "t_copy", "transpose_copy", "unbind_copy", "unsqueeze_copy",
    "view", "view_copy", "_clone_dim_order",
}  # fmt: skip
"""Operators whose results hold nothing but their input's elements."""
_MOST_TAKEN: Final = 256
"""Values between groups that one group may take along: each group computes them again."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The part of the edge graph that gives the values of a match.

    Attributes
    ----------
    match
        Whose values its outputs are.
    graph
        The group's operators; what they read from elsewhere are its user inputs, in the order of `reads`.
    reads
        Names of these values in the edge graph.
    direct
        Those that the group's own operators read, with nothing in between.
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
    """Which edge values the instructions of a method give, as far as debug handles tell, and from what.

    Parameters
    ----------
    edge
        The ETRecord's edge graph, the same that is evaluated.
    program
        The skeleton of the method's instructions.
    handles
        Debug handles by instruction.

    Attributes
    ----------
    nodes
        The skeleton's node of each instruction.
    handled
        Instructions with debug handles.
    matches
        The pairings that can only be one way.
    reasons
        Why other instructions have none.
    makers
        By name of a matched value: its match and its place among the outputs.
    cuts
        By instruction of a match; there is none where the group has branches.
    readers
        Instructions of matches whose groups read the program's inputs.
    """

    def __init__(self, edge: Graph, program: Graph, handles: Mapping[int, tuple[int, ...]]) -> None:
        self.edge = edge
        self.nodes = {node.instruction: node for node in program.nodes if node.instruction >= 0}
        self._backends = {i: _backend(program, node) for i, node in self.nodes.items()}
        delegates = {i for i, node in self.nodes.items() if node.target == "delegate"}
        known = {i: own for i, own in handles.items() if i in self.nodes}
        self.handled = frozenset(known)
        groups = group_by_handles(edge, known)
        self.matches, self.reasons = match_groups(edge, groups, delegates)
        self.makers = {name: (match, i) for match in self.matches for i, name in enumerate(match.values)}
        self._makers = {node.name: node for node in edge.nodes}
        self._position = {node.name: i for i, node in enumerate(edge.nodes)}
        self._inputs = {item.name: item for item in edge.inputs}
        self._weights = {item.name for item in edge.inputs if item.kind == "constant"}
        self._items = items_by_operator(edge)
        self._claimed = {name: group for group in groups for op in group.operators for name in self._names(op)}
        self._free = self._taken_along()
        cuts = (self._cut(match) for match in self.matches)
        self.cuts = {cut.match.instruction: cut for cut in cuts if cut is not None}
        users = {item.name for item in edge.user_inputs()}
        self.readers = frozenset(i for i, cut in self.cuts.items() if users & set(cut.reads))

    def node(self, name: str) -> Node | None:
        """The node of the edge graph itself, not of its branches, that gives a value."""
        return self._makers.get(name)

    def meta(self, name: str) -> Meta | None:
        """What is known of an edge value, None if it is no tensor."""
        node = self._makers.get(name)
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
        group, node = self._claimed.get(name), self._makers.get(name)
        if node is not None and node.subgraphs:
            return "which torch.cond gives"
        if group is None:
            return "which no instruction claims by debug handle"
        return f"a value of {instructions_text(group.instructions)} that is not paired"

    def _taken_along(self) -> set[str]:
        """Values that add no error of their own between two groups."""
        fixed, found = set(self._weights), set[str]()
        for node in self.edge.nodes:
            if node.subgraphs or (node.name in self._claimed and not _is_size(node)):
                continue
            follows = all(name in fixed for name in refs((node.args, node.kwargs)))
            if follows:
                fixed.add(node.name)
            if follows or _is_size(node) or _only_moves(node):
                found.add(node.name)
        return found

    def _names(self, operator: Node) -> set[str]:
        return {operator.name, *values_of(operator, self._items)}

    def _cut(self, match: Match) -> Cut | None:
        own = {name for op in match.group.operators if not op.subgraphs for name in self._names(op)}
        nodes, reads = self._back(match.values, own)
        if not reads.isdisjoint(match.values):
            return None
        inner = [node for node in nodes if node.name in own]
        direct = frozenset(name for node in inner for name in refs((node.args, node.kwargs)))
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
            node = self._makers[name]
            waiting.extend(refs((node.args, node.kwargs)))
        return [self._makers[name] for name in sorted(needed, key=self._position.__getitem__)], reads


def logged_by_itself(groups: HandleGroups, cut: Cut, log: RuntimeLog) -> dict[str, torch.Tensor]:
    """By name of what a group reads: the value that its delegate logged as its input.

    A delegate does not say which of its inputs is which, so only those are told that no other has the shape and dtype
    of; none if it logged more or fewer than its group reads, or if other instructions of the group may have made them.
    """
    fitting = _fitting(groups, cut, log)
    taken = Counter(id(value) for values in fitting.values() for value in values)
    found = {name: values[0] for name, values in fitting.items() if len(values) == 1 and name in cut.direct}
    return {name: value for name, value in found.items() if taken[id(value)] == 1}


def logged_inputs_of(groups: HandleGroups, log: RuntimeLog) -> dict[str, list[torch.Tensor]]:
    """By name of a program's input: what a delegate that reads it logged, one of which it must be."""
    users = {item.name for item in groups.edge.user_inputs()}
    found: dict[str, list[torch.Tensor]] = {}
    for cut in groups.cuts.values():
        if users.isdisjoint(cut.direct):
            continue
        for name, values in _fitting(groups, cut, log).items():
            known = found.get(name)
            if name in users & cut.direct and values and (known is None or len(values) < len(known)):
                found[name] = values
    return found


def _fitting(groups: HandleGroups, cut: Cut, log: RuntimeLog) -> dict[str, list[torch.Tensor]]:
    """By name of what a group reads: the inputs of its delegate, if that made the group alone, that it could be."""
    node = groups.nodes[cut.match.instruction]
    alone = node.target == "delegate" and len(cut.match.group.instructions) == 1
    values = log.values(node.instruction)[:-1] if alone else []
    if not values or len(values) != len(cut.reads):
        return {}
    return {name: [value for value in values if _fits(groups.meta(name), value)] for name in cut.reads}


def instructions_text(instructions: Sequence[int]) -> str:
    """Instructions in words: ``instruction 3``, ``instructions 3 and 5``, ``instructions 3 to 9``."""
    first, last = instructions[0], instructions[-1]
    if len(instructions) == 1:
        return f"instruction {first}"
    if len(instructions) == 2:
        return f"instructions {first} and {last}"
    if len(instructions) == last - first + 1:
        return f"instructions {first} to {last}"
    return f"{len(instructions)} instructions from {first} to {last}"


def _fits(meta: Meta | None, value: Any) -> bool:
    """True if a value has the dtype and the shape that are known of an edge value; symbolic sizes fit any."""
    if meta is None or str(getattr(value, "dtype", "")) != f"torch.{meta.dtype}" or len(meta.shape) != value.dim():
        return False
    return all(not isinstance(size, int) or size == own for size, own in zip(meta.shape, value.shape, strict=True))


def _is_size(node: Node) -> bool:
    """True for sizes and arithmetic on them, which the runtime does not log."""
    library, _, rest = node.target.partition(".")
    return library in ("py", "executorch_prim") or rest.partition(".")[0] in ("sym_size", "sym_numel")


def _only_moves(node: Node) -> bool:
    return node.target == "getitem" or node.target.partition(".")[2].partition(".")[0] in _MOVING


def _backend(program: Graph, node: Node) -> str:
    return program.subgraphs[node.subgraphs[0]].backend_id if node.subgraphs else ""
