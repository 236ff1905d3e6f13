"""Faults of ports that are written by hand, whose factors and masks stand between modules."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import etviz

WORDS, WIDTH, HEADS, WINDOW = 48, 32, 4, 4


class _Norm(nn.Module):
    def __init__(self, offset: float) -> None:
        super().__init__()
        self.weight, self.offset = nn.Parameter(0.2 * torch.randn(WIDTH)), offset

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * (self.offset + self.weight)


class _Layer(nn.Module):
    def __init__(self, window: int, offset: float) -> None:
        super().__init__()
        self.before, self.after = _Norm(offset), _Norm(1.0)
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, 48, bias=False), nn.Linear(48, WIDTH, bias=False)
        self.sliding_window = window

    def forward(self, x: Tensor, branch: float) -> Tensor:
        y = self.before(x)
        heads = [item(y).unflatten(-1, (HEADS, -1)).transpose(1, 2) for item in (self.query, self.key, self.value)]
        back = torch.arange(x.shape[1])[:, None] - torch.arange(x.shape[1])
        mask = (back >= 0) & (back < self.sliding_window)
        y = functional.scaled_dot_product_attention(*heads, attn_mask=mask)
        x = x + self.out(y.transpose(1, 2).flatten(2)) * branch
        return x + self.down(functional.silu(self.up(self.after(x))))


class _Decoder(nn.Module):
    def __init__(self, scale: float = 6.0, window: int = WINDOW, offset: float = 1.0, branch: float = 0.3) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(_Layer(window, offset) for _ in range(2))
        self.norm, self.logits = _Norm(1.0), nn.Linear(WIDTH, WORDS, bias=False)
        self.factors = [scale, branch]

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids) * self.factors[0]
        for layer in self.layers:
            x = layer(x, self.factors[1])
        return self.logits(self.norm(x))


@pytest.mark.parametrize(
    ("fault", "proved"),
    [
        ({"scale": 1.0}, "with the output of words × 6 "),
        ({"branch": 1.0}, "with the output of layers.*.out × 0.3 "),
        ({"window": 3}, "with a causal window of 4 positions as the mask in layers.* "),
        ({"window": 9}, "with a window of 4 positions in layers.* "),
        ({"offset": 0.0}, "with 1 + weight in layers.*.before "),
    ],
)
def test_a_fault_between_modules_is_proved(fault: dict[str, Any], proved: str) -> None:
    ids = torch.randint(WORDS, (1, 10), generator=torch.Generator().manual_seed(1))
    found = etviz.parity(_Decoder(**fault).eval(), reference=_Decoder().eval(), inputs=ids)
    assert f"Proved: {proved}the outputs agree" in found.summary()


class Cut(nn.Module):
    """Scales what its embedding gives inside of that module, or behind it."""

    def __init__(self, inside: bool) -> None:
        super().__init__()
        self.embedding = _Scaled(40, 16) if inside else nn.Embedding(40, 16)
        self.scale = 1.0 if inside else 4.0
        self.norm, self.up, self.down = nn.LayerNorm(16), nn.Linear(16, 32), nn.Linear(32, 40)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens) * self.scale
        return self.down(torch.tanh(self.up(self.norm(x))))


class _Scaled(nn.Embedding):
    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002 - torch's name
        return super().forward(input) * 4.0


@pytest.mark.parametrize("epsilon", [1e-5, 1e-2])
def test_models_that_cut_the_same_computation_at_another_place(epsilon: float) -> None:
    """No change that spoils what agreed is a proof; a fault behind that place is found."""
    torch.manual_seed(0)
    reference, model = Cut(inside=True), Cut(inside=False)
    model.load_state_dict(reference.state_dict())
    model.norm.eps = epsilon
    found = etviz.parity(model, reference, torch.arange(12)[None])
    assert "The output of embedding differs, and what follows agrees" in found.summary()
    assert found.agrees == (epsilon == 1e-5)
    if found.agrees:
        assert found.first is None
        assert found.hypothesis is None
        return
    assert found.first is not None
    assert found.first["module"] == "norm"
    assert [proof.hypothesis.name for proof in found.proofs] == ["epsilon"]
    assert found.proofs[-1].first is None
