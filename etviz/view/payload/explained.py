"""Attribution, and the introduced part of each gap, as the view shows them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd

from etviz.errors import EtvizError
from etviz.view.payload.columns import Column

if TYPE_CHECKING:
    from etviz.analysis.analysis import Analysis
    from etviz.explain.quantization.split import RowSplit

ATTRIBUTION_COLUMNS: Final = (
    Column(
        "introduced_part",
        "introduced part",
        "percent",
        "introduced",
        "Introduced RMSE over total RMSE, at most 1: the rest was inherited from the inputs.",
    ),
    Column(
        "attribution",
        "attribution",
        "percent",
        "attribution",
        "Share of the attributed error that this instruction caused (of the final output, or of a token's margin); "
        "negative where it cancels others' errors.",
        "low",
        visible=True,
    ),
)


def add_introduced_part(rows: pd.DataFrame) -> None:
    if "introduced_rmse" not in rows or rows["introduced_rmse"].isna().all():
        return
    introduced, total = (pd.to_numeric(rows[name], errors="coerce") for name in ("introduced_rmse", "rmse"))
    part = (introduced / total.where(total > 0)).clip(upper=1.0)
    rows["introduced_part"] = part.mask((total == 0) & (introduced > 0), 1.0)


def add_attribution(analysis: Analysis, rows: pd.DataFrame) -> dict[str, Any] | None:
    frame = analysis.attributions.last
    if frame is None:
        return None
    rows["attribution"] = frame["share"].reindex(rows.index).to_numpy(np.float64)
    about = frame.attrs
    return {name: about[name] for name in ("output", "about", "outputs", "sum", "note", "methods", "exact")}


QUANTIZATION_COLUMNS: Final = (
    Column(
        "quantization_rmse",
        "quantization RMSE",
        "metric",
        "quantization",
        "Float eager against quantized eager: the error of quantization itself, with what earlier operators brought.",
        "low",
    ),
    Column(
        "quantization_sqnr_db",
        "quantization SQNR",
        "db",
        "quantization",
        "Signal of the float model over the error of quantization.",
        "high",
        visible=True,
    ),
    Column(
        "backend_rmse",
        "backend RMSE",
        "metric",
        "quantization",
        "Quantized eager against runtime: the error of the backend.",
        "low",
    ),
    Column(
        "backend_sqnr_db",
        "backend SQNR",
        "db",
        "quantization",
        "Signal of the quantized model over the error of the backend.",
        "high",
    ),
    Column(
        "error_steps",
        "error in steps",
        "metric",
        "quantization",
        "Quantization RMSE / scale of the value's grid; ideal rounding alone gives 1/√12 = 0.289.",
        "low",
        visible=True,
    ),
    Column(
        "saturated",
        "saturated",
        "percent",
        "quantization",
        "Share of values at the end of the grid whose float value lies beyond by more than half a step.",
        "low",
    ),
)


def quantized_rows(analysis: Analysis) -> tuple[Mapping[int, RowSplit], str]:
    if not analysis.quantization.known:
        return {}, ""
    try:
        return analysis.quantization.rows(), ""
    except EtvizError as error:
        return {}, f"The error of quantization is not shown: {error}"


def add_quantization(analysis: Analysis, rows: pd.DataFrame) -> list[str]:
    from etviz.explain.quantization.delegates import not_counted

    known, problem = quantized_rows(analysis)
    if known:
        for column in QUANTIZATION_COLUMNS:
            values = {row: quantized.numbers.get(column.name, math.nan) for row, quantized in known.items()}
            rows[column.name] = pd.Series(values, dtype=float).reindex(rows.index)
        doubtful = [call for call in analysis.quantization.calls() if call.zoom.faithful is not True]
        return [f"Quantization: {not_counted(call.instruction)}." for call in doubtful]
    return [problem] if problem else []


def float_values(analysis: Analysis, row: int) -> Any | None:
    quantized = quantized_rows(analysis)[0].get(row)
    return None if quantized is None else quantized.comparable()


def quantization_answer(analysis: Analysis, row: int, counts: dict[str, Any] | None) -> dict[str, Any] | None:
    """Grid and counts of the float values, in the row's units.

    A row of integers has the range ``qmin … qmax``, any other the numbers that these stand for.
    """
    quantized = quantized_rows(analysis)[0].get(row)
    if quantized is None:
        return None
    grid, numbers = quantized.grid, quantized.numbers
    answer: dict[str, Any] = dict.fromkeys(("scale", "zero_point", "qmin", "qmax", "low", "high"))
    if grid is not None:
        answer |= {"scale": grid.scale, "zero_point": grid.zero_point, "qmin": grid.qmin, "qmax": grid.qmax}
        low, high = (grid.qmin, grid.qmax) if quantized.integers else (grid.low, grid.high)
        answer |= {"low": low, "high": high}
    return answer | {"float": counts, "error_steps": numbers.get("error_steps"), "saturated": numbers.get("saturated")}
