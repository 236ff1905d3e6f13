"""Branches and loops in a program: which instructions belong to which branch or body.

The emitter writes, in node order, a jump over the true branch, its instructions, a jump over the false branch, its
instructions. A loop is its number of rounds, copies of the initial carries, the body, the round's end, a jump back, and
the counter's reset.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from etviz.artifacts.program.program import Instruction, Method
from etviz.graph.ir import CONTROL, LOOPS, Graph, Node
from etviz.graph.loops import AFTER_ROUND, APPEND, COPY, RESET, ROUNDS
from etviz.graph.uses import operators
from etviz.upstream.operators import runtime_operator


@dataclass(frozen=True, slots=True)
class Region:
    true: range
    false: range

    @property
    def everything(self) -> tuple[int, ...]:
        return (*self.true, *self.false)


@dataclass(frozen=True, slots=True)
class Loop:
    """Instruction indices of a loop; `results` stack rows."""

    first: range
    body: range
    results: tuple[int, ...]
    everything: range


def regions(method: Method) -> list[Region | Loop]:
    areas: list[Region | Loop] = []
    jumps = {i.index: i.target for i in method.instructions if i.kind == "jump" and i.target is not None}
    backwards = {target: at for at, target in sorted(jumps.items()) if target <= at}
    inside = -1
    for at in sorted({*jumps, *backwards}):
        if at <= inside:
            continue
        if at in backwards:
            area = _loop(method, at, backwards[at])
            inside = backwards[at]
        else:
            area, inside = _region(jumps, at) or (None, inside)
        if area is not None:
            areas.append(area)
    return areas


def _region(jumps: Mapping[int, int], at: int) -> tuple[Region, int] | None:
    target = jumps[at]
    second = target - 1
    if target <= at or jumps.get(second, -1) <= second:
        return None
    return Region(range(at + 1, second), range(target, jumps[second])), jumps[second] - 1


def _loop(method: Method, start: int, jump: int) -> Loop | None:
    operators = {i.index: i.operator for i in method.instructions}
    if [operators.get(jump + step) for step in (-2, -1, 1)] != [*AFTER_ROUND, RESET]:
        return None
    end = jump - len(AFTER_ROUND)
    while operators.get(end - 1) == APPEND:
        end -= 1
    first = start
    while operators.get(first - 1) == COPY:
        first -= 1
    if operators.get(first - 1) != ROUNDS:
        return None
    results = tuple(range(end, jump - len(AFTER_ROUND)))
    return Loop(range(first, start), range(start, end), results, range(first - 1, jump + 2))


def number_branches(graph: Graph, method: Method) -> dict[int, Node]:
    calls = {i.index: i for i in method.instructions}
    placed: dict[int, Node] = {}
    for node, area in controlled(graph.nodes, regions(method)):
        parts = (area.true, area.false) if isinstance(area, Region) else (area.body,)
        for branch, part in zip(graph.branches(node), parts, strict=True):
            pairs = _align(branch.nodes, [calls[i] for i in part if i in calls])
            for inner, call in pairs or []:
                inner.instruction, inner.kernel = call.index, str(call.operator)
                placed[call.index] = node
        if isinstance(area, Loop):
            placed |= dict.fromkeys({*area.everything} - {*area.first, *area.body}, node)
    return placed


def controlled(nodes: Iterable[Node], areas: Sequence[Region | Loop]) -> list[tuple[Node, Region | Loop]]:
    controlling = [node for node in nodes if node.target in CONTROL]
    together = len(controlling) == len(areas) and all(
        isinstance(area, Loop) == (node.target in LOOPS) for node, area in zip(controlling, areas, strict=True)
    )
    return list(zip(controlling, areas, strict=True)) if together else []


def _align(nodes: list[Node], calls: list[Instruction]) -> list[tuple[Node, Instruction]] | None:
    kernels = [call for call in calls if call.kind == "kernel"]
    if any(call.kind == "delegate" for call in calls):
        return None
    pairs, at = [], 0
    for node in operators(nodes):
        known = runtime_operator(str(kernels[at].operator)) if at < len(kernels) else None
        if known is not None and (known[0] == node.target or kernels[at].operator == node.kernel == COPY):
            pairs.append((node, kernels[at]))
            at += 1
    return pairs if at == len(kernels) else None
