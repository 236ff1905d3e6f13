"""Compares executions in turn, with their first perturbed lanes beside the comparison and later calls ahead of it."""

from __future__ import annotations

import logging
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from etviz.comparison.hypotheses import explain
from etviz.comparison.judging import EarlierNoise
from etviz.errors import EtvizError
from etviz.evaluation.noise import Growth, Lanes, Samples, first_lanes
from etviz.evaluation.series import Series

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from etviz.comparison.gap import ExecutionGaps
    from etviz.comparison.judging import Judge
    from etviz.evaluation.evaluator import Evaluator
    from etviz.evaluation.interpreter import State
    from etviz.tensors.metrics import Noise

    Compare = Callable[[Evaluator], list[ExecutionGaps]]

logger = logging.getLogger(__name__)


class Kept(Protocol):
    def of(self, inputs: Sequence[Any]) -> Samples | None: ...

    def keep(self, inputs: Sequence[Any], samples: Samples) -> None: ...

    def introduced(self, inputs: Sequence[Any]) -> dict[str, list[Noise]]: ...

    def keep_introduced(self, inputs: Sequence[Any], noises: Mapping[str, list[Noise]]) -> None: ...


class InLanes:
    """What one execution leaves in the state of `evaluator`, the next one finds.

    With `measured`, comparisons have the `samples` of their noise. Executions on the same inputs share them where they
    leave no state. `kept` has those of earlier loads.
    """

    def __init__(self, evaluator: Evaluator, *, measured: bool, kept: Kept | None = None) -> None:
        self._kept = kept if not evaluator.has_branches else None
        self._plain, self._samples, self._given = evaluator, Samples(), ()
        self._left: Samples | None = None
        self._earlier, self._told = EarlierNoise(), dict[int, Samples]()
        self._go_on_with(first_lanes(evaluator) if measured else evaluator)

    def _go_on_with(self, evaluator: Evaluator) -> None:
        self.evaluator, self._series = evaluator, Series(evaluator)
        evaluator.earlier = self._earlier.introduced

    @property
    def states(self) -> tuple[State, State, State]:
        return self.evaluator.states

    @states.setter
    def states(self, states: tuple[State, State, State]) -> None:
        self.evaluator.states = states

    def look_ahead(self, run: int, calls: Sequence[Sequence[Any]]) -> None:
        """Evaluate the execution `run` and those after it, whose inputs are `calls`, as far as there is room."""
        calls = calls[: self._earlier.lacking]
        told = [Samples(growth=Growth()) for _ in calls] if isinstance(self.evaluator, Lanes) else []
        if self._series.look_ahead(run, calls, told):
            self._told = dict(enumerate(told, run))

    def compare(self, run: int, inputs: Sequence[Any], compare: Compare) -> list[ExecutionGaps]:
        """`compare` compares the executions from `run` on that have these `inputs`."""
        if self._kept is None:
            return self._compare(run, inputs, compare)
        evaluators, noises = {self.evaluator, self._plain}, self._kept.introduced(inputs)
        before = len(noises)
        for evaluator in evaluators:
            evaluator.noises = noises
        try:
            comparisons = self._compare(run, inputs, compare)
        finally:  # what asks later may give other values
            for evaluator in evaluators:
                evaluator.noises = None
        if len(noises) > before:
            self._kept.keep_introduced(inputs, noises)
        return comparisons

    def _compare(self, run: int, inputs: Sequence[Any], compare: Compare) -> list[ExecutionGaps]:
        lanes = self.evaluator
        lanes.known = self._series.known(run, inputs)
        if not isinstance(lanes, Lanes):
            return compare(lanes)
        if self._samples.lanes and lanes.independent and same(inputs, self._given):
            comparisons = self._beside(compare)
        elif self._kept is not None and (known := self._kept.of(inputs)) is not None:
            self._samples, self._given = known, inputs
            before = len(known.steps)
            comparisons = self._beside(compare)
            if len(known.steps) > before:
                self._kept.keep(inputs, known)
        else:
            samples = copy(self._told[run]) if lanes.known else Samples(growth=Growth())
            before, self._samples, self._given = lanes.states, samples, inputs
            lanes.steps_before = samples.steps if not lanes.has_branches else None
            try:
                comparisons = self._samples.run(lanes, partial(compare, lanes))
            except EtvizError:  # perhaps only in the perturbed lanes, or as memory lacks for these
                logger.debug("the noise of execution %d is measured apart", run, exc_info=True)
                self._go_on_with(self._plain)
                self.states = before
                return compare(self._plain)
            finally:
                lanes.steps_before = None
            if self._kept is not None:
                self._kept.keep(inputs, self._samples)
        for comparison in comparisons:
            comparison.samples = self._samples
        return comparisons

    def _beside(self, compare: Compare) -> list[ExecutionGaps]:
        self._plain.shown_before, self._plain.steps_before = self._samples.alone, self._samples.steps
        try:
            return compare(self._plain)
        finally:
            self._plain.shown_before, self._plain.steps_before = {}, None

    def settle(self, comparison: ExecutionGaps) -> None:
        """Judge total gaps as far as noise is known; where that is enough, measure no more."""
        explain(comparison)
        self._earlier.settle(comparison)
        self._left = comparison.samples
        unknown = not comparison.judged and self.evaluator.keeps_state  # so are those of all that come later
        self._earlier.lacking = None if unknown else self._earlier.lacking
        if isinstance(self.evaluator, Lanes) and (unknown or self._earlier.is_enough):
            states = self.states
            self._go_on_with(self._plain)
            self.states = states

    def judge(
        self,
        judge: Judge,
        comparisons: Sequence[ExecutionGaps],
        inputs: Sequence[Sequence[Any]],
        fresh: Callable[[], Evaluator],
    ) -> None:
        """Judge what is left, and keep what further lanes gave for it."""
        grown = self._samples.growth or Growth()
        imposed = grown.imposed
        judge(comparisons, inputs, fresh)
        left = self._left
        if self._kept is None or left is None:
            return
        if left.lanes > self._samples.lanes or grown.imposed is not imposed:
            self._samples.further = left
            self._kept.keep(self._given, self._samples)


def same(inputs: Sequence[Any], others: Sequence[Any]) -> bool:
    return len(inputs) == len(others) and all(a is b for a, b in zip(inputs, others, strict=True))
