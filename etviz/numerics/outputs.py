"""The final outputs of one execution against those of the reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from etviz.numerics.comparison import COMPARED, MISMATCH, NOT_COMPARED, as_tensor, measure, why_not_comparable
from etviz.numerics.metrics import METRICS, NAN


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
        a, b = as_tensor(expected), as_tensor(found)
        if not complete:
            row["reason"] = f"the runtime logged {len(runtime)} of {len(reference)} final outputs"
        elif (reason := why_not_comparable(expected, found)) or a is None or b is None:
            row["reason"] = reason
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
