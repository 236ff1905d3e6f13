"""The rules of a check: limits of metrics, by dtype and by operator, from a TOML file or from flags.

[tool.etviz.check]              # in pyproject.toml; in etviz.toml the table is [check]
max_rmse = 1e-3                 # max_<metric> or min_<metric>, for every row; max_abs and max_ulp need no other max_
min_sqnr_db = 20
outputs = true                  # every final output must be compared, and match its reference
operators = true                # no operator may be at fault, and no weight may differ
min_compared = 0.9              # share of the instructions that must be compared; by default all that have a limit

[[tool.etviz.check.rules]]      # for some rows: the last rule that names a metric decides
operator = "*conv*"             # a pattern of the operator, of its reference operators or of its module
dtype = "int8"
max_rmse = 0.5
"""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from etviz.artifacts.files import PathLike
from etviz.errors import ArtifactError, UsageError
from etviz.tensors.metrics import METRICS

_ADVICE: Final = "see the example at `etviz check --help`, and write max_<metric> or min_<metric> with a number"
_LARGEST: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Limit:
    """A bound of one column: the largest (``upper``) or the smallest value that passes."""

    column: str
    value: float
    upper: bool

    @property
    def name(self) -> str:
        if self.upper and self.column.startswith("max_"):
            return self.column
        return f"{'max' if self.upper else 'min'}_{self.column}"

    def holds(self, value: float) -> bool:
        return math.isnan(value) or (value <= self.value if self.upper else value >= self.value)


@dataclass(frozen=True, slots=True)
class Rule:
    """Limits for the rows whose operator and dtype fit the shell patterns."""

    limits: tuple[Limit, ...]
    operator: str = "*"
    dtype: str = "*"

    def fits(self, row: Any) -> bool:
        names = (str(row["op"]), str(row["reference_ops"]), str(row["module"]))
        typed = self.dtype == "*" or fnmatchcase(str(row["dtype"]), self.dtype)
        return typed and any(fnmatchcase(name, self.operator) for name in names)


@dataclass(frozen=True, slots=True)
class Rules:
    """The demands of a check; for each column the last fitting rule decides.

    `min_compared` is the least share of instructions that must be compared, 0 to 1; None demands all that have a limit.
    `factor` is how many times worse than the baseline's a value may be.
    """

    rules: tuple[Rule, ...] = ()
    outputs: bool = True
    operators: bool = True
    min_compared: float | None = None
    factor: float = 2.0
    path: str = ""

    def __post_init__(self) -> None:
        if self.min_compared is not None and not 0 <= self.min_compared <= 1:
            raise UsageError(f"min_compared must be from 0 to 1, found {self.min_compared:g}")
        if not 0 < self.factor < math.inf:
            raise UsageError(f"factor must be a positive number, found {self.factor:g}")

    def limits_of(self, row: Any) -> list[Limit]:
        limits: dict[tuple[str, bool], Limit] = {}
        for rule in self.rules:
            if rule.fits(row):
                limits |= {(limit.column, limit.upper): limit for limit in rule.limits}
        return list(limits.values())

    def with_flags(self, limits: Mapping[str, float], **options: Any) -> Rules:
        """Limits from flags override; a `UsageError` if a limit's name or number makes no sense."""
        given = tuple(_limit(name, value, "") for name, value in limits.items())
        known = {name: value for name, value in options.items() if value is not None}
        rules = (*self.rules, Rule(given)) if given else self.rules
        return replace(self, rules=rules, **known)

    def names(self, row: Any) -> bool:
        """True if an instruction without a value, so of unknown dtype, may have a limit."""
        return any(rule.limits and replace(rule, dtype="*").fits(row) for rule in self.rules)

    @property
    def demand_nothing(self) -> bool:
        return not any(rule.limits for rule in self.rules)


@dataclass(slots=True)
class _Section:
    path: str
    where: str
    values: dict[str, Any] = field(default_factory=dict)

    def error(self, problem: str) -> ArtifactError:
        return ArtifactError(self.path, problem, _ADVICE, where=self.where)

    def take(self, name: str, kinds: tuple[type, ...], default: Any) -> Any:
        value = self.values.pop(name, default)
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise self.error(f"{self.where}.{name} has the wrong type: found {value!r}")
        return value

    def take_number(self, name: str, default: float) -> float:
        try:
            return float(self.take(name, (int, float), default))
        except OverflowError:
            raise self.error(f"{self.where}.{name} is no number that can be computed with") from None

    def take_limits(self) -> tuple[Limit, ...]:
        try:
            limits = tuple(_limit(name, value, f"{self.where}.") for name, value in self.values.items())
        except UsageError as error:
            raise self.error(str(error)) from None
        self.values.clear()
        return limits


def read_rules(path: PathLike) -> Rules:
    """``[tool.etviz.check]`` of a pyproject.toml, or ``[check]`` of any other TOML file."""
    table = _parse(Path(path))
    project = Path(path).name == "pyproject.toml"
    where = "tool.etviz.check" if project else "check"
    for name in where.split("."):
        table = table.get(name) if isinstance(table, dict) else None
    if not isinstance(table, dict):
        raise ArtifactError(path, f"there is no table [{where}]", _ADVICE)
    section = _Section(str(path), where, dict(table))
    special = section.take("rules", (list,), [])
    options = {
        "outputs": section.take("outputs", (bool,), True),
        "operators": section.take("operators", (bool,), True),
        "min_compared": section.take_number("min_compared", 0.0) if "min_compared" in section.values else None,
        "factor": section.take_number("factor", 2.0),
    }
    rules = [Rule(section.take_limits())]
    for index, rule in enumerate(special):
        part = _Section(str(path), f"{where}.rules[{index}]", dict(rule) if isinstance(rule, dict) else {})
        if not isinstance(rule, dict):
            raise part.error(f"{part.where} is not a table: found {rule!r}")
        operator, dtype = (part.take(name, (str,), "*") for name in ("operator", "dtype"))
        rules.append(Rule(part.take_limits(), operator, dtype))
    try:
        return Rules(tuple(rules), **options, path=str(path))
    except UsageError as error:
        raise section.error(f"{where}.{error}") from None


def find_rules(start: Path, judged: Path | None = None) -> Path | None:
    """The nearest etviz.toml, or pyproject.toml with a ``[tool.etviz.check]``, in a folder or above it.

    The search ends at the repository's root; outside a repository only the folder itself counts. The folder of the
    artifacts, `judged`, is skipped: artifacts do not bring the rules that they are checked against. A link that leads
    there is a `UsageError`.
    """
    for folder in _within_repository(start.resolve()):
        if judged is not None and folder == judged.resolve():
            continue
        if (path := folder / "etviz.toml").is_file():
            return _own(path, judged)
        project = folder / "pyproject.toml"
        if project.is_file():
            tool = _parse(project).get("tool")
            etviz = tool.get("etviz") if isinstance(tool, dict) else None
            return _own(project, judged) if isinstance(etviz, dict) and "check" in etviz else None
    return None


def _within_repository(start: Path) -> Sequence[Path]:
    folders = [start, *start.parents]
    root = next((at for at, folder in enumerate(folders) if (folder / ".git").exists()), 0)
    return folders[: root + 1]


def _own(path: Path, judged: Path | None) -> Path:
    if judged is not None and path.resolve().parent == judged.resolve():
        raise UsageError(f"{path} leads to the artifacts that it would judge; name it with --config")
    return path


def _parse(path: Path) -> dict[str, Any]:
    parser = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        data = path.read_bytes()[: _LARGEST + 1]
        if len(data) > _LARGEST:
            raise ArtifactError(path, "the file is larger than 1 MB, which no settings are", _ADVICE)
        return parser.loads(data.decode("utf-8"))
    except (OSError, ValueError) as error:
        raise ArtifactError(path, f"it can't be read as TOML ({error})", _ADVICE) from error


def checked() -> frozenset[str]:
    return frozenset((*METRICS, *(f"introduced_{name}" for name in METRICS)))


def _limit(name: str, value: Any, where: str) -> Limit:
    known_columns = checked()
    direction, _, column = ("max", "", name) if name in known_columns else name.partition("_")
    if direction not in ("max", "min") or column not in known_columns:
        known = ", ".join(METRICS)
        raise UsageError(f"{where}{name} is no limit; it is max_ or min_ and one of {known}, or introduced_ and one")
    if not column.startswith("max_") and name == column:
        raise UsageError(f"{where}{name} is no limit; write max_{name} or min_{name}")
    try:
        number = math.nan if isinstance(value, bool) or not isinstance(value, (int, float)) else float(value)
    except OverflowError:
        number = math.nan
    if not math.isfinite(number):
        raise UsageError(f"{where}{name} must be a finite number, found {str(value)[:40]!r}")
    return Limit(column, number, direction == "max")
