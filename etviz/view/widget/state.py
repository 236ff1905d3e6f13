"""What a view of an Analysis shows at the moment: selection, order, filter, unfolded nodes, height."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import traitlets

from etviz.errors import UsageError
from etviz.view.pages.report import embedded_html
from etviz.view.pages.tables import html_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etviz.analysis.analysis import Analysis, Change
    from etviz.analysis.summary import Summary
    from etviz.view.payload.beside import Beside

SHARED: Final = ("selected", "sort_by", "descending", "filter", "expanded", "height")
"""The traits that every view of one state has in common."""


class ViewState(traitlets.HasTraits):
    """The state that all views of one Analysis share.

    Attributes
    ----------
    analysis
        What they show.
    selected
        Index of the selected gap row, or None.
    sort_by, descending
        The column that the table is sorted by, and its direction.
    filter
        The table's text filter.
    expanded
        Nodes of the tree that are unfolded (preorder indices).
    height
        Height of the view in pixels.
    """

    selected = traitlets.Int(None, allow_none=True)
    sort_by = traitlets.Unicode("introduced_severity")
    descending = traitlets.Bool(True)
    filter = traitlets.Unicode("")
    expanded = traitlets.List(traitlets.Int())
    height = traitlets.Int(620, min=200, max=4000)

    def __init__(self, analysis: Analysis) -> None:
        super().__init__()
        self.analysis = analysis
        analysis.changed.connect(self._follow)

    @property
    def title(self) -> str:
        """Name for people: the model's file and method."""
        return self.analysis.title

    @property
    def known_digest(self) -> Summary | None:
        """The verdict, if it was asked for before."""
        return self.analysis.finder.known_summary

    @property
    def analyses(self) -> Sequence[Analysis]:
        """Everything whose changes the views show."""
        return (self.analysis,)

    @property
    def beside(self) -> Beside | None:
        """Other programs that the views show beside this one."""
        return None

    @property
    def methods(self) -> Sequence[str]:
        """The methods among which a view lets one choose; fewer than two for none."""
        return ()

    def method(self, name: str) -> ViewState:
        """What another method's views show."""
        raise UsageError(f"there is no method {name!r} here")

    def static_html(self) -> str:
        """What a viewer without scripts shows."""
        return html_table(self.analysis)

    def embedded_html(self) -> str:
        """The report as the output of a cell."""
        return embedded_html(self.analysis, self.height)

    def _follow(self, change: Change) -> None:
        """Rows of a zoomed delegate come before those of instructions that were not compared: these move on."""
        if change.added and self.selected is not None and self.selected >= change.first:
            self.selected += change.added
