"""Delegates that can be zoomed into, and the rows of those that were, as the view shows them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from etviz.inspection import Inspection

INNER = "inner_name"
"""Column with the name of an inner row's operator, by which the trees find its node; empty for other rows."""


def with_inner_rows(inspection: Inspection, gaps: pd.DataFrame) -> pd.DataFrame:
    """Gap rows, then the rows of every zoomed delegate, which stand at the delegate's instruction."""
    frames = [gaps.assign(**{INNER: ""})]
    for (run, instruction), inside in inspection.zooms.items():
        rows = inside.gaps
        names = [inside.operator_name(row) for row in rows.index]
        block = inspection.block_of(run)
        frames.append(rows.assign(instruction=instruction, event_block=block, **{INNER: names}))
    shown = [frame for frame in frames if len(frame)]
    return pd.concat(shown, ignore_index=True) if len(shown) > 1 else frames[0]


def zoomable_rows(inspection: Inspection, rows: int) -> npt.NDArray[np.uint8]:
    """1 for each row of a delegate call that can be zoomed into and was not yet."""
    found = np.zeros(rows, np.uint8)
    for row in inspection.gaps.index:
        found[row] = inspection.zoomable(row) and inspection.zoomed(row) is None
    return found


def zoom_list(inspection: Inspection) -> list[dict[str, Any]]:
    """What was zoomed into: the first gap row of each delegate, and how faithful it is."""
    first: dict[int, int] = {}
    for row in inspection.gaps.index:
        inside = inspection.zoomed(row)
        if inside is not None:
            first.setdefault(id(inside), int(row))
    return [
        {
            "row": first[id(inside)],
            "instruction": instruction,
            "faithful": inside.faithful,
            "deviation": inside.deviation,
            "message": inside.fidelity,
        }
        for (_, instruction), inside in inspection.zooms.items()
    ]
