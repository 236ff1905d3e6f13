"""Grids of values of hardly any range: the kernels choose them by a rule of their own, and are no culprits for it."""

from __future__ import annotations

import importlib
from itertools import pairwise

import torch
from torch import Tensor, nn

import etviz
from etviz.evaluation.narrow_grids import kernel_grids

importlib.import_module("torch.ao.quantization.fx._decomposed")  # registers the operators
EPS = 2.0**-12
RANGES = (0.0, 1e-6, 0.03, 2.0)


def rows() -> Tensor:
    """Values of both signs, none below 0, and none above, in every range."""
    both = torch.randn(5, generator=torch.Generator().manual_seed(3))
    return torch.stack([part * size for size in RANGES for part in (both, both.abs(), -both.abs())])


class Chooses(nn.Module):
    """A grid for each row, chosen by both operators."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        quantized = torch.ops.quantized_decomposed
        one_by_one = [quantized.choose_qparams.tensor(row, -128, 127, EPS, torch.int8) for row in x]
        together = quantized.choose_qparams_per_token_asymmetric.default(x, torch.int8)
        return (*together, *(item for pair in one_by_one for item in pair))


def test_the_kernels_choose_by_their_own_rule_and_are_no_culprits() -> None:
    x = rows()
    found = etviz.debug(Chooses(), (x,))
    gaps = found.gaps[found.gaps["op"].str.contains("choose_qparams")]
    chosen = [found.tensors(row)[1].flatten() for row in gaps.index]
    expected = kernel_grids(x, -128, 127)
    per_tensor = chosen[:-2]
    for got in (chosen[-2:], (torch.cat(per_tensor[::2]), torch.cat(per_tensor[1::2]))):
        assert all(map(torch.equal, got, expected))
    assert (gaps["introduced_rmse"] > 0).sum() > len(RANGES)
    assert found.first_divergence is None
    assert found.gaps["severity"].max() <= 1.0


def test_the_rule_has_both_ends_on_the_grid() -> None:
    x = rows()
    scale, zero_point = kernel_grids(x, -128, 127)
    assert zero_point.ge(-128).all()
    assert zero_point.le(127).all()
    for end in (x.amin(1), x.amax(1)):
        steps = end / scale + zero_point
        assert steps.gt(-129).all()
        assert steps.lt(128).all()
    assert all(a <= b for a, b in pairwise(scale[3:].reshape(-1, 3).amax(1).tolist()))
