"""Proposes operators to keep in float or off a backend; every proposal was lowered, run and measured."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pandas as pd
from tqdm.auto import tqdm

from etviz.analysis.tasks import TASKS
from etviz.analysis.tasks import choose as choose_tasks
from etviz.artifacts.scratch import Scratch
from etviz.errors import UsageError, during, in_a_line
from etviz.evidence.exclusions import keep_in_float_class, keep_off_backend_class, source_of
from etviz.evidence.search import Simulation, Unit, ddmin
from etviz.evidence.study import Study
from etviz.evidence.subject import Subject, subject_of
from etviz.evidence.sweep import split
from etviz.evidence.variants import NUMBERS, Variant, float_outputs, lower_variant, measure_latency, run_variant
from etviz.inspection import Inspection
from etviz.pipeline.recipe import Recipe
from etviz.pipeline.recipe import lowering as arguments
from etviz.text import one_line, printable

GOALS: Final = (0.1, 0.25, 0.5)
"""Shares of the error that may remain."""
_BETTER: Final = 0.95
"""Largest share of the error that a proposal leaves."""
_INPUTS: Final = 64
_MEASURES: Final = ("rmse", "kl")
_TRIAL: Final = ("operators", "status", "reason")
_CULPRITS: Final = 4
_QUANTIZER: Final = "from typing import Any, Iterable\n\nfrom torchao.quantization.pt2e.quantizer import Quantizer"
_PARTITIONER: Final = (
    "from typing import Any, Iterable\n\nfrom executorch.exir.backend.partitioner import Partitioner, PartitionResult"
)


@dataclass(frozen=True)
class Suggestion:
    """A measured change; made by `etviz.suggest`.

    Attributes
    ----------
    code
        Python to paste before the model is lowered; empty if no change is better.
    before, after
        ``rmse, max_abs, rel_l2, sqnr_db`` of the final outputs against the float model (means over the inputs;
        ``sqnr_db`` is that of the mean ratio of noise to signal),
        ``worst_rmse``, the task metrics, ``latency_ms`` (one execution in the child process, the smallest median of
        five rounds in turns) and ``size_bytes``. `after` is empty if there is no proposal.
    operators
        Names in the exported model that are kept in float or off the backend.
    trials
        A row for each measured variant.
    reason
        For the proposal, or for its absence.
    """

    code: str
    before: Mapping[str, float]
    after: Mapping[str, float]
    operators: tuple[str, ...] = ()
    inputs: int = 0
    trials: pd.DataFrame = field(default_factory=pd.DataFrame)
    reason: str = ""

    def __bool__(self) -> bool:
        return bool(self.code)

    @property
    def table(self) -> pd.DataFrame:
        return pd.DataFrame({"before": dict(self.before), "after": dict(self.after)})

    def __repr__(self) -> str:
        if not self:
            return f"<Suggestion: none. {one_line(self.reason)}>"
        text = f"<Suggestion for {self.inputs} inputs>\n{self.reason}\n{self.table.to_string()}\n\n{self.code}"
        return printable(text)


@dataclass(slots=True)
class _Task:
    model: Any
    lowering: dict[str, Any]
    values: list[tuple[Any, ...]]
    labels: Sequence[Any] | None
    expected: list[list[Any]]
    tasks: Mapping[str, Any]
    folder: Path
    timeout: float | None
    before: Variant
    error: str = "rmse"
    size: float | None = None
    trials: list[dict[str, Any]] = field(default_factory=list)

    def measure(self, name: str, operators: Sequence[str], changes: Mapping[str, Any]) -> Variant | None:
        row: dict[str, Any] = dict(zip(_TRIAL, (", ".join(operators), "measured", ""), strict=True))
        self.trials.append(row)
        try:
            subject = lower_variant(self.model, self.values, self.folder / name, self.lowering | dict(changes))
            variant = run_variant(subject, self.values, self.expected, self.tasks, self.labels, self.timeout)
        except Exception as error:  # noqa: BLE001 - a backend refuses in its own way
            row |= {"status": "failed", "reason": in_a_line(error)}
            return None
        measure_latency([self.before, variant], self.values[0], self.timeout)
        row |= variant.numbers
        return variant


@during("searching a fix")
def suggest(
    found: Inspection | Study,
    budget: float = 1.5,
    *,
    model: Any = None,
    inputs: Any = None,
    labels: Sequence[Any] | None = None,
    task: Any = None,
    recipe: Recipe | str | None = None,
    partitioner: Sequence[Any] | None = None,
    quantizer: Any = None,
    calibration: Iterable[Sequence[Any]] | None = None,
    goal: float | None = None,
    measure: str = "rmse",
    size: float | None = None,
    timeout: float | None = None,
) -> Suggestion:
    """Propose operators to keep in float, or off the backend; lower, run and measure the proposal.

    For a quantized model, etviz searches the smallest sets of operators that, kept in float, reduce the error to a
    tenth, a quarter, or half. For a float model, it tries the operators of the delegates that cause most of the final
    error. etviz proposes the first candidate that is better and within the budget.

    Parameters
    ----------
    found
        An Inspection of `etviz.debug`, or a Study of a model; with others, give `model` and its lowering arguments.
    budget
        Largest latency of the proposal, as a multiple of the present latency.
    model, recipe, partitioner, quantizer, calibration
        As for `etviz.debug`; by default as in `found`.
    inputs, labels
        Up to 64; by default from `found`, the worst first, and the calibration data. For a model with state, its calls
        in order.
    task
        As for `etviz.study`.
    goal
        Share of the error that may remain; replaces the three shares.
    measure
        The error: ``rmse`` of the final outputs, or ``kl``, the KL divergence of the first one's logits.
    size
        Largest `.pte` of the proposal, as a multiple of the present one.
    timeout
        Seconds for running one candidate.

    Raises
    ------
    UsageError
        If an argument makes no sense, or the model is unknown.
    LoweringError, ExecutionError
        If the present model can't be lowered or run.
    """
    _check(found, budget, goal, measure, size)
    made = dict(_made(found))
    given = arguments(recipe, partitioner=partitioner, quantizer=quantizer, calibration=calibration)
    lowering = {name: made.get(name) if value is None else value for name, value in given.items()}
    if made.get("strict") is not None:
        lowering["strict"] = made["strict"]
    model = model if model is not None else made.get("model")
    if model is None:
        raise UsageError(
            "the model is not known: give model=, and partitioner=, quantizer=, calibration= as to etviz.debug"
        )
    if lowering["calibration"] is not None:
        lowering["calibration"] = list(lowering["calibration"])
    values, known = _values(found, model, inputs, labels, made, lowering["calibration"])
    lowering = {name: value for name, value in lowering.items() if value is not None}
    if "quantizer" in lowering and "calibration" not in lowering:
        lowering["calibration"] = values
    tasks = choose_tasks(task, (*_TRIAL, *NUMBERS), "a suggestion's tables")
    if measure != "rmse":
        tasks = {measure: TASKS[measure], **tasks}
    with Scratch() as folder:
        expected = float_outputs(model, values)
        subject = _subject(found, model, values, Path(folder), lowering)
        before = run_variant(subject, values, expected, tasks, known, timeout)
        case = _Task(model, lowering, values, known, expected, tasks, Path(folder), timeout, before, measure, size)
        if not before.numbers[measure] > 0:
            measure_latency([before], values[0], timeout)
            return _none(case, f"The {measure} against the float model is 0: there is nothing to gain.")
        goals = (goal,) if goal is not None else GOALS
        if "quantizer" in lowering:
            return _quantized(case, goals, budget)
        return _delegated(case, operators_of_delegates(found), budget)


def _check(subject: Any, budget: float, goal: float | None, measure: str, size: float | None) -> None:
    for name, factor in (("budget", budget), ("size", math.inf if size is None else size)):
        if isinstance(factor, bool) or not isinstance(factor, (int, float)) or not factor > 0:
            raise UsageError(f"{name} must be a positive factor, found {factor!r}")
    if measure not in _MEASURES:
        raise UsageError(f"measure must be one of {', '.join(_MEASURES)}; found {measure!r}")
    if goal is not None and not 0 < goal < 1:
        raise UsageError(f"goal must be between 0 and 1, found {goal!r}")
    if not isinstance(subject, (Inspection, Study)):
        raise UsageError(f"suggest takes an Inspection or a Study, found {type(subject).__name__}")


def _made(subject: Inspection | Study) -> Mapping[str, Any]:
    return subject.made if isinstance(subject, Study) else subject.analysis.findings.made


def _values(
    found: Inspection | Study,
    model: Any,
    inputs: Any,
    labels: Sequence[Any] | None,
    made: Mapping[str, Any],
    calibration: Sequence[Any] | None,
) -> tuple[list[tuple[Any, ...]], Sequence[Any] | None]:
    if inputs is not None:
        values, known = split(model, inputs, labels)
        return values[:_INPUTS], known
    if isinstance(found, Study):
        kept = [tuple(found.values(index)) for index in found.kept]
        if not kept:
            raise UsageError("the study keeps no input; give inputs=")
        return kept[:_INPUTS], None
    example = made.get("example_inputs")
    given = [tuple(example)] if example is not None else []
    given += [tuple(batch) for batch in (calibration or [])]
    if not given:
        raise UsageError("the inputs are not known; give inputs=")
    return given[:_INPUTS], None


def _subject(
    found: Inspection | Study, model: Any, values: Sequence[Any], folder: Path, lowering: dict[str, Any]
) -> Subject:
    if "model" in _made(found) and isinstance(found, Inspection) and "pte" in found.analysis.findings.files:
        return subject_of(found, None, folder, None)
    if isinstance(found, Study) and "model" in _made(found):
        return found.subject
    return lower_variant(model, values, folder / "before", lowering)


def _quantized(case: _Task, goals: Sequence[float], budget: float) -> Suggestion:
    quantizer = case.lowering["quantizer"]
    simulation = Simulation(case.model, quantizer, case.lowering["calibration"], case.values, case.expected, case.error)
    start = simulation.error([])
    alone = {unit: simulation.error([unit]) for unit in simulation.units}
    # The least helpful units come first, so that ddmin removes them first.
    order = sorted(simulation.units, key=lambda unit: alone[unit])
    candidates: list[tuple[str, ...]] = []
    for goal in tqdm(goals, desc="suggest", leave=False, delay=1):
        if simulation.error(order) > goal * start:
            continue
        units = ddmin(order, lambda part, goal=goal: simulation.error(part) <= goal * start)
        names = _names(simulation.units, units)
        if names not in candidates:
            candidates.append(names)

    def change(names: Sequence[str]) -> dict[str, Any]:
        return {"quantizer": keep_in_float_class()(quantizer, names)}

    def code(names: Sequence[str]) -> str:
        made = source_of(keep_in_float_class(), _QUANTIZER)
        return f"{made}\n\nquantizer = KeepInFloat(quantizer, {list(names)})\n"

    everything = _names(simulation.units, simulation.units)
    return _first_proved(case, candidates, budget, change, code, "stay in float", everything)


def _delegated(case: _Task, culprits: Sequence[tuple[str, ...]], budget: float) -> Suggestion:
    partitioners = list(case.lowering.get("partitioner") or [])
    if not partitioners:
        return _none(case, "Nothing is quantized and nothing is delegated, so there is nothing to change.")

    def change(names: Sequence[str]) -> dict[str, Any]:
        return {"partitioner": [keep_off_backend_class()(partitioner, names) for partitioner in partitioners]}

    def code(names: Sequence[str]) -> str:
        made = source_of(keep_off_backend_class(), _PARTITIONER)
        return f"{made}\n\npartitioner = [KeepOffBackend(item, {list(names)}) for item in partitioner]\n"

    together = tuple(dict.fromkeys(name for names in culprits for name in names))
    candidates = [*culprits, *([together] if len(culprits) > 1 else [])]
    return _first_proved(case, candidates, budget, change, code, "stay off the backend")


def operators_of_delegates(found: Inspection | Study) -> list[tuple[str, ...]]:
    if isinstance(found, Study):
        rows = found.worst(_CULPRITS)
        rows = rows[rows["kind"] == "delegate"]
    else:
        rows = found.worst(len(found.gaps))
        rows = rows[(rows["kind"] == "delegate") & (rows["rmse"] > 0)].head(_CULPRITS)
    listed = (tuple(filter(str.isidentifier, str(names).split(", "))) for names in rows["reference_ops"] if names)
    return list(dict.fromkeys(filter(None, listed)))


def _first_proved(
    case: _Task,
    candidates: Sequence[tuple[str, ...]],
    budget: float,
    change: Any,
    code: Any,
    what: str,
    everything: tuple[str, ...] = (),
) -> Suggestion:
    before = dict(case.before.numbers)
    for at, names in enumerate(candidates):
        variant = case.measure(f"candidate-{at}", names, change(names))
        if variant is None:
            continue
        before, after = dict(case.before.numbers), dict(variant.numbers)
        row = case.trials[-1]
        names_of = case.error, "latency_ms", "size_bytes"
        left, slower, larger = (after[name] / before[name] for name in names_of)
        if not left <= _BETTER:
            row["reason"] = f"{100 * left:.3g} % of the error remains"
        elif slower > budget:
            row["reason"] = f"it takes {slower:.3g} times as long, the budget is {budget:g}"
        elif case.size is not None and larger > case.size:
            row["reason"] = f"it is {larger:.3g} times as large, the budget is {case.size:g}"
        else:
            whole = len(names) > 1 and names == everything
            named = f"All {len(names)} quantized operators" if whole else ", ".join(names)
            reason = f"{named} {what}: {100 * left:.3g} % of the error remains, in {slower:.3g} times the time."
            row["reason"] = "proposed"
            head = f"# {one_line(reason)}\n# Measured on {len(case.values)} inputs: "
            head += f"{_numbers(case, before)} -> {_numbers(case, after)}\n"
            return Suggestion(head + code(names), before, after, names, len(case.values), _trials(case), reason)
    if "latency_ms" not in before:
        measure_latency([case.before], case.values[0], case.timeout)
    tried = "; ".join(f"{row['operators']}: {row['reason']}" for row in case.trials) or "no operator makes a difference"
    return _none(case, f"Nothing was better within the budget ({tried}).")


def _none(case: _Task, reason: str) -> Suggestion:
    return Suggestion("", dict(case.before.numbers), {}, (), len(case.values), _trials(case), reason)


def _trials(case: _Task) -> pd.DataFrame:
    return pd.DataFrame(case.trials, columns=[*_TRIAL, *case.before.numbers])


def _names(order: Sequence[Unit], chosen: Sequence[Unit]) -> tuple[str, ...]:
    return tuple(name for unit in order if unit in chosen for name in unit.names)


def _numbers(case: _Task, numbers: Mapping[str, float]) -> str:
    known = {name: value for name, value in numbers.items() if not math.isnan(value)}
    return f"{case.error} {known[case.error]:.4g}, {known['latency_ms']:.4g} ms, {known['size_bytes'] / 1e3:.4g} kB"
