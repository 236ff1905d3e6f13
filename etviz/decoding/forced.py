"""The reference's logits, call after call, and their noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from etviz.calls.logits import logits_of
from etviz.evaluation.law import allowance
from etviz.evaluation.noise import Lanes, Spread, batches, larger
from etviz.evaluation.replay import question

if TYPE_CHECKING:
    from etviz.evaluation.replay import Replay

Follow = Callable[["torch.Tensor | None"], "Sequence[Any] | None"]
"""Takes the logits of the last call, None at first, and returns the flat inputs of the next call, None at the end."""


@question
def follow(replay: Replay, ask: Follow, *, noise: bool = True) -> list[list[list[float]]]:
    """Evaluate the reference call after call, and measure the noise of its logits.

    The state is kept between calls, in the perturbed lanes too. The noise of the difference of two logits is √2 times
    the standard deviation, over the vocabulary, of a row's perturbed logits less the plain ones: what moves all logits
    alike moves no difference. `allowance` widens it for one number.

    Parameters
    ----------
    replay
        Of the program.
    ask
        Receives the logits of each call, and gives the inputs of the next one.
    noise
        Measure the noise.

    Returns
    -------
    list
        For each call and row of its logits: the noise of all logits (RMS), and of the difference of two. NaN where it
        was not measured.
    """
    start = replay.fresh()
    given: list[Sequence[Any]] = []
    plain: list[torch.Tensor] = []
    rows: list[list[_Row]] = []
    if not noise:
        last = None
        while (inputs := ask(last)) is not None:
            last = logits_of(start.run(inputs, replay=False))
            rows.append([_Row() for _ in last])
        return [[list(row.noise) for row in call] for call in rows]
    for seeds in batches(start.graph):
        lanes = Lanes(start, seeds)
        if seeds[0]:
            for inputs, logits, call in zip(given, plain, rows, strict=True):
                lanes.run(inputs)
                _add(lanes, logits, call)
            continue
        last = None
        while (inputs := ask(last)) is not None:
            last = logits_of(lanes.run(inputs))
            given.append(inputs)
            plain.append(last)
            rows.append([_Row() for _ in last])
            _add(lanes, last, rows[-1])
    return [[list(row.noise) for row in call] for call in rows]


def _add(lanes: Lanes, logits: torch.Tensor, rows: Sequence[_Row]) -> None:
    for at, outputs in enumerate(lanes.perturbed_outputs):
        for row, perturbed, value in zip(rows, logits_of(outputs), logits, strict=True):
            (row.roundings if at < lanes.number else row.grids).add(perturbed, value)


class _Kind:
    """The differences of one row in lanes of one kind."""

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
        """Noise of the difference of two logits."""
        if not self._variances:
            return math.nan
        mean = sum(self._variances) / len(self._variances)
        return math.sqrt(2 * mean) * allowance(1, max(1, self._size * len(self._variances)))


@dataclass(slots=True)
class _Row:
    """The noise of one row of logits: from other roundings, and from other grids."""

    roundings: _Kind
    grids: _Kind

    def __init__(self) -> None:
        self.roundings, self.grids = _Kind(), _Kind()

    @property
    def noise(self) -> tuple[float, float]:
        pairs = [kind.pair for kind in (self.roundings, self.grids) if not math.isnan(kind.pair)]
        return float(larger(self.roundings.spread.noise, self.grids.spread.noise)), max(pairs, default=math.nan)
