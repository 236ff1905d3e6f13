"""One columnar payload for the cell, the side panel and the report.

Numbers travel as raw little-endian buffers, texts as int32 codes into sorted dictionaries, so that a view sorts by
code. JSON carries only the description: ``{"buffer": k, "dtype": "float64", "length": n}`` names a buffer.
JSON has no NaN and no infinities; single numbers come as ``"nan"``, ``"inf"``, ``"-inf"``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from etviz.graph.tree import KINDS, Tree
from etviz.inspection import Inspection
from etviz.numerics.comparison import COMPARED
from etviz.numerics.histogram import CLASSES, Histogram, histogram, worst_elements
from etviz.view.attributed import ATTRIBUTION_COLUMNS, add_attribution, add_introduced_part
from etviz.view.columns import Column, table_columns
from etviz.view.edges import edge_pairs
from etviz.view.quantized import QUANTIZATION_COLUMNS, add_quantization, float_values, quantization_answer
from etviz.view.zoomed import INNER, with_inner_rows, zoom_list, zoomable_rows

VERSION: Final = 1
_TEXTS: Final = ("label", "backend", "op", "shape", "module", "source", "stack")


class Buffers:
    """Collects the buffers of one message."""

    def __init__(self) -> None:
        self.data: list[bytes] = []

    def add(self, values: Any, dtype: str) -> dict[str, Any]:
        """Append an array and return its description."""
        array = np.ascontiguousarray(values, dtype=np.dtype(dtype).newbyteorder("<"))
        self.data.append(array.tobytes())
        return {"buffer": len(self.data) - 1, "dtype": dtype, "length": int(array.size)}

    def add_counts(self, counts: npt.NDArray[np.int64]) -> dict[str, Any]:
        """Append whole numbers in the narrowest type that holds them."""
        most = int(counts.max(initial=0))
        fitting = (dtype for dtype in ("uint8", "uint16", "uint32") if most <= np.iinfo(dtype).max)
        return self.add(counts, next(fitting, "float64"))


def table_rows(inspection: Inspection) -> tuple[pd.DataFrame, int]:
    """Gap rows, those inside of zoomed delegates, then the instructions that were not compared; and how many were."""
    gaps = with_inner_rows(inspection, inspection.gaps)
    missing = inspection.coverage
    missing = missing[missing["status"] != COMPARED]
    if missing.empty:
        return gaps, len(gaps)
    filled = missing.reindex(columns=gaps.columns)
    filled["latency_ms"] = filled["instruction"].map(inspection.latency)
    return pd.concat([gaps, filled.astype(gaps.dtypes.to_dict(), errors="ignore")], ignore_index=True), len(gaps)


def build_payload(inspection: Inspection) -> tuple[dict[str, Any], list[bytes]]:
    """Everything that the view shows before a tensor is asked for.

    Returns
    -------
    dict, list of bytes
        The description, and the buffers that it names.
    """
    buffers = Buffers()
    rows, compared = table_rows(inspection)
    digest = inspection.digest
    named = rows[["kind", "op", "reference_ops", "output"]]
    rows["op"] = [operator_label(*item) for item in named.itertuples(index=False)]
    notes = add_quantization(inspection, rows)
    add_introduced_part(rows)
    attribution = add_attribution(inspection, rows)
    payload = {
        "version": VERSION,
        "title": inspection.title,
        "summary": {
            "level": digest.level,
            "verdict": digest.verdict,
            "facts": [
                {"label": f.label, "value": f.value, "level": f.level, "row": f.row, "hint": f.hint}
                for f in digest.facts
            ],
            "notes": [*digest.notes, *notes],
        },
        "rows": len(rows),
        "compared": compared,
        "columns": [
            _column(column, rows, buffers)
            for column in (*table_columns(), *ATTRIBUTION_COLUMNS, *QUANTIZATION_COLUMNS)
            if column.name in rows
        ],
        "zoomable": buffers.add(zoomable_rows(inspection, len(rows)), "uint8"),
        "zooms": [zoom | {"deviation": number(zoom["deviation"])} for zoom in zoom_list(inspection)],
        "trees": {
            "program": _tree(inspection.tree, rows, buffers),
            "modules": _tree(inspection.modules, rows, buffers),
        },
        "edges": buffers.add(edge_pairs(inspection), "int32"),
        "attribution": attribution and attribution | {"sum": number(attribution["sum"])},
    }
    return payload, buffers.data


def operator_label(kind: str, op: str, reference_ops: str, output: float = 0) -> str:
    """What the table calls an operator: what a delegate computes, a kernel without ATen's namespace.

    Outputs after the first have their number in brackets. Inside of a delegate, quantize and dequantize are named after
    the operators whose result they hand on.

    Examples
    --------
    >>> operator_label("delegate", "DELEGATE_CALL", "conv2d, relu"), operator_label("kernel", "aten::add.out", "add")
    ('conv2d, relu', 'add.out')
    >>> operator_label("kernel", "aten::topk.values", "topk", 1)
    'topk.values [1]'
    >>> operator_label("inner", "quantized_decomposed.quantize_per_tensor.default", "conv2d, relu")
    'conv2d, relu (quantized)'
    """
    known = kind in ("delegate", "inner") and bool(reference_ops)
    name = reference_ops if known else op.removeprefix("aten::")
    if known and kind == "inner" and not reference_ops.startswith(("quantize", "dequantize")):
        step = op.removeprefix("quantized_decomposed.").partition("_per_")[0]
        name += {"quantize": " (quantized)", "dequantize": " (dequantized)"}.get(step, "")
    return f"{name} [{int(output)}]" if output > 0 else name


def _column(column: Column, rows: pd.DataFrame, buffers: Buffers) -> dict[str, Any]:
    about: dict[str, Any] = {
        "name": column.name,
        "label": column.label,
        "kind": column.kind,
        "format": column.format,
        "better": column.better,
        "group": column.group,
        "description": column.description,
        "thresholds": list(column.thresholds) if column.thresholds else None,
        "visible": column.visible,
    }
    series = rows[column.name]
    if column.kind == "number":
        return about | {"values": buffers.add(pd.to_numeric(series, errors="coerce").to_numpy(float), "float64")}
    codes, dictionary = encode([_text(value) for value in series])
    return about | {"values": buffers.add(codes, "int32"), "dictionary": dictionary}


def _text(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(map(str, value))}]"
    return "" if value is None or (isinstance(value, float) and math.isnan(value)) else str(value)


def encode(texts: Iterable[str]) -> tuple[list[int], list[str]]:
    """Codes into a sorted dictionary; the empty text is -1.

    Examples
    --------
    >>> encode(["b", "", "a", "b"])
    ([1, -1, 0, 1], ['a', 'b'])
    """
    items = list(texts)
    dictionary = sorted({text for text in items if text})
    index = {text: code for code, text in enumerate(dictionary)}
    return [index.get(text, -1) for text in items], dictionary


def _tree(tree: Tree, rows: pd.DataFrame, buffers: Buffers) -> dict[str, Any]:
    about: dict[str, Any] = {
        "nodes": len(tree),
        "depth": buffers.add(tree.depth, "uint16"),
        "size": buffers.add(tree.size, "int32"),
        "kind": buffers.add([KINDS.index(kind) for kind in tree.kind], "uint8"),
        "kinds": list(KINDS),
        "instruction": buffers.add(tree.instruction, "int32"),
        "latency": buffers.add(tree.latency, "float64"),
        "operators": buffers.add(tree.operators, "int32"),
    }
    for name in _TEXTS:
        codes, dictionary = encode(getattr(tree, name))
        about[name] = buffers.add(codes, "int32")
        about[f"{name}s"] = dictionary
    instructions = pd.to_numeric(rows["instruction"]).fillna(-1).astype(int)
    outputs = pd.to_numeric(rows["output"]).fillna(0).astype(int)
    inner = rows[INNER].fillna("")
    nodes = [
        tree.by_inner.get((i, name), -1) if name else tree.node_of(i, o)
        for i, o, name in zip(instructions, outputs, inner, strict=True)
    ]
    return about | {"row_node": buffers.add(nodes, "int32")}


def build_tensor(
    inspection: Inspection, row: int, bins: int = 64, *, worst: bool = True
) -> tuple[dict[str, Any], list[bytes]]:
    """Histograms, statistics, non-finite counts and, if `worst`, the worst elements of one gap row."""
    buffers = Buffers()
    reference, runtime = inspection.values(row)
    floats = float_values(inspection, row)
    found = histogram(reference, runtime, bins, floats)
    counts = found.nonfinite
    any_nonfinite = counts is not None and counts.sum() != counts[0, 0]
    return {
        "row": row,
        "shape": list(runtime.shape),
        "elements": int(runtime.numel()),
        "reference_missing": inspection.reference_missing(row),
        "edges": buffers.add(found.edges, "float64"),
        "reference": None if found.reference is None else buffers.add_counts(found.reference),
        "runtime": buffers.add_counts(found.runtime),
        "error_edges": None if found.error_edges is None else buffers.add(found.error_edges, "float64"),
        "error": None if found.error is None else buffers.add_counts(found.error),
        "nonfinite": {"classes": list(CLASSES), "counts": counts.tolist()}
        if counts is not None and any_nonfinite
        else None,
        "fingerprints": [] if reference is None else inspection.fingerprints(row).to_dict("records"),
        "statistics": _statistics(found),
        "worst": [
            {"index": list(item["index"]), "reference": number(item["reference"]), "runtime": number(item["runtime"])}
            for item in worst_elements(reference, runtime)
        ]
        if worst and reference is not None
        else None,
        "quantization": quantization_answer(
            inspection, row, None if found.floats is None else buffers.add_counts(found.floats)
        ),
    }, buffers.data


def _statistics(found: Histogram) -> list[dict[str, Any]]:
    names: Sequence[tuple[str, str]] = (
        ("min", "minimum"),
        ("max", "maximum"),
        ("mean", "mean"),
        ("std", "std"),
        ("rms", "rms"),
        ("zeros", "zeros"),
    )
    parts = ("reference", "runtime", "error")
    return [
        {"name": label}
        | {part: number(getattr(found.statistics[part], name)) if part in found.statistics else None for part in parts}
        for label, name in names
    ]


def number(value: float) -> float | str:
    """A float as JSON can hold it."""
    if math.isfinite(value):
        return value
    return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
