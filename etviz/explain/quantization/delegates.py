"""Runtime values inside zoomed delegates; unfaithful zooms would show the errors of another program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from etviz.comparison.gap import ExecutionGaps
    from etviz.explain.stages.stages import ProgramForm
    from etviz.graph.ir import Graph

NOT_ZOOMED: Final = "it is inside a delegate, which logs only its outputs; zoom into it to see more"


class InsideOfCall(Protocol):
    graph: Graph
    comparison: ExecutionGaps
    faithful: bool | None
    message: str


@dataclass(frozen=True, slots=True)
class ZoomedCall:
    """`first` is the number of its first row."""

    run: int
    instruction: int
    zoom: InsideOfCall
    first: int


def reasons_inside(form: ProgramForm, zooms: Sequence[ZoomedCall], run: int) -> dict[str, str]:
    reasons = form.inside_nodes(NOT_ZOOMED)
    for item in zooms:
        if item.run == run and item.instruction in form.inside:
            reasons |= dict(_reasons(item, form.inside[item.instruction]))
    return reasons


def _reasons(item: ZoomedCall, start: str) -> Iterator[tuple[str, str]]:
    zoom = item.zoom
    for node in zoom.graph.nodes:
        if node.instruction < 0:
            continue
        if zoom.faithful is not True:
            yield start + node.name, f"{not_counted(item.instruction)}: {zoom.message}"
        else:
            why = zoom.comparison.reasons.get(node.instruction, "the backend does not return it")
            yield start + node.name, f"zoomed into, but it has no separate value: {why}"


def not_counted(instruction: int) -> str:
    return f"the zoom into the delegate call {instruction} does not count, because it is not known to be faithful"
