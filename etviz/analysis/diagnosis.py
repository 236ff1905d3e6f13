"""The diagnosis: what is wrong, where, why, and what to do next, as one JSON object for scripts and agents.

``diagnosis.schema.json`` beside this file is its JSON Schema. A field may be added without a new `VERSION`; one that
changes its meaning, or goes, raises it.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from etviz._version import __version__
from etviz.analysis.summary import row_level
from etviz.comparison.gap import COMPARED, EMPTY, GROUPED, MISMATCH, NOT_COMPARED
from etviz.errors import EtvizError, UsageError, during
from etviz.graph.labels import describe_row, source_code
from etviz.json_numbers import or_none
from etviz.tensors.fingerprints import FORMULA, SETTING, WEIGHTS

if TYPE_CHECKING:
    import pandas as pd

    from etviz.analysis.analysis import Analysis
    from etviz.analysis.tables import Tables

VERSION: Final = 1
_SHARES: Final = 10
"""Instructions whose share of the output's error is listed."""
_INNER: Final = 3
"""Rows inside of a delegate that are listed."""
_OUTPUT_METRICS: Final = ("rmse", "max_abs", "sqnr_db", "cosine", "severity", "noise")
_ROW_TEXTS: Final = ("kind", "op", "backend", "reference_ops", "module", "source", "dtype", "status", "non_finite")
_ROW_NUMBERS: Final = (
    *("rmse", "max_abs", "sqnr_db", "severity", "noise"),
    *("introduced_rmse", "introduced_severity", "introduced_noise", "latency_ms"),
)
_ADVICE: Final = {
    SETTING: "See how the backend reads this argument of the operator, or give the operator otherwise.",
    FORMULA: "Compare the formula of this kernel with PyTorch's. For a norm whose mean is large beside its deviation, "
    "subtract a constant before the norm (the result is unchanged), or use a backend that subtracts the mean first.",
    WEIGHTS: "Compare this weight in the .pte with the model's, and the layout in which the backend reads it.",
    "constant output": "The kernel writes nothing, or the same everywhere: check that its output is its own memory.",
    "permuted layout": "The values are correct but in a different layout: compare the memory formats (NCHW, NHWC).",
    "sign": "Check the sign convention of this operator in the backend.",
    "dtype truncation": "The backend computes in a narrower type than the program says: check its precision options.",
    "off-by-one shift": "Check where this operator starts to read and write in the backend (first index, strides).",
    "wrong zero-point": "Compare the zero-point of this value's quantization in the .pte and in the quantized model.",
    "clipping": "The range is too narrow: check a fused activation, or the calibration of this value's quantization.",
    "border pixels": "Check how the backend pads this operator.",
    "single bad channel": "Check what is particular to that channel: its weights, bias and per-channel scale.",
    "scale factor": "Compare the scales of this operator and of its value in the .pte with the model's.",
    "constant offset": "Compare bias and zero-point in the .pte with the model's.",
    "bias": "Compare the bias of this operator in the .pte with the model's.",
    "epsilon": "Compare the epsilon of this normalisation with the model's, and the formula that the backend takes.",
}


def schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of a diagnosis."""
    return json.loads(Path(__file__).with_name("diagnosis.schema.json").read_text(encoding="utf-8"))


@during("making the diagnosis")
def diagnose(
    analysis: Analysis, top: int = 5, *, look_inside: bool = True, timeout: float | None = None
) -> dict[str, Any]:
    """The diagnosis; see `Inspection.diagnosis`."""
    if isinstance(top, bool) or not isinstance(top, int) or top < 0:
        raise UsageError(f"top must be a number of rows, 0 or more, found {top!r}")
    attribution = _attribution(analysis)
    finding = analysis.finder.finding()
    tables, digest = analysis.tables, analysis.tables.digest
    suspects = _suspects(tables)
    culprit = finding.row if finding is not None and tables.introduced and finding.row in suspects else None
    about = None if culprit is None else _row(analysis, culprit)
    if about is not None and culprit is not None:
        about["proof"] = _proof(analysis, culprit)
        looked = look_inside and analysis.zooms.possible(culprit)
        about["inside"] = _inside(analysis, culprit, timeout) if looked else None
    return {
        "format": "etviz-diagnosis",
        "version": VERSION,
        "etviz": __version__,
        "title": analysis.title,
        "method": analysis.findings.method,
        "files": dict(analysis.findings.files),
        "level": digest.level,
        "verdict": digest.verdict,
        "finding": None if finding is None else {"level": finding.level, "text": finding.text, "row": finding.row},
        "culprit": about,
        "suspects": [_row(analysis, row) for row in [row for row in suspects if row != culprit][:top]],
        "outputs": [_output(row) for _, row in tables.outputs.iterrows()],
        "attribution": attribution,
        "compared": _compared(tables.coverage),
        "delegation": _delegation(analysis),
        "next": _next(analysis, about),
        "notes": list(digest.notes),
    }


def _suspects(tables: Tables) -> list[int]:
    """Rows whose error is more than their precision explains, the worst first."""
    if not len(tables):
        return []
    ranked = tables.ranked("introduced_severity" if tables.introduced else "severity")
    suspicious = (_level(tables, about) in ("warn", "bad") for _, about in ranked.iterrows())
    return [int(row) for row, bad in zip(ranked.index, suspicious, strict=True) if bad]


def _level(tables: Tables, about: pd.Series) -> str:
    """``ok``, ``warn``, ``bad`` of what a row introduced; of its total where no row's introduced error is known."""
    if about["status"] == MISMATCH:
        return "bad"
    if math.isnan(about["introduced_severity" if tables.introduced else "severity"]):
        return "unknown"
    return row_level(about, tables.on_grid, introduced=tables.introduced)


def _row(analysis: Analysis, row: int, own: Analysis | None = None) -> dict[str, Any]:
    """One row: what it is, how far it is off, its share and fingerprints; `own` is the delegate that it is in."""
    inner = own or analysis
    about = inner.tables.rows.loc[row]
    try:
        fingerprints = inner.values.pair(row).fingerprints()
    except EtvizError:
        fingerprints = []
    shares = None if own is not None else analysis.attributions.last
    return {
        "row": row,
        "name": describe_row(about),
        "event_block": int(about["event_block"]),
        "instruction": int(about["instruction"]),
        "output": int(about["output"]),
        "shape": list(about["shape"]),
        **{name: str(about[name] or "") for name in _ROW_TEXTS},
        "code": source_code(about["stack"]),
        "level": _level(inner.tables, about),
        **{name: or_none(float(about[name])) for name in _ROW_NUMBERS},
        "share": None if shares is None or row not in shares.index else or_none(float(shares["share"][row])),
        "fingerprints": [item | {"score": float(item["score"])} for item in fingerprints],
    }


def _proof(analysis: Analysis, row: int) -> dict[str, Any]:
    """The final outputs as they would have been, had the row been exact; why that is not known, if it is not."""
    try:
        found = analysis.what_if(row)
    except EtvizError as error:
        return {"message": str(error), "outputs": []}
    pairs = zip(found.before.iterrows(), found.after.iterrows(), strict=True)
    return {
        "message": "With what the culprit should have given in its place, and all else as it was.",
        "outputs": [
            {
                "output": int(was["output"]),
                "rmse": or_none(float(was["rmse"])),
                "without": or_none(float(now["rmse"])),
                "matches": bool(now["matches"]) if now["status"] != NOT_COMPARED else None,
            }
            for (_, was), (_, now) in pairs
        ],
    }


def _inside(analysis: Analysis, row: int, timeout: float | None) -> dict[str, Any]:
    """The inside of a delegate call: its operators, the worst first, and whether it still is what ran."""
    try:
        inner = analysis.zoom(row, timeout)
    except EtvizError as error:
        return {"faithful": None, "message": str(error), "notes": [], "compared": None, "rows": []}
    found = inner.findings.zoom
    return {
        "faithful": None if found is None else found.faithful,
        "message": "" if found is None else found.message,
        "notes": [] if found is None else list(found.notes),
        "compared": _compared(inner.tables.coverage),
        "rows": [_row(analysis, item, inner) for item in _suspects(inner.tables)[:_INNER]],
    }


def _output(row: pd.Series) -> dict[str, Any]:
    return {
        "output": int(row["output"]),
        "shape": list(row["shape"]),
        "dtype": str(row["dtype"]),
        "status": str(row["status"]),
        "matches": bool(row["matches"]) if row["status"] != NOT_COMPARED else None,
        "close": or_none(float(row["close"])),
        **{name: or_none(float(row[name])) for name in _OUTPUT_METRICS},
        "reason": str(row["reason"] or ""),
    }


def _attribution(analysis: Analysis) -> dict[str, Any]:
    """Who caused the error of the worst output; why that is not known, if it is not."""
    try:
        frame = analysis.attribution()
    except EtvizError as error:
        return {"sum": None, "output": None, "note": str(error), "shares": []}
    known = frame[frame["share"].notna()].head(_SHARES)
    rows = analysis.tables.rows
    return {
        "sum": or_none(float(frame.attrs["sum"])),
        "output": frame.attrs["output"],
        "note": frame.attrs["note"],
        "shares": [
            {
                "row": int(row),
                "name": describe_row(rows.loc[row]),
                "source": str(rows.loc[row, "source"] or ""),
                "share": or_none(float(about["share"])),
                "method": str(about["method"]),
            }
            for row, about in known.iterrows()
        ],
    }


def _compared(coverage: pd.DataFrame) -> dict[str, Any]:
    counts = Counter(coverage["status"])
    total = len(coverage) - counts[EMPTY]
    missing = coverage[coverage["status"] == NOT_COMPARED]["reason"].value_counts()
    return {
        "instructions": total,
        "compared": counts[COMPARED],
        "grouped": counts[GROUPED],
        "not_compared": counts[NOT_COMPARED],
        "reasons": [{"reason": str(reason), "count": int(count)} for reason, count in missing.items()],
    }


def _delegation(analysis: Analysis) -> dict[str, int] | None:
    found = analysis.delegation
    if found is None:
        return None
    return {
        "delegates": found.num_delegated_subgraphs,
        "delegated_nodes": found.num_delegated_nodes,
        "non_delegated_nodes": found.num_non_delegated_nodes,
    }


def _next(analysis: Analysis, culprit: dict[str, Any] | None) -> list[dict[str, str]]:
    """What to do next, the most telling first; `python` is an expression on the Inspection, or empty."""
    steps: list[dict[str, str]] = []

    def add(text: str, python: str = "") -> None:
        steps.append({"text": text, "python": python})

    tables = analysis.tables
    if culprit is not None:
        row, inside = culprit["row"], culprit.get("inside")
        inner = inside["rows"][:1] if inside is not None and inside["faithful"] else []
        names = [item["name"].partition(" ")[2] for item in inner]  # its number is that in another program
        where = f"Inside of the delegate, {names[0]} adds most of the error. " if names else ""
        advice = next((_ADVICE[item["name"]] for item in (*inner, culprit)[0]["fingerprints"]), "")
        if where or advice:
            add(f"{where}{advice}".strip())
        if inside is None and analysis.zooms.possible(row):
            add("Look at the operators inside of the delegate.", f"inspection.zoom({row})")
        elif inside is not None and not inside["rows"] and inside["compared"] is not None:
            add(
                "Lowered again here, the delegate shows no such error: compare what the .pte holds, the versions and "
                "the machine with this one."
            )
        add("Write this operator alone, with its inputs, for a bug report.", f'inspection.repro({row}, "bug/")')
    if not len(tables):
        add("Nothing was compared; the notes say what is missing.")
    elif not tables.introduced and analysis.findings.complete is not None:
        add("Compute what each operator adds itself.", "inspection.compute_introduced()")
    elif not tables.introduced:
        add("What each operator adds itself needs the record (record=), or the .pte with its ETRecord.")
    if analysis.quantization.known:
        add("Split the error into that of quantization and that of the backend.", "inspection.quantization()")
    if (tables.coverage["status"] == NOT_COMPARED).any():
        add("See which instructions were not compared, and why.", "inspection.coverage")
    return steps
