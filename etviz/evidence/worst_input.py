"""The input on which the runtime is furthest off: searched for with gradients, and confirmed by running it.

The runtime has no derivative, so what its operators added to the last confirmed run is held fixed and put into the
float64 reference (straight through roundings): the gradient of the distance that follows says which way to go. A step
in the direction of the gradient's signs, within the inputs' ranges, is a guess; only what the runtime then shows is
believed (projected gradient ascent: A. Madry et al., "Towards deep learning models resistant to adversarial attacks",
2018).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd
import torch
from tqdm.auto import tqdm

from etviz.artifacts.etdump.runtime_log import RuntimeLog
from etviz.artifacts.scratch import Scratch
from etviz.errors import EtvizError, ExecutionError, UsageError
from etviz.evaluation.replay import logged_outputs
from etviz.evaluation.values import flat_values
from etviz.evidence.adequacy import adequacy
from etviz.evidence.dataset import entries, first_item
from etviz.evidence.subject import Subject, arguments_of, inspect_run, subject_of
from etviz.explain.attribution.float64 import Float64
from etviz.graph.uses import is_stateful
from etviz.inspection import Inspection
from etviz.text import printable

if TYPE_CHECKING:
    from etviz.evaluation.evaluator import Evaluator
    from etviz.evaluation.values import Value
    from etviz.graph.ir import Node
    from etviz.loading.paired import Paired

Values = tuple[Any, ...]
AGAINST: Final = ("float", "reference")
_EXAMPLES: Final = 64
"""Inputs that are read at most."""
_STARTS: Final = 4
"""Searches side by side, half of them from the worst examples, the others from anywhere within the ranges."""
_STEPS: Final = (0.25, 0.0625, 0.015625)
"""Lengths of the steps that are tried at once, in parts of an input's range."""
_ALIKE: Final = 0.5
"""Share of the error found from which on an example is said to have shown it."""
_COLUMNS: Final = ("origin", "step", "rmse", "max_abs", "accepted")


@dataclass(frozen=True, slots=True)
class _Trial:
    """An input that was run: its values, and how far off its final outputs are."""

    values: Values
    rmse: float
    max_abs: float


class WorstInput:
    """What a search found; made by `etviz.worst_input`.

    Attributes
    ----------
    inputs
        The arguments of the program on which the runtime is furthest off.
    rmse, max_abs
        RMS and largest error of its final outputs on them, in the outputs' units.
    against
        What they are compared with: ``float`` or ``reference``.
    example
        Number of the example input that is furthest off.
    example_rmse
        Its error.
    table
        DataFrame: a row for each run, in order: ``origin`` (``example``, ``gradient``, ``random``), ``step`` in parts
        of an input's range (0 for examples), ``rmse`` and ``max_abs``, and whether a search went on from it
        (``accepted``).
    """

    def __init__(
        self, subject: Subject, best: _Trial, examples: Sequence[_Trial], rows: list[Any], against: str
    ) -> None:
        self._subject, self._examples = subject, examples
        self.inputs, self.rmse, self.max_abs, self.against = best.values, best.rmse, best.max_abs, against
        self.table = pd.DataFrame(rows, columns=list(_COLUMNS))
        self.example = max(range(len(examples)), key=lambda at: examples[at].rmse)
        self.example_rmse = examples[self.example].rmse

    @property
    def shown(self) -> bool:
        """True if an example has at least half of this error: then the example inputs show it."""
        return self.example_rmse >= _ALIKE * self.rmse

    def beyond(self) -> pd.DataFrame:
        """The operators of the reference whose values this input takes out of the range that the examples reach.

        Returns
        -------
        DataFrame
            As `Study.adequacy` with the examples as calibration, most ``beyond`` first.
        """
        found = adequacy(self._subject, [self.inputs], [trial.values for trial in self._examples])
        return found[found["beyond"] > 0].sort_values("beyond", ascending=False, ignore_index=True)

    def open(self) -> Inspection:
        """Run the input once more, and look at it.

        Raises
        ------
        ExecutionError
            If the run fails.
        """
        return inspect_run(self._subject, self.inputs, "worst input")

    def summary(self) -> str:
        """Short text: how far off it is, and whether the example inputs could have shown it."""
        what = "the float model" if self.against == "float" else "the reference"
        lines = [f"Worst of {len(self.table)} runs: RMSE {self.rmse:.3g}, largest error {self.max_abs:.3g} to {what}."]
        count = len(self._examples)
        compared = (
            f"of {count} example{'s' * (count != 1)}, number {self.example} is worst with {self.example_rmse:.3g}"
        )
        if self.shown:
            return f"{lines[0]}\nThe examples show it: {compared}."
        ratio = f"{self.rmse / self.example_rmse:,.2g} times less" if self.example_rmse else "no error at all"
        lines.append(f"The examples do not show it: {compared}, {ratio}.")
        beyond = self.beyond()
        if len(beyond):
            row = beyond.iloc[0]
            lines.append(
                f"None like them could have: {len(beyond)} operators leave the range that these reach, most of all "
                f"{row['operator']} by {row['beyond']:.2g} of its width."
            )
        else:
            lines.append("More of their kind could have: every operator stays within the range that these reach.")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return printable(f"<WorstInput>\n{self.summary()}")


def worst_input(
    program: Any,
    inputs: Any,
    *,
    runs: int = 200,
    against: str | None = None,
    ranges: Sequence[tuple[float, float] | None] | None = None,
    method: str | None = None,
    seed: int = 0,
    timeout: float | None = None,
) -> WorstInput:
    """Search for an input on which the runtime's final outputs are furthest off.

    Parameters
    ----------
    program
        A `.pte` with its record or ETRecord beside it, or the folder of one; an Inspection, whose program it is.
    inputs
        Example inputs, as for `etviz.study`; the first 64 are run.
    runs
        Runs of the program, those of the examples included.
    against
        ``float`` is the model that the program was quantized from, ``reference`` the lowered program in eager mode. By
        default the float model where the record keeps it.
    ranges
        Lowest and highest value of each argument. By default, and where one is None, those of the examples. Arguments
        of integers are taken from the examples.
    method
        Name of the method, ``forward`` or the only one if None.
    seed
        Of the random starts: the same seed gives the same search.
    timeout
        Seconds for one load of the program, 600 if None.

    Raises
    ------
    UsageError
        If an argument makes no sense, no example can be run, or the program has a state.
    ArtifactError
        If a file is missing or damaged.
    """
    if isinstance(runs, bool) or not isinstance(runs, int) or runs < 1:
        raise UsageError(f"runs must be a positive number, found {runs!r}")
    if against not in (None, *AGAINST):
        raise UsageError(f"against must be one of {', '.join(AGAINST)}, found {against!r}")
    if hasattr(program, "parameters"):
        raise UsageError("give the lowered program: the Inspection of etviz.debug(), or a .pte")
    first, inputs = first_item(inputs)
    example = arguments_of(program, first) if first is not None else None
    with Scratch() as folder:
        subject = subject_of(program, example, Path(folder), method)
        given = [e.values for e in islice(entries(inputs, subject.takes()), min(_EXAMPLES, runs)) if not e.problem]
        if not given:
            raise UsageError("none of the inputs is one that the program takes")
        search = _Search(subject, given, ranges, against, np.random.default_rng(seed), timeout)
        return search.run(runs)


class _Search:
    """Several searches side by side; each step of all of them is one load of the program."""

    def __init__(
        self,
        subject: Subject,
        examples: Sequence[Values],
        ranges: Sequence[tuple[float, float] | None] | None,
        against: str | None,
        random: np.random.Generator,
        timeout: float | None,
    ) -> None:
        self._subject, self._given, self._timeout, self._random = subject, examples, timeout, random
        self._base: Paired | None = None
        self._against = against
        self._ranges = _ranges(examples, ranges)
        self._rows: list[tuple[str, float, float, float, bool]] = []

    def run(self, runs: int) -> WorstInput:
        """Search until so many runs are spent."""
        with tqdm(total=runs, desc="worst input", leave=False, delay=1, unit="run") as bar:
            examples, left = self._try(self._given), runs - len(self._given)
            bar.update(len(self._given))
            known = [trial for trial in examples if trial is not None]
            if not known:
                raise UsageError("none of the inputs could be run; etviz.study() says why")
            self._note("example", [0.0] * len(known), known, set())
            ordered = sorted(known, key=lambda trial: -trial.rmse)
            lanes: list[_Trial | None] = [*ordered[: _STARTS // 2]]
            lanes += [None] * (_STARTS - len(lanes))
            best, failed = ordered[0], [0] * _STARTS
            while left > 0:
                guesses = [guess for at in range(_STARTS) for guess in self._guesses(at, lanes[at], failed[at])][:left]
                tried = self._try([values for _, _, _, values in guesses])
                bar.update(len(guesses))
                left -= len(guesses)
                for at in range(_STARTS):
                    own = [(g, t) for g, t in zip(guesses, tried, strict=True) if g[0] == at and t is not None]
                    top = max(own, key=lambda item: item[1].rmse, default=None)
                    before = lanes[at]
                    better = top is not None and (before is None or top[1].rmse > before.rmse)
                    for guess, trial in own:
                        accepted = better and top is not None and trial is top[1]
                        self._rows.append((guess[1], guess[2], trial.rmse, trial.max_abs, accepted))
                    if better and top is not None:
                        lanes[at], failed[at] = top[1], 0
                        best = top[1] if top[1].rmse > best.rmse else best
                    else:
                        failed[at] += 1
                        if failed[at] > len(_STEPS):  # a hilltop: start anywhere else
                            lanes[at], failed[at] = None, 0
        return WorstInput(self._subject, best, known, self._rows, self._against or "reference")

    def _note(self, origin: str, steps: Sequence[float], trials: Sequence[_Trial], accepted: set[int]) -> None:
        for at, (step, trial) in enumerate(zip(steps, trials, strict=True)):
            self._rows.append((origin, step, trial.rmse, trial.max_abs, at in accepted))

    def _guesses(self, lane: int, start: _Trial | None, failed: int) -> list[tuple[int, str, float, Values]]:
        """What to run next: lane, origin, length of the step, values."""
        if start is None:
            return [(lane, "random", 1.0, self._anywhere())]
        gradient, shrink = self._gradient(start), 0.5**failed
        noise = [self._random.standard_normal(getattr(value, "shape", ())) for value in start.values]
        found = [(lane, "random", _STEPS[1] * shrink, self._moved(start.values, noise, _STEPS[1] * shrink))]
        for step in _STEPS if any(item is not None and bool((item != 0).any()) for item in gradient) else ():
            found.append((lane, "gradient", step * shrink, self._moved(start.values, gradient, step * shrink)))
        return found

    def _anywhere(self) -> Values:
        """An input from anywhere within the ranges; integers are those of an example."""
        model = self._given[int(self._random.integers(len(self._given)))]
        found = []
        for value, bounds in zip(model, self._ranges, strict=True):
            if bounds is None:
                found.append(value)
                continue
            numbers = self._random.uniform(*bounds, tuple(value.shape))
            found.append(torch.from_numpy(np.asarray(numbers)).to(value.dtype))
        return tuple(found)

    def _moved(self, values: Values, directions: Sequence[Any], step: float) -> Values:
        """Values a step further in the direction of some signs, within the ranges."""
        found = []
        for value, direction, bounds in zip(values, directions, self._ranges, strict=True):
            if bounds is None or direction is None:
                found.append(value)
                continue
            low, high = bounds
            signs = torch.as_tensor(direction, dtype=torch.float64).sign()
            found.append((value.double() + step * (high - low) * signs).clamp(low, high).to(value.dtype))
        return tuple(found)

    def _try(self, inputs: Sequence[Values]) -> list[_Trial | None]:
        """Run inputs, and measure their final outputs; None where the program, or the reference, fails."""
        if not inputs:
            return []
        try:
            return self._measured(inputs)
        except EtvizError:
            if len(inputs) == 1:
                return [None]
            return [trial for values in inputs for trial in self._try([values])]

    def _measured(self, inputs: Sequence[Values]) -> list[_Trial | None]:
        with Scratch() as folder:
            paired = self._paired(inputs, Path(folder))
            evaluator = self._expected(paired)
            found: list[_Trial | None] = []
            for values, (_, block) in zip(inputs, paired.executions, strict=True):
                outputs = RuntimeLog(block, paired.artifacts.buffer).outputs()
                found.append(_trial(values, evaluator.run(values), outputs))
            return found

    def _paired(self, inputs: Sequence[Values], folder: Path) -> Paired:
        paired = self._subject.pair(self._subject.run(inputs, folder, self._timeout), self._base)
        if self._base is None:
            if is_stateful(paired.graph):
                raise UsageError("the program has a state: what an input gives depends on those before it")
            if self._against == "float" and not paired.has_float:
                raise UsageError("the record keeps no float model; give against='reference'")
            self._against = self._against or ("float" if paired.has_float else "reference")
            self._base = paired
        if len(paired.executions) != len(inputs):
            raise ExecutionError(f"{len(inputs)} inputs gave {len(paired.executions)} executions")
        return paired

    def _expected(self, paired: Paired) -> Evaluator:
        return paired.float_evaluator() if self._against == "float" else paired.evaluator()

    def _gradient(self, start: _Trial) -> list[Any]:
        """The gradient of the squared error by each argument, None where there is none."""
        with Scratch() as folder:
            paired = self._paired([start.values], Path(folder))
            log = RuntimeLog(paired.executions[0][1], paired.artifacts.buffer)
            evaluator = paired.evaluator()
            added = _added(evaluator, start.values, log)
            expected = self._expected(paired)
            leaves = [
                value.detach().double().requires_grad_() if bounds is not None else value
                for value, bounds in zip(start.values, self._ranges, strict=True)
            ]

            turns: Counter[str] = Counter()

            def after(node: Node, value: Any) -> Any:
                differences = added.get((node.name, turns[node.name]))
                turns[node.name] += 1
                if differences is None:
                    return value
                several = isinstance(value, (list, tuple))
                outs = [v + d if d is not None else v for v, d in zip(flat_values(value), differences, strict=True)]
                return outs if several else outs[0]

            with torch.enable_grad():
                runtime = Float64(evaluator.constants, evaluator.limits).call(evaluator.graph, leaves, after)
                plain = Float64(expected.constants, expected.limits).call(expected.graph, leaves)
                error = sum(
                    ((a - b) ** 2).sum()
                    for a, b in zip(runtime, plain, strict=False)
                    if isinstance(a, torch.Tensor) and a.is_floating_point() and a.shape == b.shape
                )
            wanted = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
            if not isinstance(error, torch.Tensor) or not error.requires_grad or not wanted:
                return [None] * len(leaves)
            found = iter(torch.autograd.grad(error, wanted, allow_unused=True))
            return [next(found) if isinstance(leaf, torch.Tensor) and leaf.requires_grad else None for leaf in leaves]


def _added(evaluator: Evaluator, values: Values, log: RuntimeLog) -> Mapping[tuple[str, int], list[Any]]:
    """What each instruction of a run added to what its inputs gave: one tensor for each output, or None.

    By node, and which of its executions in a loop it is, 0 for the only one.
    """
    found: dict[tuple[str, int], list[Any]] = {}

    def seen(node: Node, value: Value) -> None:
        local = flat_values(value.local) if value.local is not None else []
        if node.instruction >= 0 and value.runtime is not None and len(local) == len(value.runtime):
            differences = [_difference(*pair) for pair in zip(value.runtime, local, strict=True)]
            if not value.rounds:
                found[node.name, 0] = differences
            elif not value.apart:  # else some rounds have no value here
                for turn in range(value.rounds):
                    found[node.name, turn] = [None if whole is None else whole[turn] for whole in differences]

    evaluator.run(values, seen, partial(logged_outputs, log))
    return found


def _difference(runtime: Any, local: Any) -> torch.Tensor | None:
    if not isinstance(runtime, torch.Tensor) or not isinstance(local, torch.Tensor) or runtime.shape != local.shape:
        return None
    return (runtime.double() - local.double()).nan_to_num(0.0, 0.0, 0.0) if runtime.is_floating_point() else None


def _trial(values: Values, expected: Sequence[Any], found: Sequence[Any]) -> _Trial:
    """The error of the final outputs; infinite where NaN or Inf came up on one side only."""
    squares, count, largest = 0.0, 0, 0.0
    for a, b in zip(expected, found, strict=False):
        if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor) or a.shape != b.shape or not a.numel():
            continue
        finite = torch.isfinite(a) & torch.isfinite(b)
        if not bool((finite | (a == b) | (a.isnan() & b.isnan())).all()):
            return _Trial(values, math.inf, math.inf)
        difference = (b.double() - a.double())[finite]
        squares += float(difference.square().sum())
        count += difference.numel()
        largest = max(largest, float(difference.abs().max()) if difference.numel() else 0.0)
    return _Trial(values, math.sqrt(squares / count) if count else 0.0, largest)


def _ranges(
    examples: Sequence[Values], given: Sequence[tuple[float, float] | None] | None
) -> list[tuple[float, float] | None]:
    """Lowest and highest value of each argument, None for those that are taken from the examples as they are."""
    arguments = list(zip(*examples, strict=True))
    if given is not None and len(given) != len(arguments):
        raise UsageError(f"ranges must have one pair for each of {len(arguments)} arguments, found {len(given)}")
    found: list[tuple[float, float] | None] = []
    for at, values in enumerate(arguments):
        floating = isinstance(values[0], torch.Tensor) and values[0].is_floating_point() and values[0].numel()
        own = given[at] if given is not None else None
        if own is not None and not (len(own) == 2 and -math.inf < own[0] <= own[1] < math.inf):
            raise UsageError(f"ranges must be pairs of a lowest and a highest finite number, found {own!r}")
        if not floating:
            found.append(None)
        elif own is not None:
            found.append((float(own[0]), float(own[1])))
        else:
            finite = [value[torch.isfinite(value)].double() for value in values]
            known = [value for value in finite if value.numel()]
            found.append((min(float(v.min()) for v in known), max(float(v.max()) for v in known)) if known else None)
    return found


__all__ = ["WorstInput", "worst_input"]
