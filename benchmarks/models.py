"""The models that are measured: a vision transformer of real size, and stacks of transformer layers that grow.

All weights are random and seeded: gaps and times need the shapes of a real model, not its knowledge.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch import Tensor, nn

SEED = 0


class EncoderBlock(nn.Module):
    """One pre-norm encoder block of a vision transformer: ``[n, tokens, dim]`` → the same shape."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(dim, eps=1e-6)
        self.self_attention = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.ln_2 = nn.LayerNorm(dim, eps=1e-6)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Dropout(0.0), nn.Linear(4 * dim, dim))

    def forward(self, x: Tensor) -> Tensor:
        """Attention and MLP, each on normalized values and added to what came in."""
        y = self.ln_1(x)
        y, _ = self.self_attention(y, y, y, need_weights=False)
        x = x + y
        return x + self.mlp(self.ln_2(x))


class VisionTransformer(nn.Module):
    """ViT by its definition (A. Dosovitskiy et al., "An Image is Worth 16x16 Words", 2021): images → class scores.

    The defaults are ViT-B/16: 86,567,656 parameters, and the same operators as torchvision's ``vit_b_16``.
    """

    def __init__(
        self,
        *,
        size: int = 224,
        patch: int = 16,
        dim: int = 768,
        heads: int = 12,
        layers: int = 12,
        classes: int = 1000,
    ) -> None:
        super().__init__()
        self.conv_proj = nn.Conv2d(3, dim, patch, stride=patch)
        self.class_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos_embedding = nn.Parameter(0.02 * torch.randn(1, (size // patch) ** 2 + 1, dim))
        self.blocks = nn.Sequential(*(EncoderBlock(dim, heads) for _ in range(layers)))
        self.ln = nn.LayerNorm(dim, eps=1e-6)
        self.head = nn.Linear(dim, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Class scores of images ``[n, 3, size, size]``."""
        patches = self.conv_proj(images).flatten(2).permute(0, 2, 1)
        tokens = torch.cat([self.class_token.expand(images.shape[0], -1, -1), patches], dim=1)
        return self.head(self.ln(self.blocks(tokens + self.pos_embedding))[:, 0])


class DecoderBlock(nn.Module):
    """A GPT-like block with causal attention written out: ``[n, tokens, dim]`` → the same shape."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.projection = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Causal attention and MLP, each added to what came in."""
        n, tokens, dim = x.shape
        split = (n, tokens, self.heads, dim // self.heads)
        q, k, v = (part.view(split).transpose(1, 2) for part in self.qkv(self.ln_1(x)).split(dim, dim=-1))
        scores = q @ k.transpose(-2, -1) / split[-1] ** 0.5 + mask
        mixed = (torch.softmax(scores, dim=-1) @ v).transpose(1, 2).reshape(n, tokens, dim)
        x = x + self.projection(mixed)
        return x + self.down(nn.functional.gelu(self.up(self.ln_2(x))))


class DecoderStack(nn.Module):
    """Token ids ``[n, tokens]`` → scores ``[n, tokens, vocabulary]`` through any number of layers."""

    def __init__(self, layers: int, *, dim: int = 64, heads: int = 4, tokens: int = 16, vocabulary: int = 256) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, dim)
        self.position = nn.Parameter(0.02 * torch.randn(1, tokens, dim))
        self.blocks = nn.ModuleList(DecoderBlock(dim, heads) for _ in range(layers))
        self.ln = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, vocabulary, bias=False)
        self.register_buffer("mask", torch.full((tokens, tokens), -1e4).triu(1))

    def forward(self, ids: Tensor) -> Tensor:
        """Scores of the next token at every position."""
        x = self.embedding(ids) + self.position
        for block in self.blocks:
            x = block(x, self.mask)
        return self.head(self.ln(x))


class _Logits(nn.Module):
    """A classifier of `transformers` with one tensor in and one out."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        return self.model(pixel_values=images).logits


def vit(*, small: bool = False) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """ViT-B/16 and one image: torchvision's where torchvision can be imported, else the definition above."""
    torch.manual_seed(SEED)
    if small:
        model: nn.Module = VisionTransformer(size=64, dim=96, heads=3, layers=3, classes=10)
    else:
        try:
            torchvision = importlib.import_module("torchvision.models")
        except (ImportError, RuntimeError):  # a torchvision built for another torch fails with a RuntimeError
            model = VisionTransformer()
        else:
            model = torchvision.vit_b_16()
            head = model.get_submodule("heads.head")
            nn.init.normal_(head.get_parameter("weight"), std=0.02)
    side = 64 if small else 224
    return model.eval(), (torch.randn(1, 3, side, side),)


def vit_transformers(*, small: bool = False) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """The ViT-B/16 of the `transformers` library and one image."""
    transformers = importlib.import_module("transformers")
    torch.manual_seed(SEED)
    sizes: dict[str, Any] = (
        {"image_size": 64, "hidden_size": 96, "num_attention_heads": 3, "num_hidden_layers": 3} if small else {}
    )
    config = transformers.ViTConfig(**sizes)
    config.num_labels = 10 if small else 1000
    model = transformers.ViTForImageClassification(config)
    side = 64 if small else 224
    return _Logits(model).eval(), (torch.randn(1, 3, side, side),)


def decoder_stack(layers: int) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """A stack of `layers` decoder layers and 16 token ids."""
    torch.manual_seed(SEED)
    return DecoderStack(layers).eval(), (torch.randint(0, 256, (1, 16)),)


def tiny() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """A model that loads what is imported on first use, in either tool, and takes no time itself."""
    torch.manual_seed(SEED)
    layers = (nn.Linear(8, 8), nn.LayerNorm(8), nn.Softmax(-1), nn.Linear(8, 8), nn.GELU())
    return nn.Sequential(*layers).eval(), (torch.randn(4, 8),)
