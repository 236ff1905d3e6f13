"""Reads a study: every metric of every operator as a distribution over the inputs, and the worst inputs.

Results are in the order of the inputs, so workers and interruptions do not change them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from etviz.analysis.analysis import Analysis
from etviz.artifacts.files import open_artifact
from etviz.comparison.gap import MISMATCH
from etviz.errors import ArtifactError, UsageError, during
from etviz.evidence.dataset import content, decode, encode, entries, why_not
from etviz.evidence.measuring import COMPARED, FAILED, run_columns
from etviz.evidence.running import NAMING
from etviz.evidence.store import Store, require_parquet
from etviz.evidence.subject import Subject, inspect_run
from etviz.graph.ir import Input
from etviz.inspection import Inspection
from etviz.tensors.metrics import METRICS, NAN, THRESHOLD, figure
from etviz.text import one_line, printable

_VALUES: Final = 64 << 20
"""Maximum number of numbers in memory while statistics are computed."""
_EXPLAINED: Final = ": precision explains it"
STATISTICS: Final = ("inputs", "mean", "min", "p50", "p99", "max", "worst", "worst_input", "nonfinite")


class Study:
    """A program over many inputs; made by `etviz.study`, and by `Study.open` from its folder.

    Attributes
    ----------
    made
        The model and the arguments that it was lowered with; empty if a program was given.
    """

    def __init__(self, store: Store, source: Any = None, made: Mapping[str, Any] | None = None) -> None:
        self._store, self._source = store, source
        self.folder = store.folder
        self.made: Mapping[str, Any] = made or {}

    @classmethod
    def open(cls, folder: str | Path) -> Study:
        """Open a finished or interrupted study; `ArtifactError` if the folder holds none."""
        store = Store(folder)
        if not store.about():
            raise ArtifactError(folder, "there is no study in it", "give a folder that etviz.study() wrote")
        if "options" in store.about():
            advice = "call etviz.study() with its arguments and this folder=: finished prompts are not run again"
            raise ArtifactError(folder, "it is a study over prompts", advice)
        require_parquet()
        return cls(store)

    @cached_property
    @during("reading the study")
    def inputs(self) -> pd.DataFrame:
        """A row for each input.

        Returns
        -------
        DataFrame
            Index ``input``, its number. ``name``; ``status`` (``compared`` or ``failed``) and ``reason``; number of
            ``compared`` and ``nonfinite`` values; ``matches``, true if all final outputs are within tolerance of the
            reference; ``output_…``, metrics of the worst final output against the reference; ``float_…``, the same
            against the float model that was quantized, if known; the instruction that introduced most, and its
            severity; the task metrics.
        """
        return self._rows.drop(columns=["content", "chunk"])

    @cached_property
    def _rows(self) -> pd.DataFrame:
        columns = run_columns(dict.fromkeys(self._store.about().get("tasks", ())))
        frames = [frame.assign(chunk=number) for number, frame in self._store.runs(columns)]
        rows = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=[*columns, "chunk"])
        rows["matches"] = rows["matches"].astype("boolean")
        return rows.set_index("input")

    @cached_property
    @during("reading the study")
    def table(self) -> pd.DataFrame:
        """The distribution of every metric of every operator over the inputs.

        Returns
        -------
        DataFrame
            A row for each output of each instruction and each metric (total and ``introduced_…``): columns that
            name the operator; ``metric``; ``inputs``, the number of inputs with a number; their ``mean, min, p50,
            p99, max`` in the metric's unit (quantiles by nearest rank); ``worst`` and ``worst_input``;
            ``nonfinite``, the number of inputs with NaN or Inf on one side only, which are worst of all.
        """
        names = [*self._store.about().get("metrics", ()), "noise"]
        names = [*names, *(f"introduced_{name}" for name in names)]
        records = [row for values in self._pieces(names) for row in self._statistics(values, names)]
        return pd.DataFrame(records, columns=["instruction", "output", *NAMING, "metric", *STATISTICS])

    def _pieces(self, names: Sequence[str]) -> Iterator[pd.DataFrame]:
        wanted = ["input", "instruction", "output", "status", *names]
        if self._rows.empty:
            return
        counts = pd.concat([part["instruction"].value_counts() for part in self._store.gaps(["instruction"])])
        counts = counts.groupby(level=0).sum().sort_index()
        rounds = -(-int(counts.sum()) * len(wanted) // _VALUES)
        for instructions in np.array_split(counts.index.to_numpy(), max(1, min(len(counts), rounds))):
            parts = self._store.gaps(wanted)
            yield pd.concat([part[part["instruction"].isin(instructions)] for part in parts], ignore_index=True)

    def _statistics(self, values: pd.DataFrame, names: Sequence[str]) -> Iterator[dict[str, Any]]:
        instructions, outputs = values["instruction"].to_numpy(), values["output"].to_numpy()
        order = np.lexsort((outputs, instructions))
        keys = np.stack([instructions[order], outputs[order]], 1)
        starts = np.flatnonzero(np.r_[True, (keys[1:] != keys[:-1]).any(1)][: len(keys)])
        inputs = values["input"].to_numpy()[order]
        mismatched = (values["status"] == MISMATCH).to_numpy(bool)[order]
        columns = {name: values[name].to_numpy(np.float64)[order] for name in names}
        for start, end in itertools.pairwise([*starts, len(keys)]):
            span = slice(start, end)
            named = self._named((int(keys[start, 0]), int(keys[start, 1])))
            for name, column in columns.items():
                statistics = _describe(inputs[span], column[span], mismatched[span], name)
                if statistics["inputs"] or statistics["nonfinite"]:
                    yield {**named, "metric": name, **statistics}

    def _named(self, key: tuple[int, int]) -> dict[str, Any]:
        naming = self._operators.get(key) or self._operators.get((key[0], 0), dict.fromkeys(NAMING, ""))
        return {**naming, "instruction": key[0], "output": key[1]}

    @cached_property
    def _operators(self) -> dict[tuple[int, int], dict[str, Any]]:
        rows = self._store.table("operators.parquet").to_dict("records")
        return {(int(row["instruction"]), int(row["output"])): {str(k): v for k, v in row.items()} for row in rows}

    @during("reading the study")
    def worst(self, n: int = 5, by: str = "introduced_severity") -> pd.DataFrame:
        """Rows of `table` with the worst inputs of one metric; `UsageError` if it does not exist."""
        rows = self.table[self.table["metric"] == by]
        if by.startswith("introduced_") and rows.empty:
            return self.worst(n, by.removeprefix("introduced_"))
        if rows.empty:
            raise UsageError(
                f"by must be a metric of the table, found {by!r}; there are {sorted(set(self.table['metric']))}"
            )
        return _ranked(rows, "worst", higher_is_better(by)).head(n)

    @during("reading the study")
    def worst_inputs(self, n: int = 5, by: str = "") -> pd.DataFrame:
        """Rows of `inputs`, worst first.

        Parameters
        ----------
        by
            A column of `inputs`, else `UsageError`. By default ``float_rmse``, the error against the float model, where
            it is known, and otherwise ``output_severity``. Higher task metrics are better, but for ``kl``.
        """
        rows = self.inputs[self.inputs["status"] == COMPARED]
        by = by or _worst_by(rows)
        if by not in rows:
            raise UsageError(f"by must be a column of inputs, found {by!r}; there are {', '.join(rows.columns)}")
        known = by.removeprefix("output_").removeprefix("float_")
        tasks = self._store.about().get("tasks", [])
        higher = METRICS[known].higher_is_better if known in METRICS else by in tasks and by != "kl"
        return _ranked(rows, by, higher).head(n)

    @during("running an input again")
    def open_input(self, index: int) -> Inspection:
        """Run one input again; the notes of the Inspection report numbers that differ from the study's.

        `index` is one of `kept`, or any input if the data set is still at hand; else `UsageError`. `ExecutionError` if
        the run fails.
        """
        inspection = inspect_run(self._store.subject(), self.values(index), f"input {index}")
        return self._checked(inspection, index)

    def _checked(self, inspection: Inspection, index: int) -> Inspection:
        before = self.gaps(index)
        now = inspection.analysis.tables.rows.set_index(["instruction", "output"])["rmse"]
        then = before.set_index(["instruction", "output"])["rmse"]
        if len(now) == len(then) and np.array_equal(now.to_numpy(), then.reindex(now.index).to_numpy(), equal_nan=True):
            return inspection
        findings = inspection.analysis.findings
        note = f"This run of input {index} has other numbers than the study: the program or the machine is not "
        note += "deterministic. etviz.census() shows where."
        return Inspection(Analysis(replace(findings, notes=(*findings.notes, note))))

    @during("reading the study")
    def gaps(self, index: int) -> pd.DataFrame:
        """The metrics of every value of one input, as in `Inspection.gaps`; `UsageError` if it does not exist."""
        self._require(index)
        (frame,) = self._store.gaps(only=int(self._rows["chunk"][int(index)]))
        return frame[frame["input"] == index].reset_index(drop=True)

    @property
    @during("reading the study")
    def kept(self) -> list[int]:
        return sorted(self._rows.index[self._rows["content"].isin(self._store.kept_names())].tolist())

    def _require(self, index: Any) -> None:
        if isinstance(index, bool) or not hasattr(index, "__index__") or int(index) not in self.inputs.index:
            raise UsageError(f"there is no input {index!r}; there are {len(self.inputs)}")

    @property
    def subject(self) -> Subject:
        return self._store.subject()

    @during("reading the study")
    def values(self, index: int) -> list[Any]:
        """The flat arguments of an input that the study keeps, or that the data set still has; else `UsageError`.

        `ArtifactError` if the kept file is damaged, or does not fit the program.
        """
        self._require(index)
        row = self.inputs.loc[int(index)]
        if row["status"] == FAILED:
            raise UsageError(f"input {index} could not be run: {row['reason']}")
        name = str(self._rows["content"][int(index)])
        kept = self._store.kept(name)
        if kept is not None:
            return self._read(kept)
        if self._source is not None and not isinstance(self._source, Iterator):
            for entry in entries(self._source, self._takes):
                if entry.index == index and not entry.problem and content(encode(entry.values)) == name:
                    return list(entry.values)
        raise UsageError(f"input {index} was not kept, only the worst ones are: {self.kept}")

    def _read(self, kept: Path) -> list[Any]:
        values: list[Any] = []
        try:
            values = decode(bytes(open_artifact(kept, "a kept input", "study again")))
            problem = why_not(values, self._takes)
        except (LookupError, ValueError, MemoryError) as error:
            problem = str(error) or "there is not enough memory"
        if problem:
            raise ArtifactError(kept, f"it is no input of the program ({problem})", "delete it, and study again")
        return values

    @cached_property
    def _takes(self) -> list[Input]:
        return self._store.subject().graph().user_inputs()

    @during("reading the study")
    def summary(self) -> str:
        """The state of the final outputs, the worst operator, the worst input."""
        rows = self.inputs
        failed, compared = int((rows["status"] == FAILED).sum()), rows[rows["status"] == COMPARED]
        lines = [f"{len(rows)} inputs: {len(compared)} compared, {failed} failed."]
        if len(compared):
            judged = compared["matches"].dropna()
            rest = f"; {len(compared) - len(judged)} can't be judged" if len(judged) < len(compared) else ""
            lines.append(f"The final outputs match their reference for {int(judged.sum())} of {len(judged)}{rest}.")
            for name in self._store.about().get("tasks", []):
                lines.append(
                    f"{name}: mean {compared[name].mean():.6g} over {int(compared[name].notna().sum())} inputs."
                )
            worst = self.worst(1)
            if len(worst):
                row = worst.iloc[0]
                named = f"{row['name']}, {row['metric']} {row['worst']:.3g} (input {row['worst_input']})"
                lines.append(f"Worst operator: {named}{self._judged(row)}.")
            by = _worst_by(compared)
            first = self.worst_inputs(1, by)
            if len(first):
                lines.append(f"Worst input: {first.index[0]} ({by} {figure(first[by].iloc[0])}).")
        for reason, count in rows.loc[rows["status"] == FAILED, "reason"].value_counts().head(3).items():
            lines.append(f"{count} failed: {reason}")
        return printable("\n".join(lines))

    def _judged(self, row: pd.Series[Any]) -> str:
        if row["nonfinite"]:
            return f": NaN or Inf on one side only for {row['nonfinite']} of the inputs"
        return _EXPLAINED if row["worst"] < THRESHOLD else ": more than precision explains"

    def __len__(self) -> int:
        return len(self.inputs)

    def __repr__(self) -> str:
        return f"<Study in {one_line(self.folder)}>\n{self.summary()}"


def _worst_by(rows: pd.DataFrame) -> str:
    return "float_rmse" if "float_rmse" in rows and rows["float_rmse"].notna().any() else "output_severity"


def _ranked(rows: pd.DataFrame, by: str, higher_is_better: bool) -> pd.DataFrame:
    order = rows.assign(_bad=rows["nonfinite"] > 0)
    order = order.sort_values(["_bad", by], ascending=[False, higher_is_better], kind="stable")
    return order.drop(columns="_bad")


def higher_is_better(name: str) -> bool:
    metric = METRICS.get(name.removeprefix("introduced_"))
    return metric.higher_is_better if metric is not None else False


def _describe(
    keys: npt.NDArray[np.int64], numbers: npt.NDArray[np.float64], bad: npt.NDArray[np.bool_], name: str
) -> dict[str, float | int]:
    known = ~np.isnan(numbers)
    ordered: npt.NDArray[np.float64] = np.sort(numbers[known])
    count = len(ordered)
    worst, at = NAN, -1
    if count:
        worst = float(ordered[0] if higher_is_better(name) else ordered[-1])
        at = int(keys[known & (numbers == worst)].min())
    if bad.any():
        at = int(keys[bad].min())
    with np.errstate(invalid="ignore"):
        mean = float(np.sum(ordered) / count) if count else NAN
    return {
        "inputs": count,
        "mean": mean,
        "min": float(ordered[0]) if count else NAN,
        "p50": _quantile(ordered, 0.5),
        "p99": _quantile(ordered, 0.99),
        "max": float(ordered[-1]) if count else NAN,
        "worst": worst,
        "worst_input": at,
        "nonfinite": int(bad.sum()),
    }


def _quantile(ordered: npt.NDArray[np.float64], share: float) -> float:
    return float(ordered[max(math.ceil(share * len(ordered)) - 1, 0)]) if len(ordered) else NAN
