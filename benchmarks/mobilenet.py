"""A network built like MobileNetV2, seeded: inverted residuals with depthwise convolutions and batch norms.

After M. Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks", 2018. Stages, expansion and the last
layer are the paper's, the first strides are 1, as is usual for small images: 2.35 million parameters with 100 classes.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor, nn

STAGES: Final = (
    (1, 16, 1, 1),
    (6, 24, 2, 1),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
"""Expansion, channels, blocks and stride of each stage (table 2 of the paper; stride 1 in the second)."""


def _convolution(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    padding = kernel // 2
    return [nn.Conv2d(inputs, outputs, kernel, stride, padding, groups=groups, bias=False), nn.BatchNorm2d(outputs)]


class InvertedResidual(nn.Module):
    """Widen, filter each channel, narrow; added to what came in where the shape stays: ``[n, c, h, w]``."""

    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = inputs * expansion
        widen = [*_convolution(inputs, wide, 1), nn.ReLU6()] if expansion > 1 else []
        filtered = [*_convolution(wide, wide, 3, stride, groups=wide), nn.ReLU6()]
        self.layers = nn.Sequential(*widen, *filtered, *_convolution(wide, outputs, 1))
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        """The narrow result, with or without what came in."""
        return x + self.layers(x) if self.residual else self.layers(x)


class MobileNet(nn.Module):
    """Images ``[n, 3, h, w]`` → class scores ``[n, classes]``."""

    def __init__(self, classes: int = 100, times: int = 1) -> None:
        super().__init__()
        layers: list[nn.Module] = [*_convolution(3, 32, 3, 2), nn.ReLU6()]
        channels = 32
        for expansion, outputs, blocks, stride in STAGES:
            for block in range(blocks * times):
                layers.append(InvertedResidual(channels, outputs, stride if block == 0 else 1, expansion))
                channels = outputs
        layers += [*_convolution(channels, 1280, 1), nn.ReLU6()]
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Linear(1280, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Class scores of images."""
        return self.classifier(self.features(images).mean([2, 3]))


def mobilenet(*, seed: int = 0, times: int = 1) -> MobileNet:
    """The network with random weights, and batch norms that know the statistics of random images.

    With `times` as many blocks.
    """
    torch.manual_seed(seed)
    model = MobileNet(times=times)
    with torch.no_grad():
        for _ in range(8):
            model(torch.randn(8, 3, 64, 64))
    return model.eval()
