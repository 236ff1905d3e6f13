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

from etviz import native
from etviz.tensors.histogram import BLOCK, histogram, worst_elements


@pytest.fixture(params=["compiled", "numpy"], autouse=True)
def _either_pass(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything here holds for the compiled passes and for those that machines without a C compiler have."""
    if request.param == "numpy":
        monkeypatch.setattr(native, "describe", lambda *_: False)
        monkeypatch.setattr(native, "count", lambda *_: False)
    elif not native.available():
        pytest.skip("etviz was installed without a C compiler")


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


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32, torch.int64, torch.float8_e4m3fn], ids=str)
def test_statistics_of_every_type(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    reference, runtime = ((torch.rand(3, 1500) * 100).to(dtype) for _ in range(2))
    found = histogram(reference, runtime.T.contiguous().T)
    r, q = (tensor.float().double().numpy().ravel() for tensor in (reference, runtime))
    for name, values in (("reference", r), ("runtime", q), ("error", q - r)):
        about = found.statistics[name]
        assert (about.count, about.minimum, about.maximum) == (4500, values.min(), values.max())
        expected = (values.mean(), values.std(), np.sqrt(np.square(values).mean()), np.mean(values == 0))
        np.testing.assert_allclose((about.mean, about.std, about.rms, about.zeros), expected, rtol=1e-12)
    assert found.error is not None
    assert found.error_edges is not None
    np.testing.assert_array_equal(found.error, np.histogram(q - r, found.error_edges)[0])
    np.testing.assert_array_equal(found.runtime, np.histogram(q, found.edges)[0])


def test_what_is_not_finite_is_counted_by_class() -> None:
    kinds = [0.5, math.inf, -math.inf, math.nan]
    reference = torch.tensor(kinds).repeat_interleave(1030 * 4)
    runtime = torch.tensor(kinds).repeat(1030 * 4)
    found = histogram(reference, runtime)
    assert found.nonfinite is not None
    assert found.nonfinite.tolist() == [[1030] * 4] * 4
    assert found.runtime.sum() == 4 * 1030
    assert found.error is not None
    assert found.error.sum() == 1030


@pytest.mark.parametrize("low", [0.0, 1.0, -1e300, 1e16, 3e38])
@pytest.mark.parametrize("width", [1e-310, 1e-15, 1.0, 1e5, 1e305])
def test_counts_at_the_edges_themselves(low: float, width: float) -> None:
    """Where rounding could put a value into the next bin: on the edges, and one step beside them."""
    ends = histogram(None, torch.tensor([low, low + width], dtype=torch.float64), 100).edges
    values = np.concatenate([np.nextafter(ends, -np.inf)[1:], ends, np.nextafter(ends, np.inf)[:-1]])
    found = histogram(None, torch.from_numpy(values), 100)
    np.testing.assert_array_equal(found.runtime, np.histogram(values, found.edges)[0])


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
