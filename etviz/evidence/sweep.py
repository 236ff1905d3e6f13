"""Compares several ways to lower one model: error, task metrics, latency and size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pandas as pd
from torch.utils._pytree import tree_leaves
from tqdm.auto import tqdm

from etviz.analysis.tasks import choose as choose_tasks
from etviz.artifacts.files import make_folder
from etviz.artifacts.scratch import Scratch
from etviz.errors import UsageError, during, in_a_line
from etviz.evidence.dataset import first_item
from etviz.evidence.executors import executor_of
from etviz.evidence.measuring import FLOAT_METRICS
from etviz.evidence.subject import arguments_of, inspect_run
from etviz.evidence.variants import NUMBERS, Variant, float_outputs, lower_variant, measure_latency, run_variant
from etviz.inspection import Inspection
from etviz.pipeline.environment import interpreter, versions_in
from etviz.pipeline.recipe import Recipe, of_variant
from etviz.text import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes


LOWERED, REFUSED = "measured", "failed"
_VERSIONS: Final = ("executorch", "torch")
_ABOUT: Final = ("status", "reason", *_VERSIONS)
_LESS: Final = ("rmse", "latency_ms", "size_bytes")
"""Least is best; of task metrics other than ``kl``, more is better."""


class Sweep:
    """Variants of one model, side by side; made by `etviz.sweep`.

    Attributes
    ----------
    variants
        The measured ones, by name.
    """

    def __init__(
        self, table: pd.DataFrame, variants: dict[str, Variant], inputs: Sequence[Sequence[Any]], keep: Any
    ) -> None:
        self._table, self.variants, self._inputs, self._keep = table, variants, inputs, keep

    @property
    def table(self) -> pd.DataFrame:
        """A row for each recipe.

        Returns
        -------
        DataFrame
            By ``recipe``: ``status`` (``measured`` or ``failed``) and ``reason``; ``executorch`` and ``torch``, the
            versions that lowered and ran it; ``rmse, max_abs, rel_l2, sqnr_db`` of the final outputs against the
            float model, means over the inputs with a number (``sqnr_db`` is that of the mean ratio of noise to signal);
            ``worst_rmse`` of any input; the task metrics' means;
            ``latency_ms`` of one execution in a child process, the smallest median of five rounds; ``size_bytes``
            of the `.pte`; ``pareto``, true if every other variant is worse in error, task metrics, latency or size,
            or equal in all.
        """
        return self._table.copy()

    @property
    def pareto(self) -> pd.DataFrame:
        return self._table[self._table["pareto"]].sort_values("rmse", kind="stable")

    def open(self, recipe: str, index: int = 0) -> Inspection:
        """Run one variant again on one input, in its environment, and return the Inspection.

        `UsageError` if the variant was not measured, or the input does not exist; `ExecutionError` if the run fails.
        """
        if recipe not in self.variants:
            raise UsageError(f"no recipe {recipe!r} was measured; there are {', '.join(self.variants) or 'none'}")
        if not 0 <= index < len(self._inputs):
            raise UsageError(f"there is no input {index}; there are {len(self._inputs)}")
        values = tree_leaves(tuple(self._inputs[index]))
        return inspect_run(self.variants[recipe].subject, values, f"recipe {recipe}, input {index}")

    def plot(self, x: str = "latency_ms", y: str = "rmse", ax: Axes | None = None) -> Axes:
        """Draw every variant as a point of two columns; points of the Pareto front are filled.

        Raises `UsageError` if the column does not exist.
        """
        import matplotlib.pyplot as plt

        for name in (x, y):
            if name not in self._table:
                raise UsageError(f"there is no column {name!r}; there are {', '.join(self._table.columns)}")
        axes = ax if ax is not None else plt.subplots()[1]
        for name, row in self._table[self._table["status"] == LOWERED].iterrows():
            axes.plot(row[x], row[y], "o", color="C0", fillstyle="full" if row["pareto"] else "none")
            axes.annotate(str(name), (row[x], row[y]), textcoords="offset points", xytext=(4, 4))
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        return axes

    def __repr__(self) -> str:
        head = f"<Sweep of {len(self._table)} recipes, {len(self.variants)} measured>"
        return printable(f"{head}\n{self._table.to_string()}")


@during("comparing the recipes")
def sweep(
    model: Any,
    recipes: Mapping[str, Recipe | str | Mapping[str, Any]],
    inputs: Any,
    executor: Executor | int | str | None = None,
    *,
    task: Any = None,
    labels: Sequence[Any] | None = None,
    folder: str | Path | None = None,
    latency: bool = True,
    timeout: float | None = None,
) -> Sweep:
    """Lower a model by several recipes, run each on the same inputs, and compare them with the float model.

    Parameters
    ----------
    model
        An eager `nn.Module`, or an `ExportedProgram`, in float.
    recipes
        By a name that you choose: a known recipe (``"xnnpack-int8"``, ``"ethos-u55"``), an `etviz.recipe`, or arguments
        of `etviz.debug`: ``partitioner``, ``quantizer``, ``calibration`` (a list), ``strict``. ``{}`` is the portable
        kernels in float. A recipe that can't be lowered or run is a row with the reason. ``python``, another
        environment's interpreter, lowers and runs the variant there, without etviz. Then the partitioner and the
        quantizer are ``"package.module:name"`` or ``"file.py:name"`` of a callable without arguments, as in any recipe.
        If the other torch can't read the model's file, ``model`` names a callable that makes it there; its weights come
        from here.
    inputs
        A list of inputs, each a tensor or a tuple of the model's arguments; one further value is the label.
    executor
        As for `etviz.study`. Latencies are measured afterwards, in this process.
    task, labels
        As for `etviz.study`; the expected outputs are the float model's.
    folder
        Gets a folder for each recipe's program; None for a temporary one.
    latency
        True to measure the latency of one execution.
    timeout
        Seconds for running one variant.

    Raises
    ------
    UsageError
        If there is no recipe or no input, the model fails on one, or an argument makes no sense.
    """
    if not isinstance(recipes, Mapping) or not recipes:
        raise UsageError("recipes must be a dict with a name for each set of arguments of etviz.debug")
    wrong = [name for name in recipes if not isinstance(name, str) or "/" in name or name in ("", ".", "..")]
    if wrong:
        raise UsageError(f"a recipe's name must be a text that can name a folder, found {wrong[0]!r}")
    recipes = {name: of_variant(how) for name, how in recipes.items()}
    tasks = choose_tasks(task, ("recipe", *_ABOUT, *NUMBERS, "pareto"), "a sweep's table")
    values, known = split(model, inputs, labels)
    keep = Scratch() if folder is None else None
    root = Path(keep.name if keep else folder or "").absolute()
    make_folder(root)
    expected = float_outputs(model, values)
    rows: dict[str, dict[str, Any]] = {}
    variants: dict[str, Variant] = {}
    about: dict[str, dict[str, str]] = {}
    with executor_of(executor) as (pool, _), tqdm(total=len(recipes), desc="sweep", leave=False, delay=1) as bar:
        under_way = {}
        for name, recipe in recipes.items():
            try:
                about[name] = versions_in(interpreter(recipe["python"]) if recipe.get("python") is not None else "")
                subject = lower_variant(model, values, root / name, dict(recipe), timeout)
                under_way[name] = pool.submit(run_variant, subject, values, expected, tasks, known, timeout)
            except Exception as error:  # noqa: BLE001 - a backend may raise any error
                rows[name] = {"status": REFUSED, "reason": in_a_line(error)}
                bar.update()
        for name, future in under_way.items():
            try:
                variants[name] = future.result()
            except Exception as error:  # noqa: BLE001 - as above
                rows[name] = {"status": REFUSED, "reason": in_a_line(error)}
            bar.update()
    if latency and variants:
        measure_latency(list(variants.values()), values[0], timeout)
    for name, variant in variants.items():
        reason = f"emulated by the {variant.emulated}, so without latency" if variant.emulated else ""
        rows[name] = {"status": LOWERED, "reason": reason, **variant.numbers}
    for name in recipes:
        rows[name] |= {what: about.get(name, {}).get(what, "") for what in _VERSIONS}
    measured = {name: variants[name] for name in recipes if name in variants}
    return Sweep(_table(recipes, rows, list(tasks), latency), measured, values, keep)


def split(model: Any, inputs: Any, labels: Sequence[Any] | None) -> tuple[list[tuple[Any, ...]], Sequence[Any] | None]:
    first, inputs = first_item(inputs)
    if first is None:
        raise UsageError("inputs holds no input")
    items = [sample if isinstance(sample, (tuple, list)) else (sample,) for sample in inputs]
    values = [arguments_of(model, sample) for sample in items]
    inline_labels = [sample[-1] for sample, value in zip(items, values, strict=True) if len(sample) > len(value)]
    return values, labels if labels is not None else inline_labels if len(inline_labels) == len(items) else None


def _table(
    recipes: Mapping[str, Any], rows: Mapping[str, Mapping[str, Any]], tasks: Sequence[str], latency: bool
) -> pd.DataFrame:
    timed = ["latency_ms"] if latency else []
    columns = [*_ABOUT, *FLOAT_METRICS, "worst_rmse", *tasks, *timed, "size_bytes"]
    frame = pd.DataFrame([rows[name] for name in recipes], index=pd.Index(recipes, name="recipe"), columns=columns)
    judged = [name for name in (*_LESS, *tasks) if name in columns]
    signs = [-1.0 if name in tasks and name != "kl" else 1.0 for name in judged]
    costs = frame[judged].astype(float).to_numpy() * signs
    measured = (frame["status"] == LOWERED).to_numpy()
    frame["pareto"] = [
        bool(measured[at]) and not any(measured[k] and _beats(costs[k], costs[at]) for k in range(len(costs)))
        for at in range(len(costs))
    ]
    return frame


def _beats(a: Any, b: Any) -> bool:
    return bool((a <= b).all() and (a < b).any())
