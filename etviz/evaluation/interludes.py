"""Calls of other methods between one method's executions: they change its buffers and give its inputs.

A call's results have a reference, runtime and perturbed value, so an encoder's error is carried into the decoder's
input.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    import torch

    from etviz.evaluation.interpreter import Prepared, State
    from etviz.evaluation.limits import Limits
    from etviz.graph.ir import Graph, Node

TURN: Final = "@turn"


class Other(Protocol):
    graph: Graph
    constants: Mapping[str, torch.Tensor]
    limits: Limits
    prepared: Prepared
    runtime_state: State


@dataclass(slots=True)
class Exchange:
    """A call's exchange with the state, beside its buffers.

    `takes` maps a user input to the state's name of an earlier call's output; `gives` maps an output's index to its
    name.
    """

    takes: dict[str, str] = field(default_factory=dict)
    gives: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Interlude:
    """One execution of another method.

    `names` maps a buffer's target there to its name in the state of the evaluated method.
    """

    method: str
    evaluator: Other
    inputs: Sequence[Any]
    logged: Callable[[Node], list[Any] | None]
    names: Mapping[str, str]
    exchange: Exchange = field(default_factory=Exchange)

    def there(self, state: State) -> State:
        renamed = {theirs: state[name] for theirs, name in self.names.items() if name in state}
        return renamed | {name: state[name] for name in self.exchange.takes.values() if name in state}

    def leave(self, state: State, theirs: State) -> None:
        state |= {name: theirs[target] for target, name in self.names.items() if target in theirs}
        state |= {name: theirs[name] for name in self.exchange.gives.values() if name in theirs}


@dataclass(frozen=True, slots=True)
class Turn:
    before: tuple[Interlude, ...] = ()
    exchange: Exchange = field(default_factory=Exchange)


Turns = Mapping[int, Turn]
"""By number of an execution; one without an entry directly follows the last."""
