"""Random numbers: the runtime drew others than the reference, so what follows from them can't be held against it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from etviz.graph.draws import drawing
from etviz.graph.labels import short_operator

if TYPE_CHECKING:
    from etviz.comparison.gap import Comparison
    from etviz.graph.ir import Graph

_DRAWN: Final = "it draws random numbers"
_FOLLOWS: Final = "it follows from random numbers: only introduced gaps"


class Drawn:
    """The operators of a graph that draw random numbers, and the instructions that follow from them.

    `known` says that the graph's instructions are the program's own; else everything may follow.
    """

    def __init__(self, graph: Graph, *, known: bool) -> None:
        self._nodes, self._known = drawing(graph), known
        names = {node.name for node in self._nodes}
        self._drawing = {node.instruction for node in self._nodes}
        self._following = set(self._drawing)
        for node in graph.nodes if names else ():
            if not names.isdisjoint(node.reads()):
                names.add(node.name)
                self._following.add(node.instruction)
        self._judged = known and names.isdisjoint(graph.results())

    def forget(self, comparison: Comparison) -> str:
        """Take back what a comparison can't tell of them; returns what to tell the user, nothing if there are none."""
        if not self._nodes:
            return ""
        for gap in comparison.gaps:
            if not self._known or gap.instruction in self._following:
                gap.forget_total(_FOLLOWS)
            if not self._known or gap.instruction in self._drawing:
                gap.introduced = gap.introduced_sums = None
                gap.unpaired = _DRAWN if self._known else gap.unpaired
        if not self._judged:
            comparison.reference_outputs, comparison.judged = [], False
        names = dict.fromkeys(node.origin or short_operator(node.target) for node in self._nodes)
        drop = any("dropout" in name for name in names)
        return (
            f"The program draws random numbers ({', '.join(names)}), at runtime others than in the reference: what "
            "follows from them is judged only by what each operator adds itself."
            + (" Dropout is for training: call model.eval() before the export." if drop else "")
        )
