"""Calls evaluated with a further axis have the values, the state and the noise of calls evaluated one by one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from etviz.errors import PairingError
from etviz.evaluation.evaluator import Evaluator
from etviz.evaluation.noise import Lanes
from etviz.evaluation.replay import Replay
from etviz.evaluation.series import Series
from etviz.pipeline.lower import flatten
from tests.language.matrix import load
from tests.language.programs import ROOM, STEPS, calls_of, made
from tests.shelf import Shelf

CALLS = 6


def replayed(shelf: Shelf, name: str) -> Replay:
    replay = load(made(shelf, name), "exact", inputs=calls_of(STEPS)).analysis.tables.compared.replay
    assert replay is not None
    return replay


def calls(count: int) -> list[list[Any]]:
    return [flatten(call) for call in calls_of(count)]


def one_by_one(evaluator: Evaluator) -> Iterator[list[Any]]:
    return (evaluator.run(inputs, replay=False) for inputs in calls(CALLS))


@pytest.mark.parametrize(
    "name", ["plain", "custom", "custom_8da4w", "quantized_cache", "ring", "sink", "plain_bf16", "gated_delta"]
)
def test_a_series_has_the_values_of_its_calls(shelf: Shelf, name: str) -> None:
    replay = replayed(shelf, name)
    found: list[tuple[list[torch.Tensor], list[float], dict[str, Any]]] = []
    for together in (False, True):
        lanes = Lanes(replay.fresh(), range(3))
        logits: list[torch.Tensor] = []
        squares: list[float] = []
        for outputs in Series(lanes).run(calls(CALLS)) if together else one_by_one(lanes):
            plain = outputs[0].double()
            logits.append(plain)
            squares += [float((lane[0].double() - plain).square().mean()) for lane in lanes.perturbed_outputs]
        found.append((logits, squares, dict(lanes.state)))
    (logits, squares, state), (series, series_squares, series_state) = found
    for one, other in zip(logits, series, strict=True):
        torch.testing.assert_close(other, one, rtol=0, atol=3e-6 * float(one.abs().max()))
    assert series_state.keys() == state.keys()
    for key, value in state.items():
        one = torch.as_tensor(value).double()
        torch.testing.assert_close(
            torch.as_tensor(series_state[key]).double(), one, rtol=0, atol=3e-6 * float(one.abs().max() + 1)
        )
    assert 1 / 4 < sum(series_squares) / sum(squares) < 4
    assert len(series_squares) == len(squares)


def test_operators_are_evaluated_together(shelf: Shelf) -> None:
    """All but the attention, and the positions that Python reads."""
    series = Series(replayed(shelf, "custom").fresh())
    assert len(list(series.run(calls(CALLS)))) == CALLS
    apart = sorted(node.target for node in series.apart())
    assert set(apart) == {"aten._local_scalar_dense.default", "llama.custom_sdpa.default"}


@pytest.mark.parametrize("name", ["plain", "custom"])
def test_calls_are_evaluated_ahead(shelf: Shelf, name: str) -> None:
    """A program that reads its position as a number, too."""
    evaluator = replayed(shelf, name).fresh()
    evaluator.run(calls(1)[0], replay=False)
    series, given = Series(evaluator), calls(CALLS)
    series.look_ahead(1, given[1:])
    assert all(series.known(at, given[at]) for at in range(1, CALLS))


def test_the_call_that_fails_is_known(shelf: Shelf) -> None:
    given = [*calls(3), flatten((torch.tensor([[1]]), {"input_pos": torch.tensor([ROOM])})), *calls(2)]
    found = Series(replayed(shelf, "custom").fresh()).run(given)
    assert len(list(itertools.islice(found, 3))) == 3
    with pytest.raises(PairingError, match=f"index {ROOM} is out of bounds"):
        next(found)
