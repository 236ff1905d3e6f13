"""Every metric equals its textbook formula, on every dtype, layout and size, and NaN never becomes 0."""

from __future__ import annotations

import math
import shutil
import struct
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch import Tensor

import etviz
from etviz import native
from etviz.tensors.metrics import METRICS, THRESHOLD, Sums, evaluate, figure
from etviz.tensors.sums import BLOCK, sums_of
from tests.numpy_metrics import assert_metrics, expected_metrics

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.int8, torch.int32, torch.int64, torch.uint8, torch.bool)


def measured(reference: Tensor, runtime: Tensor, scale: float | None = None) -> dict[str, float]:
    sums = sums_of(reference, runtime, scale)
    return evaluate(sums, str(runtime.dtype).removeprefix("torch."), scale)


def check(reference: Tensor, runtime: Tensor, scale: float | None = None) -> dict[str, float]:
    """Compare with the formulas; returns what etviz found."""
    found = measured(reference, runtime, scale)
    assert list(found) == [name for name in found if name in METRICS]
    assert found.keys() == METRICS.keys()
    assert_metrics(found, expected_metrics(reference, runtime, scale))
    return found


def pair(dtype: torch.dtype, *shape: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """A reference and a runtime value a little off."""
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        reference, runtime = (torch.rand(shape, generator=generator) > 0.5 for _ in range(2))
        return reference, runtime
    if not dtype.is_floating_point:
        low, high = (0, 200) if dtype == torch.uint8 else (-100, 100)
        reference, runtime = (torch.randint(low, high, shape, generator=generator).to(dtype) for _ in range(2))
        return reference, runtime
    reference = torch.randn(shape, generator=generator, dtype=torch.float64) * 3
    noise = torch.randn(shape, generator=generator, dtype=torch.float64) * 1e-3
    return reference.to(dtype), (reference + noise).to(dtype)


@pytest.fixture(params=["compiled", "numpy"], autouse=True)
def _either_pass(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything here holds for the compiled pass and for the one that machines without a C compiler have."""
    if request.param == "numpy":
        monkeypatch.setattr("etviz.tensors.sums.pair_sums", lambda *_: None)
    elif not native.available():
        pytest.skip("etviz was installed without a C compiler")


def test_the_compiled_pass_is_there_where_a_compiler_is() -> None:
    assert native.available() == (shutil.which("cc") is not None)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS], ids=str)
def test_formulas(dtype: torch.dtype) -> None:
    check(*pair(dtype, 5, 7, 11))


@pytest.mark.parametrize("seed", range(12))
def test_parts_that_are_equal_near_or_far_in_any_order(seed: int) -> None:
    """With zeros of both signs and changes of sign, also where only one element of a part is far."""
    generator = np.random.default_rng(seed)
    reference = generator.standard_normal(256 * int(generator.integers(1, 60)) + seed).astype(np.float32)
    reference[generator.random(len(reference)) < 0.05] = 0.0
    runtime = reference.copy()
    for start in range(0, len(reference), 256):
        part, kind = runtime[start : start + 256], generator.integers(5)
        if kind in (1, 4):
            part += generator.uniform(-9e-6, 9e-6, len(part)).astype(np.float32)
        if kind == 2:
            part += generator.standard_normal(len(part)).astype(np.float32)
        if kind == 3:
            part[part == 0] = -0.0
        if kind == 4:
            part[generator.integers(len(part))] *= generator.choice([-1.5, 1.5])
    check(torch.from_numpy(reference), torch.from_numpy(runtime))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("reference_dtype", [torch.float64, torch.float32, torch.int32], ids=str)
def test_reference_of_another_dtype(dtype: torch.dtype, reference_dtype: torch.dtype) -> None:
    reference, runtime = pair(dtype, 300)
    check(reference.to(reference_dtype), runtime)


@pytest.mark.parametrize("size", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 2 * BLOCK + 5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int8], ids=str)
def test_sizes_around_a_block(size: int, dtype: torch.dtype) -> None:
    reference, runtime = pair(dtype, size)
    if size > 1:
        runtime[-1] = 1 if dtype == torch.int8 else 97.5
    check(reference, runtime)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64], ids=str)
def test_layouts(dtype: torch.dtype) -> None:
    reference, runtime = pair(dtype, 2, 3, 6, 5)
    plain = check(reference, runtime)
    last = runtime.to(memory_format=torch.channels_last)
    assert check(reference, last) == plain
    assert check(reference.to(memory_format=torch.channels_last), last) == pytest.approx(plain, rel=1e-13, nan_ok=True)
    check(reference[:, :, ::2], runtime[:, :, ::2])
    check(reference.permute(3, 1, 0, 2), runtime.permute(3, 1, 0, 2))
    check(reference[:1, :1, :1].expand(2, 3, 6, 5), runtime)
    check(reference.flip(0)[1, 2, 3, 4], runtime.flip(0)[1, 2, 3, 4])


@pytest.mark.parametrize("shape", [(), (1,), (0,), (3, 0, 2)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int32, torch.bool], ids=str)
def test_scalars_and_empty_tensors(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    check(*pair(dtype, *shape))


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS], ids=str)
def test_identical_tensors(dtype: torch.dtype) -> None:
    reference, _ = pair(dtype, 100)
    found = check(reference, reference.clone())
    assert found["mse"] == found["severity"] == found["rel_l2"] == 0
    assert found["sqnr_db"] == found["psnr_db"] == math.inf
    assert found["cosine"] == found["allclose"] == 1


def test_zeros_against_zeros_and_something() -> None:
    zeros, ones = torch.zeros(4), torch.ones(4)
    assert check(zeros, zeros)["sqnr_db"] == math.inf
    found = check(zeros, ones)
    assert found["sqnr_db"] == -math.inf
    assert found["rel_l2"] == found["severity"] == math.inf
    assert check(ones, zeros)["cosine"] == 0


@pytest.mark.parametrize("scale", [0.05, 1.0, 3.0])
def test_quantization_grid(scale: float) -> None:
    reference = torch.round(torch.randn(500) * 20) * scale
    one_step_off = reference.clone()
    one_step_off[::10] += scale
    assert check(reference, one_step_off, scale)["allclose"] == 1
    two_steps_off = reference.clone()
    two_steps_off[::10] += 2 * scale
    found = check(reference, two_steps_off, scale)
    assert found["severity"] == pytest.approx(2 / math.sqrt(10) * math.sqrt(12), rel=1e-5)


@given(st.floats(0, 200), st.integers(1, 6), st.sampled_from([THRESHOLD, 2.4573, 100.0]))
def test_a_rounded_figure_stays_on_its_side_of_the_limit(value: float, digits: int, limit: float) -> None:
    for number in (value, math.nextafter(limit, 0), math.nextafter(limit, 200), limit * 0.9996, limit * 1.00004):
        shown = float(figure(number, digits, limit))
        assert (shown < limit, shown > limit) == (number < limit, number > limit)
        assert shown == pytest.approx(number, rel=10.0 ** (1 - digits))


def test_ideal_rounding_has_a_severity_of_about_one() -> None:
    values = torch.randn(100_000, dtype=torch.float64)
    for dtype in FLOATS[::2] + FLOATS[3:]:
        assert 0.1 < measured(values, values.to(dtype))["severity"] < 1
    grid = torch.round(values * 100) / 100
    assert measured(values, grid, 0.01)["severity"] == pytest.approx(1, rel=0.02)


def test_different_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\(2, 10\).*\(10,\)"):
        sums_of(torch.zeros(2, 10), torch.zeros(10))


@pytest.mark.parametrize("step", [2, 3])
def test_a_view_of_every_other_element(step: int) -> None:
    """Flattened, it is still a view with gaps."""
    view = torch.arange(48.0 * step).reshape(1, 2, 24, step)[..., :1]
    assert sums_of(view, view.clone()).dd == 0.0
    assert sums_of(view, view + 1).dd == view.numel()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_ulp_counts_the_numbers_between(dtype: torch.dtype) -> None:
    values = torch.tensor([1.0, -1.0, 0.0, 1024.0, -3e-5, 0.1]).to(dtype)
    neighbour, distance = values.clone(), 0
    for step in range(1, 8):
        neighbour = torch.nextafter(neighbour, torch.tensor(math.inf, dtype=dtype))
        distance = check(values, neighbour)["max_ulp"]
        assert distance == step
    assert check(neighbour, values)["max_ulp"] == distance
    assert check(torch.tensor([0.0], dtype=dtype), torch.tensor([-0.0], dtype=dtype))["max_ulp"] == 0
    tiny = torch.nextafter(torch.zeros(1, dtype=dtype), torch.ones(1, dtype=dtype))
    assert check(-tiny, tiny)["max_ulp"] == 2


def test_ulp_agrees_with_numpy_and_with_integer_views() -> None:
    one = np.float32(1)
    assert measured(torch.tensor(one), torch.tensor(np.nextafter(one, np.float32(2))))["max_ulp"] == 1
    random = np.random.default_rng(0)
    a, b = (random.integers(0, 0x7F000000, 1000, np.int32).view(np.float32) for _ in range(2))
    expected = np.abs(a.view(np.int32).astype(np.int64) - b.view(np.int32)).max()
    assert measured(torch.from_numpy(a), torch.from_numpy(b))["max_ulp"] == expected


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integers_have_no_ulp(dtype: torch.dtype) -> None:
    assert math.isnan(check(*pair(dtype, 20))["max_ulp"])


def classes_of(reference: Tensor, runtime: Tensor) -> Any:
    return np.array(sums_of(reference, runtime).classes)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_nan_on_both_sides_is_no_number(dtype: torch.dtype) -> None:
    bad = torch.full((5,), math.nan, dtype=dtype)
    found = check(bad, bad)
    assert found["allclose"] == 1
    assert all(math.isnan(found[name]) for name in METRICS if name != "allclose")
    assert not sums_of(bad, bad).mismatched
    assert classes_of(bad, bad)[3, 3] == 5


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_tensor_of_nothing_finite_never_gives_zero(dtype: torch.dtype, bad: float) -> None:
    fine, broken = torch.ones(6, dtype=dtype), torch.full((6,), bad, dtype=dtype)
    for a, b in ((fine, broken), (broken, fine)):
        found = check(a, b)
        assert found["allclose"] == 0
        assert all(math.isnan(found[name]) for name in METRICS if name != "allclose")
        assert sums_of(a, b).mismatched == 6


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("size", [60, BLOCK + 3])
def test_some_elements_not_finite(dtype: torch.dtype, size: int) -> None:
    reference, runtime = pair(dtype, size)
    reference[:4] = torch.tensor([math.inf, -math.inf, math.nan, 1.0])
    runtime[:4] = torch.tensor([math.inf, math.inf, 2.0, math.nan])
    found = check(reference, runtime)
    assert 0 < found["mse"] < 1
    sums = sums_of(reference, runtime)
    assert sums.mismatched == 3
    classes = np.array(sums.classes)
    assert classes.sum() == size
    assert (classes[0, 0], classes[1, 1], classes[2, 1], classes[3, 0], classes[0, 3]) == (size - 4, 1, 1, 1, 1)
    assert sums.nonfinite() == {"reference_nan": 1, "reference_inf": 2, "runtime_nan": 1, "runtime_inf": 2}


def test_infinity_in_the_last_block_only() -> None:
    reference = torch.randn(BLOCK + 1)
    reference[-1] = math.inf
    assert sums_of(reference, reference.clone()).mismatched == 0
    assert check(reference, torch.cat([reference[:-1], torch.tensor([0.0])]))["mse"] == 0
    assert sums_of(reference, torch.cat([reference[:-1], torch.tensor([0.0])])).mismatched == 1


@pytest.mark.parametrize("power", [-900, -600, 600, 1000])
@pytest.mark.parametrize("error_power", [0, -8, -40])
def test_numbers_whose_squares_are_no_float64(power: int, error_power: int) -> None:
    """A power of two changes no metric that is a ratio, and multiplies those that have a unit."""
    reference, noise = pair(torch.float64, 9, 5)
    runtime = reference + (noise - reference) * 2.0**error_power
    factor = torch.tensor(float(power), dtype=torch.float64).exp2()
    plain, scaled = measured(reference, runtime), measured(reference * factor, runtime * factor)
    assert plain["rmse"] > 0
    for name in ("rel_l2", "sqnr_db", "psnr_db", "cosine", "severity", "max_ulp"):
        assert scaled[name] == pytest.approx(plain[name], rel=1e-11), name
    for name in ("rmse", "mean_abs", "max_abs", "l1"):
        assert math.ldexp(scaled[name], -power) == pytest.approx(plain[name], rel=1e-11), name
    assert scaled["mse"] in (0.0, math.inf)


def test_a_tiny_error_of_ordinary_numbers() -> None:
    reference = torch.zeros(5, dtype=torch.float64)
    reference[0] = 1.0
    runtime = reference.clone()
    runtime[3] = 1e-170
    found = measured(reference, runtime)
    assert found["rmse"] == pytest.approx(1e-170 / math.sqrt(5), rel=1e-12)
    assert found["sqnr_db"] == pytest.approx(3400)
    assert found["severity"] > 0


def test_largest_float32_values() -> None:
    limit = torch.finfo(torch.float32).max
    found = check(torch.tensor([limit, -limit, limit]), torch.tensor([limit, limit, -limit]))
    assert found["max_ulp"] == 2 * struct.unpack("<i", struct.pack("<f", limit))[0]


numbers32 = st.floats(width=32, allow_nan=True, allow_infinity=True)


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(st.data())
def test_any_float32_pair(data: st.DataObject) -> None:
    shape = data.draw(hnp.array_shapes(min_dims=0, max_dims=3, max_side=6))
    arrays = [data.draw(hnp.arrays(np.float32, shape, elements=numbers32)) for _ in range(2)]
    reference, runtime = map(torch.from_numpy, arrays)
    found = check(reference, runtime)
    finite = np.isfinite(arrays[0]) & np.isfinite(arrays[1])
    if not finite.any():
        assert math.isnan(found["mse"])
    if (arrays[0][finite] != arrays[1][finite]).any():
        assert found["max_abs"] > 0
        assert found["max_ulp"] > 0


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(hnp.arrays(np.int64, (2, 9), elements=st.integers(-(2**52), 2**52)))
def test_any_integer_pair(values: Any) -> None:
    check(torch.from_numpy(values[0]), torch.from_numpy(values[1]))


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(hnp.arrays(np.float32, (2, 12), elements=st.floats(-1e6, 1e6, width=32)))
def test_laws(values: Any) -> None:
    a, b = torch.from_numpy(values[0]), torch.from_numpy(values[1])
    found, swapped, doubled = measured(a, b), measured(b, a), measured(2 * a, 2 * b)
    for name in ("mse", "rmse", "mean_abs", "max_abs", "l1", "max_ulp"):
        assert found[name] == swapped[name]
    assert found["mean_abs"] <= found["rmse"] * (1 + 1e-12)
    assert found["rmse"] <= found["max_abs"] * (1 + 1e-12)
    assert doubled["severity"] == found["severity"]
    assert doubled["rmse"] == 2 * found["rmse"]
    assert -1 <= found["cosine"] <= 1
    assert 0 <= found["allclose"] <= 1


def test_every_metric_says_what_it_is() -> None:
    names = ["mse", "rmse", "mean_abs", "max_abs", "l1", "rel_l2", "sqnr_db", "psnr_db", "cosine", "allclose"]
    assert list(etviz.metrics) == [*names, "max_ulp", "severity"]
    better = {name for name, metric in etviz.metrics.items() if metric.higher_is_better}
    assert better == {"sqnr_db", "psnr_db", "cosine", "allclose"}
    for name, metric in etviz.metrics.items():
        assert metric.name == name
        assert metric.formula
        assert metric.description.endswith(".")
        for look, fault in metric.thresholds.values():
            assert look > fault if metric.higher_is_better else look < fault


def test_sums_of_nothing() -> None:
    found = evaluate(Sums(), "float32")
    assert found["mse"] == 0
    assert found["sqnr_db"] == math.inf
