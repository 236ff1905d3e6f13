"""Programs of upstream's Llama: each value that is logged is compared, and no operator of a sound one is blamed."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from torch import nn

import etviz
from etviz.errors import EtvizError
from etviz.pipeline.execute import execute
from etviz.pipeline.lower import lower
from tests.language.matrix import judge, load
from tests.language.plants import PLANTS, culprits, exported, named, run
from tests.language.programs import RECIPES, STEPS, Recipe, calls_of, made, model_of, small
from tests.shelf import Shelf

SILENT = {
    "the runtime logged no value for it",
    "it has no debug handle",
    "the runtime logged another number of values than its group has",
}
UNSEEN = ("llama::update_cache.out",)
"""Calls whose writes no delegate reads: of a quantized cache, whose values are compared where they are dequantized."""


@pytest.mark.parametrize("name", ["custom", "quantized_cache"])
@pytest.mark.parametrize("way", ["exact", "derived", "handles"])
def test_values_are_compared_and_nothing_is_blamed(shelf: Shelf, name: str, way: str) -> None:
    found = load(made(shelf, name), way, inputs=calls_of(STEPS))
    known = way != "handles" or name != "quantized_cache"  # without the program, how its scales began is not known
    assert found.summary().startswith(
        "All 3 final outputs match" if known else "None of the 3 executions can be judged"
    )
    assert (found.gaps["introduced_severity"].fillna(0) < 10).all()
    assert found.first_divergence is None
    rest = found.coverage[found.coverage["status"] != "compared"]
    if way != "handles":
        assert set(rest["reason"]) <= SILENT
        assert set(rest["op"]) <= {"aten::_local_scalar_dense", *(UNSEEN if name == "quantized_cache" else ())}


@pytest.mark.slow
def test_packed_weights_are_recognized(shelf: Shelf) -> None:
    """XNNPACK packs two weights of 4 bits in a byte."""
    said = judge(made(shelf, "custom_8da4w"), "derived", calls_of(STEPS))
    assert not said.blamed
    assert "other weights" not in said.verdict
    assert {reason for reason, _, _ in said.reasons} <= SILENT


@pytest.mark.slow
def test_events_may_name_their_namespace(shelf: Shelf) -> None:
    """The kernel of the delta rule does, where other kernels leave it out."""
    said = judge(made(shelf, "gated_delta"), "exact", calls_of(STEPS))
    assert "another program" not in said.blamed
    assert said.values > 0
    assert {reason for reason, _, _ in said.reasons} <= SILENT


def test_what_a_call_writes_is_compared(shelf: Shelf) -> None:
    found = load(made(shelf, "custom"), "derived", inputs=calls_of(STEPS))
    written = found.gaps[found.gaps["op"] == "llama::update_cache.out"]
    assert len(written) == 4 * STEPS
    reference, runtime = found.tensors(written.index[-1])
    assert reference.shape == runtime.shape == (1, 32, 2, 16)
    assert [bool(row.any()) for row in runtime[0, : STEPS + 1]] == [True] * STEPS + [False]
    torch.testing.assert_close(reference, runtime)


def test_a_list_of_tuples_holds_the_calls_of_a_model_with_state() -> None:
    found = etviz.debug(model_of(small("plain_portable")), calls_of(2), strict=False)
    assert found.summary().startswith("Both final outputs match")
    assert found.gaps["event_block"].nunique() == 2


def test_errors_are_followed_through_the_cache(shelf: Shelf) -> None:
    """The error of the last call is shared out among the calls that wrote the cache, and nothing is left over."""
    found = load(made(shelf, "custom"), "exact", inputs=calls_of(STEPS))
    frame = found.attribution(run=STEPS - 1)
    assert set(frame["run"]) == set(range(STEPS))
    assert frame["share"].sum() == pytest.approx(1.0, abs=1e-3)
    assert frame["share"][frame["run"] < STEPS - 1].sum() > 0.05
    everything = found.what_if([int(row) for row in found.gaps.index])
    assert everything.runs == tuple(range(STEPS))
    replay = found.analysis.findings.compared.replay
    assert replay is not None
    one_by_one = replay.fresh()
    exact = [value for execution in replay.executions for value in one_by_one.run(execution.inputs)]
    assert len(everything.outputs) == len(exact) == STEPS
    assert all(map(torch.equal, everything.outputs, exact))
    assert (everything.after["max_abs"] < 1e-6).all()  # the reference evaluated these calls together: last bits differ


def test_a_reference_may_have_its_cache_updates_functionalized(shelf: Shelf) -> None:
    """As upstream's `parse_etrecord` and `run_decompositions` give it."""
    program = torch.export.export(model_of(small("custom")), calls_of(1)[0], strict=False).run_decompositions({})
    assert any("auto_functionalized" in str(node.target) for node in program.graph.nodes)
    found = load(made(shelf, "custom"), "exact", inputs=calls_of(STEPS)).against(program)
    assert found.outputs["matches"].all()
    assert found.first_divergence is None
    updates = found.gaps[found.gaps["op"].str.contains("update_cache")]
    assert updates["rmse"].max() < 1e-5


@pytest.mark.slow
def test_the_right_model_finds_a_fault_of_the_exported_one() -> None:
    """Norm + 1 left out: the program's own reference has the fault too, over all calls of a program with a cache."""
    right = model_of(RECIPES["gemma"])
    other = {**RECIPES["gemma"].settings, "rms_norm_add_unit_offset": False}
    given: dict[str, Any] = {"partitioner": [XnnpackPartitioner()], "strict": False}
    alone = etviz.debug(model_of(Recipe(other)), calls_of(STEPS), **given)
    assert alone.first_divergence is None
    found = alone.against(right)
    first = found.first_divergence
    assert first is not None
    assert first["module"] == "layers.0.attention_norm"
    assert not found.outputs["matches"].any()
    assert "Without a partner in the program: aten.to.dtype, aten.add.Tensor" in found.summary()
    sound = etviz.debug(right, calls_of(STEPS), **given).against(right)
    assert sound.first_divergence is None
    assert sound.outputs["matches"].all()
    assert not (sound.ladder(run=STEPS - 1)["status"] == "differs").any()


@pytest.mark.slow
@pytest.mark.parametrize("way", ["exact", "derived"])
def test_a_wrong_slot_of_a_cache_that_nothing_logs_is_named(shelf: Shelf, way: str) -> None:
    """The scales of a quantized cache: only a copy reads them, so their first reader says whose error it has."""
    name = "quantized_cache_portable"

    def plant(folder: Path) -> None:
        program = exported(small(name))
        PLANTS["quantized_cache"]["scales of keys: always slot 0"](program)
        run(program, folder, name)

    right, wrong = made(shelf, name), shelf.folder("language-planted-scales", plant)
    assert named(right, wrong, way, culprits(right, wrong), 4).startswith("named")


def test_a_value_of_which_no_gap_is_known_is_not_called_compared(shelf: Shelf) -> None:
    """The readers of the inputs, where nobody knows the inputs: neither their error nor what they added."""
    found = load(made(shelf, "custom"), "exact", inputs=None)
    gaps, coverage = found.gaps, found.coverage
    unknown = gaps[gaps["rmse"].isna() & gaps["introduced_rmse"].isna()]
    assert len(unknown) > 0
    assert set(unknown["status"]) == {"not compared"}
    assert not unknown["reason"].str.contains("only introduced").any()
    told = coverage.merge(unknown[["event_block", "instruction"]], on=["event_block", "instruction"])
    assert set(told["status"]) == {"not compared"}
    assert (told["reason"] != "").all()
    finding = found.analysis.finder.finding()
    assert finding is not None
    assert finding.text.startswith("No operator that was compared adds more error")


@pytest.mark.parametrize(
    ("token", "position", "said"),
    [
        ([[5]], [32], r"Run 2: .*index 32 .*no position beyond the context"),
        ([[5]], [-1], r"Run 2: A cache of 32 positions is written from -1 to -1\. Give the inputs that this run had"),
        ([[500]], [2], r"Run 2: .*aten\.embedding.*no token may be beyond the vocabulary"),
        ([[5, 6]], [2], r"inputs\[2\]: input tokens must have the shape \(1, 1\), found \(1, 2\)"),
    ],
    ids=["beyond", "before", "token", "shape"],
)
def test_an_input_that_the_program_has_no_room_for_is_told_with_its_call(
    shelf: Shelf, token: list[list[int]], position: list[int], said: str
) -> None:
    wrong = (torch.tensor(token), {"input_pos": torch.tensor(position)})
    with pytest.raises(EtvizError, match=said):
        load(made(shelf, "custom"), "exact", inputs=[*calls_of(STEPS - 1), wrong])


class _Attention(nn.Module):
    """Over many keys, so that sums have more noise than one rounding."""

    keys: torch.Tensor
    values: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        for name, value in zip(("keys", "values"), torch.randn(2, 1, 1024, 2, 16), strict=True):
            self.register_buffer(name, value)

    def forward(self, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        start = at.item()
        torch._check(start >= 0)  # pyright: ignore[reportPrivateUsage]
        torch._check(start < 1024)  # pyright: ignore[reportPrivateUsage]
        return torch.ops.llama.custom_sdpa(x.neg(), self.keys, self.values, start, None, 0.0, is_causal=True)


def _run_longer_or_shorter(folder: Path, *lengths: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    torch.manual_seed(0)
    importlib.import_module("executorch.extension.llm.custom_ops.custom_ops")
    calls = [(torch.randn(1, length, 2, 16), torch.tensor([1016])) for length in (4, *lengths)]
    length = torch.export.Dim("length", min=1, max=8)
    program = torch.export.export(_Attention(), calls[0], dynamic_shapes=({1: length}, None), strict=False)
    lowered = lower(program, calls[0], folder)
    execute(lowered.pte, [list(call) for call in calls[1:]], workdir=folder)
    return calls[1:]


@pytest.mark.parametrize("way", ["exact", "derived"])
@pytest.mark.parametrize("length", [1, 6])
def test_another_length_than_the_examples_is_another_input_and_no_fault(tmp_path: Path, way: str, length: int) -> None:
    calls = _run_longer_or_shorter(tmp_path, length)
    found = load(tmp_path, way, inputs=None)
    assert "the run most likely had other inputs" in found.summary()
    assert found.first_divergence is None
    assert not found.gaps["status"].str.contains("mismatch").any()
    assert load(tmp_path, way, inputs=calls).outputs["matches"].all()


def test_the_noise_of_a_value_of_another_length_than_the_example_is_measured(tmp_path: Path) -> None:
    calls = _run_longer_or_shorter(tmp_path, 1, 2)
    noises = [load(tmp_path, "exact", inputs=given).gaps["introduced_noise"].max() for given in (calls, None)]
    assert noises[1] == pytest.approx(noises[0], rel=0.5)


@pytest.mark.slow
def test_a_float_model_with_a_cache_is_the_reference_of_its_quantized_program(shelf: Shelf) -> None:
    """Both write to their caches in place; the embedding of 4 bits is exported with a region without gradients."""
    found = load(made(shelf, "custom_8da4w"), "exact", inputs=calls_of(STEPS))
    assert found.first_divergence is None
    assert found.outputs["matches"].all()
    split = found.quantization()
    assert split["quantization_rmse"].max() > 0.01
    status = found.ladder()["status"]
    assert (status == "quantization").any()
    assert not (status == "differs").any(), "an error of the quantization is no fault of the port"
