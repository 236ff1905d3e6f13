"""The caches of a program against the reference's, and what a wrong entry does to later steps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import etviz
from etviz.cli.app import app
from etviz.decoding.cache import Slots, in_order
from etviz.tensors.metrics import THRESHOLD
from tests.decoding.plants import cached, planted
from tests.decoding.trained import Characters, program, prompts
from tests.shelf import Shelf

STEP, LAYER = 4, 1


@pytest.fixture(scope="module")
def folder(shelf: Shelf, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Values of layer 1 that are wrong where step 4 writes them."""
    return planted(shelf, "custom", cached("values", LAYER, STEP), tmp_path_factory.mktemp("planted"))


@pytest.fixture(scope="module")
def run(folder: Path) -> etviz.Decode:
    return etviz.decode(folder, prompts(2)[1][:6], tokenizer=Characters(), steps=3)


def test_the_first_fault_is_the_step_that_wrote_it(run: etviz.Decode) -> None:
    assert run.first_fault is not None
    assert run.first_fault["step"] == STEP
    assert f"step {STEP}" in run.summary()


def test_the_cache_names_layer_position_and_step(run: etviz.Decode) -> None:
    cache = run.cache
    first = cache.attrs["first"]
    assert (first["kind"], first["layer"], first["position"], first["step"]) == ("values", LAYER, STEP, STEP)
    assert f"values of layer 1, head {first['head']}, position {STEP}, wrong from step {STEP} on" in cache.attrs["note"]
    wrong = cache[cache["severity"] >= 3]
    assert set(zip(wrong["layer"], wrong["kind"], wrong["position"], strict=True)) == {(LAYER, "values", STEP)}
    # 2 layers, keys and values, 2 heads
    assert len(cache) == 2 * 2 * 2 * len(run.sequences[0].calls)


def test_the_entry_is_what_the_fault_made_of_it(run: etviz.Decode) -> None:
    row = run.cache.query(f"layer == {LAYER} and kind == 'values' and head == 0 and position == {STEP}").iloc[0]
    assert row["rmse"] == pytest.approx(3 * row["reference_rms"], rel=1e-3)  # times −2 instead of 1


def test_a_later_step_is_traced_to_the_entry_and_proved(run: etviz.Decode) -> None:
    step = STEP + 2
    why = run.why(step)
    top = why.iloc[0]
    assert top["step"] == STEP
    assert f"at step {STEP}, through the cache" in why.attrs["sentence"]
    proof = run.what_if(step, int(str(top.name)))
    assert proof.kl_after < 1e-9 < proof.kl_before
    assert proof.tokens[2] == proof.tokens[0]
    assert "With the correct value of" in repr(proof)


def test_the_command_names_the_entry_and_proves_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ids = " ".join(map(str, Characters().encode(prompts(2)[1][:6])))
    capsys.readouterr()  # the export prints
    app(["decode", str(folder), "--ids", ids, "--steps", "1", "--json", "--why"], standalone_mode=False)
    told = json.loads(capsys.readouterr().out)
    assert f"wrong from step {STEP} on" in told["cache"]
    assert "% of the shift" in told["culprit"]
    assert float(told["proof"].rpartition("→ ")[2].split()[0]) < 1e-9


@pytest.mark.parametrize("step", [2, 16])
def test_a_weak_fault_is_not_outweighed_by_noise(shelf: Shelf, tmp_path: Path, step: int) -> None:
    """Half as large keys change the logits of 8da4w by little, and its noise has larger shares in the margin."""
    folder = planted(shelf, "gained_8da4w", cached("keys", 0, step, 0.5), tmp_path / "planted")
    run = etviz.decode(folder, prompts(2)[1], tokenizer=Characters(), steps=max(1, step - 9))
    assert run.first_fault is not None
    why = run.why(int(run.first_fault["step"]))
    assert "0.attention" in why.iloc[0]["name"]
    assert why.iloc[0]["step"] == step
    assert why.attrs["sum"] == pytest.approx(1, abs=0.1) or "margin" in why.attrs["about"]
    assert (why["introduced_severity"] < THRESHOLD).is_monotonic_increasing


def test_the_view_attributes_the_margin(run: etviz.Decode) -> None:
    """As `why` does, not the error of all logits."""
    step = STEP + 2
    view = run.view.state_of(f"0:{step}")
    view.attribute({}, lambda done, total: None)
    payload, _ = view.payload()
    why = run.why(step)
    assert payload["attribution"]["output"] is None
    assert payload["attribution"]["about"].startswith("the margin of '")
    assert payload["attribution"]["sum"] == pytest.approx(why.attrs["sum"])
    assert view.analysis.attributions.last is not None
    assert view.analysis.attributions.last["share"].iloc[0] == why["share"].iloc[0]


@pytest.mark.parametrize("name", ["quantized_cache", "ring", "plain"])
def test_correct_caches_are_explained(shelf: Shelf, name: str) -> None:
    run = etviz.decode(program(shelf, name), prompts(1)[0][:10], tokenizer=Characters(), steps=3)
    cache = run.cache
    assert run.first_fault is None
    assert cache.attrs["first"] is None, cache.attrs["note"]
    assert set(cache["kind"]) == {"keys", "values"}
    last = cache["position"].max()
    assert last == len(run.sequences[0].ids) - 2
    assert (cache["step"] == cache["position"]).all()  # one token a call
    if name == "ring":
        assert set(cache["slot"]) <= set(range(16))
    assert torch.tensor(cache["reference_rms"].to_numpy()).gt(0).all()


def test_slots_of_a_ring_that_begins_again() -> None:
    assert in_order([0, 1, 6, 7]) == [6, 7, 0, 1]
    assert in_order([2, 3]) == [2, 3]
    slots, before = Slots(), torch.zeros(1, 2, 8, 4)
    for call in range(10):
        after = before.clone()
        after[:, :, call % 8] = call + 1
        slots.add(call, (call, 1), before, after)
        before = after
    assert slots.axis == 2
    assert slots.written()[1] == (9, 9)
    assert slots.written()[2] == (2, 2)


def test_another_call_is_refused(run: etviz.Decode, tmp_path: Path) -> None:
    with pytest.raises(etviz.errors.UsageError, match="numbered from 0"):
        run.cache_at(99)
