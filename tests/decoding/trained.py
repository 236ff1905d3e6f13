"""Upstream's Llama, trained for a few seconds on the standard library's docstrings: logits both sharp and flat."""

from __future__ import annotations

import argparse
import functools
import inspect
import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from torch import nn

from etviz.pipeline.lower import lower
from tests.language.programs import RECIPES, WORDS, Recipe, model_of
from tests.shelf import Shelf

ROOM = 96
_LONG = {"max_seq_len": ROOM, "max_context_len": ROOM}


@functools.cache
def text() -> str:
    """Docstrings that every Python has, in ASCII."""
    modules = (argparse, json, logging, inspect, functools)
    documented = [item for module in modules for item in [module, *vars(module).values()]]
    found = "\n".join(sorted({inspect.getdoc(item) or "" for item in documented}))
    return found.encode("ascii", "ignore").decode()


class Characters:
    """A tokenizer of ASCII characters."""

    def encode(self, text: str) -> list[int]:
        return list(text.encode("ascii"))

    def decode(self, ids: list[int]) -> str:
        return bytes(ids).decode("ascii")


def prompts(count: int, length: int = 12) -> list[str]:
    """Pieces of the text."""
    whole = text()
    return [whole[at * 997 : at * 997 + length] for at in range(count)]


def train(folder: Path, steps: int = 250) -> None:
    """Train the weights and write them to a file."""
    torch.manual_seed(0)
    plain = Recipe({"use_kv_cache": False, "generate_full_logits": True, **_LONG}, custom=False)
    model = model_of(plain).train()
    for parameter in model.parameters():
        parameter.requires_grad_()
    ids = torch.tensor(list(text().encode()))
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 8e-3, steps)
    for _ in range(steps):
        starts = torch.randint(len(ids) - 65, (16,))
        batch = torch.stack([ids[start : start + 65] for start in starts])
        logits = model(batch[:, :-1])
        loss = nn.functional.cross_entropy(logits.reshape(-1, WORDS), batch[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    torch.save(model.state_dict(), folder / "weights.pt")


def weights(shelf: Shelf) -> dict[str, torch.Tensor]:
    """The trained weights, made once a test run."""
    return torch.load(shelf.folder("llama", train) / "weights.pt", weights_only=True)


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
