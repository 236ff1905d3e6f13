"""One executed program compared with its reference: the object that users hold."""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etviz.analysis.analysis import Analysis
from etviz.analysis.profile import ModuleTotal
from etviz.analysis.rows import Located
from etviz.analysis.what_if import WhatIf
from etviz.artifacts.files import make_folder, path_of
from etviz.errors import during
from etviz.graph.delegation import Delegation
from etviz.graph.tree import Tree
from etviz.tensors.error_map import ErrorMap
from etviz.tensors.histogram import Histogram
from etviz.tensors.metrics import figure
from etviz.tensors.scatter import Scatter
from etviz.text import one_line
from etviz.view.plots import Plots, save
from etviz.view.widget.shown import Shown
from etviz.view.widget.state import ViewState

if TYPE_CHECKING:
    import pandas as pd
    import torch
    from torch.export import ExportedProgram

    from etviz.explain.attribution.shares import Loss


class Inspection(Shown):
    """One executed program, compared with its reference, made by `etviz.debug` and `etviz.load`.

    As the last expression of a notebook cell it shows the widget.

    Every method that takes a `row` accepts its name (``"#22"``, ``"#22[1]"`` for the second output, ``"#22.3"`` for
    operator 3 inside the delegate call 22), the path of a module that one row comes from, its index in `gaps`, and a
    row of `gaps`; for others it raises `UsageError`. Tables and figures are copies.

    Attributes
    ----------
    analysis
        The results and everything computed from them.
    view
        State that all views share.
    """

    analysis: Analysis

    def __init__(self, analysis: Analysis, view: ViewState | None = None) -> None:
        super().__init__(view or ViewState(analysis))
        self.analysis = analysis
        self._inside: dict[tuple[int, int], Inside] = {}

    @property
    def methods(self) -> list[str]:
        """Names for `method`."""
        return self.view.methods

    def method(self, name: str) -> Inspection:
        """Another of the `methods` of the same files. If it was not executed, it has no gaps.

        Raises `UsageError` if it does not exist, or the Inspection was not made by `etviz.load` from an ETDump.
        """
        view = self.view.state_of(name)
        known = view.shown() if view.shown is not None else None
        return known if isinstance(known, Inspection) else Inspection(view.analysis, view)

    @property
    def gaps(self) -> pd.DataFrame:
        """A row for each compared value, with the metrics of `etviz.metrics`.

        ``name`` is the row's name in every view. Values that a backend logged inside its delegate are rows of the kind
        ``inner`` below the call's rows.
        """
        return self.analysis.gaps

    @property
    def coverage(self) -> pd.DataFrame:
        """Every instruction, with `status` (``compared``, ``grouped``, ``not compared``) and `reason`."""
        return self.analysis.tables.coverage.copy()

    @property
    def outputs(self) -> pd.DataFrame:
        """Each final output against the reference: all metrics, `close` (share within tolerance), `allclose`."""
        return self.analysis.tables.outputs.copy()

    @property
    def run_outputs(self) -> list[list[Any]]:
        """What each execution returned, as it was logged; also without a reference."""
        return [copy.deepcopy(list(run.comparison.runtime_outputs)) for run in self.analysis.tables.compared.runs]

    @during("finding a row")
    def row(self, row: Any) -> Row:
        """One row: its tensors, histogram, error map, zoom, what-if and repro."""
        return Row(self, self.analysis.rows.find(row).number)

    @property
    def delegation(self) -> Delegation | None:
        """Delegated and non-delegated nodes, equal to upstream's `get_delegation_info`; None where not known."""
        return copy.deepcopy(self.analysis.delegation)

    def format_delegated_graph(self) -> str:
        """The lowered program as text, delegates unfolded.

        It is upstream's text, but for several partitioners of one backend. Without an ETRecord, `etviz.record` has the
        names of the emitted program only. Raises `UsageError` if the files do not hold the program.
        """
        return self.analysis.listing

    @property
    def tree(self) -> Tree:
        """The delegated-graph tree in program order."""
        return copy.deepcopy(self.analysis.tree)

    @property
    def time(self) -> Time:
        """Times: ``time.events``, ``time.latency``, ``time.ledger()``."""
        return Time(self.analysis)

    @property
    def events(self) -> pd.DataFrame:
        """A row for each event that the runtime timed, over all executions; see `etviz.analysis.profile.events_frame`.

        Raises `UsageError` if the delegate_metadata_parser fails.
        """
        return self.time.events

    def module_total(self, name: str, by: str = "introduced_severity") -> ModuleTotal:
        """Time and worst gap of a module and its descendants, matched by path (``encoder.layers.0``).

        Raises `UsageError` if no operator comes from that module, or `by` is no column of `gaps`.
        """
        return self.analysis.module_total(name, by)

    @property
    def introduced(self) -> bool:
        """True once introduced gaps are computed."""
        return self.analysis.tables.introduced

    def compute_introduced(self) -> None:
        """Replay every instruction on the runtime's own inputs; only after ``load(..., introduced=False)``.

        Raises `PairingError` if the reference can't be computed.
        """
        self.analysis.compute_introduced()

    @property
    def first_divergence(self) -> pd.Series | None:
        """The gap row of the first instruction that adds more error than its precision explains, or None.

        Its introduced severity is beyond its threshold, or it creates or loses NaN or Inf, or gives another shape or
        dtype. Of calls that follow one another, it is in the first call with a fault; of other executions, in the one
        with the worst outputs. Where a zoom found the operator inside a delegate, it is that inner row.
        """
        return self.analysis.finder.first_divergence()

    def summary(self) -> str:
        """Short text: verdict, coverage, delegation, worst operators, non-finite values."""
        return str(self.analysis.digest)

    def diagnosis(self, top: int = 5, *, look_inside: bool = True, timeout: float | None = None) -> dict[str, Any]:
        """The fault, its place, its cause and the next step as plain data: strict JSON for scripts and agents.

        It attributes the error of the worst output. Unknown values are null, with the reason beside them.

        Parameters
        ----------
        top
            Number of suspects beside the culprit; `UsageError` for no number of rows.
        look_inside
            Zoom into a delegate at fault, which runs it again in a child process.
        timeout
            Seconds for the zoom, 600 if None.

        Returns
        -------
        dict
            ``format, version, finding`` (the sentence), ``culprit, suspects, outputs, attribution, compared,
            delegation, next, notes``; ``etviz/schemas/diagnosis.schema.json`` describes every field.
        """
        from etviz.analysis.diagnosis import diagnose

        return diagnose(self.analysis, top, look_inside=look_inside, timeout=timeout)

    def worst(self, n: int = 5, by: str = "introduced_severity") -> pd.DataFrame:
        """The `n` rows to look at first; `UsageError` if the column `by` does not exist, or `n` is negative.

        Metrics are ranked by their polarity, non-finite mismatches first; the total gap replaces an unknown introduced
        one. Values that no operator reads (the mean and rstd of a layer norm) come after the others, rows without a
        number last.
        """
        return self.analysis.worst(n, by)

    def tensors(self, row: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """``(reference, runtime)`` tensors of a row; of a final output, given its row of `outputs`.

        Raises `UsageError` if the row has no reference.
        """
        reference, runtime = self.analysis.values.tensors(row)
        return reference.clone(), runtime.clone()

    @during("attributing the error")
    def attribution(self, output: int | None = None, loss: Loss | None = None, run: int | None = None) -> pd.DataFrame:
        """Share of a final output's error that each instruction caused.

        A share is the part of the error that would be gone, to first order, if the instruction had computed its inputs
        exactly. It may be negative where errors cancel. The reference is evaluated in float64. Where buffers carry an
        error over from earlier executions, the rows that caused it follow.

        Parameters
        ----------
        output
            Index of the final output, by default the one with the largest severity.
        loss
            A function of the list of final outputs that returns a scalar tensor; its difference between runtime and
            reference is attributed instead.
        run
            Number of the execution, by default the one with the worst outputs.

        Returns
        -------
        DataFrame
            By index of the gap row, largest absolute share first: ``name, share, severity, introduced_severity,
            rmse, source, instruction, output, op, reference_ops, module, run, method, reason``. The method is
            ``gradient``; ``straight-through`` where the gradient passes a rounding; ``patch`` where the difference
            was put into the reference, which ran again; ``unknown`` (share NaN). ``attrs`` holds ``sum``, the
            check: about 1; ``output``, ``outputs``, ``run``, ``exact`` (runtime and reference are the same: only
            their distance to float64 is attributed), ``error`` (norm of the output's error, or the loss's
            difference), ``methods`` and ``note``.

        Raises
        ------
        UsageError
            If the artifacts are not sufficient, or an argument makes no sense.
        PairingError
            If the reference can't be evaluated.
        """
        return self.analysis.attribution(output, run, loss=loss)

    def what_if(self, rows: Any) -> WhatIf:
        """The outputs if the values of a row, or of a list of rows, had been exact: the proof that they are at fault.

        Each value is replaced by its operator's exact result on the runtime's inputs, and all dependent values are
        computed again, each with the error that its instruction introduced at runtime. Nothing is linearized. The value
        of an operator inside a zoomed delegate changes the delegate's outputs. Raises `UsageError` if a dependent value
        can't be evaluated, `PairingError` if the reference can't.
        """
        return self.analysis.what_if(rows)

    def quantization(self) -> pd.DataFrame:
        """The error of quantization and the error of the backend, for each operator of a quantized model.

        Values of an operator are taken where the next operators read them: on the quantization grid where its output is
        put on one. Operators inside a delegate have a runtime value after a faithful zoom into it.

        Returns
        -------
        DataFrame
            A row for each operator of the float model, in program order, and execution: ``row`` and ``instruction``
            (-1 without a known runtime value), ``op`` (its name in the exported float model), ``module``;
            ``quantization_*`` (float against quantized eager), ``backend_*`` (quantized eager against runtime),
            ``total_*`` (float against runtime), each as ``rmse`` and ``sqnr_db``; ``scale, zero_point, qmin, qmax`` of
            its grid; ``error_steps`` (quantization RMSE / scale; ideal rounding alone gives 1/√12 = 0.289);
            ``saturated``, the share of values at qmin or qmax whose float value is beyond by more than half a step;
            ``weight`` (how its weight is quantized), ``weight_rmse``, ``weight_sqnr_db``; ``status``, ``reason``.

        Raises
        ------
        UsageError
            If the float model is not known, or nothing was compared.
        PairingError
            If one of the two models can't be evaluated.
        """
        return self.analysis.quantization.frame().copy()

    def ladder(self, *, run: int = 0) -> pd.DataFrame:
        """The stage between the model and its run at which each operator's value changes.

        The known stages of ``float`` (the model before quantization), ``exported`` (or ``quantized``), ``edge`` and any
        other that the ETRecord keeps, ``lowered`` (the reference of `gaps`) and ``runtime`` are evaluated on the inputs
        of execution `run`, each compared with the nearest earlier stage that has the value. Values are taken where the
        next operators read them, after a quantization.

        Returns
        -------
        DataFrame
            A row for each step of each operator of the exported program and of each final output: ``operator`` (empty
            for final outputs), ``output``, ``module``, ``stage``, ``against`` (the stage before), ``rmse``,
            ``max_abs``, ``sqnr_db``, ``noise`` (RMS error that other roundings give at this stage, in the tensor's
            units; that of ideal rounding where the stage puts the value on a quantization grid), ``severity`` (RMSE
            over noise; NaN where a quantization changes a value that it does not put on a grid), ``status`` and
            ``reason``. The status is ``same`` (every element is equal), ``rounding``, ``quantization`` (more than one
            rounding to the grid, from float to quantized), ``differs`` (beyond its noise) or ``no partner``.

        Raises
        ------
        UsageError
            If nothing was compared, or the execution does not exist.
        """
        return self.analysis.ladder(run)

    def against(self, reference: Any) -> Inspection:
        """The same run against another reference, with total gaps and final outputs; introduced errors stay.

        Another run of the program needs no ETRecord: an ETDump and its debug buffer are enough.

        Parameters
        ----------
        reference
            A form of the program: ``float`` (the model before quantization), ``exported`` (or
            ``exported_program``), ``edge`` (or ``edge_dialect_exported_program``), ``lowered``, or any member of
            the ETRecord's graph_map (``edge_after_transform/forward``). It is joined by the operators of the
            exported program, each value where the next operators read it, and quantized values as real numbers. The
            `reason` of a row without a partner begins with ``no partner``. Or functions by operator
            (``{"aten.gelu.default": my_gelu}``), which take the operator's arguments and replace it in the lowered
            program, inside delegates too. Or another Inspection of the program, on the same inputs, or the number of
            an execution of this one: values are compared with what that run logged.

        Raises
        ------
        UsageError
            If the form, operator or execution does not exist, or it can't be evaluated.
        """
        return Inspection(self.analysis.against(reference.analysis if isinstance(reference, Inspection) else reference))

    def zoom(
        self, row: Any, *, timeout: float | None = None, preprocessing: Callable[[int | str, Any], Any] | None = None
    ) -> Inside:
        """Zoom into the delegate call of a row.

        Values that the backend logged (with the delegate map in the ETRecord) are shown as in the run. Otherwise the
        delegate runs again in a child process, with inner values as outputs, on the runtime's inputs: the `.pte`'s own
        payload for XNNPACK, the subgraph, lowered again, for other backends. The reference of every inner operator is
        the subgraph evaluated eagerly on these inputs.

        Parameters
        ----------
        timeout
            Seconds for lowering and running it, 600 if None.
        preprocessing
            Takes the backend's identifier of a logged value and the tensor, and returns the tensor as the operator's
            result: without the backend's layout or quantization.

        Returns
        -------
        Inside
            An Inspection of the inner operators (kind ``inner``). Values that exist only as part of another operator
            (inside a quantized operator, a convolution before its batch norm) have no row; `coverage` gives the reason.
            The next zoom into the same delegate returns the same object.

        Raises
        ------
        UsageError
            If the row is not of a delegate, or too little is known of it.
        BackendRefusedError
            If the backend can't lower or run it here.
        ExecutionError
            If the child process crashes or takes too long.
        """
        return self._shown_inside(self.analysis.zoom(row, timeout, preprocessing=preprocessing))

    def look_inside(self) -> list[Inside]:
        """Zoom into the delegates that matter, in the order of the rows; skip refused ones.

        These are delegates with more than a third of the program's operators, and delegates whose own error is more
        than their precision explains. `etviz.debug` and `etviz.load` begin with them in the background
        (`etviz.options.look_inside`); delegates with more than 512 MB of weights are zoomed only here. Where no inner
        operator introduces more than its noise, the delegate's error is accumulated rounding: its `introduced_noise` is
        that error, and it is no first divergence. Raises `ExecutionError` if every zoom failed.
        """
        return [self._shown_inside(inner) for inner in self.analysis.insides.wait()]

    def _shown_inside(self, inner: Analysis) -> Inside:
        call = inner.findings.call or (0, -1)
        if call not in self._inside or self._inside[call].analysis is not inner:
            self._inside[call] = Inside(inner)
        return self._inside[call]

    def repro(self, row: Any, path: str | os.PathLike[str], *, timeout: float | None = None) -> Path:
        """Write a folder that shows the introduced gap of one row without etviz: the attachment of a bug report.

        It holds the operator or delegate alone as ``model.pte``, its inputs, the expected outputs (eager, on these
        inputs), the outputs of the run, and ``repro.py``, which runs the program and prints the gap. `timeout` is
        seconds for lowering and running, 600 if None.

        Raises
        ------
        UsageError
            If `path` is neither a free name nor an earlier repro, or too little is known of the row.
        BackendRefusedError
            If the piece can't be lowered or run alone.
        ExecutionError
            If the child process crashes or takes too long.
        """
        return self.analysis.repro(row, path, timeout)

    @property
    def plot(self) -> Plots:
        """Matplotlib figures: ``plot.gaps()``, ``plot.histogram(row)``, ``plot.error_map(row)`` and more."""
        return Plots(self.analysis)

    @property
    def export(self) -> Export:
        """Files for other tools: ``export.chrome_trace(path)``, ``.model_explorer(path)``, ``.figures(path)``."""
        return Export(self.analysis)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {one_line(self.analysis.title)}>\n{self.summary()}"

    def to_html(self, path: str | os.PathLike[str], tensors: str = "histograms", title: str | None = None) -> Path:
        """Write a report: one HTML file with the linked view, which needs no kernel and no network.

        It also holds the other methods that were opened with `method`.

        Parameters
        ----------
        tensors
            ``none``: no tensors, the smallest file. ``histograms``: histograms and statistics of each row, of the 4,000
            worst rows where there are more. ``worst``: these, and the elements with the largest error of the 50 worst
            rows.
        title
            By default the Inspection's title.

        Raises
        ------
        UsageError
            If `tensors` is unknown.
        ArtifactError
            If the file can't be written, or the front end was not built.
        """
        from etviz.view.pages.report_page import write_report

        return write_report(self.analysis, path, tensors, title, self.view.seen)


class Inside(Inspection):
    """A zoomed delegate call, made by `Inspection.zoom`."""

    @property
    def faithful(self) -> bool | None:
        """True if the outputs of the zoomed delegate equal the run's bit for bit; None if unknown."""
        zoom = self.analysis.findings.zoom
        return zoom.faithful if zoom is not None else None

    @property
    def deviation(self) -> float:
        """Largest absolute difference of these outputs to the run's, NaN where not known."""
        zoom = self.analysis.findings.zoom
        return zoom.deviation if zoom is not None else math.nan

    @property
    def fidelity(self) -> str:
        """`faithful` and `deviation` in words."""
        zoom = self.analysis.findings.zoom
        return zoom.message if zoom is not None else ""


class Row:
    """One compared value, made by `Inspection.row`. Every method that takes a row accepts it.

    `index` is that in `Inspection.gaps`; rows inside zoomed delegates are numbered after the rows of instructions.
    """

    def __init__(self, inspection: Inspection, index: int) -> None:
        self._inspection, self.index = inspection, index

    def __index__(self) -> int:
        return self.index

    @property
    def _located(self) -> Located:
        return self._inspection.analysis.rows.find(self.index)

    @property
    def name(self) -> str:
        """The row's name in every view: ``#22 mlp · linear``."""
        return self._located.name

    @property
    def note(self) -> str:
        """Your note on the row; set it, here or in a view. Reports carry it."""
        return self._inspection.analysis.noted.get(self.index, "")

    @note.setter
    def note(self, text: str) -> None:
        self._inspection.analysis.note(self.index, text)

    @property
    def reference(self) -> torch.Tensor:
        """Raises `UsageError` if the row has no reference."""
        return self._inspection.tensors(self.index)[0]

    @property
    def runtime(self) -> torch.Tensor:
        """The tensor that the runtime logged."""
        return self._inspection.analysis.values.pair(self.index).runtime.clone()

    @property
    def inputs(self) -> list[Any]:
        """The runtime's inputs of the operator or delegate: tensors and plain values, in argument order.

        Raises `UsageError` if an input was not logged, or too little is known of the row.
        """
        return copy.deepcopy(list(self._inspection.analysis.inputs(self.index)))

    @property
    def constants(self) -> pd.DataFrame:
        """The constants that the operator or delegate reads, as the reference has them, and how the `.pte` does.

        ``name``; ``pte``: ``same bytes``, what differs, or ``not byte for byte`` (the backend packs or folds it, or its
        numbers differ); ``dtype, shape, min, max, rms`` of the reference.
        """
        return self._inspection.analysis.constants(self.index)

    @property
    def stack(self) -> str:
        """The Python stack trace of the operator in the model's code; empty where it is not known."""
        return str(self._located.about["stack"])

    def histogram(self, bins: int = 64) -> Histogram:
        """Shared bin edges, counts of reference (if any), runtime and error, and non-finite counts."""
        return self._inspection.analysis.values.histogram(self.index, bins)

    def error_map(
        self, of: str = "error", axes: Sequence[int] | None = None, index: Sequence[int] | None = None, size: int = 256
    ) -> ErrorMap:
        """A 2-D slice of error, reference or runtime values; see `etviz.tensors.error_map.error_map`."""
        return self._inspection.analysis.values.error_map(self.index, of, axes, index, size)

    def channels(self, axis: int = 1) -> pd.DataFrame:
        """The error for each index of an axis, negative from the end; a single number has one axis.

        By index: ``rmse`` and ``max_abs`` in the tensor's units, ``share`` of Σd², ``count`` of pairs that are finite
        in both, ``nonfinite`` pairs that were left out. Raises `UsageError` if the axis does not exist, or the row has
        no reference.
        """
        return self._inspection.analysis.values.channel_error(self.index, axis)

    def scatter(self, bins: int = 64) -> Scatter:
        """Reference against runtime values as a density; see `etviz.tensors.scatter.scatter`."""
        return self._inspection.analysis.values.scatter(self.index, bins)

    def fingerprints(self, *, force: bool = False) -> pd.DataFrame:
        """Likely classes of bug: hypotheses with their evidence, best first; `UsageError` without a reference.

        Tried are permuted layout, sign, dtype truncation, a shift by one, wrong zero-point, clipping, border pixels, a
        single bad channel, a scale factor, a constant offset, another bias, another epsilon and a constant output; and
        where the operator's own error is most likely a fault, its other settings, computed on the runtime's inputs.

        `force` also tries a row whose error is ordinary rounding, or inherited from earlier instructions.

        Returns
        -------
        DataFrame
            ``name``; ``score`` from 0.6 to 1, the share of the squared error that the hypothesis explains minus what
            chance would; ``evidence``, a sentence.
        """
        return self._inspection.analysis.values.fingerprints(self.index, force=force)

    def zoom(self, *, timeout: float | None = None) -> Inside:
        """See `Inspection.zoom`."""
        return self._inspection.zoom(self.index, timeout=timeout)

    def what_if(self) -> WhatIf:
        """See `Inspection.what_if`."""
        return self._inspection.what_if(self.index)

    def repro(self, path: str | os.PathLike[str], *, timeout: float | None = None) -> Path:
        """See `Inspection.repro`."""
        return self._inspection.repro(self.index, path, timeout=timeout)

    def __repr__(self) -> str:
        about = self._located.about
        numbers = ("severity", "introduced_severity", "rmse")
        told = ", ".join(f"{name} {figure(about[name])}" for name in numbers if about[name] == about[name])
        return f"<Row {one_line(self.name)}{f': {told}' if told else ''}>"


class Time:
    """Times of one program, as `Inspection.time`."""

    def __init__(self, analysis: Analysis) -> None:
        self._analysis = analysis

    @property
    def events(self) -> pd.DataFrame:
        """See `Inspection.events`."""
        frame = self._analysis.events.copy()
        for name in [name for name in frame if frame[name].dtype == object]:  # lists and arrays
            frame[name] = frame[name].map(copy.deepcopy).astype(object)
        return frame

    @property
    def latency(self) -> dict[int, float]:
        """Mean latency by instruction, in milliseconds."""
        return dict(self._analysis.latency)

    def ledger(self, by: str = "latency_ms") -> pd.DataFrame:
        """Inputs, cost and numerical effect of each delegate and each portable kernel.

        Parameters
        ----------
        by
            The column to rank by, else `UsageError`: numbers largest first, ``instruction`` and texts in their order.

        Returns
        -------
        DataFrame
            A row for each instruction, also inside branches: ``instruction, name, kind, backend``; its ``operators``
            and ``operator_count``; ``module, source``; number of ``inputs`` (without constants) and ``outputs``, and
            the bytes that cross its boundary, ``bytes_in`` and ``bytes_out`` (NaN where a size is known at run time
            only); ``latency_ms``, the mean over the executions, and its share of all instructions; ``severity_in``
            (worst total severity of its inputs, 0 for the program's inputs), ``introduced_severity`` and
            ``severity_out`` (worst of its outputs), over all executions, NaN where not known; ``refused``, a
            partitioner's reason for leaving a portable operator out, where it gives one and `etviz.debug` lowered the
            model; ``delegate_info``, the backend's own description of its delegate, where the ETRecord keeps it.
            ``attrs["note"]`` is the note of `events`.
        """
        return self._analysis.ledger(by)


class Export:
    """Files for other tools, as `Inspection.export`.

    Each file appears under its name when it is complete. Raises `ArtifactError` if it can't be written.
    """

    def __init__(self, analysis: Analysis) -> None:
        self._analysis = analysis

    def exported_program(self, name: str = "edge") -> ExportedProgram:
        """A graph of the files as an `ExportedProgram`, with its weights; nothing is unpickled or executed for it.

        Parameters
        ----------
        name
            ``exported``, ``edge`` or another program of the ETRecord by its member's name; ``lowered`` or ``float`` of
            the record. In the lowered program, the operators of delegates stand where their calls were.

        Raises
        ------
        UsageError
            If the files hold no graph of that name.
        PairingError
            If the graph has dynamic sizes or branches, or an operator that is not registered here.
        """
        from etviz.loading.programs import exported_program_of

        findings = self._analysis.findings
        return exported_program_of(findings.files, findings.method, name)

    def chrome_trace(self, path: str | os.PathLike[str]) -> Path:
        """Write the timed events as a Chrome trace (``trace.json``), for Perfetto and chrome://tracing.

        The framework, the portable kernels, each backend and the operators that it timed have tracks. Each call carries
        its operator, source, module and shape, and the metrics of its worst output. Times are in µs. Raises
        `UsageError` if the runtime timed nothing.
        """
        from etviz.view.export.chrome_trace import write_chrome_trace

        return write_chrome_trace(self._analysis, path)

    def model_explorer(self, path: str | os.PathLike[str]) -> list[Path]:
        """Write the program for Google's Model Explorer, and node data that colours it by error.

        Every instruction and every operator inside a delegate is a node; layers are the modules of the model, and in
        them the delegates. Open them with ``model-explorer model.json --node_data_paths=model.severity.json``.

        ``model.severity.json`` and, where introduced gaps are known, ``model.introduced_severity.json`` are written
        beside `path` (``model.json``), the first file returned. Raises `UsageError` if the artifacts do not hold the
        program.
        """
        from etviz.view.export.model_explorer import write_model_explorer

        return write_model_explorer(self._analysis, path)

    def tensors(self, path: str | os.PathLike[str]) -> Path:
        """Write every tensor of the run and its reference as safetensors files; returns their index.

        Rows inside zoomed delegates, final outputs and inputs are there too. `path` is a folder for ``index.json``,
        whose entries name the file and the key of each tensor. Raises `UsageError` if it can't be written to.
        """
        from etviz.view.export.tensors import write_tensors

        return write_tensors(self._analysis, path)

    def svg(self, path: str | os.PathLike[str], by: str = "introduced_severity") -> Path:
        """Draw the delegated graph (``graph.svg``): instructions, inner operators, and what flows between them.

        A node shows the metric `by`, its colour the level, its tooltip the source line. Raises `UsageError` if the
        artifacts do not hold the program, or the metric does not exist.
        """
        from etviz.view.export.svg import write_svg

        return write_svg(self._analysis, path, by)

    @during("writing the figures")
    def figures(self, path: str | os.PathLike[str], n: int = 5, suffix: str = ".png") -> list[Path]:
        """Write the severity profile, and histogram and error map of the worst `n` rows, as pictures into a folder.

        `suffix` is a format that matplotlib knows: ``.png``, ``.svg``, ``.pdf``. Raises `UsageError` for others, or if
        no value was compared.
        """
        folder, plots = Path(path_of(path, "the folder of figures")), Plots(self._analysis)
        make_folder(folder)
        written = [save(plots.gaps, folder / f"gaps{suffix}")]
        for row in self._analysis.worst(n).index:
            for draw in (plots.histogram, plots.error_map):
                if self._analysis.values.pair(row).reference is not None:
                    written.append(save(draw, folder / f"{draw.__name__}-{row}{suffix}", row))
        return written
