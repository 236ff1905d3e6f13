"""Compares the final outputs of one execution with the reference's."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from etviz.comparison.gap import COMPARED, DIFFERENT, MISMATCH, NOT_COMPARED
from etviz.comparison.measurement import as_tensor, different, measure, why_not_comparable
from etviz.tensors.blocks import dtype_name
from etviz.tensors.metrics import BUILT_IN, NAN, floor, level, severity_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from etviz.comparison.gap import Run
    from etviz.tensors.custom_metrics import CustomMetrics
    from etviz.tensors.metrics import Sums

COLUMNS: Final = (
    *("event_block", "input_index", "output", "status", "reason", "shape", "dtype"),
    *BUILT_IN,
    *("noise", "amplification", "grows_at"),
    *("reference_nan", "reference_inf", "runtime_nan", "runtime_inf", "close", "matches"),
)

_KINDS: Final = (
    dict.fromkeys(COLUMNS, "float64")
    | dict.fromkeys(("event_block", "input_index", "output"), "int64")
    | dict.fromkeys(("reference_nan", "reference_inf", "runtime_nan", "runtime_inf"), "int64")
    | {"status": "str", "reason": "str", "dtype": "str", "grows_at": "str", "shape": "object"}
    | {"allclose": "bool", "matches": "bool"}
)
_INDEPENDENT: Final = 7.4
"""Maximum noise that rounding can make, relative to a value's size.

√2 for two independent values, times the allowance for a single number that five evaluations measured.
"""


def compare_outputs(
    reference: Sequence[Any],
    runtime: Sequence[Any],
    scales: Sequence[float | None],
    noises: Sequence[float] = (),
    imposed: Sequence[float] = (),
    custom: CustomMetrics | None = None,
) -> list[dict[str, Any]]:
    """Compare each final output with its reference: all metrics, `allclose`, and a status.

    `matches` is `allclose`, or, for a float or a value on a grid, a `severity` (over the precision's floor or the
    measured `noise`) below the threshold. Other integers are not rounded. `amplification` is that noise over one
    rounding: the output's (`floor`), or the one `imposed` by the last grids before it.
    """
    rows = []
    complete = len(runtime) == len(reference) or not reference
    for index, expected in enumerate(reference or [None] * len(runtime)):
        logged = runtime[index] if complete else None
        row: dict[str, Any] = {"output": index, "status": NOT_COMPARED, "reason": "", "shape": (), "dtype": ""}
        a, b = as_tensor(expected), as_tensor(logged)
        if not complete:
            row["reason"] = f"the runtime logged {len(runtime)} of {len(reference)} final outputs"
        elif not reference:
            row["reason"] = "there is no reference"
            row |= {"shape": tuple(b.shape), "dtype": dtype_name(b.dtype)} if b is not None else {}
        elif b is not None and (reason := different(expected, logged)):
            row |= {"status": DIFFERENT, "reason": reason, "shape": tuple(b.shape), "close": 0.0}
            row |= {"dtype": str(b.dtype).removeprefix("torch."), "allclose": False, "matches": False}
        elif (reason := why_not_comparable(expected, logged)) or a is None or b is None:
            row["reason"] = reason
        else:
            scale = scales[index] if index < len(scales) else None
            noise = noises[index] if index < len(noises) else NAN
            sums, metrics = measure(a, b, scale)
            metrics |= custom.measure(a, b)[0] if custom is not None else {}
            metrics["severity"] = severity_of(sums, str(b.dtype).removeprefix("torch."), scale, noise)
            row |= {"status": MISMATCH if sums.mismatched else COMPARED, "shape": tuple(b.shape)}
            row |= {"dtype": str(b.dtype).removeprefix("torch.")} | metrics | sums.nonfinite()
            row["close"] = metrics["allclose"]
            row["allclose"] = metrics["allclose"] == 1.0
            explained = level("severity", metrics["severity"], row["dtype"]) == "ok"
            explained = explained and _is_credible(sums, scale, noise)
            rounded = explained and (scale is not None or b.dtype.is_floating_point or not math.isnan(noise))
            row["matches"] = row["allclose"] or (rounded and not sums.mismatched)
            row["noise"] = noise
            row["floor"] = floor(sums, row["dtype"], scale)
            least = max(row["floor"], imposed[index] if index < len(imposed) else NAN)
            row["amplification"] = noise / least if metrics["rmse"] and least > 0 else NAN
        rows.append(row | {name: NAN for name in (*BUILT_IN, "floor") if name not in row})
    return rows


def _is_credible(sums: Sums, scale: float | None, noise: float) -> bool:
    """False if the noise is larger than rounding can make it, or the value can't lie on its grid.

    The size is the larger value's: a norm of equal numbers gives 0.
    """
    size = math.sqrt(max(sums.rr, sums.qq) / sums.count) * sums.r_unit if sums.count else 0.0
    on_grid = scale is None or sums.max_r == 0.0 or sums.max_r >= 0.99 * scale
    return on_grid and (math.isnan(noise) or noise < _INDEPENDENT * size or sums.max_r == 0.0)


def outputs_frame(runs: Sequence[Run]) -> pd.DataFrame:
    """See `compare_outputs`; `grows_at` names the instruction that amplifies noise most."""
    import pandas as pd

    rows: list[dict[str, Any]] = []
    for block, index, run in runs:
        compared = compare_outputs(
            run.reference_outputs,
            run.runtime_outputs,
            run.output_scales,
            run.output_noise,
            run.output_imposed,
            run.custom,
        )
        grows = [*run.grows_at, *[""] * len(compared)]
        about = {"event_block": block, "input_index": index}
        rows.extend(about | {"grows_at": where} | row for where, row in zip(grows, compared, strict=False))
    custom = dict.fromkeys(name for _, _, run in runs for name in run.custom.names)
    at = COLUMNS.index("noise")
    frame = pd.DataFrame(rows, columns=[*COLUMNS[:at], *custom, *COLUMNS[at:]])
    return frame if rows else frame.astype(_KINDS | dict.fromkeys(custom, "float64"))
