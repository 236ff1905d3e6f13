"""A small Whisper-like program, trained to write down words: an encoder, and a decoder with two caches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tests.language.methods import Methods, build
from tests.shelf import Shelf

WORDS = ("<end>", "<start>", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
END, START = 0, 1
WIDTH, FRAMES, BANDS, ROOM = 32, 7, 8, 10
_VOICES = torch.randn(len(WORDS), BANDS, generator=torch.Generator().manual_seed(99))


class Spoken:
    """Token ids and words."""

    def encode(self, text: str) -> list[int]:
        return [WORDS.index(word) for word in text.split()]

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(WORDS[token] for token in ids)


def said(seed: int, noise: float = 0.05) -> tuple[Tensor, str]:
    """Features [1, FRAMES, BANDS] of some words, and the words."""
    generator = torch.Generator().manual_seed(seed)
    count = 3 + seed % 3
    ids = torch.randint(2, len(WORDS), (count,), generator=generator)
    frames = torch.zeros(FRAMES, BANDS)
    frames[:count] = _VOICES[ids]
    frames += noise * torch.randn(FRAMES, BANDS, generator=generator)
    return frames[None], Spoken().decode(ids.tolist())


class Encoder(nn.Module):
    """``forward(features [1, FRAMES, BANDS])`` returns [1, FRAMES, WIDTH]."""

    def __init__(self) -> None:
        super().__init__()
        self.inward, self.place = nn.Linear(BANDS, WIDTH), nn.Parameter(torch.randn(FRAMES, WIDTH))
        self.norm, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, features: Tensor) -> Tensor:
        x = self.inward(features) + self.place
        return x + self.out(nn.functional.gelu(self.norm(x)))


class Decoder(nn.Module):
    """``forward(decoder_input_ids [1, 1], encoder_hidden_states, cache_position [1])`` as upstream's runner calls it.

    Keys and values of the encoder's output are computed at position 0 and kept. With `stale` they are computed in the
    first call after the program was loaded only.
    """

    own: Tensor
    keys: Tensor
    values: Tensor
    filled: Tensor

    def __init__(self, *, stale: bool = False) -> None:
        super().__init__()
        self.stale = stale
        self.embed, self.place = nn.Embedding(len(WORDS), WIDTH), nn.Embedding(ROOM, WIDTH)
        self.query, self.look = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.key, self.value = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, len(WORDS))
        self.register_buffer("own", torch.zeros(ROOM, WIDTH))
        self.register_buffer("keys", torch.zeros(1, FRAMES, WIDTH))
        self.register_buffer("values", torch.zeros(1, FRAMES, WIDTH))
        self.register_buffer("filled", torch.zeros(1))

    def forward(self, tokens: Tensor, heard: Tensor, at: Tensor) -> Tensor:
        x = (self.embed(tokens) + self.place(at))[0]
        self.own.index_copy_(0, at, x)
        seen = torch.arange(ROOM)[None] <= at[:, None]
        x = x + self._attend(self.query(x), self.own, self.own, seen)
        first = self.filled == 0 if self.stale else at == 0
        self.keys.copy_(torch.where(first, self.key(heard), self.keys))
        self.values.copy_(torch.where(first, self.value(heard), self.values))
        if self.stale:
            self.filled.copy_(torch.ones(1))
        x = x + self._attend(self.look(x), self.keys[0], self.values[0], None)
        return self.head(self.norm(x))[None]

    def whole(self, tokens: Tensor, heard: Tensor) -> Tensor:
        """All positions at once, without caches, for training."""
        at = torch.arange(tokens.shape[1])
        x = self.embed(tokens) + self.place(at)
        x = x + self._attend(self.query(x), x, x, at[None] <= at[:, None])
        x = x + self._attend(self.look(x), self.key(heard), self.value(heard), None)
        return self.head(self.norm(x))

    @staticmethod
    def _attend(query: Tensor, keys: Tensor, values: Tensor, seen: Tensor | None) -> Tensor:
        scores = query @ keys.transpose(-1, -2) / math.sqrt(WIDTH)
        if seen is not None:
            scores = torch.where(seen, scores, -1e9)
        return scores.softmax(-1) @ values


def models(*, stale: bool = False) -> tuple[Encoder, Decoder]:
    torch.manual_seed(0)
    return Encoder().eval(), Decoder(stale=stale).eval()


def _trained() -> dict[str, Any]:
    encoder, decoder = models()
    optimizer = torch.optim.AdamW([*encoder.parameters(), *decoder.parameters()], 4e-3)
    for step in range(400):
        heard, texts = zip(*(said(1000 + 16 * step + at) for at in range(16)), strict=True)
        ids = [[START, *Spoken().encode(text), END] for text in texts]
        tokens = torch.tensor([row + [-100] * (FRAMES - len(row)) for row in ids])
        logits = decoder.whole(tokens[:, :-1].clamp(min=0), encoder(torch.cat(heard)))
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return {"encoder": encoder.state_dict(), "decoder": decoder.state_dict()}


def weights(shelf: Shelf) -> dict[str, Any]:
    """The trained weights, made once a test run."""
    made = shelf.folder("listener", lambda folder: torch.save(_trained(), folder / "weights.pt"))
    return torch.load(made / "weights.pt", weights_only=True)


def methods(shelf: Shelf, *, stale: bool = False) -> Methods:
    """The trained program as two methods."""
    encoder, decoder = models(stale=stale)
    found = weights(shelf)
    encoder.load_state_dict(found["encoder"])
    decoder.load_state_dict(found["decoder"])
    heard = torch.zeros(1, FRAMES, WIDTH)
    example = torch.tensor([[START]]), heard, torch.tensor([0])
    return Methods({"encoder": (encoder, (said(0)[0],)), "text_decoder": (decoder, example)}, [])


def program(shelf: Shelf) -> Path:
    """The folder of the trained, lowered program, made once a test run."""
    return shelf.folder("listening", lambda folder: build(methods(shelf), folder))
