"""Looking inside a delegate, and taking a row out of the program to run it alone."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from etviz.analysis.findings import Compared, Findings, program_file
from etviz.comparison.gap import Run
from etviz.errors import UsageError
from etviz.evaluation.replay import of_last_round
from etviz.graph.labels import owners_of
from etviz.pipeline.relower import BackendRefusedError
from etviz.tensors.custom_metrics import CustomMetrics
from etviz.upstream.executorch import lowers_here

if TYPE_CHECKING:
    import os
    import threading
    from collections.abc import Callable, Mapping

    from etviz.analysis.rows import Call, Rows
    from etviz.comparison.constants import Difference
    from etviz.comparison.gap import Gap
    from etviz.explain.zoom.logged import Preprocessing
    from etviz.explain.zoom.piece import Alone
    from etviz.explain.zoom.zoom import Zoom
    from etviz.graph.ir import Graph
    from etviz.pipeline.relower import Piece

_BY_HANDLE: Final = "this row is paired by debug handle; give the program (pte=) or its record (record=) {}"
_NOT_REACHED: Final = "the reference does not come to this call, so there is nothing to compare with"
_NOTHING: Final = "nothing was compared, so nothing can be run again; summary() says why"


class Zooms:
    """What can be looked into.

    Parameters
    ----------
    findings
        What is known of the program.
    rows
        The program's rows.

    Attributes
    ----------
    refused
        The delegate calls whose backend refused to run by itself: to ask again gives the same answer.
    """

    def __init__(self, findings: Findings, rows: Rows) -> None:
        self._findings, self._rows = findings, rows
        self.refused: set[Call] = set()

    def call(self, row: Any) -> Call | None:
        """The delegate call of a row, None if it is of none."""
        gap = self._rows.find(row).gap
        return (gap.run, gap.instruction) if gap.node.target == "delegate" else None

    def possible(self, row: Any) -> bool:
        """True if the delegate call of a row can be looked into, as far as known without trying, or after it failed."""
        place = self._rows.find(row)
        gap, replay = place.gap, self._rows.tables.compared.replay
        if place.inside is not None or replay is None or gap.pairing == "handles" or self.call(row) in self.refused:
            return False
        inner = self._inside(gap)
        if inner is None or not (self._logged(gap) or lowers_here(inner.backend_id)):
            return False
        values = of_last_round(replay.executions[gap.run].log.values(gap.instruction), gap.rounds)
        count = len(inner.user_inputs())
        return len(values) == count + len(gap.node.outputs) and all(value is not None for value in values[:count])

    def _inside(self, gap: Gap) -> Graph | None:
        """The subgraph of a delegate call, None if it is none or its inside is not known."""
        inner = self._owner(gap).inside(gap.node)
        return inner if self._findings.zoom is None and inner.nodes else None

    def _owner(self, gap: Gap) -> Graph:
        return self._owners.get(gap.instruction, self._findings.graph)

    @cached_property
    def _owners(self) -> dict[int, Graph]:
        return owners_of(self._findings.graph)

    def look(
        self,
        row: Any,
        timeout: float | None = None,
        progress: Callable[[int, int], None] | None = None,
        cancel: threading.Event | None = None,
        *,
        quiet: bool = False,
        preprocessing: Preprocessing | None = None,
    ) -> Findings:
        """What is found inside of a row's delegate call; see `Inspection.zoom`."""
        from etviz.explain.zoom.zoom import constant_inputs, zoom

        gap = self._rows.own(row).gap
        if self._logged(gap):
            return self.look_logged({(gap.run, gap.instruction): row}, preprocessing)[gap.run, gap.instruction]
        piece = self.piece(row)
        if pte := program_file(self._findings):
            piece = replace(piece, ran=(pte, self._findings.method, gap.instruction))
        fixed = constant_inputs(self._owner(gap), gap.node, piece.constants)
        if preprocessing is not None:
            raise UsageError("preprocessing is for values that a backend logged inside of its delegate; it logged none")
        try:
            inside = zoom(
                piece,
                constants=self._altered(piece),
                fixed=fixed,
                timeout=timeout,
                progress=progress,
                cancel=cancel,
                quiet=quiet,
                custom=self._custom(gap),
            )
        except BackendRefusedError:
            self.refused.add((gap.run, gap.instruction))
            raise
        return self._found(gap, inside)

    def logged(self) -> dict[Call, int]:
        """The delegate calls whose backend logged inner values, each with its first row."""
        calls: dict[Call, int] = {}
        told = self._findings.inner_handles or self._findings.inside_of_probes
        for row, gap in enumerate(self._rows.tables.gaps):
            if told and gap.node.target == "delegate" and self.possible(row):
                calls.setdefault((gap.run, gap.instruction), row)
        return {call: row for call, row in calls.items() if self._logged(self._rows.tables.gaps[row])}

    def look_logged(
        self, calls: Mapping[Call, Any], preprocessing: Preprocessing | None = None
    ) -> dict[Call, Findings]:
        """The insides of delegate calls, by their rows, as their backends logged them."""
        from etviz.evaluation.spill import SpillFile
        from etviz.explain.zoom.logged import arrivals, logged_zoom, measure_total_noise
        from etviz.explain.zoom.zoom import constant_inputs

        compared = self._rows.tables.compared
        if compared.replay is None:
            raise UsageError(_NOTHING)
        judged = {call for call in calls if compared.runs[call[0]].comparison.judged}
        with SpillFile() as file:
            arrived = arrivals(compared.replay, judged, file) if judged else {}
        zooms: dict[Call, Zoom] = {}
        for call, row in calls.items():
            piece, gap = self.piece(row), self._rows.own(row).gap
            zooms[call] = logged_zoom(
                piece,
                self._logged(gap),
                self._findings.inner_handles.get(gap.instruction, {}),
                probed=self._probed(gap.instruction),
                arrived=arrived.get(call, gap.unpaired or _NOT_REACHED),
                fixed=constant_inputs(self._owner(gap), gap.node, piece.constants),
                preprocessing=preprocessing,
                custom=self._custom(gap),
            )
        measure_total_noise(compared.replay, zooms)
        if (other := self._findings.reference) is not None:
            for (run, instruction), zoom in zooms.items():
                zoom.comparison = other.of(zoom.comparison, run, instruction)
        return {call: self._found(self._rows.own(row).gap, zooms[call]) for call, row in calls.items()}

    def _probed(self, instruction: int) -> tuple[float | None] | None:
        """How far the probe inside of a delegate call is from the program, None if there is no such probe."""
        inside = self._findings.inside_of_probes
        return (inside[instruction],) if instruction in inside else None

    def _logged(self, gap: Gap) -> list[tuple[int | str, Any]]:
        """What the backend logged inside of a delegate call, if the ETRecord tells which operators that is of."""
        replay = self._rows.tables.compared.replay
        probed = gap.instruction in self._findings.inside_of_probes
        if replay is None or not (probed or self._findings.inner_handles.get(gap.instruction)):
            return []
        return replay.executions[gap.run].log.inside(gap.instruction)

    def _found(self, gap: Gap, inside: Zoom) -> Findings:
        run = self._rows.tables.compared.runs[gap.run]
        handles = self._findings.inner_handles.get(gap.instruction, {})
        latency = self._findings.profile.inside(self._findings.graph, gap.instruction, handles)
        numbers = {node.name: node.instruction for node in inside.graph.nodes}
        return Findings(
            title=f"{self._findings.title}: {inside.graph.backend_id} {gap.instruction}",
            method=inside.graph.name,
            graph=inside.graph,
            compared=Compared((Run(run.event_block, run.input_index, inside.comparison),), inside.replay),
            notes=(inside.message, *inside.notes),
            latency={numbers[name]: time for name, time in latency.items() if name in numbers},
            zoom=inside,
        )

    def _custom(self, gap: Gap) -> CustomMetrics:
        """The registered metrics that the program was compared by."""
        return CustomMetrics(self._rows.tables.compared.runs[gap.run].comparison.custom.metrics)

    def piece(self, row: Any) -> Piece:
        """The delegate call of a row as a piece that can run alone, with what the runtime had as its inputs."""
        from etviz.explain.zoom.zoom import delegate_piece

        gap, replay = self._rows.own(row).gap, self._rows.tables.compared.replay
        if gap.node.kernel != "delegate" or self._findings.zoom is not None:
            raise UsageError(
                f"row must be of a delegate call to zoom into it, found {gap.node.kernel or gap.node.target}; "
                'gaps[gaps["kind"] == "delegate"] lists them'
            )
        if replay is None:
            raise UsageError(_NOTHING)
        if gap.pairing == "handles":
            raise UsageError(_BY_HANDLE.format("to look inside of its delegate"))
        log, constants = replay.executions[gap.run].log, replay.fresh().constants
        return delegate_piece(self._owner(gap), gap.node, log, constants, gap.rounds)

    def _altered(self, piece: Piece) -> list[Difference]:
        """The constants of a piece of which the program has other versions."""
        used = {item.target for item in piece.graph.inputs}
        return [item for item in self._findings.constants if item.name in used]

    def repro(self, row: Any, path: str | os.PathLike[str], timeout: float | None = None) -> Path:
        """Write a folder that shows the introduced gap of one row; see `Inspection.repro`."""
        from etviz.explain.zoom.repro import about_row, write_repro

        place = self._rows.own(row)
        return write_repro(self._alone(place.gap, row), about_row(place.about), Path(path), timeout)

    def _alone(self, gap: Gap, row: Any) -> Alone:
        """What a row compares, as a piece that can run alone."""
        from etviz.evaluation.evaluator import Evaluator
        from etviz.explain.zoom.piece import Alone, operator_alone

        if gap.node.kernel == "delegate" and self._findings.zoom is None:
            piece = self.piece(row)
            return Alone(piece, Evaluator(piece.graph, piece.constants).run(piece.inputs))
        replay = self._rows.tables.compared.replay
        if replay is None:
            raise UsageError(_NOTHING)
        if gap.pairing == "handles":
            raise UsageError(_BY_HANDLE.format("to take its operator out"))
        graph = replay.fresh().graph
        owner = owners_of(graph).get(gap.instruction, graph)
        node = next(n for n in owner.nodes if n.instruction == gap.instruction)
        alone = operator_alone(graph, owner, node, replay, gap.run)
        return replace(alone, piece=replace(alone.piece, rounds=gap.rounds))
