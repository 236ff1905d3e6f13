"""Calls evaluated with a further axis have the values, the state and the noise of calls evaluated one by one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves

from etviz.comparison import hypotheses
from etviz.comparison.exact import compare_exact
from etviz.comparison.gap import TOGETHER
from etviz.comparison.measurement import measure
from etviz.errors import PairingError
from etviz.evaluation.dynamic_quantization import is_dynamic, without_quantization
from etviz.evaluation.evaluator import Evaluator
from etviz.evaluation.noise import Lanes, Rounding, Samples
from etviz.evaluation.replay import Replay
from etviz.evaluation.series import Series
from etviz.evaluation.values import Value
from etviz.graph.ir import Node
from etviz.tensors.metrics import MEASURED
from tests.language.matrix import load
from tests.language.programs import ROOM, STEPS, calls_of, made
from tests.shelf import Shelf

CALLS = 6


def replayed(shelf: Shelf, name: str) -> Replay:
    replay = load(made(shelf, name), "exact", inputs=calls_of(STEPS)).analysis.tables.compared.replay
    assert replay is not None
    return replay


def calls(count: int) -> list[list[Any]]:
    return [tree_leaves(call) for call in calls_of(count)]


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


def test_a_row_s_tensors_have_its_numbers(shelf: Shelf) -> None:
    tables = load(made(shelf, "plain"), "exact", inputs=calls_of(STEPS)).analysis.tables
    assert tables.recall is not None
    for gap in tables.gaps:
        reference = tables.recall.reference(gap)
        assert reference is not None
        assert measure(reference, gap.runtime, gap.scale)[0] == gap.total


@pytest.mark.parametrize("name", ["plain", "custom"])
def test_calls_are_evaluated_ahead(shelf: Shelf, name: str) -> None:
    """A program that reads its position as a number, too."""
    evaluator = replayed(shelf, name).fresh()
    evaluator.run(calls(1)[0], replay=False)
    series, given = Series(evaluator), calls(CALLS)
    series.look_ahead(1, given[1:])
    assert all(series.known(at, given[at]) for at in range(1, CALLS))


def test_executions_with_unknown_inputs_cost_no_noise_and_no_hypotheses(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, tried = list[Samples](), list[Any]()
    run = Samples.run
    monkeypatch.setattr(Samples, "run", lambda self, *given: (runs.append(self), run(self, *given))[1])
    monkeypatch.setattr(hypotheses, "hypotheses", lambda *given: tried.append(given) or iter(()))
    reasons = load(made(shelf, "custom"), "exact").gaps["reason"].tolist()
    assert "the inputs of the run are not known: only introduced gaps" in reasons
    assert not tried
    assert len(runs) == 2  # of the first execution, which had the known inputs, and of the second one


def test_perturbed_values_are_told_and_not_kept(shelf: Shelf) -> None:
    """In 5 lanes they took most of the memory; what a call leaves is needed later."""
    evaluator, given = replayed(shelf, "plain").fresh(), calls(CALLS)
    lanes, alone = Lanes(evaluator, range(3)), [Samples() for _ in given]
    for samples, inputs in zip(alone, given, strict=True):
        samples.run(lanes, partial(lanes.run, inputs, replay=False))
    lanes, told = Lanes(evaluator, range(3)), [Samples() for _ in given]
    lanes.run(given[0], replay=False)
    series = Series(lanes)
    assert series.look_ahead(1, given[1:], told[1:])
    plain, perturbed = series.known(1, given[1])
    graph = evaluator.graph
    same = {name for name in plain.env if name in perturbed and perturbed[name] is plain[name]}
    kept = {node.name for node in graph.nodes if node.name in perturbed} - same
    shared = {node.name for node in graph.nodes if node.target == "delegate" and same.issuperset(node.reads())}
    assert kept <= {*graph.mutations.values(), *graph.results()} | shared
    for one, other in zip(alone[1:], told[1:], strict=True):
        assert one.values.keys() == other.values.keys()
        before, after = (sum(both[0].rms for both in item.values.values()) for item in (one, other))
        assert 1 / 2 < after / before < 2


def test_a_delegate_without_its_grids_is_evaluated_for_all_calls(shelf: Shelf) -> None:
    evaluator, given = replayed(shelf, "custom_8da4w").fresh(), calls(CALLS)
    evaluator.run(given[0], replay=False)
    states, series = evaluator.states, Series(evaluator)
    series.look_ahead(1, given[1:])
    asked: list[str] = []

    def compare(node: Node, value: Value) -> None:
        if node.target != "delegate" or not is_dynamic(evaluator.graph.inside(node)):
            return
        without = without_quantization(evaluator.graph.inside(node))
        (known, *_) = series.known(call, given[call])
        args = [known[argument.name] for argument in node.args]
        for one, other in zip(evaluator.call(without, args), known.inside(without, node), strict=True):
            torch.testing.assert_close(other, one, rtol=0, atol=3e-6 * float(one.abs().max()))
        asked.append(node.name)

    evaluator.states = states
    for call in range(1, CALLS):
        evaluator.run(given[call], compare, replay=False)
    assert len(set(asked)) > 1
    assert len(asked) == len(set(asked)) * (CALLS - 1)


class Counting(Rounding):
    calls = 0

    def call(self, *args: Any, **named: Any) -> Any:
        self.calls += 1
        return super().call(*args, **named)


def test_operators_without_values_run_with_other_roundings_where_their_error_is_in_doubt(shelf: Shelf) -> None:
    replay, rounding = replayed(shelf, "custom"), Counting(0)
    evaluator = replay.fresh()
    evaluator.roundings = [rounding]
    first = replay.executions[0]
    gaps = [gap for gap in compare_exact(evaluator, first.log, first.inputs).gaps if TOGETHER in gap.note]
    doubtful = [gap for gap in gaps if gap.introduced_noise.how == MEASURED]
    assert gaps
    assert len(doubtful) < len(gaps)
    assert bool(rounding.calls) == bool(doubtful)
    assert rounding.calls < len(gaps)


def test_the_call_that_fails_is_known(shelf: Shelf) -> None:
    given = [*calls(3), tree_leaves((torch.tensor([[1]]), {"input_pos": torch.tensor([ROOM])})), *calls(2)]
    found = Series(replayed(shelf, "custom").fresh()).run(given)
    assert len(list(itertools.islice(found, 3))) == 3
    with pytest.raises(PairingError, match=f"index {ROOM} is out of bounds"):
        next(found)
