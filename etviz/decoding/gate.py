"""The gate's limits on a language model's tokens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from etviz.errors import UsageError
from etviz.gate.checking import Case, CheckResult, Violation
from etviz.text import measured

if TYPE_CHECKING:
    import pandas as pd

    from etviz.decoding.result import Decode


@dataclass(frozen=True, slots=True)
class TokenLimits:
    max_kl_p99: float | None = None
    max_flips: float | None = None
    max_perplexity_ratio: float | None = None

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if value is not None and not value >= 0:
                raise UsageError(f"{name} must be 0 or more, found {value:g}")

    @property
    def demand_nothing(self) -> bool:
        return all(getattr(self, name) is None for name in self.__slots__)


def check_tokens(run: Decode, limits: TokenLimits) -> CheckResult:
    kl, ratio, flips = run.kl["value"], run.perplexity["value"], run.faulty_flips
    checks = {"KL divergence": (_kl, limits.max_kl_p99), "flips": (_flips, limits.max_flips)}
    checks |= {"perplexity": (_ratio, limits.max_perplexity_ratio), "finite logits": (_finite, 0)}
    violations_of = {name: () if most is None else find(run, most) for name, (find, most) in checks.items()}
    numbers = {
        "kl_p99": float(kl["p99"]),
        "kl_mean": float(kl["mean"]),
        "flips": float(len(flips)),
        "perplexity_ratio": float(ratio["ratio"]),
    }
    cases = [Case(name, None, "tokens", "", tuple(violations), numbers) for name, violations in violations_of.items()]
    lines = run.summary().splitlines()
    return CheckResult(run.title, lines[0], cases, lines[1:])


def _kl(run: Decode, most: float) -> Iterator[Violation]:
    value, error = run.kl.loc["p99"]
    if not value <= most:
        worst = run.steps.sort_values("kl", ascending=False).iloc[0]
        text = f"the 99th percentile of the KL divergence is {measured(value, error)} nats, more than {most:g}"
        yield Violation("max_kl_p99", value, most, f"{text}; the largest is {worst['kl']:.4g} at {place(worst)}")


def _flips(run: Decode, most: float) -> Iterator[Violation]:
    faults, every = run.faulty_flips, int(run.flips.sum())
    if len(faults) > most:
        text = f"{len(faults)} of {every} flips are not explained by noise, more than {most:g}"
        yield Violation("max_flips", len(faults), most, f"{text}; the first is at {place(faults.iloc[0])}")


def _ratio(run: Decode, most: float) -> Iterator[Violation]:
    value, error = run.perplexity.loc["ratio"]
    if not value <= most:
        both = run.perplexity["value"]
        text = f"the perplexity is {both['runtime']:.4g}, and {both['reference']:.4g} at the reference"
        text += f": {measured(value, error)} times, more than {most:g}"
        yield Violation("max_perplexity_ratio", value, most, text)


def _finite(run: Decode, most: float) -> Iterator[Violation]:
    wrong = run.steps[run.steps["kl"].isna()]
    if len(wrong) > most:
        text = f"{len(wrong)} positions have NaN or Inf among their logits; the first is {place(wrong.iloc[0])}"
        yield Violation("non-finite", len(wrong), most, text)


def place(row: pd.Series[Any]) -> str:
    return f"prompt {row['prompt']}, step {row['step']}, position {row['position']}"
