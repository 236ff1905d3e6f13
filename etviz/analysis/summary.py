"""The verdict in words, the same in the widget's header, in `summary()` and in reports."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from etviz.comparison.constants import differing
from etviz.comparison.gap import EMPTY, MISMATCH, NOT_COMPARED, shared_with
from etviz.comparison.tables import NONFINITE, rank
from etviz.graph.labels import describe_row
from etviz.tensors.metrics import level
from etviz.text import one_line

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import pandas as pd

    from etviz.comparison.constants import Difference
    from etviz.graph.delegation import Delegation

_AMPLIFIED: Final = 30.0
"""Noise over one rounding of the value from which a network is said to amplify rounding."""
_SEVERITY: Final = "Severity is the RMSE over the error that the value's precision makes unavoidable."


@dataclass(frozen=True, slots=True)
class Fact:
    """One line of the summary; `level` is ``ok``, ``warn``, ``bad`` or ``unknown``; `row` is the gap row to look at."""

    label: str
    value: str
    level: str = "ok"
    row: int | None = None
    hint: str = ""


@dataclass(slots=True)
class Summary:
    """Verdict, facts and notes."""

    level: str
    verdict: str
    facts: list[Fact] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [self.verdict, *(f"{fact.label}: {fact.value}" for fact in self.facts), *self.notes]
        return "\n".join(map(one_line, lines))


def summarize(
    gaps: pd.DataFrame,
    coverage: pd.DataFrame,
    outputs: pd.DataFrame,
    delegation: Delegation | None,
    notes: list[str],
    on_grid: Collection[int] = (),
    constants: Sequence[Difference] = (),
    judged: Sequence[bool] = (),
    unread: Collection[int] = (),
    undetermined: str = "",
) -> Summary:
    """The summary of one Inspection.

    `on_grid` are the gap rows whose values lie on a quantization grid, `unread` those that nobody reads; `constants`
    are those that differ; `judged` says of each execution whether its inputs and state are known, and the program
    determines its outputs; where it does not, they follow from what is `undetermined`.
    """
    level, verdict = _judge(outputs, judged, undetermined)
    facts = [_constants(gaps, constants), _compared(coverage), _delegated(delegation)]
    facts += [_worst(gaps, coverage, on_grid, unread)]
    facts += [_first_divergence(gaps, coverage, on_grid, unread), _nonfinite(gaps)]
    found = [fact for fact in facts if fact is not None]
    if level == "ok" and any(fact.level == "bad" for fact in found):
        level = "warn"
    return Summary(level, verdict, found, notes)


def _judge(outputs: pd.DataFrame, judged: Sequence[bool], undetermined: str) -> tuple[str, str]:
    """The verdict on the executions that can be judged, and how many can't."""
    unknown = len(judged) - sum(judged)
    if not unknown or len(judged) == 1:  # of a single one, its notes say why
        return _verdict(outputs, undetermined)
    why, how = "their inputs or state are not known", "give inputs= for each execution, from the first"
    if undetermined:
        why = how = f"their outputs follow from {undetermined}"
    if unknown == len(judged):
        advice = "" if undetermined else f" ({how})"
        return "unknown", f"None of the {unknown} executions can be judged: {why}{advice}."
    level, verdict = _verdict(outputs, undetermined)
    text = f"{verdict} {unknown} of {len(judged)} executions can't be judged: {how}."
    return ("warn" if level == "ok" else level), text


def _verdict(outputs: pd.DataFrame, undetermined: str) -> tuple[str, str]:
    if outputs.empty:
        why = f": they follow from {undetermined}" if undetermined else ""
        return "unknown", f"Final outputs were not compared{why}."
    known = outputs[outputs["status"] != NOT_COMPARED]
    if known.empty:
        return "unknown", f"Final outputs could not be compared: {outputs['reason'].iloc[0]}."
    bad = known[known["status"] == MISMATCH]
    if len(bad):
        return "bad", f"{_outputs(len(bad), len(outputs), 'is', 'are')} {_which_is_nonfinite(bad)}."
    wrong = known[~known["matches"].astype(bool)]
    if len(wrong):
        worst = wrong.sort_values("close", kind="stable").iloc[0]
        numbers = f"rmse {worst['rmse']:.3g}, SQNR {_db(worst['sqnr_db'])}"
        within = f"{100 * worst['close']:.3g} % of its elements within tolerance"
        detail = f"{_worst_of(worst, wrong, outputs)}{numbers}, {within}"
        return "bad", f"{_outputs(len(wrong), len(outputs), 'differs', 'differ')} from the reference ({detail})."
    rounded = known[~known["allclose"].astype(float).eq(1.0) & known["noise"].notna()]
    if len(rounded):
        worst = rounded.sort_values("close", kind="stable").iloc[0]
        what = _outputs(len(rounded), len(outputs), "differs", "differ")
        times = f": one rounding arrives {worst['amplification']:,.3g} times larger at the output"
        detail = f" (rmse {worst['rmse']:.3g}, noise {worst['noise']:.3g}, SQNR {_db(worst['sqnr_db'])})"
        grows = str(worst["grows_at"] or "")
        often = times + (f", and grows most {grows}" if grows else "") if worst["amplification"] >= _AMPLIFIED else ""
        drowned = ", which leaves nothing of it" if worst["noise"] * worst["rel_l2"] >= worst["rmse"] else ""
        return "warn", f"{what} as much as rounding in this precision explains{drowned}{often}{detail}."
    matching = f"{_outputs(len(known), len(outputs), 'matches', 'match')} the reference"
    if len(known) < len(outputs):
        return "warn", f"{matching}; the others were not compared."
    empty = int(known["max_abs"].isna().sum())
    if empty:
        which = "" if len(outputs) == 1 else f" in {empty} of them"
        return "warn", f"{matching}, but{which} no element is finite in both."
    return "ok", f"{matching} ({_agreement(known)})."


def _outputs(count: int, total: int, singular: str, plural: str) -> str:
    """So many of all final outputs as the subject of a sentence, with its verb."""
    verb = singular if count == 1 else plural
    if total == 1:
        return f"The final output {verb}"
    all_of_them = "Both" if total == 2 else f"All {total}"
    return f"{all_of_them if count == total else f'{count} of {total}'} final outputs {verb}"


def _worst_of(worst: pd.Series, wrong: pd.DataFrame, outputs: pd.DataFrame) -> str:
    """Which output the numbers are of, where there are several; its run, where there are several of those."""
    if len(outputs) == 1:
        return ""
    run = f" of run {int(worst['event_block'])}" if outputs["event_block"].nunique() > 1 else ""
    return f"{'worst is ' if len(wrong) > 1 else ''}output {int(worst['output'])}{run}: "


def _which_is_nonfinite(bad: pd.DataFrame) -> str:
    """Whose fault it is, as far as the counts tell: the runtime's, the reference's, or neither's alone."""
    runtime, reference = (bad[f"{side}_nan"].sum() + bad[f"{side}_inf"].sum() for side in ("runtime", "reference"))
    if not reference:
        return "NaN or Inf where the reference is not"
    if not runtime:
        return "finite where the reference is NaN or Inf, so the reference is at fault"
    return "NaN or Inf at other places than the reference"


def _agreement(known: pd.DataFrame) -> str:
    largest = float(known["max_abs"].max())
    if largest == 0:
        return "bit for bit"
    within = "" if known["allclose"].astype(bool).all() else ", which is rounding for its precision"
    return f"max |error| {largest:.3g}{within}"


def _constants(gaps: pd.DataFrame, constants: Sequence[Difference]) -> Fact | None:
    """The best evidence that there can be: the program computes with other numbers than the reference."""
    if not constants:
        return None
    hint = "The .pte holds other numbers than the reference; everything that reads them differs for that reason."
    more = "; ".join(str(item) for item in constants[1:6])
    text = f"differ from the reference's: {differing(constants)}"
    return Fact("Constants", text, "bad", row_of(gaps, constants), f"{hint} {more}".strip())


def row_of(gaps: pd.DataFrame, constants: Sequence[Difference]) -> int | None:
    """The first gap row of an instruction that reads a constant that differs."""
    if gaps.empty:
        return None
    rows = gaps.index[gaps["instruction"].isin([item.instruction for item in constants])]
    return int(rows[0]) if len(rows) else None


def _compared(coverage: pd.DataFrame) -> Fact | None:
    if coverage.empty:
        return None
    total = int((coverage["status"] != EMPTY).sum())
    done = int((coverage["status"] != NOT_COMPARED).sum()) - (len(coverage) - total)
    grouped = int((coverage["status"] == "grouped").sum())
    value = f"{done} of {total} instructions" + (f" ({grouped} grouped)" if grouped else "")
    missing = coverage[coverage["status"] == NOT_COMPARED]["reason"].value_counts()
    hint = "; ".join(f"{count}: {reason}" for reason, count in missing.items())
    return Fact("Compared", value, "ok" if done == total else "warn" if done else "unknown", None, hint)


def _delegated(delegation: Delegation | None) -> Fact | None:
    if delegation is None or math.isnan(delegation.share):
        return None
    parts = delegation.num_delegated_subgraphs
    total = delegation.num_delegated_nodes + delegation.num_non_delegated_nodes
    hint = f"{delegation.num_delegated_nodes} of {total} nodes"
    where = f" in {parts} delegate{'s' * (parts != 1)}" if parts else ""
    return Fact("Delegated", f"{100 * delegation.share:.0f} %{where}", "ok", None, hint)


def _worst(
    gaps: pd.DataFrame, coverage: pd.DataFrame, on_grid: Collection[int], unread: Collection[int]
) -> Fact | None:
    """The worst introduced gap; the worst total one where introduced gaps are not known."""
    for label, by in (("Worst introduced", "introduced_severity"), ("Worst total", "severity")):
        if by not in gaps or gaps[by].isna().all():
            continue
        row, known = rank(gaps, by, unread).iloc[0], _known(gaps, coverage)
        value = float(row[by])
        name = describe_row(row)
        return Fact(
            label,
            f"{name}, " + (f"severity {value:.3g}" if not math.isnan(value) else "NaN or Inf"),
            row_level(row, on_grid) if by.startswith("introduced_") else "ok",
            _row_number(row),
            f"{_SEVERITY} Known for {known}." if known and by.startswith("introduced_") else _SEVERITY,
        )
    return None


def first_divergence(
    gaps: pd.DataFrame, on_grid: Collection[int] = (), unread: Collection[int] = ()
) -> pd.Series | None:
    """The first gap row, in program order, whose introduced error is more than its precision explains.

    Parameters
    ----------
    gaps
        Gap rows.
    on_grid
        Those whose values lie on a quantization grid.
    unread
        Those whose values nobody reads: whatever they are, no other value follows from them.
    """
    if "introduced_severity" not in gaps:
        return None
    read = gaps[~gaps.index.isin(list(unread))]
    ordered = read.sort_values(["event_block", "instruction", "output"], kind="stable")
    for _, row in ordered[(ordered["introduced_severity"] > 0) | (ordered["status"] == MISMATCH)].iterrows():
        made = row["status"] == MISMATCH and row["non_finite"] == "created"
        if made or row_level(row, on_grid) != "ok":
            return row
    return None


def _first_divergence(
    gaps: pd.DataFrame, coverage: pd.DataFrame, on_grid: Collection[int], unread: Collection[int]
) -> Fact | None:
    if "introduced_severity" not in gaps or gaps["introduced_severity"].isna().all():
        return None
    hint = "The first instruction that itself adds more error than the precision of its value explains."
    row, known = first_divergence(gaps, on_grid, unread), _known(gaps, coverage)
    if known:
        hint += f" Known for {known}; an earlier one may be among the others."
    if row is None:
        return Fact("First divergence", f"none in the {known} where it is known" if known else "none", hint=hint)
    level = "bad" if row["status"] == MISMATCH else row_level(row, on_grid)
    shared = shared_with(str(row["reason"]))
    return Fact(
        "First divergence", describe_row(row) + (f" ({shared})" if shared else ""), level, _row_number(row), hint
    )


def _known(gaps: pd.DataFrame, coverage: pd.DataFrame) -> str:
    """How many values have an introduced gap, in words; empty if every value has that can have one.

    By debug handle, an instruction without a gap has a value like any other, which only could not be paired.
    """
    known = int(gaps["introduced_allclose"].notna().sum())
    unpaired = (gaps["pairing"] == "handles").any() and (coverage["status"] == NOT_COMPARED).any()
    return _values(known) if known < len(gaps) or unpaired else ""


def _values(count: int) -> str:
    return f"{count:,} value" + "s" * (count != 1)


def row_level(row: Any, on_grid: Collection[int], *, introduced: bool = True) -> str:
    """``ok``, ``warn`` or ``bad``: whether an error is more than the precision of its value explains."""
    prefix = "introduced_" if introduced else ""
    value, noise = float(row[f"{prefix}severity"]), float(row[f"{prefix}noise"])
    return level("severity", value, str(row["dtype"]), on_grid=row.name in on_grid, noise=noise)


def _nonfinite(gaps: pd.DataFrame) -> Fact | None:
    """Where non-finite values differ from the reference; else where they begin and end."""
    if gaps.empty:
        return None
    ordered = gaps.sort_values(["event_block", "instruction", "output"])
    created, lost = (_first(ordered[ordered["non_finite"] == role]) for role in ("created", "lost"))
    begins = f"created at {describe_row(created)}" if created is not None else ""
    ends = f"lost at {describe_row(lost)}" if lost is not None else ""
    where = ", ".join(filter(None, (begins, ends)))
    bad = ordered[ordered["status"] == MISMATCH]
    if not bad.empty:
        row = created if created is not None else bad.iloc[0]
        text = f"differs in {_values(len(bad))}, first in {describe_row(bad.iloc[0])}"
        return Fact("Non-finite", ", ".join(filter(None, (text, where))), "bad", _row_number(row))
    rows = int((gaps[list(NONFINITE)].sum(axis=1) > 0).sum())
    if not rows and created is None and lost is None:
        return Fact("Non-finite", "none")
    text = f"in {_values(rows)}, the same in the reference" if rows else ""
    return Fact("Non-finite", ", ".join(filter(None, (text, where))), "ok", _row_number(created))


def _first(rows: pd.DataFrame) -> Any:
    return rows.iloc[0] if len(rows) else None


def _row_number(row: Any) -> int | None:
    return int(row.name) if row is not None and isinstance(row.name, int) else None


def _db(value: float) -> str:
    return "∞" if math.isinf(value) else f"{value:.1f} dB"
