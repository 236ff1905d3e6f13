"""Checks an Inspection against rules and a baseline: a case for each gap row, and its violations.

An output, limit, instruction or baseline row that nothing could be compared with fails.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from etviz.analysis.analysis import Analysis
from etviz.analysis.rows import row_keys
from etviz.comparison.gap import DIFFERENT, EMPTY, MISMATCH, NOT_COMPARED
from etviz.errors import UsageError
from etviz.gate.baseline import Baseline, bits_of, inputs_of
from etviz.gate.rules import Rules
from etviz.graph.labels import describe_row
from etviz.tensors.metrics import METRICS, figure

if TYPE_CHECKING:
    import pandas as pd


_NOT_EXECUTED: Final = "it was not executed"
"""Start of the reason of an instruction in a branch that was not taken."""


@dataclass(frozen=True, slots=True)
class Violation:
    demand: str
    found: float
    allowed: float
    text: str


@dataclass(frozen=True, slots=True)
class Case:
    """The check of one gap row, or of the program as a whole (`row` is None)."""

    name: str
    row: int | None
    group: str
    source: str
    violations: tuple[Violation, ...]
    numbers: dict[str, float] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        return not self.violations


@dataclass(slots=True)
class CheckResult:
    """The cases, and notes about what could not be checked."""

    title: str
    verdict: str
    cases: list[Case]
    notes: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return all(case.passed for case in self.cases)

    @property
    def failures(self) -> list[Case]:
        return [case for case in self.cases if not case.passed]

    def __str__(self) -> str:
        count = len(self.failures)
        head = f"{'FAILED' if count else 'passed'}: {self.title}, {count} of {len(self.cases)} checks failed"
        lines = [f"  {case.name}: {'; '.join(v.text for v in case.violations)}" for case in self.failures]
        return "\n".join([head if count else f"passed: {self.title}, {len(self.cases)} checks", *lines])


def check(analysis: Analysis, rules: Rules, baseline: Baseline | None = None, device: str = "") -> CheckResult:
    """A case for the final outputs, the operators, the coverage and every gap row.

    An unknown metric (NaN) keeps a limit, as long as the limit meets another row; a value of another shape, or that is
    NaN or Inf where the reference is not, fails under any limits. Stored rows that this run lacks fail. The run must
    give the bits that the baseline stores for a `device`; a `UsageError` if it has none, or they are of other inputs.
    """
    gaps, title, verdict = analysis.gaps, analysis.title, analysis.digest.verdict
    keys = row_keys(gaps)
    whole = {
        "final outputs": _outputs(analysis) if rules.outputs else None,
        "operators": _operators(analysis) if rules.operators else None,
        "coverage": _coverage(analysis, rules),
        "limits": _unmet(gaps, rules) if not rules.demand_nothing else None,
        "baseline": _missing(keys, baseline) if baseline is not None else None,
    }
    cases = [Case(name, None, "program", "", tuple(wrong)) for name, wrong in whole.items() if wrong is not None]
    for key, (index, row) in zip(keys, gaps.iterrows(), strict=True):
        wrong = [*_wrong(row), *_beyond_limits(row, rules)]
        if baseline is not None and key in baseline.rows:
            wrong.extend(_worse(row, baseline.rows[key], rules.factor))
        numbers = {name: float(row[name]) for name in METRICS if name in row}
        group, source = str(row["backend"] or row["kind"]), str(row["source"])
        cases.append(Case(describe_row(row), int(str(index)), group, source, tuple(wrong), numbers))
    notes = [f"the rules are from {rules.path}"] if rules.path else []
    if baseline is not None and (fresh := set(keys) - baseline.rows.keys()):
        notes.append(f"{len(fresh)} of {len(keys)} rows are not in the baseline, so they were not compared with it")
    if baseline is not None and device:
        case, parted = _bits(analysis, baseline, device)
        cases.append(case)
        notes.extend(parted)
    if not all(case.passed for case in cases):
        notes += analysis.digest.notes  # they may tell why
    return CheckResult(title, verdict, cases, notes)


def _wrong(row: Any) -> Iterator[Violation]:
    if row["status"] == DIFFERENT:
        yield Violation("shape", 1, 0, str(row["reason"]))
    if row["status"] == MISMATCH:
        runtime = int(row["runtime_nan"] + row["runtime_inf"])
        reference = int(row["reference_nan"] + row["reference_inf"])
        yield Violation("non-finite", runtime, reference, f"{runtime} NaN or Inf, the reference has {reference}")


def _beyond_limits(row: Any, rules: Rules) -> Iterator[Violation]:
    for limit in rules.limits_of(row):
        value = float(row[limit.column]) if limit.column in row else math.nan
        if not limit.holds(value):
            shown, allowed = figure(value, 4, limit.value), figure(limit.value, 4, limit.value)
            text = f"{limit.column} {shown} {'>' if limit.upper else '<'} {allowed}"
            yield Violation(limit.name, value, limit.value, text)


def _unmet(gaps: pd.DataFrame, rules: Rules) -> Iterator[Violation]:
    for rule in rules.rules:
        rows = [row for _, row in gaps.iterrows() if rule.fits(row)] if rule.limits else []
        for limit in rule.limits:
            if not any(limit.column in row and not math.isnan(float(row[limit.column])) for row in rows):
                every = rule.operator == rule.dtype == "*"
                about = "" if every else f" of operator {rule.operator}, dtype {rule.dtype},"
                yield Violation("limits", 0, 1, f"{limit.name}{about} meets no row with a number: nothing was checked")


def _worse(row: Any, stored: dict[str, float], factor: float) -> Iterator[Violation]:
    before, now = stored.get("severity", math.nan), float(row["severity"])
    allowed = max(before, 1.0) * factor
    if not math.isfinite(before):
        text = f"the baseline has severity {before:g}, which nothing is worse than; write it again"
        yield Violation("baseline", now, before, text)
    elif math.isnan(now):
        yield Violation("baseline", now, allowed, f"its severity is not known, the baseline has {before:.4g}")
    elif now > allowed:
        times = f"{now / max(before, 1.0):.3g} times worse"
        yield Violation("baseline", now, allowed, f"severity {now:.4g}, the baseline has {before:.4g} ({times})")


def _missing(keys: Sequence[str], baseline: Baseline) -> Iterator[Violation]:
    missing = [key for key in baseline.rows if key not in set(keys)]
    if not missing:
        return
    names = ", ".join(baseline.names.get(key, key) for key in missing[:3])
    if len(missing) == len(baseline.rows):
        names = "the baseline is of another program"
    text = f"{len(missing)} of {len(baseline.rows)} rows of the baseline are not in this run: {names}"
    yield Violation("baseline", len(missing), 0, text)


def _bits(analysis: Analysis, baseline: Baseline, device: str) -> tuple[Case, list[str]]:
    if device not in baseline.bits:
        known = ", ".join(baseline.bits) or "none"
        raise UsageError(
            f"the baseline has no bits of the class {device!r}, it has: {known}; add them with --write-baseline"
        )
    if inputs_of(analysis) != baseline.inputs:
        raise UsageError("the bits of the baseline are of other inputs than this run's, so they can't be compared")
    bits, wrong, notes = bits_of(analysis), [], []
    for name in baseline.bits:
        parted = baseline.parting(bits, name)
        text = f"gives the same bits as {name}" if parted is None else f"parts from {name} at {parted[0]}"
        if name != device:
            notes.append(text)
        elif parted is not None:
            wrong.append(Violation("bits", parted[1], 0, f"{text}; {parted[1]} of {len(bits)} values differ"))
    return Case(f"bits of {device}", None, "program", "", tuple(wrong)), notes


def _outputs(analysis: Analysis) -> Iterator[Violation]:
    outputs, runs = analysis.tables.outputs, analysis.tables.compared.runs
    blind = len({run.event_block for run in runs} - set(outputs["event_block"]))
    missing = outputs[outputs["status"] == NOT_COMPARED]
    if outputs.empty or (outputs["status"] == NOT_COMPARED).all():
        yield Violation("outputs", 0, 1, "the final outputs were not compared")
        return
    if blind:
        text = f"the final outputs of {blind} of {len(runs)} executions were not compared"
        yield Violation("outputs", len(runs) - blind, len(runs), text)
    if len(missing):
        text = f"{len(missing)} of {len(outputs)} final outputs were not compared: {missing['reason'].iloc[0]}"
        yield Violation("outputs", len(outputs) - len(missing), len(outputs), text)
    wrong = outputs[(outputs["status"] != NOT_COMPARED) & (outputs["matches"] != True)]  # noqa: E712 - objects
    if len(wrong):
        yield Violation("outputs", len(wrong), 0, analysis.digest.verdict.rstrip("."))


def _operators(analysis: Analysis) -> Iterator[Violation]:
    culprits, finding = analysis.finder.decision().culprits, analysis.finder.finding()
    if finding is not None and (culprits or analysis.tables.constants):
        yield Violation("operators", max(1, len(culprits)), 0, finding.text.rstrip("."))


def _coverage(analysis: Analysis, rules: Rules) -> Iterator[Violation]:
    coverage = analysis.tables.coverage
    coverage = coverage[(coverage["status"] != EMPTY) & ~coverage["reason"].str.startswith(_NOT_EXECUTED)]
    missing = coverage[coverage["status"] == NOT_COMPARED]
    share = 1 - len(missing) / len(coverage) if len(coverage) else 0.0
    if rules.min_compared is not None:
        if share < rules.min_compared:
            text = f"{100 * share:.4g} % of the instructions were compared, {100 * rules.min_compared:g} % are demanded"
            yield Violation("min_compared", share, rules.min_compared, text)
        return
    limited = [row for _, row in missing.iterrows() if rules.names(row)]
    if limited:
        text = f"{describe_row(limited[0])} has a limit and was not compared ({limited[0]['reason']})"
        more = f", and {len(limited) - 1} more" if len(limited) > 1 else ""
        advice = f"; min_compared={math.floor(100 * share) / 100:g} allows that"
        yield Violation("min_compared", share, 1.0, f"{text}{more}{advice}")
