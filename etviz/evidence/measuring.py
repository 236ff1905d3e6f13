"""A chunk of a study, run and compared with the reference, in any process."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from etviz.analysis.tasks import measured
from etviz.artifacts.files import collection_paused
from etviz.artifacts.record.weights import CachedTensors
from etviz.comparison.final_outputs import compare_outputs
from etviz.comparison.gap import MISMATCH, NOT_COMPARED, ExecutionGaps
from etviz.comparison.gap_tables import metric_columns, nonfinite_columns
from etviz.comparison.judging import Judge, KnownNoise, is_doubtful
from etviz.errors import ArtifactError, EtvizError, in_a_line
from etviz.evaluation.evaluator import Evaluator
from etviz.evaluation.series import Series
from etviz.evidence.dataset import content, decode
from etviz.evidence.running import Ran, Running, operators_of
from etviz.evidence.subject import Subject
from etviz.explain.stages.stages import FLOAT, evaluated
from etviz.graph.uses import is_stateful
from etviz.loading.executions import compare_executions
from etviz.loading.foreign import Foreign
from etviz.loading.isolation import is_foreign
from etviz.loading.paired import Paired
from etviz.tensors.custom_metrics import CustomMetrics
from etviz.tensors.metrics import BUILT_IN, METRICS, NAN, Metric

FAILED, COMPARED = "failed", "compared"
WORST_BY: Final = ("severity", "introduced_severity", "rmse")
OUTPUT_METRICS: Final = ("rmse", "max_abs", "rel_l2", "sqnr_db", "severity")
FLOAT_METRICS: Final = ("rmse", "max_abs", "rel_l2", "sqnr_db")
"""Without the severity, since a quantized program rounds differently."""
_WHOLE: Final = dict.fromkeys(("instruction", "output"), np.int64)
_REAL: Final = dict.fromkeys(("noise", "introduced_noise"), float)
_OPENED: Final = 8
_NOISE: Final[dict[tuple[str, ...], KnownNoise]] = {}
"""By the hashes of a program, its method and the first inputs."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One input; `data` as `dataset.encode` gives it."""

    index: int
    name: str
    data: bytes
    label: Any = None


@dataclass(frozen=True, slots=True)
class Work:
    """A worker's task; the inputs `first` tell the noise of total gaps, `timeout` is seconds for all `samples`.

    A worker on another machine must see files with the same `digests` (SHA-256).
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
    """`gaps` has an item for each value of each input, `runs` a row for each input."""

    gaps: dict[str, npt.NDArray[Any]] = field(default_factory=dict)
    runs: list[dict[str, Any]] = field(default_factory=list)
    operators: list[dict[str, Any]] = field(default_factory=list)


def measure(work: Work, ahead: Future[Ran] | None = None) -> Measured:
    """An input that can't be run becomes a row with its reason."""
    opened = _open(work)
    pieces: list[Measured] = []
    groups = [[sample] for sample in work.samples] if opened.is_stateful else [list(work.samples)]
    groups = [group for group in groups if group]
    while groups:
        group = groups.pop(0)
        try:
            ran = ahead.result() if ahead is not None else opened.execute(group, work.timeout)
            with collection_paused(), ran.folder:
                pieces.append(_measure(opened, work, group, ran))
        except EtvizError as error:
            ahead = None
            if len(group) > 1:  # one input is at fault: each is run on its own
                groups[:0] = [[sample] for sample in group]
                continue
            pieces.append(
                Measured(_gap_table([], [], work), [failure(group[0].index, group[0].name, in_a_line(error))])
            )
    joined = _joined(pieces or [Measured(_gap_table([], [], work))])
    joined.operators = operators_of(opened.base.graph) if opened.base is not None else []
    return joined


def _joined(pieces: Sequence[Measured]) -> Measured:
    gaps = {name: np.concatenate([piece.gaps[name] for piece in pieces]) for name in pieces[0].gaps}
    order = np.lexsort((gaps["output"], gaps["instruction"], gaps["input"]))
    runs = sorted((row for piece in pieces for row in piece.runs), key=lambda row: row["input"])
    return Measured({name: values[order] for name, values in gaps.items()}, runs)


def failure(index: int, name: str, reason: str) -> dict[str, Any]:
    return {"input": index, "name": name, "status": FAILED, "reason": reason}


class _OpenProgram(Running):
    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self.is_stateful = is_stateful(subject.graph())
        self._float: Evaluator | None = None

    def floating(self, paired: Paired) -> Evaluator | None:
        if self._float is None and paired.has_float:
            self._float = paired.float_evaluator()
            self._float.constants = CachedTensors(self._float.constants)
        return self._float

    def execute(self, samples: Sequence[Sample], timeout: float | None, cancel: threading.Event | None = None) -> Ran:
        return self.run([decode(sample.data) for sample in samples], timeout, cancel)

    def noise(self, work: Work, samples: Sequence[Sample], ran: Ran) -> KnownNoise:
        key = tuple(content(sample.data) for sample in work.first)
        told = (*work.digests.values(), work.subject.method, *key)
        if told not in _NOISE:
            places = {content(sample.data): at for at, sample in enumerate(samples)}
            with ExitStack() as stack:
                pieces: list[Ran] = []
                if places.keys() >= set(key) and not ran.paired.shared_state():
                    pieces = [ran.of([places[name] for name in key])]
                for sample in work.first if not pieces else ():
                    with suppress(EtvizError):
                        pieces.append(self.execute([sample], work.timeout))
                        stack.enter_context(pieces[-1].folder)
                while len(_NOISE) >= _OPENED:
                    _NOISE.pop(next(iter(_NOISE)))
                _NOISE[told] = _noise(pieces, replace(work, introduced=False, metrics=()))
        return _NOISE[told]


def _noise(pieces: Sequence[Ran], work: Work) -> KnownNoise:
    compared: list[tuple[ExecutionGaps, Sequence[Any]]] = []

    def take(comparisons: Sequence[ExecutionGaps], inputs: Sequence[Sequence[Any]], _: Any) -> None:
        compared.extend(zip(comparisons, inputs, strict=True))

    for ran in pieces:
        with suppress(EtvizError):
            _compare(ran.paired, ran.inputs, work, take)
    if not compared:
        return KnownNoise()
    return KnownNoise.measured([c for c, _ in compared], [i for _, i in compared], pieces[0].paired.evaluator)


class Ahead:
    def __init__(self) -> None:
        self._thread, self._cancel = ThreadPoolExecutor(1, "etviz runs ahead"), threading.Event()
        self._runs: dict[int, Future[Ran]] = {}

    def begin(self, number: int, work: Work) -> None:
        opened = _open(work)
        if number not in self._runs and work.samples and not opened.is_stateful:
            self._runs[number] = self._thread.submit(opened.execute, work.samples, work.timeout, self._cancel)

    def take(self, number: int) -> Future[Ran] | None:
        return self._runs.pop(number, None)

    def __enter__(self) -> Ahead:
        return self

    def __exit__(self, *_: object) -> None:
        self._cancel.set()
        for run in self._runs.values():
            if not run.cancel() and run.exception() is None:
                run.result().folder.cleanup()
        self._thread.shutdown()


def _open(work: Work) -> _OpenProgram:
    return _opened(tuple(work.subject.files.items()), work.subject.method, tuple(work.digests.items()))


@lru_cache(maxsize=_OPENED)
def _opened(files: tuple[tuple[str, str], ...], method: str, digests: tuple[tuple[str, str], ...]) -> _OpenProgram:
    subject = Subject(dict(files), method)
    missing = [path for path in subject.files.values() if not Path(path).is_file()]
    if missing:
        raise ArtifactError(
            missing[0],
            f"this worker (process {os.getpid()}) does not see the file",
            "give the study a folder= that every worker sees",
        )
    present = subject.digests()
    for kind, expected in digests:
        if present.get(kind) != expected:
            raise ArtifactError(
                subject.files[kind],
                "it is not the file that the study began with",
                "begin another study, in another folder",
                expected=expected,
                found=present.get(kind),
            )
    return _OpenProgram(subject)


def _measure(opened: _OpenProgram, work: Work, samples: Sequence[Sample], ran: Ran) -> Measured:
    inputs = ran.inputs
    exacts: Sequence[Sequence[Any] | None] = [None] * len(inputs)
    if is_foreign(ran.paired.artifacts.named, ran_here=True):
        given, how = [tuple(values) for values in inputs], {"ran_here": True, "introduced": work.introduced}
        answer = Foreign(ran.paired).compare(given, None, CustomMetrics(work.metrics), how)
        compared, replay = [run.comparison for run in answer.runs], answer.replay
        if replay is not None and replay.fresh_float is not None:
            stages = evaluated(replay, FLOAT, list(range(len(inputs))))
            exacts = [None if stage.problem else stage.outputs for stage in stages]
    else:
        compared = _compare(ran.paired, inputs, work, _judge(opened, work, samples, ran))
        if (floating := opened.floating(ran.paired)) is not None:
            exacts = list(Series(floating).run(inputs))
    runs = [_run_row(*row, work) for row in zip(samples, compared, exacts, strict=True)]
    return Measured(_gap_table(samples, compared, work), runs)


def _judge(opened: _OpenProgram, work: Work, samples: Sequence[Sample], ran: Ran) -> Judge:
    def judge(
        comparisons: Sequence[ExecutionGaps], given: Sequence[Sequence[Any]], fresh: Callable[[], Evaluator]
    ) -> None:
        if any(is_doubtful(comparison) for comparison in comparisons):
            opened.noise(work, samples, ran).judge(comparisons, given, fresh)

    return judge


def _compare(paired: Paired, inputs: Sequence[Sequence[Any]], work: Work, judge: Judge) -> list[ExecutionGaps]:
    given, custom = [tuple(values) for values in inputs], CustomMetrics(work.metrics)
    result = compare_executions(paired, given, ran_here=True, introduced=work.introduced, custom=custom, judge=judge)
    return [run.comparison for run in result.runs]


def _gap_table(samples: Sequence[Sample], compared: Sequence[ExecutionGaps], work: Work) -> dict[str, npt.NDArray[Any]]:
    gaps = [gap for comparison in compared for gap in comparison.gaps]
    counts = [len(comparison.gaps) for comparison in compared]
    custom = [metric.name for metric in work.metrics]
    introduced = metric_columns([gap.introduced for gap in gaps], custom)
    columns = {"input": np.repeat(np.array([sample.index for sample in samples], np.int64), counts)}
    kinds: dict[str, Any] = {**_WHOLE, "status": object, **_REAL}
    columns |= {name: np.array([getattr(gap, name) for gap in gaps], kind) for name, kind in kinds.items()}
    columns |= metric_columns([gap.metrics for gap in gaps], custom) | nonfinite_columns(gaps)
    columns |= {f"introduced_{name}": values for name, values in introduced.items()}
    return {name: columns[name] for name in gap_columns(work.metrics)}


def _run_row(sample: Sample, comparison: ExecutionGaps, exact: Sequence[Any] | None, work: Work) -> dict[str, Any]:
    row: dict[str, Any] = {"input": sample.index, "name": sample.name, "status": COMPARED, "reason": ""}
    row |= {"content": content(sample.data), "compared": len(comparison.gaps)}
    row["nonfinite"] = sum(gap.status == MISMATCH for gap in comparison.gaps)
    rows = compare_outputs(
        comparison.reference_outputs, comparison.runtime_outputs, comparison.output_scales, comparison.output_noise
    )
    row |= {f"output_{name}": value for name, value in worst_output(rows, OUTPUT_METRICS).items()}
    known = [output for output in rows if output["status"] != NOT_COMPARED]
    if comparison.ill_defined:
        row["reason"] = "NaN or Inf was quantized, so the outputs can't be judged"
    row["matches"] = all(output["matches"] is True or output["matches"] == 1.0 for output in known) if known else None
    if exact is not None:
        against_float = worst_output(compare_outputs(exact, comparison.runtime_outputs, []), FLOAT_METRICS)
        row |= {f"float_{name}": value for name, value in against_float.items()}
    ranked = [gap for gap in comparison.gaps if gap.introduced is not None]
    worst = max(ranked, key=lambda gap: _badness(gap.introduced or {}), default=None)
    row["worst_instruction"] = worst.instruction if worst is not None else -1
    row["worst_introduced_severity"] = worst.introduced["severity"] if worst is not None and worst.introduced else NAN
    expected = exact if exact is not None else comparison.reference_outputs
    for name, task in work.tasks.items():
        row[name], problem = measured(task, expected, comparison.runtime_outputs, sample.label)
        if problem:
            row["reason"] = "; ".join(filter(None, (row["reason"], f"{name}: {problem}")))
    return row


def _badness(metrics: Mapping[str, float]) -> float:
    value = metrics.get("severity", NAN)
    return -1.0 if math.isnan(value) else value


def worst_output(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> dict[str, float]:
    worst = {}
    known = [row for row in rows if row["status"] != NOT_COMPARED]
    for name in names:
        higher = METRICS[name].higher_is_better
        values = [
            (-math.inf if higher else math.inf) if row["status"] == MISMATCH else float(row[name]) for row in known
        ]
        values = [value for value in values if not math.isnan(value)]
        worst[name] = (min(values) if higher else max(values)) if values else NAN
    return worst


def gap_columns(metrics: Sequence[Metric]) -> list[str]:
    names = [*BUILT_IN, *(metric.name for metric in metrics)]
    counts = ["reference_nan", "reference_inf", "runtime_nan", "runtime_inf"]
    introduced = [f"introduced_{name}" for name in names]
    return ["input", "instruction", "output", "status", *names, "noise", *counts, *introduced, "introduced_noise"]


def run_columns(tasks: Mapping[str, Any]) -> list[str]:
    outputs = [f"output_{name}" for name in OUTPUT_METRICS] + [f"float_{name}" for name in FLOAT_METRICS]
    return [
        *("input", "name", "status", "reason", "content", "compared", "nonfinite", "matches"),
        *outputs,
        *("worst_instruction", "worst_introduced_severity"),
        *tasks,
    ]
