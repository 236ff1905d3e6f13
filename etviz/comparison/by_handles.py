"""Compares one execution with an ETRecord's edge graph, which is paired by debug handles.

A group's total gap compares its outputs with the reference. Its introduced gap compares them with its operators,
evaluated on the runtime's inputs, weights, and values of other groups. If one is unknown, the row names it.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from etviz.comparison.gap import CARRIED, CREATED, LOST, ExecutionGaps, Gap, Keeper
from etviz.comparison.hypotheses import explain_gaps
from etviz.comparison.judging import judge_introduced
from etviz.comparison.measurement import add_gap, add_introduced, as_tensor
from etviz.comparison.undetermined import is_ill_defined, may_be_ill_defined
from etviz.evaluation import dynamic_quantization as dynamic
from etviz.evaluation.evaluator import Again, Evaluator
from etviz.evaluation.operator_rules import UNSET
from etviz.evaluation.replay import logged_outputs
from etviz.evaluation.values import Value, flat_values
from etviz.graph.ir import Node, Ref
from etviz.graph.quantize_ops import chooses_grid, output_scales
from etviz.pairing.handles import Cut, HandleGroups, HandleMatch, logged_by_itself
from etviz.tensors.custom_metrics import CustomMetrics
from etviz.tensors.finite import has_nonfinite

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from etviz.artifacts.etdump.runtime_log import RuntimeLog

_UNKNOWN: Final = "what it introduced is not known: "


def compare_by_handles(
    evaluator: Evaluator,
    groups: HandleGroups,
    logs: Sequence[RuntimeLog],
    inputs: Sequence[Any],
    *,
    run: int = 0,
    keeper: Keeper | None = None,
    introduced: bool = True,
    custom: CustomMetrics | None = None,
) -> list[ExecutionGaps]:
    scales, share = output_scales(groups.edge), {"keeper": keeper or Keeper(), "custom": custom or CustomMetrics()}
    share |= {"readers": groups.readers["user"]}
    results = [
        ExecutionGaps(
            run=run + at,
            reasons=dict(groups.reasons),
            output_scales=list(scales),
            followers={kind: set().union(*by_name.values()) for kind, by_name in groups.readers.items()},
            **share,
        )
        for at in range(len(logs))
    ]
    executions = [
        _GroupedExecution(evaluator, log, inputs, groups, result, introduced)
        for result, log in zip(results, logs, strict=True)
    ]

    def see(node: Node, value: Value) -> None:
        for execution in executions:
            execution.see(node, value)

    outputs = evaluator.run(inputs, see)
    for log, result in zip(logs, results, strict=True):
        result.reference_outputs, result.runtime_outputs = list(outputs), log.outputs()
        _finish(result, groups)
    return results


def _finish(result: ExecutionGaps, groups: HandleGroups) -> None:
    result.gaps.sort(key=lambda gap: (gap.instruction, gap.output))
    compared = {gap.instruction for gap in result.gaps}
    made = (match.group.instructions for match in groups.matches if match.instruction in compared)
    result.grouped = {instruction for group in made for instruction in group} - compared
    for instruction in groups.nodes:
        if instruction not in compared:
            missing = "it has no debug handle" if instruction not in groups.handled else "its value could not be paired"
            result.reasons.setdefault(instruction, missing)


class _GroupedExecution:
    def __init__(
        self,
        evaluator: Evaluator,
        log: RuntimeLog,
        inputs: Sequence[Any],
        groups: HandleGroups,
        result: ExecutionGaps,
        introduced: bool,
    ) -> None:
        self._evaluator, self._log, self._groups = evaluator, log, groups
        self._result, self._introduced = result, introduced
        self._given = {item.name: value for item, value in zip(groups.edge.user_inputs(), inputs, strict=False)}
        self._paired: set[str] = set()
        self._nonfinite: dict[str, bool] = {}
        self._held: dict[str, Any] = {}
        self._uses = Counter(name for match in groups.matches for name in self._needed(match))

    def see(self, node: Node, value: Value) -> None:
        if not self._uses[node.name] or node is not self._groups.node(node.name):
            return  # a branch may have nodes of the same name
        self._held[node.name] = next(iter(flat_values(value.reference)), None)
        match, _ = self._groups.makers.get(node.name, (None, 0))
        if match is None or not all(name in self._held for name in match.values):
            return
        self._compare(match)
        for name in self._needed(match):
            self._uses[name] -= 1
            if not self._uses[name]:
                self._held.pop(name, None)

    def _needed(self, match: HandleMatch) -> list[str]:
        cut = self._groups.cuts.get(match.instruction)
        return [*match.values, *(cut.reads if cut is not None and self._chooses_scales(cut) else ())]

    def _chooses_scales(self, cut: Cut) -> bool:
        node = self._groups.nodes[cut.match.instruction]
        return node.target == "delegate" and dynamic.is_dynamic(cut.graph)

    def _compare(self, match: HandleMatch) -> None:
        node, result = self._groups.nodes[match.instruction], self._result
        logged = logged_outputs(self._log, node, len(match.values))
        if logged is None:
            result.reasons[match.instruction] = "the runtime logged another number of values than its group has"
            return
        cut = self._groups.cuts.get(match.instruction)
        scales = self._scales(match, cut)
        gaps: list[Gap] = []
        targets = frozenset(operator.target for operator in (cut.graph.nodes if cut is not None else ()))
        for output, name in enumerate(match.values):
            expected = self._held[name]
            gap = add_gap(result, node, output, logged[output], expected, scales[output], "handles")
            if gap is None:
                continue
            gaps.append(gap)
            gap.source = name, 0
            gap.operators = targets
            self._nonfinite[name] = gap.total.runtime_is_nonfinite
            if gap.runtime.dtype == getattr(as_tensor(expected), "dtype", None):
                self._paired.add(name)
        if gaps:
            self._explain(gaps, match, cut, scales)

    def _scales(self, match: HandleMatch, cut: Cut | None) -> list[float | None]:
        metas = [self._groups.meta(name) for name in match.values]
        scales = [meta.scale if meta is not None else None for meta in metas]
        if cut is None or not self._chooses_scales(cut):
            return scales
        args = [self._held[name] if name in self._held else self._at_start(name) for name in cut.reads]
        steps = dynamic.steps(
            self._evaluator.call, dynamic.OtherGrids.of(cut.graph), args, [self._held[name] for name in match.values]
        )
        outputs = self._groups.edge.outputs
        for position, out in enumerate(outputs):
            if isinstance(out, Ref) and out.name in match.values:
                known = self._result.output_scales[position]
                self._result.output_scales[position] = known or steps[match.values.index(out.name)]
        return [step or scale for step, scale in zip(steps, scales, strict=True)]

    def _at_start(self, name: str) -> Any:
        buffer = self._groups.buffer(name)
        if not buffer:
            return self._given.get(name)
        return self._evaluator.state.get(buffer, self._evaluator.constants.get(buffer))

    def _explain(
        self, gaps: Sequence[Gap], match: HandleMatch, cut: Cut | None, scales: Sequence[float | None]
    ) -> None:
        if cut is None:
            values, problem = {}, "its group has branches"
        else:
            cut, values, problem = self._known(cut)
            if any(node.target in UNSET for node in cut.graph.nodes):
                problem = problem or "it takes memory to which nothing was written"
            for kind, names in self._groups.inputs.items():
                if not names.isdisjoint(cut.reads):
                    self._result.followers[kind].add(match.instruction)
            together = cut.together if self._introduced else ""
            chosen = dynamic.note(cut.graph) if self._chooses_scales(cut) else ""
            for gap in gaps:
                gap.note = "; ".join(filter(None, (together, chosen if scales[gap.output] else "")))
        if cut is None or problem:
            for gap in gaps if self._introduced else ():
                gap.introduced_problem = f"{_UNKNOWN}{problem}"
            return
        before = any(self._has_nonfinite(name, value) for name, value in values.items())
        after = any(self._nonfinite[name] for name in match.values if name in self._nonfinite)
        for gap in gaps:
            gap.non_finite = (CARRIED if before else CREATED) if after else LOST if before else ""
        if self._introduced:
            self._introduce(gaps, cut, values, scales)
        if (before or any(gap.is_bad() for gap in gaps)) and not all(gap.is_exact() for gap in gaps):
            again = partial(self._evaluator.call_again, cut.graph, list(values.values()))
            if any(may_be_ill_defined(cut.graph, node, nan=True) for node in cut.graph.nodes) and is_ill_defined(again):
                self._result.ill_defined.add(match.instruction)
                self._result.nonfinite_inputs = tuple(name for name, item in self._given.items() if has_nonfinite(item))

    def _introduce(
        self, gaps: Sequence[Gap], cut: Cut, values: Mapping[str, Any], scales: Sequence[float | None]
    ) -> None:
        on_reference = all(self._is_references(name) for name in cut.reads)
        if on_reference:
            for gap in gaps:
                gap.inherit()
            if all(gap.is_exact() for gap in gaps):
                return
        args, sizing = list(values.values()), self._evaluator.sizing(cut.graph)
        try:
            results = self._evaluator.call_again(cut.graph, args, sizing)
        except Exception as error:  # noqa: BLE001 - any operator may fail in its own way on wrong values
            for gap in gaps:
                gap.introduced_problem = f"its operators fail on the runtime's inputs: {error}"
            return
        for gap in () if on_reference else gaps:
            local = next(iter(flat_values(results[gap.output])), None)
            if reason := add_introduced(self._result, gap, local, scales[gap.output]):
                gap.introduced_problem = f"{_UNKNOWN}{reason}"
        again = Again(self._evaluator, cut.outer, cut.outer.nodes[0], args, {})
        plain = [next(iter(flat_values(result)), None) for result in results]
        once = self._evaluator.rounds_once(cut.graph)
        law, least = (partial(sizing.noise, plain), None) if once else (None, partial(sizing.of_output, plain))
        judge_introduced(gaps, law, again, plain, least)
        explain_gaps(self._result, gaps, cut.graph, cut.graph.nodes, again, plain)

    def _known(self, cut: Cut) -> tuple[Cut, dict[str, Any], str]:
        values, missing = self._read(cut)
        wider: Cut | None = cut
        read = values, missing
        while read[1] and wider is not None:
            wider = self._groups.widened(wider, read[1])
            read = self._read(wider) if wider is not None else read
        problem = next(iter(missing.values()), "")
        if wider is None:
            return cut, values, problem
        names = {node.name for node in cut.graph.nodes}
        if any(chooses_grid(node) for node in wider.graph.nodes if node.name not in names):
            return cut, values, f"{problem}, and which chooses a grid when it runs"
        return wider, read[0], ""

    def _read(self, cut: Cut) -> tuple[dict[str, Any], dict[str, str]]:
        logged = logged_by_itself(self._groups, cut, self._log)
        inputs: dict[str, Any] = {}
        missing: dict[str, str] = {}
        for name in cut.reads:
            if self._is_references(name):
                inputs[name] = self._at_start(name)
            elif name in self._paired:
                match, output = self._groups.makers[name]
                values = logged_outputs(self._log, self._groups.nodes[match.instruction], len(match.values))
                inputs[name] = values[output] if values is not None else None
            elif name in logged:
                inputs[name] = logged[name]
            elif buffer := self._groups.buffer(name):
                missing[name] = f"its group reads the buffer {buffer}, which earlier executions have changed"
            else:
                missing[name] = f"its group reads {name}, {self._groups.origin(name)}"
        return inputs, missing

    def _is_references(self, name: str) -> bool:
        buffer = self._groups.buffer(name)
        return name in self._given or (bool(buffer) and buffer not in self._evaluator.state)

    def _has_nonfinite(self, name: str, value: Any) -> bool:
        if name not in self._nonfinite:
            self._nonfinite[name] = has_nonfinite(value)
        return self._nonfinite[name]
