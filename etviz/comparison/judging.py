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
from etviz.evaluation.earlier import FIRST, K, Multiples
from etviz.evaluation.evaluator import Again
from etviz.evaluation.noise import Growth, Samples, Spread, larger, propagated, quantizes, total_noise
from etviz.evaluation.values import Chain
from etviz.graph.ir import Ref
from etviz.graph.labels import node_label
from etviz.graph.quantize_ops import chooses_grid, is_quantize
from etviz.tensors.metrics import AT_LEAST, MEASURED, NAN, THRESHOLD, UNKNOWN, Noise, floor

if TYPE_CHECKING:
    from etviz.comparison.gap import ExecutionGaps, Gap
    from etviz.evaluation.evaluator import Evaluator
    from etviz.evaluation.values import Perturbation
    from etviz.graph.ir import Graph, Node

_PERTURBED: Final = "severity is relative to measured noise: the operators ran again with other roundings"
_EARLIER: Final = "severity is relative to the noise that earlier executions had"
_GROWS: Final = 3.0
_FAILED: Final = "its noise could not be measured, so severity is relative to one rounding: "

Judge = Callable[["Sequence[ExecutionGaps]", "Sequence[Sequence[Any]]", "Callable[[], Evaluator]"], None]
"""Judges the total gaps of executions; takes what `judge_totals` takes."""


def judge_introduced(
    gaps: Sequence[Gap],
    law: Callable[[], list[Noise]] | None,
    again: Callable[[Perturbation], Any] | Chain | None,
    value: Any,
    least: Callable[[int], Noise] | None = None,
) -> None:
    """Judge what one instruction, or several together, introduced by its noise.

    Parameters
    ----------
    law
        Gives the noise of each output by law; None where several operators follow one another.
    again
        Computes the instruction on the same inputs with another rounding, or has the results of that; None if unknown.
    least
        Gives a lower bound for an output, as one rounding is; a bound that explains the error suffices.
    """
    gaps = [gap for gap in gaps if gap.introduced is not None and gap.introduced["rmse"] > 0]
    doubtful = [gap for gap in gaps if law is not None or not _bounded(gap)]
    if doubtful and least is not None:
        with suppress(Exception):  # an operator may fail on these values in its own way
            doubtful = [gap for gap in doubtful if not _bounded(gap, least(gap.output))]
    if not doubtful:
        return
    earlier, key = (again.earlier, again.key) if law is None and isinstance(again, (Again, Chain)) else (None, 0)
    if earlier is not None and _is_explained(doubtful, earlier, key):
        return
    try:
        if law is not None:
            noises, note = law(), ""
        else:
            others = again.others() if isinstance(again, Chain) else again
            noises, note = (propagated(others, value) if others else []), _PERTURBED
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
            if earlier is not None:
                earlier.add((key, gap.output), noise, _least(gap))


def _is_explained(gaps: Sequence[Gap], earlier: Multiples[tuple[int, int]], key: int) -> bool:
    for gap in gaps:
        gap.set_introduced_noise(earlier.noise((key, gap.output), _least(gap)))
    explained = not any(math.isnan(gap.introduced_noise) or gap.is_suspicious(introduced=True) for gap in gaps)
    for gap in gaps if explained else ():
        gap.add_note(_EARLIER)
    return explained


def _least(gap: Gap) -> Noise:
    return Noise(floor(gap.introduced_sums, gap.dtype, gap.scale) if gap.introduced_sums else NAN, AT_LEAST)


def _bounded(gap: Gap, noise: Noise = UNKNOWN) -> bool:
    gap.set_introduced_noise(larger(Noise(noise, AT_LEAST), _least(gap)))
    return not gap.is_suspicious(introduced=True)


def judge_totals(
    comparisons: Sequence[ExecutionGaps], inputs: Sequence[Sequence[Any]], fresh: Callable[[], Evaluator]
) -> None:
    """Judge total gaps and final outputs by their noise.

    A gap that one rounding of its value explains needs no more; the noise of others is measured.

    Parameters
    ----------
    fresh
        Makes an evaluator of the reference in the initial state.
    """
    samples = [comparison.samples for comparison in comparisons]
    for comparison in comparisons:
        comparison.samples = None
    suspicious = [(run, gap) for run, item in enumerate(comparisons) for gap in item.gaps if _is_suspicious(gap)]
    differing = [run for run, item in enumerate(comparisons) if not _outputs_match(item, item.output_noise)]
    if not suspicious and not differing:
        return
    last = max(differing + [run for run, _ in suspicious]) + 1
    samples, inputs = samples[:last], inputs[:last]
    evaluator = fresh()
    places, different = _different(inputs) if evaluator.independent else (range(len(inputs)), inputs)
    known = _joined(samples, places)
    growth = {places[run]: Growth() for run in differing}
    growth |= {at: grown for at in growth if at in known and (grown := known[at].growth) is not None}
    values = [(places[run], gap.source[0], gap) for run, gap in suspicious]
    outputs = measure_totals(values, different, fresh, growth, known)
    if outputs is None:
        return
    graph = evaluator.graph
    names = [out.name if isinstance(out, Ref) else "" for out in graph.outputs]
    for run in differing:
        grown = growth[places[run]]
        comparisons[run].output_noise, comparisons[run].output_imposed = outputs[places[run]], grown.imposed
        comparisons[run].grows_at = [_growth(graph, grown.stage(graph, name)) for name in names]


class EarlierNoise:
    """Settles executions in turn; what the first ones had is the noise of later ones.

    Attributes
    ----------
    lacking
        Number of executions to measure before that; None then.
    is_enough
        Whether it explains the first ones. If not, all are measured.
    """

    def __init__(self) -> None:
        self.introduced: Multiples[tuple[int, int]] = Multiples()
        self._values: Multiples[tuple[str, int]] = Multiples()
        self._outputs: Multiples[int] = Multiples()
        self.lacking: int | None = FIRST
        self.is_enough = False
        self._first: list[ExecutionGaps] = []
        self._samples: Samples | None = None

    def settle(self, comparison: ExecutionGaps) -> None:
        """Judge the total gaps that known noise explains; keep only the samples that are needed later."""
        samples = comparison.samples
        if samples is None:
            if self.lacking is None:
                self._explain(comparison)
            return
        if self.lacking is not None and samples is not self._samples:  # executions on the same inputs share them
            self._begin(comparison, samples)
        differ = not _outputs_match(comparison)
        for gap in filter(_is_suspicious, comparison.gaps if not differ else ()):
            noise = samples.explained(gap.source, gap.metrics["rmse"])
            if noise is not None:
                _set_total(gap, noise)
        left = {gap.source for gap in comparison.gaps if _is_suspicious(gap)}
        comparison.samples = samples.kept(left, outputs=differ)

    def _begin(self, comparison: ExecutionGaps, samples: Samples) -> None:
        """Learn from the execution before: nobody asks what the only one had."""
        if self._samples is not None:
            self._learn(self._first[-1], self._samples)
        self._first.append(comparison)
        self._samples = samples
        if len(self._first) == FIRST:
            self._learn(comparison, samples)
            self.lacking, self.is_enough = None, all(map(self._explains, self._first))

    def _learn(self, comparison: ExecutionGaps, samples: Samples) -> None:
        for gap in comparison.gaps:
            if not gap.unpaired and gap.source in samples.values:
                _take(self._values, gap.source, samples.values[gap.source], _rounding(gap))
        for at, (spreads, row) in enumerate(zip(samples.outputs, _output_rows(comparison), strict=False)):
            _take(self._outputs, at, spreads, row["floor"])

    def _explain(self, comparison: ExecutionGaps) -> None:
        for gap in filter(_is_suspicious, comparison.gaps):
            if self._explains_gap(gap):
                _set_total(gap, self._noise(gap), _EARLIER)
        if not _outputs_match(comparison) and _outputs_match(comparison, noises := self._of_outputs(comparison)):
            comparison.output_noise = noises

    def _explains(self, comparison: ExecutionGaps) -> bool:
        explained = all(map(self._explains_gap, filter(_is_suspicious, comparison.gaps)))
        return explained and not _is_wrong(comparison) and _outputs_match(comparison, self._of_outputs(comparison))

    def _explains_gap(self, gap: Gap) -> bool:
        return gap.metrics["rmse"] < THRESHOLD * self._noise(gap)

    def _noise(self, gap: Gap) -> Noise:
        return self._values.noise(gap.source, _rounding(gap))

    def _of_outputs(self, comparison: ExecutionGaps) -> list[Noise]:
        return [self._outputs.noise(row["output"], row["floor"]) for row in _output_rows(comparison)]


def _take(multiples: Multiples[K], key: K, spreads: Sequence[Spread], rounding: float) -> None:
    spread = max(spreads, key=lambda each: each.rms)
    if key not in multiples.independent:
        multiples.independent[key] = spread.independent
    multiples.add(key, spread.rms if spread.samples else NAN, rounding)


def _rounding(gap: Gap) -> float:
    return floor(gap.total, gap.dtype, gap.scale)


def _joined(samples: Sequence[Samples | None], places: Sequence[int]) -> dict[int, Samples]:
    joined: dict[int, Samples] = {}
    for run_samples, at in zip(samples, places, strict=True):
        if run_samples is None:
            return {}
        joined[at] = joined[at].joined(run_samples) if at in joined else run_samples
    return joined


def _set_total(gap: Gap, noise: Noise, note: str = _PERTURBED) -> None:
    if chooses_grid(gap.node):  # a zero point seldom moves in a few evaluations
        noise = larger(noise, gap.introduced_noise)
    gap.set_noise(larger(noise, gap.noise))
    gap.add_note(note)


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
    left = [asked for asked in values if _is_suspicious(asked[2])]
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
    """Noise of a few inputs, for all others: as `Multiples`.

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
        values: Multiples[tuple[str, int]] = Multiples()
        outputs: Multiples[int] = Multiples()
        for comparison, given in zip(comparisons, inputs, strict=True):
            gaps = [gap for gap in comparison.gaps if not gap.unpaired]
            try:
                noise, (output_noise,) = total_noise(fresh, [given], [(0, gap.source[0]) for gap in gaps])
            except EtvizError:
                continue
            for gap in gaps:
                values.add(gap.source, noise.get((0, *gap.source), NAN), _rounding(gap))
            for at, row in enumerate(_output_rows(comparison)):
                outputs.add(at, output_noise[at] if at < len(output_noise) else NAN, row["floor"])
        return cls(values.known(), outputs.known())

    def judge(
        self, comparisons: Sequence[ExecutionGaps], inputs: Sequence[Sequence[Any]], fresh: Callable[[], Evaluator]
    ) -> None:
        """As `judge_totals`, one execution after another; what is not known is measured."""
        for comparison, given in zip(comparisons, inputs, strict=True):
            suspicious = [gap for gap in comparison.gaps if _is_suspicious(gap)]
            rows = _output_rows(comparison)
            differ = not _outputs_match(comparison)
            if not all(gap.source in self.values for gap in suspicious) or (differ and len(rows) != len(self.outputs)):
                judge_totals([comparison], [given], fresh)
                continue
            for gap in suspicious:
                gap.set_noise(Noise(self.values[gap.source] * _rounding(gap), MEASURED))
            if differ:
                comparison.output_noise = [
                    Noise(self.outputs[at] * row["floor"], MEASURED) for at, row in enumerate(rows)
                ]


def is_doubtful(comparison: ExecutionGaps) -> bool:
    """True if the lower bound of its noise does not explain a total gap or a final output of an execution."""
    return any(map(_is_suspicious, comparison.gaps)) or not _outputs_match(comparison)


def _growth(graph: Graph, stage: tuple[Node, float] | None) -> str:
    if stage is None or stage[1] < _GROWS:
        return ""
    node, factor = stage
    label = node_label(graph, node)
    where = f"instruction {node.instruction} ({label})" if node.instruction >= 0 else label
    return f"in {where}, {factor:,.3g} times"


def _is_suspicious(gap: Gap) -> bool:
    return not gap.unpaired and gap.is_suspicious(introduced=False)


def is_calm(comparison: ExecutionGaps) -> bool:
    """True if there is nothing to blame an operator for."""
    return not _is_wrong(comparison) and not any(map(_is_suspicious, comparison.gaps)) and _outputs_match(comparison)


def _is_wrong(comparison: ExecutionGaps) -> bool:
    return any(gap.status in WRONG or gap.uncounted or gap.is_suspicious(introduced=True) for gap in comparison.gaps)


def _outputs_match(comparison: ExecutionGaps, noises: Sequence[Noise] = ()) -> bool:
    return all(row.get("matches", True) is not False for row in _output_rows(comparison, noises))


def _output_rows(comparison: ExecutionGaps, noises: Sequence[Noise] = ()) -> list[dict[str, Any]]:
    return compare_outputs(comparison.reference_outputs, comparison.runtime_outputs, comparison.output_scales, noises)
