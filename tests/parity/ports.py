"""Ports of six architectures: a model of transformers, and upstream's implementation with its weights."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

_MODELS = "executorch.examples.models"
WORDS, TOKENS = 96, 12
_SIZES = {"hidden_size": 64, "num_hidden_layers": 2, "vocab_size": WORDS, "intermediate_size": 128}
_HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2}
_OWN = {"dim": 64, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "hidden_dim": 128, "vocab_size": WORDS}


@dataclass(frozen=True)
class Architecture:
    """How a port is made.

    Attributes
    ----------
    config
        Name of the class of `transformers`.
    settings
        Of that configuration, beside the sizes.
    own
        Of upstream's `ModelArgs`, beside the sizes.
    convert
        Upstream's converter of weights, as ``module:function``; "" for the permutation of Meta's own checkpoints.
    """

    config: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    own: Mapping[str, Any] = field(default_factory=dict)
    convert: str = ""


ARCHITECTURES: dict[str, Architecture] = {
    "llama": Architecture(
        "LlamaConfig",
        _HEADS | {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}},
        {"rope_theta": 5e5, "norm_eps": 1e-6},
    ),
    "smollm2": Architecture(
        "LlamaConfig", _HEADS | {"tie_word_embeddings": True}, {"rope_theta": 1e4, "norm_eps": 1e-6}
    ),
    "qwen2_5": Architecture(
        "Qwen2Config",
        _HEADS | {"tie_word_embeddings": True, "rms_norm_eps": 1e-6},
        {"use_hf_rope": True, "attention_qkv_bias": True, "rope_theta": 1e4, "norm_eps": 1e-6},
    ),
    "qwen3": Architecture(
        "Qwen3Config",
        _HEADS | {"head_dim": 32, "rms_norm_eps": 1e-6},
        {
            "use_hf_rope": True,
            "use_qk_norm": True,
            "qk_norm_before_rope": True,
            "head_dim": 32,
            "rope_theta": 1e4,
            "norm_eps": 1e-6,
        },
        "qwen3.convert_weights:qwen_3_tune_to_meta",
    ),
    "phi_4_mini": Architecture(
        "Phi3Config",
        _HEADS
        | {
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "partial_rotary_factor": 0.5,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5},
        },
        {"use_hf_rope": True, "partial_rotary_factor": 0.5, "rope_theta": 1e4},
        "phi",
    ),
    "lfm2": Architecture(
        "Lfm2Config",
        _HEADS
        | {
            "layer_types": ["conv", "full_attention"],
            "block_auto_adjust_ff_dim": False,
            "norm_eps": 1e-5,
            "tie_word_embeddings": True,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
        },
        {
            "use_hf_rope": True,
            "use_qk_norm": True,
            "qk_norm_before_rope": True,
            "layer_types": ["conv", "full_attention"],
            "rope_theta": 1e6,
        },
        "lfm2.convert_weights:lfm_2_to_meta",
    ),
}


def reference_of(name: str, ones: bool = False, **changes: Any) -> Any:
    """A model of `transformers` with seeded random weights; with `ones`, those of norms are as they are made."""
    transformers = importlib.import_module("transformers")
    made = ARCHITECTURES[name]
    config = getattr(transformers, made.config)(**_SIZES | dict(made.settings) | changes)
    config._attn_implementation = "eager"
    torch.manual_seed(7)
    model = transformers.AutoModelForCausalLM.from_config(config).eval().float()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            norm = parameter.dim() == 1 and bool((parameter == 1).all())
            parameter.copy_(1 + 0.2 * noise * (not ones) if norm else 0.08 * noise)
    return model


def port_of(name: str, reference: Any, **changes: Any) -> Any:
    """Upstream's implementation with the weights of a reference, by upstream's converter where it ships one."""
    made = ARCHITECTURES[name]
    arguments = importlib.import_module(f"{_MODELS}.llama.model_args").ModelArgs(
        **_OWN | {"max_seq_len": 32, "max_context_len": 32, "generate_full_logits": True} | dict(made.own) | changes
    )
    model = importlib.import_module(f"{_MODELS}.llama.llama_transformer").construct_transformer(arguments).eval()
    weights = converted(name, reference)
    kept = {key: value for key, value in weights.items() if key in model.state_dict()}
    missing = model.load_state_dict(kept, strict=False).missing_keys
    assert all("cache" in key or "conv_state" in key for key in missing), missing
    return model


def converted(name: str, reference: Any) -> dict[str, torch.Tensor]:
    """The weights of a reference under upstream's names."""
    state = {key: value.detach().clone() for key, value in reference.state_dict().items()}
    if reference.config.tie_word_embeddings:
        state.pop("lm_head.weight", None)
    made = ARCHITECTURES[name]
    if made.convert == "phi":
        return _phi(state, reference.config)
    if made.convert:
        module, _, function = made.convert.partition(":")
        return getattr(importlib.import_module(f"{_MODELS}.{module}"), function)(state)
    mapping = importlib.import_module(f"{_MODELS}.qwen3.convert_weights").qwen_3_tune_to_meta
    weights = _with_biases(state, mapping)
    if name in ("llama", "smollm2"):
        for key in [key for key in weights if key.endswith(("wq.weight", "wk.weight"))]:
            weights[key] = interleaved(weights[key], reference.config.head_dim)
    return weights


def _with_biases(
    state: dict[str, torch.Tensor], mapping: Callable[..., dict[str, torch.Tensor]]
) -> dict[str, torch.Tensor]:
    """Upstream's converter of Qwen2.5 needs torchtune, which is not installed; this is its mapping."""
    biases = {key: state.pop(key) for key in list(state) if key.endswith(".bias")}
    found = mapping(state)
    for key, value in biases.items():
        layer = key.split(".")[2]
        found[f"layers.{layer}.attention.w{key.split('.')[4][0]}.bias"] = value
    return found


def interleaved(weight: torch.Tensor, size: int) -> torch.Tensor:
    """The order of rows in Meta's checkpoints, of the rows in those of transformers."""
    return weight.view(-1, 2, size // 2, *weight.shape[1:]).transpose(1, 2).reshape(weight.shape)


def _phi(state: dict[str, torch.Tensor], config: Any) -> dict[str, torch.Tensor]:
    """Upstream's converter of Phi-4 needs torchtune, which is not installed; this is its mapping."""
    found = {}
    for key, value in state.items():
        if key.endswith("qkv_proj.weight"):
            size = config.hidden_size // config.num_attention_heads
            parts = [config.num_attention_heads * size, *[config.num_key_value_heads * size] * 2]
            for letter, part in zip("qkv", value.split(parts), strict=True):
                found[key.replace("qkv_proj", f"{letter}_proj")] = part
        elif key.endswith("gate_up_proj.weight"):
            for part, rows in zip(("gate", "up"), value.chunk(2), strict=True):
                found[key.replace("gate_up_proj", f"{part}_proj")] = rows
        else:
            found[key] = value
    return importlib.import_module(f"{_MODELS}.qwen3.convert_weights").qwen_3_tune_to_meta(found)


def tokens(count: int = TOKENS) -> torch.Tensor:
    return torch.randint(3, WORDS, (1, count), generator=torch.Generator().manual_seed(11))
