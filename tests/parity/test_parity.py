"""Ports of six architectures of transformers: correct ones agree, and planted faults are named and proved."""

from __future__ import annotations

import importlib.util

import pytest
import torch

import etviz
from tests.parity.faults import FAULTS
from tests.parity.ports import ARCHITECTURES, port_of, reference_of, tokens

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None, reason="transformers is not installed (extra `zoo`)"
)


@pytest.mark.parametrize("ones", [False, True], ids=["trained", "norms of one"])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_correct_port(name: str, ones: bool) -> None:
    reference = reference_of(name, ones)
    found = etviz.parity(port_of(name, reference), reference=reference, inputs=tokens())
    assert found.agrees, found.summary()
    assert found.first is None
    assert found.hypothesis is None
    assert not len(found.tried)
    assert (found.parameters["relation"] != "unmatched").all()
    assert not (found.parameters["relation"] == "missing").any()
    assert (found.stages["side"] == "result").sum() == 1
    assert len(found.stages) > 50


@pytest.mark.parametrize("name", FAULTS)
def test_planted_fault(name: str) -> None:
    case = FAULTS[name]()
    found = etviz.parity(case.model, case.reference, case.inputs, reference_inputs=case.reference_inputs)
    assert not found.agrees
    assert found.hypothesis is not None, found.summary()
    assert found.hypothesis.hypothesis.name == case.expected, found.summary()
    assert case.said in str(found.hypothesis)
    assert found.hypothesis.first is None
    assert found.hypothesis.residual < 1e-6
    assert "the outputs agree" in found.summary()


def test_two_faults_are_found_one_after_the_other() -> None:
    reference = reference_of("qwen2_5")
    model = port_of("qwen2_5", reference, rope_theta=5000.0)
    for layer in model.layers:
        layer.attention.wk.bias = None
    found = etviz.parity(model, reference, tokens())
    assert [proof.hypothesis.name for proof in found.proofs] == ["missing bias", "rope frequencies"]
    assert found.proofs[-1].first is None


def test_fault_without_a_hypothesis_is_located() -> None:
    reference = reference_of("llama")
    model = port_of("llama", reference)
    norm = model.layers[1].ffn_norm
    plain = norm.forward
    norm.forward = lambda x: plain(x) + 0.1 * x.roll(1, -1)
    found = etviz.parity(model, reference, tokens())
    assert found.first is not None
    assert (found.first["module"], found.first["side"]) == ("layers.1.ffn_norm", "output")
    assert found.hypothesis is None
    assert "No hypothesis explains the output of layers.1.ffn_norm" in found.summary()
    assert "Located" in found.summary()


def test_cache_and_positions() -> None:
    """The port with a cache, fed at positions; its state is as before."""
    reference = reference_of("llama")
    model = port_of("llama", reference, use_kv_cache=True)
    before = {name: value.clone() for name, value in model.named_buffers()}
    ids = tokens()
    found = etviz.parity(model, reference, (ids, {"input_pos": torch.arange(ids.shape[1])}))
    assert found.agrees, found.summary()
    assert all(torch.equal(value, before[name]) for name, value in model.named_buffers())


def test_weights_in_another_type() -> None:
    """A port in bfloat16 of a model in float32 agrees within the rounding of its type."""
    reference = reference_of("llama")
    found = etviz.parity(port_of("llama", reference).to(torch.bfloat16), reference, tokens())
    assert found.agrees, found.summary()
    assert set(found.parameters["detail"]) >= {"equal but for rounding"}


def test_fused_projection() -> None:
    """The port fuses what the reference splits, the reverse of Phi's."""
    reference = reference_of("llama")
    model = reference_of(
        "phi_4_mini",
        partial_rotary_factor=1.0,
        rope_parameters={"rope_type": "default", "rope_theta": 5e5},
        rms_norm_eps=1e-6,
    )
    state = reference.state_dict()
    for layer in range(2):
        path = f"model.layers.{layer}"
        state[f"{path}.self_attn.qkv_proj.weight"] = torch.cat(
            [state.pop(f"{path}.self_attn.{letter}_proj.weight") for letter in "qkv"]
        )
        state[f"{path}.mlp.gate_up_proj.weight"] = torch.cat(
            [state.pop(f"{path}.mlp.{name}_proj.weight") for name in ("gate", "up")]
        )
    model.load_state_dict(state)
    found = etviz.parity(model, reference, tokens())
    assert found.agrees, found.summary()
    fused = found.parameters[found.parameters["relation"] == "fused"]
    assert len(fused) == 4
    assert "self_attn.q_proj.weight + model.layers.0.self_attn.k_proj.weight" in fused["reference"].iloc[0]


def test_modes_and_hooks_are_left_as_they_were() -> None:
    reference = reference_of("llama").train()
    model = port_of("llama", reference)
    etviz.parity(model, reference, tokens())
    assert all(module.training for module in reference.modules())
    assert not any(module.training for module in model.modules())
    assert not any(vars(module)["_forward_hooks"] or vars(module)["_forward_pre_hooks"] for module in model.modules())
