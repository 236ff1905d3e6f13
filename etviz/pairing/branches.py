"""The branches of `torch.cond` in a program: which instructions belong to which branch of which node.

The emitter writes a branch in the order of its nodes, between jumps: a jump over the true branch, its instructions, a
jump over the false branch, its instructions. So instructions and nodes are walked side by side and matched by operator.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from etviz.graph.uses import operators
from etviz.upstream.operators import runtime_operator

if TYPE_CHECKING:
    from etviz.artifacts.program.program import Instruction, Method
    from etviz.graph.ir import Graph, Node


@dataclass(frozen=True, slots=True)
class Region:
    """Instruction indices of the true and of the false branch of one `cond`."""

    true: range
    false: range


def regions(method: Method) -> list[Region]:
    """The outermost branches of a method, in program order; loops are none."""
    areas: list[Region] = []
    jumps = {i.index: i.target for i in method.instructions if i.kind == "jump" and i.target is not None}
    inside = -1
    for at, target in sorted(jumps.items()):
        second = target - 1
        if at <= inside or target <= at or jumps.get(second, -1) <= second:
            continue
        areas.append(Region(range(at + 1, second), range(target, jumps[second])))
        inside = jumps[second] - 1
    return areas


def number_branches(graph: Graph, method: Method) -> set[int]:
    """Write instruction ids into the branches of a graph's `cond` nodes; returns those that could be placed."""
    calls = {i.index: i for i in method.instructions}
    placed: set[int] = set()
    conditions = [node for node in graph.nodes if node.target == "cond"]
    areas = regions(method)
    if len(conditions) != len(areas):
        return placed
    for node, area in zip(conditions, areas, strict=True):
        for branch, part in zip(graph.branches(node), (area.true, area.false), strict=True):
            pairs = _align(branch.nodes, [calls[i] for i in part if i in calls])
            for inner, call in pairs or []:
                inner.instruction, inner.kernel = call.index, str(call.operator)
                placed.add(call.index)
    return placed


def _align(nodes: list[Node], calls: list[Instruction]) -> list[tuple[Node, Instruction]] | None:
    """Pairs of node and kernel call in order; None unless every call finds its node."""
    kernels = [call for call in calls if call.kind == "kernel"]
    if any(call.kind == "delegate" for call in calls):
        return None
    pairs, at = [], 0
    for node in operators(nodes):
        known = runtime_operator(str(kernels[at].operator)) if at < len(kernels) else None
        if known is not None and known[0] == node.target:
            pairs.append((node, kernels[at]))
            at += 1
    return pairs if at == len(kernels) else None
