"""Small models that are lowered through TOSA."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

Inputs = tuple[Tensor, ...]


class Cnn(nn.Module):
    """A strided convolution with batch norm, a depthwise one, a residual addition, an average, a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3, padding=1, stride=2), nn.BatchNorm2d(8)
        self.second = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.third, self.last = nn.Conv2d(8, 16, 1), nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.first(x)))
        x = self.third(x + functional.relu6(self.second(x)))
        return torch.softmax(self.last(x.mean((2, 3))), -1)


class Decoder(nn.Module):
    """A block of a decoder: attention with a causal mask, and a feed-forward layer."""

    def __init__(self, width: int = 32, heads: int = 4, length: int = 8) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.norm, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.register_buffer("mask", torch.triu(torch.full((length, length), -1e4), 1))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        y = self.norm(x)
        size = width // self.heads
        parts = (layer(y).reshape(batch, length, self.heads, size) for layer in (self.query, self.key, self.value))
        query, key, value = (part.transpose(1, 2) for part in parts)
        weights = torch.softmax(query @ key.transpose(-1, -2) / size**0.5 + self.mask, -1)
        x = x + self.out((weights @ value).transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.norm_2(x))))


class Upsampling(nn.Module):
    """Pooling and a transposed convolution, joined with what was before."""

    def __init__(self, relu: bool = False) -> None:
        super().__init__()
        self.relu = relu
        self.first, self.up, self.last = (
            nn.Conv2d(3, 6, 3, padding=1),
            nn.ConvTranspose2d(6, 4, 2, 2),
            nn.Conv2d(10, 3, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        a = self.first(x)
        a = torch.relu(a) if self.relu else a
        return torch.sigmoid(self.last(torch.cat([self.up(functional.max_pool2d(a, 2)), a], 1)))


class Mlp(nn.Module):
    """Two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(12, 20), nn.Linear(20, 7)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.last(functional.hardswish(self.first(x))))


class TwoOutputs(nn.Module):
    """Two inputs and two outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 8), nn.Linear(6, 8)

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        a, b = self.first(x), self.last(y)
        return a * b, (a - b).abs().amax(-1)


class Pooled(nn.Module):
    """A leaky ReLU, average pooling, and a flattened classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(4, 8, 3, padding=1), nn.Linear(8 * 16, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(functional.avg_pool2d(functional.leaky_relu(self.first(x)), 2).flatten(1))


class Squeeze(nn.Module):
    """Squeeze and excite, with SiLU."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(8)
        self.down, self.up = nn.Conv2d(8, 4, 1), nn.Conv2d(4, 8, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.silu(self.norm(self.first(x)))
        gate = torch.sigmoid(self.up(torch.relu(self.down(functional.adaptive_avg_pool2d(x, 1)))))
        return (x * gate).mean((2, 3))


class Sequence(nn.Module):
    """Convolutions in one dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv1d(4, 8, 3, padding=1), nn.Conv1d(8, 4, 3, dilation=2)

    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(self.last(torch.relu(self.first(x)))).sum(-1)


class Residual(nn.Module):
    """A residual block on square images, and nearest-neighbour upsampling."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last, self.norm = (
            nn.Conv2d(4, 4, 3, padding=1),
            nn.Conv2d(4, 4, 3, padding=1),
            nn.BatchNorm2d(4),
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.last(torch.relu(self.norm(self.first(x)))) + x
        return functional.interpolate(torch.relu(y), scale_factor=2, mode="nearest")


class Normed(nn.Module):
    """A group norm and a logarithm of softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(16, 16), nn.GroupNorm(2, 16)

    def forward(self, x: Tensor) -> Tensor:
        return functional.log_softmax(self.norm(self.first(x)), -1)


def _made(model: Callable[[], nn.Module], *shapes: tuple[int, ...]) -> Callable[[], tuple[Any, Inputs]]:
    def make() -> tuple[Any, Inputs]:
        torch.manual_seed(0)
        return model().eval(), tuple(torch.randn(shape) for shape in shapes)

    return make


MODELS: dict[str, Callable[[], tuple[Any, Inputs]]] = {
    "cnn": _made(Cnn, (1, 3, 16, 16)),
    "decoder": _made(Decoder, (1, 8, 32)),
    "upsampling": _made(Upsampling, (1, 3, 8, 8)),
    "mlp": _made(Mlp, (3, 12)),
    "two_outputs": _made(TwoOutputs, (2, 6), (2, 6)),
    "pooled": _made(Pooled, (1, 4, 8, 8)),
    "squeeze": _made(Squeeze, (1, 3, 16, 16)),
    "sequence": _made(Sequence, (1, 4, 20)),
    "residual": _made(Residual, (1, 4, 8, 8)),
    "normed": _made(Normed, (2, 16)),
}
"""Correct programs."""
WRONG = {"relu_before_cat": _made(lambda: Upsampling(relu=True), (1, 3, 8, 8))}
"""Programs that Arm's lowering changes."""


def calibration(inputs: Inputs) -> list[Inputs]:
    """Inputs to calibrate on: random ones, and those of the run."""
    generator = torch.Generator().manual_seed(1)
    return [tuple(torch.randn(value.shape, generator=generator) for value in inputs) for _ in range(8)] + [inputs]
