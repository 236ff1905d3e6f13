"""Metrics of users: functions of a pair of tensors, and comparators of the upstream Inspector.

An error in a user's function affects its column only.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from etviz.errors import UsageError
from etviz.tensors.blocks import pairs
from etviz.tensors.metrics import METRICS, NAN, Metric, custom_metric

if TYPE_CHECKING:
    import torch

PATIENCE: Final = 60.0
_COMBINED: Final = {"mean": sum, "sum": sum, "max": max}


class CustomMetrics:
    def __init__(self, metrics: Sequence[Metric] = (), patience: float = PATIENCE) -> None:
        self.metrics = tuple(metrics)
        self.names = tuple(metric.name for metric in metrics)
        self._patience = patience
        self._seconds = dict.fromkeys(self.names, 0.0)

    def measure(
        self, reference: torch.Tensor, runtime: torch.Tensor, handles: Sequence[int] = ()
    ) -> tuple[dict[str, float], list[str]]:
        """NaN without a value; and notes."""
        values: dict[str, float] = {}
        said: list[str] = []
        for metric in self.metrics:
            value, problem = self._one(metric, reference, runtime, handles)
            values[metric.name] = value
            if problem:
                said.append(f"the metric {metric.name} has no number: {problem}")
        return values, said

    def unknown(self) -> dict[str, float]:
        return dict.fromkeys(self.names, NAN)

    def _one(self, metric: Metric, reference: Any, runtime: Any, handles: Sequence[int]) -> tuple[float, str]:
        if self._seconds[metric.name] > self._patience:
            return NAN, f"it had taken {self._patience:g} s already"
        start = time.perf_counter()
        try:
            if isinstance(metric.function, _Comparator):
                result = metric.function.compare(reference, runtime, handles)
            else:
                result = _call(metric, reference, runtime)
        except Exception as error:  # noqa: BLE001 - a user's function fails in its own way
            return NAN, " ".join(f"{type(error).__name__}: {error}".split())[:200]
        finally:
            self._seconds[metric.name] += time.perf_counter() - start
        return _number(result)


class _Comparator:
    def __init__(self, comparator: Any) -> None:
        self.comparator = comparator

    def compare(self, reference: Any, runtime: Any, handles: Sequence[int]) -> Any:
        try:
            return self._compare(reference, runtime, handles)
        except AttributeError as error:
            if error.obj is not None or getattr(self.comparator, "inspector", None) is not None:
                raise
            kind = type(self.comparator).__name__
            problem = f"it reads {error.name} of an Inspector, and has none; give metrics=[{kind}(inspector)]"
            raise UsageError(problem) from error

    def _compare(self, reference: Any, runtime: Any, handles: Sequence[int]) -> Any:
        key = tuple(handles)
        mapping = self.comparator.preprocessing({(key, reference): (key, runtime)})
        self.comparator._validate_preprocessing_output(mapping)
        if len(mapping) != 1:
            raise ValueError(f"its preprocessing made {len(mapping)} pairs of one")
        ((_, a), (_, b)) = next(iter(mapping.items()))
        return self.comparator.element_compare(a, b)

    def __call__(self, reference: Any, runtime: Any) -> Any:
        return self.compare(reference, runtime, ())


def choose(given: Iterable[Any] | None) -> CustomMetrics:
    """Names, `Metric` objects, upstream comparators; None for all registered.

    A comparator is an instance or its class, which names the column. A `UsageError` for other items.
    """
    if given is None:
        return CustomMetrics(tuple(METRICS.registered.values()))
    if isinstance(given, (str, Metric)) or not hasattr(given, "__iter__"):
        raise UsageError(f"metrics must be a list of metrics, found {given!r}")
    chosen = {metric.name: metric for item in given if (metric := _metric(item)) is not None}
    return CustomMetrics(tuple(chosen.values()))


def _metric(given: Any) -> Metric | None:
    if isinstance(given, str):
        if given not in METRICS:
            raise UsageError(f"there is no metric {given!r}; there are {', '.join(METRICS)}")
        given = METRICS[given]
    if isinstance(given, Metric):
        return given if given.function is not None else None
    kind = given if isinstance(given, type) else type(given)
    if not all(hasattr(kind, name) for name in ("element_compare", "preprocessing", "_validate_preprocessing_output")):
        raise UsageError(
            f"metrics must hold names, metrics or upstream comparators (NumericalComparatorBase), found {given!r}"
        )
    comparator = given() if isinstance(given, type) else given
    metric = custom_metric(
        kind.__name__, _Comparator(comparator), False, description=f"Upstream comparator {kind.__qualname__}."
    )
    METRICS.introduce(metric)
    return metric


def _call(metric: Metric, reference: torch.Tensor, runtime: torch.Tensor) -> Any:
    function, prepare = metric.function, metric.preprocessing
    if function is None:
        raise TypeError("it has no function")
    if prepare is not None:
        reference, runtime = prepare(reference), prepare(runtime)
        if getattr(reference, "shape", None) != getattr(runtime, "shape", None):
            raise ValueError("its preprocessing gave two tensors of different shapes")
    if metric.reduce is None:
        return function(reference.detach().double(), runtime.detach().double())
    parts, count = [], 0
    for r, q in pairs(reference, runtime):
        if not len(r):
            continue
        part = np.asarray(function(r, q), dtype=np.float64)
        if part.shape != r.shape:
            raise ValueError(f"an elementwise function must return {r.shape[0]} numbers, found shape {part.shape}")
        parts.append(float(part.max() if metric.reduce == "max" else part.sum()))
        count += len(r)
    if not count:
        return NAN
    total = _COMBINED[metric.reduce](parts)
    return total / count if metric.reduce == "mean" else total


def _number(result: Any) -> tuple[float, str]:
    size = getattr(result, "numel", None)
    count = size() if callable(size) else np.size(result)
    if count != 1:
        return NAN, f"it returned {count} numbers, one is expected"
    try:
        value = float(result)
    except (TypeError, ValueError, RuntimeError):
        return NAN, f"it returned a {type(result).__name__}, a number is expected"
    return value, "it returned NaN" if math.isnan(value) else ""
