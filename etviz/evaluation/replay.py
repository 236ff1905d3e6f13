"""What is needed to run the reference again after the comparison: for attribution, zoom, and values not kept."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from etviz.graph.ir import OBSERVED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from etviz.evaluation.evaluator import Evaluator
    from etviz.graph.ir import Node


class Log(Protocol):
    """What the runtime logged in one execution, by instruction; see `RuntimeLog`."""

    problems: dict[int, str]

    def values(self, instruction: int) -> list[Any]:
        """Everything that an instruction logged, in order; None where it can't be read."""
        ...

    def last_values(self, instruction: int, count: int) -> list[Any] | None:
        """The last of it, None if it is not that much."""
        ...

    def inside(self, instruction: int) -> list[tuple[int | str, Any]]:
        """What a backend logged inside of its call: its own identifiers, and the values."""
        ...

    def outputs(self) -> list[Any]:
        """The program's final outputs."""
        ...


@dataclass(frozen=True, slots=True)
class Execution:
    """One execution: its flat inputs, and what the runtime logged."""

    inputs: Sequence[Any]
    log: Log

    def logged(self, node: Node) -> list[Any] | None:
        """See `logged_outputs`."""
        return logged_outputs(self.log, node)


def logged_outputs(log: Log, node: Node, count: int | None = None) -> list[Any] | None:
    """What the runtime logged as outputs of a node's instruction, None if nothing or another `count` of them.

    A delegate logs its inputs before them.
    """
    if node.instruction < 0:
        return None
    if node.target in ("delegate", OBSERVED):
        return log.last_values(node.instruction, len(node.outputs) if count is None else count)
    values = log.values(node.instruction)
    return values if values and count in (None, len(values)) else None


@dataclass(slots=True)
class Replay:
    """The executions of one method, in order, as `Gap.run` counts them.

    `fresh` makes an evaluator with the model's initial state, on which stateful executions have to follow one another;
    `fresh_float` the same for the float model that was quantized, None where it is not known; `stages` for the other
    forms of the program that the files hold, from the exported one on.
    """

    fresh: Callable[[], Evaluator]
    executions: list[Execution] = field(default_factory=list)
    fresh_float: Callable[[], Evaluator] | None = None
    stages: Mapping[str, Callable[[], Evaluator]] = field(default_factory=dict)
