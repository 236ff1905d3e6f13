"""A program's executions, and who evaluates it: this process, or a child process for foreign files."""

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
    problems: dict[int, str]

    def values(self, instruction: int) -> list[Any]:
        """None where one can't be read."""
        ...

    def some_values(self, instruction: int, first: int, count: int) -> list[Any]: ...

    def last_values(self, instruction: int, count: int) -> list[Any] | None:
        """None if there are fewer."""
        ...

    def inside(self, instruction: int) -> list[tuple[int | str, Any]]:
        """By the backend's identifiers."""
        ...

    def outputs(self) -> list[Any]: ...


@dataclass(frozen=True, slots=True)
class Execution:
    inputs: Sequence[Any]
    log: Log

    def logged(self, node: Node, turn: int | None = None) -> list[Any] | None:
        return logged_outputs(self.log, node, turn=turn)


def logged_outputs(log: Log, node: Node, count: int | None = None, turn: int | None = None) -> list[Any] | None:
    """None if there are none or not `count`.

    A delegate logs its inputs first. In a loop, `turn` is the number of the instruction's execution; an incomplete one
    is an empty list.
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
    return values[len(values) - len(values) // rounds :] if rounds > 1 and len(values) % rounds == 0 else values


class Elsewhere(Protocol):
    """Evaluates files which this process only reads."""

    @property
    def graph(self) -> Graph: ...

    @property
    def constants(self) -> Mapping[str, torch.Tensor]: ...

    def ask(
        self, function: Callable[..., Any], replay: Replay, args: Sequence[Any], named: Mapping[str, Any]
    ) -> Any: ...

    def piece(self, graph: Graph, constants: Mapping[str, torch.Tensor], executions: Sequence[Execution]) -> Replay: ...


@dataclass(slots=True)
class Replay:
    """The executions of one method, in order, as `Gap.run` counts them.

    `fresh` makes an evaluator in the model's initial state, `fresh_float` one of the float model; `stages` has makers
    for the program's other forms. With `elsewhere`, this process must not evaluate, and the makers raise
    `RuntimeError`.
    """

    fresh: Callable[[], Evaluator]
    executions: list[Execution] = field(default_factory=list)
    fresh_float: Callable[[], Evaluator] | None = None
    stages: Mapping[str, Callable[[], Evaluator]] = field(default_factory=dict)
    elsewhere: Elsewhere | None = None

    @property
    def graph(self) -> Graph:
        return self.elsewhere.graph if self.elsewhere is not None else self.fresh().graph

    @property
    def constants(self) -> Mapping[str, torch.Tensor]:
        return self.elsewhere.constants if self.elsewhere is not None else self.fresh().constants

    def piece(self, graph: Graph, constants: Mapping[str, torch.Tensor], executions: Sequence[Execution]) -> Replay:
        if self.elsewhere is not None:
            return self.elsewhere.piece(graph, constants, executions)
        return piece(graph, constants, executions)


def piece(graph: Graph, constants: Mapping[str, torch.Tensor], executions: Sequence[Execution]) -> Replay:
    return Replay(lambda: Evaluator(graph, constants), list(executions))


def question(function: Callable[Concatenate[Replay, P], R]) -> Callable[Concatenate[Replay, P], R]:
    """Let a child process evaluate a function of a `Replay` if the replay's files are foreign.

    The other arguments and the result must be functions, or what `etviz.pipeline.parcel` can pack.
    """

    @functools.wraps(function)
    def ask(replay: Replay, *args: P.args, **named: P.kwargs) -> R:
        if replay.elsewhere is None:
            return function(replay, *args, **named)
        return replay.elsewhere.ask(function, replay, args, named)

    setattr(ask, QUESTION, True)
    return ask


QUESTION: Final = "_etviz_question"
"""Attribute of the functions that a child process may be asked for."""


def refuse() -> Evaluator:
    raise RuntimeError("these files are evaluated in a child process only")
