"""A variant of a lowered model: its error, its latency, its size."""

from __future__ import annotations

import copy
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import torch
from torch.utils._pytree import tree_leaves

from etviz.artifacts.scratch import Scratch
from etviz.comparison.final_outputs import compare_outputs
from etviz.errors import UsageError
from etviz.evidence.measuring import FLOAT_METRICS, worst_output
from etviz.evidence.subject import Subject, subject_of
from etviz.pipeline.environment import interpreter, lower_elsewhere
from etviz.pipeline.environment_child import make
from etviz.tensors.metrics import NAN

Values = tuple[Any, ...]
LOWERING: Final = ("partitioner", "quantizer", "calibration", "strict")
ELSEWHERE: Final = ("python", "model")
NUMBERS: Final = (*FLOAT_METRICS, "worst_rmse", "latency_ms", "size_bytes")
ROUNDS: Final = 5
"""Rounds of latency measurement; the variants take turns in each."""
_EXECUTIONS: Final = 20


@dataclass(slots=True)
class Variant:
    """`outputs` are by input; `emulated` names the reference implementation that ran delegates."""

    subject: Subject
    outputs: list[list[Any]]
    numbers: dict[str, float] = field(default_factory=dict)
    emulated: str = ""


def float_outputs(model: Any, inputs: Sequence[Sequence[Any]]) -> list[list[Any]]:
    module = model.module() if hasattr(model, "graph_signature") else copy.deepcopy(model)  # a state stays as it is
    outputs = []
    with torch.no_grad():
        for at, values in enumerate(inputs):
            try:
                outputs.append(tree_leaves(module(*copy.deepcopy(tuple(values)))))
            except Exception as error:
                said = " ".join(str(error).split())
                raise UsageError(f"the model fails on input {at} ({type(error).__name__}: {said})") from error
    return outputs


def lower_variant(
    model: Any, inputs: Sequence[Sequence[Any]], folder: Path, lowering: Mapping[str, Any], timeout: float | None = None
) -> Subject:
    unknown = set(lowering) - {*LOWERING, *ELSEWHERE}
    if unknown:
        raise UsageError(f"a recipe has {', '.join((*LOWERING, *ELSEWHERE))}; found {', '.join(sorted(unknown))}")
    python, made_by = lowering.get("python"), lowering.get("model")
    if python is None and made_by is not None:
        raise UsageError("model= names a function of another environment; name its interpreter as well, python=")
    rest = {name: lowering[name] for name in LOWERING if lowering.get(name) is not None}
    if python is None:
        options = {name: make(value) if isinstance(value, str) else value for name, value in rest.items()}
        if "partitioner" in options and not isinstance(options["partitioner"], (list, tuple)):
            options["partitioner"] = [options["partitioner"]]
        return subject_of(copy.deepcopy(model), inputs[0], folder, None, **options)
    for name in ("partitioner", "quantizer"):
        if not isinstance(rest.get(name, ""), str):
            raise UsageError(
                f"{name}: objects of this executorch do not work in another one; name a callable that makes it, as "
                f'"package.module:name" or "file.py:name", found a {type(rest[name]).__name__}'
            )
    where = interpreter(python)
    files = lower_elsewhere(where, model, inputs[0], folder, made_by=made_by, timeout=timeout, **rest)
    return replace(subject_of(files["pte"], None, folder, None), title=type(model).__name__, python=where)


def run_variant(
    subject: Subject,
    inputs: Sequence[Sequence[Any]],
    expected: Sequence[Sequence[Any]],
    tasks: Mapping[str, Any],
    labels: Sequence[Any] | None = None,
    timeout: float | None = None,
) -> Variant:
    flat, instead = [tree_leaves(tuple(values)) for values in inputs], subject.emulators
    with Scratch() as folder:
        run = subject.emulate(flat, Path(folder), timeout) if instead else subject.execute(flat, timeout)
    pairs = zip(expected, run.outputs, strict=True)
    rows = [worst_output(compare_outputs(wanted, given, []), FLOAT_METRICS) for wanted, given in pairs]
    numbers = {name: _mean([row[name] for row in rows]) for name in FLOAT_METRICS}
    numbers["sqnr_db"] = mean_decibels([row["sqnr_db"] for row in rows])
    numbers["worst_rmse"] = max((row["rmse"] for row in rows if not math.isnan(row["rmse"])), default=NAN)
    for name, task in tasks.items():
        values = [
            float(task(wanted, given, labels[at] if labels is not None else None))
            for at, (wanted, given) in enumerate(zip(expected, run.outputs, strict=True))
        ]
        numbers[name] = statistics.fmean(values)
    numbers["size_bytes"] = float(subject.pte.stat().st_size)
    return Variant(subject, run.outputs, numbers, ", ".join(instead))


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return statistics.fmean(known) if known else NAN


def mean_decibels(values: Sequence[float]) -> float:
    """Of the mean ratio of noise to signal, so equal outputs add none, and NaN on one side decides.

    Examples
    --------
    >>> mean_decibels([20.0, 20.0]), round(mean_decibels([20.0, math.inf]), 2), mean_decibels([20.0, -math.inf])
    (20.0, 23.01, -inf)
    """
    ratio = _mean([math.inf if value == -math.inf else 10.0 ** (-value / 10.0) for value in values])
    return NAN if math.isnan(ratio) else math.inf if ratio == 0 else -10.0 * math.log10(ratio)


def measure_latency(variants: Sequence[Variant], values: Sequence[Any], timeout: float | None = None) -> None:
    """Without a debug buffer and the first execution after a load.

    Other processes can only add to a time, so the smallest median of several rounds is the best estimate.
    """
    flat, variants = tree_leaves(tuple(values)), [variant for variant in variants if not variant.emulated]
    taken: list[list[float]] = [[] for _ in variants]
    for _ in range(ROUNDS):
        for medians, variant in zip(taken, variants, strict=True):
            run = variant.subject.execute([flat] * (_EXECUTIONS + 1), timeout)
            medians.append(statistics.median(run.seconds[1:]))
    for medians, variant in zip(taken, variants, strict=True):
        variant.numbers["latency_ms"] = 1e3 * min(medians)
