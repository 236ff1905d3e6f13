"""Invariants of calls: faults that graphs and caches have had are named, and correct programs raise no alarm."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import nn

import etviz
from etviz.errors import UsageError
from tests.calls.decoders import ROOM, WIDTH, WORDS, Decoder, Listener, chunked, chunked_program, driver, hearing
from tests.language.matrix import invariants_of
from tests.language.methods import Methods, build, prefill_and_decode
from tests.language.programs import RECIPES, made
from tests.shelf import Shelf

PROMPTS = [[3, 1, 4, 1, 5, 9, 2], [2, 7, 1, 8]]


def _checked(model: nn.Module, prompts: Sequence[Sequence[int]]) -> etviz.Invariants:
    return etviz.invariants(chunked(model), prompts, driver=etviz.Driver(driver, 4))


def test_correct_decoder(shelf: Shelf) -> None:
    found = etviz.invariants(chunked_program(shelf), PROMPTS, driver=etviz.Driver(driver, 4, room=ROOM))
    assert found.holds, found.summary()
    tried = found.table[found.table["status"] != "not applicable"]
    assert set(tried["invariant"]) == {
        *("the same run twice", "chunks = token by token", "after another sequence = alone", "the whole room"),
        "beyond the room",
    }
    assert (tried["invariant"] == "chunks = token by token").sum() == 6
    assert (found.table[found.table["invariant"] == "the same run twice"]["status"] == "holds").all()
    assert "0 of 14 invariants are broken" in found.summary()


def test_correct_ring() -> None:
    """A ring of twice the window takes chunks up to the window."""
    found = etviz.invariants(chunked(Decoder(window=3)), PROMPTS[:1], driver=etviz.Driver(driver, 3))
    assert found.holds, found.summary()


@pytest.mark.parametrize(
    ("fault", "window", "invariant"),
    [
        ("mask", 0, "chunks = token by token"),
        ("stale", 0, "after another sequence = alone"),
        ("short ring", 3, "chunks = token by token"),
        ("ring start", 3, "chunks = token by token"),
    ],
)
def test_fault_of_the_graph(fault: str, window: int, invariant: str) -> None:
    """Faults in the second layer.

    The mask's window (pytorch/executorch#21857), entries of the sequence before (pytorch/executorch#19447), a chunk
    that overwrites what its first tokens must still see (pytorch/executorch#22358), and a chunk across the
    end of the ring (pytorch/executorch#19213).
    """
    found = _checked(Decoder(fault, window), PROMPTS[:1])
    broken = found.broken[found.broken["invariant"] == invariant]
    assert len(broken), found.summary()
    assert set(broken["module"]) == {"layers.1"}
    assert broken["detail"].str.contains("the program's graph breaks it in layers.1").all()
    assert (broken["severity"] > 100).all()


@pytest.mark.parametrize("fault", [False, True])
def test_cross_attention_cache(fault: bool) -> None:
    """The second utterance hears the first one's encoder, as caches of huggingface/optimum-executorch#187 may."""
    found = etviz.invariants(Listener(fault).eval(), PROMPTS, driver=[hearing(1), hearing(2)])
    assert found.holds != fault, found.summary()
    if fault:
        assert set(found.broken["invariant"]) == {"after another sequence = alone"}
        assert set(found.broken["position"]) == {0}


def test_program_that_accepts_any_position() -> None:
    found = etviz.invariants(chunked(Decoder(window=6)), PROMPTS[1:], driver=etviz.Driver(driver, 4, room=ROOM))
    assert found.broken["invariant"].tolist() == ["beyond the room"]
    assert found.broken["position"].tolist() == [ROOM]


class _Stateless(nn.Module):
    """Mixes each token with the mean of those before it, or of all with a `leak`."""

    def __init__(self, leak: bool) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.embed, self.head, self.leak = nn.Embedding(WORDS, 8), nn.Linear(8, WORDS), leak
        for parameter in self.parameters():
            parameter.requires_grad_(False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        count = torch.arange(1, tokens.shape[1] + 1)[:, None]
        mixed = x.mean(1, keepdim=True).expand_as(x) if self.leak else x.cumsum(1) / count
        return self.head(x + mixed)


@pytest.mark.parametrize("leak", [False, True])
def test_program_without_state(leak: bool) -> None:
    """Tokens behind a position, and padding, have no effect on it."""
    found = etviz.invariants(_Stateless(leak).eval(), PROMPTS[:1])
    assert found.holds != leak, found.summary()
    skipped = found.table[found.table["invariant"] == "after another sequence = alone"]["detail"]
    assert skipped.tolist() == ["the program keeps no state"]
    if leak:
        assert "padding has no effect" in set(found.broken["invariant"])


class _Inner(nn.Module):
    """A module whose buffers have another name."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, tokens: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        return self.inner(tokens, at)


@pytest.mark.parametrize("shared", [True, False])
def test_methods_that_share_their_state(tmp_path: Path, shared: bool) -> None:
    """Prefill and decode as two methods; upstream shares buffers by name, so another name makes another cache."""
    methods = prefill_and_decode()
    if not shared:
        model, example = methods.modules["prefill"]
        methods = Methods({**methods.modules, "prefill": (_Inner(model), example)}, methods.calls)
    build(methods, tmp_path)
    found = etviz.invariants(tmp_path, [[7, 2, 9, 4, 5], [1, 8]], method="decode")
    assert found.holds == shared, found.summary()
    rows = found.table[found.table["invariant"] == "methods share their state"].set_index("prompt")
    assert rows["status"].tolist() == ["holds" if shared else "broken", "not applicable"]
    if not shared:
        assert rows.loc[0, "position"] == 3
        assert "the first 3 tokens by prefill, call 1" in rows.loc[0, "detail"]
        assert "prefill and decode do not see the same state" in rows.loc[0, "detail"]


class _Running(nn.Module):
    """A mean of all tokens so far; ``forward(tokens [1, 1])``, so only a reset begins a sequence."""

    total: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.embed, self.head = nn.Embedding(WORDS, 8), nn.Linear(8, WORDS)
        self.register_buffer("total", torch.zeros(1, 8))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        self.total.copy_(0.5 * self.total + self.embed(tokens)[0])
        return self.head(self.total)


class _Reset(nn.Module):
    """Sets the mean to zero, or with the `fault` half of it."""

    total: torch.Tensor
    kept: torch.Tensor

    def __init__(self, running: _Running, fault: bool) -> None:
        super().__init__()
        self.register_buffer("total", running.total)
        self.register_buffer("kept", torch.tensor([[0.0] * 4 + [float(fault)] * 4]))

    def forward(self) -> torch.Tensor:
        self.total.copy_(self.total * self.kept)
        return self.total.sum()


@pytest.mark.parametrize("fault", [False, True])
def test_reset_method(tmp_path: Path, fault: bool) -> None:
    model = _Running().eval()
    methods = Methods({"forward": (model, (torch.tensor([[1]]),)), "reset": (_Reset(model, fault).eval(), ())}, [])
    build(methods, tmp_path)
    found = etviz.invariants(tmp_path, PROMPTS)
    assert found.holds != fault, found.summary()
    rows = found.table.set_index("invariant")
    assert set(rows.loc["after another sequence = alone", "status"]) == {"not applicable"}
    assert set(rows.loc["after reset = fresh", "status"]) == {"broken" if fault else "holds"}
    if fault:
        assert rows.loc["after reset = fresh", "position"].tolist() == [0, 0]


class _Batch(nn.Module):
    """Two sequences side by side, each with its cache; with the `fault`, attention of a sequence sees both."""

    cache: torch.Tensor

    def __init__(self, fault: bool) -> None:
        super().__init__()
        torch.manual_seed(6)
        self.fault = fault
        self.embed, self.head = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS)
        self.register_buffer("cache", torch.zeros(2, ROOM, WIDTH))

    def forward(self, tokens: torch.Tensor, input_pos: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        self.cache.index_copy_(1, input_pos, x)
        seen = torch.arange(ROOM)[None] <= input_pos[:, None]
        cache = self.cache.sum(0, keepdim=True) if self.fault else self.cache
        scores = (x @ cache.transpose(1, 2)).masked_fill(~seen, -1e9)
        return self.head(x + scores.softmax(-1) @ cache)


@pytest.mark.parametrize("fault", [False, True])
def test_batch(fault: bool) -> None:
    exported = torch.export.export(_Batch(fault).eval(), (torch.tensor([[1], [2]]), torch.tensor([0])))
    found = etviz.invariants(exported, PROMPTS)
    assert found.holds != fault, found.summary()
    rows = found.table[found.table["invariant"] == "other rows of the batch have no effect"]
    assert rows["status"].tolist() == ["broken" if fault else "holds"] * 2
    if fault:
        assert rows["position"].tolist() == [0, 0]


@pytest.mark.parametrize("fault", ["", "mask"])
def test_padding_that_goes_into_the_cache(fault: str) -> None:
    """Four tokens a call: a later call replaces the padding in a cache, unless the mask lets it through before.

    Stale tokens in the last chunk: pytorch/executorch#19447.
    """

    def padded(ids: Sequence[int], position: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.tensor([[*ids, *[0] * (4 - len(ids))]]), torch.arange(position, position + 4)

    exported = torch.export.export(Decoder(fault).eval(), padded([1], 0), strict=False)
    found = etviz.invariants(exported, PROMPTS[:1], driver=etviz.Driver(padded, 4))
    row = found.table.set_index("invariant").loc["padding has no effect"]
    assert row["status"] == ("broken" if fault else "holds"), found.summary()
    assert found.holds == (not fault), found.summary()
    if fault:
        assert row["module"] == "layers.1"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["custom_portable", "quantized_cache", "ring_bf16", "sink_8da4w", "gated_delta"])
def test_language_models(name: str, shelf: Shelf) -> None:
    """No alarm on a program of each kind of cache; `tests.language.matrix` has all of them.

    Those that other tests need too are not lowered again.
    """
    found = invariants_of(RECIPES[name], made(shelf, name) if name in ("quantized_cache", "gated_delta") else None)
    assert found.holds, found.summary()
    assert (found.table["invariant"] == "after another sequence = alone").sum() == 2


def test_bad_arguments(shelf: Shelf) -> None:
    with pytest.raises(UsageError, match="driver has 1 functions for 2 prompts"):
        etviz.invariants(Decoder(), PROMPTS, driver=[driver])
    with pytest.raises(UsageError, match="prompt 0 has 7 tokens, and the program has room for 4"):
        etviz.invariants(chunked_program(shelf), PROMPTS, driver=etviz.Driver(driver, 4, room=4))
    with pytest.raises(TypeError):
        etviz.invariants(Decoder(), PROMPTS, window=3)
