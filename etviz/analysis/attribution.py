"""Shares of the final error as a DataFrame: gap rows of one execution, and earlier rows that reach it."""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from tqdm.auto import tqdm

from etviz.analysis.rows import Rows, told_first
from etviz.comparison.gap import MISMATCH
from etviz.errors import UsageError
from etviz.evaluation.replay import Replay
from etviz.tensors.metrics import NAN

if TYPE_CHECKING:
    import pandas as pd

    from etviz.analysis.tables import Tables
    from etviz.explain.attribution.shares import Attribution, Loss, Progress
    from etviz.explain.stages.against import Counterpart

_MISMATCHED: Final = (
    "The output holds NaN or Inf where the reference does not, or the other way round. Shares are of the error of its "
    "other elements."
)
_ABOUT: Final = (
    *("name", "instruction", "output", "op", "reference_ops", "module", "source"),
    *("severity", "introduced_severity", "rmse"),
)


class Attributions:
    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._lock = threading.Lock()
        self._replay: Replay | None = None
        self._known: dict[tuple[int | str, int], Attribution] = {}
        self._last: tuple[int | str, int] | None = None

    @property
    def last(self) -> pd.DataFrame | None:
        with self._lock:
            tables, last = self._rows.tables, self._last
            if last is None or tables.compared.replay is not self._replay:
                return None
            return _frame(self._known[last], tables, last[1])

    def share(self, rows: Collection[int]) -> float | None:
        """The sum of the last shares of rows; None if none is known."""
        frame = self.last
        known = frame.loc[frame.index.isin(rows), "share"].dropna() if frame is not None else ()
        return float(sum(known)) if len(known) else None

    def of(
        self,
        output: int | None,
        run: int,
        *,
        loss: Loss | None = None,
        about: str = "",
        progress: Progress | None = None,
    ) -> pd.DataFrame:
        """See `Inspection.attribution`; with `about`, a loss's description, the views show its shares."""
        tables = self._rows.tables
        counterpart = tables.counterpart
        output, run = _choose(tables, output, run)
        if loss is not None and not about:
            return _frame(_attribute(tables, counterpart, output, run, loss, progress), tables, run)
        with self._lock:
            if tables.compared.replay is not self._replay:
                self._replay, self._known = tables.compared.replay, {}
            key = about or output, run
            if key not in self._known:
                self._known[key] = replace(_attribute(tables, counterpart, output, run, loss, progress), about=about)
            self._last = key
            return _frame(self._known[key], tables, run)


def _attribute(
    tables: Tables, counterpart: Counterpart, output: int, run: int, loss: Loss | None, progress: Progress | None
) -> Attribution:
    from etviz.explain.attribution.shares import attribute

    if progress is None:
        with tqdm(desc="attribution", leave=False, delay=1) as bar:
            attribution = attribute(counterpart.replay, run, output, loss, lambda done, total: _show(bar, done, total))
    else:
        attribution = attribute(counterpart.replay, run, output, loss, progress)
    if counterpart.own is not None:
        places = {number: place for place, number in counterpart.own.items()}
        attribution.shares = {places[key]: share for key, share in attribution.shares.items() if key in places}
        earlier = attribution.earlier.items()
        attribution.earlier = {(key[0], *places[key[1:]]): share for key, share in earlier if key[1:] in places}
    if not attribution.shares and not tables.gaps:
        raise UsageError("attribution() needs values that the runtime logged, and none could be compared; see coverage")
    if not attribution.shares:
        raise UsageError(
            "attribution() needs the operators of each instruction, and these artifacts only tell groups of them; "
            "give the program (pte=) and its ETRecord, or the record (record=)"
        )
    return attribution


def _choose(tables: Tables, output: Any, run: Any) -> tuple[int, int]:
    runs = tables.compared.runs
    run = _index("run", run, len(runs))
    if not runs[run].comparison.reference_outputs:
        raise UsageError(
            "The correct outputs of this run are not known, so their error is unknown; the notes of summary() say why"
        )
    outputs = _outputs_of(tables, run)
    if output is not None:
        return _index("output", output, len(outputs)), run
    return int(max((row for _, row in outputs.iterrows()), key=_badness)["output"]), run


def _index(name: str, value: Any, count: int) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__") or not 0 <= int(value) < count:
        raise UsageError(f"{name} must be from 0 to {count - 1}, found {value!r}")
    return int(value)


def _badness(row: Any) -> tuple[bool, float]:
    floating = str(row["dtype"]).startswith(("float", "bfloat"))
    severity = math.inf if row["status"] == MISMATCH else float(row["severity"])
    return floating, -1.0 if math.isnan(severity) else severity


def _outputs_of(tables: Tables, run: int) -> pd.DataFrame:
    sizes = [len(item.comparison.reference_outputs) for item in tables.compared.runs]
    start = sum(sizes[:run])
    return tables.outputs.iloc[start : start + sizes[run]]


def _frame(attribution: Attribution, tables: Tables, run: int) -> pd.DataFrame:
    from etviz.explain.attribution.shares import GRADIENT, UNKNOWN, Share

    rows = [row for row, gap in enumerate(tables.gaps) if gap.run == run]
    missing = Share(NAN, UNKNOWN, "the instruction did not compute this value alone")
    earlier = {
        row: share
        for row, gap in enumerate(tables.gaps)
        if (share := attribution.earlier.get((gap.run, gap.instruction, gap.output)))
    }
    gaps = [tables.gaps[row] for row in rows]
    shares = [attribution.shares.get((gap.instruction, gap.output), missing) for gap in gaps]
    rows, shares = [*earlier, *rows], [*earlier.values(), *shares]
    frame = tables.rows.loc[rows, list(_ABOUT)].copy()
    frame.index.name = "row"
    frame["run"] = [tables.gaps[row].run for row in rows]
    frame["share"] = [share.value for share in shares]
    frame["method"] = [share.method for share in shares]
    frame["reason"] = [share.reason for share in shares]
    outputs = _outputs_of(tables, run)
    about = None if attribution.output is None else outputs.iloc[attribution.output]
    mismatched = about is not None and about["status"] == MISMATCH
    frame.attrs.update(
        {
            "sum": attribution.sum,
            "output": attribution.output,
            "about": attribution.about,
            "outputs": [_label(row) for _, row in outputs.iterrows()],
            "run": run,
            "exact": about is not None and not mismatched and bool(about["max_abs"] == 0.0),
            "error": attribution.error,
            "note": " ".join([_MISMATCHED] if mismatched else attribution.notes),
            "methods": dict(Counter({GRADIENT: 0}) + Counter(frame["method"])),
        }
    )
    return told_first(frame.sort_values("share", ascending=False, key=abs, na_position="last", kind="stable"))


def _label(row: Any) -> str:
    shape = ", ".join(map(str, row["shape"]))
    return f"{row['output']}: [{shape}] {row['dtype']}"


def _show(bar: Any, done: int, total: int) -> None:
    bar.total = total
    bar.update(done - bar.n)
