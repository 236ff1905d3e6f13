"""State that all views of one program share."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, Final

import traitlets

from etviz.analysis.analysis import Analysis, Change
from etviz.analysis.summary import Summary
from etviz.comparison.gap import COMPARED
from etviz.errors import UsageError
from etviz.view.pages.html_tables import html_table
from etviz.view.payload.beside import Beside
from etviz.view.payload.program_payload import build_payload, column_names
from etviz.view.payload.wire import Answer

SHARED: Final = ("selected", "sort_by", "descending", "filter", "expanded", "height")


class ViewState(traitlets.HasTraits):
    """State that all views of one program share; set its traits, observe them, and link them.

    Attributes
    ----------
    selected
        Index of the selected row, or None.
    sort_by, descending
        The column that the table is sorted by, and its direction.
    expanded
        Unfolded nodes of the tree (preorder indices).
    """

    selected = traitlets.Int(None, min=0, allow_none=True)
    sort_by = traitlets.Unicode("introduced_severity")
    descending = traitlets.Bool(True)
    filter = traitlets.Unicode("")
    expanded = traitlets.List(traitlets.Int(min=0))
    height = traitlets.Int(620, min=200, max=4000)

    def __init__(self, analysis: Analysis | None, read_method: Callable[[str], ViewState] | None = None) -> None:
        super().__init__()
        self._analysis = analysis
        self.shown: weakref.ref[Any] | None = None
        self.suggest: Callable[[], Any] | None = None
        self._read_method = read_method
        self._others: dict[str, ViewState] = {}
        if analysis is not None:
            analysis.changed.connect(self._follow)

    @property
    def analysis(self) -> Analysis:
        if self._analysis is None:
            raise UsageError("no call is open; click a token to open its call")
        return self._analysis

    @property
    def title(self) -> str:
        return self.analysis.title

    @property
    def known_digest(self) -> Summary | None:
        return self.analysis.finder.known_summary

    @property
    def analyses(self) -> Sequence[Analysis]:
        return (self.analysis,)

    @property
    def beside(self) -> Beside | None:
        return None

    @property
    def methods(self) -> list[str]:
        findings = self.analysis.findings
        return list(findings.methods) if self._read_method is not None else [findings.shown_method]

    @property
    def seen(self) -> list[Analysis]:
        return [other.analysis for other in self._others.values()]

    def state_of(self, name: str) -> ViewState:
        """State of a method's views; a `UsageError` if the program lacks it."""
        shown = self.analysis.findings.shown_method
        if name == shown:
            return self
        if self._read_method is None or name not in self.methods:
            raise UsageError(f"method must be one of {', '.join(self.methods)}, found {name!r}")
        if name not in self._others:
            other = self._others[name] = self._read_method(name)
            other._others, other._read_method = self._others | {shown: self}, self._read_method
        return self._others[name]

    def payload(self) -> Answer:
        return build_payload(self.analysis, self.beside)

    def attribute(self, params: dict[str, Any], progress: Callable[[int, int], None]) -> None:
        self.analysis.attribution(params.get("output"), params.get("run"), progress=progress)

    def static_html(self) -> str:
        return html_table(self.analysis)

    def embedded_html(self) -> str:
        from etviz.view.pages.report_page import embedded_html

        return embedded_html(self.analysis, self.height)

    @property
    def rows(self) -> int:
        coverage = self.analysis.tables.coverage
        return len(self.analysis.rows) + int((coverage["status"] != COMPARED).sum())

    @property
    def nodes(self) -> int:
        return 0 if self._analysis is None else len(self._analysis.tree)

    @property
    def columns(self) -> set[str]:
        return column_names(self.analysis)

    @traitlets.validate("selected")
    def check_selected(self, proposal: Any) -> Any:
        row = proposal["value"]
        if row is not None and row >= (rows := self.rows):
            raise traitlets.TraitError(f"selected must be None or a row from 0 to {rows - 1}, found {row}")
        return row

    @traitlets.validate("sort_by")
    def check_sort_by(self, proposal: Any) -> Any:
        if (name := proposal["value"]) not in self.columns:
            raise traitlets.TraitError(f"sort_by must be a column of the table, found {name!r}")
        return name

    @traitlets.validate("expanded")
    def check_expanded(self, proposal: Any) -> Any:
        nodes = proposal["value"]
        if nodes and max(nodes) >= (known := self.nodes):
            raise traitlets.TraitError(f"expanded must be nodes of the tree, below {known}, found {max(nodes)}")
        return nodes

    def _follow(self, change: Change) -> None:
        """Rows of a zoomed delegate stand before the instructions that were not compared, which move."""
        if change.added and self.selected is not None and self.selected >= change.first:
            self.selected += change.added
