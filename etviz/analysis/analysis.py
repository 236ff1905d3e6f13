"""One executed program compared with its reference, and everything computed from it on demand; views listen to it."""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from etviz.analysis.attribution import Attributions
from etviz.analysis.finding import Finder
from etviz.analysis.findings import Findings, program_file
from etviz.analysis.insides import Insides, due, settled
from etviz.analysis.ledger import ledger
from etviz.analysis.profile import ModuleTotal, Profile, events_frame, module_total
from etviz.analysis.quantization import Quantization
from etviz.analysis.row_tensors import RowTensors
from etviz.analysis.rows import Call, Rows, row_count, told_first
from etviz.analysis.summary import Summary
from etviz.analysis.tables import Tables
from etviz.analysis.what_if import WhatIf, what_if
from etviz.analysis.zooms import Zooms
from etviz.artifacts.files import collection_paused, path_of
from etviz.comparison.gap_tables import ranking
from etviz.errors import BackendRefusedError, EtvizError, UsageError, during
from etviz.evaluation.operator_rules import OperatorError, as_written
from etviz.graph.delegation import Delegation
from etviz.graph.edges import DataEdge, data_edges
from etviz.graph.inline import inline
from etviz.graph.quantize_ops import is_conversion
from etviz.graph.tree import Tree, module_tree, program_tree
from etviz.tensors.metrics import METRICS

if TYPE_CHECKING:
    from etviz.explain.attribution.shares import Loss, Progress
    from etviz.explain.zoom.inner_values import Preprocessing

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Change:
    """``introduced``, ``attribution``, ``refused``, ``note``, or ``zoom`` with `added` rows before row `first`."""

    what: str
    first: int = 0
    added: int = 0


class Changes:
    """Calls every listener on every change, on the thread that makes it; its method does not keep its object alive."""

    def __init__(self) -> None:
        self._listeners: tuple[weakref.WeakMethod[Callable[[Change], None]], ...] = ()

    def connect(self, listener: Callable[[Change], None]) -> None:
        self._listeners = (*self._listeners, weakref.WeakMethod(listener))

    def disconnect(self, listener: Callable[[Change], None]) -> None:
        self._listeners = tuple(known for known in self._listeners if known() not in (None, listener))

    def emit(self, change: Change) -> None:
        for known in self._listeners:
            listener = known()
            if listener is not None:
                listener(change)


class Analysis:
    def __init__(self, findings: Findings) -> None:
        self.findings = findings
        self.graph = findings.graph
        self.rows = Rows(Tables(findings, findings.compared))
        self.notes: Mapping[tuple[Call | None, int], str] = {}
        self.values = RowTensors(self.rows, findings.check_files, weakref.WeakMethod(self.constants))
        self.zooms = Zooms(findings, self.rows)
        self.attributions = Attributions(self.rows)
        self.quantization = Quantization(self.rows, whole=findings.zoom is None)
        self.finder = Finder(findings, self.rows, self.values, self.attributions, self.quantization)
        self.inside: Mapping[Call, Analysis] = {}
        self.insides: Insides[Analysis] = Insides(weakref.WeakMethod(self._due), weakref.WeakMethod(self._look))
        self.changed = Changes()
        self._lock = threading.Lock()

    @property
    def title(self) -> str:
        return self.findings.title

    @property
    def tables(self) -> Tables:
        self.findings.check_files()
        return self.rows.tables

    @property
    def digest(self) -> Summary:
        self.findings.check_files()
        return self.finder.summary()

    @property
    def gaps(self) -> pd.DataFrame:
        """A copy; values that backends logged inside their delegates come below the call's."""
        rows = self.tables.rows.drop(columns="stack")
        if not self.inside:
            return rows
        frames, order = [rows], [(at, 0, at) for at in range(len(rows))]
        last = {(gap.run, gap.instruction): at for at, gap in enumerate(self.rows.tables.gaps)}
        for first, call, tables in self.rows.parts():
            zoom = self.inside[call].findings.zoom if call is not None else None
            if call is not None and zoom is not None and zoom.logged and len(tables):
                frames.append(self.rows.placed(call, tables).set_axis(range(first, first + len(tables))))
                order += [(last[call], 1, number) for number in frames[-1].index]
        return pd.concat(frames).loc[[number for _, _, number in sorted(order)]] if len(frames) > 1 else rows

    @property
    def profile(self) -> Profile:
        return self.findings.profile

    @property
    def latency(self) -> Mapping[int, float]:
        return self.findings.latency

    @property
    def delegation(self) -> Delegation | None:
        return self.findings.delegation

    @cached_property
    @during("making the tree")
    def tree(self) -> Tree:
        return program_tree({self.findings.method: self.graph}, self.latency, self.profile.ran())

    @cached_property
    @during("making the tree of modules")
    def modules(self) -> Tree:
        return module_tree({self.findings.method: self.graph}, self.latency)

    @cached_property
    def edges(self) -> list[DataEdge]:
        return data_edges(self.tree, self.graph)

    @cached_property
    @during("listing the events")
    def events(self) -> pd.DataFrame:
        return events_frame(self.profile, self.graph, self.findings.inner_handles)

    @cached_property
    @during("listing the program")
    def listing(self) -> str:
        from etviz.graph.listing import format_delegated_graph
        from etviz.graph.lowered import as_lowered

        if self.delegation is None:
            ways = "" if {"pte", "etrecord"} <= set(self.findings.files) else ", or pte= and etrecord="
            raise UsageError(f"the files do not hold the whole lowered program; give record={ways}")
        known = self.findings.listing() if self.findings.listing is not None else ""
        return known or format_delegated_graph(as_lowered(self.graph, None, as_written))

    @during("ranking the rows")
    def worst(self, n: int = 5, by: str = "introduced_severity") -> pd.DataFrame:
        count = row_count("n", n, len(self.tables))
        gaps = self.gaps
        if by not in gaps:
            metrics = [str(name) for name in gaps if str(name).removeprefix("introduced_") in METRICS]
            raise UsageError(f"by must be a column of gaps, found {by!r}; metrics are {', '.join(metrics)}")
        return told_first(self.tables.ranked(ranking(gaps, by)).drop(columns="stack").head(count))

    @during("summing up a module")
    def module_total(self, name: str, by: str = "introduced_severity") -> ModuleTotal:
        return module_total(self.graph, self.latency, self.worst(len(self.tables), by), name)

    @during("computing introduced errors")
    def compute_introduced(self) -> None:
        """`PairingError` if the reference can't be computed."""
        with self._lock:
            if self.findings.complete is None or self.rows.tables.compared is not self.findings.compared:
                return
            self.rows.tables = Tables(self.findings, self.findings.complete())
        self.changed.emit(Change("introduced"))

    def attribution(
        self,
        output: int | None = None,
        run: int | None = None,
        *,
        loss: Loss | None = None,
        about: str = "",
        progress: Progress | None = None,
    ) -> pd.DataFrame:
        self.findings.check_files()
        run = self.finder.decision().run if run is None else run
        frame = self.attributions.of(output, run, loss=loss, about=about, progress=progress)
        if loss is None or about:
            self.changed.emit(Change("attribution"))
        return frame

    @during("making the ledger")
    def ledger(self, by: str = "latency_ms") -> pd.DataFrame:
        frame = ledger(self.graph, self.tables, self.findings, by)
        frame.attrs["note"] = self.profile.note
        return frame

    @during("computing what the outputs would have been")
    def what_if(self, rows: Any) -> WhatIf:
        self.findings.check_files()
        return what_if(self.rows, rows, {call: inner.findings for call, inner in self.inside.items()}, self.zooms)

    @during("comparing the stages")
    def ladder(self, run: int = 0) -> pd.DataFrame:
        from etviz.explain.stages.ladder import ladder

        self.findings.check_files()
        replay = self.tables.compared.replay
        if replay is None:
            raise UsageError("no value of the runtime was compared, so there are no stages to compare; see summary()")
        if not 0 <= run < len(replay.executions):
            raise UsageError(f"run must be one of the {len(replay.executions)} executions, found {run!r}")
        inside = [call for call in self.quantization.calls() if call.run == run and call.zoom.faithful is True]
        zoomed = [(call.zoom.comparison, call.instruction) for call in inside]
        first = self.findings.reference.rungs(run) if self.findings.reference is not None else []
        with self._naming_file():
            return ladder(replay, [(self.tables.compared.runs[run].comparison, None), *zoomed], run, first)

    @contextmanager
    def _naming_file(self) -> Generator[None]:
        files = self.findings.files
        try:
            yield
        except OperatorError as error:
            raise error.in_file(files.get("record") or files.get("etrecord") or "model") from None

    @property
    def is_quantized(self) -> bool:
        return any(map(is_conversion, inline(self.graph).graph.nodes))

    @during("comparing with another reference")
    def against(self, reference: Any) -> Analysis:
        from etviz.explain.stages.own_functions import own_functions, problem_notes, without_partner
        from etviz.explain.stages.own_model import other_reference

        self.compute_introduced()
        findings, compared = self.findings, self.tables.compared
        if isinstance(reference, Analysis) or type(reference) is int:
            return self._against_run(reference)
        if compared.replay is None or findings.with_operators is None:
            raise UsageError("nothing was compared, so there is nothing to compare with something else; see summary()")
        if not isinstance(reference, Mapping):
            if any(gap.pairing == "handles" for gap in self.tables.gaps):
                raise UsageError("rows are paired by debug handle; give the program (pte=) or its record (record=)")
            example = findings.made.get("example_inputs", ())
            with self._naming_file(), collection_paused():
                other = other_reference(compared.replay, reference, findings.method, example)
                after = replace(compared, runs=other.of_runs(compared.runs))
            after = replace(after, notes=(*after.notes, *other.notes))
            changed = replace(findings, compared=after, reference=other, title=f"{findings.title} against {other.name}")
        else:
            functions = own_functions(self.graph, reference)
            with self._naming_file(), collection_paused():
                after = findings.with_operators(functions)
            runs, notes = without_partner(self.graph, after.runs, functions.problems), problem_notes(functions.problems)
            after = replace(after, runs=runs, notes=(*after.notes, *notes))
            changed = replace(findings, compared=after, title=f"{findings.title}, own reference")
        analysis = Analysis(replace(changed, complete=None))
        analysis.unfold()
        return analysis

    def _against_run(self, other: Analysis | int) -> Analysis:
        from etviz.explain.stages.against import OtherRun

        findings, compared = self.findings, self.tables.compared
        runs = other.tables.compared.runs if isinstance(other, Analysis) else compared.runs[other : other + 1]
        if not runs:
            raise UsageError(
                f"reference: there is no execution {other}; there are {len(compared.runs)}, numbered from 0. It can "
                "also be the name of a stage, a model, its outputs, or functions by operator"
            )
        of_run = OtherRun(runs, other.title if isinstance(other, Analysis) else f"execution {other}")
        notes = compared.notes if compared.replay is not None else ()
        after = replace(compared, runs=of_run.of_runs(compared.runs), notes=notes)
        title = f"{findings.title} against {of_run.name}"
        return Analysis(replace(findings, compared=after, reference=of_run, title=title, complete=None))

    @during("fetching the inputs of a row")
    def inputs(self, row: Any) -> Sequence[Any]:
        self.findings.check_files()
        place = self.rows.find(row)
        if place.inside is not None:
            return self.inside[place.inside].inputs(place.at)
        return self.zooms.inputs(place.at)

    def note(self, row: Any, text: Any) -> None:
        """A sentence about a row, which reports carry; empty takes it back."""
        if not isinstance(text, str):
            raise UsageError(f"a note must be a text, found {type(text).__name__}")
        place = self.rows.find(row)
        self.notes = {**self.notes, (place.inside, place.at): text.strip()}
        self.changed.emit(Change("note"))

    @property
    def noted(self) -> dict[int, str]:
        first = {inside: at for at, inside, _ in self.rows.parts()}
        return {first[inside] + at: text for (inside, at), text in self.notes.items() if text and inside in first}

    @during("reading the constants of a row")
    def constants(self, row: Any) -> pd.DataFrame:
        from etviz.artifacts.program.program import read_program
        from etviz.comparison.constants import constants_of

        place, findings = self.rows.find(row), self.findings
        inner = self if place.inside is None else self.inside[place.inside]
        replay, pte = inner.tables.compared.replay, program_file(findings)
        program = read_program(pte) if pte is not None else None
        weights = replay.constants if replay is not None else {}
        rows = constants_of(inner.graph, place.gap.instruction, weights, findings.constants, program, findings.method)
        return pd.DataFrame(rows, columns=["name", "pte", "dtype", "shape", "min", "max", "rms"])

    @during("zooming into a delegate")
    def zoom(
        self,
        row: Any,
        timeout: float | None = None,
        progress: Callable[[int, int], None] | None = None,
        cancel: threading.Event | None = None,
        *,
        quiet: bool = False,
        preprocessing: Preprocessing | None = None,
    ) -> Analysis:
        """See `Inspection.zoom`; `progress` gets the steps done and their number, setting `cancel` stops the zoom."""
        from etviz.explain.zoom.inner_values import How

        self.findings.check_files()
        place = self.rows.own(row)
        call = place.gap.run, place.gap.instruction
        how = How(timeout, progress, cancel, quiet, preprocessing)
        with self._lock:
            known = self.inside.get(call)
            if known is not None and preprocessing is None:
                return known
            try:
                (news,) = self._take_in(self.zooms.look({call: row}, how))
            except BackendRefusedError:
                self.changed.emit(Change("refused"))
                raise
        self._tell([news])
        return self.inside[call]

    def _take_in(self, found: Mapping[Call, Findings]) -> list[list[Change]]:
        news = []
        for call, findings in found.items():
            inner, ends = Analysis(findings), {zoomed: first + len(rows) for first, zoomed, rows in self.rows.parts()}
            before = len(self.inside[call].tables) if call in self.inside else 0
            changes = [Change("zoom", ends.get(call, len(self.rows)), len(inner.tables) - before)]
            self.rows.inside = {**self.rows.inside, call: inner.tables}
            self.inside = {**self.inside, call: inner}
            if findings.zoom is not None:
                self.quantization.zooms = {**self.quantization.zooms, call: findings.zoom}
                explained = settled(self.rows.tables, call, inner.tables, findings.zoom)
                if explained is not None:
                    self.rows.tables = Tables(self.findings, explained)
                    changes.insert(0, Change("introduced"))
            news.append(changes)
        return news

    def _tell(self, news: Sequence[Sequence[Change]]) -> None:
        for change in (change for changes in news for change in changes):
            self.changed.emit(change)

    def unfold(self) -> None:
        """Take in what backends logged inside their delegates in this run."""
        with self._lock:
            try:
                calls = {call: row for call, row in self.zooms.logged().items() if call not in self.inside}
                if not calls:
                    return
                from etviz.explain.zoom.inner_values import How

                news = self._take_in(self.zooms.look(calls, How(preprocessing=self.findings.preprocessing)))
            except EtvizError as error:
                if self.findings.preprocessing is not None:
                    raise
                logger.warning("the values inside delegates can't be compared: %s", error)
                return
        self._tell(news)

    def _due(self, *, bounded: bool) -> list[int]:
        return due(self.graph, self.tables, self.zooms, bounded=bounded)

    def _look(self, row: int, cancel: threading.Event) -> Analysis:
        return self.zoom(row, cancel=cancel, quiet=True)

    def zoomed(self, row: Any) -> Analysis | None:
        call = self.zooms.call(row)
        return self.inside.get(call) if call is not None else None

    @during("writing a repro")
    def repro(self, row: Any, path: str | os.PathLike[str], timeout: float | None = None) -> Path:
        place = self.rows.find(row)
        if place.inside is not None:
            return self.inside[place.inside].repro(place.at, path, timeout)
        return self.zooms.repro(place.at, path_of(path, "the repro"), timeout)
