"""Compares the outputs of a run with expected outputs: tensors, numbers, booleans, None, nested lists."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import pandas as pd
import torch
from torch.utils import _pytree as pytree

from etviz.comparison.gap import COMPARED, MISMATCH, NOT_COMPARED
from etviz.comparison.measurement import as_tensor, measure, why_not_comparable
from etviz.errors import UsageError
from etviz.tensors.custom_metrics import choose
from etviz.tensors.metrics import METRICS
from etviz.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from matplotlib.axes import Axes

_ABOUT: Final = ("output", "kind", "dtype", "shape", "status", "reason", "equal")


class Results:
    def __init__(self, table: pd.DataFrame) -> None:
        self._table = table

    @property
    def table(self) -> pd.DataFrame:
        """A row for each value, in the order in which nested outputs are flattened.

        Columns: ``output`` (its number); ``kind`` of the run's value (``tensor``, ``float``, ``int``, ``bool``,
        ``None``, or another type's name); ``dtype`` and ``shape`` of a tensor; ``status`` and ``reason``; ``equal`` to
        the last bit, NaN equals NaN; then every metric, NaN if there is nothing to measure.
        """
        return self._table.copy()

    @property
    def equal(self) -> bool:
        """True if every value is the same to the last bit."""
        return bool(self._table["equal"].all())

    def plot(self, metric: str = "rmse", ax: Axes | None = None) -> Axes:
        """A bar for each output; a `UsageError` if the metric does not exist."""
        import matplotlib.pyplot as plt

        if metric not in self._table or metric in _ABOUT:
            raise UsageError(f"metric must be one of {', '.join(METRICS)}, found {metric!r}")
        axes = ax if ax is not None else plt.subplots()[1]
        values = self._table[metric].astype(float)
        known = values[values.map(math.isfinite)]
        axes.bar([str(index) for index in known.index], known)
        for index in values.index.difference(known.index):
            axes.bar([str(index)], [0])
            axes.annotate(str(values[index]), (str(index), 0), ha="center", va="bottom")
        unit = METRICS[metric].unit
        axes.set_xlabel("output")
        axes.set_ylabel(f"{metric} [{unit}]" if unit else metric)
        return axes

    def __repr__(self) -> str:
        different = int((~self._table["equal"]).sum())
        return printable(f"<Results: {different} of {len(self._table)} outputs differ>\n{self._table.to_string()}")


def compare_results(reference: Any, run: Any, *, metrics: Iterable[Any] | None = None) -> Results:
    """Compare the outputs of a run with expected outputs.

    Upstream's function of this name compares tensors, rounded to two digits. This one compares with all digits: a
    nested structure of tensors, floats, integers, booleans, None and anything with ``==``.

    Parameters
    ----------
    reference
        The expected outputs: nested lists, tuples and dicts of values, or a single value.
    run
        The outputs of the run.
    metrics
        Further metrics, as for `etviz.load`.

    Raises
    ------
    UsageError
        If an item of `metrics` is no metric.

    Examples
    --------
    >>> import etviz
    >>> results = etviz.compare_results([1, None, [True, 0.5]], [1, None, [False, 0.5]])
    >>> results.table["equal"].tolist()
    [True, True, False, True]
    """
    custom = choose(metrics)
    expected, given = pytree.tree_leaves(reference), pytree.tree_leaves(run)
    count = max(len(expected), len(given))
    rows = []
    for index in range(count):
        if index >= len(expected) or index >= len(given):
            missing = "the reference" if index >= len(expected) else "the run"
            value = given[index] if index < len(given) else expected[index]
            row = _about(index, value) | {"equal": False, "status": NOT_COMPARED}
            rows.append(row | {"reason": f"{missing} has {min(len(expected), len(given))} outputs"})
            continue
        rows.append(_one(index, expected[index], given[index], custom))
    names = [name for name in METRICS if any(name in row for row in rows)] or list(METRICS)
    return Results(pd.DataFrame(rows, columns=[*_ABOUT, *names]))


def _one(index: int, expected: Any, given: Any, custom: Any) -> dict[str, Any]:
    row = _about(index, given) | {"status": COMPARED, "reason": "", "equal": _equal(expected, given)}
    a, b = as_tensor(expected), as_tensor(given)
    reason = why_not_comparable(expected, given) if a is not None or b is not None else ""
    if a is None or b is None or reason:
        if type(expected) is not type(given):
            reason = f"the run gave {_kind(given)}, the reference {_kind(expected)}"
        return row | {"reason": reason, "status": NOT_COMPARED if reason else COMPARED}
    sums, numbers = measure(a, b, None)
    row |= numbers | custom.measure(a, b)[0]
    return row | {"status": MISMATCH if sums.mismatched else COMPARED}


def _about(index: int, value: Any) -> dict[str, Any]:
    tensor = value if isinstance(value, torch.Tensor) else None
    dtype = str(tensor.dtype).removeprefix("torch.") if tensor is not None else ""
    shape = tuple(tensor.shape) if tensor is not None else ()
    return {"output": index, "kind": _kind(value), "dtype": dtype, "shape": shape}


def _kind(value: Any) -> str:
    if value is None:
        return "None"
    return "tensor" if isinstance(value, torch.Tensor) else type(value).__name__


def _equal(expected: Any, given: Any) -> bool:
    if isinstance(expected, torch.Tensor) and isinstance(given, torch.Tensor):
        same = expected.shape == given.shape and expected.dtype == given.dtype
        if not same or not (expected.is_floating_point() or expected.is_complex()):
            return same and torch.equal(expected, given)
        return bool(((expected == given) | (expected.isnan() & given.isnan())).all())
    if type(expected) is not type(given):
        return False
    if isinstance(expected, float):
        return expected == given or (math.isnan(expected) and math.isnan(given))
    return bool(expected == given)
