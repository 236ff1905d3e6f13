"""The zoo's table of rates in ``docs/verdicts.md``, and a line for each program."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from tests.zoo.judge import BAD, Named, Said
from tests.zoo.made import WAYS, Made, ratio
from tests.zoo.plants import PLANTS
from tests.zoo.programs import FAULTY, RECIPES

PAGE = Path(__file__).parents[2] / "docs" / "verdicts.md"
RATES = ("", *WAYS)
OUTCOMES = ("found", "not known", "another", "missed")
_T = TypeVar("_T")


@dataclass
class Results:
    """What was said of each program, by way of loading."""

    made: dict[str, Made] = field(default_factory=dict)
    correct: dict[str, Mapping[str, Said]] = field(default_factory=dict)
    planted: dict[str, Mapping[str, Named]] = field(default_factory=dict)
    faulty: dict[str, Mapping[str, Named]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.made)

    def add(self, kind: str, made: Made, said: Mapping[str, Any]) -> None:
        """Take in what was said of a program; its kind is the name of a field."""
        self.made[made.name] = made
        getattr(self, kind)[made.name] = said

    def row(self, name: str) -> list[str]:
        """The line of a program."""
        if name in self.correct:
            return correct_row(self.made[name], self.correct[name])
        return fault_row(self.made[name], (self.planted | self.faulty)[name])

    def rates(self) -> list[list[str]]:
        """Lines of the table of rates."""
        said = {way: [judged[way] for judged in self.correct.values()] for way in WAYS}
        named = {way: [judged[way] for judged in self.planted.values()] for way in WAYS}
        inside = {way: [item for item in named[way] if item.inside] for way in WAYS}
        lines = [
            _line("correct: first divergence is named", said, lambda item: bool(item.first)),
            _line("correct: the verdict is bad, or an error", said, lambda item: item.level in (BAD, "error")),
            _line("correct: neither", said, lambda item: item.calm),
        ]
        lines += [_line(f"planted: {kind}", named, lambda item, kind=kind: item.outcome == kind) for kind in OUTCOMES]
        lines.append(_line("planted: anything is named, or the verdict is bad", named, lambda item: not item.said.calm))
        for kind in ("named", "unfaithful", "refused", "missed"):
            lines.append(_line(f"inside of a delegate: {kind}", inside, lambda item, kind=kind: item.inside == kind))
        return lines

    def write(self) -> None:
        """Put the rates between their markers in the page."""
        before, start, rest = PAGE.read_text(encoding="utf-8").partition("<!-- zoo: rates -->")
        _, end, after = rest.partition("<!-- end -->")
        if not (start and end):
            raise ValueError("the page has no place for the rates")
        content = f"{table(RATES, self.rates())}\n\n{self._extent()}"
        PAGE.write_text(f"{before}{start}\n\n{content}\n\n{end}{after}", encoding="utf-8")

    def _extent(self) -> str:
        extent = f"{len(self.correct)} correct programs, {len(self.planted)} planted faults, {len(self.faulty)} found"
        deep = sum(not math.isnan(judged["record"].share) for judged in self.planted.values())
        if deep < len(self.planted):
            extent += f" (attribution and zoom were asked about {deep} of the planted)"
        if len(self) == len(RECIPES) + len(PLANTS) + len(FAULTY):
            return f"{extent}."
        return f"{extent}, of {len(RECIPES)}, {len(PLANTS)} and {len(FAULTY)}: the zoo was not run to its end."


def correct_row(made: Made, said: Mapping[str, Said]) -> list[str]:
    """A correct program; what differs by way of loading stands in the order of `WAYS`."""
    every = [said[way] for way in WAYS]
    worst = max(every, key=lambda item: _number(item.worst_severity))
    return [
        made.name,
        str(len(made.facts["calls"])),
        _slashes(str(item.compared) for item in every),
        _slashes(item.level for item in every),
        _slashes(item.first or "none" for item in every),
        f"{worst.worst_severity:.3g} {worst.worst}" if worst.worst_severity > 0 else "0",
        _figure(max(map(ratio, made.facts["local"]))),
        _figure(max(map(ratio, made.facts["outputs"]))),
        _seconds(every),
    ]


def fault_row(made: Made, named: Mapping[str, Named]) -> list[str]:
    """A fault; ``?`` where the operator's own error is not known."""
    every = [named[way] for way in WAYS]
    return [
        made.name,
        _figure(made.facts["size"]),
        _slashes(item.outcome for item in every),
        _slashes("?" if item.rank is None else str(item.rank) for item in every),
        _slashes(_figure(item.severity) for item in every),
        _slashes(item.said.first if item.outcome == "another" else "–" for item in every),
        _slashes(_percent(item.share) for item in every),
        _slashes(item.inside or "–" for item in every),
        _seconds([item.said for item in every]),
    ]


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


def _line(what: str, judged: Mapping[str, Sequence[_T]], holds: Callable[[_T], bool]) -> list[str]:
    return [what, *(f"{sum(map(holds, items))} of {len(items)}" for items in judged.values())]


def _seconds(every: Sequence[Said]) -> str:
    return f"{sum(item.seconds for item in every if not math.isnan(item.seconds)):.1f} s"


def _slashes(items: Iterable[str]) -> str:
    """One thing if it is the same in every way of loading."""
    found = list(items)
    return found[0] if len(set(found)) == 1 else " / ".join(found)


def _number(value: float) -> float:
    return -1.0 if math.isnan(value) else value


def _figure(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.3g}"


def _percent(value: float) -> str:
    return "–" if math.isnan(value) else f"{100 * value:.0f} %"
