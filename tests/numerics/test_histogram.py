"""Histograms on shared bins, their statistics and the worst elements, for tensors of every kind."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from etviz.tensors.histogram import BLOCK, histogram, worst_elements


@pytest.mark.parametrize("bins", [1, 7, 64, 4096])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_counts_are_those_of_numpy(bins: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    reference = torch.randn(40, 50).to(dtype)
    runtime = (reference.double() + torch.randn(40, 50) * 0.1).to(dtype)
    found = histogram(reference, runtime, bins)
    r, q = (tensor.double().numpy().ravel() for tensor in (reference, runtime))
    edges = np.linspace(min(r.min(), q.min()), max(r.max(), q.max()), bins + 1)
    np.testing.assert_array_equal(found.edges, edges)
    assert found.reference is not None
    assert found.error is not None
    np.testing.assert_array_equal(found.reference, np.histogram(r, edges)[0])
    np.testing.assert_array_equal(found.runtime, np.histogram(q, edges)[0])
    assert found.error.sum() == reference.numel()
    assert found.error_edges is not None
    assert (found.error_edges[0], found.error_edges[-1]) == ((q - r).min(), (q - r).max())


@pytest.mark.parametrize("size", [BLOCK - 1, BLOCK, BLOCK + 1])
def test_around_a_block(size: int) -> None:
    runtime = torch.arange(size, dtype=torch.float32)
    found = histogram(runtime.flip(0), runtime, 10)
    assert found.runtime.sum() == size
    assert found.statistics["runtime"].mean == pytest.approx((size - 1) / 2)
    assert found.statistics["error"].mean == pytest.approx(0, abs=1e-9)


def test_integers_get_bins_of_whole_numbers() -> None:
    values = torch.tensor([-2, 0, 0, 3], dtype=torch.int8)
    found = histogram(values, values)
    assert found.edges.tolist() == [-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 3.5]
    assert found.runtime.tolist() == [1, 0, 2, 0, 0, 1]
    flags = torch.tensor([True, False, True])
    assert histogram(flags, ~flags).runtime.tolist() == [2, 1]


def test_bins_that_are_out_of_range() -> None:
    for bins in (0, -3, 4097):
        with pytest.raises(ValueError, match="bins"):
            histogram(None, torch.zeros(3), bins)
    with pytest.raises(ValueError, match="shapes differ"):
        histogram(torch.zeros(3), torch.zeros(1, 3))


@pytest.mark.parametrize(
    "values",
    [[], [0.0], [1.0, 1.0], [math.nan], [math.inf, -math.inf], [math.nan, 2.0], [1e308, -1e308], [5e-324, 0.0]],
    ids=str,
)
def test_odd_tensors(values: list[float]) -> None:
    runtime = torch.tensor(values, dtype=torch.float64)
    found = histogram(runtime, runtime.clone())
    finite = int(torch.isfinite(runtime).sum())
    assert found.runtime.sum() == finite
    assert (np.diff(found.edges) > 0).all()
    assert np.isfinite(found.edges).all()
    assert found.statistics["runtime"].count == finite
    assert not worst_elements(runtime, runtime.clone())


def test_without_a_reference() -> None:
    found = histogram(None, torch.randn(100))
    assert found.reference is None
    assert found.error is None
    assert found.runtime.sum() == 100


def test_worst_elements_have_their_index_in_the_shape() -> None:
    reference = torch.zeros(3, 4, 5)
    runtime = reference.clone()
    runtime[2, 1, 3], runtime[0, 3, 4], runtime[1, 0, 0] = -7, 2, math.nan
    found = worst_elements(reference, runtime.permute(0, 1, 2))
    assert [item["index"] for item in found] == [(1, 0, 0), (2, 1, 3), (0, 3, 4)]
    swapped = worst_elements(reference.transpose(0, 2), runtime.transpose(0, 2))
    assert [item["index"] for item in swapped] == [(0, 0, 1), (3, 1, 2), (4, 3, 0)]
    assert len(worst_elements(torch.zeros(100), torch.ones(100))) == 10


@settings(max_examples=80, deadline=None, derandomize=True, database=None)
@given(
    hnp.arrays(np.float32, hnp.array_shapes(max_dims=2, max_side=20), elements=st.floats(width=32)), st.integers(1, 80)
)
def test_no_element_is_lost(values: Any, bins: int) -> None:
    runtime = torch.from_numpy(values)
    found = histogram(runtime.flip(0), runtime, bins)
    assert found.runtime.sum() == np.isfinite(values).sum()
    assert found.nonfinite is not None
    assert found.nonfinite.sum() == values.size
    assert found.nonfinite[0].sum() == np.isfinite(values).sum()
