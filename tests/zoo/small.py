"""Small models of the kinds that users bring and that `tests/programs.py` does not have."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class ConvNet(nn.Module):
    """Everything of it goes into one XNNPACK delegate."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3, padding=1)
        self.second = nn.Conv2d(4, 4, 3)
        self.head = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.second(torch.relu(self.first(x)))).flatten(1))


class MaskedTransformer(nn.Module):
    """A padding mask of a large negative number, as in BERT; layer norms between many small delegates."""

    def __init__(self, width: int = 8, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.embed = nn.Embedding(11, width)
        self.norm_1 = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.norm_2 = nn.LayerNorm(width)
        self.expand = nn.Linear(width, 2 * width)
        self.shrink = nn.Linear(2 * width, width)

    def forward(self, tokens: Tensor, attention_mask: Tensor) -> Tensor:
        x = self.norm_1(self.embed(tokens))
        split = self.query_key_value(x).view(*tokens.shape, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        query, key, value = split.unbind(0)
        mask = (1.0 - attention_mask[:, None, None, :].float()) * -10000.0
        weights = torch.softmax(query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5 + mask, -1)
        x = self.norm_2(x + self.project((weights @ value).transpose(1, 2).reshape(x.shape)))
        return x + self.shrink(torch.nn.functional.gelu(self.expand(x)))


class Feed(nn.Module):
    """Two linears around a layer norm, to be quantized in one way or another."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(16, 32)
        self.norm = nn.LayerNorm(32)
        self.second = nn.Linear(32, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.norm(torch.relu(self.first(x))))


class WeightOnly(nn.Module):
    """int8 weights with a scale for each output channel, dequantized in the program."""

    def __init__(self) -> None:
        super().__init__()
        weight = torch.randn(8, 16)
        scale = weight.abs().amax(1, keepdim=True) / 127
        self.register_buffer("weight", torch.round(weight / scale).to(torch.int8))
        self.register_buffer("scale", scale)
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 4)
        self.weight: Tensor
        self.scale: Tensor

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(nn.functional.linear(x, self.weight.to(x.dtype) * self.scale)))


class Decoder(nn.Module):
    """One attention layer over a cache of keys and values that each step writes one place of."""

    def __init__(self, width: int = 16, heads: int = 2, length: int = 6) -> None:
        super().__init__()
        self.heads, self.length = heads, length
        self.embed = nn.Embedding(20, width)
        self.norm = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.register_buffer("keys", torch.zeros(1, heads, length, width // heads))
        self.register_buffer("values", torch.zeros(1, heads, length, width // heads))
        self.keys: Tensor
        self.values: Tensor

    def forward(self, token: Tensor, position: Tensor) -> Tensor:
        x = self.embed(token)
        split = self.query_key_value(self.norm(x)).view(1, 1, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        query, key, value = split.unbind(0)
        self.keys.index_copy_(2, position, key)
        self.values.index_copy_(2, position, value)
        mask = torch.where(torch.arange(self.length) <= position[:, None], 0.0, float("-inf"))
        weights = torch.softmax(query @ self.keys.transpose(-1, -2) / query.shape[-1] ** 0.5 + mask, -1)
        return x + self.project((weights @ self.values).transpose(1, 2).reshape(x.shape))


class Pooled(nn.Module):
    """Shapes that depend on the length of the input, which is another one when it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)
        self.norm = nn.LayerNorm(6)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        y = self.norm(self.linear(x)).reshape(batch * length, width)
        y = torch.cat([y, y * 2], 0).view(2 * batch, length, width)
        return (y.transpose(1, 2) @ y).softmax(-1) * length


class BranchesOfTensors(nn.Module):
    """`torch.cond` with operators of XNNPACK before and after it, and kernels in its branches."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.linear(x)
        y = torch.cond(x.sum() > 0, lambda a: (a.sin() * a,), lambda a: (a.cos() + a,), (x,))[0]
        return torch.cumsum(self.linear(y), -1)


class DivergingBranches(nn.Module):
    """The branch depends on a value that XNNPACK gives as NaN and eager PyTorch does not."""

    def forward(self, x: Tensor) -> Tensor:
        y = torch.sigmoid(x / x)
        chosen = torch.cond(y.sum() >= 0, lambda a: (torch.sin(a),), lambda a: (torch.cos(a) * a,), (x,))[0]
        return torch.cumsum(chosen, -1) + 1


class Low(nn.Module):
    """Every value is an output, so that the runtime's own outputs tell what the ETDump cannot hold."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        low = torch.sin(x)
        scaled = low * 3
        summed = scaled + torch.cumsum(low, -1)
        return low, scaled, torch.cumsum(low, -1), summed, torch.softmax(summed, -1)


class Mixed(nn.Module):
    """fp16 beside fp32, each value an output."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        first = torch.sin(x)
        half = first.half()
        scaled = half * 3
        whole = scaled.float()
        return first, half, scaled, whole, torch.cumsum(whole, -1)


class NonFinite(nn.Module):
    """Inf and NaN that appear, that a maximum or a comparison hides, and that are lost."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        infinite = torch.exp(x * 100)
        undefined = infinite - infinite
        hidden = torch.where(undefined > 0, undefined, torch.zeros_like(undefined))
        return infinite, undefined + 1, hidden + x, torch.nan_to_num(undefined, 7.0) * 2, torch.rsqrt(x - x)


class Outputs(nn.Module):
    """Nested inputs; a list, an empty tensor, integers, booleans and plain numbers among the outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, batch: dict[str, Any], pair: tuple[Tensor, Tensor]) -> dict[str, Any]:
        y = self.linear(batch["x"]) * pair[0]
        return {
            "parts": list(torch.split(torch.cumsum(y, -1), 2, -1)),
            "length": batch["x"].shape[0],
            "best": torch.argmax(y, -1),
            "sure": y > 0,
            "none": y[:, :0],
            "fixed": 3,
            "bytes": (y * 10).to(torch.int8),
            "sum": pair[1] + y.sum(),
        }


class Recurrent(nn.Module):
    """An LSTM, whose steps are alike operators of one debug handle, and a head."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.layer, self.head = nn.LSTM(4, 6, batch_first=True), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(x)[0])


class Bidirectional(nn.Module):
    """A GRU in both directions: two chains of alike operators, side by side; and parts that only their places tell."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.layer, self.head = nn.GRU(4, 6, batch_first=True, bidirectional=True), nn.Linear(12, 6)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)[0]
        even, odd = y.reshape(*y.shape[:2], 6, 2).unbind(-1)
        return self.head(y) + even * odd


class Stack(nn.Module):
    """A stack of pre-norm blocks with attention, as in GPT."""

    def __init__(self, layers: int, width: int = 8) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers))
        self.mixers = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(layers))
        self.feeds = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        for norm, mixer, feed in zip(self.norms, self.mixers, self.feeds, strict=True):
            query, key, value = mixer(norm(x)).chunk(3, -1)
            x = x + feed(torch.softmax(query @ key.transpose(-1, -2), -1) @ value)
        return x


class Rotary(nn.Module):
    """Attention with rotary positions, whose queries and keys have one shape and leave one delegate together."""

    def __init__(self, width: int = 16, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.RMSNorm(width, eps=1e-5)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        angles = torch.arange(x.shape[1])[:, None] * torch.tensor([1.0, 0.1])
        cos, sin = torch.cos(angles).repeat(1, 2), torch.sin(angles).repeat(1, 2)
        y = self.norm(x)
        query, key, value = (
            part(y).view(*x.shape[:2], self.heads, -1).transpose(1, 2) for part in (self.query, self.key, self.value)
        )
        query, key = (part * cos + torch.cat([-part[..., 2:], part[..., :2]], -1) * sin for part in (query, key))
        weights = torch.softmax(query @ key.transpose(-2, -1), -1)
        return x + self.out((weights @ value).transpose(1, 2).reshape(x.shape))


class MobileBlock(nn.Module):
    """A block of a MobileNetV3: hard swish, and squeeze and excitation with a hard sigmoid."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.expand, self.project = nn.Conv2d(width, 2 * width, 1), nn.Conv2d(2 * width, width, 1)
        self.squeeze, self.excite = nn.Conv2d(2 * width, width, 1), nn.Conv2d(width, 2 * width, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = nn.functional.hardswish(self.expand(x))
        scale = torch.relu(self.squeeze(nn.functional.adaptive_avg_pool2d(y, 1)))
        return x + nn.functional.hardswish(self.project(y * nn.functional.hardsigmoid(self.excite(scale))))


class Several(nn.Module):
    """Delegates with several outputs of one shape, which kernels and the program's own outputs read."""

    def __init__(self, width: int = 6) -> None:
        super().__init__()
        self.parts = nn.ModuleList(nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        a, b, c = (torch.relu(part(x)) for part in self.parts[:3])
        total, product = a + b, a * b
        d = torch.cumsum(c, -1) + torch.cumsum(total, -1)
        e = self.parts[3](d)
        return product, torch.flip(a, [0]), torch.sigmoid(e) - d, e * d, torch.cumsum(torch.tanh(e), 0), c
