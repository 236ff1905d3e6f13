"""What a view of an Analysis shows at the moment: selection, order, filter, unfolded nodes, height."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import traitlets

if TYPE_CHECKING:
    from etviz.analysis.analysis import Analysis, Change

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

    def _follow(self, change: Change) -> None:
        """Rows of a zoomed delegate come before those of instructions that were not compared: these move on."""
        if change.added and self.selected is not None and self.selected >= change.first:
            self.selected += change.added
