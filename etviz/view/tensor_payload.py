"""Answers about one pair of tensors: the error map, the error by axis, the scatter density."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from etviz.errors import UsageError
from etviz.inspection import Inspection
from etviz.view.payload import Buffers, number

MOST_CHANNELS: Final = 1 << 16
"""Longest axis whose error a view is sent."""

Answer = tuple[dict[str, Any], list[bytes]]


def build_error_map(inspection: Inspection, params: dict[str, Any]) -> Answer:
    """A slice of a row: ``{"row", "of", "axes", "index", "size"}``."""
    buffers = Buffers()
    of = params.get("of", "error")
    found = inspection.error_map(_row(params), of, params.get("axes"), params.get("index"), params.get("size", 256))
    height, width = found.values.shape
    largest = np.finfo(np.float32).max
    return {
        "shape": list(found.shape),
        "axes": list(found.axes),
        "index": list(found.index),
        "height": height,
        "width": width,
        "values": buffers.add(np.clip(found.values, -largest, largest).ravel(), "float32"),
        "block": list(found.block),
        "low": number(found.low),
        "high": number(found.high),
    }, buffers.data


def build_scatter(inspection: Inspection, params: dict[str, Any]) -> Answer:
    """The density of a row: ``{"row", "bins"}``."""
    buffers = Buffers()
    found = inspection.scatter(_row(params), params.get("bins", 64))
    return {
        "x_edges": buffers.add(found.edges, "float64"),
        "y_edges": buffers.add(found.edges, "float64"),
        "counts": buffers.add_counts(found.counts.ravel()),
        "elements": found.elements,
    }, buffers.data


def build_channels(inspection: Inspection, params: dict[str, Any]) -> Answer:
    """The error of a row by axis: ``{"row", "axis"}``."""
    buffers = Buffers()
    row, axis = _row(params), params.get("axis", 0)
    shape = tuple(inspection.tensors(row)[1].shape)
    if isinstance(axis, int) and -len(shape) <= axis < len(shape) and shape[axis] > MOST_CHANNELS:
        raise UsageError(
            f"axis {axis} has {shape[axis]} entries, a view shows at most {MOST_CHANNELS}; choose another axis, or "
            f"call inspection.channel_error({row}, {axis})"
        )
    found = inspection.channel_error(row, axis)
    return {
        "axis": axis % max(1, len(shape)),
        "size": len(found),
        "rmse": buffers.add(found["rmse"], "float64"),
        "max_abs": buffers.add(found["max_abs"], "float64"),
        "share": buffers.add(found["share"], "float64"),
    }, buffers.data


def _row(params: dict[str, Any]) -> int:
    row = params.get("row")
    if not isinstance(row, int) or isinstance(row, bool):
        raise UsageError(f"row must be the number of a row, found {row!r}")
    return row


BUILDERS: Final = {"error_map": build_error_map, "scatter": build_scatter, "channels": build_channels}
"""What answers which question of a view."""
