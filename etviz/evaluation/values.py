"""The values that evaluation computes for a node, and the types of its listeners."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from etviz.graph.ir import Node

if TYPE_CHECKING:
    from etviz.tensors.metrics import Noise

Logged = Callable[..., "list[Any] | None"]
"""The logged outputs of a node, None if nothing was logged; see `logged_outputs`."""
Seen = Callable[[Node, "Value"], None]
SeenTogether = Callable[[Node, "Sequence[Value]"], None]


@dataclass(slots=True)
class Value:
    """A node's values.

    Attributes
    ----------
    local
        From the runtime's inputs; None if that failed (`problem` has the reason).
    noise
        Gives the noise of `local` by law, for the logged values; None if it has to be measured.
    chain
        The operators before it that are part of `local`, because the runtime logged no value of theirs.
    rounds, apart
        Rounds of a loop whose values are stacked here, 0 outside loops; and those in which the reference takes another
        branch. See `etviz.evaluation.rounds`.
    """

    reference: Any
    local: Any
    runtime: list[Any] | None
    problem: str = ""
    unpaired: str = ""
    steps: list[float | None] | None = None
    note: str = ""
    again: Callable[[Rounding], Any] | None = None
    noise: Callable[[Sequence[Any] | None], list[Noise]] | None = None
    chain: Chain | None = None
    rounds: int = 0
    apart: int = 0
    missing: str = ""


@dataclass(frozen=True, slots=True)
class Chain:
    """The unlogged part of a value.

    Attributes
    ----------
    nodes
        The operators with missing values, in program order.
    perturbed
        The value with other roundings of these operators, by rounding; empty if they fail.
    logged
        For an operator with several outputs: the outputs that were logged.
    plain
        The value without the grids that they choose; None if they choose none, or that fails.
    """

    nodes: tuple[Node, ...]
    perturbed: tuple[Any, ...]
    logged: tuple[bool, ...] = ()
    plain: Any = None

    def has_logged(self, output: int) -> bool:
        """True if later operators take what was logged as this output."""
        return output < len(self.logged) and self.logged[output]


class Rounding(Protocol):
    """Computes operators with perturbed results, or otherwise than they are; see `etviz.evaluation.noise`."""

    def call(
        self,
        call: Callable[..., Any],
        node: Node,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        *,
        delegated: bool = False,
    ) -> Any:
        """The result of an operator, which a backend runs if it is `delegated`."""
        ...


def flat_values(value: Any) -> list[Any]:
    """A node's value as the list of outputs that the runtime logs: tensors of tuples and lists one after another."""
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in flat_values(item)]
    return [value]
