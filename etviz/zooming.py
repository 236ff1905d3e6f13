"""The part of an Inspection that looks inside delegates, and takes a row out of the program to run it alone."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from etviz.whole import Whole

if TYPE_CHECKING:
    from etviz.artifacts.ir import Graph
    from etviz.inspection import Inspection
    from etviz.numerics.comparison import Gap
    from etviz.numerics.operator_alone import Alone
    from etviz.numerics.quantization_inside import ZoomedCall
    from etviz.pipeline.alone import Piece

_BY_HANDLE: Final = "this row is paired by debug handle; give the program (pte=) or its record (record=) {}"


class Zooming(Whole):
    """A part of `Inspection`."""

    @property
    def faithful(self) -> bool | None:
        """Of a zoomed delegate: True if its outputs are those of the run that it explains, bit for bit.

        None where that is not known, and for an Inspection of a whole program.
        """
        return self._findings.zoom.faithful if self._findings.zoom is not None else None

    @property
    def deviation(self) -> float:
        """Of a zoomed delegate: largest absolute difference of its outputs to the run's, NaN where not known."""
        return self._findings.zoom.deviation if self._findings.zoom is not None else math.nan

    @property
    def fidelity(self) -> str:
        """`faithful` and `deviation` of a zoomed delegate in words, empty for an Inspection of a whole program."""
        return self._findings.zoom.message if self._findings.zoom is not None else ""

    @cached_property
    def zooms(self) -> dict[tuple[int, int], Inspection]:
        """The delegates that were zoomed into, by ``(execution, instruction)``, in the order of the zooms."""
        return {}

    @property
    def _inner_rows(self) -> int:
        return sum(len(inside.stacks) for inside in self.zooms.values())

    def located(self, row: Any) -> tuple[Inspection, Any]:
        """The Inspection that a row belongs to, and its index there.

        Rows of zoomed delegates count on after those of `gaps`, in the order of `zooms`.
        """
        index, this = getattr(row, "name", row), cast("Inspection", self)
        if not isinstance(index, (int, np.integer)) or index < len(self._table[1]):
            return this, row
        left = int(index) - len(self._table[1])
        for inside in self.zooms.values():
            if left < len(inside.stacks):
                return inside, left
            left -= len(inside.stacks)
        return this, row

    def zoomed_calls(self) -> list[ZoomedCall]:
        """The delegates that were zoomed into, with the number of the first row inside of each."""
        from etviz.numerics.quantization_inside import ZoomedCall

        found, first = [], len(self._table[1])
        for (run, instruction), inside in list(self.zooms.items()):
            zoom = inside._findings.zoom
            if zoom is not None:
                found.append(ZoomedCall(run, instruction, zoom, first))
            first += len(inside.stacks)
        return found

    def zoomable(self, row: Any) -> bool:
        """True if `zoom` can look inside the delegate call of a gap row, as far as known without trying."""
        gap = self._gap(row)
        inner = self._inside(gap)
        return inner is not None and self._findings.replay is not None and gap.pairing != "handles"

    def zoomed(self, row: Any) -> Inspection | None:
        """The Inspection of the inside of a gap row's delegate call, None if it was not zoomed into."""
        gap = self._gap(row)
        return self.zooms.get((gap.run, gap.instruction)) if gap.node.target == "delegate" else None

    def operator_name(self, row: Any) -> str:
        """Name of a gap row's operator in the graph."""
        return self._gap(row).node.name

    def block_of(self, run: int) -> int:
        """The event block of an execution."""
        return self._findings.runs[run][0]

    def _inside(self, gap: Gap) -> Graph | None:
        """The subgraph of a gap's delegate call, None if it is none or its inside is not known."""
        from etviz.graph.instruction import owners_of

        if gap.node.target != "delegate" or self._findings.zoom is not None or not gap.node.subgraphs:
            return None
        owner = owners_of(self._graph).get(gap.instruction, self._graph)
        inner = owner.subgraphs.get(gap.node.subgraphs[0])
        return inner if inner is not None and inner.nodes else None

    def zoom(self, row: Any, *, timeout: float | None = None) -> Inspection:
        """Look inside the delegate call of a gap row.

        The delegate's subgraph is lowered again to the same backend with its inner values as outputs, and run in a
        child process on the inputs that the runtime gave it. The reference of every inner operator is the subgraph
        evaluated eagerly on the same inputs.

        Parameters
        ----------
        row
            A row of `gaps` of kind ``delegate``, by index or itself.
        timeout
            Seconds for lowering and running it, 600 if None.

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
        return self.zoom_into(row, timeout)

    def zoom_into(
        self,
        row: Any,
        timeout: float | None = None,
        progress: Callable[[int, int], None] | None = None,
        cancel: threading.Event | None = None,
    ) -> Inspection:
        """As `zoom`, with a function that is told the steps done and their number, and an event that stops it."""
        from etviz.inspection import Findings
        from etviz.numerics.zoom import zoom

        piece, gap = self.piece(row), self._gap(row)
        key = (gap.run, gap.instruction)
        if key not in self.zooms:
            found = zoom(piece, timeout=timeout, progress=progress, cancel=cancel)
            block, index, _ = self._findings.runs[gap.run]
            name = found.graph.name
            findings = Findings(
                title=f"{self.title}: {found.graph.backend_id} {gap.instruction}",
                method=name,
                graphs={name: found.graph},
                runs=[(block, index, found.comparison)],
                notes=[found.message, *found.notes],
                replay=found.replay,
                zoom=found,
            )
            first = len(self._table[1]) + self._inner_rows
            self.zooms[key] = type(self)(findings)  # type: ignore[call-arg]
            if self.selected is not None and self.selected >= first:
                self.selected += self._inner_rows + len(self._table[1]) - first
        return self.zooms[key]

    def piece(self, row: Any) -> Piece:
        """The delegate call of a gap row as a piece that can run alone, with what the runtime had as its inputs."""
        from etviz.errors import UsageError
        from etviz.graph.instruction import owners_of
        from etviz.numerics.zoom import delegate_piece

        gap, replay = self._gap(row), self._findings.replay
        if gap.node.kernel != "delegate" or self._findings.zoom is not None:
            raise UsageError(
                f"row must be of a delegate call to zoom into it, found {gap.node.kernel or gap.node.target}; "
                'gaps[gaps["kind"] == "delegate"] lists them'
            )
        if replay is None:
            raise UsageError("nothing was compared, so nothing can be run again; summary() says why")
        if gap.pairing == "handles":
            raise UsageError(_BY_HANDLE.format("to look inside of its delegate"))
        owner = owners_of(self._graph).get(gap.instruction, self._graph)
        return delegate_piece(owner, gap.node, replay.executions[gap.run].log, replay.fresh().constants)

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
        from etviz.numerics.repro import about_row, write_repro

        owner, index = self.located(row)
        if owner is not self:
            return owner.repro(index, path, timeout=timeout)
        gap = self._gap(row)
        known = self._table[0].iloc[next(i for i, item in enumerate(self._table[1]) if item is gap)]
        return write_repro(self._alone(row), about_row(known), Path(path), timeout)

    def _alone(self, row: Any) -> Alone:
        """What a row compares, as a piece that can run alone."""
        from etviz.errors import UsageError
        from etviz.graph.instruction import owners_of
        from etviz.numerics.operator_alone import Alone, operator_alone
        from etviz.numerics.reference import Evaluator

        gap, replay = self._gap(row), self._findings.replay
        if gap.node.kernel == "delegate" and self._findings.zoom is None:
            piece = self.piece(row)
            return Alone(piece, Evaluator(piece.graph, piece.constants).run(piece.inputs))
        if replay is None:
            raise UsageError("nothing was compared, so nothing can be run again; summary() says why")
        if gap.pairing == "handles":
            raise UsageError(_BY_HANDLE.format("to take its operator out"))
        graph = replay.fresh().graph
        owner = owners_of(graph).get(gap.instruction, graph)
        node = next(n for n in owner.nodes if n.instruction == gap.instruction)
        return operator_alone(graph, owner, node, replay, gap.run)
