"""What the evaluation of a graph gives for a node, and who gives and is told it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from etviz.graph.ir import Node

if TYPE_CHECKING:
    import torch

Logged = Callable[..., "list[Any] | None"]
"""What the runtime logged as the outputs of a node, None where it logged nothing; see `logged_outputs`."""
Seen = Callable[[Node, "Value"], None]
SeenTogether = Callable[[Node, "Sequence[Value]"], None]


@dataclass(slots=True)
class Value:
    """A node's values.

    `local` is computed from the runtime's inputs, None where that failed (`problem` says how); `runtime` is what was
    logged, None if nothing was. `unpaired` says why there is no `reference`. `steps` are those of `dynamic.steps`,
    `note` says what they mean. `again` computes `local` with another rounding. `chain`
    says which operators before it are in `local` too, because the runtime logged no value of theirs. Where `rounds` is
    not 0, the values are those of all rounds of a loop, stacked; see `etviz.evaluation.rounds`; there are so
    many more `apart` in which the reference goes another way. `missing` says why nothing can be compared.
    """

    reference: Any
    local: Any
    runtime: list[Any] | None
    problem: str = ""
    unpaired: str = ""
    steps: list[float | None] | None = None
    note: str = ""
    again: Callable[[Rounding], Any] | None = None
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
    """Perturbs the results of operators; see `etviz.evaluation.noise`."""

    def call(
        self,
        call: Callable[..., Any],
        terms: int,
        node: Node,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        *,
        delegated: bool = False,
    ) -> Any:
        """The perturbed result of an operator, which a backend runs if it is `delegated`."""
        ...

    def perturbs(self, node: Node) -> bool:
        """True if it perturbs the result of an operator at all."""
        ...

    def takes_short(self, node: Node, args: Sequence[Any]) -> bool:
        """True if a product's large operand is perturbed by way of its sums."""
        ...

    def product(
        self, node: Node, args: Sequence[Any], terms: int, *, drowned: bool
    ) -> tuple[list[Any], Callable[[torch.Tensor, torch.Tensor | None], torch.Tensor]]:
        """The perturbed operands of such a product, and what perturbs its value, given ``√(Σa²b²)`` or `drowned`."""
        ...

    def drowned(self, args: Sequence[Any], plain: Sequence[Any], terms: int) -> bool:
        """True if what the order of its sums makes is nothing beside what comes with its operand."""
        ...

    def squared(self, args: Sequence[Any]) -> list[Any]:
        """The squares of its operands but for the large one."""
        ...

    def spread(self, node: Node) -> torch.Tensor | None:
        """``√(Σa²b²)`` of a node if it is known."""
        ...

    def keep_spread(self, node: Node, spread: torch.Tensor) -> None:
        """Know it from now on."""
        ...


def flat_values(value: Any) -> list[Any]:
    """A node's value as the list of outputs that the runtime logs: tensors of tuples and lists one after another."""
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in flat_values(item)]
    return [value]
