"""One execution against its reference: a gap row for each value, and a word about every instruction.

With the recorded program the pairing is exact: an instruction of the runtime is a node of the graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from etviz.artifacts.ir import OBSERVED, Graph, Node, Ref, output_scales, refs
from etviz.numerics.gap import compare
from etviz.numerics.metrics import METRICS, NAN, Sums, evaluate
from etviz.numerics.nonfinite import NonFinite
from etviz.numerics.reference import Evaluator, Value, flat_values
from etviz.numerics.runtime_log import RuntimeLog

if TYPE_CHECKING:
    import torch

COMPARED, GROUPED, NOT_COMPARED, MISMATCH = "compared", "grouped", "not compared", "non-finite mismatch"


@dataclass(slots=True)
class Gap:
    """One compared value: where it is, how far it is off, and the two tensors (`reference` is None if not kept).

    `total` compares the runtime with the reference; `introduced` with the same operator on the runtime's own inputs,
    None where that is not known (`introduced_problem` says why). `non_finite` is the role in `NonFinite`. `unpaired`
    says why there is no reference at all; then the metrics are NaN. `note` says what to know of the numbers.
    """

    instruction: int
    output: int
    node: Node
    runtime: torch.Tensor
    reference: torch.Tensor | None
    total: Sums
    metrics: dict[str, float]
    run: int = 0
    introduced: dict[str, float] | None = None
    introduced_problem: str = ""
    introduced_sums: Sums | None = None
    pairing: str = "exact"
    status: str = COMPARED
    non_finite: str = ""
    unpaired: str = ""
    note: str = ""

    @property
    def reason(self) -> str:
        """What the row has to say beside its numbers."""
        return self.unpaired or self.introduced_problem or self.note


@dataclass(slots=True)
class Comparison:
    """Everything that one execution gave.

    `reasons` says for each instruction without a gap why it has none; the `grouped` ones are part of another's gap.
    `kept` bytes of reference tensors are kept, of at most `budget`; later ones are computed again when asked for.
    `readers` are the instructions that read the program's inputs, None where the reference's graph tells.
    """

    gaps: list[Gap] = field(default_factory=list)
    reasons: dict[int, str] = field(default_factory=dict)
    reference_outputs: list[Any] = field(default_factory=list)
    runtime_outputs: list[Any] = field(default_factory=list)
    output_scales: list[float | None] = field(default_factory=list)
    grouped: set[int] = field(default_factory=set)
    readers: frozenset[int] | None = None
    run: int = 0
    budget: int = 0
    kept: int = 0

    def keep(self, reference: torch.Tensor) -> torch.Tensor | None:
        """The tensor itself while the budget lasts, then None."""
        if self.kept + reference.nbytes > self.budget:
            return None
        self.kept += reference.nbytes
        return reference


def compare_exact(
    evaluator: Evaluator,
    log: RuntimeLog,
    inputs: Sequence[Any],
    *,
    run: int = 0,
    budget: int = 0,
    introduced: bool = True,
    pairing: str = "exact",
) -> Comparison:
    """Compare every logged value with the value of its own node.

    Parameters
    ----------
    evaluator
        Of the recorded method.
    log
        What the runtime logged.
    inputs
        Flat inputs of the execution.
    run
        Number of this execution.
    budget
        Bytes of reference tensors to keep.
    introduced
        Also replay each instruction on the runtime's inputs.
    pairing
        How the graph's instructions are known: ``exact`` (recorded) or ``derived``.

    Raises
    ------
    UsageError, PairingError
        If the inputs do not fit, or the reference can't be computed.
    """
    result = Comparison(run=run, budget=budget, output_scales=output_scales(evaluator.graph))

    def logged(node: Node) -> list[Any] | None:
        return logged_outputs(log, node)

    nonfinite = NonFinite(evaluator.graph, inputs)
    steps: dict[str, list[float | None]] = {}

    def seen(node: Node, value: Value) -> None:
        before = len(result.gaps)
        if value.steps:
            steps[node.name] = value.steps
        if node.instruction >= 0:
            _add(result, log, node, value, introduced=introduced, pairing=pairing)
        added = result.gaps[before:]
        counted = {gap.output: gap.total.runtime_is_nonfinite for gap in added if not gap.unpaired}
        role = nonfinite.see(node, value, counted)
        for gap in added:
            gap.non_finite = role

    result.reference_outputs = evaluator.run(inputs, seen, logged, replay=introduced)
    result.runtime_outputs = log.outputs()
    _widen_outputs(result, evaluator.graph, steps)
    _explain_missing(result, evaluator.graph)
    return result


def _widen_outputs(result: Comparison, graph: Graph, steps: Mapping[str, list[float | None]]) -> None:
    """Measure the final outputs of dynamically quantized delegates by the error of that quantization too."""
    items = {n.name: (next(refs(n.args), ""), n.args[1]) for n in graph.nodes if n.target == "getitem" and steps}
    for position, out in enumerate(graph.outputs):
        source, index = items.get(out.name, (out.name, 0)) if isinstance(out, Ref) else ("", 0)
        if source in steps and isinstance(index, int) and index < len(steps[source]):
            result.output_scales[position] = result.output_scales[position] or steps[source][index]


def logged_outputs(log: RuntimeLog, node: Node) -> list[Any] | None:
    """What the runtime logged as outputs of a node's instruction, None if nothing or something else."""
    if node.instruction < 0:
        return None
    if node.target in ("delegate", OBSERVED):
        return log.last_values(node.instruction, len(node.outputs))
    return log.values(node.instruction) or None


def _add(result: Comparison, log: RuntimeLog, node: Node, value: Value, *, introduced: bool, pairing: str) -> None:
    locals_ = flat_values(value.local) if value.local is not None else []
    references = [None] * len(locals_) if value.unpaired else flat_values(value.reference)
    runtime = value.runtime
    if reason := _why_not(log, node, runtime, len(references)):
        result.reasons[node.instruction] = reason
    if reason or runtime is None:
        return
    for output, (found, expected) in enumerate(zip(runtime, references, strict=True)):
        step = value.steps[output] if value.steps else None
        own = locals_[output] if output < len(locals_) else None
        meta = node.outputs[output] if output < len(node.outputs) else None
        scale = step or (meta.scale if meta is not None else None)
        if value.unpaired:
            gap = _add_unpaired(result, node, output, found, value.unpaired, pairing)
        else:
            gap = add_gap(result, node, output, found, expected, scale, pairing)
        if found is None:
            result.reasons[node.instruction] = log.problems.get(node.instruction, "its value can't be read")
        if gap is not None and introduced:
            _add_introduced(gap, expected, own, value.problem, scale)
        if gap is not None and step:
            gap.note = value.note


def _why_not(log: RuntimeLog, node: Node, runtime: Sequence[Any] | None, expected: int) -> str:
    """Why an instruction's values can't be compared, empty if they can."""
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


def add_gap(
    result: Comparison,
    node: Node,
    output: int,
    found: Any,
    expected: Any,
    scale: float | None,
    pairing: str = "exact",
) -> Gap | None:
    """Compare one value and append its gap; None, with the reason in `result`, where it can't be compared."""
    runtime, reference = as_tensor(found), as_tensor(expected)
    reason = why_not_comparable(expected, found)
    if reason or runtime is None or reference is None:
        result.reasons[node.instruction] = reason
        return None
    sums, metrics = measure(reference, runtime, scale)
    gap = Gap(node.instruction, output, node, runtime, result.keep(reference), sums, metrics, result.run)
    gap.pairing = pairing
    if sums.mismatched:
        gap.status = MISMATCH
    result.gaps.append(gap)
    return gap


def _add_unpaired(result: Comparison, node: Node, output: int, found: Any, reason: str, pairing: str) -> Gap | None:
    """Append a gap that only has a runtime value: what was introduced may be known all the same."""
    runtime = as_tensor(found)
    if runtime is None or runtime.is_complex():
        result.reasons[node.instruction] = why_not_comparable(found, found)
        return None
    unknown = dict.fromkeys(METRICS, NAN)
    gap = Gap(node.instruction, output, node, runtime, None, Sums(), unknown, result.run, pairing=pairing)
    gap.unpaired = reason
    result.gaps.append(gap)
    return gap


def _add_introduced(gap: Gap, expected: Any, own: Any, problem: str, scale: float | None) -> None:
    """Compare with the operator's value on the runtime's inputs; the reference itself where these are the same."""
    if own is expected and not gap.unpaired:
        gap.introduced, gap.introduced_sums = gap.metrics, gap.total
        return
    local = as_tensor(own)
    if local is not None and not why_not_comparable(local, gap.runtime):
        gap.introduced_sums, gap.introduced = measure(local, gap.runtime, scale)
        if gap.unpaired and gap.introduced_sums.mismatched:
            gap.status = MISMATCH
    else:
        gap.introduced_problem = problem


def measure(reference: torch.Tensor, runtime: torch.Tensor, scale: float | None) -> tuple[Sums, dict[str, float]]:
    """The sums and every metric of one pair."""
    dtype = str(runtime.dtype).removeprefix("torch.")
    sums = compare(reference, runtime, scale=scale)
    return sums, evaluate(sums, dtype, scale)


def as_tensor(value: Any) -> torch.Tensor | None:
    """A tensor, or a plain number as one with all its digits; None for anything else."""
    import torch

    if isinstance(value, torch.Tensor):
        return value
    if isinstance(value, float):
        return torch.tensor(value, dtype=torch.float64)
    return torch.tensor(value) if isinstance(value, (bool, int)) else None


def why_not_comparable(reference: Any, runtime: Any) -> str:
    """The reason why two values have no gap, empty if they have one."""
    r, q = as_tensor(reference), as_tensor(runtime)
    if q is None or r is None:
        missing = runtime if q is None else reference
        return "its value can't be read" if missing is None else f"its value is a {type(missing).__name__}"
    if q.shape != r.shape:
        return f"the runtime's shape {tuple(q.shape)} is not the reference's {tuple(r.shape)}"
    for tensor in (r, q):
        if tensor.is_complex() or tensor.is_quantized:
            return f"values of {str(tensor.dtype).removeprefix('torch.')} are not compared"
    return ""


def _explain_missing(result: Comparison, graph: Graph) -> None:
    compared = {gap.instruction for gap in result.gaps}
    for node in graph.walk():
        if node.instruction >= 0 and node.instruction not in compared:
            result.reasons.setdefault(node.instruction, "it was not executed: another branch was taken")
