"""What a gap is judged by: the noise of its value, by law or measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from etviz.comparison.final_outputs import compare_outputs
from etviz.comparison.gap import WRONG
from etviz.errors import EtvizError
from etviz.evaluation.noise import Growth, Samples, larger, propagated, quantizes, total_noise
from etviz.graph.ir import Ref
from etviz.graph.labels import node_label
from etviz.graph.quantize_ops import chooses_grid, is_quantize
from etviz.tensors.metrics import AT_LEAST, MEASURED, NAN, UNKNOWN, Noise, floor

if TYPE_CHECKING:
    from etviz.comparison.gap import ExecutionGaps, Gap
    from etviz.evaluation.evaluator import Evaluator
    from etviz.evaluation.values import Perturbation
    from etviz.graph.ir import Graph, Node

_PERTURBED: Final = "severity is relative to measured noise: the operators ran again with other roundings"
_GROWS: Final = 3.0
_FAILED: Final = "its noise could not be measured, so severity is relative to one rounding: "

Judge = Callable[["Sequence[ExecutionGaps]", "Sequence[Sequence[Any]]", "Callable[[], Evaluator]"], None]
"""Judges the total gaps of executions; takes what `judge_totals` takes."""


def judge_introduced(
    gaps: Sequence[Gap],
    law: Callable[[], list[Noise]] | None,
    again: Callable[[Perturbation], Any] | Sequence[Any] | None,
    value: Any,
) -> None:
    """Judge what one instruction, or several together, introduced by its noise.

    Parameters
    ----------
    law
        Gives the noise of each output by law; None where several operators follow one another.
    again
        Computes the instruction on the same inputs with another rounding, or the results of that; None if neither is
        known. Then, and where the error is within the lower bound of the noise, the bound is all that is needed.
    """
    gaps = [gap for gap in gaps if gap.introduced is not None and gap.introduced["rmse"] > 0]
    doubtful = [gap for gap in gaps if law is not None or not _bounded(gap)]
    if not doubtful:
        return
    try:
        if law is not None:
            noises, note = law(), ""
        else:
            noises, note = (propagated(again, value) if again else []), _PERTURBED
    except Exception as error:  # noqa: BLE001 - an operator may fail on perturbed values in its own way
        for gap in doubtful:
            gap.set_introduced_noise(_least(gap))
            gap.add_note(f"{_FAILED}{error}")
        return
    for gap in doubtful:
        noise = noises[gap.output] if gap.output < len(noises) else UNKNOWN
        if law is None or is_quantize(gap.node):
            noise = max(noise, gap.on_its_grid) if not math.isnan(noise) else _least(gap)
        gap.set_introduced_noise(noise)
        if note and noises:
            gap.add_note(note)


def _least(gap: Gap) -> Noise:
    return Noise(floor(gap.introduced_sums, gap.dtype, gap.scale) if gap.introduced_sums else NAN, AT_LEAST)


def _bounded(gap: Gap) -> bool:
    gap.set_introduced_noise(_least(gap))
    return not gap.is_suspicious(introduced=True)


def judge_totals(
    comparisons: Sequence[ExecutionGaps], inputs: Sequence[Sequence[Any]], fresh: Callable[[], Evaluator]
) -> None:
    """Judge total gaps and final outputs by their noise.

    A gap that one rounding of its value explains needs no more; the noise of all others is measured. What instructions
    introduced tells nothing of it: errors that share a sign add up where noise cancels.

    Parameters
    ----------
    fresh
        Makes an evaluator of the reference in the initial state.
    """
    samples = [item.samples for item in comparisons]
    for item in comparisons:
        item.samples = None
    suspicious = [(run, gap) for run, item in enumerate(comparisons) for gap in item.gaps if _is_suspicious(gap)]
    differing = [run for run, item in enumerate(comparisons) if not _outputs_match(item)]
    if not suspicious and not differing:
        return
    evaluator = fresh()
    places, different = _different(inputs) if evaluator.independent else (range(len(inputs)), inputs)
    known = _joined(samples, places)
    growth = {places[run]: Growth() for run in differing}
    growth |= {at: own for at in growth if at in known and (own := known[at].growth) is not None}
    values = [(places[run], gap.source[0], gap) for run, gap in suspicious]
    outputs = measure_totals(values, different, fresh, growth, known)
    if outputs is None:
        return
    graph = evaluator.graph
    names = [out.name if isinstance(out, Ref) else "" for out in graph.outputs]
    for run in differing:
        own = growth[places[run]]
        comparisons[run].output_noise, comparisons[run].output_imposed = outputs[places[run]], own.imposed
        comparisons[run].grows_at = [_growth(graph, own.stage(graph, name)) for name in names]


def settle(item: ExecutionGaps) -> None:
    """Judge the total gaps that the samples of an execution explain; keep only the samples that are needed later."""
    if item.samples is None:
        return
    differ = not _outputs_match(item)
    for gap in filter(_is_suspicious, item.gaps if not differ else ()):
        noise = item.samples.explained(gap.source, gap.metrics["rmse"])
        if noise is not None:
            _set_total(gap, noise)
    left = {gap.source for gap in item.gaps if _is_suspicious(gap)}
    item.samples = item.samples.kept(left, outputs=differ)


def _joined(samples: Sequence[Samples | None], places: Sequence[int]) -> dict[int, Samples]:
    joined: dict[int, Samples] = {}
    for own, at in zip(samples, places, strict=True):
        if own is None:
            return {}
        joined[at] = joined[at].joined(own) if at in joined else own
    return joined


def _set_total(gap: Gap, noise: Noise) -> None:
    if chooses_grid(gap.node):  # a zero point seldom moves in a few evaluations
        noise = larger(noise, gap.introduced_noise)
    gap.set_noise(larger(noise, gap.noise))
    gap.add_note(_PERTURBED)


def _different(inputs: Sequence[Sequence[Any]]) -> tuple[Sequence[int], list[Sequence[Any]]]:
    keys = [tuple(map(id, given)) for given in inputs]
    different = dict(zip(keys, inputs, strict=True))
    places = {key: at for at, key in enumerate(different)}
    return [places[key] for key in keys], list(different.values())


def measure_totals(
    values: Sequence[tuple[int, str, Gap]],
    inputs: Sequence[Sequence[Any]],
    fresh: Callable[[], Evaluator],
    growth: Mapping[int, Growth] | None = None,
    samples: Mapping[int, Samples] | None = None,
) -> list[list[Noise]] | None:
    """Judge some total gaps by measured noise; returns that of the final outputs, None where it can't be measured.

    `values` are the execution, the node of the graph that `fresh` evaluates, and the gap; the rest is as for
    `total_noise`.
    """
    try:
        names = [(run, name) for run, name, _ in values]
        errors: dict[tuple[int, str, int], float] = {}
        for run, name, gap in values:
            key = run, name, gap.source[1]
            errors[key] = max(errors.get(key, 0.0), gap.metrics["rmse"])
        noise, outputs = total_noise(fresh, inputs, names, growth, None if growth else errors, samples)
    except EtvizError as error:
        for _, _, gap in values:
            gap.add_note(f"{_FAILED}{error}")
        return None
    _set_totals(values, noise)
    left = [item for item in values if _is_suspicious(item[2])]
    if left and quantizes(fresh().graph):  # one flip of a rare tie may be all of an error
        with suppress(EtvizError):  # an index may leave its range: then what was measured stands
            noise, others = total_noise(fresh, inputs, [(run, name) for run, name, _ in left], ties=True)
            _set_totals(left, noise)
            outputs = [[*map(larger, *both)] for both in zip(outputs, others, strict=True)]
    return outputs


def _set_totals(values: Sequence[tuple[int, str, Gap]], noise: Mapping[tuple[int, str, int], Noise]) -> None:
    for run, name, gap in values:
        measured = noise.get((run, name, gap.source[1]))
        if measured is not None:
            _set_total(gap, measured)


@dataclass(frozen=True, slots=True)
class KnownNoise:
    """Noise that was measured on a few inputs, for all others: as multiples of one rounding.

    The multiple depends on the operators, one rounding on the size of an input's values, or on their grid.

    Attributes
    ----------
    values
        By node of the reference and output.
    """

    values: Mapping[tuple[str, int], float] = field(default_factory=dict)
    outputs: Mapping[int, float] = field(default_factory=dict)

    @classmethod
    def measured(
        cls, comparisons: Sequence[ExecutionGaps], inputs: Sequence[Sequence[Any]], fresh: Callable[[], Evaluator]
    ) -> KnownNoise:
        """Measure all values of some executions, one by one; an execution that can't be evaluated is left out."""
        values: dict[tuple[str, int], list[float]] = {}
        outputs: dict[int, list[float]] = {}
        for item, given in zip(comparisons, inputs, strict=True):
            gaps = [gap for gap in item.gaps if not gap.unpaired]
            try:
                noise, (own,) = total_noise(fresh, [given], [(0, gap.source[0]) for gap in gaps])
            except EtvizError:
                continue
            for gap in gaps:
                own_noise = noise.get((0, *gap.source), NAN)
                _add_ratio(values, gap.source, own_noise, floor(gap.total, gap.dtype, gap.scale))
            for at, row in enumerate(_output_rows(item)):
                _add_ratio(outputs, at, own[at] if at < len(own) else NAN, row["floor"])
        known = {key: _rms(ratios) for key, ratios in values.items()}
        return cls(known, {at: _rms(ratios) for at, ratios in outputs.items()})

    def judge(
        self, comparisons: Sequence[ExecutionGaps], inputs: Sequence[Sequence[Any]], fresh: Callable[[], Evaluator]
    ) -> None:
        """As `judge_totals`, one execution after another; what is not known is measured."""
        for item, given in zip(comparisons, inputs, strict=True):
            suspicious = [gap for gap in item.gaps if _is_suspicious(gap)]
            rows = _output_rows(item)
            differ = not _outputs_match(item)
            if not all(gap.source in self.values for gap in suspicious) or (differ and len(rows) != len(self.outputs)):
                judge_totals([item], [given], fresh)
                continue
            for gap in suspicious:
                least = floor(gap.total, gap.dtype, gap.scale)
                gap.set_noise(Noise(self.values[gap.source] * least, MEASURED))
            if differ:
                item.output_noise = [Noise(self.outputs[at] * row["floor"], MEASURED) for at, row in enumerate(rows)]


def _add_ratio(ratios: dict[Any, list[float]], key: Any, noise: float, least: float) -> None:
    if math.isfinite(noise) and least > 0:
        ratios.setdefault(key, []).append(noise / least)


def _rms(ratios: Sequence[float]) -> float:
    return math.sqrt(math.fsum(ratio * ratio for ratio in ratios) / len(ratios))


def is_doubtful(item: ExecutionGaps) -> bool:
    """True if the lower bound of its noise does not explain a total gap or a final output of an execution."""
    return any(map(_is_suspicious, item.gaps)) or not _outputs_match(item)


def _growth(graph: Graph, stage: tuple[Node, float] | None) -> str:
    if stage is None or stage[1] < _GROWS:
        return ""
    node, factor = stage
    label = node_label(graph, node)
    where = f"instruction {node.instruction} ({label})" if node.instruction >= 0 else label
    return f"in {where}, {factor:,.3g} times"


def _is_suspicious(gap: Gap) -> bool:
    return not gap.unpaired and gap.is_suspicious(introduced=False)


def is_calm(item: ExecutionGaps) -> bool:
    """True if there is nothing to blame an operator for."""
    wrong = any(gap.status in WRONG or gap.uncounted or gap.is_suspicious(introduced=True) for gap in item.gaps)
    return not wrong and not any(map(_is_suspicious, item.gaps)) and _outputs_match(item)


def _outputs_match(item: ExecutionGaps) -> bool:
    return all(row.get("matches", True) is not False for row in _output_rows(item))


def _output_rows(item: ExecutionGaps) -> list[dict[str, Any]]:
    return compare_outputs(item.reference_outputs, item.runtime_outputs, item.output_scales)
