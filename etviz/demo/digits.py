"""The demo's model: a small convolutional classifier of scikit-learn's handwritten digits.

1,797 real images of 8 × 8 pixels (E. Alpaydin, C. Kaynak, "Optical Recognition of Handwritten Digits", UCI, 1998).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn
from tqdm.auto import tqdm

EPOCHS: Final = 12
"""Passes over the training images."""
_BATCH: Final = 64
_TEST_SHARE: Final = 5
"""One image of this number is for the test."""


class DigitsNet(nn.Module):
    """Two residual blocks, each followed by a layer norm: float32 ``[n, 1, 8, 8]`` → class scores ``[n, 10]``.

    XNNPACK takes the convolutions, the layer norms stay with the portable kernels.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
        self.block1 = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
        self.norm1 = nn.LayerNorm([16, 8, 8])
        self.down = nn.Conv2d(16, 32, 3, stride=2, padding=1)
        self.block2 = nn.Sequential(nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU())
        self.norm2 = nn.LayerNorm([32, 4, 4])
        self.head = nn.Linear(32 * 16, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Class scores of images in 0…1."""
        x = self.stem(images)
        x = self.norm1(x + self.block1(x))
        x = torch.relu(self.down(x))
        x = self.norm2(x + self.block2(x))
        return self.head(x.flatten(1))


@dataclass(frozen=True, slots=True)
class Digits:
    """Images ``[n, 1, 8, 8]`` float32 in 0…1, labels ``[n]``."""

    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor


def load_digits() -> Digits:
    from sklearn import datasets

    bunch: Any = datasets.load_digits()
    images = torch.from_numpy(bunch.images).float().unsqueeze(1) / 16.0
    labels = torch.from_numpy(bunch.target).long()
    test = torch.arange(len(images)) % _TEST_SHARE == 0
    return Digits(images[~test], labels[~test], images[test], labels[test])


def train(digits: Digits, *, epochs: int = EPOCHS, seed: int = 0) -> DigitsNet:
    """In float64: the same seed gives the same weights on every machine, to four digits."""
    torch.manual_seed(seed)
    model = DigitsNet().double()
    images = digits.train_images.double()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-2)
    batches = len(digits.train_images) // _BATCH
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=epochs * batches)
    model.train()
    for _ in tqdm(range(epochs), desc="train", leave=False):
        order = torch.randperm(len(digits.train_images))
        for batch in order[: batches * _BATCH].split(_BATCH):
            loss = nn.functional.cross_entropy(model(images[batch]), digits.train_labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return model.float().eval()


def accuracy(scores: Tensor, labels: Tensor) -> float:
    return float((scores.argmax(1) == labels).float().mean())
