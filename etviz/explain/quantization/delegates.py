"""Runtime values inside zoomed delegates; unfaithful zooms would show the errors of another program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from etviz.graph.ir import Graph

if TYPE_CHECKING:
    from etviz.comparison.gap import ExecutionGaps
    from etviz.explain.stages.stages import ProgramForm

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
    for zoomed in zooms:
        if zoomed.run == run and zoomed.instruction in form.inside:
            reasons |= dict(_reasons(zoomed, form.inside[zoomed.instruction]))
    return reasons


def _reasons(zoomed: ZoomedCall, start: str) -> Iterator[tuple[str, str]]:
    zoom = zoomed.zoom
    for node in zoom.graph.nodes:
        if node.instruction < 0:
            continue
        if zoom.faithful is not True:
            yield start + node.name, f"{not_counted(zoomed.instruction)}: {zoom.message}"
        else:
            why = zoom.comparison.reasons.get(node.instruction, "the backend does not return it")
            yield start + node.name, f"zoomed into, but it has no separate value: {why}"


def not_counted(instruction: int) -> str:
    return f"the zoom into the delegate call {instruction} does not count, because it is not known to be faithful"
