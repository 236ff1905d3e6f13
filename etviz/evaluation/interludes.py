"""The calls between the executions of one method: other methods change its buffers, and earlier calls give its inputs.

What another call leaves is state, with the values that reference, runtime and perturbed lanes have: an error of an
encoder is carried into the decoder's input as an error of a buffer is carried into the next execution.
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
"""Name in the state for the number of executions that are past."""


class Other(Protocol):
    """An evaluator of another method, in its initial state; see `Evaluator`."""

    graph: Graph
    constants: Mapping[str, torch.Tensor]
    limits: Limits
    prepared: Prepared
    runtime_state: State


@dataclass(slots=True)
class Exchange:
    """What one call takes from the state, and leaves there, beside its buffers.

    Attributes
    ----------
    takes
        By name of a user input: the name in the state of the value that it is, an output of an earlier call.
    gives
        By index of an output that later calls take: its name in the state.
    """

    takes: dict[str, str] = field(default_factory=dict)
    gives: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Interlude:
    """One execution of another method.

    Attributes
    ----------
    method
        Its name.
    evaluator
        Of that method, in its initial state.
    inputs
        Flat inputs.
    logged
        Gives what the runtime logged for a node.
    names
        By target of a buffer there: its name in the state of the evaluated method.
    exchange
        Its inputs and outputs that are those of other calls.
    """

    method: str
    evaluator: Other
    inputs: Sequence[Any]
    logged: Callable[[Node], list[Any] | None]
    names: Mapping[str, str]
    exchange: Exchange = field(default_factory=Exchange)

    def there(self, state: State) -> State:
        """The part of the evaluated method's state that this execution finds, by its own names."""
        found = {theirs: state[name] for theirs, name in self.names.items() if name in state}
        return found | {name: state[name] for name in self.exchange.takes.values() if name in state}

    def leave(self, state: State, theirs: State) -> None:
        """Bring the evaluated method's state up to date."""
        state |= {name: theirs[target] for target, name in self.names.items() if target in theirs}
        state |= {name: theirs[name] for name in self.exchange.gives.values() if name in theirs}


@dataclass(frozen=True, slots=True)
class Turn:
    """One execution of the evaluated method: the calls of other methods before it, and its own exchange."""

    before: tuple[Interlude, ...] = ()
    exchange: Exchange = field(default_factory=Exchange)


Turns = Mapping[int, Turn]
"""By number of an execution; those without an entry follow directly on the one before."""
