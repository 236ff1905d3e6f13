"""The gate for continuous integration."""

from __future__ import annotations

from etviz.gate.baseline import Baseline, read_baseline, write_baseline
from etviz.gate.checking import Case, CheckResult, Violation, check
from etviz.gate.rules import Limit, Rule, Rules, read_rules

__all__ = [
    "Baseline",
    "Case",
    "CheckResult",
    "Limit",
    "Rule",
    "Rules",
    "Violation",
    "check",
    "read_baseline",
    "read_rules",
    "write_baseline",
]
