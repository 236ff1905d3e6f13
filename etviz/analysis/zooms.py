"""Zooms into delegate calls, and cuts out rows to run them alone."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from etviz.analysis.findings import Compared, Findings, program_file
from etviz.comparison.gap import Gap, Run
from etviz.errors import BackendRefusedError, UsageError
from etviz.evaluation.replay import Execution, Replay, of_last_round
from etviz.graph.ir import Graph
from etviz.graph.labels import owners_of
from etviz.pipeline.interpreters import interpreter_of
from etviz.tensors.custom_metrics import CustomMetrics
from etviz.upstream.executorch import lowers_here

if TYPE_CHECKING:
    from etviz.analysis.rows import Call, Rows
    from etviz.explain.zoom.inner_values import How, Logged, ZoomSubject
    from etviz.explain.zoom.piece import Alone
    from etviz.explain.zoom.zoom import Zoom
    from etviz.pipeline.relower import Piece

_BY_HANDLE: Final = "this row is paired by debug handle; give the program (pte=) or its record (record=) {}"
_NOTHING: Final = "nothing was compared, so nothing can be run again; summary() says why"
_NO_INPUTS: Final = (
    "the inputs of row {} are not known: an ETDump holds the inputs of delegates only, and does not tell how many; "
    "give pte= for a delegate's, and etrecord= or record= for an operator's"
)
_NO_DELEGATE: Final = (
    'row must be of a delegate call to zoom into it, found {}; gaps[gaps["kind"] == "delegate"] lists them'
)


class Zooms:
    """Zooms into the delegate calls of one program; `refused` ones the backend can't run alone."""

    def __init__(self, findings: Findings, rows: Rows) -> None:
        self._findings, self._rows = findings, rows
        self.refused: set[Call] = set()

    def call(self, row: Any) -> Call | None:
        gap = self._rows.find(row).gap
        return (gap.run, gap.instruction) if gap.node.target == "delegate" else None

    def first_row(self, call: Call) -> int:
        return next(row for row, gap in enumerate(self._rows.tables.gaps) if (gap.run, gap.instruction) == call)

    def possible(self, row: Any) -> bool:
        place = self._rows.find(row)
        gap, replay = place.gap, self._rows.tables.compared.replay
        if place.inside is not None or replay is None or gap.pairing == "handles" or self.call(row) in self.refused:
            return False
        inner = self._owner(gap).inside(gap.node)
        if self._findings.zoom is not None or not inner.nodes:
            return False
        if not (self._runs(inner.backend_id) or self._logged(gap)):
            return False
        values = of_last_round(replay.executions[gap.run].log.values(gap.instruction), gap.rounds)
        count = len(inner.user_inputs())
        return len(values) == count + len(gap.node.outputs) and all(value is not None for value in values[:count])

    def _runs(self, backend_id: str) -> bool:
        interpreter = interpreter_of(backend_id)
        held = interpreter is not None and interpreter.is_installed() and program_file(self._findings) is not None
        if interpreter is not None and interpreter.implementation:
            return held
        return held or lowers_here(backend_id)

    def logged(self) -> dict[Call, int]:
        calls: dict[Call, int] = {}
        told = self._findings.inner_handles or self._findings.inside_of_probes
        for row, gap in enumerate(self._rows.tables.gaps if told else ()):
            new = gap.node.target == "delegate" and (gap.run, gap.instruction) not in calls
            if new and self._logged(gap) is not None and self.possible(row):
                calls[gap.run, gap.instruction] = row
        return calls

    def look(self, calls: Mapping[Call, Any], how: How) -> dict[Call, Findings]:
        from etviz.explain.zoom.zoom import compare_calls

        gaps = {call: self._rows.own(row).gap for call, row in calls.items()}
        subjects = {call: self._subject(gap) for call, gap in gaps.items()}
        try:
            zooms = compare_calls(self._replay, subjects, how)
        except BackendRefusedError:
            self.refused.update(calls)
            raise
        return {call: self._findings_of(gaps[call], inside) for call, inside in zooms.items()}

    def piece(self, row: Any) -> Piece:
        return self._piece(self._rows.own(row).gap)

    def inputs(self, row: Any) -> Sequence[Any]:
        gap, compared = self._rows.own(row).gap, self._rows.tables.compared
        if compared.replay is None and gap.instruction in (logged := compared.runs[gap.run].comparison.delegate_inputs):
            return logged[gap.instruction]
        if compared.replay is None:
            raise UsageError(_NO_INPUTS.format(self._rows.find(row).name))
        if gap.node.kernel == "delegate" and self._findings.zoom is None:
            return self._piece(gap).inputs
        return self._operator_alone(gap).piece.inputs

    def repro(self, row: Any, path: str | os.PathLike[str], timeout: float | None = None) -> Path:
        from etviz.explain.zoom.repro import write_repro

        place = self._rows.own(row)
        return write_repro(self._alone(place.gap), place.about, Path(path), timeout)

    @property
    def _replay(self) -> Replay:
        replay = self._rows.tables.compared.replay
        if replay is None:
            raise UsageError(_NOTHING)
        return replay

    def _owner(self, gap: Gap) -> Graph:
        return self._owners.get(gap.instruction, self._findings.graph)

    @cached_property
    def _owners(self) -> dict[int, Graph]:
        return owners_of(self._findings.graph)

    def _subject(self, gap: Gap) -> ZoomSubject:
        from etviz.explain.zoom.inner_values import ZoomSubject
        from etviz.explain.zoom.piece import constant_inputs
        from etviz.pipeline.relower import RanDelegate

        piece = self._piece(gap)
        if pte := program_file(self._findings):
            beside = (self._findings.files.get(kind, "") for kind in ("record", "data"))
            piece = replace(piece, ran=RanDelegate(pte, self._findings.method, gap.instruction, *beside))
        used = {placeholder.target for placeholder in piece.graph.inputs}
        comparison = self._rows.tables.compared.runs[gap.run].comparison
        return ZoomSubject(
            piece,
            self._logged(gap),
            constant_inputs(self._owner(gap), gap.node, piece.constants),
            [difference for difference in self._findings.constants if difference.name in used],
            "" if comparison.judged else gap.unpaired,
            CustomMetrics(comparison.custom.metrics),
            self._findings.inner_handles.get(gap.instruction, {}),
        )

    def _piece(self, gap: Gap) -> Piece:
        from etviz.explain.zoom.piece import delegate_piece

        if gap.node.kernel != "delegate" or self._findings.zoom is not None:
            raise UsageError(_NO_DELEGATE.format(gap.node.kernel or gap.node.target))
        replay = self._replay
        if gap.pairing == "handles":
            raise UsageError(_BY_HANDLE.format("to zoom into its delegate"))
        log, constants = replay.executions[gap.run].log, replay.constants
        return delegate_piece(self._owner(gap), gap.node, log, constants, gap.rounds)

    def _logged(self, gap: Gap) -> Logged | None:
        from etviz.explain.zoom.inner_values import Logged

        replay, probes = self._rows.tables.compared.replay, self._findings.inside_of_probes
        handles = self._findings.inner_handles.get(gap.instruction, {})
        probed = gap.instruction in probes
        if replay is None or not (probed or handles):
            return None
        values = replay.executions[gap.run].log.inside(gap.instruction)
        return Logged(values, handles, probed, probes.get(gap.instruction)) if values else None

    def _findings_of(self, gap: Gap, inside: Zoom) -> Findings:
        findings, run = self._findings, self._rows.tables.compared.runs[gap.run]
        if inside.logged and findings.reference is not None:
            inside.comparison = findings.reference.of(inside.comparison, gap.run, gap.instruction)
        latency = findings.profile.inside(
            findings.graph, gap.instruction, findings.inner_handles.get(gap.instruction, {})
        )
        numbers = {node.name: node.instruction for node in inside.graph.nodes}
        return Findings(
            title=f"{findings.title}: {inside.graph.backend_id} {gap.instruction}",
            method=inside.graph.name,
            graph=inside.graph,
            compared=Compared((Run(run.event_block, run.input_index, inside.comparison),), inside.replay),
            notes=(inside.message, *inside.notes),
            latency={numbers[name]: time for name, time in latency.items() if name in numbers},
            zoom=inside,
            call=(gap.run, gap.instruction),
        )

    def _alone(self, gap: Gap) -> Alone:
        from etviz.explain.zoom.piece import Alone, expected_outputs

        if gap.node.kernel == "delegate" and self._findings.zoom is None:
            piece, log = self._piece(gap), self._replay.executions[gap.run].log
            one = self._replay.piece(piece.graph, piece.constants, [Execution(piece.inputs, log)])
            return Alone(piece, expected_outputs(one))
        return self._operator_alone(gap)

    def _operator_alone(self, gap: Gap) -> Alone:
        from etviz.explain.zoom.piece import operator_alone

        replay = self._replay
        if gap.pairing == "handles":
            raise UsageError(_BY_HANDLE.format("to take its operator out"))
        graph = replay.graph
        owner = owners_of(graph).get(gap.instruction, graph)
        node = next(node for node in owner.nodes if node.instruction == gap.instruction)
        alone = operator_alone(replay, graph, owner, node, gap.run)
        return replace(alone, piece=replace(alone.piece, rounds=gap.rounds))
