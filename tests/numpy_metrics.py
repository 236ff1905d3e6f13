"""Every metric by its textbook formula, in plain NumPy: what etviz's one pass over blocks must agree with."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

EPS = {torch.float64: 2.0**-52, torch.float32: 2.0**-23, torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7}
RTOL_ATOL = {
    torch.float64: (1e-3, 1e-5),
    torch.float32: (1e-3, 1e-5),
    torch.float16: (1e-2, 1e-3),
    torch.bfloat16: (3e-2, 1e-2),
}


def expected_metrics(
    reference: Tensor, runtime: Tensor, scale: float | None = None, noise: float = math.nan
) -> dict[str, float]:
    """All metrics of a pair; `noise` is what was measured for it, NaN if nothing was."""
    r_all, q_all = (tensor.detach().to(torch.float64).numpy().ravel() for tensor in (reference, runtime))
    both = np.isfinite(r_all) & np.isfinite(q_all)
    r, q = r_all[both], q_all[both]
    d = q - r
    rtol, atol = RTOL_ATOL.get(runtime.dtype, (0.0, 0.0))
    if scale is not None:
        atol = max(atol, 1.0001 * scale)
    same = (np.isnan(r_all) & np.isnan(q_all)) | (np.isinf(r_all) & (r_all == q_all))
    close = int((np.abs(d) <= atol + rtol * np.abs(r)).sum()) + int(same.sum())
    share = close / len(r_all) if len(r_all) else 1.0
    floating = runtime.dtype in EPS
    if not len(r_all):
        return {
            **dict.fromkeys(("mse", "rmse", "mean_abs", "max_abs", "l1", "rel_l2", "severity"), 0.0),
            **{"sqnr_db": math.inf, "psnr_db": math.inf, "cosine": 1.0, "allclose": 1.0},
            "max_ulp": 0.0 if floating else math.nan,
        }
    if not len(r):
        names = ("mse", "rmse", "mean_abs", "max_abs", "l1", "rel_l2", "severity", "sqnr_db", "psnr_db", "cosine")
        return {**dict.fromkeys((*names, "max_ulp"), math.nan), "allclose": share}
    n = len(r)
    # Long doubles hold the squares of all float64 numbers.
    w, v, e = (array.astype(np.longdouble) for array in (r, q, d))
    dd, rr, qq, rq = (product.sum() for product in (e * e, w * w, v * v, w * v))
    l1, rmse = math.fsum(np.abs(d)), float(np.sqrt(dd / n))
    peak = float(np.abs(r).max())
    unavoidable = scale / math.sqrt(12) if scale else EPS.get(runtime.dtype, 0.0) / 2 * float(np.sqrt(rr / n))
    return {
        "mse": float(dd / n),
        "rmse": rmse,
        "mean_abs": l1 / n,
        "max_abs": float(np.abs(d).max()),
        "l1": l1,
        "rel_l2": float(_divide(np.sqrt(dd), np.sqrt(rr))),
        "sqnr_db": _decibel(rr, dd),
        "psnr_db": _decibel(np.longdouble(peak) ** 2, dd / n),
        "cosine": 1.0 if dd == 0 else float(rq / np.sqrt(rr * qq)) if rr * qq > 0 else 0.0,
        "allclose": share,
        "max_ulp": _largest_ulp(reference, runtime, both) if floating else math.nan,
        "severity": _divide(rmse, unavoidable if math.isnan(noise) else noise),
    }


def _divide(error: Any, unit: Any) -> Any:
    return 0.0 if error == 0 else error / unit if unit else math.inf


def _decibel(signal: Any, noise: Any) -> float:
    if noise == 0:
        return math.inf
    return float(10 * np.log10(signal / noise)) if signal else -math.inf


def _largest_ulp(reference: Tensor, runtime: Tensor, both: Any) -> float:
    """Count the representable numbers between each pair, in Python's integers."""
    view = {2: torch.int16, 4: torch.int32, 8: torch.int64}[runtime.dtype.itemsize]
    top = 1 << (8 * runtime.dtype.itemsize - 1)

    def order(tensor: Tensor) -> list[int]:
        bits = tensor.detach().to(runtime.dtype).contiguous().view(view).ravel()[torch.from_numpy(both)].tolist()
        return [value if value >= 0 else -(value + top) for value in bits]

    pairs = zip(order(reference), order(runtime), strict=True)
    return float(max(abs(a - b) for a, b in pairs))


def assert_metrics(found: Mapping[Any, Any], expected: dict[str, float], where: object = "") -> None:
    """Same NaN, same infinities, and within 1e-12 relative elsewhere."""
    for name, value in expected.items():
        got = float(found[name])
        text = f"{name} {where}: {got!r} instead of {value!r}"
        if math.isnan(value) or math.isinf(value):
            assert (math.isnan(got) and math.isnan(value)) or got == value, text
        else:
            # A logarithm near 1 and a sum of both signs have no relative precision.
            floor = 1e-11 if name.endswith("_db") else 1e-12 if name == "cosine" else 0.0
            assert math.isclose(got, value, rel_tol=1e-12, abs_tol=floor), text
