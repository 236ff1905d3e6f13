"""The part of an Inspection that writes it down for others; each method hands over to a module of its own."""

from __future__ import annotations

import importlib
import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etviz.whole import Whole

if TYPE_CHECKING:
    from etviz.graph.edges import DataEdge


class Sharing(Whole):
    """A part of `Inspection`."""

    @cached_property
    def edges(self) -> list[DataEdge]:
        """Who reads whose values, between the nodes of `tree`."""
        from etviz.graph.edges import data_edges

        return data_edges(self.tree, self._graph)

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
        return _writer("view.report").write_report(self, path, tensors, title)

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
        return _writer("exporting.chrome_trace").write_chrome_trace(self, self._graph, self._findings.profile, path)

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
        return _writer("exporting.model_explorer").write_model_explorer(self, self._graph, path)


def _writer(name: str) -> Any:
    """A module of etviz, looked up only when something is written: writers know Inspections, not the reverse."""
    return importlib.import_module(f"etviz.{name}")
