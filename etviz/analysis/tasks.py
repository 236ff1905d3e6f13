"""Task metrics: whether the runtime's answer is the model's answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from etviz.errors import UsageError

Task = Callable[[Sequence[Any], Sequence[Any], Any], Any]

_TOP: Final = 5


def top1(expected: Sequence[Any], found: Sequence[Any], label: Any = None) -> float:
    """1 if the highest scores of the first outputs are at the same index, else 0."""
    return float(_scores(expected).argmax() == _scores(found).argmax())


def top5(expected: Sequence[Any], found: Sequence[Any], label: Any = None) -> float:
    """Share of the five highest scores that are the same, in any order."""
    a, b = _scores(expected), _scores(found)
    count = min(_TOP, len(a))
    return len({*np.argsort(-a, kind="stable")[:count]} & {*np.argsort(-b, kind="stable")[:count]}) / count


def margin(expected: Sequence[Any], found: Sequence[Any], label: Any = None) -> float:
    """The runtime's score of the expected class minus its highest other score; below 0 the answer has changed."""
    a, b = _scores(expected), _scores(found)
    best = int(a.argmax())
    others = np.delete(b, best)
    return float(b[best] - others.max()) if len(others) else math.inf


def kl(expected: Sequence[Any], found: Sequence[Any], label: Any = None) -> float:
    """Kullback-Leibler divergence Σ p·log(p/q) in nats of the softmax of the first output, from the runtime's.

    The softmax is over the last axis with more than one element; the divergence is the mean over the others.
    """
    last = next((size for size in reversed(getattr(expected[0], "shape", ())) if size > 1), 1) if expected else 1
    p, q = (_log_softmax(_scores(outputs).reshape(-1, last)) for outputs in (expected, found))
    return float(np.mean(np.sum(np.exp(p) * (p - q), axis=-1)))


def accuracy(expected: Sequence[Any], found: Sequence[Any], label: Any = None) -> float:
    """1 if the runtime's highest score is at the label, else 0; NaN without a label."""
    return math.nan if label is None else float(int(_scores(found).argmax()) == int(label))


TASKS: Final[dict[str, Task]] = {"top1": top1, "top5": top5, "margin": margin, "kl": kl, "accuracy": accuracy}


def choose(task: Any, columns: Collection[str], tables: str) -> dict[str, Task]:
    """`task` is a name, a function, a list of both, or functions by name; none may be named like a column."""
    if task is None:
        return {}
    if isinstance(task, dict):
        named: Mapping[str, Any] = task
    else:
        items = task if isinstance(task, (list, tuple)) else [task]
        named = {given if isinstance(given, str) else getattr(given, "__name__", "task"): given for given in items}
    chosen = {}
    for name, given in named.items():
        function = TASKS.get(given) if isinstance(given, str) else given
        if function is None or not callable(function) or not str(name).replace("<lambda>", "task").isidentifier():
            raise UsageError(f"task must be a function or one of {', '.join(TASKS)}, found {given!r} for {name!r}")
        chosen[str(name).replace("<lambda>", "task")] = function
    refuse_columns("task", chosen, columns, tables)
    return chosen


def refuse_columns(argument: str, names: Iterable[str], columns: Collection[str], tables: str) -> None:
    for name in names:
        if name in columns:
            raise UsageError(f"{argument}: {name!r} is a column of {tables} already; give it another name")


def measured(task: Task, expected: Sequence[Any], found: Sequence[Any], label: Any = None) -> tuple[float, str]:
    try:
        return float(task(expected, found, label)), ""
    except Exception as error:  # noqa: BLE001 - a user's function fails in its own way
        return math.nan, " ".join(f"{type(error).__name__}: {error}".split())[:200]


def _scores(outputs: Sequence[Any]) -> npt.NDArray[np.float64]:
    if not outputs or not hasattr(outputs[0], "detach"):
        raise ValueError("the first output is no tensor of scores")
    return outputs[0].detach().double().reshape(-1).numpy()


def _log_softmax(scores: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    shifted = scores - scores.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
