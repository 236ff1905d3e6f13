"""Which inputs an execution had: checked against what delegates logged as theirs.

An ETDump does not say what went in. But a delegate logs its inputs, and where these are the program's own they must
equal the reference's bit for bit; where no delegate reads them, the first kernels must agree with the reference at
least roughly. So a run on other inputs is noticed, and never shown as a gap of the operators.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from etviz.comparison.gap import COMPARED
from etviz.graph.ir import Graph, Input, Ref
from etviz.tensors.metrics import NAN, Sums

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch

    from etviz.artifacts.etdump.runtime_log import RuntimeLog
    from etviz.comparison.gap import Comparison

ROUGH: Final = 0.05
"""Relative L2 error of every first kernel from which on the inputs are doubted."""


@dataclass(slots=True)
class Inputs:
    """The flat inputs to compute a reference from, and which of the candidates they are (-1: they are from the log).

    `known` is False where the run had other inputs and these are not known: then only introduced gaps mean something.
    `note` tells the user so. `logged` names those that the run had for certain, because a delegate logged them.
    """

    values: list[Any]
    index: int = 0
    known: bool = True
    note: str = ""
    logged: frozenset[str] = frozenset()


def logged_inputs(graph: Graph, log: RuntimeLog) -> dict[str, torch.Tensor]:
    """The program's inputs, by name, that a delegate logged as its own."""
    import torch

    users = {item.name for item in graph.user_inputs()}
    logged: dict[str, torch.Tensor] = {}
    for node in graph.nodes:
        if node.target != "delegate" or not any(isinstance(a, Ref) and a.name in users for a in node.args):
            continue
        values = log.values(node.instruction)
        if len(values) != len(node.args) + len(node.outputs):
            continue
        for argument, value in zip(node.args, values, strict=False):
            if isinstance(argument, Ref) and argument.name in users and isinstance(value, torch.Tensor):
                logged.setdefault(argument.name, value)
    return logged


def choose_inputs(
    graph: Graph,
    log: RuntimeLog,
    candidates: Sequence[Sequence[Any]],
    expected: int,
    logged: Mapping[str, Sequence[torch.Tensor]] | None = None,
) -> Inputs:
    """The inputs of an execution: of the candidates that it may have had the expected one, unless the log denies it.

    By name of an input, `logged` holds values of which one must be it; by default what the graph's delegates tell.
    """
    if logged is None:
        logged = {name: [value] for name, value in logged_inputs(graph, log).items()}
    names = [item.name for item in graph.user_inputs()]
    order = sorted(range(len(candidates)), key=lambda i: i != expected)
    for index in order:
        by_name = dict(zip(names, candidates[index], strict=False))
        if all(any(_identical(by_name.get(name), value) for value in values) for name, values in logged.items()):
            return Inputs(list(candidates[index]), index, logged=frozenset(logged))
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
    if not starts_far_off(graph, comparison):
        return False
    first = _first_kernels(graph, comparison)
    later = [gap for gap in comparison.gaps if gap.instruction not in first and gap.introduced is not None]
    calm = [gap for gap in later if gap.introduced is not None and gap.introduced["rel_l2"] < ROUGH / 10]
    return 2 * len(calm) > len(later)


def starts_far_off(graph: Graph, comparison: Comparison) -> bool:
    """True if every kernel that reads the program's inputs is far off; introduced gaps tell whose fault it is."""
    first = _first_kernels(graph, comparison)
    gaps = [gap for gap in comparison.gaps if gap.instruction in first and gap.runtime.dtype.is_floating_point]
    return bool(gaps) and all(gap.metrics["rel_l2"] > ROUGH for gap in gaps)


def why_not(values: Sequence[Any], takes: Sequence[Input]) -> str:
    """Why a program can't take some flat values, empty if it can, as far as shapes and dtypes are known."""
    import torch

    if len(values) != len(takes):
        return f"the program takes {len(takes)} inputs, found {len(values)}"
    for item, value in zip(takes, values, strict=True):
        if item.meta is None:
            continue
        if not isinstance(value, torch.Tensor):
            return f"input {item.name} must be a tensor, found {type(value).__name__}"
        shape, dtype = tuple(value.shape), str(value.dtype).removeprefix("torch.")
        if len(shape) != len(item.meta.shape) or any(
            a != b for a, b in zip(item.meta.shape, shape, strict=True) if isinstance(a, int)
        ):
            return f"input {item.name} must have the shape {tuple(item.meta.shape)}, found {shape}"
        if dtype != item.meta.dtype:
            return f"input {item.name} must be {item.meta.dtype}, found {dtype}"
        if value.layout is not torch.strided or value.device.type != "cpu":
            return f"input {item.name} must be a dense tensor on the CPU"
    return ""


def fits(graph: Graph, values: Sequence[Any]) -> bool:
    """True if values have the number, shapes and dtypes of a method's inputs, as far as these are known."""
    return not why_not(values, graph.user_inputs())


def proved(graph: Graph, inputs: Inputs, comparison: Comparison) -> bool:
    """True if what the run logged says that it had these inputs.

    Each of them was logged as a delegate's, or all that kernels made of it first is what they make of it here, as far
    as rounding goes.
    """
    if inputs.index < 0:
        return inputs.known
    readers = _readers(graph, comparison)
    agrees = {gap.instruction: gap.status == COMPARED for gap in comparison.gaps if gap.instruction in readers}
    for gap in comparison.gaps:
        if gap.instruction in readers:
            agrees[gap.instruction] &= not gap.is_suspicious(introduced=False)
    if comparison.readers is not None:
        return bool(agrees) and all(agrees.values())
    for item in graph.user_inputs():
        if item.name in inputs.logged:
            continue
        own = [agrees[n.instruction] for n in graph.nodes if n.instruction in agrees and item.name in n.reads()]
        if not own or not all(own):
            return False
    return inputs.known


def _first_kernels(graph: Graph, comparison: Comparison) -> set[int]:
    delegates = {node.instruction for node in graph.nodes if node.target == "delegate"}
    delegates |= {gap.instruction for gap in comparison.gaps if gap.node.target == "delegate"}
    return _readers(graph, comparison) - delegates


def _readers(graph: Graph, comparison: Comparison) -> set[int]:
    """Instructions that read the program's inputs."""
    if comparison.readers is not None:
        return set(comparison.readers)
    users = {item.name for item in graph.user_inputs()}
    return {node.instruction for node in graph.nodes if node.instruction >= 0 and not users.isdisjoint(node.reads())}


def forget_totals(graph: Graph, comparison: Comparison, reason: str, *, state: bool = False) -> None:
    """Take back what a comparison on other inputs than the run's can't tell.

    That is every total gap, and the introduced gaps of the instructions that read the inputs, be it through others that
    logged nothing; with `state` also of those that read what earlier executions left.
    """
    readers = _readers(graph, comparison) | _unknowing(graph, comparison, state=state)
    for gap in comparison.gaps:
        if gap.instruction in readers:
            gap.introduced = gap.introduced_sums = None
        gap.metrics = dict.fromkeys(gap.metrics, NAN)
        gap.total = Sums()
        gap.unpaired = gap.unpaired or reason
        gap.reference = None
    comparison.reference_outputs, comparison.judged = [], False


def _unknowing(graph: Graph, comparison: Comparison, *, state: bool) -> set[int]:
    """Instructions that got a value which follows from inputs, or state, that are not the run's."""
    if comparison.readers is not None:
        return set()
    kinds = ("user", "buffer") if state else ("user",)
    wrong = {item.name for item in graph.inputs if item.kind in kinds}
    logged = {gap.instruction for gap in comparison.gaps}
    found = set[int]()
    for node in graph.nodes:
        if wrong.isdisjoint(node.reads()):
            continue
        if node.instruction in logged:
            found.add(node.instruction)
        else:
            wrong.add(node.name)
    return found


def _identical(given: Any, logged: torch.Tensor) -> bool:
    import torch

    if not isinstance(given, torch.Tensor) or given.shape != logged.shape or given.dtype != logged.dtype:
        return False
    if torch.equal(given, logged):
        return True
    return logged.dtype.is_floating_point and torch.equal(torch.nan_to_num(given), torch.nan_to_num(logged))
