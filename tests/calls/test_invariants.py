"""Invariants of calls: faults that graphs and caches have had are named, and correct programs raise no alarm."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from torch import nn

import etviz
from etviz.errors import UsageError
from tests.calls.decoders import ROOM, WORDS, Decoder, Listener, driver, hearing
from tests.language.programs import RECIPES, model_of

PROMPTS = [[3, 1, 4, 1, 5, 9, 2], [2, 7, 1, 8]]
COUNT = torch.export.Dim("count", min=1, max=ROOM - 2)
"""Tokens of a call: any number."""


def _exported(model: nn.Module) -> torch.export.ExportedProgram:
    """A program whose calls take several tokens."""
    return torch.export.export(
        model.eval(), driver([1, 2, 3], 0), dynamic_shapes=({1: COUNT}, {0: COUNT}), strict=False
    )


def _checked(model: nn.Module, prompts: Sequence[Sequence[int]] = PROMPTS, **more: Any) -> etviz.Invariants:
    return etviz.invariants(_exported(model), prompts, driver=etviz.Driver(driver, 4, **more))


def test_correct_decoder() -> None:
    found = _checked(Decoder(), room=ROOM)
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
    found = etviz.invariants(_exported(Decoder(window=3)), PROMPTS[:1], driver=etviz.Driver(driver, 3))
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
    found = etviz.invariants(_exported(Decoder(window=6)), PROMPTS[1:], driver=etviz.Driver(driver, 4, room=ROOM))
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


@pytest.mark.slow
@pytest.mark.parametrize("name", RECIPES)
def test_language_models(name: str) -> None:
    """No alarm on the programs of the LLM matrix."""

    def make(ids: Sequence[int], position: int) -> tuple[Any, ...]:
        return torch.tensor([list(ids)]), {"input_pos": torch.tensor([position])}

    recipe = RECIPES[name]
    partitioner = [XnnpackPartitioner()] if recipe.delegated else None
    prompts = [[3, 10, 17, 24, 31, 38, 45, 52, 59, 66], [9, 2]]
    found = etviz.invariants(model_of(recipe), prompts, driver=make, partitioner=partitioner)
    assert found.holds, found.summary()
    assert (found.table["invariant"] == "after another sequence = alone").sum() == 2


def test_bad_arguments(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="driver has 1 functions for 2 prompts"):
        etviz.invariants(Decoder(), PROMPTS, driver=[driver])
    with pytest.raises(UsageError, match="prompt 0 has 7 tokens, and the program has room for 4"):
        etviz.invariants(_exported(Decoder()), PROMPTS, driver=etviz.Driver(driver, 4, room=4))
    with pytest.raises(TypeError):
        etviz.invariants(Decoder(), PROMPTS, window=3)
