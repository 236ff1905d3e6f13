"""The values that evaluation computes for a node, and the types of its listeners."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from etviz.graph.ir import Node

if TYPE_CHECKING:
    from etviz.tensors.metrics import Noise

Logged = Callable[..., "list[Any] | None"]
"""See `logged_outputs`."""
Seen = Callable[[Node, "Value"], None]
SeenTogether = Callable[[Node, "Sequence[Value]"], None]


@dataclass(slots=True)
class Value:
    """A node's values.

    `local` is computed from the runtime's inputs; None if that failed (`problem`). `noise` gives its noise by law; None
    if it has to be measured, then `least` may give a lower bound. `chain` has operators before it without logged
    values. `rounds` counts a loop's stacked rounds, 0 outside loops; `apart` those in which the reference takes another
    branch.
    """

    reference: Any
    local: Any
    runtime: list[Any] | None
    problem: str = ""
    unpaired: str = ""
    steps: list[float | None] | None = None
    note: str = ""
    again: Callable[[Perturbation], Any] | None = None
    noise: Callable[[Sequence[Any] | None], list[Noise]] | None = None
    least: Callable[[int], Noise] | None = None
    chain: Chain | None = None
    rounds: int = 0
    apart: int = 0
    missing: str = ""


@dataclass(frozen=True, slots=True)
class Chain:
    """The unlogged part of a value.

    `nodes` lack values, in program order; `others` gives the value with each rounding of them, nothing if they fail.
    `logged` tells which of several outputs were logged. `plain` is the value without the grids that they choose.
    `earlier` (`Multiples`) has known noise by `key`.
    """

    nodes: tuple[Node, ...]
    others: Callable[[], tuple[Any, ...]]
    logged: tuple[bool, ...] = ()
    plain: Any = None
    earlier: Any = None
    key: int = 0

    def has_logged(self, output: int) -> bool:
        return output < len(self.logged) and self.logged[output]


class Perturbation(Protocol):
    def call(
        self,
        call: Callable[..., Any],
        node: Node,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        *,
        delegated: bool = False,
    ) -> Any: ...


def flat_values(value: Any) -> list[Any]:
    """As the runtime logs them: tensors of nested tuples and lists in order."""
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in flat_values(item)]
    return [value]
