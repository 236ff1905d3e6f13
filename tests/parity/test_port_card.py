"""The ladder of a port: the first stage that differs is marked, with the module and the word error rate."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
    XNNPACKQuantizer,
    get_symmetric_quantization_config,
)
from torch import nn

import etviz
from etviz.decoding.transcripts import word_error_rate
from etviz.errors import UsageError
from tests.calls.decoders import ROOM, WIDTH, WORDS, Decoder, Listener, hearing

IDS = [3, 1, 4, 1, 5, 9]


class Original(nn.Module):
    """The same numbers as a `Decoder`, computed without a cache; ``forward(tokens [1, n])``."""

    def __init__(self) -> None:
        super().__init__()
        self.inner: Any = Decoder()

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(tokens.shape[1])
        x = self.inner.embed(tokens) + self.inner.place(positions)
        for layer in self.inner.layers:
            q, k, v = layer.qkv(x).chunk(3, -1)
            seen = positions[:, None] >= positions[None]
            scores = (q @ k.transpose(1, 2) / q.shape[-1] ** 0.5).masked_fill(~seen[None], -1e9)
            x = x + layer.out(scores.softmax(-1) @ v)
        return self.inner.head(x)


class Words:
    """Each token is a word."""

    def encode(self, text: str) -> list[int]:
        return [int(word.removeprefix("w")) for word in text.split()]

    def decode(self, ids: list[int]) -> str:
        return " ".join(f"w{token}" for token in ids)


def _card(model: nn.Module, **more: Any) -> etviz.PortCard:
    return etviz.port_card(model, Original(), "w3 w1 w4 w1 w5 w9", tokenizer=Words(), **more)


def test_correct_port(tmp_path: Path) -> None:
    card = _card(Decoder(), partitioner=[XnnpackPartitioner()])
    assert card.first is None, card
    assert card.table["stage"].tolist()[:2] == ["original", "eager"]
    assert card.table["stage"].tolist()[-2:] == ["lowered", "runtime"]
    assert "exported" in set(card.table["stage"])
    known = card.table
    assert set(known["stage"]) == {"original", "eager", "exported", "edge", "lowered", "runtime"}
    assert not known["worst"].any(), known["worst"].tolist()
    assert (known["agreement"] == 1).all()
    assert (known["wer"] == 0).all()
    assert (known["severity"][1:] < 3).all()
    assert (known["kl"][1:] < 1e-9).all()
    assert card.summary() == "Decoder, a port of Original: no stage differs by more than rounding."
    card.to_html(tmp_path / "card.html")
    assert "<td>runtime</td>" in (tmp_path / "card.html").read_text(encoding="utf-8")


def test_fault_of_the_port() -> None:
    model: Any = Decoder()
    weight = model.layers[1].out.weight
    weight.data = weight.data.T.clone()
    card = _card(model)
    assert card.first == "eager"
    row = card.table.set_index("stage").loc["eager"]
    assert row["worst"] == "layers.1.out"
    assert row["differs"]
    assert card.table["differs"].sum() == 1
    text = card.to_markdown()
    assert "| **eager** |" in text
    assert "layers.1.out.weight as in the reference (transposed)" in card.summary()


def test_speech() -> None:
    """A decoder with cross-attention: the original is the same module fed from the beginning."""
    make = hearing(1)
    encoded = make([0], 0)[-1]

    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Listener()

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.inner(tokens, torch.arange(tokens.shape[1]), encoded)

    one_call = (torch.tensor([IDS]), torch.arange(len(IDS)), encoded)
    card = etviz.port_card(
        Listener(), Whole(), IDS, tokenizer=Words(), driver=make, inputs=one_call, reference_inputs=torch.tensor([IDS])
    )
    assert card.table["stage"].iloc[-1] == "runtime"
    assert card.table["wer"].iloc[[0, -1]].tolist() == [0, 0]


def test_word_error_rate() -> None:
    assert word_error_rate("a b c d", "a b c d") == 0
    assert word_error_rate("a b c d", "") == 1
    assert word_error_rate("a b c d", "b c d") == 0.25
    assert word_error_rate("a b", "x y z") == 1.5
    assert word_error_rate("", "x") != word_error_rate("", "x")


def test_bad_arguments() -> None:
    with pytest.raises(UsageError, match="prompt must be one prompt, found 2"):
        etviz.port_card(Decoder(), Original(), [[1], [2]])
    with pytest.raises(UsageError, match="prompt 0 is a text"):
        etviz.port_card(Decoder(), Original(), "w3")


@pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None, reason="transformers is not installed (extra `zoo`)"
)
def test_transformers() -> None:
    from tests.parity.ports import port_of, reference_of

    reference = reference_of("llama")
    model = port_of("llama", reference, use_kv_cache=True, generate_full_logits=False)
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    card = etviz.port_card(model, reference, [9, 21, 21, 86, 77], partitioner=[XnnpackPartitioner()])
    assert card.first is None, card
    model = port_of("llama", reference, use_kv_cache=True, generate_full_logits=False, rope_theta=1e4)
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    card = etviz.port_card(model, reference, [9, 21, 21, 86, 77])
    assert card.first == "eager"
    assert "theta 500000" in card.summary()


class _Attention(nn.Module):
    """Attention over a cache, and a linear layer."""

    cache: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(6)
        self.embed, self.head = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS)
        self.register_buffer("cache", torch.zeros(1, ROOM, WIDTH), persistent=False)

    def forward(self, tokens: torch.Tensor, input_pos: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        self.cache.index_copy_(1, input_pos, x)
        seen = torch.arange(ROOM)[None] <= input_pos[:, None]
        scores = (x @ self.cache.transpose(1, 2)).masked_fill(~seen, -1e9)
        return self.head(x + scores.softmax(-1) @ self.cache)


class _Whole(nn.Module):
    """The same without a cache, and without an input for the position."""

    def __init__(self) -> None:
        super().__init__()
        self.inner: Any = _Attention()

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x, at = self.inner.embed(tokens), torch.arange(tokens.shape[1])
        scores = (x @ x.transpose(1, 2)).masked_fill(at[None] > at[:, None], -1e9)
        return self.inner.head(x + scores.softmax(-1) @ x)


@pytest.mark.parametrize("cached", [False, True])
def test_a_quantized_row_and_the_card_in_a_view(tmp_path: Path, cached: bool) -> None:
    """Quantization is the first stage that differs, and no other one does; view and report hold the card."""
    model: nn.Module = _Attention() if cached else _Whole()
    whole = torch.tensor([IDS])
    calibration: list[Any] = [(torch.tensor([[token]]), torch.tensor([at])) for at, token in enumerate(IDS)]
    quantizer = XNNPACKQuantizer().set_module_type(nn.Linear, get_symmetric_quantization_config())
    given: dict[str, Any] = {"quantizer": quantizer, "calibration": calibration if cached else [(whole,)]}
    card = etviz.port_card(model, _Whole(), IDS, tokenizer=Words(), partitioner=[XnnpackPartitioner()], **given)
    stages = card.table.set_index("stage")
    assert stages.index.tolist() == ["original", "eager", "exported", "quantized", "edge", "lowered", "runtime"]
    assert card.first == "quantized", card
    assert stages.loc[card.first, "kl"] > 1e-6
    assert stages["differs"].sum() == 1
    run = etviz.decode(_Attention(), [IDS], steps=1, noise=False)
    run.card = card
    payload, _ = run.view.payload()
    wire = payload["tokens"]["card"]
    assert wire["rows"][wire["first"]][0] == card.first
    assert wire["verdict"] == card.summary()
    page = run.to_html(tmp_path / "run.html").read_text(encoding="utf-8")
    assert f'<tr class="first"><td>{card.first}</td>' in page
