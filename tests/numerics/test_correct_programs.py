"""Correct programs in which etviz names nothing: each was called broken, or could not be compared, before its law."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

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


class Spreads(nn.Module):
    """16-bit numbers lie on a lattice, so the squares of their deviations may share the rest that sums round."""

    def forward(self, x: Tensor) -> Tensor:
        return x.float().var(-1)


class Biased(nn.Module):
    """A product of one term, to which a large bias is added."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.scale, self.line = nn.Conv2d(8, 8, 1, groups=8), nn.Linear(1, 4)
        for layer in (self.scale, self.line):
            layer.bias = nn.Parameter(torch.full(layer.weight.shape[:1], 10.1))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.scale(x), self.line(x.unsqueeze(-1))


class Around(nn.Module):
    """Circular padding takes memory and writes to all of it, part by part."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(3, 3, 3, padding=1, padding_mode="circular") for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x).relu()
        return x


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    ("model", "inputs", "precision"),
    [
        (Spectrum(), (normal(4, 512),), "fp32"),
        (Alike(), (normal(4, 6).abs(),), "fp32"),
        (Counted(), (10 * normal(8, 64), normal(8, 64, seed=1).abs() + 0.1), "bf16"),
        (Spreads(), (20 + normal(12, 600, seed=3),), "fp16"),
        (Biased(), (normal(1, 8, 6, 6),), "fp16"),
        (Distances(), (normal(1, 6, 64), normal(1, 5, 64, seed=1)), "fp16"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_nothing_is_named(model: nn.Module, inputs: tuple[Tensor, ...], precision: str, tmp_path: Path) -> None:
    kind = FLOATS[precision]
    given = tuple(item.to(kind) for item in inputs)
    _is_calm(etviz.debug(model.eval().to(kind), given, strict=False, workdir=tmp_path))


def test_what_memory_holds_before_it_is_written_to_is_right(tmp_path: Path) -> None:
    inspection = etviz.debug(Around().eval(), (normal(1, 3, 8, 8),), workdir=tmp_path)
    taken = inspection.gaps.set_index("instruction").loc[inspection.coverage["op"].str.contains("empty").to_numpy()]
    assert len(taken) == 2
    assert (taken["introduced_rmse"] == 0).all()
    _is_calm(inspection)
    (tmp_path / "model.etviz").unlink()
    given: dict[str, Any] = {"etrecord": tmp_path / "etrecord.bin", "debug_buffer": tmp_path / "debug_buffer.bin"}
    _is_calm(etviz.load(tmp_path / "etdump.etdp", **given, pte=tmp_path / "model.pte"))
    _is_calm(etviz.load(tmp_path / "etdump.etdp", **given))


def test_grouped_transposed_convolutions_have_the_weights_that_xnnpack_stores(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x = nn.ConvTranspose2d(8, 12, 3, groups=2).eval(), (normal(1, 8, 5, 5),)
    etviz.debug(model, x, "xnnpack", workdir=tmp_path / "right")
    with torch.no_grad():
        model.weight[5] *= 2
    etviz.debug(model, x, "xnnpack", workdir=tmp_path / "scaled")
    said = {}
    for name in ("right", "scaled"):
        folder = tmp_path / name
        (folder / "model.etviz").unlink()
        said[name] = etviz.load(
            folder / "etdump.etdp",
            etrecord=tmp_path / "right" / "etrecord.bin",
            debug_buffer=folder / "debug_buffer.bin",
            pte=folder / "model.pte",
        ).summary()
    assert "weights" not in said["right"]
    assert "channel 5 of weight is ×2" in said["scaled"]


def _is_calm(inspection: etviz.Inspection) -> None:
    assert inspection.first_divergence is None
    assert inspection.analysis.digest.level != "bad"
    severity = inspection.gaps["introduced_severity"].max()
    assert math.isfinite(severity)
    assert severity < 3
