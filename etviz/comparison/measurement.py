"""Compares one runtime value with one reference value, or says why they can't be compared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from etviz.comparison.gap import DIFFERENT, MISMATCH, ExecutionGaps, Gap
from etviz.tensors.blocks import dtype_name
from etviz.tensors.finite import has_nonfinite
from etviz.tensors.metrics import BUILT_IN, NAN, Sums, evaluate
from etviz.tensors.sums import sums_of

if TYPE_CHECKING:
    from etviz.graph.ir import Node


def measure(reference: torch.Tensor, runtime: torch.Tensor, scale: float | None) -> tuple[Sums, dict[str, float]]:
    sums = sums_of(reference, runtime, scale)
    return sums, evaluate(sums, dtype_name(runtime.dtype), scale)


def as_tensor(value: Any) -> torch.Tensor | None:
    """A plain number keeps all its digits; None for anything else."""
    if isinstance(value, torch.Tensor):
        return value
    if isinstance(value, float):
        return torch.tensor(value, dtype=torch.float64)
    return torch.tensor(value) if isinstance(value, (bool, int)) else None


def different(reference: Any, runtime: Any, *, dtypes: bool = True) -> str:
    if not isinstance(reference, torch.Tensor) or not isinstance(runtime, torch.Tensor):
        return ""
    if runtime.shape != reference.shape:
        return f"the runtime's shape {tuple(runtime.shape)} is not the reference's {tuple(reference.shape)}"
    if dtypes and runtime.dtype != reference.dtype:
        return f"the runtime's dtype {dtype_name(runtime.dtype)} is not the reference's {dtype_name(reference.dtype)}"
    return ""


def why_not_comparable(reference: Any, runtime: Any) -> str:
    r, q = as_tensor(reference), as_tensor(runtime)
    if q is None or r is None:
        missing = runtime if q is None else reference
        return "its value can't be read" if missing is None else f"its value is a {type(missing).__name__}"
    if q.shape != r.shape:
        return f"the runtime's shape {tuple(q.shape)} is not the reference's {tuple(r.shape)}"
    for tensor in (r, q):
        if tensor.dtype.is_complex or tensor.is_quantized:
            return f"values of {str(tensor.dtype).removeprefix('torch.')} are not compared"
    return ""


def add_gap(
    result: ExecutionGaps,
    node: Node,
    output: int,
    logged: Any,
    expected: Any,
    scale: float | None,
    pairing: str = "exact",
) -> Gap | None:
    """Append a value's gap; None, with the reason in `result`, if it can't be compared.

    A value of another shape or dtype is a row without numbers; not if paired by debug handles, which may pair different
    operators.
    """
    runtime, reference = as_tensor(logged), as_tensor(expected)
    if pairing != "handles" and (reason := different(expected, logged)):
        gap = add_unpaired(result, node, output, logged, scale, reason, pairing)
        if gap is not None:
            gap.status = DIFFERENT
        return gap
    reason = why_not_comparable(expected, logged)
    if not reason and runtime is not None and not runtime.numel():
        result.empty.add(node.instruction)
        return None
    if reason or runtime is None or reference is None:
        result.reasons[node.instruction] = reason
        return None
    sums, metrics = measure(reference, runtime, scale)
    custom, problems = result.custom.measure(reference, runtime, node.handles)
    metrics |= custom
    gap = Gap(node.instruction, output, node, runtime, result.keeper.keep(reference), sums, metrics, result.run)
    gap.pairing, gap.scale, gap.source = pairing, scale, (node.name, output)
    if sums.mismatched:
        gap.status = MISMATCH
    if not sums.count:
        gap.add_note("no element is finite in both")
    gap.failed_metrics = tuple(problems)
    for problem in problems:
        gap.add_note(problem)
    result.gaps.append(gap)
    return gap


def add_unpaired(
    result: ExecutionGaps, node: Node, output: int, logged: Any, scale: float | None, reason: str, pairing: str
) -> Gap | None:
    """Its introduced error may still be known."""
    runtime = as_tensor(logged)
    if runtime is None or runtime.is_complex():
        result.reasons[node.instruction] = why_not_comparable(logged, logged)
        return None
    unknown = dict.fromkeys(BUILT_IN, NAN) | result.custom.unknown()
    alone = Sums()
    if has_nonfinite(runtime):
        nan, inf, negative = (int(part.sum()) for part in (runtime.isnan(), runtime.isposinf(), runtime.isneginf()))
        counts = (runtime.numel() - nan - inf - negative, inf, negative, nan)
        alone = Sums(elements=runtime.numel(), classes=(counts, *((0,) * 4,) * 3))
    gap = Gap(node.instruction, output, node, runtime, None, alone, unknown, result.run, pairing=pairing)
    gap.unpaired, gap.scale, gap.source = reason, scale, (node.name, output)
    result.gaps.append(gap)
    return gap


def add_introduced(result: ExecutionGaps, gap: Gap, local: Any, scale: float | None) -> str:
    value = as_tensor(local)
    reason = why_not_comparable(local, gap.runtime)
    if gap.unpaired and gap.pairing != "handles" and (differs := different(local, gap.runtime)):
        gap.status, gap.introduced_different = DIFFERENT, True
        return differs
    if reason or value is None:
        return reason
    gap.introduced_sums, gap.introduced = measure(value, gap.runtime, scale)
    gap.introduced |= result.custom.measure(value, gap.runtime, gap.node.handles)[0]
    if gap.unpaired and gap.introduced_non_finite and gap.status != DIFFERENT:
        gap.status = MISMATCH
    return ""
