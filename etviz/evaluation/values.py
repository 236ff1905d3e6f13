"""What the evaluation of a graph gives for a node, and who gives and is told it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from etviz.graph.ir import Node

if TYPE_CHECKING:
    from etviz.tensors.metrics import Noise

Logged = Callable[..., "list[Any] | None"]
"""What the runtime logged as the outputs of a node, None where it logged nothing; see `logged_outputs`."""
Seen = Callable[[Node, "Value"], None]
SeenTogether = Callable[[Node, "Sequence[Value]"], None]


@dataclass(slots=True)
class Value:
    """A node's values.

    Attributes
    ----------
    reference
        From the program's inputs.
    local
        From the runtime's inputs; None where that failed (`problem` says why).
    runtime
        What was logged, None if nothing was.
    unpaired
        Why there is no `reference`.
    steps, note
        What `dynamic_quantization.steps` gives, and what it means.
    again
        Computes `local` with another rounding.
    noise
        Gives the noise of `local` by law, for what was logged; None where it has to be measured.
    chain
        Which operators before it are in `local` too, because the runtime logged no value of theirs.
    rounds, apart
        Rounds of a loop whose values are stacked here, 0 outside of loops; and those in which the reference goes
        another way. See `etviz.evaluation.rounds`.
    missing
        Why nothing can be compared.
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
    """What a value carries along that the runtime did not log.

    Attributes
    ----------
    nodes
        The operators whose values are missing, in program order.
    perturbed
        The value with other roundings of these operators, by the rounding; empty where they fail.
    logged
        Of an operator with several outputs: which of them were logged all the same.
    plain
        The value as it is if nothing is put on a grid that they choose; None where nothing is, or that fails.
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
