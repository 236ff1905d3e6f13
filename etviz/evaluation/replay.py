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

    def some_values(self, instruction: int, first: int, count: int) -> list[Any]:
        """So many of them from one on, fewer where there are no more."""
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

    def logged(self, node: Node, turn: int | None = None) -> list[Any] | None:
        """See `logged_outputs`."""
        return logged_outputs(self.log, node, turn=turn)


def logged_outputs(log: Log, node: Node, count: int | None = None, turn: int | None = None) -> list[Any] | None:
    """What the runtime logged as outputs of a node's instruction, None if nothing or another `count` of them.

    A delegate logs its inputs before them. In a loop an instruction is executed often: `turn` is the number of the
    execution that is asked for, and what is left where its values are not whole is an empty list.
    """
    if node.instruction < 0:
        return None
    if turn is not None:
        before = len(node.args) if node.target == "delegate" else 0
        each = before + max(1, len(node.outputs))
        values = log.some_values(node.instruction, turn * each, each)
        return (values[before:] if len(values) == each else []) if values else None
    if node.target in ("delegate", OBSERVED):
        return log.last_values(node.instruction, len(node.outputs) if count is None else count)
    values = log.values(node.instruction)
    return values if values and count in (None, len(values)) else None


def of_last_round(values: list[Any], rounds: int) -> list[Any]:
    """What an instruction that was executed so often in a loop logged the last time; outside of loops all of it."""
    return values[len(values) - len(values) // rounds :] if rounds > 1 and len(values) % rounds == 0 else values


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
