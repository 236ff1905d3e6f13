"""A Llama of transformers, with its cache, as the program and as the reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from torch import nn

import etviz
from etviz.errors import UsageError
from etviz.pipeline.lower import lower
from tests.shelf import Shelf

transformers: Any = pytest.importorskip("transformers", reason="transformers is installed with the extra zoo")
WORDS, ROOM, PROMPT = 128, 32, [1, 5, 9, 22, 7]


def llama(words: int = WORDS) -> Any:
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = transformers.LlamaConfig(
        **sizes, vocab_size=words, num_key_value_heads=2, max_position_embeddings=64, initializer_range=0.1
    )
    return transformers.LlamaForCausalLM(config).eval().requires_grad_(requires_grad=False)


class Cached(nn.Module):
    """With transformers' static cache, whose tensors are buffers here, so that the export sees their writes."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        config = model.config
        self.model = model
        self.cache = transformers.StaticCache(config=config, max_cache_len=ROOM)
        self.cache.early_initialization(1, config.num_key_value_heads, config.head_dim, torch.float32, "cpu")
        for at, layer in enumerate(self.cache.layers):
            self.register_buffer(f"keys_{at}", layer.keys.clone())
            self.register_buffer(f"values_{at}", layer.values.clone())

    def forward(self, input_ids: torch.Tensor, cache_position: torch.Tensor) -> torch.Tensor:
        for at, layer in enumerate(self.cache.layers):
            layer.keys, layer.values = self.get_buffer(f"keys_{at}"), self.get_buffer(f"values_{at}")
            layer.cumulative_length = cache_position[0].clone()
        given = {"past_key_values": self.cache, "position_ids": cache_position[None]}
        return self.model(input_ids=input_ids, **given).logits


@pytest.fixture(scope="module")
def decoder(shelf: Shelf) -> Path:
    def make(folder: Path) -> None:
        call = torch.tensor([[1]]), torch.tensor([0])
        lower(Cached(llama()), call, folder, partitioner=[XnnpackPartitioner()], strict=False)

    return shelf.folder("transformers-llama", make)


@pytest.fixture(scope="module")
def run(decoder: Path) -> etviz.Decode:
    return etviz.decode(decoder, PROMPT, steps=8, reference=llama())


def test_the_model_is_the_reference(run: etviz.Decode) -> None:
    with torch.no_grad():
        expected = llama()(torch.tensor([run.sequences[0].ids])).logits[0]
    for at, position in enumerate(run.steps["position"]):
        assert torch.equal(run.logits(at)[0], expected[position])
    assert run.first_fault is None
    assert run.steps["agrees"].all()
    assert len(run.steps) == len(PROMPT) + 8 - 1


def test_its_cache_is_compared(decoder: Path, run: etviz.Decode) -> None:
    own = etviz.decode(decoder, PROMPT, steps=8)
    assert own.steps["token"].to_list() == run.steps["token"].to_list()
    cache = own.cache
    assert cache.groupby(["layer", "kind", "head"]).size().to_dict() == {
        (layer, kind, head): len(own.steps) for layer in (0, 1) for kind in ("keys", "values") for head in (0, 1)
    }
    assert cache.attrs["note"] == "Noise explains every entry of the cache."
    assert own.why(7).attrs["sum"] == pytest.approx(1, abs=0.05)


def test_a_folder_with_a_model(decoder: Path, run: etviz.Decode, tmp_path: Path) -> None:
    llama().save_pretrained(tmp_path / "model")
    found = etviz.decode(decoder, PROMPT, steps=8, reference=tmp_path / "model", noise=False)
    assert found.steps["kl"].to_list() == pytest.approx(run.steps["kl"].to_list(), abs=1e-9)


def test_another_vocabulary(decoder: Path) -> None:
    with pytest.raises(UsageError, match=r"128 tokens, found .*64"):
        etviz.decode(decoder, PROMPT, steps=2, reference=llama(64))
