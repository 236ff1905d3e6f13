"""Measuring what a gap is judged by: the noise of its value, where the cheap floor does not explain the error."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from etviz.comparison.outputs import compare_outputs
from etviz.errors import EtvizError
from etviz.evaluation.noise import Growth, Noises, local_noise, total_noise
from etviz.graph.ir import Ref
from etviz.graph.labels import node_label
from etviz.tensors.metrics import floor

if TYPE_CHECKING:
    from etviz.comparison.gap import Comparison, Gap
    from etviz.evaluation.evaluator import Evaluator
    from etviz.evaluation.values import Rounding
    from etviz.graph.ir import Graph, Node

MEASURED: Final = "severity is relative to measured noise: the operators ran again with other roundings"
_GROWS: Final = 3.0

Judge = Callable[["Sequence[Comparison]", "Sequence[Sequence[Any]]", "Callable[[], Evaluator]"], None]
"""Measures the gaps of executions by their noise: takes what `measure_total_noise` takes."""
_FAILED: Final = "its noise could not be measured, so severity is relative to its precision alone: "


def measure_introduced_noise(
    gaps: Sequence[Gap],
    again: Callable[[Rounding], Any] | Sequence[Any] | None,
    value: Any,
    *,
    several: bool = False,
) -> None:
    """Measure what one instruction, or several together, introduced by its noise, where that is suspicious.

    Parameters
    ----------
    gaps
        Those of its outputs.
    again
        Computes the instruction on the same inputs with another rounding, or what it gave with some; None if that
        can't be.
    value
        What it gives unperturbed.
    several
        Whether several instructions may have made it.
    """
    suspicious = [gap for gap in gaps if gap.is_suspicious(introduced=True)]
    if not suspicious or not again:
        return
    try:
        noise = local_noise(again, value, several=several)
    except Exception as error:  # noqa: BLE001 - an operator may fail on perturbed values in its own way
        for gap in suspicious:
            gap.add_note(f"{_FAILED}{error}")
        return
    for gap in suspicious:
        gap.set_introduced_noise(noise[gap.output])
        gap.add_note(MEASURED)


def measure_total_noise(
    comparisons: Sequence[Comparison],
    inputs: Sequence[Sequence[Any]],
    fresh: Callable[[], Evaluator],
    known: Noises | None = None,
) -> None:
    """Measure total gaps and final outputs by their noise, where they are suspicious.

    Parameters
    ----------
    comparisons
        Of all executions, in order.
    inputs
        Their flat inputs.
    fresh
        Makes an evaluator of the reference in the initial state.
    known
        Their noise, if that was measured while they were compared.
    """
    suspicious = [(run, gap) for run, item in enumerate(comparisons) for gap in item.gaps if _is_suspicious(gap)]
    differing = [run for run, item in enumerate(comparisons) if not _outputs_match(item)]
    if not suspicious and not differing:
        return
    growth = {run: Growth() for run in differing} if known is None else known.growth
    outputs = measure_noise([(run, gap.source[0], gap) for run, gap in suspicious], inputs, fresh, growth, known)
    if outputs is None:
        return
    for run in differing:
        comparisons[run].output_noise, comparisons[run].output_imposed = outputs[run], growth[run].imposed
        graph = fresh().graph
        names = (out.name if isinstance(out, Ref) else "" for out in graph.outputs)
        comparisons[run].grows_at = [_growth(graph, growth[run].stage(graph, name)) for name in names]


def measure_noise(
    values: Sequence[tuple[int, str, Gap]],
    inputs: Sequence[Sequence[Any]],
    fresh: Callable[[], Evaluator],
    growth: Mapping[int, Growth] | None = None,
    known: Noises | None = None,
) -> list[list[float]] | None:
    """Measure some total gaps by their noise; returns that of the final outputs, None where it can't be measured.

    `values` are the execution, the node of the graph that `fresh` evaluates, and the gap; `known` is their noise if
    that was measured before, the rest is as for `total_noise`.
    """
    try:
        wanted = [(run, name) for run, name, _ in values]
        noise, outputs = total_noise(fresh, inputs, wanted, growth) if known is None else known.result(len(inputs))
    except EtvizError as error:
        for _, _, gap in values:
            gap.add_note(f"{_FAILED}{error}")
        return None
    for run, name, gap in values:
        own = noise.get((run, name, gap.source[1]))
        if own is not None:
            gap.set_noise(own)
            gap.add_note(MEASURED)
    return outputs


def told_noise(comparisons: Sequence[Comparison]) -> list[dict[str, Any]]:
    """The total noise that was measured, as JSON holds it; for `judge_as_told`."""
    return [
        {
            "gaps": [[gap.instruction, gap.output, None if math.isnan(gap.noise) else gap.noise] for gap in item.gaps],
            "outputs": item.output_noise,
            "imposed": item.output_imposed,
            "grows_at": item.grows_at,
        }
        for item in comparisons
    ]


def judge_as_told(
    told: Sequence[Mapping[str, Any]],
    comparisons: Sequence[Comparison],
    inputs: Sequence[Sequence[Any]],
    fresh: Callable[[], Evaluator],
) -> None:
    """As `measure_total_noise`, with what another process measured on the same files, if that is all there is to it."""
    if len(told) != len(comparisons) or not all(map(_is_told, told, comparisons)):
        measure_total_noise(comparisons, inputs, fresh)
        return
    for own, item in zip(told, comparisons, strict=True):
        for (_, _, noise), gap in zip(own["gaps"], item.gaps, strict=False):
            if _is_suspicious(gap):
                gap.set_noise(noise)
                gap.add_note(MEASURED)
        if not _outputs_match(item):
            item.output_noise, item.output_imposed, item.grows_at = own["outputs"], own["imposed"], own["grows_at"]


def _is_told(told: Mapping[str, Any], item: Comparison) -> bool:
    """True if it is of the same values in the same order, and all are there that are needed."""
    if len(told["gaps"]) < len(item.gaps) or (not told["outputs"] and not _outputs_match(item)):
        return False
    both = list(zip(told["gaps"], item.gaps, strict=False))
    if any((instruction, output) != (gap.instruction, gap.output) for (instruction, output, _), gap in both):
        return False
    return all(noise is not None for (_, _, noise), gap in both if _is_suspicious(gap))


@dataclass(frozen=True, slots=True)
class KnownNoise:
    """Noise that was measured on a few inputs, for all others: as multiples of the error of one rounding.

    That ratio is the operators', while the error of one rounding follows the size of an input's values, or their grid.

    Attributes
    ----------
    values
        By node of the reference and output.
    outputs
        Of the final outputs.
    """

    values: Mapping[tuple[str, int], float] = field(default_factory=dict)
    outputs: Mapping[int, float] = field(default_factory=dict)

    @classmethod
    def measured(
        cls, comparisons: Sequence[Comparison], inputs: Sequence[Sequence[Any]], fresh: Callable[[], Evaluator]
    ) -> KnownNoise:
        """Measure all values of some executions, each by itself; nothing is known of one whose evaluation fails."""
        values: dict[tuple[str, int], list[float]] = {}
        outputs: dict[int, list[float]] = {}
        for item, given in zip(comparisons, inputs, strict=True):
            gaps = [gap for gap in item.gaps if not gap.unpaired]
            try:
                noise, (own,) = total_noise(fresh, [given], [(0, gap.source[0]) for gap in gaps], passes=2)
            except EtvizError:
                continue
            for gap in gaps:
                _add_ratio(values, gap.source, noise.get((0, *gap.source)), floor(gap.total, gap.dtype, gap.scale))
            for at, row in enumerate(_output_rows(item)):
                _add_ratio(outputs, at, own[at] if at < len(own) else None, row["floor"])
        own_values = {key: _rms(ratios) for key, ratios in values.items()}
        return cls(own_values, {at: _rms(ratios) for at, ratios in outputs.items()})

    def judge(
        self, comparisons: Sequence[Comparison], inputs: Sequence[Sequence[Any]], fresh: Callable[[], Evaluator]
    ) -> None:
        """As `measure_total_noise`; what is not known is measured."""
        unknown = []
        for item, given in zip(comparisons, inputs, strict=True):
            suspicious = [gap for gap in item.gaps if _is_suspicious(gap)]
            known = {id(gap): self.values[gap.source] for gap in suspicious if gap.source in self.values}
            rows = _output_rows(item)
            differ = any(row.get("matches", True) is False for row in rows)
            if len(known) < len(suspicious) or (differ and len(rows) != len(self.outputs)):
                unknown.append((item, given))
                continue
            for gap in suspicious:
                gap.set_noise(known[id(gap)] * floor(gap.total, gap.dtype, gap.scale))
            if differ:
                item.output_noise = [self.outputs[at] * row["floor"] for at, row in enumerate(rows)]
        for item, given in unknown:
            measure_total_noise([item], [given], fresh)


def _add_ratio(found: dict[Any, list[float]], key: Any, noise: float | None, least: float) -> None:
    if noise is not None and math.isfinite(noise) and least > 0:
        found.setdefault(key, []).append(noise / least)


def _rms(ratios: Sequence[float]) -> float:
    return math.sqrt(math.fsum(ratio * ratio for ratio in ratios) / len(ratios))


def _growth(graph: Graph, stage: tuple[Node, float] | None) -> str:
    """Where noise grows, in words; empty where it does not."""
    if stage is None or stage[1] < _GROWS:
        return ""
    node, factor = stage
    label = node_label(graph, node)
    where = f"instruction {node.instruction} ({label})" if node.instruction >= 0 else label
    return f"in {where}, {factor:,.3g} times"


def is_doubtful(item: Comparison) -> bool:
    """True if an execution has a total gap, or a final output, that has to be measured by its noise."""
    return any(map(_is_suspicious, item.gaps)) or not _outputs_match(item)


def _is_suspicious(gap: Gap) -> bool:
    return not gap.unpaired and gap.is_suspicious(introduced=False)


def _outputs_match(item: Comparison) -> bool:
    return all(row.get("matches", True) is not False for row in _output_rows(item))


def _output_rows(item: Comparison) -> list[dict[str, Any]]:
    return compare_outputs(item.reference_outputs, item.runtime_outputs, item.output_scales)
