"""Holding an Inspection against rules and a baseline: a case for each gap row, and what is wrong with it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from etviz.analysis.rows import row_keys
from etviz.comparison.gap import EMPTY, MISMATCH, NOT_COMPARED
from etviz.graph.labels import describe_row
from etviz.tensors.metrics import METRICS

if TYPE_CHECKING:
    from etviz.analysis.analysis import Analysis
    from etviz.gate.baseline import Baseline
    from etviz.gate.rules import Rules


@dataclass(frozen=True, slots=True)
class Violation:
    """One demand that is not met: which, what was found, what was allowed."""

    demand: str
    found: float
    allowed: float
    text: str


@dataclass(frozen=True, slots=True)
class Case:
    """What was checked of one gap row, or of the program as a whole (`row` is None)."""

    name: str
    row: int | None
    group: str
    source: str
    violations: tuple[Violation, ...]
    numbers: dict[str, float] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """True if every demand is met."""
        return not self.violations


@dataclass(slots=True)
class CheckResult:
    """Every case, and notes about what could not be checked."""

    title: str
    verdict: str
    cases: list[Case]
    notes: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """True if every case passed."""
        return all(case.passed for case in self.cases)

    @property
    def failures(self) -> list[Case]:
        """The cases that did not pass."""
        return [case for case in self.cases if not case.passed]

    def __str__(self) -> str:
        count = len(self.failures)
        head = f"{'FAILED' if count else 'passed'}: {self.title}, {count} of {len(self.cases)} checks failed"
        lines = [f"  {case.name}: {'; '.join(v.text for v in case.violations)}" for case in self.failures]
        return "\n".join([head if count else f"passed: {self.title}, {len(self.cases)} checks", *lines])


def check(analysis: Analysis, rules: Rules, baseline: Baseline | None = None) -> CheckResult:
    """Check every gap row, the final outputs and the coverage.

    Parameters
    ----------
    analysis
        What to check.
    rules
        Limits. A metric that is not known (NaN) keeps every limit; a value that is NaN or Inf where the reference is
        not fails whatever the limits are.
    baseline
        Stored values: what became worse than them by more than `Rules.factor` fails. Improvements pass.

    Returns
    -------
    CheckResult
        A case for each gap row, one for the outputs, one for the coverage.
    """
    gaps = analysis.gaps
    keys = row_keys(gaps)
    cases = [_outputs(analysis, rules), _coverage(analysis, rules)]
    notes = []
    for index, (_, row) in enumerate(gaps.iterrows()):
        found = [*_nonfinite(row), *_beyond_limits(row, rules)]
        if baseline is not None:
            found.extend(_worse(row, baseline.rows.get(keys[index], {}), rules.factor))
        cases.append(
            Case(
                f"{describe_row(row, output=False)} output {int(row['output'])}",
                int(str(row.name)),
                str(row["backend"] or row["kind"]),
                str(row["source"]),
                tuple(found),
                {name: float(row[name]) for name in METRICS if name in row},
            )
        )
    if baseline is not None:
        missing = baseline.rows.keys() - set(keys)
        fresh = set(keys) - baseline.rows.keys()
        if fresh and len(fresh) == len(set(keys)):
            text = f"none of the {len(keys)} rows is in the baseline: it is of another program"
            cases.append(Case("baseline", None, "program", "", (Violation("baseline", len(fresh), 0, text),)))
        if missing or fresh:
            notes.append(f"{len(fresh)} rows are not in the baseline, {len(missing)} of its rows are gone")
    return CheckResult(analysis.title, analysis.tables.digest.verdict, [c for c in cases if c is not None], notes)


def _beyond_limits(row: Any, rules: Rules) -> list[Violation]:
    found = []
    for limit in rules.limits_of(row):
        if limit.column not in row:
            continue
        value = float(row[limit.column])
        if not limit.holds(value):
            sign = ">" if limit.upper else "<"
            text = f"{limit.column} {value:.4g} {sign} {limit.value:g}"
            found.append(Violation(limit.name, value, limit.value, text))
    return found


def _nonfinite(row: Any) -> list[Violation]:
    if row["status"] != MISMATCH:
        return []
    runtime = int(row["runtime_nan"] + row["runtime_inf"])
    reference = int(row["reference_nan"] + row["reference_inf"])
    text = f"{runtime} NaN or Inf, the reference has {reference}"
    return [Violation("non-finite", runtime, reference, text)]


def _worse(row: Any, stored: dict[str, float], factor: float) -> list[Violation]:
    before, now = stored.get("severity"), float(row["severity"])
    if before is None or not now > max(before, 1.0) * factor:
        return []
    text = f"severity {now:.4g}, the baseline has {before:.4g} ({now / max(before, 1.0):.3g} times worse)"
    return [Violation("baseline", now, max(before, 1.0) * factor, text)]


def _outputs(analysis: Analysis, rules: Rules) -> Case | None:
    if not rules.outputs:
        return None
    outputs = analysis.tables.outputs
    found = []
    if outputs.empty or (outputs["status"] == NOT_COMPARED).all():
        found.append(Violation("outputs", 0, 1, "the final outputs were not compared"))
    else:
        wrong = outputs[(outputs["status"] != NOT_COMPARED) & (outputs["matches"] != True)]  # noqa: E712 - objects
        if len(wrong):
            found.append(Violation("outputs", len(wrong), 0, analysis.tables.digest.verdict.rstrip(".")))
    return Case("final outputs", None, "program", "", tuple(found))


def _coverage(analysis: Analysis, rules: Rules) -> Case | None:
    coverage = analysis.tables.coverage
    status = coverage["status"][coverage["status"] != EMPTY]
    share = float((status != NOT_COMPARED).mean()) if len(status) else 0.0
    text = f"{100 * share:.4g} % of the instructions were compared, {100 * rules.min_compared:g} % are demanded"
    low = share < rules.min_compared
    return Case(
        "coverage", None, "program", "", (Violation("min_compared", share, rules.min_compared, text),) if low else ()
    )
