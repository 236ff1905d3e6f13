"""Inspection: one executed program compared with its reference. The object that users hold."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

from etviz.errors import UsageError, during
from etviz.text import one_line
from etviz.view.plots import Plots
from etviz.view.widget.state import ViewState

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    import pandas as pd
    import torch
    from matplotlib.axes import Axes

    from etviz.analysis.analysis import Analysis
    from etviz.analysis.profile import ModuleTotal
    from etviz.analysis.summary import Summary
    from etviz.analysis.what_if import WhatIf
    from etviz.explain.attribution.shares import Loss
    from etviz.graph.delegation import Delegation
    from etviz.graph.tree import Tree
    from etviz.tensors.error_map import ErrorMap
    from etviz.tensors.histogram import Histogram
    from etviz.tensors.scatter import Scatter


class Inspection(ViewState):
    """One executed program, compared with its reference.

    Made by `etviz.debug` and `etviz.load`. As the last expression of a notebook cell it shows the widget. Its traits
    are shared with every view of it; observe and set them from Python.

    Attributes
    ----------
    analysis
        What was found, and what is computed from it; the methods below hand over to it.
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

    def __init__(self, analysis: Analysis) -> None:
        super().__init__(analysis)
        self._inside: dict[int, Inspection] = {}
        self._others: dict[str, Inspection] = {}
        self._read_method: Callable[[str], Inspection] | None = None

    @property
    def methods(self) -> list[str]:
        """Names of the program's methods, among which `method` and the view choose."""
        own = self.analysis.findings.method
        return list(self.analysis.findings.methods) if self._read_method is not None else [own]

    def method(self, name: str) -> Inspection:
        """Another method of the same files, with the inputs that these hold; read once.

        Parameters
        ----------
        name
            One of `methods`.

        Returns
        -------
        Inspection
            This one, for its own method. What was not executed has no gaps.

        Raises
        ------
        UsageError
            If there is no such method, or the Inspection was not made by `etviz.load` from an ETDump.
        """
        own = self.analysis.findings.method
        if name == own:
            return self
        if self._read_method is None or name not in self.methods:
            raise UsageError(f"method must be one of {', '.join(self.methods)}, found {name!r}")
        if name not in self._others:
            other = self._others[name] = self._read_method(name)
            other._others, other._read_method = self._others | {own: self}, self._read_method
        return self._others[name]

    def reads_methods(self, read: Callable[[str], Inspection]) -> None:
        """Say how another method of the same files is read."""
        self._read_method = read

    @property
    def gaps(self) -> pd.DataFrame:
        """A row for each compared value; see `etviz.metrics` for the metrics. A copy: change it freely.

        Values that a backend logged inside of its delegate are rows of the kind ``inner`` below those of the call, at
        its instruction. The index is what methods take as a row.
        """
        return self.analysis.gaps

    @property
    def coverage(self) -> pd.DataFrame:
        """Every instruction, with `status` (``compared``, ``grouped``, ``not compared``) and `reason`; a copy."""
        return self.analysis.tables.coverage.copy()

    @property
    def outputs(self) -> pd.DataFrame:
        """Each final output against the reference: all metrics, `close` (share within tolerance), `allclose`."""
        return self.analysis.tables.outputs.copy()

    @property
    def latency(self) -> Mapping[int, float]:
        """Mean latency by instruction, in milliseconds."""
        return self.analysis.latency

    @property
    def delegation(self) -> Delegation | None:
        """Delegated and non-delegated nodes, equal to upstream's `get_delegation_info`; None where not known."""
        return self.analysis.delegation

    def ledger(self, by: str = "latency_ms") -> pd.DataFrame:
        """What each delegate and each portable kernel takes, costs, and does to the numbers.

        Parameters
        ----------
        by
            The column to rank by: numbers largest first, ``instruction`` and texts in their order.

        Returns
        -------
        DataFrame
            A row for each instruction, those of branches included: ``instruction, name, kind, backend``;
            ``operators`` that it computes and ``operator_count``; ``module, source``; number of ``inputs`` (constants
            not counted) and ``outputs``, and the bytes that cross its boundary, ``bytes_in`` and ``bytes_out`` (NaN
            where a size is known at run time only); ``latency_ms``, the mean over the executions, and its share of all
            instructions; ``severity_in`` (worst total severity of its inputs, 0 for the program's own),
            ``introduced_severity`` and ``severity_out`` (worst of its outputs), over all executions; NaN where not
            known; ``refused``, why a partitioner left a portable operator out, where it says so and `etviz.debug`
            lowered the model; ``delegate_info``, what a backend told of its delegate, where the ETRecord keeps
            it. ``attrs["note"]`` is that of `events`.

        Raises
        ------
        UsageError
            If there is no such column.
        """
        return self.analysis.ledger(by)

    def memory(self) -> pd.DataFrame:
        """How much of the planned memory is in use along the program.

        Returns
        -------
        DataFrame
            A row for each instruction, in program order: ``instruction, name, kind, backend, module, source``;
            ``live_bytes``, of all values that are there while it runs (a dynamic shape counts with its upper bound,
            what lies in one place counts once); ``made_bytes``, of those that it makes; ``boundary_bytes``, what a
            delegate call is given and gives back, which its backend may have to copy. ``attrs["planned_bytes"]`` is
            what the plan needs at least. Weights, and what backends allocate themselves, are not in it.

        Raises
        ------
        UsageError
            If the program (``pte=``) was not given.
        """
        return self.analysis.memory()

    def format_delegated_graph(self) -> str:
        """The lowered program as text, delegates unfolded.

        It is what upstream's function of this name prints where `etviz.debug` lowered the model; in the same form, but
        with the node numbers of the emitted program, where the files hold only that.

        Raises
        ------
        UsageError
            If the files do not hold the program.
        """
        return self.analysis.listing

    @property
    def tree(self) -> Tree:
        """The delegated-graph tree in program order."""
        return self.analysis.tree

    @property
    def modules(self) -> Tree:
        """The tree by module hierarchy."""
        return self.analysis.modules

    @property
    def events(self) -> pd.DataFrame:
        """A row for each event that the runtime timed, over all executions; see `etviz.analysis.profile.events_frame`.

        Raises
        ------
        UsageError
            If the delegate_metadata_parser fails.
        """
        return self.analysis.events.copy()

    def module_total(self, name: str, by: str = "introduced_severity") -> ModuleTotal:
        """Time and worst gap of a module and its descendants, matched by path (``encoder.layers.0``).

        Raises
        ------
        UsageError
            If no operator comes from that module, or `by` is no column of `gaps`.
        """
        return self.analysis.module_total(name, by)

    @property
    def introduced(self) -> bool:
        """True once introduced gaps are computed."""
        return self.analysis.tables.introduced

    def compute_introduced(self) -> None:
        """Replay every instruction on the runtime's own inputs; only after ``load(..., introduced=False)``.

        Raises
        ------
        PairingError
            If the reference can't be computed.
        """
        self.analysis.compute_introduced()

    @property
    def first_divergence(self) -> pd.Series | None:
        """The gap row of the first instruction that adds more error than its precision explains.

        It is the first one in program order whose introduced severity is beyond its threshold, which creates or loses
        NaN or Inf, or which gives another shape or dtype. Of several executions, the one with the worst outputs
        counts. Where a zoom found the operator inside a delegate, it is that inner row. None if no operator is at
        fault, as far as introduced gaps are known.
        """
        return self.analysis.finder.first_divergence()

    @property
    def digest(self) -> Summary:
        """Verdict, facts and notes, as the header of the widget shows them."""
        return self.analysis.digest

    def summary(self) -> str:
        """Short text: verdict, coverage, delegation, worst operators, non-finite values."""
        return str(self.digest)

    def diagnosis(self, top: int = 5, *, look_inside: bool = True, timeout: float | None = None) -> dict[str, Any]:
        """What is wrong, where, why, and what to do next, as plain data: strict JSON for scripts and agents.

        It attributes the error of the worst output and, if the culprit is a delegate, looks inside of it; what can't
        be known is null, with the reason beside it.

        Parameters
        ----------
        top
            Number of suspects beside the culprit.
        look_inside
            Look inside of a delegate at fault, which runs it again in a child process.
        timeout
            Seconds for that, 600 if None.

        Returns
        -------
        dict
            ``format`` and ``version``, ``finding`` (the sentence), ``culprit``, ``suspects``, ``outputs``,
            ``attribution``, ``compared``, ``delegation``, ``next``, ``notes``;
            ``etviz/analysis/diagnosis.schema.json`` describes every field.

        Raises
        ------
        UsageError
            If `top` is no number of rows.
        """
        from etviz.analysis.diagnosis import diagnose

        return diagnose(self.analysis, top, look_inside=look_inside, timeout=timeout)

    def worst(self, n: int = 5, by: str = "introduced_severity") -> pd.DataFrame:
        """The rows to look at first.

        Parameters
        ----------
        n
            Number of rows.
        by
            A column of `gaps`. Metrics are ranked in the direction of their polarity, non-finite mismatches first.
            Where no introduced gap is known, its total gap stands in. Values that nobody reads (the mean and rstd of a
            layer norm) come after the others, and rows without a number last.

        Raises
        ------
        UsageError
            If there is no such column.
        """
        return self.analysis.worst(n, by)

    def tensors(self, row: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """``(reference, runtime)`` tensors of a gap row.

        Parameters
        ----------
        row
            Here and below: its index, or the row of `gaps` itself. Rows inside of delegates count on after those of
            instructions, in the order in which they were looked into.

        Raises
        ------
        UsageError
            If there is no such row, or it has no reference.
        """
        return self.analysis.values.tensors(row)

    def histogram(self, row: Any, bins: int = 64) -> Histogram:
        """Shared bin edges, counts of reference, runtime and error, and non-finite counts of a gap row.

        Where the row has no reference, only the runtime is counted.
        """
        return self.analysis.values.histogram(row, bins)

    def fingerprints(self, row: Any, *, force: bool = False) -> pd.DataFrame:
        """Likely classes of bug of a gap row: hypotheses with their evidence, best first.

        Tried are permuted layout, sign, dtype truncation, a shift by one, wrong zero-point, clipping, border pixels,
        a single bad channel, a scale factor, a constant offset, another bias, another epsilon and a constant output;
        and where what an operator introduced is most likely a fault, its other settings, computed on the runtime's own
        inputs.

        Parameters
        ----------
        row
            Index of the gap row, or the row.
        force
            Also look at a row whose error is ordinary rounding, or inherited from earlier instructions.

        Returns
        -------
        DataFrame
            ``name``; ``score`` from 0.6 to 1, the share of the squared error that the hypothesis explains less what
            chance would; ``evidence``, a sentence. Empty where nothing fits.

        Raises
        ------
        UsageError
            If there is no such row, or it has no reference.
        """
        return self.analysis.values.fingerprints(row, force=force)

    def channel_error(self, row: Any, axis: int = 1) -> pd.DataFrame:
        """The error of a gap row for each index of an axis.

        Parameters
        ----------
        row
            Index of the gap row, or the row.
        axis
            The axis, negative from the end. A single number has one axis.

        Returns
        -------
        DataFrame
            By index on the axis: ``rmse`` and ``max_abs`` in the tensor's units, ``share`` of Σd², ``count`` of pairs
            that are finite in both, ``nonfinite`` ones that were left out.

        Raises
        ------
        UsageError
            If there is no such row or axis, or the row has no reference.
        """
        return self.analysis.values.channel_error(row, axis)

    def error_map(
        self,
        row: Any,
        of: str = "error",
        axes: Sequence[int] | None = None,
        index: Sequence[int] | None = None,
        size: int = 256,
    ) -> ErrorMap:
        """A 2-D slice of a gap row's error, reference or runtime values; see `etviz.tensors.error_map.error_map`."""
        return self.analysis.values.error_map(row, of, axes, index, size)

    def scatter(self, row: Any, bins: int = 64) -> Scatter:
        """Reference against runtime values of a gap row as a density; see `etviz.tensors.scatter.scatter`."""
        return self.analysis.values.scatter(row, bins)

    @during("attributing the error")
    def attribution(self, output: int | None = None, loss: Loss | None = None, run: int | None = None) -> pd.DataFrame:
        """Which share of a final output's error each instruction caused.

        An instruction's share is the part of the error that would be gone, to first order, if it had computed exactly
        what its inputs give. Shares may be negative where errors cancel. The reference is evaluated in float64.

        Parameters
        ----------
        output
            Index of the final output, by default the one with the largest severity.
        loss
            A function of the list of final outputs that gives a scalar tensor; then its difference between runtime
            and reference is attributed, instead of an output's.
        run
            Number of the execution, by default the one that the verdict is about: the execution with the worst outputs.

        Returns
        -------
        DataFrame
            By index of the gap row, largest share first, whatever its sign: ``instruction, output, op, reference_ops,
            module, share, method, reason``. The method is ``gradient``; ``straight-through`` where the gradient passes
            a rounding; ``patch`` where the difference was put into the reference, which ran again; ``unknown`` (share
            NaN, see `reason`). ``attrs`` holds ``sum``, the check: about 1; ``output``, ``outputs``, ``run``, ``exact``
            (runtime and reference are the same: only their distance to float64 is attributed), ``error`` (norm of the
            output's error, or the loss's difference), ``methods`` and ``note``.

        Raises
        ------
        UsageError
            If the artifacts do not tell enough, or an argument makes no sense.
        PairingError
            If the reference can't be evaluated.
        """
        return self.analysis.attribution(output, run, loss=loss)

    def what_if(self, rows: Any) -> WhatIf:
        """What would become of the outputs if some values had been exact: the proof that they are at fault.

        In place of each such value stands what its operator gives on the runtime's inputs, and what depends on it is
        computed again, each other instruction with the error that it introduced at runtime. Nothing is linearized.

        Parameters
        ----------
        rows
            A row of `gaps`, by index or itself, or a list of them. A row inside a delegate stands for the delegate.

        Returns
        -------
        WhatIf
            `before` and `after`, in the columns of `outputs`, and the `outputs` themselves.

        Raises
        ------
        UsageError
            If there is no such row, or what comes after it can't be evaluated.
        PairingError
            If the reference can't be evaluated.
        """
        return self.analysis.what_if(rows)

    def quantization(self) -> pd.DataFrame:
        """The error of quantization and the error of the backend, for each operator of a quantized model.

        Float eager, quantized eager and runtime are three values of one operator. They are taken where the next
        operators read them: on the quantization grid where the operator's output is put on one. Operators inside of a
        delegate have a runtime value once it was zoomed into, if that zoom is faithful.

        Returns
        -------
        DataFrame
            A row for each operator of the float model, in program order, and execution: ``row`` and ``instruction``
            (-1 where no value of the runtime is known; rows of zoomed delegates count on after those of `gaps`, as in
            the widget and for `tensors`), ``op`` (its name in the exported float model), ``module``;
            ``quantization_*`` (float against quantized eager), ``backend_*`` (quantized eager against runtime),
            ``total_*`` (float against runtime), each as ``rmse`` and ``sqnr_db``; ``scale, zero_point, qmin, qmax`` of
            its grid; ``error_steps`` (quantization RMSE / scale; ideal rounding alone gives 1/√12 = 0.289);
            ``saturated``, the share of values at qmin or qmax whose float value lies beyond by more than half a step;
            ``weight`` (how its weight is quantized), ``weight_rmse``, ``weight_sqnr_db``; ``status``, ``reason``.

        Raises
        ------
        UsageError
            If the float model is not known, or nothing was compared.
        PairingError
            If one of the two models can't be evaluated.
        """
        return self.analysis.quantization.frame()

    def ladder(self, *, run: int = 0) -> pd.DataFrame:
        """At which stage between the model and its run each operator's value becomes another.

        The stages are those that are known: ``float`` (the model before quantization, see `debug`), ``exported`` (or
        ``quantized``), ``edge`` and whatever else the ETRecord keeps, ``lowered`` (the reference of `gaps`) and
        ``runtime``; each is evaluated on the same inputs, and compared with the one before it that has the value.
        Values are taken where the next operators read them, after a quantization.

        Parameters
        ----------
        run
            Number of the execution.

        Returns
        -------
        DataFrame
            A row for each step of each operator of the exported program and of each final output: ``operator`` (empty
            for final outputs), ``output``, ``module``, ``stage``, ``against`` (the stage before), ``rmse``,
            ``max_abs``, ``sqnr_db``, ``noise`` (RMS error that other roundings give at this stage, in the tensor's
            units; that of ideal rounding where the stage puts the value on a quantization grid), ``severity`` (RMSE
            over that; NaN where a quantization changes a value that it does not put on a grid), ``status`` and
            ``reason``. The status is ``same`` (every element is equal), ``rounding``, ``quantization`` (more than one
            rounding to the grid, from float to quantized), ``differs`` (beyond its noise) or ``no partner`` (reason
            says why).

        Raises
        ------
        UsageError
            If nothing was compared, or there is no such execution.
        """
        return self.analysis.ladder(run)

    def against(self, reference: str | Mapping[str, Callable[..., Any]]) -> Inspection:
        """The same run against another reference.

        Parameters
        ----------
        reference
            A form of the program: ``float`` (the model before quantization), ``exported`` (or
            ``exported_program``), ``edge`` (or ``edge_dialect_exported_program``), ``lowered``, or any member of the
            ETRecord's graph_map (``edge_after_transform/forward``). Or functions by operator
            (``{"aten.gelu.default": my_gelu}``), which take what the operator takes, and stand for it in the lowered
            program, inside of delegates too.

        Returns
        -------
        Inspection
            With total gaps and final outputs against that reference. A form of the program is joined by the operators
            of the exported program, each value where the next operators read it, and quantized values as real
            numbers; what an instruction introduced stays as it is. A row whose operator the reference does not have
            has no number; its `reason` says ``no partner``, and why.

        Raises
        ------
        UsageError
            If there is no such form or operator, or it can't be evaluated.
        """
        return type(self)(self.analysis.against(reference))

    def zoom(
        self, row: Any, *, timeout: float | None = None, preprocessing: Callable[[int | str, Any], Any] | None = None
    ) -> Inspection:
        """Look inside the delegate call of a gap row.

        Where the backend logged values inside of its delegate (and the ETRecord has its delegate map), these are
        shown, as they were in the run itself. Else what the delegate executed is run again in a child process, with
        its inner values as outputs, on the inputs that the runtime gave it: what the `.pte` holds of XNNPACK, and else
        its subgraph, lowered again to the same backend. The reference of every inner operator is the subgraph
        evaluated eagerly on the same inputs.

        Parameters
        ----------
        row
            A row of `gaps` of kind ``delegate``, by index or itself.
        timeout
            Seconds for lowering and running it, 600 if None.
        preprocessing
            Takes the backend's identifier of a value that it logged and the tensor, and returns the tensor as the
            operator gives it: without the backend's layout or quantization.

        Returns
        -------
        Inspection
            Of the inner operators (kind ``inner``). Its `faithful` says whether the outputs are still those of the run,
            bit for bit, and `deviation` by how much not. What exists only as part of another operator (inside of a
            quantized operator, a convolution before its batch norm) has no row; its `coverage` says so. The same
            Inspection is given back when the delegate is zoomed into again.

        Raises
        ------
        UsageError
            If the row is not of a delegate, or too little is known of it.
        BackendRefusedError
            If the backend can't lower or run it here.
        ExecutionError
            If the child process crashes or takes too long.
        """
        inner = self.analysis.zoom(row, timeout, preprocessing=preprocessing)
        return self._inside.setdefault(id(inner), type(self)(inner))

    def look_inside(self) -> list[Inspection]:
        """Look inside of the delegates that matter, and wait for it.

        They are those that hold more than a third of the program's operators, and those whose own error is more than
        their precision explains. `etviz.debug` and `etviz.load` begin with them in the background
        (`etviz.options.look_inside`); delegates with more than 512 MB of weights wait until they are asked for here.
        Where no operator inside introduces more than its noise, the delegate's error is the accumulated rounding of
        its operators: its row says so, its `introduced_noise` is that error, and it is no first divergence.

        Returns
        -------
        list of Inspection
            As `zoom` gives them, in the order of the rows; without those that the backend refuses.

        Raises
        ------
        ExecutionError
            If none of them could be looked into.
        """
        return [self._inside.setdefault(id(inner), type(self)(inner)) for inner in self.analysis.insides.wait()]

    @property
    def faithful(self) -> bool | None:
        """Of a zoomed delegate: True if its outputs are those of the run that it explains, bit for bit.

        None where that is not known, and for an Inspection of a whole program.
        """
        zoom = self.analysis.findings.zoom
        return zoom.faithful if zoom is not None else None

    @property
    def deviation(self) -> float:
        """Of a zoomed delegate: largest absolute difference of its outputs to the run's, NaN where not known."""
        zoom = self.analysis.findings.zoom
        return zoom.deviation if zoom is not None else math.nan

    @property
    def fidelity(self) -> str:
        """`faithful` and `deviation` of a zoomed delegate in words, empty for an Inspection of a whole program."""
        zoom = self.analysis.findings.zoom
        return zoom.message if zoom is not None else ""

    def repro(self, row: Any, path: str | os.PathLike[str], *, timeout: float | None = None) -> Path:
        """Write a folder that shows the introduced gap of one row without etviz: what one attaches to a bug report.

        It holds the operator or delegate alone as ``model.pte``, what the runtime had as its inputs, the expected
        outputs (eager, on these inputs), the outputs of the run, and ``repro.py``, which runs the program and prints
        the gap.

        Parameters
        ----------
        row
            A row of `gaps`.
        path
            The folder; it appears under this name when it is whole. An earlier repro there is replaced.
        timeout
            Seconds for lowering and running, 600 if None.

        Returns
        -------
        Path
            The folder.

        Raises
        ------
        UsageError
            If `path` is something else than a free name or an earlier repro, or too little is known of the row.
        BackendRefusedError
            If the piece can't be lowered or run by itself.
        ExecutionError
            If the child process crashes or takes too long.
        """
        return self.analysis.repro(row, path, timeout)

    @property
    def plot(self) -> Plots:
        """Matplotlib figures: ``plot.gaps()``, ``plot.histogram(row)``, ``plot.error_map(row)`` and more."""
        return Plots(self.analysis)

    def plot_gaps(self, ax: Axes | None = None) -> Axes:
        """As `plot.gaps`; so are the next ones the methods of `plot` without the prefix."""
        return self.plot.gaps(ax)

    def plot_histogram(self, row: Any, bins: int = 64, ax: Axes | None = None) -> Axes:
        """As `plot.histogram`."""
        return self.plot.histogram(row, bins, ax)

    def plot_error_map(
        self,
        row: Any,
        of: str = "error",
        axes: Sequence[int] | None = None,
        index: Sequence[int] | None = None,
        ax: Axes | None = None,
    ) -> Axes:
        """As `plot.error_map`."""
        return self.plot.error_map(row, of, axes, index, ax)

    def plot_channels(self, row: Any, axis: int = 1, ax: Axes | None = None) -> Axes:
        """As `plot.channels`."""
        return self.plot.channels(row, axis, ax)

    def plot_scatter(self, row: Any, bins: int = 128, ax: Axes | None = None) -> Axes:
        """As `plot.scatter`."""
        return self.plot.scatter(row, bins, ax)

    def widget(self, **options: Any) -> Any:
        """The widget; `options` set its traits (``height=800``)."""
        from etviz.view.widget.widget import InspectionWidget

        return InspectionWidget(self, **options)

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
        from etviz.view.widget.widget import show

        show(self, sidebar)

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        from etviz.view.widget.widget import mimebundle

        return mimebundle(self, **kwargs)

    def __repr__(self) -> str:
        return f"<Inspection of {one_line(self.title)}>\n{self.summary()}"

    def to_html(self, path: str | os.PathLike[str], tensors: str = "histograms", title: str | None = None) -> Path:
        """Write a report: one HTML file with the linked view, which needs no kernel and no network.

        Parameters
        ----------
        path
            The file; it appears under this name when it is whole.
        tensors
            ``none``: no tensors, the smallest file. ``histograms``: histograms and statistics of every row.
            ``worst``: these, and the elements with the largest error of the 50 worst rows.
        title
            Heading of the report, by default the Inspection's title.

        It also holds the other methods that were looked at (`method`).

        Returns
        -------
        Path
            The file.

        Raises
        ------
        UsageError
            If there is no such `tensors`.
        ArtifactError
            If the file can't be written, or the front end was not built.
        """
        from etviz.view.pages.report import write_report

        others = [other.analysis for other in self._others.values()]
        return write_report(self.analysis, path, tensors, title, others)

    def to_chrome_trace(self, path: str | os.PathLike[str]) -> Path:
        """Write what the runtime timed as a Chrome trace, for Perfetto and chrome://tracing.

        The framework, the portable kernels and each backend have tracks of their own; so have the operators that a
        backend timed inside of its calls. Each call carries its operator, source, module and shape, and the metrics of
        its worst output. Executions follow each other; all times are in µs, as `events` has them in ms.

        Parameters
        ----------
        path
            The file (``trace.json``); it appears under this name when it is whole.

        Returns
        -------
        Path
            The file.

        Raises
        ------
        UsageError
            If the runtime timed nothing.
        ArtifactError
            If the file can't be written.
        """
        from etviz.view.export.chrome_trace import write_chrome_trace

        return write_chrome_trace(self.analysis, path)

    def to_model_explorer(self, path: str | os.PathLike[str]) -> list[Path]:
        """Write the program for Google's Model Explorer, and node data that colours it by error.

        Every instruction and every operator inside a delegate is a node; layers are the modules of the model, and in
        them the delegates. Open them with ``model-explorer model.json --node_data_paths=model.severity.json``.

        Parameters
        ----------
        path
            The graph's file (``model.json``). Beside it come ``model.severity.json`` and, where introduced gaps are
            known, ``model.introduced_severity.json``. They appear when all of them are whole.

        Returns
        -------
        list of Path
            The files, the graph first.

        Raises
        ------
        UsageError
            If the artifacts do not hold the program.
        ArtifactError
            If a file can't be written.
        """
        from etviz.view.export.model_explorer import write_model_explorer

        return write_model_explorer(self.analysis, path)
