"""Splits the error of each operator of a quantized model into quantization and backend."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from etviz.analysis.rows import Call, Rows
from etviz.errors import ExecutionError, UsageError, during

if TYPE_CHECKING:
    import pandas as pd

    from etviz.explain.quantization.delegates import ZoomedCall
    from etviz.explain.quantization.split import RowSplit, Split
    from etviz.explain.zoom.zoom import Zoom


class Quantization:
    """The split of one program; inside a delegate `whole` is False: the float model covers the whole program.

    If a child process ends on it, `rows` does not ask again.
    """

    def __init__(self, rows: Rows, *, whole: bool) -> None:
        self._rows, self._whole = rows, whole
        self._lock = threading.Lock()
        self._last: tuple[object, Split | ExecutionError] | None = None
        self.zooms: Mapping[Call, Zoom] = {}

    @property
    def known(self) -> bool:
        replay = self._rows.tables.compared.replay
        return replay is not None and replay.fresh_float is not None

    def calls(self) -> list[ZoomedCall]:
        from etviz.explain.quantization.delegates import ZoomedCall

        parts = [(first, inside) for first, inside, _ in self._rows.parts() if inside in self.zooms]
        zooms = {call: replace(zoom, faithful=None) if zoom.causes else zoom for call, zoom in self.zooms.items()}
        return [ZoomedCall(*inside, zooms[inside], first) for first, inside in parts if inside is not None]

    @during("splitting the error of quantization")
    def rows(self) -> Mapping[int, RowSplit]:
        return self._split(again=False).rows

    @during("splitting the error of quantization")
    def frame(self) -> pd.DataFrame:
        from etviz.explain.quantization.split import split_frame

        return split_frame(self._split(again=True), self._rows.tables.compared.runs)

    def _split(self, *, again: bool) -> Split:
        from etviz.explain.quantization.split import split

        if not self._whole:
            raise UsageError(
                "this Inspection shows a delegate's inside, and the float model belongs to the whole program: call "
                "quantization() of the Inspection that was zoomed, which has the rows inside its delegates too"
            )
        tables = self._rows.tables
        if tables.compared.replay is None:
            raise UsageError("no value of the runtime was compared, so there is nothing to split; see summary()")
        with self._lock:
            zooms = self.calls()
            key = tables, tuple((zoomed.run, zoomed.instruction) for zoomed in zooms)
            known = self._last[1] if self._last is not None and self._last[0] == key else None
            if known is None or (again and isinstance(known, ExecutionError)):
                try:
                    known = split(tables.compared.replay, tables.gaps, zooms)
                except ExecutionError as error:
                    known = error
                self._last = key, known
        if isinstance(known, ExecutionError):
            raise known.with_traceback(None)
        return known
