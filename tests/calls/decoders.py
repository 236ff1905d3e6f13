"""A small decoder with a cache, and the faults of its calls and its graph that have been made before."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

WORDS, ROOM, WIDTH = 24, 12, 16


class Cache(nn.Module):
    """One layer of attention over a cache of keys and values.

    Parameters
    ----------
    fault
        What is wrong: "", "mask" (sees one position too much), "stale" (entries of the last sequence stay visible).
    window
        Positions of a ring; 0 for a plain cache.
    """

    k_cache: torch.Tensor
    v_cache: torch.Tensor
    written: torch.Tensor

    def __init__(self, fault: str = "", window: int = 0) -> None:
        super().__init__()
        self.fault, self.window = fault, window
        self.size = (2 if fault != "short ring" else 1) * window if window else ROOM
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.register_buffer("k_cache", torch.zeros(1, self.size, WIDTH))
        self.register_buffer("v_cache", torch.zeros(1, self.size, WIDTH))
        self.register_buffer("written", torch.zeros(self.size, dtype=torch.int64))  # position + 1; 0 for none

    def forward(self, x: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        places = positions % self.size
        if self.fault == "ring start" and self.window:
            places = (positions + (positions >= self.size)) % self.size
        self.k_cache.index_copy_(1, places, k)
        self.v_cache.index_copy_(1, places, v)
        self.written.index_copy_(0, places, positions + 1)
        gap = positions[:, None] + 1 - self.written[None]
        seen = (self.written > 0)[None] & (gap >= (-1 if self.fault == "mask" else 0))
        if self.window:
            seen = seen & (gap < self.window)
        if self.fault == "stale":
            seen = (self.written > 0)[None].expand(len(positions), -1)
        scores = q @ self.k_cache.transpose(1, 2) / math.sqrt(WIDTH)
        scores = scores.masked_fill(~seen[None], -1e9) if mask is None else scores + mask
        return self.out(scores.softmax(-1) @ self.v_cache)


class Decoder(nn.Module):
    """Two layers; ``forward(tokens [1, n], input_pos [n])`` returns logits [1, n, WORDS].

    With `masked`, a third input is the mask [n, ROOM] that is added to the scores.
    """

    def __init__(self, fault: str = "", window: int = 0, masked: bool = False) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.masked = masked
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.place = nn.Embedding(4 * ROOM, WIDTH)
        self.layers = nn.ModuleList(Cache(fault if at == 1 else "", window) for at in range(2))
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
