"""Inspection: one executed program compared with its reference. The object that users hold."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import pandas as pd
import traitlets

from etviz.artifacts.ir import Graph
from etviz.collection import collection_paused
from etviz.errors import UsageError
from etviz.explanations import Explanations
from etviz.graph.delegation import Delegation
from etviz.graph.tree import Tree, module_tree, program_tree
from etviz.measurements import Measurements
from etviz.numerics.comparison import Comparison, Gap
from etviz.numerics.frame import coverage_frame, gap_frame, rank
from etviz.numerics.outputs import compare_outputs
from etviz.sharing import Sharing
from etviz.summary import Summary, summarize
from etviz.zooming import Zooming

if TYPE_CHECKING:
    import torch

    from etviz.numerics.histogram import Histogram
    from etviz.numerics.recall import Recall
    from etviz.numerics.replay import Replay
    from etviz.numerics.zoom import Zoom
    from etviz.profile import Profile


@dataclass(slots=True)
class Findings:
    """What loading and comparing gave; an Inspection shows it.

    Attributes
    ----------
    title
        Name for people.
    method
        Name of the compared method.
    graphs
        The graphs that are known, by method.
    runs
        ``(event block, input index, comparison)`` of each execution.
    latency
        Milliseconds by instruction.
    profile
        The events that the runtime timed, None where nothing was read.
    delegation
        Counts, None where the program is not known.
    listing
        The lowered program as text, as upstream prints it; empty where it was not kept.
    notes
        What could not be shown, and why.
    replay
        What ran, on what; None where there is no reference.
    complete
        Adds introduced gaps to `runs`; None where they are there, or can't be.
    files
        The artifacts, by kind.
    zoom
        What was looked into; None for a whole program.
    """

    title: str
    method: str
    graphs: Mapping[str, Graph]
    runs: list[tuple[int, int, Comparison]] = field(default_factory=list)
    latency: Mapping[int, float] = field(default_factory=dict)
    profile: Profile | None = None
    delegation: Delegation | None = None
    listing: str = ""
    notes: list[str] = field(default_factory=list)
    replay: Replay | None = None
    complete: Callable[[Findings], None] | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    zoom: Zoom | None = None
    keep_alive: Any = None


class Inspection(Explanations, Measurements, Zooming, Sharing, traitlets.HasTraits):
    """One executed program, compared with its reference.

    Made by `etviz.debug` and `etviz.load`. As the last expression of a notebook cell it shows the widget. The traits
    below are shared with every widget of this Inspection; observe and set them from Python.

    Attributes
    ----------
    selected
        Index of the selected gap row, or None.
    sort_by, descending
        The column that the table is sorted by, and its direction.
    filter
        The table's text filter.
    expanded
        Nodes of the tree that are unfolded (preorder indices).
    height
        Height of the widget in pixels.
    """

    selected = traitlets.Int(None, allow_none=True)
    sort_by = traitlets.Unicode("severity")
    descending = traitlets.Bool(True)
    filter = traitlets.Unicode("")
    expanded = traitlets.List(traitlets.Int())
    height = traitlets.Int(620, min=200, max=4000)

    def __init__(self, findings: Findings) -> None:
        super().__init__()
        self._findings = findings
        self._graph = findings.graphs.get(findings.method, Graph(findings.method))

    @cached_property
    def _table(self) -> tuple[pd.DataFrame, list[Gap]]:
        with collection_paused():
            return gap_frame(self._graph, self._findings.runs, self._findings.latency)

    @cached_property
    def _recall(self) -> Recall | None:
        """Gives back reference tensors that the comparison did not keep."""
        from etviz.numerics.recall import Recall

        return Recall(self._findings.replay) if self._findings.replay is not None else None

    @property
    def title(self) -> str:
        """Name for people: the model's file and method."""
        return self._findings.title

    @property
    def gaps(self) -> pd.DataFrame:
        """A row for each compared value; see `etviz.metrics` for the metrics. A copy: change it freely."""
        return self._table[0].drop(columns="stack")

    @property
    def stacks(self) -> pd.Series:
        """Stack trace of each gap row."""
        return self._table[0]["stack"]

    @cached_property
    def coverage(self) -> pd.DataFrame:
        """Every instruction, with `status` (``compared``, ``grouped``, ``not compared``) and `reason`."""
        return coverage_frame(self._graph, self._findings.runs)

    @cached_property
    def outputs(self) -> pd.DataFrame:
        """Each final output against the reference: all metrics, `close` (share within tolerance), `allclose`."""
        rows: list[dict[str, Any]] = []
        for block, index, run in self._findings.runs:
            compared = compare_outputs(run.reference_outputs, run.runtime_outputs, run.output_scales)
            rows.extend({"event_block": block, "input_index": index} | row for row in compared)
        return pd.DataFrame(rows)

    @property
    def latency(self) -> Mapping[int, float]:
        """Mean latency by instruction, in milliseconds."""
        return self._findings.latency

    @property
    def delegation(self) -> Delegation | None:
        """Delegated and non-delegated nodes, equal to upstream's `get_delegation_info`; None where not known."""
        return self._findings.delegation

    @cached_property
    def tree(self) -> Tree:
        """The delegated-graph tree in program order."""
        return program_tree({self._findings.method: self._graph}, self._findings.latency)

    @cached_property
    def modules(self) -> Tree:
        """The tree by module hierarchy."""
        return module_tree({self._findings.method: self._graph}, self._findings.latency)

    @property
    def introduced(self) -> bool:
        """True once introduced gaps are computed."""
        return any(gap.introduced is not None for gap in self._table[1])

    def compute_introduced(self) -> None:
        """Replay every instruction on the runtime's own inputs; only after ``load(..., introduced=False)``.

        Raises
        ------
        PairingError
            If the reference can't be computed.
        """
        if self._findings.complete is None:
            return
        self._findings.complete(self._findings)
        for name in ("_table", "_recall", "coverage", "outputs", "digest", "_on_grid"):
            vars(self).pop(name, None)

    @cached_property
    def digest(self) -> Summary:
        """Verdict, facts and notes, as the header of the widget shows them."""
        notes = list(self._findings.notes)
        return summarize(self._table[0], self.coverage, self.outputs, self.delegation, notes, self._on_grid)

    def summary(self) -> str:
        """Short text: verdict, coverage, delegation, worst operators, non-finite values."""
        return str(self.digest)

    def worst(self, n: int = 5, by: str = "introduced_severity") -> pd.DataFrame:
        """The rows to look at first.

        Parameters
        ----------
        n
            Number of rows.
        by
            A column of `gaps`. Metrics are ranked in the direction of their polarity, non-finite mismatches first.
            Where no introduced gap is known, its total gap stands in; rows without a number come last.

        Raises
        ------
        UsageError
            If there is no such column.
        """
        frame = self.gaps
        if by not in frame:
            raise UsageError(f"by must be a column of gaps, found {by!r}; metrics are {', '.join(_metrics(frame))}")
        if by.startswith("introduced_") and frame[by].isna().all():
            by = by.removeprefix("introduced_")
        return rank(frame, by).head(n)

    def tensors(self, row: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """``(reference, runtime)`` tensors of a gap row, by its index or the row itself.

        Raises
        ------
        UsageError
            If there is no such row.
        """
        reference, runtime = self.values(row)
        if reference is None:
            raise UsageError(f"row {row} has no reference tensor: {self.reference_missing(row)}")
        return reference, runtime

    def values(self, row: Any) -> tuple[torch.Tensor | None, torch.Tensor]:
        """As `tensors`, with None for a reference that is missing."""
        owner, index = self.located(row)
        if owner is not self:
            return owner.values(index)
        gap = self._gap(row)
        reference = gap.reference
        if reference is None and self._recall is not None and not gap.unpaired:
            reference = self._recall.reference(gap)
        return reference, gap.runtime

    def reference_missing(self, row: Any) -> str | None:
        """Why a gap row has no reference tensor, None if it has one.

        Raises
        ------
        UsageError
            If there is no such row.
        """
        if self.values(row)[0] is not None:
            return None
        return self._gap(row).unpaired or "it could not be computed again"

    def _gap(self, row: Any) -> Gap:
        owner, row = self.located(row)
        if owner is not self:
            return owner._gap(row)
        index = getattr(row, "name", row)
        gaps = self._table[1]
        if not hasattr(index, "__index__") or not 0 <= int(index) < len(gaps):
            raise UsageError(f"row must be an index of gaps from 0 to {len(gaps) - 1}, found {index!r}")
        return gaps[int(index)]

    def histogram(self, row: Any, bins: int = 64) -> Histogram:
        """Shared bin edges, counts of reference, runtime and error, and non-finite counts of a gap row.

        Where the row has no reference (`reference_missing`), only the runtime is counted.
        """
        from etviz.numerics.histogram import histogram

        return histogram(*self.values(row), bins)

    def widget(self, **options: Any) -> Any:
        """The widget; `options` set its traits (``height=800``)."""
        return _view("widget").InspectionWidget(self, **options)

    def show(self, sidebar: bool | Literal["left", "right"] = False) -> None:
        """Display the widget.

        Parameters
        ----------
        sidebar
            Show it in a side panel of JupyterLab, ``"left"`` or ``"right"``; True for where the panel of this title
            was, else the right one. The panel of this title is replaced. Where there is no side panel the cell is
            used, with a hint.

        Raises
        ------
        UsageError
            If `sidebar` is none of these.
        """
        _view("widget").show(self, sidebar)

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        return _view("widget").mimebundle(self, **kwargs)

    def __repr__(self) -> str:
        return f"<Inspection of {self.title}>\n{self.summary()}"


def _metrics(frame: pd.DataFrame) -> Sequence[str]:
    from etviz.numerics.metrics import METRICS

    return [name for name in METRICS if name in frame]


def _view(name: str) -> Any:
    """A module of `etviz.view`, looked up only when something is shown: views know Inspections, not the reverse."""
    return importlib.import_module(f"etviz.view.{name}")
