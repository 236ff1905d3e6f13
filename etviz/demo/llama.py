"""The demo's language model: upstream's Llama, trained here on the standard library's docstrings, letter by letter."""

from __future__ import annotations

import argparse
import functools
import importlib
import inspect
import json
import logging
from collections.abc import Sequence
from typing import Any, Final

import torch
from torch import nn
from tqdm.auto import tqdm

WORDS: Final = 128
ROOM: Final = 96
_SIZES: Final = {"dim": 64, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "hidden_dim": 128, "vocab_size": WORDS}
_LLAMA: Final = "executorch.examples.models.llama"
_LENGTH, _BATCH, _RATE = 64, 16, 8e-3


@functools.cache
def docstrings() -> str:
    modules = (argparse, json, logging, inspect, functools)
    documented = [member for module in modules for member in [module, *vars(module).values()]]
    text = "\n".join(sorted({inspect.getdoc(member) or "" for member in documented}))
    return text.encode("ascii", "ignore").decode()


class Characters:
    def encode(self, text: str) -> list[int]:
        return list(text.encode("ascii"))

    def decode(self, ids: Sequence[int]) -> str:
        return bytes(ids).decode("ascii")


def llama(*, cached: bool, room: int = ROOM) -> nn.Module:
    """Untrained; without a cache it returns the logits of all positions."""
    args = importlib.import_module(f"{_LLAMA}.model_args").ModelArgs(
        **_SIZES, max_seq_len=room, max_context_len=room, use_kv_cache=cached, generate_full_logits=not cached
    )
    return importlib.import_module(f"{_LLAMA}.llama_transformer").construct_transformer(args)


def train(steps: int = 300) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    model = llama(cached=False).train()
    ids = torch.tensor(list(docstrings().encode()))
    optimizer = torch.optim.AdamW(model.parameters(), lr=_RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, _RATE, steps)
    for _ in tqdm(range(steps), desc="training", leave=False):
        starts = torch.randint(len(ids) - _LENGTH - 1, (_BATCH,))
        batch = torch.stack([ids[start : start + _LENGTH + 1] for start in starts])
        logits = model(batch[:, :-1])
        loss = nn.functional.cross_entropy(logits.reshape(-1, WORDS), batch[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return {name: value.detach() for name, value in model.state_dict().items()}


class Paged(nn.Module):
    """A cache that finds the slot of a position in a table.

    The table ends with the layer's number, so that no two tables are the same constant.
    """

    table: torch.Tensor

    def __init__(self, inner: nn.Module, layer: int) -> None:
        super().__init__()
        self.inner = inner
        self.register_buffer("table", torch.tensor([*range(ROOM), layer]))

    def update(
        self, input_pos: torch.Tensor, k_val: torch.Tensor, v_val: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        inner: Any = self.inner
        return inner.update(self.table[input_pos], k_val, v_val)


def quantized(weights: dict[str, torch.Tensor]) -> nn.Module:
    """In 8da4w (4-bit weights in groups of 32, 8-bit activations), with upstream's cache and attention."""
    quantization = importlib.import_module("torchao.quantization")
    model: Any = llama(cached=True).eval()
    model.load_state_dict(weights, strict=False)
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    config = quantization.Int8DynamicActivationIntxWeightConfig(
        weight_dtype=vars(torch)["int4"], weight_granularity=quantization.PerGroup(32)
    )
    quantization.quantize_(model, config)
    importlib.import_module("torchao.utils").unwrap_tensor_subclass(model)
    caches = importlib.import_module(f"{_LLAMA}.source_transformation.custom_kv_cache")
    attention = importlib.import_module(f"{_LLAMA}.source_transformation.sdpa")
    model = attention.replace_sdpa_with_custom_op(caches.replace_kv_cache_with_custom_kv_cache(model))
    for number, layer in enumerate(model.layers):
        layer.attention.kv_cache = Paged(layer.attention.kv_cache, number)
    return model
