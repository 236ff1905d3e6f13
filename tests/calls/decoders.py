"""A small decoder with a cache, and the faults of its calls and its graph that have been made before."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from torch import nn

from etviz.pipeline.lower import lower
from tests.shelf import Shelf

WORDS, ROOM, WIDTH = 24, 12, 16


class Cache(nn.Module):
    """One layer of attention over a cache of keys and values.

    Parameters
    ----------
    fault
        What is wrong: "mask" (one position too much is seen), "stale" (entries of the last sequence stay visible),
        "short ring" (the ring holds no more than the window), "ring start" (a chunk does not go on at the ring's
        start); "" if nothing is.
    window
        Positions of a ring; 0 for a plain cache.
    room
        Positions of a plain cache.
    """

    k_cache: torch.Tensor
    v_cache: torch.Tensor
    written: torch.Tensor

    def __init__(self, fault: str = "", window: int = 0, room: int = ROOM) -> None:
        super().__init__()
        self.fault, self.window, self.room = fault, window, room
        self.size = (2 if fault != "short ring" else 1) * window if window else room
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.register_buffer("k_cache", torch.zeros(1, self.size, WIDTH))
        self.register_buffer("v_cache", torch.zeros(1, self.size, WIDTH))
        self.register_buffer("written", torch.zeros(self.size, dtype=torch.int64))  # position + 1; 0 for none

    def forward(self, x: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        places = positions % self.size if self.window else positions
        if self.fault == "ring start" and self.window:
            places = (positions[:1] % self.size + positions - positions[:1]).clamp(max=self.size - 1)
        self.k_cache.index_copy_(1, places, k)
        self.v_cache.index_copy_(1, places, v)
        self.written.index_copy_(0, places, positions + 1)
        gap = positions[:, None] + 1 - self.written[None]
        seen = (self.written > 0)[None] & (gap >= (-1 if self.fault == "mask" else 0))
        if self.window:
            seen = seen & (gap < self.window)
        if self.fault == "stale":
            seen = (self.written > 0)[None] & (gap > -self.room)
        scores = q @ self.k_cache.transpose(1, 2) / math.sqrt(WIDTH)
        scores = scores.masked_fill(~seen[None], -1e9) if mask is None else scores + mask
        return self.out(scores.softmax(-1) @ self.v_cache)


class Decoder(nn.Module):
    """Two layers; ``forward(tokens [1, n], input_pos [n])`` returns logits [1, n, WORDS].

    With `masked`, a third input is the mask [n, ROOM] that is added to the scores.
    """

    def __init__(self, fault: str = "", window: int = 0, masked: bool = False, room: int = ROOM) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.masked = masked
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.place = nn.Embedding(4 * room, WIDTH)
        self.layers = nn.ModuleList(Cache(fault if at == 1 else "", window, room) for at in range(2))
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        for parameter in self.parameters():
            parameter.requires_grad_(False)

    def forward(self, tokens: torch.Tensor, input_pos: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        x = self.embed(tokens) + self.place(input_pos)
        for layer in self.layers:
            x = x + layer(x, input_pos, mask)
        return self.head(x)


def driver(ids: Any, position: int) -> tuple[torch.Tensor, ...]:
    """The calls of a `Decoder`."""
    return torch.tensor([list(ids)]), torch.arange(position, position + len(ids))


def masked_driver(ids: Any, position: int) -> tuple[torch.Tensor, ...]:
    """The calls of a `Decoder` with a mask."""
    tokens, positions = driver(ids, position)
    hidden = positions[:, None] < torch.arange(ROOM)[None]
    return tokens, positions, torch.where(hidden, -1e4, 0.0)


class Listener(nn.Module):
    """A decoder of speech: ``forward(tokens [1, 1], input_pos [1], encoded [1, 4, WIDTH])``.

    Keys and values of the encoder's output are computed at position 0 and kept; with `fault`, only in the first call
    after the program was loaded.
    """

    filled: torch.Tensor
    k_cross: torch.Tensor
    v_cross: torch.Tensor

    def __init__(self, fault: bool = False) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.fault = fault
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.layer = Cache()
        self.cross = nn.Linear(WIDTH, 2 * WIDTH, bias=False)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        for name in ("k_cross", "v_cross"):
            self.register_buffer(name, torch.zeros(1, 4, WIDTH))
        self.register_buffer("filled", torch.zeros(1))
        for parameter in self.parameters():
            parameter.requires_grad_(False)

    def forward(self, tokens: torch.Tensor, input_pos: torch.Tensor, encoded: torch.Tensor) -> torch.Tensor:
        first = (self.filled == 0) if self.fault else (input_pos[:1] == 0)
        for cache, new in zip((self.k_cross, self.v_cross), self.cross(encoded).chunk(2, -1), strict=True):
            cache.copy_(torch.where(first, new, cache))
        self.filled.copy_(torch.ones(1))
        x = self.embed(tokens)
        x = x + self.layer(x, input_pos, None)
        scores = x @ self.k_cross.transpose(1, 2) / math.sqrt(WIDTH)
        return self.head(x + scores.softmax(-1) @ self.v_cross)


def hearing(seed: int) -> Any:
    """The calls of a `Listener` that hears one utterance."""
    encoded = torch.randn(1, 4, WIDTH, generator=torch.Generator().manual_seed(seed))
    return lambda ids, position: (*driver(ids, position), encoded)


def chunked(model: nn.Module) -> torch.export.ExportedProgram:
    """A program whose calls take any number of tokens."""
    count = torch.export.Dim("count", min=1, max=ROOM - 2)
    return torch.export.export(
        model.eval(), driver([1, 2, 3], 0), dynamic_shapes=({1: count}, {0: count}), strict=False
    )


def single_program(shelf: Shelf) -> Path:
    """The folder of a correct decoder that takes one token a call."""
    return shelf.folder("decoder", lambda to: lower(Decoder().eval(), driver([1], 0), to, strict=False))


def chunked_program(shelf: Shelf) -> Path:
    """The folder of a correct decoder that takes any number of tokens."""
    return shelf.folder("decoder-chunked", lambda to: lower(chunked(Decoder()), driver([1, 2, 3], 0), to))
