"""What the quantization split is told of the inside of delegates: the runtime values that zooms showed, or why not.

A zoom counts only where it is faithful. The inner values of another program would be read as the errors of this one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from etviz.graph.inline import Inlined, Key

if TYPE_CHECKING:
    import torch

    from etviz.numerics.zoom import Zoom

NOT_ZOOMED: Final = "it is inside of a delegate, which logs only its outputs; zoom into it to see more"


@dataclass(frozen=True, slots=True)
class ZoomedCall:
    """One delegate call that was zoomed into.

    Attributes
    ----------
    run, instruction
        Number of the execution, and the call.
    zoom
        What was found inside.
    first
        Number of its first row; the others follow in order.
    """

    run: int
    instruction: int
    zoom: Zoom
    first: int


@dataclass(slots=True)
class Inside:
    """The inside of the delegates of one execution.

    Attributes
    ----------
    logged
        Rows and their tensors, by the value of the inlined graph.
    instructions
        By row: the call that it is inside of.
    reasons
        By name of a node of the inlined graph: why it has no runtime value.
    """

    logged: dict[Key, list[tuple[int, torch.Tensor]]] = field(default_factory=dict)
    instructions: dict[int, int] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)


def inside_of(flat: Inlined, zooms: Sequence[ZoomedCall], run: int) -> Inside:
    """What is known of the inside of every delegate in one execution.

    Parameters
    ----------
    flat
        The program with its delegates inlined.
    zooms
        All that was zoomed into, in any execution.
    run
        Number of the execution.
    """
    found = Inside()
    starts = tuple(flat.inside.values())
    found.reasons = {node.name: NOT_ZOOMED for node in flat.graph.nodes if node.name.startswith(starts)}
    for item in zooms:
        start = flat.inside.get(item.instruction)
        if item.run != run or start is None:
            continue
        names = {node.instruction: start + node.name for node in item.zoom.graph.nodes if node.instruction >= 0}
        found.reasons |= dict(_reasons(item, names))
        if item.zoom.faithful is not True:
            continue
        for row, gap in enumerate(item.zoom.comparison.gaps, item.first):
            found.logged.setdefault((names[gap.instruction], gap.output), []).append((row, gap.runtime))
            found.instructions[row] = item.instruction
    return found


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
