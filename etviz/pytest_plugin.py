"""A pytest plugin: the fixture `assert_numerics` fails a test whose numbers are off, and leaves a report beside it.

def test_numerics(assert_numerics):
    assert_numerics(etviz.debug(model, inputs), max_rmse=1e-3)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from etviz.gate import CheckResult, Rules
    from etviz.inspection import Inspection

REPORT: Final = "etviz-report.html"
_SHOWN: Final = 10


@pytest.fixture
def assert_numerics(tmp_path: Path, record_property: Callable[[str, object], None]) -> Callable[..., CheckResult]:
    """A function ``assert_numerics(inspection, *, rules=None, baseline=None, **limits)``.

    `limits` are ``max_<metric>`` and ``min_<metric>``; `rules` a path to a TOML file, or `etviz.gate.Rules`; `baseline`
    a path. It returns the result of the check. Where the check fails, the report is written into the test's
    ``tmp_path``, its path becomes the test's property ``etviz-report``, and the failure names the worst rows. Raises
    `UsageError` or `ArtifactError` if a limit or a file makes no sense.
    """

    def check_numerics(
        inspection: Inspection,
        *,
        rules: str | Path | Rules | None = None,
        baseline: str | Path | None = None,
        **limits: float,
    ) -> CheckResult:
        __tracebackhide__ = True
        result = _check(inspection, rules, baseline, limits)
        if not result.passed:
            report = inspection.to_html(tmp_path / REPORT)
            record_property("etviz-report", str(report))
            pytest.fail(failure_message(inspection, result, report), pytrace=False)
        return result

    return check_numerics


def failure_message(inspection: Inspection, result: CheckResult, report: Path) -> str:
    lines = [str(line) for line in str(result).splitlines()]
    more = len(lines) - 1 - _SHOWN
    lines = lines[: _SHOWN + 1] + ([f"  … and {more} more"] if more > 0 else [])
    sources = {case.row: case.source for case in result.failures if case.source}
    if sources:
        lines.append(f"First source line: {next(iter(sources.values()))}")
    return "\n".join([*lines, inspection.summary(), f"Report: {report}"])


def _check(inspection: Inspection, rules: Any, baseline: str | Path | None, limits: Mapping[str, float]) -> CheckResult:
    from etviz.gate import Rules, check, read_baseline, read_rules

    demanded = rules if isinstance(rules, Rules) else read_rules(rules) if rules is not None else Rules()
    stored = read_baseline(baseline) if baseline is not None else None
    return check(inspection.analysis, demanded.with_flags(limits), stored)
