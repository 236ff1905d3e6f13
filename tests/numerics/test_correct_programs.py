"""Correct programs in which etviz names nothing: each was called broken, or could not be compared, before its law."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import etviz
from tests.zoo.programs import FLOATS


class Spectrum(nn.Module):
    """Complex values between real ones."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.fft.irfft(torch.fft.rfft(0.5 * x))


class Alike(nn.Module):
    """A branch has an operator of the name that one after it has, with another shape."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(torch.cond(x.sum() > 0, self.inner, lambda a: a.cos() + a, (x,)))


class Counted(nn.Module):
    """Whole numbers of quotients, which 16 bits round up to the next one before they are cut."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.div(x, y, rounding_mode="trunc")


class Distances(nn.Module):
    """torch has no kernel of it for 16-bit numbers, ExecuTorch has one."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.cdist(x, y)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    ("model", "inputs", "precision"),
    [
        (Spectrum(), (normal(4, 512),), "fp32"),
        (Alike(), (normal(4, 6).abs(),), "fp32"),
        (Counted(), (10 * normal(8, 64), normal(8, 64, seed=1).abs() + 0.1), "bf16"),
        (Distances(), (normal(1, 6, 64), normal(1, 5, 64, seed=1)), "fp16"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_nothing_is_named(model: nn.Module, inputs: tuple[Tensor, ...], precision: str, tmp_path: Path) -> None:
    kind = FLOATS[precision]
    given = tuple(item.to(kind) for item in inputs)
    inspection = etviz.debug(model.eval().to(kind), given, strict=False, workdir=tmp_path)
    assert inspection.first_divergence is None
    assert inspection.analysis.digest.level != "bad"
    severity = inspection.gaps["introduced_severity"].max()
    assert math.isfinite(severity)
    assert severity < 3
