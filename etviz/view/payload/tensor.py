"""Answers about one pair of tensors: the error map, the error by axis, the scatter density."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from etviz.analysis.analysis import Analysis
from etviz.errors import UsageError
from etviz.json_numbers import as_text
from etviz.tensors.blocks import CLASSES
from etviz.tensors.histogram import Histogram, histogram, worst_elements
from etviz.view.payload.beside import Beside
from etviz.view.payload.explained import float_values, quantization_answer
from etviz.view.payload.wire import Answer, MessageBuffers

MOST_CHANNELS: Final = 1 << 16


def build_error_map(analysis: Analysis, params: dict[str, Any]) -> Answer:
    buffers = MessageBuffers()
    of = params.get("of", "error")
    error_map = analysis.values.error_map(
        _row(params), of, params.get("axes"), params.get("index"), params.get("size", 256)
    )
    height, width = error_map.values.shape
    largest = np.finfo(np.float32).max
    return {
        "shape": list(error_map.shape),
        "axes": list(error_map.axes),
        "index": list(error_map.index),
        "height": height,
        "width": width,
        "values": buffers.add(np.clip(error_map.values, -largest, largest).ravel(), "float32"),
        "kinds": buffers.add(error_map.kinds.ravel(), "uint8") if error_map.kinds.any() else None,
        "block": list(error_map.block),
        "low": as_text(error_map.low),
        "high": as_text(error_map.high),
    }, buffers.data


def build_scatter(analysis: Analysis, params: dict[str, Any]) -> Answer:
    buffers = MessageBuffers()
    scatter = analysis.values.scatter(_row(params), params.get("bins", 64))
    return {
        "x_edges": buffers.add(scatter.edges, "float64"),
        "y_edges": buffers.add(scatter.edges, "float64"),
        "counts": buffers.add_counts(scatter.counts.ravel()),
        "elements": scatter.elements,
    }, buffers.data


def build_channels(analysis: Analysis, params: dict[str, Any]) -> Answer:
    buffers = MessageBuffers()
    row, axis = _row(params), params.get("axis", 0)
    shape = tuple(analysis.values.tensors(row)[1].shape)
    if isinstance(axis, int) and -len(shape) <= axis < len(shape) and shape[axis] > MOST_CHANNELS:
        raise UsageError(
            f"axis {axis} has {shape[axis]} entries, a view shows at most {MOST_CHANNELS}; choose another axis, or "
            f"call inspection.row({row}).channels({axis})"
        )
    channels = analysis.values.channel_error(row, axis)
    numbers = {name: buffers.add(channels[name], "float64") for name in ("rmse", "max_abs", "share")}
    return {"axis": axis % max(1, len(shape)), "size": len(channels)} | numbers, buffers.data


def _row(params: dict[str, Any]) -> int:
    row = params.get("row")
    if not isinstance(row, int) or isinstance(row, bool):
        raise UsageError(f"row must be the number of a row, found {row!r}")
    return row


BUILDERS: Final = {"error_map": build_error_map, "scatter": build_scatter, "channels": build_channels}


def build_tensor(
    analysis: Analysis, row: int, bins: int = 64, *, worst: bool = True, beside: Beside | None = None
) -> Answer:
    buffers = MessageBuffers()
    pair = analysis.values.pair(row)
    reference, runtime = pair.reference, pair.runtime
    if beside is not None and beside.apart:  # it would be the run itself
        reference = None
    floats = float_values(analysis, row)
    binned = histogram(reference, runtime, bins, floats)
    counts = binned.nonfinite
    any_nonfinite = counts is not None and counts.sum() != counts[0, 0]
    return {
        "row": row,
        "shape": list(runtime.shape),
        "elements": int(runtime.numel()),
        "reference_missing": pair.missing or None,
        "edges": buffers.add(binned.edges, "float64"),
        "reference": None if binned.reference is None else buffers.add_counts(binned.reference),
        "runtime": buffers.add_counts(binned.runtime),
        "error_edges": None if binned.error_edges is None else buffers.add(binned.error_edges, "float64"),
        "error": None if binned.error is None else buffers.add_counts(binned.error),
        "nonfinite": {"classes": list(CLASSES), "counts": counts.tolist()}
        if counts is not None and any_nonfinite
        else None,
        "label": "runtime" if beside is None else beside.labels[0],
        "beside": [] if beside is None else beside.histograms(row, binned.edges, buffers),
        "fingerprints": pair.fingerprints() if reference is not None else [],
        "statistics": _statistics(binned),
        "worst": [
            {
                "index": list(element["index"]),
                "reference": as_text(element["reference"]),
                "runtime": as_text(element["runtime"]),
            }
            for element in (worst_elements(reference, runtime) if reference is not None else ())
        ]
        if worst or reference is None
        else None,
        "quantization": quantization_answer(
            analysis, row, None if binned.floats is None else buffers.add_counts(binned.floats)
        ),
    }, buffers.data


def _statistics(drawn: Histogram) -> list[dict[str, Any]]:
    labels = {"minimum": "min", "maximum": "max", "mean": "mean", "std": "std", "rms": "rms", "zeros": "zeros"}
    parts = ("reference", "runtime", "error")
    return [
        {"name": label}
        | {part: as_text(getattr(drawn.statistics[part], name)) if part in drawn.statistics else None for part in parts}
        for name, label in labels.items()
    ]
