"""Attribution, and the introduced part of each gap, as the view shows them."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pandas as pd

from etviz.inspection import Inspection
from etviz.view.columns import Column

ATTRIBUTION_COLUMNS: Final = (
    Column(
        "introduced_part",
        "introduced part",
        "number",
        "percent",
        "introduced",
        "Introduced RMSE over total RMSE, at most 1: the rest was inherited from the inputs.",
    ),
    Column(
        "attribution",
        "attribution",
        "number",
        "percent",
        "attribution",
        "Share of the final output's error that this instruction caused; negative where it cancels others' errors.",
        "low",
        visible=True,
    ),
)


def add_introduced_part(rows: pd.DataFrame) -> None:
    """Add the column ``introduced_part``, where any introduced gap is known."""
    if "introduced_rmse" not in rows or rows["introduced_rmse"].isna().all():
        return
    introduced, total = (pd.to_numeric(rows[name], errors="coerce") for name in ("introduced_rmse", "rmse"))
    part = (introduced / total.where(total > 0)).clip(upper=1.0)
    rows["introduced_part"] = part.mask((total == 0) & (introduced > 0), 1.0)


def add_attribution(inspection: Inspection, rows: pd.DataFrame) -> dict[str, Any] | None:
    """Add the column ``attribution``; returns what is said about it, None if nothing was attributed yet."""
    found = inspection.attributed
    if found is None:
        return None
    rows["attribution"] = found["share"].reindex(rows.index).to_numpy(np.float64)
    about = found.attrs
    return {name: about[name] for name in ("output", "outputs", "sum", "note", "methods")}
