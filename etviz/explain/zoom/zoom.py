"""Zooms into delegate calls and compares their inner values as the values of a program.

If the delegate runs again, the reference is its subgraph on the call's runtime inputs: nothing is inherited from
outside. If the run itself logged the values, the reference starts at the program's inputs.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from etviz.comparison.exact import compare_exact
from etviz.comparison.gap import MISMATCH, ExecutionGaps, Gap, Keeper
from etviz.comparison.hypotheses import in_precision
from etviz.comparison.input_checks import Entrance
from etviz.comparison.judging import judge_totals, measure_totals
from etviz.comparison.references import KEPT_BYTES
from etviz.evaluation.evaluator import Evaluator, Scope
from etviz.evaluation.replay import Execution, Replay, question
from etviz.evaluation.spill import SpillFile
from etviz.evaluation.values import Value
from etviz.explain.attribution.linearize import same
from etviz.explain.zoom.inner_values import How, InnerValues, ZoomSubject, inner_values
from etviz.explain.zoom.piece import Watcher
from etviz.graph.inline import inline
from etviz.graph.ir import Graph, Node
from etviz.graph.labels import short_operator
from etviz.graph.uses import operators
from etviz.pipeline.interpreters import emulated_by
from etviz.pipeline.relower import Piece, alterations
from etviz.tensors.custom_metrics import CustomMetrics
from etviz.tensors.digest import same_bits
from etviz.tensors.fingerprints import Fingerprint
from etviz.tensors.metrics import MEASURED, UNKNOWN, Noise

if TYPE_CHECKING:
    import torch

Call = tuple[int, int]
"""A delegate call: number of the execution, and of the instruction."""
_NAMED: Final = 3
_NOT_REACHED: Final = "the reference does not reach this call, so there is nothing to compare with"


@dataclass(slots=True)
class Zoom:
    """One delegate call, compared as a program is; `causes` are by output, if the run computed in another precision."""

    graph: Graph
    comparison: ExecutionGaps
    replay: Replay
    faithful: bool | None
    deviation: float
    message: str
    notes: tuple[str, ...] = ()
    logged: bool = False
    causes: tuple[Fingerprint | None, ...] = ()


def compare_calls(replay: Replay, subjects: Mapping[Call, ZoomSubject], how: How) -> dict[Call, Zoom]:
    judged = {call for call, zoomed in subjects.items() if zoomed.logged is not None and not zoomed.unjudged}
    arrived = _arrivals(replay, judged) if judged else {}
    zooms: dict[Call, Zoom] = {}
    for call, subject in subjects.items():
        start = arrived.get(call, subject.unjudged or _NOT_REACHED) if subject.logged is not None else None
        zooms[call] = compare_inside(replay, subject, inner_values(subject, how), start)
        if not zooms[call].logged:
            _name_alterations(zooms[call], subject, how)
    _measure_total_noise(replay, {call: zoom for call, zoom in zooms.items() if zoom.logged})
    return zooms


def compare_inside(
    replay: Replay, subject: ZoomSubject, inner: InnerValues, start: Sequence[Any] | str | None = None
) -> Zoom:
    """`start` is the reference's inputs of the call, or why they are not known: then there are no total gaps.

    None starts the reference at the runtime's inputs.
    """
    runtime_inputs, piece = subject.inputs, subject.piece
    inputs = runtime_inputs if start is None or isinstance(start, str) else start
    one = replay.piece(inner.graph, piece.constants, [Execution(inputs, inner)])
    comparison = _compared(one, runtime_inputs, subject.custom, measured=start is None)
    for gap in comparison.gaps:
        gap.add_note(emulated_by(inner.implementation) if inner.implementation else "")
        gap.add_note(f"computed in float32, the run in {inner.precision}" if inner.precision else "")
    compared = {gap.instruction for gap in comparison.gaps}
    for instruction, reason in inner.reasons.items():
        if instruction >= 0 and instruction not in compared:
            comparison.reasons[instruction] = reason
    comparison.grouped |= {at for at, owner in inner.parts.items() if at not in compared and owner in compared}
    if isinstance(start, str):
        Entrance(Graph(inner.graph.name)).forget_totals(comparison, start)
    notes = (*_other_constants(piece, runtime_inputs), *inner.notes)
    fidelity = inner.faithful, inner.deviation, inner.message
    causes = tuple(_precisions(comparison, subject, inner)) if inner.precision else ()
    return Zoom(inner.graph, comparison, one, *fidelity, notes, inner.logged, causes)


def _precisions(comparison: ExecutionGaps, subject: ZoomSubject, inner: InnerValues) -> Iterator[Fingerprint | None]:
    for values in zip(comparison.reference_outputs, subject.piece.outputs, inner.results, strict=True):
        yield in_precision(inner.precision, *values)


@question
def _compared(replay: Replay, runtime: Sequence[Any], custom: CustomMetrics | None, *, measured: bool) -> ExecutionGaps:
    (execution,) = replay.executions
    fresh = partial(_Arriving, replay.graph, replay.constants, runtime)
    kept = Keeper(KEPT_BYTES)
    comparison = compare_exact(fresh(), execution.log, execution.inputs, keeper=kept, custom=custom)
    if measured:
        judge_totals([comparison], [execution.inputs], fresh)
    return comparison


class _Arriving(Evaluator):
    def __init__(self, graph: Graph, constants: Mapping[str, torch.Tensor], runtime: Sequence[Any]) -> None:
        super().__init__(graph, constants)
        self._runtime = runtime

    def second_lane(self, env: Mapping[str, Any]) -> dict[str, Any]:
        given = zip(self.graph.user_inputs(), self._runtime, strict=True)
        return {**env, **{item.name: value for item, value in given if not same(env[item.name], value, same_bits)}}


@question
def _arrivals(replay: Replay, calls: Collection[Call]) -> dict[Call, list[Any]]:
    arrived: dict[Call, list[Any]] = {}
    run = 0

    def see(node: Node, scope: Scope, value: Value) -> None:
        if (run, node.instruction) in calls:
            given = evaluator.arguments(scope.env, node)[0]
            arrived[run, node.instruction] = [file.put(v) if hasattr(v, "detach") else v for v in given]

    evaluator = Watcher(replay.fresh(), {instruction for _, instruction in calls}, see)
    with SpillFile() as file:
        for run in range(max(run for run, _ in calls) + 1):
            evaluator.run(replay.executions[run].inputs)
    return arrived


def _measure_total_noise(replay: Replay, zooms: Mapping[Call, Zoom]) -> None:
    suspicious = {
        (call, gap.source[0]): gap
        for call, zoom in zooms.items()
        for gap in zoom.comparison.gaps
        if not gap.unpaired and gap.is_suspicious(introduced=False)
    }
    if not suspicious:
        return
    found = _noise(replay, [(call, gap) for (call, _), gap in suspicious.items()])
    for gap, (noise, note) in zip(suspicious.values(), found, strict=True):
        if noise is not None:
            gap.set_noise(Noise(noise, MEASURED))
        gap.add_note(note)


@question
def _noise(replay: Replay, gaps: Sequence[tuple[Call, Gap]]) -> list[tuple[float | None, str]]:
    flat = inline(replay.graph)
    copies = [(call, replace(gap, note="", noise=UNKNOWN, metrics=dict(gap.metrics))) for call, gap in gaps]
    inside = flat.inside
    wanted = [(call[0], f"{inside[call[1]]}{gap.source[0]}", gap) for call, gap in copies if call[1] in inside]

    def fresh() -> Evaluator:
        whole = replay.fresh()
        return Evaluator(flat.graph, whole.constants, whole.limits)

    measure_totals(wanted, [execution.inputs for execution in replay.executions], fresh)
    return [(None if math.isnan(gap.noise) else gap.noise, gap.note) for _, gap in copies]


def _other_constants(piece: Piece, inputs: Sequence[Any]) -> Iterator[str]:
    for item, wanted, runtime in zip(piece.graph.user_inputs(), inputs, piece.inputs, strict=True):
        if wanted is not runtime and not same_bits(wanted, runtime):
            small = f": {runtime.item():.6g}, not {wanted.item():.6g}" if wanted.numel() == runtime.numel() == 1 else ""
            yield f"The runtime's {item.name}, a constant that the delegate reads, differs from the reference's{small}."


def _name_alterations(zoom: Zoom, subject: ZoomSubject, how: How) -> None:
    gaps = zoom.comparison.gaps
    wrong = any(gap.status == MISMATCH or gap.is_suspicious(introduced=True) for gap in gaps)
    doubtful = wrong or bool(subject.constants) or zoom.faithful is False
    altered = alterations(subject.piece, how.timeout, how.cancel) if doubtful else []
    nodes = {node.name: node for node in operators(zoom.graph.nodes)}
    named = []
    for name, what in altered:
        node = nodes.get(name)
        named.append(f"{node.origin or short_operator(node.target) if node is not None else name} ({what})")
        for gap in gaps:
            if node is not None and gap.instruction == node.instruction:
                gap.add_note(f"the program that ran has {what}")
    if named:
        rest = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
        text = f"The delegate in the .pte differs from the reference's: {', '.join(named[:_NAMED])}{rest}."
        zoom.notes = (*zoom.notes, text)
