"""Where the error is, against plain NumPy float64: by axis, as a map, as a density; for tensors of every kind."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from etviz.errors import UsageError
from etviz.tensors.blocks import BLOCK
from etviz.tensors.channels import channel_error
from etviz.tensors.error_map import error_map
from etviz.tensors.scatter import scatter

SHAPES = [
    (),
    (1,),
    (7,),
    (0,),
    (3, 0, 2),
    (5, 6),
    (2, 3, 4, 5),
    (1, 1, 3),
    (2, BLOCK + 3),
    (3, 2 * BLOCK),
    (BLOCK + 1, 2),
]


def pair(shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(len(shape))
    reference = torch.randn(shape).to(dtype)
    return reference, (reference.double() + 0.1 * torch.randn(shape)).to(dtype)


def doubles(*tensors: torch.Tensor) -> list[np.ndarray]:
    return [tensor.double().numpy() for tensor in tensors]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_error_by_axis(shape: tuple[int, ...]) -> None:
    reference, runtime = pair(shape)
    r, q = (array.reshape(shape or (1,)) for array in doubles(reference, runtime))
    for axis in range(-r.ndim, r.ndim):
        found = channel_error(reference, runtime, axis)
        others = tuple(k for k in range(r.ndim) if k != axis % r.ndim)
        squares = np.square(q - r).sum(others)
        assert found.axis == axis % r.ndim
        assert (found.nonfinite == 0).all()
        if not r.size:
            assert np.isnan(found.rmse).all()
            continue
        np.testing.assert_allclose(found.rmse, np.sqrt(squares / (r.size / len(squares))), rtol=1e-12)
        np.testing.assert_allclose(found.max_abs, np.abs(q - r).max(others), rtol=1e-12)
        np.testing.assert_allclose(found.share, squares / squares.sum(), rtol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.bool], ids=str)
def test_dtypes_and_strides(dtype: torch.dtype) -> None:
    reference, runtime = (t.to(memory_format=torch.channels_last) for t in pair((2, 3, 4, 5), dtype))
    r, q = doubles(reference, runtime)
    total = np.square(q - r).sum()
    np.testing.assert_allclose(
        channel_error(reference, runtime, 1).share, np.square(q - r).sum((0, 2, 3)) / total if total else 0, rtol=1e-12
    )
    at = (1, 2, 0, 0)
    np.testing.assert_array_equal(error_map(reference, runtime, index=at).values, np.abs(q - r)[1, 2])
    turned = error_map(reference, runtime, "reference", axes=(3, 1), index=at)
    np.testing.assert_array_equal(turned.values, r[1, :, 0, :].T)
    swapped = channel_error(reference.transpose(1, 3), runtime.transpose(1, 3), 3)
    np.testing.assert_allclose(swapped.rmse, channel_error(reference, runtime, 1).rmse, rtol=1e-12)


def test_nonfinite_pairs_are_left_out_and_counted() -> None:
    reference, runtime = pair((4, 5))
    runtime[1, 2], reference[1, 3], runtime[3] = math.nan, math.inf, math.inf
    found = channel_error(reference, runtime, 0)
    assert found.nonfinite.tolist() == [0, 2, 0, 5]
    assert found.count.tolist() == [5, 3, 5, 0]
    assert np.isnan([found.rmse[3], found.max_abs[3]]).all()
    r, q = doubles(reference, runtime)
    np.testing.assert_allclose(found.rmse[1], np.sqrt(np.mean(np.square((q - r)[1][[0, 1, 4]]))))
    assert np.nansum(found.share) == pytest.approx(1)
    assert np.isnan(error_map(reference, runtime, size=2).values).sum() >= 2


def test_equal_tensors_have_no_share() -> None:
    found = channel_error(torch.ones(3, 2), torch.ones(3, 2), 0)
    assert found.share.tolist() == found.rmse.tolist() == [0, 0, 0]


@pytest.mark.parametrize("spot", [(0, 0), (517, 3), (999, 700), (998, 1)])
def test_one_bad_element_stays_visible(spot: tuple[int, int]) -> None:
    reference, runtime = pair((2, 1000, 701))
    runtime[(1, *spot)] += 50
    found = error_map(reference, runtime, size=64)
    assert found.index == (1, *spot)
    cell = spot[0] // found.block[0], spot[1] // found.block[1]
    assert np.unravel_index(found.values.argmax(), found.values.shape) == cell
    r, q = doubles(reference, runtime)
    assert found.values.max() == np.abs(q - r).max() == found.high
    height, width = found.block
    part = np.abs(q - r)[1, height : 2 * height, width : 2 * width]
    assert found.values[1, 1] == part.max()
    signed = error_map(reference, runtime, "runtime", size=64).values[1, 1]
    values = q[1, height : 2 * height, width : 2 * width].ravel()
    assert signed == values[np.abs(values).argmax()]


def test_maps_of_few_axes() -> None:
    zero, one, none = (error_map(*pair(shape)) for shape in ((), (9,), (3, 0)))
    assert (zero.axes, zero.index, zero.values.shape) == ((), (), (1, 1))
    assert (one.axes, one.values.shape, one.block) == ((0,), (1, 9), (1, 1))
    assert none.values.shape == (0, 0)
    assert math.isnan(none.high)
    assert error_map(*pair((4, 3, 1, 1))).axes == (0, 1)
    assert error_map(*pair((1, 1, 5))).axes == (1, 2)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"axes": (0, 3)}, "axes"),
        ({"axes": (1, 1)}, "axes"),
        ({"axes": (0,)}, "axes"),
        ({"axes": "01"}, "axes"),
        ({"axes": (0, 1.5)}, "axes"),
        ({"index": (0, 0)}, "index"),
        ({"index": (9, 0, 0)}, "index"),
        ({"index": 4}, "index"),
        ({"of": "noise"}, "of"),
        ({"size": 0}, "size"),
        ({"size": True}, "size"),
    ],
)
def test_arguments_that_make_no_sense(arguments: dict[str, object], match: str) -> None:
    with pytest.raises(UsageError, match=match):
        error_map(*pair((2, 3, 4)), **arguments)  # pyright: ignore[reportArgumentType]


def test_pairs_that_can_not_be_compared() -> None:
    with pytest.raises(UsageError, match="shapes differ"):
        scatter(torch.zeros(3), torch.zeros(1, 3))
    with pytest.raises(UsageError, match="complex"):
        channel_error(torch.zeros(3, dtype=torch.complex64), torch.zeros(3), 0)
    for axis in (2, -3, 0.5, None):
        with pytest.raises(UsageError, match="axis"):
            channel_error(*pair((5, 6)), axis)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("bins", [1, 7, 64, 1024])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_density_is_that_of_numpy(bins: int, dtype: torch.dtype) -> None:
    reference, runtime = pair((300, 121), dtype)
    reference[0, 0] = math.nan
    found = scatter(reference, runtime, bins)
    r, q = (array.ravel()[1:] for array in doubles(reference, runtime))
    expected, _, _ = np.histogram2d(q, r, [found.edges, found.edges])
    np.testing.assert_array_equal(found.counts, expected)
    assert found.elements == len(r) == found.counts.sum()


@pytest.mark.parametrize(
    "values", [[], [1.0], [0.0, 0.0], [math.nan], [1e308, -1e308], [5e-324, 0.0], [math.inf, 3.0]], ids=str
)
def test_density_of_odd_tensors(values: list[float]) -> None:
    tensor = torch.tensor(values, dtype=torch.float64)
    found = scatter(tensor, tensor.clone())
    assert found.counts.sum() == found.elements == int(torch.isfinite(tensor).sum())
    assert found.counts.trace() == found.elements
    for bins in (0, 1025, 2.5):
        with pytest.raises(UsageError, match="bins"):
            scatter(tensor, tensor, bins)  # pyright: ignore[reportArgumentType]


def test_what_is_not_finite_is_named_in_its_cell() -> None:
    reference = torch.zeros(4, 6)
    runtime = torch.zeros(4, 6)
    runtime[0, 1], runtime[1, 4], runtime[3, 3], reference[2, 0] = math.nan, math.inf, -math.inf, math.nan
    found = error_map(reference, runtime)
    assert {(int(y), int(x)): int(found.kinds[y, x]) for y, x in np.argwhere(found.kinds)} == {
        (0, 1): 3,
        (1, 4): 1,
        (3, 3): 2,
        (2, 0): 3,
    }
    assert error_map(reference, runtime, of="reference").kinds.sum() == 3
    small = error_map(reference, runtime, size=2)
    assert small.kinds.tolist() == [[3, 1], [3, 2]]
    assert not error_map(reference, reference.nan_to_num()).kinds[0].any()
