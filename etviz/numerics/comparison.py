"""One execution against its reference: a gap row for each value, and a word about every instruction.

With the recorded program the pairing is exact: an instruction of the runtime is a node of the graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from etviz.artifacts.ir import OBSERVED, Graph, Meta, Node, output_scales
from etviz.numerics.gap import compare
from etviz.numerics.metrics import METRICS, NAN, Sums, evaluate
from etviz.numerics.nonfinite import NonFinite
from etviz.numerics.reference import Evaluator, Value, flat_values
from etviz.numerics.runtime_log import RuntimeLog, outputs_of_delegate

if TYPE_CHECKING:
    import torch

COMPARED, GROUPED, NOT_COMPARED, MISMATCH = "compared", "grouped", "not compared", "non-finite mismatch"


@dataclass(slots=True)
class Gap:
    """One compared value: where it is, how far it is off, and the two tensors (`reference` is None if not kept).

    `total` compares the runtime with the reference; `introduced` with the same operator on the runtime's own inputs,
    None where that is not known (`introduced_problem` says why). `non_finite` is the role in `NonFinite`.
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


@dataclass(slots=True)
class Comparison:
    """Everything that one execution gave.

    `reasons` says for each instruction without a gap why it has none; the `grouped` ones are part of another's gap.
    `kept` bytes of reference tensors are kept, of at most `budget`; later ones are computed again when asked for.
    """

    gaps: list[Gap] = field(default_factory=list)
    reasons: dict[int, str] = field(default_factory=dict)
    reference_outputs: list[Any] = field(default_factory=list)
    runtime_outputs: list[Any] = field(default_factory=list)
    output_scales: list[float | None] = field(default_factory=list)
    grouped: set[int] = field(default_factory=set)
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

    def seen(node: Node, value: Value) -> None:
        before = len(result.gaps)
        if node.instruction >= 0:
            _add(result, log, node, value, introduced=introduced, pairing=pairing)
        added = result.gaps[before:]
        role = nonfinite.see(node, value, {gap.output: gap.total.runtime_is_nonfinite for gap in added})
        for gap in added:
            gap.non_finite = role

    result.reference_outputs = evaluator.run(inputs, seen, logged)
    result.runtime_outputs = log.outputs()
    _explain_missing(result, evaluator.graph)
    return result


def logged_outputs(log: RuntimeLog, node: Node) -> list[Any] | None:
    """What the runtime logged as outputs of a node's instruction, None if nothing or something else."""
    if node.instruction < 0:
        return None
    values = log.values(node.instruction)
    if node.target in ("delegate", OBSERVED):
        return outputs_of_delegate(values, len(node.outputs))
    return values or None


def _add(result: Comparison, log: RuntimeLog, node: Node, value: Value, *, introduced: bool, pairing: str) -> None:
    references = flat_values(value.reference)
    locals_ = flat_values(value.local) if value.local is not None else [None] * len(references)
    runtime = value.runtime
    if node.target == OBSERVED and not node.args:
        result.reasons[node.instruction] = "which edge operators it executes is not certain"
        return
    if runtime is None:
        logged = log.values(node.instruction)
        result.reasons[node.instruction] = (
            "the runtime logged no value for it"
            if not logged
            else f"the runtime logged {len(logged)} values, {len(node.args) + len(node.outputs)} were expected"
        )
        return
    if len(runtime) != len(references):
        result.reasons[node.instruction] = (
            f"the runtime logged {len(runtime)} values, the reference has {len(references)}"
        )
        return
    for output, (found, expected, own) in enumerate(zip(runtime, references, locals_, strict=True)):
        meta = node.outputs[output] if output < len(node.outputs) else None
        gap = add_gap(result, node, output, found, expected, meta, pairing)
        if found is None:
            result.reasons[node.instruction] = log.problems.get(node.instruction, "its value can't be read")
        if gap is not None and introduced:
            _add_introduced(gap, expected, own, value.problem)


def add_gap(
    result: Comparison,
    node: Node,
    output: int,
    found: Any,
    expected: Any,
    meta: Meta | None,
    pairing: str = "exact",
) -> Gap | None:
    """Compare one value and append its gap; None, with the reason in `result`, where it can't be compared."""
    runtime, reference = _tensor(found), _tensor(expected)
    reason = ""
    if runtime is None or reference is None:
        missing = found if runtime is None else expected
        reason = "its value can't be read" if missing is None else f"its value is a {type(missing).__name__}"
    elif runtime.shape != reference.shape:
        reason = f"the runtime's shape {tuple(runtime.shape)} is not the reference's {tuple(reference.shape)}"
    if reason or runtime is None or reference is None:
        result.reasons[node.instruction] = reason
        return None
    scale = meta.scale if meta is not None else None
    sums, metrics = measure(reference, runtime, scale)
    gap = Gap(node.instruction, output, node, runtime, result.keep(reference), sums, metrics, result.run)
    gap.pairing = pairing
    if sums.mismatched:
        gap.status = MISMATCH
    result.gaps.append(gap)
    return gap


def _add_introduced(gap: Gap, expected: Any, own: Any, problem: str) -> None:
    """Compare with the operator's value on the runtime's inputs; the reference itself where these are the same."""
    if own is expected:
        gap.introduced, gap.introduced_sums = gap.metrics, gap.total
        return
    local = _tensor(own)
    if local is not None and local.shape == gap.runtime.shape:
        meta = gap.node.outputs[gap.output] if gap.output < len(gap.node.outputs) else None
        gap.introduced_sums, gap.introduced = measure(local, gap.runtime, meta.scale if meta is not None else None)
    else:
        gap.introduced_problem = problem


def measure(reference: torch.Tensor, runtime: torch.Tensor, scale: float | None) -> tuple[Sums, dict[str, float]]:
    """The sums and every metric of one pair."""
    dtype = str(runtime.dtype).removeprefix("torch.")
    sums = compare(reference, runtime, scale=scale)
    return sums, evaluate(sums, dtype, scale)


def _tensor(value: Any) -> torch.Tensor | None:
    import torch

    if isinstance(value, torch.Tensor):
        return value
    if isinstance(value, (bool, int, float)):
        return torch.tensor(value)
    return None


def _explain_missing(result: Comparison, graph: Graph) -> None:
    compared = {gap.instruction for gap in result.gaps}
    for node in graph.walk():
        if node.instruction >= 0 and node.instruction not in compared:
            result.reasons.setdefault(node.instruction, "it was not executed: another branch was taken")


def _is_rounding(metrics: dict[str, float], dtype: str, scale: float | None) -> bool:
    """True if the error is of the order that the value's precision imposes."""
    limits = METRICS["severity"].thresholds.get("quantized" if scale is not None else dtype)
    return limits is not None and metrics["severity"] < limits[0]


def compare_outputs(
    reference: Sequence[Any], runtime: Sequence[Any], scales: Sequence[float | None]
) -> list[dict[str, Any]]:
    """Each final output against its reference: all metrics, `allclose` as True or False, and a status.

    `matches` is `allclose`, or an error no larger than the value's precision imposes (`severity` below its threshold).
    """
    rows = []
    complete = len(runtime) == len(reference)
    for index, expected in enumerate(reference):
        found = runtime[index] if complete else None
        row: dict[str, Any] = {"output": index, "status": NOT_COMPARED, "reason": "", "shape": (), "dtype": ""}
        a, b = _tensor(expected), _tensor(found)
        if b is None:
            logged = f"the runtime logged {len(runtime)} of {len(reference)} final outputs"
            row["reason"] = "it is not a tensor" if complete else logged
        elif a is None or a.shape != b.shape:
            row["reason"] = "its shape or type differs from the reference's"
        else:
            scale = scales[index] if index < len(scales) else None
            sums, metrics = measure(a, b, scale)
            row |= {"status": MISMATCH if sums.mismatched else COMPARED, "shape": tuple(b.shape)}
            row |= {"dtype": str(b.dtype).removeprefix("torch.")} | metrics | sums.nonfinite()
            row["close"] = metrics["allclose"]
            row["allclose"] = metrics["allclose"] == 1.0
            row["matches"] = row["allclose"] or (not sums.mismatched and _is_rounding(metrics, row["dtype"], scale))
        rows.append({name: row.get(name, NAN) for name in (*row, *METRICS)})
    return rows
