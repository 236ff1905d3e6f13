"""Language models as upstream's tools make them: its Llama, its source transformations, torchao's quantization."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from torch import nn
from torch.utils._pytree import tree_leaves

from etviz.pipeline.execute import execute
from etviz.pipeline.lower import lower
from tests.shelf import Shelf

_LLAMA = "executorch.examples.models.llama"
WORDS, ROOM = 128, 32
STEPS = 3
"""Calls of the programs on the shelf."""
_SIZES = {"dim": 64, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "hidden_dim": 128, "vocab_size": WORDS}


@dataclass(frozen=True)
class Recipe:
    """How a program is made.

    Attributes
    ----------
    settings
        Of `ModelArgs`, beside the sizes of all.
    custom
        Whether cache and attention are upstream's operators.
    weights
        "8da4w" (with embeddings of 4 bits), "int8", or "" for those of `dtype`.
    cache
        "quantized", "ring", "sink", or "" for a cache in the type of the model.
    cap
        The soft-cap of the logits, 0 for none.
    tied
        Whether the output weights are those of the embedding.
    delegated
        Whether XNNPACK takes what it can.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    custom: bool = True
    weights: str = ""
    cache: str = ""
    dtype: torch.dtype = torch.float32
    cap: float = 0.0
    tied: bool = False
    delegated: bool = True


class _Capped(nn.Module):
    """A model whose logits stay below a cap, as those of Gemma 2."""

    def __init__(self, model: nn.Module, cap: float) -> None:
        super().__init__()
        self.model, self.cap = model, cap

    def forward(self, tokens: torch.Tensor, options: dict[str, torch.Tensor]) -> torch.Tensor:
        return torch.tanh(self.model(tokens, options) / self.cap) * self.cap


_QWEN3 = {"use_qk_norm": True, "qk_norm_before_rope": True, "use_hf_rope": True, "head_dim": 32}
_GEMMA = {
    **{"use_qk_norm": True, "qk_norm_before_rope": True, "use_hf_rope": True, "rms_norm_add_unit_offset": True},
    **{"embedding_scale_factor": 8.0, "post_attention_norm": True, "post_ffn_norm": True},
}
_PHI = {"use_hf_rope": True, "partial_rotary_factor": 0.5, "attention_qkv_bias": False}
_DELTA = {
    **{"attention_type": "mha", "layer_types": ["linear_attention", "full_attention"], "use_hf_rope": True},
    **{"linear_key_head_dim": 16, "linear_value_head_dim": 16, "linear_num_key_heads": 2, "linear_num_value_heads": 4},
}
RECIPES: dict[str, Recipe] = {
    "plain": Recipe(custom=False),
    "plain_portable": Recipe(custom=False, delegated=False),
    "custom": Recipe(),
    "custom_portable": Recipe(delegated=False),
    "custom_many_heads": Recipe({"n_kv_heads": 4}),
    "custom_one_head": Recipe({"n_kv_heads": 1}),
    "custom_8_layers": Recipe({"n_layers": 8}),
    "plain_bf16": Recipe(custom=False, dtype=torch.bfloat16),
    "custom_bf16": Recipe(dtype=torch.bfloat16),
    "plain_8da4w": Recipe(custom=False, weights="8da4w"),
    "custom_8da4w": Recipe(weights="8da4w"),
    "plain_int8": Recipe(custom=False, weights="int8"),
    "custom_int8": Recipe(weights="int8"),
    "quantized_cache": Recipe(cache="quantized"),
    "quantized_cache_portable": Recipe(cache="quantized", delegated=False),
    "quantized_cache_8da4w": Recipe(cache="quantized", weights="8da4w"),
    "quantized_cache_int8": Recipe(cache="quantized", weights="int8"),
    "ring": Recipe(cache="ring"),
    "ring_8da4w": Recipe(cache="ring", weights="8da4w"),
    "ring_int8": Recipe(cache="ring", weights="int8"),
    "ring_bf16": Recipe(cache="ring", dtype=torch.bfloat16),
    "sink": Recipe(cache="sink"),
    "sink_plain": Recipe(cache="sink", custom=False),
    "sink_8da4w": Recipe(cache="sink", weights="8da4w"),
    "qwen3": Recipe(_QWEN3),
    "gemma": Recipe(_GEMMA),
    "gemma_capped": Recipe(_GEMMA, cap=2.0),
    "tied": Recipe(tied=True),
    "phi": Recipe(_PHI),
    "smollm": Recipe({"n_heads": 3, "n_kv_heads": 1, "dim": 48, "use_hf_rope": True, "rope_theta": 100000.0}),
    "experts": Recipe({"moe": True, "num_experts": 4}),
    "experts_portable": Recipe({"moe": True, "num_experts": 4}, delegated=False),
    "gated_delta": Recipe(_DELTA),
}


def model_of(recipe: Recipe, weights: Mapping[str, torch.Tensor] | None = None) -> nn.Module:
    """The model, with these weights, or with seeded random ones."""
    args = importlib.import_module(f"{_LLAMA}.model_args").ModelArgs(
        **_SIZES
        | {"max_seq_len": ROOM, "max_context_len": ROOM, "use_kv_cache": True}
        | {"use_sdpa_with_kv_cache_op": recipe.custom}
        | dict(recipe.settings)
    )
    torch.manual_seed(0)
    model = importlib.import_module(f"{_LLAMA}.llama_transformer").construct_transformer(args).eval()
    for parameter in model.parameters():
        parameter.requires_grad_(False)
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.08)
    if recipe.tied:
        model.output.weight.copy_(model.tok_embeddings.weight)
    if weights is not None:
        model.load_state_dict(dict(weights), strict=False)
    if recipe.cache == "sink":
        sinks = importlib.import_module(f"{_LLAMA}.source_transformation.attention_sink")
        model = sinks.enable_attention_sink(model, args, sink_size=2, window_size=4)
    model = _quantized(model.to(recipe.dtype), recipe.weights)
    model = _transformed(model, recipe, args.n_layers)
    return _Capped(model, recipe.cap) if recipe.cap else model


def _quantized(model: nn.Module, weights: str) -> nn.Module:
    quantization = importlib.import_module("torchao.quantization")
    if weights == "8da4w":
        config = quantization.Int8DynamicActivationIntxWeightConfig(
            weight_dtype=vars(torch)["int4"], weight_granularity=quantization.PerGroup(32)
        )
        quantization.quantize_(model, config)
    elif weights == "int8":
        quantization.quantize_(model, quantization.Int8WeightOnlyConfig())
    if weights:
        importlib.import_module("torchao.utils").unwrap_tensor_subclass(model)
    if weights == "8da4w":
        handlers = importlib.import_module(f"{_LLAMA}.source_transformation.quantize")
        model = handlers.EmbeddingQuantHandler(model, bitwidth=4, group_size=32, packed=True).quantized_model()
    return model


def _transformed(model: nn.Module, recipe: Recipe, layers: int) -> nn.Module:
    caches = importlib.import_module(f"{_LLAMA}.source_transformation.custom_kv_cache")
    attention = importlib.import_module(f"{_LLAMA}.source_transformation.sdpa")
    if recipe.custom:
        model = caches.replace_kv_cache_with_custom_kv_cache(model)
        model = attention.replace_sdpa_with_custom_op(model, use_attention_mask=recipe.cache in ("ring", "sink"))
    if recipe.cache == "quantized":
        model = caches.replace_kv_cache_with_quantized_kv_cache(model)
    if recipe.cache == "ring":
        model = caches.replace_kv_cache_with_ring_kv_cache(model, [8] * layers)
    return model


def small(name: str, **changes: Any) -> Recipe:
    """A recipe with one layer; `custom` has two, and the other kind of attention of `gated_delta` is in the second."""
    recipe = replace(RECIPES[name], **changes)
    return recipe if name in ("custom", "gated_delta") else replace(recipe, settings={**recipe.settings, "n_layers": 1})


def calls_of(count: int, start: int = 0) -> list[tuple[Any, ...]]:
    """The arguments of one step after the other."""
    return [
        (torch.tensor([[(7 * at + 3) % WORDS]]), {"input_pos": torch.tensor([at])})
        for at in range(start, start + count)
    ]


def make(
    recipe: Recipe,
    folder: Path,
    steps: int,
    changed: nn.Module | None = None,
    *,
    reference: nn.Module | None = None,
) -> Path:
    """Lower a program and run it; with `changed`, the program of that model runs, and the record is the recipe's.

    Returns
    -------
    Path
        The folder of its artifacts: those of a run, as `etviz.load` takes them.
    """
    calls = calls_of(steps)
    partitioner = [XnnpackPartitioner()] if recipe.delegated else None
    model = changed or model_of(recipe)
    lowered = lower(model, calls[0], folder, partitioner=partitioner, reference=reference, strict=False)
    execute(lowered.pte, [tree_leaves(call) for call in calls], workdir=folder)
    return folder


def made(shelf: Shelf, name: str) -> Path:
    """The artifacts of a recipe after `STEPS` calls, made once a test run; `custom_8da4w` has a float reference."""

    def lowered(folder: Path) -> None:
        reference = model_of(small("custom_8da4w", weights="")) if name == "custom_8da4w" else None
        make(small(name), folder, STEPS, reference=reference)

    return shelf.folder(f"language-{name}", lowered)
