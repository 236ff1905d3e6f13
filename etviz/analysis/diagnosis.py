"""The diagnosis: what is wrong, where, why, and what to do next, as one JSON object.

Its schema is ``etviz/schemas/diagnosis.schema.json``. A new field keeps the `VERSION`; a changed or removed one raises
it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from etviz._version import __version__
from etviz.comparison.gap import COMPARED, EMPTY, GROUPED, NOT_COMPARED
from etviz.errors import EtvizError, UsageError, during
from etviz.graph.labels import describe_row, source_code
from etviz.json_numbers import or_none
from etviz.tensors.fingerprints import FORMULA, SETTING, WEIGHTS

if TYPE_CHECKING:
    import pandas as pd

    from etviz.analysis.analysis import Analysis
    from etviz.analysis.culprits import Culprit, Decision
    from etviz.analysis.finding import Finding

VERSION: Final = 1
_SHARES: Final = 10
_INNER: Final = 3
_OTHERS: Final = 3
_OUTPUT_METRICS: Final = ("rmse", "max_abs", "sqnr_db", "cosine", "severity", "noise")
_ROW_TEXTS: Final = ("kind", "op", "backend", "reference_ops", "module", "source", "dtype", "status", "non_finite")
_ROW_NUMBERS: Final = (
    *("rmse", "max_abs", "sqnr_db", "severity", "noise"),
    *("introduced_rmse", "introduced_severity", "introduced_noise", "latency_ms"),
)
_ADVICE: Final = {
    SETTING: "See how the backend reads this argument of the operator, or write the operator differently.",
    FORMULA: "Compare the formula of this kernel with PyTorch's. For a norm whose mean is large beside its deviation, "
    "subtract a constant before the norm (the result is unchanged), or use a backend that subtracts the mean first.",
    WEIGHTS: "Compare this weight in the .pte with the model's, and the layout in which the backend reads it.",
    "constant output": "The kernel writes nothing, or one value everywhere: check that no other tensor shares its "
    "output memory.",
    "permuted layout": "The values are correct but in a different layout: compare the memory formats (NCHW, NHWC).",
    "dtype truncation": "The backend computes in a narrower type than the program says: check its precision options.",
    "wrong zero-point": "Compare the zero-point of this value's quantization in the .pte and in the quantized model.",
    "clipping": "The range is too narrow: check a fused activation, or the calibration of this value's quantization.",
    "border pixels": "Check how the backend pads this operator.",
    "single bad channel": "Check what is particular to that channel: its weights, bias and per-channel scale.",
    "scale factor": "Compare the scales of this operator and of its value in the .pte with the model's.",
    "constant offset": "Compare bias and zero-point in the .pte with the model's.",
    "bias": "Compare the bias of this operator in the .pte with the model's.",
}


def schema() -> dict[str, Any]:
    path = Path(__file__).parents[1] / "schemas" / "diagnosis.schema.json"
    return json.loads(path.read_text(encoding="utf-8"))


@during("making the diagnosis")
def diagnose(
    analysis: Analysis, top: int = 5, *, look_inside: bool = True, timeout: float | None = None
) -> dict[str, Any]:
    if isinstance(top, bool) or not isinstance(top, int) or top < 0:
        raise UsageError(f"top must be a number of rows, 0 or more, found {top!r}")
    own = _has_own_model(analysis)
    problem = _look_inside(analysis, timeout) if look_inside and not own else ""
    attribution = _attribution(analysis)
    decision, finding, digest = analysis.finder.decision(), analysis.finder.finding(), analysis.digest
    culprit = _culprit(decision, finding)
    beside = decision.beside(culprit) if culprit is not None else []
    about = None if culprit is None else _row(analysis, culprit.row, culprit)
    if about is not None and culprit is not None:
        share = analysis.attributions.share(frozenset().union(*(suspect.sharing for suspect in beside)))
        about["share"] = None if culprit.gap.uncounted else share
        about["executions"] = len({suspect.run for suspect in decision.of_operator(culprit)})
        about["proof"] = _proof(analysis, decision, culprit, beside)
        about["inside"] = None if own else _inside(analysis, culprit, problem)
    named = {suspect.row for suspect in beside}
    suspects = [suspect for suspect in _suspects(analysis, decision) if suspect["row"] not in named]
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
        "suspects": suspects[:top],
        "outputs": [_output(row) for _, row in analysis.tables.outputs.iterrows()],
        "attribution": attribution,
        "compared": _compared(analysis.tables.coverage),
        "delegation": _delegation(analysis),
        "next": _next(analysis, about, culprit),
        "notes": list(digest.notes),
    }


def _look_inside(analysis: Analysis, timeout: float | None) -> str:
    """Zoom into the delegate at fault; returns why that failed.

    Without one, into delegates whose error reaches their noise.
    """
    tables, culprit = analysis.tables, analysis.finder.decision().culprit
    if culprit is not None:
        rows = [culprit.outer] if culprit.place.inside is None else []
    elif tables.constants:
        rows = []
    else:
        severities = tables.rows.loc[tables.rows["kind"] == "delegate", "introduced_severity"]
        severe = [int(row) for row in severities.index[severities >= 1] if tables.gaps[row].run == tables.worst_run]
        rows = list({tables.gaps[row].instruction: row for row in reversed(severe)}.values())
    problem = ""
    for row in rows:
        try:
            if analysis.zooms.possible(row):
                analysis.zoom(row, timeout)
        except EtvizError as error:
            problem = str(error)
    return problem


def _culprit(decision: Decision, finding: Finding | None) -> Culprit | None:
    about = (item for item in decision.culprits if finding is not None and finding.row in (item.row, item.outer))
    return decision.culprit if finding is None else next(about, decision.culprit)


def _suspects(analysis: Analysis, decision: Decision) -> list[dict[str, Any]]:
    tables = analysis.tables
    if not tables.introduced:
        order = tables.ranked("severity").index if len(tables) else ()
        return [_row(analysis, int(row)) for row in order if tables.gaps[row].total_level in ("warn", "bad")]
    return [
        _row(analysis, group[0].row, group[0]) | {"executions": len({one.run for one in group})}
        for group in sorted(decision.operators(), key=lambda group: -group[0].severity)
    ]


def _row(analysis: Analysis, row: int, culprit: Culprit | None = None) -> dict[str, Any]:
    place = analysis.rows.find(row)
    about = place.about if culprit is None else culprit.about.reindex(place.about.index, fill_value=None)
    try:
        fingerprints = analysis.values.pair(row).fingerprints()
    except EtvizError:
        fingerprints = []
    share = analysis.attributions.share((row,) if culprit is None else culprit.sharing)
    if place.gap.uncounted:
        share = None
    return {
        "row": row,
        "name": describe_row(about) if culprit is None else culprit.name,
        "event_block": int(about["event_block"]),
        "instruction": int(about["instruction"]),
        "output": int(about["output"]),
        "shape": list(about["shape"]),
        **{name: str(about[name] or "") for name in _ROW_TEXTS},
        "code": source_code(place.about["stack"]),
        "level": place.tables.level(place.at),
        **{name: or_none(float(about[name])) for name in _ROW_NUMBERS},
        "share": None if share is None else or_none(float(share)),
        "inside_of": culprit.outer if culprit is not None and place.inside is not None else None,
        "executions": 1,
        "fingerprints": [fingerprint | {"score": float(fingerprint["score"])} for fingerprint in fingerprints],
    }


def _proof(analysis: Analysis, decision: Decision, culprit: Culprit, beside: Sequence[Culprit]) -> dict[str, Any]:
    try:
        proof = analysis.what_if([item.row for item in beside])
    except EtvizError as error:
        return {"message": str(error), "outputs": []}
    numbers = {run.event_block: number for number, run in enumerate(analysis.tables.compared.runs)}
    outputs = [
        {
            "output": int(was["output"]),
            "run": numbers[int(was["event_block"])],
            "rmse": or_none(float(was["rmse"])),
            "without": or_none(float(now["rmse"])),
            "status": str(was["status"]),
            "status_without": str(now["status"]),
            "matches": bool(now["matches"]) if now["status"] != NOT_COMPARED else None,
        }
        for (_, was), (_, now) in zip(proof.before.iterrows(), proof.after.iterrows(), strict=True)
    ]
    calls = len({item.run for item in beside})
    several = f" in all {calls} executions in which it is at fault" if calls > 1 else ""
    whole = len({item.run for item in beside if not item.is_inner})
    if several and 0 < whole < calls:
        several += f" ({whole} of them not zoomed into: there, of its whole delegate)"
    message = (
        f"With the correct output of the culprit substituted{several}, and every other operator's error as it was."
    )
    others = [other.name for other in decision.others(culprit)]
    if others and any(output["matches"] is False for output in outputs):
        message += f" Other operators are at fault too: {', '.join(others[:_OTHERS])}"
        message += f" and {len(others) - _OTHERS} more." if len(others) > _OTHERS else "."
    return {"message": message, "outputs": outputs}


def _has_own_model(analysis: Analysis) -> bool:
    reference = analysis.findings.reference
    return reference is not None and reference.counterpart is not None


def _inside(analysis: Analysis, culprit: Culprit, problem: str) -> dict[str, Any] | None:
    inner = analysis.zoomed(culprit.outer)
    if inner is None:
        empty = {"faithful": None, "message": problem, "notes": [], "compared": None, "rows": []}
        return empty if problem else None
    zoom = inner.findings.zoom
    return {
        "faithful": None if zoom is None else zoom.faithful,
        "message": "" if zoom is None else zoom.message,
        "notes": [] if zoom is None else list(zoom.notes),
        "compared": _compared(inner.tables.coverage),
        "rows": _suspects(inner, inner.finder.decision())[:_INNER],
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
    try:
        frame = analysis.attribution()
    except EtvizError as error:
        return {"sum": None, "output": None, "run": None, "note": str(error), "shares": []}
    known = frame[frame["share"].notna()].head(_SHARES)
    rows, culprit = analysis.tables.rows, analysis.finder.decision().culprit
    note = frame.attrs["note"]
    if culprit is not None and culprit.gap.uncounted:
        note = f"{note} {culprit.name} changes a shape, NaN or Inf, which no share counts.".strip()
    return {
        "sum": or_none(float(frame.attrs["sum"])),
        "output": frame.attrs["output"],
        "run": int(frame.attrs["run"]),
        "note": note,
        "shares": [
            {
                "row": int(row),
                "name": describe_row(rows.loc[row])
                + (f" in run {about['run']}" if about["run"] != frame.attrs["run"] else ""),
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
    delegation = analysis.delegation
    if delegation is None:
        return None
    return {
        "delegates": delegation.num_delegated_subgraphs,
        "delegated_nodes": delegation.num_delegated_nodes,
        "non_delegated_nodes": delegation.num_non_delegated_nodes,
    }


def _next(analysis: Analysis, about: dict[str, Any] | None, culprit: Culprit | None) -> list[dict[str, str]]:
    steps: list[dict[str, str]] = []

    def add(text: str, python: str = "") -> None:
        steps.append({"text": text, "python": python})

    tables, own = analysis.tables, _has_own_model(analysis)
    if about is not None and own:
        add("The program itself differs from the model that is the reference: compare their source there.")
    elif about is not None and culprit is not None:
        inside = about["inside"]
        if advice := next((_ADVICE[fingerprint["name"]] for fingerprint in about["fingerprints"]), ""):
            add(advice)
        if inside is None and analysis.zooms.possible(culprit.outer):
            add("Look at the operators inside the delegate.", f"inspection.zoom({culprit.outer})")
        elif not advice and inside is not None and not inside["rows"] and inside["compared"] is not None:
            add(
                "Lowered again here, the delegate does not show this error: compare what the .pte holds, the versions "
                "and the machine with this one."
            )
        alone = f'inspection.repro({culprit.row}, "bug/")'
        add("Write this operator alone, with its inputs, for a bug report.", alone)
    if not len(tables):
        add("Nothing was compared; the notes say what is missing.")
    elif not tables.introduced and analysis.findings.complete is not None:
        add("Compute the error that each operator adds.", "inspection.compute_introduced()")
    elif not tables.introduced:
        add("The error that each operator adds needs the record (record=), or the .pte with its ETRecord.")
    if analysis.quantization.known and analysis.is_quantized:
        add("Split the error into that of quantization and that of the backend.", "inspection.quantization()")
    if (tables.coverage["status"] == NOT_COMPARED).any():
        add("See which instructions were not compared, and why.", "inspection.coverage")
    return steps
