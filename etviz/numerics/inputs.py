"""Which inputs an execution had: checked against what delegates logged as theirs.

An ETDump does not say what went in. But a delegate logs its inputs, and where these are the program's own they must
equal the reference's bit for bit; where no delegate reads them, the first kernels must agree with the reference at
least roughly. So a run on other inputs is noticed, and never shown as a gap of the operators.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from etviz.artifacts.ir import Graph, Ref, refs
from etviz.numerics.comparison import Comparison
from etviz.numerics.metrics import METRICS, NAN, Sums
from etviz.numerics.runtime_log import RuntimeLog

if TYPE_CHECKING:
    import torch

ROUGH: Final = 0.05
"""Relative L2 error of every first kernel from which on the inputs are doubted."""


@dataclass(slots=True)
class Inputs:
    """The inputs to compute an execution's reference from.

    Attributes
    ----------
    values
        Flat inputs.
    index
        Which of the candidates they are, -1 if they were taken from the log.
    known
        False where the run had other inputs and these are not known: then only introduced gaps mean something.
    note
        What to tell the user, empty if all is as expected.
    """

    values: list[Any]
    index: int = 0
    known: bool = True
    note: str = ""


def logged_inputs(graph: Graph, log: RuntimeLog) -> dict[str, torch.Tensor]:
    """The program's inputs, by name, that a delegate logged as its own."""
    import torch

    users = {item.name for item in graph.user_inputs()}
    found: dict[str, torch.Tensor] = {}
    for node in graph.nodes:
        if node.target != "delegate" or not any(isinstance(a, Ref) and a.name in users for a in node.args):
            continue
        values = log.values(node.instruction)
        if len(values) != len(node.args) + len(node.outputs):
            continue
        for argument, value in zip(node.args, values, strict=False):
            if isinstance(argument, Ref) and argument.name in users and isinstance(value, torch.Tensor):
                found.setdefault(argument.name, value)
    return found


def choose_inputs(
    graph: Graph,
    log: RuntimeLog,
    candidates: Sequence[Sequence[Any]],
    expected: int,
    logged: Mapping[str, Sequence[torch.Tensor]] | None = None,
) -> Inputs:
    """The inputs of an execution.

    Parameters
    ----------
    graph
        The method's graph.
    log
        What the runtime logged.
    candidates
        Flat inputs that it may have had.
    expected
        The candidate to take if nothing speaks against it.
    logged
        By name of an input: the logged values of which one must be it. By default what the graph's delegates tell.
    """
    if logged is None:
        logged = {name: [value] for name, value in logged_inputs(graph, log).items()}
    names = [item.name for item in graph.user_inputs()]
    order = sorted(range(len(candidates)), key=lambda i: i != expected)
    for index in order:
        by_name = dict(zip(names, candidates[index], strict=False))
        if all(any(_identical(by_name.get(name), value) for value in values) for name, values in logged.items()):
            return Inputs(list(candidates[index]), index)
    if set(logged) == set(names) and all(len(values) == 1 for values in logged.values()):
        note = (
            "The run had other inputs than the reference's; the reference was computed on the inputs that were logged."
        )
        return Inputs([logged[name][0].clone() for name in names], -1, note=note)
    note = (
        "The run had other inputs than the reference's, and not all of them were logged, so total gaps are not known; "
        "give the run's inputs (inputs=)."
    )
    return Inputs(list(candidates[expected]), expected, known=False, note=note)


def doubtful(graph: Graph, comparison: Comparison) -> bool:
    """True if every kernel that reads the program's inputs first is off by so much that the inputs must be others."""
    first = _first_kernels(graph, comparison)
    later = [gap for gap in comparison.gaps if gap.instruction not in first and gap.introduced is not None]
    calm = [gap for gap in later if gap.introduced is not None and gap.introduced["rel_l2"] < ROUGH / 10]
    return starts_far_off(graph, comparison) and 2 * len(calm) > len(later)


def starts_far_off(graph: Graph, comparison: Comparison) -> bool:
    """True if every kernel that reads the program's inputs is far off; introduced gaps tell whose fault it is."""
    first = _first_kernels(graph, comparison)
    gaps = [gap for gap in comparison.gaps if gap.instruction in first and gap.runtime.dtype.is_floating_point]
    return bool(gaps) and all(gap.metrics["rel_l2"] > ROUGH for gap in gaps)


def _first_kernels(graph: Graph, comparison: Comparison) -> set[int]:
    delegates = {node.instruction for node in graph.nodes if node.target == "delegate"}
    delegates |= {gap.instruction for gap in comparison.gaps if gap.node.target == "delegate"}
    return _readers(graph, comparison) - delegates


def _readers(graph: Graph, comparison: Comparison) -> set[int]:
    """Instructions that read the program's inputs."""
    if comparison.readers is not None:
        return set(comparison.readers)
    users = {item.name for item in graph.user_inputs()}
    return {n.instruction for n in graph.nodes if n.instruction >= 0 and users & set(refs((n.args, n.kwargs)))}


def forget_totals(graph: Graph, comparison: Comparison, reason: str) -> None:
    """Take back what a comparison on other inputs than the run's can't tell.

    That is every total gap, and the introduced gaps of the instructions that read the inputs.
    """
    readers = _readers(graph, comparison)
    for gap in comparison.gaps:
        if gap.instruction in readers:
            gap.introduced = gap.introduced_sums = None
        gap.metrics = dict.fromkeys(METRICS, NAN)
        gap.total = Sums()
        gap.unpaired = gap.unpaired or reason
        gap.reference = None
    comparison.reference_outputs = []


def _identical(given: Any, logged: torch.Tensor) -> bool:
    import torch

    if not isinstance(given, torch.Tensor) or given.shape != logged.shape or given.dtype != logged.dtype:
        return False
    if torch.equal(given, logged):
        return True
    return logged.dtype.is_floating_point and torch.equal(torch.nan_to_num(given), torch.nan_to_num(logged))


__all__ = ["Inputs", "choose_inputs", "doubtful", "forget_totals", "logged_inputs", "starts_far_off"]
