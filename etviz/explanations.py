"""The part of an Inspection that says why numbers are off: each method hands over to a module of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from etviz.artifacts.ir import Graph
    from etviz.inspection import Findings
    from etviz.numerics.comparison import Gap


class Explanations:
    """Base of `Inspection`. What it needs of an Inspection is declared here."""

    _findings: Findings
    _graph: Graph

    def _gap(self, row: Any) -> Gap:
        raise NotImplementedError
