"""Compares one execution with its reference: a gap for each value, a reason for each instruction without one."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any, Final

from etviz.comparison.gap import TOGETHER, ExecutionGaps, Gap, Keeper
from etviz.comparison.hypotheses import explain, explain_gaps
from etviz.comparison.judging import judge_introduced
from etviz.comparison.logged_twice import LoggedTwice
from etviz.comparison.measurement import add_gap, add_introduced, add_unpaired
from etviz.comparison.nonfinite import NonFinite
from etviz.evaluation.evaluator import Again, Evaluator
from etviz.evaluation.noise import chained
from etviz.evaluation.replay import Log, logged_outputs
from etviz.evaluation.values import Value, flat_values
from etviz.graph.ir import OBSERVED, Graph, Node, Ref
from etviz.graph.labels import together
from etviz.graph.quantize_ops import chooses_grid, is_conversion, output_scales
from etviz.graph.uses import Uses, item_of
from etviz.tensors.custom_metrics import CustomMetrics

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

logger = logging.getLogger(__name__)


def compare_exact(
    evaluator: Evaluator,
    log: Log,
    inputs: Sequence[Any],
    *,
    run: int = 0,
    keeper: Keeper | None = None,
    introduced: bool = True,
    pairing: str = "exact",
    custom: CustomMetrics | None = None,
) -> ExecutionGaps:
    """Compare every logged value with its node's value.

    `evaluator` is in the state that earlier executions left. `pairing` is ``exact`` (recorded) or ``derived``.
    """
    given = {"run": run, "keeper": keeper, "introduced": introduced, "pairing": pairing, "custom": custom}
    explain(*(compared := compare_together(evaluator, [log], inputs, **given)))
    return compared[0]


def compare_together(
    evaluator: Evaluator,
    logs: Sequence[Log],
    inputs: Sequence[Any],
    *,
    run: int = 0,
    keeper: Keeper | None = None,
    introduced: bool = True,
    pairing: str = "exact",
    custom: CustomMetrics | None = None,
) -> list[ExecutionGaps]:
    """`compare_exact` for several executions on the same inputs, numbered from `run` on; `explain` is not called."""
    same = {"run": run, "keeper": keeper, "introduced": introduced, "pairing": pairing, "custom": custom}
    lanes = _Executions(evaluator, logs, [inputs] * len(logs), **same)
    outputs = evaluator.run_together(inputs, lanes.logged, lanes.see, replay=introduced)
    return lanes.end([list(outputs) for _ in logs])


class _Executions:
    def __init__(
        self,
        evaluator: Evaluator,
        logs: Sequence[Log],
        inputs: Sequence[Sequence[Any]],
        *,
        run: int,
        keeper: Keeper | None,
        introduced: bool,
        pairing: str,
        custom: CustomMetrics | None,
    ) -> None:
        self._graph = graph = evaluator.graph
        self._unpaired, twice = _Unpaired(graph), cache(partial(LoggedTwice, graph))
        self.logged = [partial(logged_outputs, log) for log in logs]
        scales, share = output_scales(graph), {"keeper": keeper or Keeper(), "custom": custom or CustomMetrics()}
        results = [ExecutionGaps(run=run + at, output_scales=list(scales), **share) for at in range(len(logs))]
        self._lanes = [
            _OneExecution(result, log, NonFinite(graph, given, evaluator.constants), twice, introduced, pairing)
            for result, log, given in zip(results, logs, inputs, strict=True)
        ]
        evaluator.roundings = (evaluator.roundings or chained(graph)) if introduced else ()

    def see(self, node: Node, values: Sequence[Value]) -> None:
        for lane, value in zip(self._lanes, values, strict=True):
            lane.see(self._graph, node, value, self._unpaired)

    def end(self, outputs: Sequence[list[Any]]) -> list[ExecutionGaps]:
        instructions = [node.instruction for node in self._graph.walk() if node.instruction >= 0]
        for lane, reference_outputs in zip(self._lanes, outputs, strict=True):
            lane.result.reference_outputs, lane.result.runtime_outputs = reference_outputs, lane.log.outputs()
            _widen_outputs(lane.result, self._graph, lane.steps)
            _explain_missing(lane.result, instructions)
        return [lane.result for lane in self._lanes]


class _OneExecution:
    def __init__(
        self,
        result: ExecutionGaps,
        log: Log,
        nonfinite: NonFinite,
        twice: Callable[[], LoggedTwice],
        introduced: bool,
        pairing: str,
    ) -> None:
        self.result, self.log, self._twice = result, log, twice
        self.steps: dict[str, list[float | None]] = {}
        self._nonfinite, self._introduced, self._pairing = nonfinite, introduced, pairing

    def see(self, graph: Graph, node: Node, value: Value, unpaired: _Unpaired) -> None:
        result = self.result
        before = len(result.gaps)
        if value.steps:
            self.steps[node.name] = value.steps
        if node.instruction >= 0:
            _add(result, self.log, node, value, unpaired, introduced=self._introduced, pairing=self._pairing)
        added = result.gaps[before:]
        if self._introduced and added:
            if node.target == "delegate" and any(gap.uncounted or gap.is_suspicious(introduced=True) for gap in added):
                self._compute_on_received(node, value, added)
            _explain_introduced(result, added, value, unpaired)
        counted = {gap.output: gap.total.runtime_is_nonfinite for gap in added if not gap.unpaired}
        bad = any(gap.is_bad() for gap in added)
        exact = all(gap.is_exact() for gap in added)
        if not exact and self._nonfinite.is_ill_defined(graph, node, value, bad=bad):
            result.ill_defined.add(node.instruction)
            result.nonfinite_inputs = self._nonfinite.inputs
        role = self._nonfinite.see(node, value, counted)
        for gap in added:
            gap.non_finite = role

    def _compute_on_received(self, node: Node, value: Value, gaps: Sequence[Gap]) -> None:
        """A delegate's inputs are those that it logged, also where other values came over what was written."""
        received = self._twice().received(self.log, node)
        if not received or not isinstance(value.again, Again) or value.chain is not None:
            return
        args = [received.get(place, given) for place, given in enumerate(value.again.args)]
        again = replace(value.again, args=args, perturbed=None, shown=())
        try:
            local = again(None)
        except Exception:  # any operator may fail in its own way on wrong values
            logger.debug("%s fails on what it received", node.name, exc_info=True)
            return
        value.again, value.local, value.noise, value.least = again, local, None, None
        results = flat_values(local)
        for gap in gaps:
            gap.introduced_problem = add_introduced(self.result, gap, results[gap.output], gap.scale)


def _widen_outputs(result: ExecutionGaps, graph: Graph, steps: Mapping[str, list[float | None]]) -> None:
    uses = Uses(graph) if steps else None
    for position, out in enumerate(graph.outputs if uses is not None else ()):
        source, output = uses.value(out.name) if uses is not None and isinstance(out, Ref) else ("", 0)
        if output < len(steps.get(source, ())):
            result.output_scales[position] = result.output_scales[position] or steps[source][output]


_CHOSEN: Final = (
    "what it introduced is not known: operators before it, whose values are not known, choose a grid when they run"
)


class _Unpaired:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._targets: dict[int, frozenset[str]] = {}

    @cached_property
    def _instructions(self) -> list[int]:
        return sorted(node.instruction for node in self._graph.nodes if node.target == OBSERVED)

    @cached_property
    def _makers(self) -> dict[str, int]:
        makers: dict[str, int] = {}
        for node in self._graph.nodes:
            item = item_of(node)
            at = makers.get(item[0], -1) if item is not None else node.instruction
            makers |= dict.fromkeys(node.reads() if node.target == OBSERVED else [node.name], at)
        return {name: at for name, at in makers.items() if at >= 0}

    def graph_of(self, node: Node) -> Graph:
        return self._graph.inside(node) if node.target == "delegate" else self._graph

    def operators(self, node: Node) -> list[Node]:
        return self.graph_of(node).nodes if node.target == "delegate" else [node]

    def targets(self, node: Node) -> frozenset[str]:
        if node.instruction not in self._targets:
            self._targets[node.instruction] = frozenset(other.target for other in self.operators(node))
        return self._targets[node.instruction]

    def apart(self, nodes: Sequence[Node]) -> list[Node]:
        return [node for node in nodes if not (self._graph.backend_id and is_conversion(node))]

    def among(self, nodes: Sequence[Node], last: int) -> list[int]:
        names = {node.name for node in nodes}
        first = last
        for node in nodes:
            reads = node.reads()
            if node.instruction < 0 and names.isdisjoint(reads):
                first = min(first, max((self._makers[name] for name in reads if name in self._makers), default=-1))
        return [at for at in self._instructions if first < at < last]


def _add(
    result: ExecutionGaps, log: Log, node: Node, value: Value, unpaired: _Unpaired, *, introduced: bool, pairing: str
) -> None:
    locals_ = flat_values(value.local) if value.local is not None else []
    references = [None] * len(value.runtime or locals_) if value.unpaired else flat_values(value.reference)
    runtime = value.runtime
    if reason := value.missing or _why_not(log, node, runtime, len(references)):
        result.reasons[node.instruction] = reason
    if reason or runtime is None:
        return
    for output, (logged, expected) in enumerate(zip(runtime, references, strict=True)):
        step = value.steps[output] if value.steps else None
        local = locals_[output] if output < len(locals_) else None
        meta = node.outputs[output] if output < len(node.outputs) else None
        scale = step or (meta.scale if meta is not None else None)
        if value.unpaired:
            gap = add_unpaired(result, node, output, logged, scale, value.unpaired, pairing)
        else:
            gap = add_gap(result, node, output, logged, expected, scale, pairing)
        if logged is None:
            result.reasons[node.instruction] = log.problems.get(node.instruction, "its value can't be read")
        if gap is not None and introduced and not step and _chosen_before(value):
            gap.introduced_problem = _CHOSEN
        elif gap is not None and introduced:
            if local is expected and not gap.unpaired:
                gap.inherit()
            elif add_introduced(result, gap, local, scale):
                gap.introduced_problem = value.problem
        if gap is not None:
            gap.note = "; ".join(filter(None, (_note(value, step), gap.note)))
            gap.rounds = value.rounds + value.apart
            gap.operators = unpaired.targets(node)


def _note(value: Value, step: float | None) -> str:
    count = value.rounds + value.apart
    shown = f"the {value.rounds} where the reference takes the same branch, " if value.apart else ""
    times = f"executed {count} times in a loop, here {shown}one after the other" if count > 1 else ""
    return "; ".join(filter(None, (value.note if step or value.rounds else "", times)))


def _chosen_before(value: Value) -> bool:
    return value.chain is not None and any(map(chooses_grid, value.chain.nodes))


def _explain_introduced(result: ExecutionGaps, gaps: Sequence[Gap], value: Value, unpaired: _Unpaired) -> None:
    if value.chain is None:
        law = partial(value.noise, value.runtime) if value.noise is not None else None
        judge_introduced(gaps, law, value.again, value.local, value.least)
        if gaps:
            node = gaps[0].node
            explain_gaps(result, gaps, unpaired.graph_of(node), unpaired.operators(node), value.again, value.local)
        return
    nodes = unpaired.apart(value.chain.nodes)
    for gap in gaps if nodes else ():
        if len(nodes) == 1 and is_conversion(gap.node):
            continue  # the row is named after that operator
        others = unpaired.among(nodes, gap.instruction)
        gap.add_note(f"{TOGETHER}{together(nodes, others)}")
    judge_introduced(gaps, None, value.chain, value.local)


def _why_not(log: Log, node: Node, runtime: Sequence[Any] | None, expected: int) -> str:
    logged = log.values(node.instruction) if runtime is None else runtime
    if not logged:
        return "the runtime logged no value for it"
    if node.target == OBSERVED and not node.args:
        return "which edge operators it executes is not certain"
    if runtime is None:
        return f"the runtime logged {len(logged)} values, {len(node.args) + len(node.outputs)} were expected"
    if len(runtime) != expected:
        return f"the runtime logged {len(runtime)} values, the reference has {expected}"
    return ""


def _explain_missing(result: ExecutionGaps, instructions: Sequence[int]) -> None:
    compared = {gap.instruction for gap in result.gaps}
    for instruction in instructions:
        if instruction not in compared:
            result.reasons.setdefault(instruction, "it was not executed: another branch was taken")
