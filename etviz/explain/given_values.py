"""Values of operators as a log, which nothing but they were logged in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class GivenValues:
    """A `Log`: `given` has by instruction its outputs, None without a value; `results` are the final ones."""

    given: dict[int, list[Any]]
    results: list[Any]
    problems: dict[int, str] = field(default_factory=dict, kw_only=True)

    def values(self, instruction: int) -> list[Any]:
        return list(self.given.get(instruction, ()))

    def some_values(self, instruction: int, first: int, count: int) -> list[Any]:
        return self.values(instruction)[first : first + count]

    def last_values(self, instruction: int, count: int) -> list[Any] | None:
        values = self.values(instruction)
        return values[-count:] if 0 < count <= len(values) else None

    def inside(self, instruction: int) -> list[tuple[int | str, Any]]:
        return []

    def outputs(self) -> list[Any]:
        return list(self.results)
