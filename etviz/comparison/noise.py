"""Measuring what a gap is judged by: the noise of its value, where the cheap floor does not explain the error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from etviz.comparison.outputs import compare_outputs
from etviz.errors import EtvizError
from etviz.evaluation.noise import Growth, local_noise, total_noise
from etviz.graph.ir import Ref
from etviz.graph.labels import node_label

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from etviz.comparison.gap import Comparison, Gap
    from etviz.evaluation.evaluator import Evaluator, Rounding
    from etviz.graph.ir import Graph, Node

MEASURED: Final = "severity is relative to measured noise: the operators ran again with other roundings"
_GROWS: Final = 3.0
_FAILED: Final = "its noise could not be measured, so severity is relative to its precision alone: "


def measure_introduced_noise(
    gaps: Sequence[Gap], again: Callable[[Rounding], Any] | Sequence[Any] | None, value: Any
) -> None:
    """Measure what one instruction introduced by its noise, where that is suspicious.

    Parameters
    ----------
    gaps
        Those of its outputs.
    again
        Computes the instruction on the same inputs with another rounding, or what it gave with some; None if that
        can't be.
    value
        What it gives unperturbed.
    """
    suspicious = [gap for gap in gaps if gap.is_suspicious(introduced=True)]
    if not suspicious or not again:
        return
    try:
        noise = local_noise(again, value)
    except Exception as error:  # noqa: BLE001 - an operator may fail on perturbed values in its own way
        for gap in suspicious:
            gap.add_note(f"{_FAILED}{error}")
        return
    for gap in suspicious:
        gap.set_introduced_noise(noise[gap.output])
        gap.add_note(MEASURED)


def measure_total_noise(
    comparisons: Sequence[Comparison], inputs: Sequence[Sequence[Any]], fresh: Callable[[], Evaluator]
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
    """
    suspicious = [(run, gap) for run, item in enumerate(comparisons) for gap in item.gaps if _is_suspicious(gap)]
    differing = [run for run, item in enumerate(comparisons) if not _outputs_match(item)]
    if not suspicious and not differing:
        return
    growth = {run: Growth() for run in differing}
    outputs = measure_noise([(run, gap.source[0], gap) for run, gap in suspicious], inputs, fresh, growth)
    if outputs is None:
        return
    for run in differing:
        comparisons[run].output_noise = outputs[run]
        graph = fresh().graph
        names = (out.name if isinstance(out, Ref) else "" for out in graph.outputs)
        comparisons[run].grows_at = [_growth(graph, growth[run].stage(graph, name)) for name in names]


def measure_noise(
    values: Sequence[tuple[int, str, Gap]],
    inputs: Sequence[Sequence[Any]],
    fresh: Callable[[], Evaluator],
    growth: Mapping[int, Growth] | None = None,
) -> list[list[float]] | None:
    """Measure some total gaps by their noise; returns that of the final outputs, None where it can't be measured.

    `values` are the execution, the node of the graph that `fresh` evaluates, and the gap; the rest is as for
    `total_noise`.
    """
    try:
        noise, outputs = total_noise(fresh, inputs, [(run, name) for run, name, _ in values], growth)
    except EtvizError as error:
        for _, _, gap in values:
            gap.add_note(f"{_FAILED}{error}")
        return None
    for run, name, gap in values:
        known = noise.get((run, name, gap.source[1]))
        if known is not None:
            gap.set_noise(known)
            gap.add_note(MEASURED)
    return outputs


def _growth(graph: Graph, stage: tuple[Node, float] | None) -> str:
    """Where noise grows, in words; empty where it does not."""
    if stage is None or stage[1] < _GROWS:
        return ""
    node, factor = stage
    label = node_label(graph, node)
    where = f"instruction {node.instruction} ({label})" if node.instruction >= 0 else label
    return f"in {where}, {factor:,.3g} times"


def _is_suspicious(gap: Gap) -> bool:
    return not gap.unpaired and gap.is_suspicious(introduced=False)


def _outputs_match(item: Comparison) -> bool:
    rows = compare_outputs(item.reference_outputs, item.runtime_outputs, item.output_scales)
    return all(row.get("matches", True) is not False for row in rows)
