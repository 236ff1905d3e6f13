"""Runs of one input, compared bit by bit, by hash: the instructions whose values vary."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch.utils._pytree import tree_leaves
from tqdm.auto import tqdm

from etviz.artifacts.etdump.runtime_log import RuntimeLog
from etviz.artifacts.scratch import Scratch
from etviz.errors import ExecutionError, UsageError, during
from etviz.evaluation.replay import logged_outputs
from etviz.evidence.dataset import why_not
from etviz.evidence.running import BUFFER, NAMING, Running, operators_of
from etviz.evidence.subject import Subject, arguments_of, subject_of
from etviz.graph.ir import Graph
from etviz.graph.uses import Uses, is_stateful
from etviz.inspection import Inspection
from etviz.loading.paired import HANDLES, Paired
from etviz.pipeline.recipe import Recipe
from etviz.pipeline.recipe import lowering as arguments
from etviz.pipeline.relower import own_copy
from etviz.tensors.blocks import whole
from etviz.tensors.digest import bits, digest
from etviz.text import printable

_TOGETHER: Final = 25
"""Maximum number of runs of one load, so that differences between loads show as well."""
KEPT: Final = 8
_LANES: Final = (64, 32, 16, 8, 4)
_COLUMNS: Final = (
    *("instruction", "name", "kind", "op", "backend", "reference_ops", "module", "source", "runs", "varied"),
    *("origin", "deviating", "share", "low", "high", "distinct", "differing", "elements", "max_abs", "where"),
)


class Census:
    """Many runs of one input; made by `etviz.census`."""

    def __init__(self, tally: _Tally, graph: Graph, runs: int, exact: bool) -> None:
        self.runs = runs
        self._tally, self._graph, self._exact = tally, graph, exact
        self._table = _table(tally, graph, exact)

    @property
    def table(self) -> pd.DataFrame:
        """A row for each instruction that logged a value.

        Returns
        -------
        DataFrame
            ``instruction`` and the columns that name it; number of ``runs`` that executed it; ``varied``; ``origin``,
            true if it varied in a run in which all values that it reads were as usual (None if the files do not tell
            what it reads); number of ``deviating`` runs, without its most frequent value; their ``share`` and its 95 %
            interval from ``low`` to ``high`` (E. B. Wilson, 1927; it also bounds runs that were missed); number of
            ``distinct`` values; number of ``differing`` elements of its ``elements``; ``max_abs``, the largest
            difference from the first run in the value's units; ``where`` they differ.
        """
        return self._table.copy()

    @property
    def varying(self) -> int:
        """Number of instructions whose value was not the same in all runs."""
        return int(self._table["varied"].sum())

    @property
    def first(self) -> pd.Series | None:
        """The row of the first instruction that varied, in program order, or None."""
        varied = self._table[self._table["varied"]]
        return varied.iloc[0] if len(varied) else None

    @property
    def deviating(self) -> list[int]:
        return self._tally.deviating()

    @property
    def kept(self) -> list[int]:
        """Runs whose values are kept: the first, and the first few that differ from it."""
        return sorted({run for run, _ in self._tally.values})

    def tensors(self, instruction: int, run: int) -> list[torch.Tensor]:
        """The values of an instruction of `table` in one of the `kept` runs.

        Raises `UsageError` if the run's values were not kept, or the instruction logged none.
        """
        if instruction not in self._tally.digests:
            raise UsageError(f"no instruction {instruction!r} logged a value; see table")
        if run not in self.kept:
            raise UsageError(f"the values of run {run!r} were not kept; kept are {self.kept}")
        values = self._tally.values.get((run, instruction))
        return list(self._tally.values[0, instruction] if values is None else values)

    def summary(self) -> str:
        """The number of varying instructions, and the first of them."""
        count = len(self._table)
        if self.first is None:
            high = float(self._table["high"].max()) if count else math.nan
            return (
                f"{self.runs} runs of {count} instruction{'s' * (count != 1)} gave the same bits. A variation in more "
                f"than {100 * high:.2g} % of all runs would have been seen (95 % confidence)."
            )
        row = self.first
        lines = [f"{self.varying} of {count} instructions varied in {len(self.deviating)} of {self.runs} runs."]
        lines.append(
            f"First: #{int(row['instruction'])} {row['name']}, {int(row['deviating'])} runs deviate "
            f"({100 * row['share']:.3g} %, 95 % interval {100 * row['low']:.3g} to {100 * row['high']:.3g} %), "
            f"{int(row['distinct'])} different values; {row['where']}."
        )
        return printable("\n".join(lines))

    def __repr__(self) -> str:
        return f"<Census>\n{self.summary()}"


@during("counting equal runs")
def census(
    program: Any,
    inputs: Sequence[Any],
    n: int = 100,
    *,
    recipe: Recipe | str | None = None,
    method: str | None = None,
    runner: str | None = None,
    timeout: float | None = None,
    partitioner: Sequence[Any] | None = None,
    quantizer: Any = None,
    calibration: Iterable[Sequence[Any]] | None = None,
) -> Census:
    """Run a program n times on one input, and compare the values of every instruction bit by bit.

    Parameters
    ----------
    program
        As for `etviz.study`; a `.pte` without a record works too.
    inputs
        A tuple of the program's arguments.
    n
        The program is loaded again after 25 runs, or after each run if it has a state.
    method
        None for ``forward`` or the only one.
    runner
        Command that runs the program, as for ``etviz run --runner``, for backends that executorch's Python bindings
        lack.
    timeout
        Seconds for the runs of one load, 600 if None.
    recipe, partitioner, quantizer, calibration
        As for `etviz.debug`.

    Raises
    ------
    ExecutionError
        If a run fails or logs nothing.
    """
    count = whole(n, "n")
    if count < 2:
        raise UsageError(f"n must be 2 or more, found {n}")
    if not isinstance(inputs, (tuple, list)):
        raise UsageError(f"inputs must be a tuple of the program's arguments, found {type(inputs).__name__}")
    lowering = arguments(recipe, partitioner=partitioner, quantizer=quantizer, calibration=calibration)
    with Scratch() as scratch:
        example = arguments_of(program, inputs) if not isinstance(program, Inspection) else None
        subject = subject_of(program, example, Path(scratch) / "lowered", method, **lowering)
        subject = subject if runner is None else replace(subject, runner=runner)
        values = tree_leaves(tuple(inputs))
        known = bool({"record", "etrecord"} & subject.files.keys())
        if known and (problem := why_not(values, subject.graph().user_inputs())):
            raise UsageError(f"inputs do not fit the program: {problem}")
        return count_runs(subject, values, count, timeout)


def count_runs(subject: Subject, values: Sequence[Any], n: int, timeout: float | None = None) -> Census:
    tally, running = _Tally(), Running(subject)
    with tqdm(total=n, desc="census", leave=False, delay=1, unit="run") as bar:
        while bar.n < n:
            ran = running.run([values] * min(_together(running), n - bar.n), timeout)
            with ran.folder:
                for at, (_, block) in enumerate(ran.paired.executions):
                    tally.add(bar.n + at, _logged(ran.paired, RuntimeLog(block, ran.paired.artifacts.buffer)))
            bar.update(len(ran.inputs))
    paired = running.base
    if paired is None or not tally.digests:
        raise ExecutionError("The runtime logged no value: the program was built without event tracing")
    return Census(tally, paired.graph, n, paired.pairing != HANDLES)


def _together(running: Running) -> int:
    paired = running.base
    if paired is None or paired.pairing == HANDLES or is_stateful(paired.graph):
        return 1
    return max(1, min(_TOGETHER, BUFFER // max(running.subject.buffer_bytes, 1)))


def _logged(paired: Paired, log: RuntimeLog) -> dict[int, list[Any]]:
    nodes = paired.graph.by_instruction()
    logged = {}
    for instruction in log.instructions:
        node = nodes.get(instruction)
        outputs = logged_outputs(log, node) if node is not None else None
        values = log.values(instruction) if outputs is None else outputs
        if values:
            logged[instruction] = values
    return logged


class _Tally:
    def __init__(self) -> None:
        self.digests: dict[int, dict[int, bytes]] = {}
        self.masks: dict[int, list[npt.NDArray[np.bool_] | None]] = {}
        self.values: dict[tuple[int, int], list[Any]] = {}
        self.largest: dict[int, float] = {}
        self._keeping: set[int] = set()

    def add(self, run: int, logged: dict[int, list[Any]]) -> None:
        for instruction, values in logged.items():
            digests = self.digests.setdefault(instruction, {})
            digests[run] = digest(values)
            first = self.values.get((0, instruction))
            if first is None:
                if run == 0:
                    self.values[0, instruction] = list(map(own_copy, values))
                continue
            if digests[run] != digests[0]:
                self._compare(instruction, first, values)
                if run in self._keeping or len(self._keeping) < KEPT:
                    self._keeping.add(run)
                    self.values[run, instruction] = list(map(own_copy, values))

    def _compare(self, instruction: int, first: Sequence[Any], values: Sequence[Any]) -> None:
        masks = self.masks.setdefault(instruction, [None] * len(first))
        for at, (a, b) in enumerate(zip(first, values, strict=False)):
            if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
                continue
            if a.shape != b.shape or a.dtype != b.dtype:
                masks[at] = np.ones(tuple(a.shape), bool)
                continue
            differs = bits(a) != bits(b)
            known = masks[at]
            masks[at] = differs if known is None else known | differs
            distance = (a.double() - b.double()).abs() if not a.is_complex() else (a - b).abs()
            finite = distance[torch.isfinite(distance)]
            largest = float(finite.max()) if finite.numel() else math.nan
            self.largest[instruction] = float(np.fmax(self.largest.get(instruction, 0.0), largest))

    def odd_runs(self, instruction: int) -> set[int]:
        digests = self.digests[instruction]
        usual = Counter(digests[run] for run in sorted(digests)).most_common(1)[0][0]
        return {run for run, digest in digests.items() if digest != usual}

    def deviating(self) -> list[int]:
        return sorted(set().union(*(self.odd_runs(instruction) for instruction in self.digests)))


def _table(tally: _Tally, graph: Graph, exact: bool) -> pd.DataFrame:
    names = {row["instruction"]: row for row in reversed(operators_of(graph))}
    odd = {number: tally.odd_runs(number) for number in tally.digests}
    readers = _producers(graph) if exact else {}
    rows = []
    for number in sorted(tally.digests):
        digests = tally.digests[number]
        deviating, runs = len(odd[number]), len(digests)
        low, high = wilson(deviating, runs)
        about: dict[str, Any] = {"instruction": number, "runs": runs, "varied": deviating > 0}
        about |= names.get(number) or dict.fromkeys(NAMING, "")
        about |= {"deviating": deviating, "share": deviating / runs, "low": low, "high": high}
        about["distinct"] = len(set(digests.values()))
        about["origin"] = None
        if exact and number in names:
            before = set[int]().union(*(odd.get(producer, set()) for producer in readers.get(number, ())))
            about["origin"] = bool(odd[number] - before)
        masks = [mask for mask in tally.masks.get(number, []) if mask is not None]
        sizes = [value.numel() for value in tally.values.get((0, number), ()) if isinstance(value, torch.Tensor)]
        about["differing"], about["elements"] = sum(int(mask.sum()) for mask in masks), sum(sizes)
        about["max_abs"] = tally.largest.get(number, 0.0)
        about["where"] = "; ".join(filter(None, map(where, masks)))
        rows.append(about)
    return pd.DataFrame(rows, columns=list(_COLUMNS))


def _producers(graph: Graph) -> dict[int, set[int]]:
    producers: dict[int, set[int]] = {}
    uses, reached = Uses(graph), dict[str, set[int]]()
    for node in graph.nodes:
        before: set[int] = set()
        for name in node.reads():
            maker = uses.nodes.get(uses.value(name)[0])
            if maker is not None:
                before |= {maker.instruction} if maker.instruction >= 0 else reached.get(maker.name, set())
        reached[node.name] = before
        if node.instruction >= 0:
            producers[node.instruction] = before
        for branch in graph.branches(node):
            producers |= {number: inner | before for number, inner in _producers(branch).items()}
    return producers


def where(mask: npt.NDArray[np.bool_]) -> str:
    """Indices of each axis, and a shared position of a vector.

    Examples
    --------
    >>> mask = np.zeros((8, 16), bool)
    >>> mask[:, 3::8] = True
    >>> where(mask)
    '16 of 128 elements: axis 1 at 2 of 16 indices; position 3 of every 8'
    """
    count = int(mask.sum())
    if not count:
        return ""
    parts = []
    for axis in range(mask.ndim):
        others = tuple(other for other in range(mask.ndim) if other != axis)
        hit = np.flatnonzero(mask.any(axis=others))
        if len(hit) == mask.shape[axis]:
            continue
        if len(hit) == 1:
            parts.append(f"axis {axis} at {hit[0]}")
        elif hit[-1] - hit[0] + 1 == len(hit):
            parts.append(f"axis {axis} at {hit[0]} to {hit[-1]}")
        else:
            parts.append(f"axis {axis} at {len(hit)} of {mask.shape[axis]} indices")
    positions = np.flatnonzero(mask.reshape(-1))
    for lanes in _LANES:
        if count > 1 and mask.size >= 2 * lanes and len(set((positions % lanes).tolist())) == 1:
            parts.append(f"position {positions[0] % lanes} of every {lanes}")
            break
    return f"{count} of {mask.size} elements" + (": " + "; ".join(parts) if parts else ", all over the tensor")


def wilson(hits: int, count: int, z: float = 1.959963984540054) -> tuple[float, float]:
    """The 95 % interval of a share (E. B. Wilson, "Probable inference, the law of succession, …", 1927).

    Examples
    --------
    >>> tuple(round(bound, 4) for bound in wilson(23, 100))
    (0.1584, 0.3215)
    """
    share = hits / count
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count)) / (1 + z * z / count)
    return max(0.0, middle - half) if hits else 0.0, min(1.0, middle + half) if hits < count else 1.0
