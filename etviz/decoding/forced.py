"""The reference's logits, call after call, and their noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from etviz.artifacts.record.weights import CachedTensors
from etviz.calls.logits import logits_of
from etviz.errors import PairingError
from etviz.evaluation.evaluator import Evaluator
from etviz.evaluation.law import ENOUGH, allowance
from etviz.evaluation.noise import PASSES, Lanes, Spread, larger
from etviz.evaluation.replay import Replay, question
from etviz.evaluation.series import Series
from etviz.graph.ir import CONTROL

_TOGETHER: Final = 256 << 20
Follow = Callable[["Sequence[torch.Tensor]"], "Sequence[Sequence[Any]]"]
"""Takes the logits of the last calls, none at first; returns the flat inputs of the next ones, none at the end."""


@question
def follow(replay: Replay, ask: Follow) -> int:
    """Evaluate the reference with its state; return the most bytes that the values of a call took.

    `ask` also receives the logits of the calls before one that fails.
    """
    evaluator, last = _for_many_calls(replay.fresh()), list[torch.Tensor]()
    series = Series(evaluator)
    while calls := ask(last):
        last = []
        try:
            last.extend(map(logits_of, series.run(calls)))
        except PairingError:
            ask(last)
            raise
    return evaluator.limits.peak


def _for_many_calls(evaluator: Evaluator) -> Evaluator:
    evaluator.constants = CachedTensors(evaluator.constants)
    return evaluator


@question
def logits_of_calls(replay: Replay, calls: Sequence[Sequence[Any]]) -> list[torch.Tensor]:
    return [logits_of(outputs) for outputs in Series(_for_many_calls(replay.fresh())).run(calls)]


@question
def outputs_of(replay: Replay, runs: Sequence[Sequence[Any]]) -> list[list[Any]]:
    return [list(replay.fresh().run(inputs, replay=False)) for inputs in runs]


@question
def noise_of_logits(
    replay: Replay,
    calls: Sequence[Sequence[Any]],
    vocabulary: int,
    peak: int = 0,
    progress: Callable[[int, int], None] | None = None,
    *,
    floating: bool = False,
) -> list[list[list[float]]]:
    """Measure the noise of the logits of calls that follow one another; perturbed lanes keep their own state.

    The noise of the difference of two logits is √2 times the standard deviation, over the vocabulary, of a row's
    perturbed logits less the plain ones: a shift of all logits changes no difference. `allowance` widens it for one
    number. There are as many lanes as give `ENOUGH` logits for a row; with `peak` bytes a call, lanes beyond 256 MB
    follow one another. `floating` asks for the float model that was quantized.

    For each call and row, returns the noise of all logits (RMS), and of the difference of two.
    """
    start = _for_many_calls(replay.fresh_float() if floating and replay.fresh_float is not None else replay.fresh())
    wanted = min(PASSES, math.ceil(ENOUGH / max(1, vocabulary)))
    together = 1 if any(node.target in CONTROL for node in start.graph.nodes) else max(1, _TOGETHER // max(1, peak))
    rows: list[list[_LogitNoise]] = []
    done, total = 0, len(calls) * math.ceil(wanted / together)
    for first in range(0, wanted, together):
        lanes = Lanes(start, range(first, min(wanted, first + together)))
        for number, logits in enumerate(map(logits_of, Series(lanes).run(calls))):
            if not first:
                rows.append([_LogitNoise() for _ in logits])
            _add(lanes, logits, rows[number])
            done += 1
            if progress is not None:
                progress(done, total)
    return [[list(row.noise) for row in call] for call in rows]


def _add(lanes: Lanes, logits: torch.Tensor, rows: Sequence[_LogitNoise]) -> None:
    for at, outputs in enumerate(lanes.perturbed_outputs):
        for row, perturbed, value in zip(rows, logits_of(outputs), logits, strict=True):
            (row.roundings if at < lanes.number else row.grids).add(perturbed, value)


class _Kind:
    def __init__(self) -> None:
        self.spread = Spread()
        self._variances: list[float] = []
        self._size = 0

    def add(self, perturbed: torch.Tensor, value: torch.Tensor) -> None:
        self.spread.add(perturbed, value)
        change = (perturbed.double() - value.double())[torch.isfinite(perturbed) & torch.isfinite(value)]
        self._size = len(change)
        self._variances.append(float(change.var(correction=0)) if self._size else 0.0)

    @property
    def pair(self) -> float:
        if not self._variances:
            return math.nan
        mean = sum(self._variances) / len(self._variances)
        return math.sqrt(2 * mean) * allowance(1, max(1, self._size * len(self._variances)))


@dataclass(slots=True)
class _LogitNoise:
    roundings: _Kind
    grids: _Kind

    def __init__(self) -> None:
        self.roundings, self.grids = _Kind(), _Kind()

    @property
    def noise(self) -> tuple[float, float]:
        pairs = [kind.pair for kind in (self.roundings, self.grids) if not math.isnan(kind.pair)]
        return float(larger(self.roundings.spread.noise, self.grids.spread.noise)), max(pairs, default=math.nan)
