"""What the quantization split is told of the inside of delegates: the runtime values that zooms showed, or why not.

A zoom counts only where it is faithful. The inner values of another program would be read as the errors of this one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import torch

    from etviz.comparison.gap import Comparison
    from etviz.graph.inline import Inlined
    from etviz.graph.ir import Graph
    from etviz.graph.uses import Key

NOT_ZOOMED: Final = "it is inside of a delegate, which logs only its outputs; zoom into it to see more"


class InsideOfCall(Protocol):
    """What is asked of a zoom: the operators of the delegate and their values, and whether these can be trusted."""

    graph: Graph
    comparison: Comparison
    faithful: bool | None
    message: str


@dataclass(frozen=True, slots=True)
class ZoomedCall:
    """One delegate call of one execution that was zoomed into; the rows inside count on from `first`."""

    run: int
    instruction: int
    zoom: InsideOfCall
    first: int


@dataclass(slots=True)
class Inside:
    """The inside of the delegates of one execution.

    `logged` holds rows and their tensors by the value of the inlined graph; `instructions` tells of each row the call
    that it is inside of; `reasons` of each other node why it has no runtime value.
    """

    logged: dict[Key, list[tuple[int, torch.Tensor]]] = field(default_factory=dict)
    instructions: dict[int, int] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)


def inside_of(flat: Inlined, zooms: Sequence[ZoomedCall], run: int) -> Inside:
    """What is known of the inside of an inlined program's delegates in one execution; `zooms` are those of all."""
    inside = Inside()
    starts = tuple(flat.inside.values())
    inside.reasons = {node.name: NOT_ZOOMED for node in flat.graph.nodes if node.name.startswith(starts)}
    for item in zooms:
        start = flat.inside.get(item.instruction)
        if item.run != run or start is None:
            continue
        names = {node.instruction: start + node.name for node in item.zoom.graph.nodes if node.instruction >= 0}
        inside.reasons |= dict(_reasons(item, names))
        if item.zoom.faithful is not True:
            continue
        for row, gap in enumerate(item.zoom.comparison.gaps, item.first):
            inside.logged.setdefault((names[gap.instruction], gap.output), []).append((row, gap.runtime))
            inside.instructions[row] = item.instruction
    return inside


def _reasons(item: ZoomedCall, names: Mapping[int, str]) -> Iterator[tuple[str, str]]:
    zoom = item.zoom
    for instruction, name in names.items():
        if zoom.faithful is not True:
            yield name, f"{not_counted(item.instruction)}: {zoom.message}"
        else:
            why = zoom.comparison.reasons.get(instruction, "the backend does not give it out")
            yield name, f"zoomed into, but it has no value of its own: {why}"


def not_counted(instruction: int) -> str:
    """What is said of a zoom that is not faithful.

    Examples
    --------
    >>> not_counted(4)
    'the zoom into the delegate call 4 does not count, since it is not known to be faithful'
    """
    return f"the zoom into the delegate call {instruction} does not count, since it is not known to be faithful"
