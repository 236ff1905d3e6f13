"""Sums as portable kernels add them, against loops; and that such kernels are no culprits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from torch import Tensor, nn

import etviz
from etviz.comparison.outputs import compare_outputs
from etviz.evaluation.orders import MANY, in_two_passes, normalized, one_after_another


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def added(rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The sum over the last axis, one element after another, in the type of the elements."""
    total = np.zeros(rows.shape[:-1], rows.dtype)
    for k in range(rows.shape[-1]):
        total = total + rows[..., k]
    return total


def as_it_is(total: Tensor, size: Tensor, terms: int) -> Tensor:
    return total


@pytest.mark.parametrize(("axes", "keep"), [([1], False), ([0, 2], True), ([-1], True), (None, False)])
def test_sums_one_after_another(axes: list[int] | None, keep: bool) -> None:
    """Bit for bit as a loop adds, and of the shape that the operators give."""
    x = normal(3, 5, 7) + 0.5
    found = one_after_another("aten.sum.dim_IntList", [x, axes, keep], {})
    assert found is not None
    order = range(3) if axes is None else sorted(axis % 3 for axis in axes)
    rows = np.moveaxis(x.numpy(), list(order), range(-len(order), 0))
    np.testing.assert_array_equal(found.flatten(), added(rows.reshape(*rows.shape[: 3 - len(order)], -1)).flatten())
    wide = x.double()
    for name, target in (("sum", "aten.sum.dim_IntList"), ("mean", "aten.mean.dim")):
        result = one_after_another(target, [x, axes], {"keepdim": keep})
        expected = getattr(wide, name)(axes, keep) if axes else getattr(wide, name)()
        assert result is not None
        torch.testing.assert_close(result.double(), expected, rtol=1e-5, atol=1e-5)
    for correction in (None, 0, 1):
        result = one_after_another("aten.var.correction", [x, axes], {"correction": correction, "keepdim": keep})
        expected = wide.var(axes, correction=1 if correction is None else correction, keepdim=keep)
        assert result is not None
        torch.testing.assert_close(result.double(), expected, rtol=1e-5, atol=1e-5)


def test_what_is_no_such_sum() -> None:
    x = normal(3, 5)
    assert one_after_another("aten.sum.default", [x.double()], {}) is None
    assert one_after_another("aten.sum.default", [x], {"dtype": torch.float64}) is None
    assert one_after_another("aten.var.default", [x, True], {}) is None
    assert normalized("aten.native_group_norm.default", [x.half(), None, None, 3, 5, 1, 1, 1e-5], {}, as_it_is) is None


@pytest.mark.parametrize("affine", [False, True])
def test_norms_are_those_of_the_operators(affine: bool) -> None:
    x, weight, bias = normal(2, 6, 5, 4) + 1.0, normal(6, seed=1), normal(6, seed=2)
    given = (weight, bias) if affine else (None, None)
    group = [x, *given, 2, 6, 20, 3, 1e-3]
    batch = [x, *given, True, 0.1, 1e-3]
    for target, args in (("native_group_norm.default", group), ("_native_batch_norm_legit.no_stats", batch)):
        name, overload = target.split(".")
        found = normalized(f"aten.{target}", args, {}, as_it_is)
        wide = [item.double() if isinstance(item, Tensor) else item for item in args]
        expected = getattr(getattr(torch.ops.aten, name), overload)(*wide)
        assert found is not None
        for a, b in zip(found, expected, strict=True):
            torch.testing.assert_close(a.double(), b, rtol=1e-4, atol=1e-4)


def test_the_variance_is_the_difference_of_two_sums() -> None:
    """As in a loop over more elements than are added in one go."""
    x = normal(1, 1, 2 * MANY + 3) + 8.0
    found = normalized("aten.native_group_norm.default", [x, None, None, 1, 1, x.numel(), 1, 0.0], {}, as_it_is)
    assert found is not None
    row = x.numpy().reshape(1, -1)
    mean = added(row) / np.float32(row.size)
    variance = added(row * row) / np.float32(row.size) - mean * mean
    np.testing.assert_allclose(found[2].numpy().ravel(), 1 / np.sqrt(variance), rtol=1e-6)
    exact = 1 / row.astype(np.float64).std()
    assert abs(found[2].item() - exact) > 1e-5 * exact


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


def test_layer_norms_in_two_passes_one_after_another() -> None:
    x, weight, bias = normal(4, 3, 10) + 2.0, normal(3, 10, seed=1), normal(3, 10, seed=2)
    found = in_two_passes([x, [3, 10], weight, bias, 1e-3])
    assert found is not None
    rows = x.numpy().reshape(4, 30)
    mean = added(rows) / np.float32(30)
    centred = rows - mean[:, None]
    scale = 1 / np.sqrt(added(centred * centred) / np.float32(30) + np.float32(1e-3))
    values = (centred * scale[:, None]).reshape(4, 3, 10) * weight.numpy() + bias.numpy()
    for got, expected in zip(found, (values, mean.reshape(4, 1, 1), scale.reshape(4, 1, 1)), strict=True):
        np.testing.assert_allclose(got.numpy(), expected, rtol=1e-6, atol=1e-6)
    exact = torch.ops.aten.native_layer_norm.default(x.double(), [3, 10], weight.double(), bias.double(), 1e-3)
    for got, wide in zip(found, exact, strict=True):
        assert got.shape == wide.shape
        torch.testing.assert_close(got.double(), wide, rtol=1e-5, atol=1e-5)
    assert in_two_passes([x.half(), [3, 10], None, None, 1e-3]) is None


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_running_sums_one_after_another(dim: int) -> None:
    x = normal(3, 40, 7)
    found = one_after_another("aten.cumsum.default", [x, dim], {})
    assert found is not None
    rows = np.moveaxis(x.numpy(), dim, -1)
    expected = np.stack([added(rows[..., : end + 1]) for end in range(rows.shape[-1])], axis=-1)
    np.testing.assert_array_equal(found.numpy(), np.moveaxis(expected, -1, dim))


@pytest.mark.parametrize("options", [{}, {"padding": [1, 2], "stride": [2, 3]}, {"divisor_override": 7}])
def test_averages_of_windows_one_after_another(options: dict[str, Any]) -> None:
    x = normal(2, 3, 12, 14) + 1.0
    args = [x, [5, 6]]
    found = one_after_another("aten.avg_pool2d.default", args, options)
    exact = torch.ops.aten.avg_pool2d.default(x.double(), [5, 6], **options)
    assert found is not None
    error = (found - exact).square().mean().sqrt() / exact.square().mean().sqrt()
    assert 2.0**-25 < error < 30 * 2.0**-24
    plain = nn.functional.avg_pool2d(x[:1, :1, :5, :6], (5, 6))
    first = one_after_another("aten.avg_pool2d.default", [x[:1, :1, :5, :6], [5, 6]], {})
    total = added(x.numpy()[0, 0, :5, :6].reshape(1, -1)) / np.float32(30)
    assert first is not None
    torch.testing.assert_close(first.ravel(), torch.from_numpy(total), rtol=2.0**-23, atol=0)
    torch.testing.assert_close(first, plain, rtol=1e-5, atol=0)


def test_noise_over_a_value_that_is_zero_is_no_number() -> None:
    (row,) = compare_outputs([torch.zeros(4)], [torch.full((4,), 1e-8)], [None], [1e-8])
    assert math.isnan(row["amplification"])
