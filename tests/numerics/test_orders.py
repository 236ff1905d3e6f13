"""Portable kernels add one element after another, which loses more than eager kernels do: they are no culprits."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from torch import Tensor, nn

import etviz
from etviz.comparison.final_outputs import compare_outputs
from etviz.evaluation.noise import Lanes
from etviz.pipeline.execute import execute
from etviz.tensors.metrics import MEASURED, Noise


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def added(rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The sum over the last axis, one element after another, in the type of the elements."""
    total = np.zeros(rows.shape[:-1], rows.dtype)
    for k in range(rows.shape[-1]):
        total = total + rows[..., k]
    return total


class Summing(nn.Module):
    """Group and instance norms, means and products over many elements, whose mean is not 0."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        rows = x.flatten(2)
        return (
            nn.functional.group_norm(x, 2),
            nn.functional.instance_norm(x),
            (x * x).mean((2, 3)),
            x.var((1, 2, 3)),
            rows @ rows.transpose(1, 2),
        )


def test_portable_kernels_that_add_one_after_the_other_are_no_culprits() -> None:
    x = normal(1, 4, 160, 160) + 2.0
    found = etviz.debug(Summing(), (x,))
    assert (found.gaps["introduced_rmse"] > 30 * 2.0**-24).sum() >= 3
    assert found.analysis.digest.level in ("ok", "warn")
    assert found.first_divergence is None
    group = found.gaps[found.gaps["op"] == "aten::native_group_norm.out"]
    rows = x.numpy().reshape(2, -1)
    mean, square = (
        np.add.accumulate(item, axis=1)[:, -1].astype(np.float64) / rows.shape[1] for item in (rows, rows**2)
    )
    scale = 1 / np.sqrt(square - mean * mean + 1e-5)
    expected = [((rows - mean[:, None]) * scale[:, None]).reshape(x.shape), mean[None], scale[None]]
    for row, value in zip(group.index, expected, strict=True):
        np.testing.assert_array_equal(found.tensors(row)[1].numpy(), value.astype(np.float32))


class Centred(nn.Module):
    """What is left of equal numbers without their mean: nothing, but for the rounding of a kernel."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mean = x.mean((2, 3), keepdim=True)
        return mean, x - mean


@pytest.mark.parametrize("side", [16, 60])
@pytest.mark.parametrize("value", [0.37, 0.1])
def test_equal_numbers_are_summed_up_with_roundings_that_do_not_cancel_out(side: int, value: float) -> None:
    """One rounding each, all of one sign while the sum is within one power of 2."""
    x = torch.full((1, 3, side, side), value)
    found = etviz.debug(Centred(), (x,))
    total = added(x.numpy().reshape(3, -1)) / np.float32(side * side)
    np.testing.assert_array_equal(found.tensors(0)[1].numpy().ravel(), total)
    assert found.first_divergence is None
    assert found.analysis.digest.level in ("ok", "warn")
    assert (found.outputs["rmse"] > 0).all()


class Blank(nn.Module):
    """What is made of equal numbers by operators that add them up."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        functional = nn.functional
        return (
            functional.avg_pool2d(x, 16),
            functional.avg_pool2d(x, (9, 20), stride=3, padding=2, count_include_pad=False),
            torch.cumsum(x.flatten(2), -1),
            functional.instance_norm(x),
            functional.layer_norm(x, (64,)),
        )


@pytest.mark.parametrize("partitioner", [None, [XnnpackPartitioner()]])
def test_a_blank_image_gives_no_culprit(partitioner: list[XnnpackPartitioner] | None) -> None:
    found = etviz.debug(Blank(), (torch.full((1, 3, 64, 64), 0.1),), partitioner=partitioner)
    assert (found.outputs["max_ulp"] > 20).sum() >= 2
    assert found.first_divergence is None
    assert found.analysis.digest.level in ("ok", "warn")
    assert found.outputs["matches"].all()


def test_noise_over_a_value_that_is_zero_is_no_number() -> None:
    (row,) = compare_outputs([torch.zeros(4)], [torch.full((4,), 1e-8)], [None], [Noise(1e-8, MEASURED)])
    assert math.isnan(row["amplification"])


def test_a_small_layer_norm_is_not_named_in_many_executions(tmp_path: Path) -> None:
    """Rows of 16 elements share the errors of their mean and deviation; their means are below one deviation here."""
    torch.manual_seed(0)
    features = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    model = nn.Sequential(features, nn.LayerNorm(16)).eval()
    inputs = [(normal(1, 3, 12, 12, seed=seed) * 10.0 ** (seed % 2 - 2),) for seed in range(60)]
    etviz.debug(model, inputs[0], workdir=tmp_path)
    run = execute(tmp_path / "model.pte", [list(values) for values in inputs], workdir=tmp_path)
    found = etviz.load(
        run.etdump,
        etrecord=tmp_path / "etrecord.bin",
        pte=tmp_path / "model.pte",
        debug_buffer=run.debug_buffer,
        inputs=inputs,
    )
    rows = found.gaps[found.gaps["op"] == "aten::native_layer_norm.out"]
    assert len(rows) >= 60
    assert found.first_divergence is None
    assert rows[rows["output"] == 0]["introduced_severity"].max() < 3


def test_noise_on_equal_inputs_is_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many executions are off: a program without state gives them one reference."""
    torch.manual_seed(0)
    inputs, evaluated = (normal(2, 4),), list[int]()
    etviz.debug(nn.Sequential(nn.Linear(4, 4), nn.Softmax(-1)).eval(), inputs, workdir=tmp_path)
    run = Lanes.run_together
    monkeypatch.setattr(Lanes, "run_together", lambda *given, **how: evaluated.append(1) or run(*given, **how))

    def look(count: int) -> pd.DataFrame:
        evaluated.clear()
        log = execute(tmp_path / "model.pte", [list(inputs)] * count, workdir=tmp_path)
        files = {"etrecord": tmp_path / "etrecord.bin", "pte": tmp_path / "model.pte", "debug_buffer": log.debug_buffer}
        return etviz.load(log.etdump, **files, inputs=(inputs[0] * 1.3 + 0.2,)).gaps

    once, few = look(1), len(evaluated)
    assert few > 0
    many = look(5)
    assert len(evaluated) == few
    assert many["severity"].tolist() == once["severity"].tolist() * 5
