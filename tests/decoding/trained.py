"""Upstream's Llama, trained for a few seconds on the standard library's docstrings: logits both sharp and flat."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from torch import nn

from etviz.demo.llama import ROOM, Characters, docstrings, train
from etviz.pipeline.lower import lower
from tests.language.programs import RECIPES, Recipe, model_of
from tests.shelf import Shelf

__all__ = ["ROOM", "Characters"]
_LONG = {"max_seq_len": ROOM, "max_context_len": ROOM}
GAINED = {"custom": RECIPES["custom"], **{f"gained_{kind}": RECIPES[f"custom_{kind}"] for kind in ("bf16", "8da4w")}}
"""Programs whose caches have tables of gains, into which faults are planted."""


def prompts(count: int, length: int = 12) -> list[str]:
    """Pieces of the text."""
    whole = docstrings()
    return [whole[at * 997 : at * 997 + length] for at in range(count)]


def weights(shelf: Shelf) -> dict[str, torch.Tensor]:
    """The trained weights, made once a test run."""

    def make(folder: Path) -> None:
        torch.save(train(250), folder / "weights.pt")

    return torch.load(shelf.folder("llama", make) / "weights.pt", weights_only=True)


def recipe(name: str) -> Recipe:
    """A recipe of upstream's programs with room for longer texts."""
    chosen = {**RECIPES, **GAINED}[name]
    return replace(chosen, settings={**chosen.settings, **_LONG})


class Gained(nn.Module):
    """A cache whose keys and values are multiplied by a table at each position."""

    keys: torch.Tensor
    values: torch.Tensor

    def __init__(self, inner: Any, dtype: torch.dtype) -> None:
        super().__init__()
        self.inner = inner
        for name in ("keys", "values"):
            self.register_buffer(name, (1 + 0.02 * torch.randn(ROOM)).to(dtype))

    def update(
        self, input_pos: torch.Tensor, k_val: torch.Tensor, v_val: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        keys, values = (table[input_pos][:, None] for table in (self.keys, self.values))
        inner: Any = self.inner
        return inner.update(input_pos, k_val * keys, v_val * values)


def module(shelf: Shelf, name: str) -> nn.Module:
    """A trained model, with gains in its caches if it is one of `GAINED`."""
    model: Any = model_of(recipe(name), weights(shelf))
    if name in GAINED:
        torch.manual_seed(1)
        for layer in model.layers:
            layer.attention.kv_cache = Gained(layer.attention.kv_cache, GAINED[name].dtype)
    return model


def call(ids: list[int], position: int) -> tuple[Any, ...]:
    """The arguments of a call of the model."""
    return torch.tensor([ids]), {"input_pos": torch.tensor([position])}


def program(shelf: Shelf, name: str) -> Path:
    """The folder of a trained, lowered program, made once a test run."""

    def make(folder: Path) -> None:
        partitioner = [XnnpackPartitioner()] if recipe(name).delegated else None
        lower(module(shelf, name), call([1], 0), folder, partitioner=partitioner, strict=False)

    return shelf.folder(f"trained-{name}", make)
