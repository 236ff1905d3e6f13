"""`Inspection.attribution`: shares of the final error as a DataFrame, a row for each gap row of one execution."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from tqdm.auto import tqdm

from etviz.errors import UsageError
from etviz.numerics.attribution import GRADIENT, UNKNOWN, Attribution, Loss, Progress, Share, attribute
from etviz.numerics.comparison import MISMATCH, Gap

if TYPE_CHECKING:
    import pandas as pd

    from etviz.inspection import Findings

_NO_REFERENCE: Final = "There is no reference that could be run again, so there is nothing to attribute; see summary()"
_NAN = float("nan")
_ABOUT = ("instruction", "output", "op", "reference_ops", "module")


def attribution_frame(
    findings: Findings,
    table: tuple[pd.DataFrame, Sequence[Gap]],
    outputs: pd.DataFrame,
    *,
    output: int,
    run: int,
    loss: Loss | None = None,
    progress: Progress | None = None,
) -> pd.DataFrame:
    """See `Inspection.attribution`.

    Parameters
    ----------
    findings
        What was compared.
    table
        The gap rows, and the gaps behind them.
    outputs
        The final outputs of all executions.
    output, run
        What `choose` gave.
    loss
        As for `Inspection.attribution`.
    progress
        Called with the steps done and their number; it may raise to stop. A bar is shown if it is None.

    Raises
    ------
    UsageError
        If there is nothing to attribute, or an argument makes no sense.
    """
    replay = findings.replay
    if replay is None:
        raise UsageError(_NO_REFERENCE)
    if progress is None:
        with tqdm(desc="attribution", leave=False, delay=1) as bar:
            found = attribute(replay, run, output, loss, lambda done, total: _show(bar, done, total))
    else:
        found = attribute(replay, run, output, loss, progress)
    if not found.shares:
        raise UsageError(
            "attribution() needs the operators of each instruction, and these artifacts only tell groups of them; "
            "give the program (pte=) and its ETRecord, or the record (record=)"
        )
    frame = _frame(found, table, run)
    labels = [_label(row) for _, row in _outputs_of(findings, outputs, run).iterrows()]
    frame.attrs.update(_attributes(found, frame, labels, run))
    return frame


def choose(findings: Findings, outputs: pd.DataFrame, output: Any, run: Any) -> tuple[int, int]:
    """The checked ``(output, run)``; the output with the largest severity if `output` is None.

    Raises
    ------
    UsageError
        If there is no such output or execution, or nothing to attribute.
    """
    runs = findings.runs
    if not runs or findings.replay is None:
        raise UsageError(_NO_REFERENCE)
    run = _index("run", run, len(runs))
    if not runs[run][2].reference_outputs:
        raise UsageError(
            "The inputs of this run are not known, so the error of its outputs is not known; give them (inputs=)"
        )
    own = _outputs_of(findings, outputs, run)
    if output is not None:
        return _index("output", output, len(own)), run
    return int(max((row for _, row in own.iterrows()), key=_badness)["output"]), run


def _index(name: str, value: Any, count: int) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__") or not 0 <= int(value) < count:
        raise UsageError(f"{name} must be from 0 to {count - 1}, found {value!r}")
    return int(value)


def _badness(row: Any) -> tuple[bool, float]:
    """Floating outputs before others, then by severity."""
    floating = str(row["dtype"]).startswith(("float", "bfloat"))
    severity = math.inf if row["status"] == MISMATCH else float(row["severity"])
    return floating, -1.0 if math.isnan(severity) else severity


def _outputs_of(findings: Findings, outputs: pd.DataFrame, run: int) -> pd.DataFrame:
    """The outputs of one execution; each has as many as its reference."""
    sizes = [len(comparison.reference_outputs) for _, _, comparison in findings.runs]
    start = sum(sizes[:run])
    return outputs.iloc[start : start + sizes[run]]


def _frame(found: Attribution, table: tuple[pd.DataFrame, Sequence[Gap]], run: int) -> pd.DataFrame:
    gaps, behind = table
    rows = [row for row, gap in enumerate(behind) if gap.run == run]
    missing = Share(_NAN, UNKNOWN, "this value is not one that the instruction computed alone")
    shares = [found.shares.get((behind[row].instruction, behind[row].output), missing) for row in rows]
    frame = gaps.loc[rows, list(_ABOUT)].copy()
    frame.index.name = "row"
    frame["share"] = [share.value for share in shares]
    frame["method"] = [share.method for share in shares]
    frame["reason"] = [share.reason for share in shares]
    return frame.sort_values("share", ascending=False, na_position="last", kind="stable")


def _attributes(found: Attribution, frame: pd.DataFrame, outputs: list[str], run: int) -> dict[str, Any]:
    methods = Counter({GRADIENT: 0}) + Counter(frame["method"])
    return {
        "sum": found.sum,
        "output": found.output,
        "outputs": outputs,
        "run": run,
        "error": found.error,
        "note": " ".join(found.notes),
        "methods": dict(methods),
    }


def _label(row: Any) -> str:
    shape = ", ".join(map(str, row["shape"]))
    return f"{row['output']}: [{shape}] {row['dtype']}"


def _show(bar: Any, done: int, total: int) -> None:
    bar.total = total
    bar.update(done - bar.n)
