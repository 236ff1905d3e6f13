"""Some inputs, run and compared: the piece of work that a study is made of, wherever it is done."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from etviz.artifacts.record.weights import Held
from etviz.artifacts.scratch import Scratch
from etviz.comparison.gap import MISMATCH, NOT_COMPARED
from etviz.comparison.noise import KnownNoise, is_doubtful
from etviz.comparison.outputs import compare_outputs
from etviz.errors import ArtifactError, EtvizError, ExecutionError
from etviz.evaluation import side_by_side
from etviz.evaluation.interpreter import Prepared
from etviz.evidence.dataset import content, decode
from etviz.evidence.subject import Subject
from etviz.loading.executions import compare_executions
from etviz.tensors.custom_metrics import CustomMetrics
from etviz.tensors.metrics import BUILT_IN, METRICS, NAN, Metric

if TYPE_CHECKING:
    from collections.abc import Callable

    from etviz.comparison.gap import Comparison, Gap
    from etviz.comparison.noise import Judge
    from etviz.evaluation.evaluator import Evaluator
    from etviz.loading.paired import Paired

FAILED, COMPARED = "failed", "compared"
WORST_BY: Final = ("severity", "introduced_severity", "rmse")
"""Metrics by which the worst input of each operator is kept, to be opened again."""
OUTPUT_METRICS: Final = ("rmse", "max_abs", "rel_l2", "sqnr_db", "severity")
"""Metrics of the final outputs that a run has, the worst output's each."""
FLOAT_METRICS: Final = ("rmse", "max_abs", "rel_l2", "sqnr_db")
"""The same against the float model, whose rounding is not what a quantized program is measured by."""
_OPENED: Final = 8


@dataclass(frozen=True, slots=True)
class Sample:
    """One input on its way to the runtime: its number, its name, its bytes (`dataset.encode`), its label."""

    index: int
    name: str
    data: bytes
    label: Any = None


@dataclass(frozen=True, slots=True)
class Work:
    """What is asked of a worker.

    Attributes
    ----------
    subject, digests
        The program, and the SHA-256 of its files: a worker on another machine must see the same ones.
    samples
        The inputs.
    first
        The first inputs of the study, on which the noise of total gaps is measured.
    introduced
        Also replay every instruction on the runtime's inputs.
    metrics
        Those that users registered.
    tasks
        Task metrics by name.
    timeout
        Seconds for running the program on these inputs.
    """

    subject: Subject
    digests: Mapping[str, str]
    samples: tuple[Sample, ...]
    first: tuple[Sample, ...] = ()
    introduced: bool = True
    metrics: tuple[Metric, ...] = ()
    tasks: Mapping[str, Any] = field(default_factory=dict)
    timeout: float | None = None


@dataclass(slots=True)
class Measured:
    """What a worker found: rows of `study.GAPS` and `study.RUNS`, each a list of dictionaries."""

    gaps: list[dict[str, Any]] = field(default_factory=list)
    runs: list[dict[str, Any]] = field(default_factory=list)


def measure(work: Work) -> Measured:
    """Run the program on some inputs and compare every run; an input that can't be run is a row with its reason."""
    subject = work.subject
    opened = _opened(tuple(subject.files.items()), subject.method, tuple(work.digests.items()))
    measured = Measured()
    alone = opened.is_stateful
    groups = [[sample] for sample in work.samples] if alone else [list(work.samples)]
    while groups:
        group = groups.pop(0)
        try:
            _measure(opened, work, group, measured)
        except EtvizError as error:
            if len(group) > 1:  # one of them is at fault: each by itself tells which
                groups[:0] = [[sample] for sample in group]
                continue
            measured.runs.append(failure(group[0].index, group[0].name, _line(error)))
    measured.runs.sort(key=lambda row: row["input"])
    measured.gaps.sort(key=lambda row: (row["input"], row["instruction"], row["output"]))
    return measured


def failure(index: int, name: str, reason: str) -> dict[str, Any]:
    """The row of an input that could not be run."""
    return {"input": index, "name": name, "status": FAILED, "reason": reason}


class _Opened:
    """A program that this process has opened: what later runs of it need not read again."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.base: Paired | None = None
        self._float: Evaluator | None = None
        self._noise: dict[tuple[str, ...], KnownNoise] = {}
        self.is_stateful = _is_stateful(subject)

    def floating(self, paired: Paired) -> Evaluator | None:
        """The float model that it was quantized from, None where it is not known."""
        if self._float is None and paired.has_float:
            self._float = paired.float_evaluator()
            self._float.constants = Held(self._float.constants)
        return self._float

    def run(self, inputs: Sequence[Sequence[Any]], folder: Path, timeout: float | None) -> Paired:
        """Executions of the program, paired with its instructions.

        Raises
        ------
        ExecutionError
            If the program fails, or is executed another number of times.
        """
        paired = self.subject.pair(self.subject.run(inputs, folder, timeout), self.base)
        if self.base is None:
            if paired.has_reference:
                paired = replace(paired, constants=Held(paired.evaluator().constants), prepared=Prepared())
            self.base = paired
        if len(paired.executions) != len(inputs):
            raise ExecutionError(f"{len(inputs)} inputs gave {len(paired.executions)} executions")
        return paired

    def noise(self, work: Work) -> KnownNoise:
        """What the first inputs of the study tell of the noise of total gaps; those that can't be run tell nothing."""
        key = tuple(content(sample.data) for sample in work.first)
        if key not in self._noise:
            ran: list[tuple[Comparison, Sequence[Any]]] = []

            def take(found: Sequence[Comparison], inputs: Sequence[Sequence[Any]], _: Any) -> None:
                ran.extend(zip(found, inputs, strict=True))

            plain = replace(work, introduced=False, metrics=())
            known, paired = KnownNoise(), None
            with Scratch() as folder:
                for sample in work.first:
                    values = decode(sample.data)
                    (own := Path(folder) / str(sample.index)).mkdir()
                    with suppress(EtvizError):
                        paired = self.run([values], own, work.timeout)
                        _compare(paired, [values], plain, take)
                if paired is not None:
                    known = KnownNoise.measured([c for c, _ in ran], [i for _, i in ran], paired.evaluator)
            self._noise[key] = known
        return self._noise[key]


@lru_cache(maxsize=_OPENED)
def _opened(files: tuple[tuple[str, str], ...], method: str, digests: tuple[tuple[str, str], ...]) -> _Opened:
    subject = Subject(dict(files), method)
    missing = [path for path in subject.files.values() if not Path(path).is_file()]
    if missing:
        raise ArtifactError(
            missing[0],
            f"this worker (process {os.getpid()}) does not see the file",
            "give the study a folder= that every worker sees",
        )
    found = subject.digests()
    for kind, expected in digests:
        if found.get(kind) != expected:
            raise ArtifactError(
                subject.files[kind],
                "it is not the file that the study was started with",
                "start another study, in another folder",
                expected=expected,
                found=found.get(kind),
            )
    return _Opened(subject)


def _is_stateful(subject: Subject) -> bool:
    """True if executions change buffers, so that each input needs a program that was loaded afresh."""
    from etviz.artifacts.record.etrecord import ETRecord
    from etviz.artifacts.record.record_file import read_record

    if "record" in subject.files:
        return bool(read_record(subject.files["record"]).graphs[subject.method].mutations)
    return bool(ETRecord(subject.files["etrecord"]).edge_graph(subject.method).mutations)


def _measure(opened: _Opened, work: Work, samples: Sequence[Sample], measured: Measured) -> None:
    inputs = [decode(sample.data) for sample in samples]
    with Scratch() as folder:
        paired = opened.run(inputs, Path(folder), work.timeout)
        floating = opened.floating(paired)
        gaps, runs = [], []

        def judge(found: Sequence[Comparison], given: Sequence[Sequence[Any]], fresh: Callable[[], Evaluator]) -> None:
            if any(is_doubtful(item) for item in found):
                opened.noise(work).judge(found, given, fresh)

        compared = _compare(paired, inputs, work, judge)
        exacts = side_by_side.outputs(floating, inputs) if floating is not None else [None] * len(inputs)
        for sample, comparison, exact in zip(samples, compared, exacts, strict=True):
            gaps += [_gap_row(sample.index, gap) for gap in comparison.gaps]
            runs.append(_run_row(sample, comparison, exact, work))
    measured.gaps += gaps
    measured.runs += runs


def _compare(paired: Paired, inputs: Sequence[Sequence[Any]], work: Work, judge: Judge) -> list[Comparison]:
    """Each execution by itself: what one gives does not depend on those that ran beside it."""
    given, custom = [tuple(values) for values in inputs], CustomMetrics(work.metrics)
    found = compare_executions(paired, given, ran_here=True, introduced=work.introduced, custom=custom, judge=judge)
    return [run.comparison for run in found.runs]


def _gap_row(index: int, gap: Gap) -> dict[str, Any]:
    row: dict[str, Any] = {"input": index, "instruction": gap.instruction, "output": gap.output, "status": gap.status}
    row |= gap.metrics | {"noise": gap.noise} | gap.total.nonfinite()
    row |= {f"introduced_{name}": value for name, value in (gap.introduced or {}).items()}
    return row | {"introduced_noise": gap.introduced_noise}


def _run_row(sample: Sample, comparison: Comparison, exact: Sequence[Any] | None, work: Work) -> dict[str, Any]:
    row: dict[str, Any] = {"input": sample.index, "name": sample.name, "status": COMPARED, "reason": ""}
    row |= {"content": content(sample.data), "compared": len(comparison.gaps)}
    row["nonfinite"] = sum(gap.status == MISMATCH for gap in comparison.gaps)
    rows = compare_outputs(
        comparison.reference_outputs, comparison.runtime_outputs, comparison.output_scales, comparison.output_noise
    )
    row |= _worst_output(rows, "output", OUTPUT_METRICS)
    known = [item for item in rows if item["status"] != NOT_COMPARED]
    row["matches"] = all(item["matches"] is True or item["matches"] == 1.0 for item in known) if known else None
    if exact is not None:
        row |= _worst_output(compare_outputs(exact, comparison.runtime_outputs, []), "float", FLOAT_METRICS)
    ranked = [gap for gap in comparison.gaps if gap.introduced is not None]
    worst = max(ranked, key=lambda gap: _badness(gap.introduced or {}), default=None)
    row["worst_instruction"] = worst.instruction if worst is not None else -1
    row["worst_introduced_severity"] = worst.introduced["severity"] if worst is not None and worst.introduced else NAN
    expected = exact if exact is not None else comparison.reference_outputs
    for name, task in work.tasks.items():
        row[name], problem = _task(task, expected, comparison.runtime_outputs, sample.label)
        if problem:
            row["reason"] = "; ".join(filter(None, (row["reason"], f"{name}: {problem}")))
    return row


def _badness(metrics: Mapping[str, float]) -> float:
    value = metrics.get("severity", NAN)
    return -1.0 if math.isnan(value) else value


def _worst_output(rows: Sequence[Mapping[str, Any]], prefix: str, names: Sequence[str]) -> dict[str, float]:
    """The worst number of any final output, metric by metric; infinitely bad where NaN or Inf came up."""
    worst = {}
    known = [row for row in rows if row["status"] != NOT_COMPARED]
    for name in names:
        higher = METRICS[name].higher_is_better
        values = [
            (-math.inf if higher else math.inf) if row["status"] == MISMATCH else float(row[name]) for row in known
        ]
        values = [value for value in values if not math.isnan(value)]
        worst[f"{prefix}_{name}"] = (min(values) if higher else max(values)) if values else NAN
    return worst


def _task(task: Any, expected: Sequence[Any], found: Sequence[Any], label: Any) -> tuple[float, str]:
    try:
        return float(task(expected, found, label)), ""
    except Exception as error:  # noqa: BLE001 - a user's function fails in its own way
        return NAN, " ".join(f"{type(error).__name__}: {error}".split())[:200]


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:500]


def gap_columns(metrics: Sequence[Metric]) -> list[str]:
    """The columns of a study's gap rows, in order."""
    names = [*BUILT_IN, *(metric.name for metric in metrics)]
    counts = ["reference_nan", "reference_inf", "runtime_nan", "runtime_inf"]
    introduced = [f"introduced_{name}" for name in names]
    return ["input", "instruction", "output", "status", *names, "noise", *counts, *introduced, "introduced_noise"]


def run_columns(tasks: Mapping[str, Any]) -> list[str]:
    """The columns of a study's rows by input, in order."""
    outputs = [f"output_{name}" for name in OUTPUT_METRICS] + [f"float_{name}" for name in FLOAT_METRICS]
    return [
        *("input", "name", "status", "reason", "content", "compared", "nonfinite", "matches"),
        *outputs,
        *("worst_instruction", "worst_introduced_severity"),
        *tasks,
    ]
