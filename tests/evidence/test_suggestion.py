"""A suggestion is proved: its code, pasted, gives the numbers that it shows; variants are measured side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import XNNPACKQuantizer, get_symmetric_quantization_config
from torch import Tensor, nn

import etviz
from etviz.errors import UsageError
from etviz.evidence.search import Unit, ddmin
from etviz.pipeline.execute import execute
from tests.programs import Executed

Get = Callable[[str], Executed]


class Fragile(nn.Module):
    """Two of three branches have one huge weight, on a feature that is always 0: it ruins their grid, nothing else."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.sound = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        with torch.no_grad():
            self.first.weight[0, 0] = self.second.weight[0, 0] = 40.0

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.first(x), self.second(x), torch.relu(self.sound(x))], -1)


def _quantizer(**options: Any) -> XNNPACKQuantizer:
    return XNNPACKQuantizer().set_global(get_symmetric_quantization_config(**options))


@pytest.fixture(scope="module")
def fragile() -> tuple[nn.Module, list[tuple[Tensor]]]:
    """The model, and inputs whose first feature is 0."""
    torch.manual_seed(1)
    inputs = [(torch.randn(4, 8),) for _ in range(8)]
    for (x,) in inputs:
        x[:, 0] = 0
    return Fragile().eval(), inputs


@pytest.fixture(scope="module")
def inspection(fragile: tuple[nn.Module, list[tuple[Tensor]]]) -> etviz.Inspection:
    """It, quantized per tensor."""
    model, inputs = fragile
    return etviz.debug(
        model, inputs[0], partitioner=[XnnpackPartitioner()], quantizer=_quantizer(), calibration=inputs[1:]
    )


@pytest.fixture(scope="module")
def suggestion(inspection: etviz.Inspection) -> etviz.Suggestion:
    """What is proposed for it, whatever it costs."""
    return etviz.suggest(inspection, budget=1000.0)


def _rmse(outputs: Sequence[Sequence[Tensor]], expected: Sequence[Tensor]) -> float:
    errors = [float((o[0] - e).square().mean().sqrt()) for o, e in zip(outputs, expected, strict=True)]
    return float(np.mean(errors))


def _decibels(outputs: Sequence[Sequence[Tensor]], expected: Sequence[Tensor]) -> float:
    """Of the mean ratio of noise to signal."""
    pairs = [(o[0].double(), e.double()) for o, e in zip(outputs, expected, strict=True)]
    return -10 * math.log10(np.mean([float((o - e).square().sum() / e.square().sum()) for o, e in pairs]))


def test_culprits_that_only_help_together_are_found_together(suggestion: etviz.Suggestion) -> None:
    assert suggestion
    assert set(suggestion.operators) == {"linear", "linear_1"}
    assert suggestion.after["rmse"] < 0.1 * suggestion.before["rmse"]
    assert suggestion.inputs == 8
    assert suggestion.trials["reason"].iloc[-1] == "proposed"


def test_the_code_gives_the_numbers_that_are_shown(
    suggestion: etviz.Suggestion,
    inspection: etviz.Inspection,
    fragile: tuple[nn.Module, list[tuple[Tensor]]],
    tmp_path: Any,
) -> None:
    model, inputs = fragile
    names: dict[str, Any] = {"quantizer": _quantizer()}
    exec(suggestion.code, names)  # what a user pastes
    etviz.debug(
        model,
        inputs[0],
        partitioner=[XnnpackPartitioner()],
        quantizer=names["quantizer"],
        calibration=inputs[1:],
        workdir=tmp_path,
    )
    with torch.no_grad():
        expected = [model(*values) for values in inputs]
    after = execute(tmp_path / "model.pte", inputs).outputs
    before = execute(inspection.analysis.findings.files["pte"], inputs).outputs
    assert suggestion.after["rmse"] == pytest.approx(_rmse(after, expected), rel=1e-4)
    assert suggestion.before["rmse"] == pytest.approx(_rmse(before, expected), rel=1e-4)
    assert suggestion.after["size_bytes"] == (tmp_path / "model.pte").stat().st_size
    assert suggestion.after["latency_ms"] > 0


class Shifted(nn.Module):
    """Scores: what `loud` adds to all of them changes no probability. Both weights have a ruined grid."""

    def __init__(self) -> None:
        super().__init__()
        self.loud, self.quiet = nn.Linear(8, 1), nn.Linear(8, 8)
        with torch.no_grad():
            self.loud.weight.mul_(20)
            self.loud.weight[0, 0], self.quiet.weight[0, 0] = 2000.0, 40.0

    def forward(self, x: Tensor) -> Tensor:
        return self.quiet(x) - self.loud(x)


def test_the_divergence_of_scores_is_a_measure() -> None:
    torch.manual_seed(2)
    model, inputs = Shifted().eval(), [(torch.randn(3, 8),) for _ in range(6)]
    for (x,) in inputs:
        x[:, 0] = 0
    made: dict[str, Any] = {"partitioner": [XnnpackPartitioner()], "quantizer": _quantizer(), "calibration": inputs}
    found = etviz.debug(model, inputs[0], **made)
    by_error = etviz.suggest(found, budget=1000.0, goal=0.5)
    by_divergence = etviz.suggest(found, budget=1000.0, goal=0.5, measure="kl")
    assert by_error.operators == ("linear_1",)
    assert by_divergence.operators == ("linear",)
    assert by_divergence.after["kl"] < 0.5 * by_divergence.before["kl"]
    assert "kl" in by_divergence.code
    assert not etviz.suggest(found, budget=1000.0, goal=0.5, measure="kl", size=0.5)


class Remembering(nn.Module):
    """Scores of the next token from a cache of all tokens so far."""

    cache: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(12, 8), nn.Linear(8, 12)
        self.register_buffer("cache", torch.zeros(1, 6, 8))

    def forward(self, tokens: Tensor, position: Tensor) -> Tensor:
        self.cache.index_copy_(1, position, self.embed(tokens))
        return self.head(self.cache.sum(1))


def test_the_calls_of_a_model_with_state_are_measured_in_order() -> None:
    torch.manual_seed(3)
    model = Remembering().eval()
    calls = [(torch.tensor([[3 + at]]), torch.tensor([at])) for at in range(5)]
    made: dict[str, Any] = {"partitioner": [XnnpackPartitioner()], "quantizer": _quantizer(), "calibration": calls}
    found = etviz.debug(model, calls[0], **made)
    suggestion = etviz.suggest(found, budget=1000.0, goal=0.5, measure="kl", inputs=calls)
    assert not model.cache.any()
    outputs = execute(found.analysis.findings.files["pte"], calls).outputs
    with torch.no_grad():
        expected = [model(*values).double().log_softmax(-1) for values in calls]
    pairs = [(own, given[0].double().log_softmax(-1)) for own, given in zip(expected, outputs, strict=True)]
    divergences = [float((own.exp() * (own - given)).sum()) for own, given in pairs]
    assert suggestion.before["kl"] == pytest.approx(np.mean(divergences), rel=1e-3)
    assert suggestion.after["kl"] < 0.5 * suggestion.before["kl"]


def test_nothing_is_proposed_beyond_the_budget(inspection: etviz.Inspection) -> None:
    suggestion = etviz.suggest(inspection, budget=1e-6, goal=0.5)
    assert not suggestion
    assert suggestion.code == ""
    assert suggestion.after == {}
    assert "the budget is 1e-06" in suggestion.reason
    assert len(suggestion.trials) == 1


def test_a_model_that_has_to_stay_in_float_as_a_whole_is_said_to() -> None:
    torch.manual_seed(0)
    inspection = etviz.debug(
        nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 4)).eval(),
        (torch.randn(2, 16),),
        partitioner=[XnnpackPartitioner()],
        quantizer=_quantizer(),
        calibration=[(1e-3 * torch.randn(2, 16),)],
    )
    suggestion = etviz.suggest(inspection, budget=1000.0, inputs=[(torch.randn(2, 16),)], goal=1e-3)
    assert {"linear", "linear_1"} <= set(suggestion.operators)
    assert suggestion.reason.startswith(f"All {len(suggestion.operators)} quantized operators stay in float: ")


def test_a_float_model_is_taken_off_its_backend_only_if_that_helps() -> None:
    torch.manual_seed(0)
    inspection = etviz.debug(
        nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 4)).eval(),
        (torch.randn(3, 16),),
        partitioner=[XnnpackPartitioner()],
    )
    suggestion = etviz.suggest(inspection, budget=1000.0)
    assert "rmse" in suggestion.before
    if suggestion:
        assert suggestion.after["rmse"] <= 0.95 * suggestion.before["rmse"]
    else:
        assert suggestion.reason


def test_sweep_puts_variants_side_by_side(fragile: tuple[nn.Module, list[tuple[Tensor]]]) -> None:
    model, inputs = fragile
    xnnpack = {"partitioner": [XnnpackPartitioner()]}
    recipes = {
        "portable": {},
        "int8 per tensor": {**xnnpack, "quantizer": _quantizer(), "calibration": inputs},
        "int8 per channel": {**xnnpack, "quantizer": _quantizer(is_per_channel=True), "calibration": inputs},
        "wrong": {"partitioner": ["nothing"]},
        "unknown": {"compiler": 1},
    }
    sweep = etviz.sweep(
        model, recipes, inputs, task={"close": lambda a, b, _: float(torch.allclose(a[0], b[0], atol=1e-3))}
    )
    table = sweep.table
    assert list(table.index) == list(recipes)
    assert table["status"].tolist() == ["measured"] * 3 + ["failed"] * 2
    assert (table["reason"].iloc[3:] != "").all()
    assert "compiler" in str(table.loc["unknown", "reason"])
    with torch.no_grad():
        expected = [model(*values) for values in inputs]
    for name, variant in sweep.variants.items():
        again = execute(variant.subject.pte, inputs).outputs
        assert table.loc[name, "rmse"] == pytest.approx(_rmse(again, expected), rel=1e-4, abs=1e-9)
        if name != "portable":  # whose outputs may be equal
            assert table.loc[name, "sqnr_db"] == pytest.approx(_decibels(again, expected), abs=1e-3)
        assert table.loc[name, "size_bytes"] == variant.subject.pte.stat().st_size
    assert table["rmse"].iloc[:3].argsort().tolist() == [0, 2, 1]
    assert table.loc["portable", "close"] == 1.0
    assert table.loc["portable", "pareto"]
    assert not table.loc["wrong", "pareto"]
    assert sweep.plot().get_xlabel() == "latency_ms"


@pytest.mark.parametrize("wanted", [set(), {3}, {0, 19}, {4, 5, 6, 17}, set(range(20))])
def test_ddmin_finds_what_is_needed_and_no_more(wanted: set[int]) -> None:
    units = [Unit((str(at),)) for at in range(20)]
    found = ddmin(units, lambda part: wanted <= {int(unit.names[0]) for unit in part})
    assert {int(unit.names[0]) for unit in found} == wanted or (not wanted and len(found) == 1)


def test_what_makes_no_sense_is_refused(inspection: etviz.Inspection, executed: Get) -> None:
    for wrong in ({"budget": 0}, {"budget": True}, {"budget": math.nan}, {"goal": 2.0}):
        with pytest.raises(UsageError):
            etviz.suggest(inspection, **wrong)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="model is not known"):
        etviz.suggest(executed("plain_cnn").load())
    with pytest.raises(UsageError, match="recipes must be"):
        etviz.sweep(nn.Identity(), {}, [torch.zeros(1)])
    with pytest.raises(UsageError, match="can name a folder"):
        etviz.sweep(nn.Identity(), {"../up": {}}, [torch.zeros(1)])


@pytest.mark.parametrize("name", ["rmse", "pareto", "torch", "latency_ms"])
def test_a_task_is_not_named_like_a_column(name: str, inspection: etviz.Inspection) -> None:
    task = {name: lambda *_: 1.0}
    with pytest.raises(UsageError, match=f"task: '{name}' is a column of a sweep's table already"):
        etviz.sweep(nn.Identity(), {"portable": {}}, [torch.zeros(1)], task=task)
    if name not in ("pareto", "torch"):
        with pytest.raises(UsageError, match=f"task: '{name}' is a column of a suggestion's tables already"):
            etviz.suggest(inspection, task=task)


def test_an_input_of_nan_takes_no_number_from_the_others_and_a_wrong_one_is_named() -> None:
    model = nn.Sequential(nn.Linear(4, 2)).eval()
    good, nan = torch.ones(1, 4), torch.full((1, 4), math.nan)
    table = etviz.sweep(model, {"portable": {}}, [(nan,), (good,)], latency=False).table
    alone = etviz.sweep(model, {"portable": {}}, [(good,)], latency=False).table
    for name in ("rmse", "max_abs", "worst_rmse"):
        assert list(table[name]) == list(alone[name])
        assert table[name].notna().all()
    with pytest.raises(UsageError, match=r"the model fails on input 1 .RuntimeError: mat1 and mat2"):
        etviz.sweep(model, {"portable": {}}, [(good,), (torch.ones(1, 5),)], latency=False)
