"""Grids that a delegate chooses when it runs: what is judged by them where numbers lie on the graph's by chance."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import XNNPACKQuantizer, get_symmetric_quantization_config
from torch import Tensor, nn
from torch.export import export
from torchao.quantization import quantize_
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

import etviz
from tests.zoo.made import Made
from tests.zoo.programs import TORCHAO

LINEAR: Any = torch.ops.aten.linear.default


class Behind(nn.Module):
    """A linear layer that is quantized when it runs, and what a portable kernel makes of its values."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(20, 12)

    def forward(self, x: Tensor) -> Tensor:
        """Sums along each row."""
        return torch.cumsum(self.linear(x), -1)


class Normed(nn.Module):
    """Two linear layers with a norm between them, which makes small rows as large as others."""

    def __init__(self) -> None:
        super().__init__()
        self.inward, self.norm, self.outward = nn.Linear(20, 33, bias=False), nn.LayerNorm(33), nn.Linear(33, 7)

    def forward(self, x: Tensor) -> Tensor:
        x = self.inward(x)
        return torch.cumsum(self.outward(self.norm(x - x.mean(-1, keepdim=True))), 1)


def ran(x: Tensor, folder: Path, model: Callable[[], nn.Module] = Behind) -> etviz.Inspection:
    """What `debug` says of it."""
    torch.manual_seed(0)
    config = get_symmetric_quantization_config(is_per_channel=True, is_dynamic=True)
    quantizer = XNNPACKQuantizer().set_operator_type(LINEAR, config)
    prepared = prepare_pt2e(export(model().eval(), (x,), strict=True).module(), quantizer)
    prepared(x)
    program = export(convert_pt2e(prepared), (x,), strict=True)
    return etviz.debug(program, (x,), partitioner=[XnnpackPartitioner()], workdir=folder)


def whole_numbers() -> Tensor:
    """Rows whose largest differ, all of which lie on the grid of the whole tensor, whose step is 1."""
    x = torch.zeros(8, 20)
    for row in range(8):
        x[row] = torch.randint(-3 * row - 1, 3 * row + 2, (20,), generator=torch.Generator().manual_seed(row)).float()
    x[0, 0], x[0, 1] = -128.0, 127.0
    return x


@pytest.mark.parametrize("way", ["record", "ETRecord"])
@pytest.mark.parametrize("fraction", [0.0, 1e-5])
def test_numbers_on_the_grid_of_the_whole_tensor_are_no_fault_of_one_for_each_row(
    tmp_path: Path, way: str, fraction: float
) -> None:
    """XNNPACK's rows have grids of their own, on which the numbers don't lie: with half a step of theirs at most."""
    x = whole_numbers() + fraction
    inspection = ran(x, tmp_path)
    if way == "ETRecord":
        inspection = Made("made here", tmp_path).load(way)
    gaps = inspection.gaps
    delegate = gaps[gaps["kind"] == "delegate"].index[0]
    reference, runtime = (item.double().numpy() for item in inspection.tensors(delegate))
    error = np.sqrt(np.mean((reference - runtime) ** 2))
    assert error > 1e-4 * np.sqrt(np.mean(reference**2)), "the grids are the same: nothing is tested"
    assert inspection.first_divergence is None
    assert inspection.analysis.digest.level in ("ok", "warn")
    assert float(gaps["introduced_severity"].max()) < 3
    assert float(gaps["severity"].max()) < 3


def test_a_row_that_is_0_on_the_grid_of_the_whole_tensor_has_values_on_its_own(tmp_path: Path) -> None:
    sizes = torch.tensor([0.1, 0.01, 80.0, 1.0, 0.1])
    x = torch.randn(1, 5, 20, generator=torch.Generator().manual_seed(0)) * sizes[:, None]
    inspection = ran(x, tmp_path, Normed)
    assert inspection.outputs["sqnr_db"].max() < 10, "the small rows are there: nothing is tested"
    assert inspection.first_divergence is None
    assert inspection.analysis.digest.level in ("ok", "warn"), inspection.summary()


def test_a_wrong_weight_is_still_seen(tmp_path: Path) -> None:
    """By a tenth of one channel: far more than any grid makes of these numbers."""
    x = whole_numbers()
    inspection = ran(x, tmp_path)
    gaps = inspection.gaps
    delegate = gaps[gaps["kind"] == "delegate"].index[0]
    reference, _ = inspection.tensors(delegate)
    step = float(gaps["rmse"][delegate]) / float(gaps["severity"][delegate])
    changed = reference.clone()
    changed[:, 3] *= 1.5
    assert float((changed - reference).square().mean().sqrt()) > 3 * step


class Rows(nn.Module):
    """Layers of which each row has a grid of its own, and a portable kernel behind each."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        """Sums along the last axis."""
        for layer in self.layers:
            x = torch.cumsum(layer(x), -1)
        return x


@pytest.mark.parametrize("shape", [(6, 1, 32), (6, 6, 32), (1, 6, 32)])
def test_the_grids_of_rows_in_any_number_of_axes(shape: tuple[int, ...], tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Rows().eval()
    quantize_(model, TORCHAO["8da4w"]())
    found = etviz.debug(model, (torch.randn(shape),), partitioner=[XnnpackPartitioner()], workdir=tmp_path)
    assert not found.gaps["reason"].str.contains("could not be measured").any()
    assert found.outputs["noise"].notna().all()
    assert found.outputs["matches"].all()
