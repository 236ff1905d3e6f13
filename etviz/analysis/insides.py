"""Zooms into delegates in the background, and explains a delegate's error by the rounding of its operators."""

from __future__ import annotations

import logging
import math
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from tqdm.auto import tqdm

from etviz.analysis.findings import Compared
from etviz.analysis.tables import Tables
from etviz.analysis.zooms import Zooms
from etviz.comparison.gap import MISMATCH, Gap
from etviz.errors import EtvizError, ExecutionError, during
from etviz.graph.ir import Graph
from etviz.graph.labels import owners_of
from etviz.graph.uses import operators
from etviz.tensors.metrics import AT_LEAST, Noise

if TYPE_CHECKING:
    from etviz.analysis.rows import Call
    from etviz.explain.zoom.zoom import Zoom

logger = logging.getLogger(__name__)

Inside = TypeVar("Inside")
SHARE: Final = 1 / 3
"""Threshold of a delegate's share of the program's operators: larger ones are zoomed into unasked."""
_LARGEST: Final = 512 << 20
_PATIENCE: Final = 0.1
_LAST_WORDS: Final = 5.0
_TURN: Final = threading.Lock()
"""One program at a time, so that many loads start one child process."""


class Insides(Generic[Inside]):
    """Zooms on a background thread, which does not keep the program alive; `rows` returns the rows that are due."""

    def __init__(
        self,
        rows: weakref.WeakMethod[Callable[..., list[int]]],
        zoom: weakref.WeakMethod[Callable[[int, threading.Event], Inside]],
    ) -> None:
        self._ask, self._zoom = rows, zoom
        self._lock = threading.Lock()
        self._cancel = threading.Event()
        self._thread: threading.Thread | None = None
        self._due: list[int] | None = None
        self.problems: dict[int, str] = {}

    def begin(self) -> None:
        """Starts the thread once; it skips very large weights."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="etviz-look-inside", daemon=True)
                self._thread.start()

    def _rows(self, *, bounded: bool) -> list[int]:
        ask = self._ask()
        return ask(bounded=bounded) if ask is not None else []

    def _run(self) -> None:
        try:
            for row in self._rows(bounded=True):
                with _TURN:
                    if self._cancel.is_set():
                        return
                    self._look(row)
        except Exception:
            logger.debug("the background look failed", exc_info=True)

    def _look(self, row: int) -> Inside | None:
        try:
            zoom = self._zoom()
            return zoom(row, self._cancel) if zoom is not None else None
        except EtvizError as error:
            if not self._cancel.is_set():
                self.problems[row] = str(error)
                logger.debug("row %d can't be looked into: %s", row, error)
            return None

    @during("looking inside the delegates")
    def wait(self) -> list[Inside]:
        """Zoom into what the thread left, and return all in program order; `ExecutionError` if every zoom failed."""
        thread = self._thread
        while thread is not None and thread.is_alive():
            thread.join(_PATIENCE)  # an interrupt is heard in between
        self._cancel.clear()
        due = [row for row in self._rows(bounded=False) if row not in self.problems]
        looks = [(row, self._look(row)) for row in tqdm(sorted(due), desc="look inside", leave=False, delay=1)]
        insides = [inside for _, inside in looks if inside is not None]
        if self.problems and not insides:
            raise ExecutionError(next(iter(self.problems.values())))
        return insides

    def stop(self) -> None:
        self._cancel.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(_LAST_WORDS)


def due(graph: Graph, tables: Tables, zooms: Zooms, *, bounded: bool) -> list[int]:
    """The delegate rows to zoom into: first rows beyond the threshold, then delegates with much of the program."""
    beyond: dict[int, int] = {}
    large: dict[int, int] = {}
    total = sum(1 for node in operators(graph.walk()) if node.instruction >= 0 and node.target != "delegate")
    owners = owners_of(graph)
    delegates = [node for node in graph.walk() if node.target == "delegate" and node.instruction >= 0]
    insides = {node.instruction: owners[node.instruction].inside(node) for node in delegates}
    sizes = {instruction: len(list(operators(inside.nodes))) for instruction, inside in insides.items()}
    total += sum(sizes.values())
    rows, gaps = tables.rows, tables.gaps
    calls = [int(row) for row in rows.index[rows["kind"] == "delegate"]] if len(rows) else []
    for row in calls if tables.compared.in_turn else sorted(calls, key=lambda at: gaps[at].run != tables.worst_run):
        instruction = gaps[row].instruction
        inside, is_beyond = insides.get(instruction), gaps[row].level in ("warn", "bad")
        known = beyond if is_beyond else large
        if inside is None or instruction in known or not (is_beyond or sizes[instruction] > SHARE * total):
            continue
        if not (bounded and _weights(inside) > _LARGEST) and zooms.possible(row):
            known[instruction] = row
    return [*beyond.values(), *(row for instruction, row in large.items() if instruction not in beyond)]


def _weights(inside: Graph) -> int:
    metas = [item.meta for item in inside.inputs if item.kind != "user" and item.meta is not None]
    sizes = (math.prod(size for size in meta.shape if isinstance(size, int)) for meta in metas)
    return sum(size * (1 if "int8" in meta.dtype else 4) for size, meta in zip(sizes, metas, strict=True))


def settled(tables: Tables, call: Call, inner: Tables, zoom: Zoom) -> Compared | None:
    """The comparison, if the precision or the rounding of a delegate's operators explains the delegate's error.

    Rounding does if the zoom is faithful and complete, and no operator introduces more than s times its noise, with s
    below the threshold: the delegate's error is then at most s times its noise.
    """
    run, instruction = call
    gaps = [gap for gap in tables.gaps if (gap.run, gap.instruction) == (run, instruction)]
    if zoom.faithful is not True or not {"warn", "bad"}.intersection(gap.level for gap in gaps):
        return None
    changed = dict(_by_precision(gaps, zoom) if zoom.causes else _by_rounding(gaps, inner, zoom))
    if not changed:
        return None
    compared = tables.compared
    before = compared.runs[run].comparison
    after = replace(before, gaps=[changed.get(id(gap), gap) for gap in before.gaps])
    runs = list(compared.runs)
    runs[run] = runs[run]._replace(comparison=after)
    return replace(compared, runs=tuple(runs))


def _by_precision(gaps: Sequence[Gap], zoom: Zoom) -> Iterator[tuple[int, Gap]]:
    return ((id(gap), replace(gap, hypothesis=zoom.causes[gap.output])) for gap in gaps if zoom.causes[gap.output])


def _by_rounding(gaps: Sequence[Gap], inner: Tables, zoom: Zoom) -> Iterator[tuple[int, Gap]]:
    wrong = any(gap.level in ("warn", "bad") and at not in inner.unused for at, gap in enumerate(inner.gaps))
    if zoom.notes or not len(inner) or inner.rows["introduced_severity"].isna().any() or wrong:
        return
    largest = max(float(inner.rows["introduced_severity"].max()), 1.0)
    count = sum(1 for node in operators(zoom.graph.nodes) if node.instruction >= 0)
    for gap in gaps:
        if gap.introduced is None or gap.introduced_sums is None or gap.status == MISMATCH:
            continue
        after = replace(gap, introduced=dict(gap.introduced))
        after.set_introduced_noise(Noise(gap.introduced["rmse"] / largest, AT_LEAST))
        after.note = f"accumulated rounding of {count} operators, each within its noise"
        yield id(gap), after
