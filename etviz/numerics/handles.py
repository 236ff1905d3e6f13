"""Pairing by debug handle, where an ETRecord is all that is known of the reference.

Instructions and edge operators that share handles form a group. A group is compared where only one pairing is
possible: a kernel that is the only instruction and the only operator of its group, or the one value that leaves the
group, which its last instruction must have made. Everything else is said to be grouped or not compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from etviz.artifacts.ir import Graph, Node, refs
from etviz.numerics.runtime_log import RuntimeLog


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
    for node in edge.nodes:
        if node.handles and node.target != "getitem":
            group = groups.get(find(node.handles[0]))
            if group is not None:
                group.operators.append(node)
    return list(groups.values())


def match_groups(edge: Graph, groups: Sequence[Group], delegates: set[int]) -> tuple[list[Match], dict[int, str]]:
    """The pairings that can only be one way, and for every other instruction the reason why it has none."""
    users, items = _users(edge), items_by_operator(edge)
    matches, reasons = [], {}
    for group in groups:
        last = group.instructions[-1]
        if not group.operators:
            reasons.update(dict.fromkeys(group.instructions, "no edge operator has its debug handles"))
            continue
        leaving = _leaving(group, users, items)
        if len(group.instructions) == 1 == len(group.operators) and last not in delegates:
            matches.append(Match(last, tuple(values_of(group.operators[0], items)), group))
        elif len(leaving) == 1:
            matches.append(Match(last, (leaving[0],), group))
        else:
            reasons[last] = f"{len(leaving)} values leave its group of debug handles; which is which is not known"
        for instruction in group.instructions[:-1]:
            reasons[instruction] = f"grouped with instruction {last} by debug handle"
    return matches, reasons


def logged_values(log: RuntimeLog, node: Node, outputs: int) -> list[Any] | None:
    """The outputs that an instruction logged. A delegate logs its inputs too; its only output comes last."""
    values = log.values(node.instruction)
    if node.target == "delegate":
        return values[-1:] if values and outputs == 1 else None
    return values if len(values) == outputs else None


def _users(edge: Graph) -> dict[str, list[str]]:
    users: dict[str, list[str]] = {}
    for node in edge.nodes:
        for name in refs((node.args, node.kwargs)):
            users.setdefault(name, []).append(node.name)
    for name in [*refs(edge.outputs), *edge.mutations.values()]:
        users.setdefault(name, []).append("output")
    return users


def items_by_operator(edge: Graph) -> dict[str, list[str]]:
    """Names of the `getitem` nodes of each operator with several values, in order."""
    found: dict[str, list[Node]] = {}
    for node in edge.nodes:
        if node.target == "getitem":
            found.setdefault(next(refs(node.args), ""), []).append(node)
    return {name: [n.name for n in sorted(items, key=lambda n: n.args[1])] for name, items in found.items()}


def values_of(operator: Node, items: Mapping[str, list[str]]) -> list[str]:
    """Names of an operator's values: its own, or those of its `getitem` nodes, in order."""
    return items.get(operator.name) or [operator.name]


def _leaving(group: Group, users: Mapping[str, list[str]], items: Mapping[str, list[str]]) -> list[str]:
    """Values of a group that are used outside of it."""
    own = {node.name for node in group.operators}
    names = [name for operator in group.operators for name in values_of(operator, items)]
    inside = own | set(names)
    return [name for name in names if any(user not in inside for user in users.get(name, ()))]
