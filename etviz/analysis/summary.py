"""The verdict in words: the same in `summary()`, in the view's header, in reports and in the gate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from etviz.analysis.answer import best_of
from etviz.comparison.gap import CREATED, DIFFERENT, EMPTY, LOST, MISMATCH, NOT_COMPARED
from etviz.comparison.gap_tables import NONFINITE
from etviz.graph.delegation import Delegation
from etviz.graph.labels import describe_row
from etviz.tensors.metrics import BY_LAW, MEASURED, figure
from etviz.text import one_line

if TYPE_CHECKING:
    import pandas as pd

    from etviz.analysis.culprits import Culprit, Decision
    from etviz.analysis.findings import Findings
    from etviz.analysis.tables import Tables
    from etviz.comparison.constants import Difference

LEVELS: Final = ("ok", "unknown", "warn", "bad")
BEYOND: Final = "adds more error than its precision explains"
_AMPLIFIED: Final = 30.0
"""Threshold of noise over one rounding from which the verdict says where rounding is amplified."""
_OVERWRITTEN: Final = (
    "{}: other values came into its memory after that, as when two values share it, or the debug buffer was altered."
)
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
    level: str
    verdict: str
    facts: list[Fact] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [self.verdict, *(f"{fact.label}: {fact.value}" for fact in self.facts), *self.notes]
        return "\n".join(map(one_line, lines))


def summarize(findings: Findings, tables: Tables, decision: Decision) -> Summary:
    fault, accused = _accusation(findings.constants, decision.culprit)
    comparisons = [run.comparison for run in tables.compared.runs]
    undetermined = next((comparison.undetermined for comparison in comparisons if comparison.undetermined), "")
    judged = [comparison.judged for comparison in comparisons]
    best = best_of(findings, comparisons)
    level, verdict = judge_outputs(tables.outputs, judged, undetermined, accused=accused, best=best)
    gaps, coverage = tables.rows, tables.coverage
    facts = [_constants(gaps, findings.constants), _compared(coverage), _delegated(findings.delegation)]
    facts += [_worst(tables, decision.culprit), _first_divergence(tables, decision.culprit), _nonfinite(tables)]
    notes = [*findings.notes, *tables.compared.notes]
    if decision.overwritten is not None:
        text = str(decision.overwritten)
        notes.append(_OVERWRITTEN.format(text[0].upper() + text[1:]))
    return Summary(max(level, fault, key=LEVELS.index), verdict, [fact for fact in facts if fact is not None], notes)


def _accusation(constants: Sequence[Difference], culprit: Culprit | None) -> tuple[str, str]:
    from etviz.comparison.constants import GRIDS, kind_of

    if constants and (culprit is None or kind_of(constants) != GRIDS):
        return "bad", f"the .pte holds other {kind_of(constants)} than the reference"
    return (culprit.level, f"{culprit.name} {_fault(culprit)}") if culprit is not None else (LEVELS[0], "")


def _fault(culprit: Culprit) -> str:
    gap = culprit.gap
    if gap.introduced_different:
        return "gives another shape or dtype"
    if gap.introduced_non_finite or gap.status == MISMATCH:
        return "gives NaN or Inf where the reference does not, or the other way round"
    return BEYOND


def judge_outputs(
    outputs: pd.DataFrame, judged: Sequence[bool] = (), undetermined: str = "", *, accused: str = "", best: str = ""
) -> tuple[str, str]:
    """Level and verdict of the final outputs; `judged` says by execution whether they can be judged.

    `accused` is what an operator or a constant is accused of; rounding is then not offered as an explanation. The
    verdict's numbers begin with `best`.
    """
    unknown = len(judged) - sum(judged)
    why, how = "their inputs or state are not known", "give inputs= for each execution, from the first"
    if undetermined:
        why = how = f"their outputs {undetermined}"
    if unknown == len(judged) > 1:
        advice = "" if undetermined else f" ({how})"
        level, verdict = "unknown", f"None of the {unknown} executions can be judged: {why}{advice}."
    else:
        level, verdict = _verdict(outputs, undetermined, accused=bool(accused), best=best)
    if accused and level != "bad":
        verdict = f"{verdict.removesuffix('.')}, but {accused}."
    if 0 < unknown < len(judged):  # the notes say why a single execution can't be judged
        verdict = f"{verdict} {unknown} of {len(judged)} executions can't be judged: {how}."
        level = "warn" if level == "ok" else level
    return level, verdict


def _verdict(outputs: pd.DataFrame, undetermined: str, *, accused: bool, best: str) -> tuple[str, str]:
    lead = f"{best}; " if best else ""
    known = outputs[outputs["status"] != NOT_COMPARED]
    if outputs.empty or (known.empty and undetermined):
        why = f": they {undetermined}" if undetermined else ""
        return "unknown", f"Final outputs were not compared{why}."
    if known.empty:
        return "unknown", f"Final outputs could not be compared: {outputs['reason'].iloc[0]}."
    alien = known[known["status"] == DIFFERENT]
    if len(alien):
        many = _outputs(len(alien), len(outputs), "has another shape or dtype", "have other shapes or dtypes")
        return "bad", f"{many} than the reference ({alien['reason'].iloc[0]})."
    bad = known[known["status"] == MISMATCH]
    if len(bad):
        return "bad", f"{_outputs(len(bad), len(outputs), 'is', 'are')} {_which_is_nonfinite(bad)}."
    wrong = known[~known["matches"].astype(bool)]
    if len(wrong) and not accused and (wrong["noise"] >= np.fmax(wrong["rmse"], wrong["rmse"] / wrong["rel_l2"])).all():
        worst = wrong.sort_values("close", kind="stable").iloc[0]
        what = _outputs(len(wrong), len(outputs), "can't be judged", "can't be judged")
        detail = f" ({lead}rmse {worst['rmse']:.3g}, noise {worst['noise']:.3g}, SQNR {_db(worst['sqnr_db'])})"
        return "warn", f"{what}, because rounding in this precision may leave nothing of it{_grown(worst)}{detail}."
    if len(wrong):
        worst = wrong.sort_values("close", kind="stable").iloc[0]
        numbers = f"rmse {worst['rmse']:.3g}, SQNR {_db(worst['sqnr_db'])}"
        within = f"{figure(100 * worst['close'], limit=100)} % of its elements within tolerance"
        detail = f"{_worst_of(worst, wrong, outputs)}{numbers}, {within}"
        return "bad", f"{_outputs(len(wrong), len(outputs), 'differs', 'differ')} from the reference ({lead}{detail})."
    rounded = known[~known["allclose"].astype(float).eq(1.0) & known["noise"].notna()]
    if len(rounded):
        worst = rounded.sort_values("close", kind="stable").iloc[0]
        what = _outputs(len(rounded), len(outputs), "differs", "differ")
        detail = f" ({lead}rmse {worst['rmse']:.3g}, noise {worst['noise']:.3g}, SQNR {_db(worst['sqnr_db'])})"
        if accused:
            return "warn", f"{what} by no more than rounding in this precision can explain{detail}."
        often = _grown(worst)
        drowned = ", which leaves nothing of it" if worst["noise"] * worst["rel_l2"] >= worst["rmse"] else ""
        level = "warn" if often or drowned or len(known) < len(outputs) else "ok"
        return level, f"{what} as much as rounding in this precision explains{drowned}{often}{detail}."
    matching = f"{_outputs(len(known), len(outputs), 'matches', 'match')} the reference"
    if len(known) < len(outputs):
        return "warn", f"{matching}; the others were not compared."
    empty = int(known["max_abs"].isna().sum())
    if empty:
        which = "" if len(outputs) == 1 else f" in {empty} of them"
        return "warn", f"{matching}, but{which} no element is finite in both."
    return "ok", f"{matching} ({lead}{_agreement(known)})."


def _grown(worst: pd.Series) -> str:
    if not worst["amplification"] >= _AMPLIFIED:
        return ""
    grows = f", most of it {worst['grows_at']}" if worst["grows_at"] else ""
    return f": rounding is amplified {worst['amplification']:,.3g}× on its way to the output{grows}"


def _outputs(count: int, total: int, singular: str, plural: str) -> str:
    verb = singular if count == 1 else plural
    if total == 1:
        return f"The final output {verb}"
    all_of_them = "Both" if total == 2 else f"All {total}"
    return f"{all_of_them if count == total else f'{count} of {total}'} final outputs {verb}"


def _worst_of(worst: pd.Series, wrong: pd.DataFrame, outputs: pd.DataFrame) -> str:
    if len(outputs) == 1:
        return ""
    blocks = outputs["event_block"].drop_duplicates().tolist()
    run = f" of run {blocks.index(worst['event_block'])}" if len(blocks) > 1 else ""
    return f"{'worst is ' if len(wrong) > 1 else ''}output {int(worst['output'])}{run}: "


def _which_is_nonfinite(bad: pd.DataFrame) -> str:
    runtime, reference = (bad[f"{side}_nan"].sum() + bad[f"{side}_inf"].sum() for side in ("runtime", "reference"))
    if not reference:
        return "NaN or Inf where the reference is not"
    if not runtime:
        return "finite where the reference is NaN or Inf"
    return "NaN or Inf at other places than the reference"


def _agreement(known: pd.DataFrame) -> str:
    largest = float(known["max_abs"].max())
    if largest == 0:
        return "bit for bit"
    within = "" if known["allclose"].astype(bool).all() else ", which is rounding for its precision"
    return f"max |error| {largest:.3g}{within}"


def _constants(gaps: pd.DataFrame, constants: Sequence[Difference]) -> Fact | None:
    from etviz.comparison.constants import differing

    if not constants:
        return None
    hint = (
        "The .pte holds other numbers than the reference, so every instruction that reads them differs: a pass changed "
        "them, or the reference is another program's."
    )
    more = "; ".join(str(difference) for difference in constants[1:6])
    text = f"differ from the reference's: {differing(constants)}"
    return Fact("Constants", text, "bad", row_of(gaps, constants), f"{hint} {more}".strip())


def row_of(gaps: pd.DataFrame, constants: Sequence[Difference]) -> int | None:
    if gaps.empty:
        return None
    rows = gaps.index[gaps["instruction"].isin([difference.instruction for difference in constants])]
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


def _worst(tables: Tables, culprit: Culprit | None) -> Fact | None:
    gaps = tables.rows
    for label, by in (("Worst introduced", "introduced_severity"), ("Worst total", "severity")):
        if by not in gaps or gaps[by].isna().all():
            continue
        row, known = tables.ranked(by).iloc[0], _known(tables)
        if culprit is not None and culprit.outer in gaps.index and gaps.loc[culprit.outer, by] == row[by]:
            row = gaps.loc[culprit.outer]
        value, at = float(row[by]), int(str(row.name))
        introduced = by.startswith("introduced_")
        gap = tables.gaps[at]
        noise = gap.introduced_noise if introduced else gap.noise
        limit = "at most " * (value > 0 and noise.how not in (BY_LAW, MEASURED))
        other = MISMATCH if gap.introduced_non_finite else str(row["status"])
        number = other if math.isnan(value) or gap.uncounted else f"severity {limit}{figure(value)}"
        level = gap.level if introduced and at not in tables.unused else "ok"
        hint = f"{_SEVERITY} Known for {known}." if known and introduced else _SEVERITY
        return Fact(label, f"{describe_row(row)}, {number}", level, at, hint)
    return None


def _first_divergence(tables: Tables, culprit: Culprit | None) -> Fact | None:
    if culprit is None and (tables.rows.empty or not tables.introduced):
        return None
    hint = "The first instruction that adds more error than the precision of its value explains."
    known = _known(tables)
    if known:
        hint += f" Known for {known}; an earlier one may be among the others."
    if culprit is None:
        return Fact("First divergence", f"none in the {known} where it is known" if known else "none", hint=hint)
    text = culprit.name + (f" ({culprit.shared})" if culprit.shared else "")
    return Fact("First divergence", text, culprit.level, culprit.row, hint)


def _known(tables: Tables) -> str:
    """The number of values with an introduced gap; empty if no gap is missing.

    An instruction without a gap has a value, which debug handles could not pair.
    """
    gaps, coverage = tables.rows, tables.coverage
    known = int(gaps["introduced_allclose"].notna().sum())
    unpaired = (gaps["pairing"] == "handles").any() and (coverage["status"] == NOT_COMPARED).any()
    return _values(known) if known < len(gaps) or unpaired else ""


def _values(count: int) -> str:
    return f"{count:,} value" + "s" * (count != 1)


def _nonfinite(tables: Tables) -> Fact | None:
    gaps = tables.rows
    if gaps.empty:
        return None
    ordered = gaps.loc[tables.program_order]
    # Both sides may hold a constant −Inf.
    nonfinite_rows = ordered[(ordered["runtime_nan"] > 0) | (ordered["status"] == MISMATCH)]
    created = _first(nonfinite_rows[nonfinite_rows["non_finite"] == CREATED])
    lost = _first(ordered[(ordered["non_finite"] == LOST) & (ordered["introduced_non_finite"] > 0)])
    begins = f"created at {describe_row(created)}" if created is not None else ""
    ends = f"lost at {describe_row(lost)}" if lost is not None else ""
    where = ", ".join(filter(None, (begins, ends)))
    bad = ordered[ordered["status"] == MISMATCH]
    if not bad.empty:
        row = created if created is not None else bad.iloc[0]
        text = f"differs in {_values(len(bad))}, first in {describe_row(bad.iloc[0])}"
        return Fact("Non-finite", ", ".join(filter(None, (text, where))), "bad", int(row.name))
    rows = int((gaps[list(NONFINITE)].sum(axis=1) > 0).sum())
    if not rows:
        return Fact("Non-finite", "none")
    alone = len(nonfinite_rows) > 0 and bool((gaps["status"] == NOT_COMPARED).all())
    where_else = f"first in {describe_row(_first(nonfinite_rows))}" if alone else "the same in the reference"
    text = f"in {_values(rows)}, {where_else}"
    row = None if created is None else int(created.name)
    return Fact("Non-finite", ", ".join(filter(None, (text, where))), "ok", row)


def _first(rows: pd.DataFrame) -> Any:
    return rows.iloc[0] if len(rows) else None


def _db(value: float) -> str:
    return "∞" if math.isinf(value) else f"{value:.1f} dB"
