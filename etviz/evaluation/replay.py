"""The executions of a program, and who evaluates it for them: this process, or a child process for foreign files."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, Protocol, TypeVar

from etviz.evaluation.evaluator import Evaluator
from etviz.graph.ir import OBSERVED

if TYPE_CHECKING:
    import torch

    from etviz.graph.ir import Graph, Node

P = ParamSpec("P")
R = TypeVar("R")


class Log(Protocol):
    """The logged values of one execution, by instruction; see `RuntimeLog`."""

    problems: dict[int, str]

    def values(self, instruction: int) -> list[Any]:
        """Everything that an instruction logged, in order; None where it can't be read."""
        ...

    def some_values(self, instruction: int, first: int, count: int) -> list[Any]:
        """Up to `count` of them, beginning with number `first`."""
        ...

    def last_values(self, instruction: int, count: int) -> list[Any] | None:
        """The last of it, None if it is not that much."""
        ...

    def inside(self, instruction: int) -> list[tuple[int | str, Any]]:
        """The values that a backend logged inside its call, with the backend's identifiers."""
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
    """The logged outputs of a node's instruction, None if there are none or not `count` of them.

    A delegate logs its inputs first. In a loop an instruction is executed often: `turn` is the number of the requested
    execution. An incomplete execution is an empty list.
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
    """The values of the last of `rounds` executions in a loop; outside loops all of them."""
    return values[len(values) - len(values) // rounds :] if rounds > 1 and len(values) % rounds == 0 else values


class Elsewhere(Protocol):
    """A child process that evaluates what this process only reads."""

    @property
    def graph(self) -> Graph:
        """The graph of the reference."""
        ...

    @property
    def constants(self) -> Mapping[str, torch.Tensor]:
        """The constants of the reference."""
        ...

    def ask(
        self, function: Callable[..., Any], replay: Replay, args: Sequence[Any], named: Mapping[str, Any]
    ) -> Any: ...

    def piece(self, graph: Graph, constants: Mapping[str, torch.Tensor], executions: Sequence[Execution]) -> Replay:
        """Executions of another graph."""
        ...


@dataclass(slots=True)
class Replay:
    """The executions of one method, in order, as `Gap.run` counts them.

    Attributes
    ----------
    fresh
        Makes an evaluator with the model's initial state, on which stateful executions have to follow one another.
    executions
        Their inputs, and what the runtime logged.
    fresh_float
        Makes an evaluator of the float model that was quantized, None where that is not known.
    stages
        Makers of evaluators of the other forms of the program that the files hold, from the exported one on.
    elsewhere
        Evaluates the program if this process must not; then the makers raise `RuntimeError`.
    """

    fresh: Callable[[], Evaluator]
    executions: list[Execution] = field(default_factory=list)
    fresh_float: Callable[[], Evaluator] | None = None
    stages: Mapping[str, Callable[[], Evaluator]] = field(default_factory=dict)
    elsewhere: Elsewhere | None = None

    @property
    def graph(self) -> Graph:
        """The graph of the reference."""
        return self.elsewhere.graph if self.elsewhere is not None else self.fresh().graph

    @property
    def constants(self) -> Mapping[str, torch.Tensor]:
        """The constants of the reference."""
        return self.elsewhere.constants if self.elsewhere is not None else self.fresh().constants

    def piece(self, graph: Graph, constants: Mapping[str, torch.Tensor], executions: Sequence[Execution]) -> Replay:
        """Executions of a part of the program, which are evaluated where the program is."""
        if self.elsewhere is not None:
            return self.elsewhere.piece(graph, constants, executions)
        return piece(graph, constants, executions)


def piece(graph: Graph, constants: Mapping[str, torch.Tensor], executions: Sequence[Execution]) -> Replay:
    """Executions of a graph that this process evaluates."""
    return Replay(lambda: Evaluator(graph, constants), list(executions))


def question(function: Callable[Concatenate[Replay, P], R]) -> Callable[Concatenate[Replay, P], R]:
    """Let a function of a `Replay` be evaluated in the child process if the replay's files are foreign.

    The other arguments and the result must be what `etviz.pipeline.parcel` can pack, or functions.
    """

    @functools.wraps(function)
    def ask(replay: Replay, *args: P.args, **named: P.kwargs) -> R:
        if replay.elsewhere is None:
            return function(replay, *args, **named)
        return replay.elsewhere.ask(function, replay, args, named)

    setattr(ask, QUESTION, True)
    return ask


QUESTION: Final = "_etviz_question"
"""Attribute that marks the functions that a child process may be asked for."""


def refuse() -> Evaluator:
    """Stand for a maker of evaluators where this process must not evaluate."""
    raise RuntimeError("these files are evaluated in a child process only")
