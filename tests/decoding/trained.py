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
    chosen = RECIPES[name]
    return replace(chosen, settings={**chosen.settings, **_LONG})


def module(shelf: Shelf, name: str) -> nn.Module:
    """A trained model."""
    return model_of(recipe(name), weights(shelf))


def call(ids: list[int], position: int) -> tuple[Any, ...]:
    """The arguments of a call of the model."""
    return torch.tensor([ids]), {"input_pos": torch.tensor([position])}


def program(shelf: Shelf, name: str) -> Path:
    """The folder of a trained, lowered program, made once a test run."""

    def make(folder: Path) -> None:
        partitioner = [XnnpackPartitioner()] if recipe(name).delegated else None
        lower(module(shelf, name), call([1], 0), folder, partitioner=partitioner, strict=False)

    return shelf.folder(f"trained-{name}", make)
