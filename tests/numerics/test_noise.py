"""The law of noise against sums in other orders, formulas of propagation and real kernels that know nothing of it."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from etviz.evaluation import law as law_module
from etviz.evaluation.evaluator import Again, Evaluator
from etviz.evaluation.law import allowance, by_law, chance, in_order, independent, noise_of, sizes
from etviz.evaluation.limits import Limits
from etviz.evaluation.noise import (
    DELTA,
    PASSES,
    Computed,
    Growth,
    Lanes,
    Rounding,
    Samples,
    Spread,
    Ties,
    batches,
    propagated,
    total_noise,
)
from etviz.evaluation.operator_rules import resolve
from etviz.evaluation.unpacked import largest_value
from etviz.evaluation.values import Value, flat_values
from etviz.graph.ir import Graph, Input, Meta, Node, Ref, Tag
from etviz.graph.quantize_ops import unpacked_weights
from etviz.tensors.metrics import FALSE_ALARMS, MEASURED, THRESHOLD, Noise

HALF_ULP = {torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}


def noises(target: str, *args: Any, **kwargs: Any) -> list[Noise]:
    """The noise of each result of one operator, by law."""
    evaluator, node = Evaluator(Graph("forward"), {}), Node("node", target, args, kwargs)
    value = evaluator.operator(evaluator.graph, node, args, kwargs)
    return noise_of(evaluator.limits.call, node, args, kwargs, value)


def law(target: str, *args: Any, **kwargs: Any) -> float:
    """The noise of the first result."""
    return noises(target, *args, **kwargs)[0]


def normal(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def rms(value: Any) -> float:
    return math.sqrt(float((torch.as_tensor(value).double() ** 2).mean()))


def summed(products: np.ndarray[Any, Any], order: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The sum over the last axis, one after another in float32."""
    total = np.zeros(products.shape[:-1], np.float32)
    for k in order:
        total = total + products[..., k]
    return total


def orders(products: np.ndarray[Any, Any]) -> float:
    """RMS error of sums one after another, in ten orders."""
    exact = products.astype(np.float64).sum(-1)
    random = np.random.default_rng(0)
    errors = [summed(products, random.permutation(products.shape[-1])) - exact for _ in range(10)]
    return rms(np.stack(errors))


def factor(a: float, b: float) -> float:
    """By how much the larger of two is larger."""
    return max(a / b, b / a)


@pytest.mark.parametrize("terms", [16, 128, 1024])
def test_product_of_matrices_as_summed_one_after_another(terms: int) -> None:
    a, b = normal(40, terms), normal(terms, 60, seed=1)
    products = (a[:, None, :] * b.T[None, :, :]).numpy()
    assert factor(law("aten.mm.default", a, b), orders(products)) < 2


@pytest.mark.parametrize("terms", [64, 1024])
def test_sums_and_means_as_summed_one_after_another(terms: int) -> None:
    x = normal(2000, terms)
    expected = orders(x.numpy())
    assert factor(law("aten.sum.dim_IntList", x, [1]), expected) < 2
    assert factor(law("aten.mean.dim", x, [1]), expected / terms) < 2


@pytest.mark.parametrize("terms", [64, 1024, 8192])
def test_sums_of_one_sign_as_summed_one_after_another(terms: int) -> None:
    """Partial sums are of the result's size then: an RMS norm's mean of squares, a mean behind a relu."""
    x = normal(500, terms).abs()
    expected = orders(x.numpy())
    assert factor(law("aten.sum.dim_IntList", x, [1]), expected) < 2
    assert factor(law("aten.mean.dim", x, [1]), expected / terms) < 2


@pytest.mark.parametrize("target", ["sum.dim_IntList", "mean.dim", "cumsum.default", "var.correction"])
def test_very_long_sums_round_each_term_to_the_spacing_at_their_partial_sum(target: str) -> None:
    """Small terms vanish in a large sum, so the errors have one sign and no walk explains them."""
    x = normal(2, 1 << 20).abs() if "var" in target else normal(2, 1 << 20).square()
    terms = (x - x.mean(-1, keepdim=True)).square() if "var" in target else x
    exact, partial = terms.double().cumsum(-1).numpy(), np.cumsum(terms.numpy(), -1, dtype=np.float32)
    size = math.sqrt((x.shape[1] + 1) / 9) * HALF_ULP[torch.float32] * rms(exact[:, -1])
    error = rms((partial - exact)[:, -1]) if target != "cumsum.default" else rms(partial - exact)
    assert rms((partial - exact)[:, -1]) > 8 * size
    divisor = 1 if "sum" in target else x.shape[1]
    args = {"cumsum.default": [-1]}.get(target, [[1]])
    options = {"correction": 0} if "var" in target else {}
    assert factor(law(f"aten.{target}", x, *args, **options), error / divisor) < 2


def test_long_products_of_one_sign_as_summed_one_after_another() -> None:
    a, b = normal(20, 8192).abs(), normal(8192, 10, seed=1).abs()
    products = (a[:, None, :] * b.t()[None]).numpy()
    assert factor(law("aten.mm.default", a, b), orders(products)) < 2


@pytest.mark.parametrize("target", ["mm.default", "bmm.default", "linear.default"])
@pytest.mark.parametrize("scattered", [False, True])
def test_very_long_products_round_each_term_to_the_spacing_at_their_partial_sum(target: str, scattered: bool) -> None:
    """One rounding is repeated by equal products, and small ones vanish."""
    terms = 1 << 18
    a, b = (normal(2, terms, seed=seed).square() if scattered else torch.full((2, terms), 0.1) for seed in (0, 1))
    products = a[:, None, :] * b[None]
    error = (np.cumsum(products.numpy(), -1, dtype=np.float32) - products.double().cumsum(-1).numpy())[..., -1]
    size = math.sqrt((terms + 1) / 9) * HALF_ULP[torch.float32] * rms(products.double().sum(-1).numpy())
    assert rms(error) > 4 * size
    given = (
        (a, b, None) if "linear" in target else (a.unsqueeze(0), b.t().unsqueeze(0)) if "b" in target else (a, b.t())
    )
    assert factor(law(f"aten.{target}", *given), rms(error)) < 2


@pytest.mark.parametrize("bias", [0.0, 0.3, 2.0, 10.1])
def test_a_product_of_one_term_and_a_bias_as_rounded_twice(bias: float) -> None:
    x, weight = normal(500, 1), normal(40, 1, seed=1)
    added = bias * normal(40, seed=2) if bias < 10 else torch.full((40,), bias)
    product = x.numpy() * weight.numpy().T
    exact = x.double() * weight.double().mT + added.double()
    noise = law("aten.linear.default", x, weight, added if bias else None)
    assert factor(noise, rms((product + added.numpy()).astype(np.float64) - exact.numpy())) < 2


@pytest.mark.parametrize("terms", [2, 8, 64])
def test_a_large_bias_as_the_number_that_a_kernel_begins_with(terms: int) -> None:
    x, weight, bias = normal(300, terms), normal(40, terms, seed=1) / math.sqrt(terms), torch.full((40,), 10.1)
    partial = np.broadcast_to(bias.numpy(), (300, 40))
    for product in (x.numpy()[:, None] * weight.numpy()).transpose(2, 0, 1):
        partial = partial + product
    exact = x.double() @ weight.double().mT + bias.double()
    assert factor(law("aten.linear.default", x, weight, bias), rms(partial.astype(np.float64) - exact.numpy())) < 1.6


def test_convolution_as_summed_one_after_another() -> None:
    x, weight = normal(1, 8, 12, 12), normal(16, 8, 3, 3, seed=1)
    patches = torch.nn.functional.unfold(x, 3)[0].T
    products = (patches[:, None, :] * weight.flatten(1)[None]).numpy()
    found = law("aten.convolution.default", x, weight, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    assert factor(found, orders(products)) < 2


_IMAGES: Any = (None, [1, 1], [0, 0], [1, 1])
PRODUCTS: dict[str, tuple[str, tuple[int, ...], tuple[int, ...], tuple[Any, ...]]] = {
    "mm": ("aten.mm.default", (8, 40), (40, 6), ()),
    "linear": ("aten.linear.default", (8, 40), (6, 40), (None,)),
    "convolution": ("aten.convolution.default", (1, 4, 6, 6), (6, 4, 3, 3), (*_IMAGES, False, [0, 0], 1)),
    "transposed": ("aten.convolution.default", (1, 4, 6, 6), (4, 6, 3, 3), (*_IMAGES, True, [0, 0], 1)),
}


@pytest.mark.parametrize("exponent", [-90, -30, -26, 26, 30, 70])
@pytest.mark.parametrize("product", PRODUCTS)
def test_the_noise_of_a_product_grows_with_its_factors(product: str, exponent: int) -> None:
    """Also where float32 can't hold their squares."""
    target, left, right, rest = PRODUCTS[product]
    a, b = normal(*left), normal(*right, seed=1)
    plain = law(target, a, b, *rest)
    assert law(target, a * 2.0**exponent, b, *rest) == pytest.approx(plain * 2.0**exponent, rel=1e-3)
    assert law(target, a, b * 2.0**exponent, *rest) == pytest.approx(plain * 2.0**exponent, rel=1e-3)


@pytest.mark.parametrize("size", [1e-4, 1e-5, 1e-6])
def test_products_below_the_smallest_normal_number_stay_within_the_law(size: float) -> None:
    a, b = normal(100, 64, dtype=torch.float16), (normal(64, 100, seed=1) * size).half()
    steps = a.double()[:, :, None] * b.double()[None]
    total = torch.zeros(100, 100, dtype=torch.float16)
    for at in range(64):  # each product is rounded, and each partial sum
        total = (total.double() + steps[:, at].half().double()).half()
    error = rms(total.double() - steps.sum(1))
    assert error < THRESHOLD * law("aten.mm.default", a, b)
    assert error > law("aten.mm.default", a, b) / THRESHOLD


@pytest.mark.parametrize("size", [1e-18, 1e-19, 1e-20])
def test_terms_below_the_smallest_normal_number_may_become_zero(size: float) -> None:
    a, b = normal(100, 64) * size, normal(64, 100, seed=1) * size
    terms = a.double()[:, :, None] * b.double()[None]
    kept = torch.where(terms.abs() < torch.finfo(torch.float32).smallest_normal, 0.0, terms)
    assert 0 < rms((kept - terms).sum(1)) < THRESHOLD * law("aten.mm.default", a, b)


def test_a_result_of_terms_that_became_zero_stays_within_the_law() -> None:
    """Of a factor, for example, that was folded into the weights of the product before it."""
    product, factor = normal(5000) * 1e-34, torch.tensor(1e-2)
    assert law("aten.mul.Tensor", product, factor) >= torch.finfo(torch.float32).smallest_normal


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_numbers_below_the_smallest_normal_one_may_become_zero(dtype: torch.dtype) -> None:
    x, y = normal(2000, dtype=dtype) * 1e-39, normal(2000, dtype=dtype, seed=1)
    assert 0 < rms(x * y) <= law("aten.mul.Tensor", x, y)


@pytest.mark.parametrize("dtype", HALF_ULP)
@pytest.mark.parametrize(("target", "function"), [("mul", None), ("tanh", torch.tanh)])
def test_one_rounding_is_half_a_unit(target: str, function: Any, dtype: torch.dtype) -> None:
    x, y = normal(5000, dtype=dtype), normal(5000, dtype=dtype, seed=1)
    value = x * y if function is None else function(x)
    found = law("aten.mul.Tensor", x, y) if function is None else law(f"aten.{target}.default", x)
    # Between an error that is uniform in half a unit, and that with the perturbed result rounded once more.
    assert rms(value) * HALF_ULP[dtype] / math.sqrt(3) <= found <= 2 * rms(value) * HALF_ULP[dtype]


@pytest.mark.parametrize("power", [1.0, 2.0, 3.0])
def test_distances_as_their_terms_are_summed_one_after_another(power: float) -> None:
    a, b = normal(8, 8192), normal(6, 8192, seed=1)
    terms = ((a[:, None] - b[None]).abs() ** power).numpy()
    values = np.cumsum(terms, -1, dtype=np.float32)[..., -1].astype(np.float64) ** (1 / power)
    exact = torch.cdist(a.double(), b.double(), p=power).numpy()
    assert factor(law("aten._cdist_forward.default", a, b, power, None), rms(values - exact)) < 2


def test_a_fourier_transform_as_computed_in_steps_of_two() -> None:
    x = normal(20, 1024).numpy()

    def transformed(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        count = values.shape[-1]
        if count == 1:
            return values.astype(np.complex64)
        even, odd = transformed(values[..., ::2]), transformed(values[..., 1::2])
        odd = odd * np.exp(-2j * np.pi * np.arange(count // 2) / count).astype(np.complex64)
        return np.concatenate([even + odd, even - odd], -1)

    error = np.abs(transformed(x)[..., :513] - np.fft.rfft(x.astype(np.float64)))
    assert error.dtype == np.float64
    assert factor(law("aten._fft_r2c.default", torch.from_numpy(x), [1], 0, True), rms(error)) < 2


def test_numbers_that_are_arguments_are_rounded_to_float32() -> None:
    """An exponent's error counts as many times as the logarithm of the base is large."""
    x = torch.full((1000,), 1e30)
    error = rms(x.double() ** float(np.float32(0.3)) - x.double() ** 0.3)
    assert law("aten.pow.Tensor_Scalar", x, 0.3) > error > 10 * HALF_ULP[torch.float32] * 1e9


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_products_of_factors_near_one_have_what_the_reference_is_off(dtype: torch.dtype) -> None:
    x = (1 + 0.01 * normal(64, 2000)).to(dtype)
    value = x[:, 0]
    for at in range(1, x.shape[1]):
        value = value * x[:, at]
    exact = x.double().prod(-1)
    assert rms(value.double() - exact) < 3 * law("aten.prod.dim_int", x, 1)


@pytest.mark.parametrize("target", ["relu", "neg", "abs", "alias_copy", "detach"])
def test_what_does_not_round_has_no_noise(target: str) -> None:
    assert law(f"aten.{target}.default", normal(100)) == 0.0


@pytest.mark.parametrize("size", [16, 64])
def test_places_in_a_grid_sampler_are_rounded(size: int) -> None:
    """Where it samples is computed in half precision, which moves it by a part of an element: as torch's own kernel."""
    image, places = normal(1, 4, size, size, dtype=torch.float16), torch.rand(1, size, size, 2) * 1.8 - 0.9
    arguments = (0, 0, False)
    exact = torch.ops.aten.grid_sampler_2d.default(image.double(), places.half().double(), *arguments)
    found = torch.ops.aten.grid_sampler_2d.default(image, places.half(), *arguments)
    error = rms(found - exact)
    assert error < law("aten.grid_sampler_2d.default", image, places.half(), *arguments) < 4 * error


def test_what_is_exact_has_no_noise() -> None:
    """Powers of two, masks and comparisons: a product may be exact where another one rounds."""
    x, lowest = normal(100), torch.finfo(torch.float32).min
    assert law("aten.mul.Tensor", x, torch.full((100,), 0.25)) == 0.0
    assert law("aten.mul.Tensor", (x > 0).float() * 0, torch.full((100,), lowest)) == 0.0
    assert law("aten.gt.Tensor", x, normal(100, seed=1)) == 0.0


def test_cancellation_has_the_noise_of_what_cancelled() -> None:
    """The mean of centred values is nearly zero, and off by what the sum of numbers of their size loses."""
    x = normal(2000, 256)
    centred = x - x.mean(1, keepdim=True)
    found = law("aten.mean.dim", centred, [1])
    assert factor(found, orders(centred.numpy()) / 256) < 2
    assert found > 2.0**-24 * rms(centred.mean(1))


def test_layer_norm_allows_its_textbook_form_and_little_more() -> None:
    x = normal(500, 64) * 3 + 2
    mean = x.mean(-1, keepdim=True)
    textbook = (x - mean) / ((x - mean).square().mean(-1, keepdim=True) + 1e-5).sqrt()
    exact = torch.nn.functional.layer_norm(x.double(), (64,))
    found = law("aten.native_layer_norm.default", x, [64], None, None, 1e-5)
    assert rms(textbook - exact) <= found < 4 * rms(textbook - exact)


@pytest.mark.parametrize("terms", [64, 4096, 1 << 20])
def test_errors_of_equal_terms_do_not_cancel_out(terms: int) -> None:
    """Each addition repeats its error, so the error grows with the number of terms and not with its root."""
    values = torch.rand(40, generator=torch.Generator().manual_seed(0))[:, None].float()
    exact = values.double() * terms
    found = np.add.accumulate(values.expand(-1, terms).numpy(), axis=1)[:, -1:]
    error = rms(torch.from_numpy(found).double() - exact)
    assert error < law("aten.sum.dim_IntList", values.expand(-1, terms).contiguous(), [1]) < 4 * error


@pytest.mark.parametrize("shape", [(500, 64), (40, 4096)])
@pytest.mark.parametrize("mean", [0.0, 1.0, 10.0])
@pytest.mark.parametrize(
    ("target", "arguments"),
    [
        ("native_layer_norm.default", lambda width: ([width], None, None, 1e-5)),
        ("_softmax.default", lambda width: (1, False)),
        ("_log_softmax.default", lambda width: (1, False)),
        ("logsumexp.default", lambda width: ([1],)),
        ("cumsum.default", lambda width: (1,)),
        ("var.correction", lambda width: ([1],)),
    ],
)
def test_kernels_of_torch_stay_within_the_law(
    target: str, arguments: Callable[[int], tuple[Any, ...]], mean: float, shape: tuple[int, int]
) -> None:
    x, rest = normal(*shape) + mean, arguments(shape[1])
    call = Evaluator(Graph("forward"), {}).limits.call
    found, exact = (flat_values(call(f"aten.{target}", (item, *rest), {})) for item in (x, x.double()))
    for value, wide, noise in zip(found, exact, noises(f"aten.{target}", x, *rest), strict=True):
        assert rms(value - wide) < 1.5 * noise


@pytest.mark.parametrize("real", [0.0, 4.0])
@pytest.mark.parametrize("terms", [49, 196, 1024])
@pytest.mark.parametrize("target", ["_softmax.default", "_log_softmax.default", "logsumexp.default"])
def test_equal_scores_repeat_the_rounding_of_their_sum(target: str, terms: int, real: float) -> None:
    """As of windows that are padded; kernels add the exponentials one after another."""
    scores = torch.zeros(200, terms)
    scores[:, :2] += normal(200, 2) + real
    below = scores - scores.amax(1, keepdim=True)
    total = torch.from_numpy(summed(below.exp().numpy(), np.arange(terms)))[:, None]
    if target == "logsumexp.default":
        arguments, found = ([1],), (total.log() + scores.amax(1, keepdim=True))[:, 0]
    elif target == "_log_softmax.default":
        arguments, found = (1, False), below - total.log()
    else:
        arguments, found = (1, False), below.exp() / total
    exact = Evaluator(Graph("forward"), {}).limits.call(f"aten.{target}", (scores.double(), *arguments), {})
    error = rms(found - exact)
    assert error < law(f"aten.{target}", scores, *arguments) < 6 * error


@pytest.mark.parametrize("target", ["exp", "tanh", "sigmoid", "erf", "sin", "gelu", "silu", "rsqrt", "log"])
def test_functions_have_a_rounding_of_the_result_and_one_of_the_argument(target: str) -> None:
    x = normal(5000).abs() + 0.01
    wide = x.double().requires_grad_()
    y = getattr(torch.ops.aten, target).default(wide)
    y.sum().backward()
    assert wide.grad is not None
    expected = (y.square() + (wide * wide.grad).square()).detach()
    if target == "gelu":
        expected = expected + (wide / 2 * torch.erf(wide / math.sqrt(2))).square().detach()
    own = getattr(torch.ops.aten, target).default(x).double() - y.detach()
    expected = torch.maximum(expected, (own * 2.0**24).square())
    assert law(f"aten.{target}.default", x) == pytest.approx(2.0**-24 * math.sqrt(float(expected.mean())), rel=1e-3)


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_the_tail_of_a_gelu_has_the_rounding_of_a_number_near_one(approximate: str) -> None:
    """1 + erf cancels there, and torch's own GELU may be off by several units."""
    x = -3 - 2 * torch.rand(5000, generator=torch.Generator().manual_seed(0))
    found, exact = (torch.nn.functional.gelu(item, approximate=approximate) for item in (x, x.double()))
    error = rms(found - exact)
    assert error < law("aten.gelu.default", x, approximate=approximate) < 4 * error


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("target", "arguments"), [("sum.dim_IntList", [[1]]), ("cumsum.default", [1])])
def test_sums_of_whole_multiples_of_one_step_do_not_round(
    dtype: torch.dtype, target: str, arguments: list[Any]
) -> None:
    """Positions are running sums of a mask; one rounding and a cast to integers would take the next position's row."""
    eps = torch.finfo(dtype).eps
    mask = torch.ones(2, int(1 / eps) + 1, dtype=dtype)[:, :300] * 0.375
    assert law(f"aten.{target}", mask[:, : int(1 / eps) // 2], *arguments) == 0.0
    assert law(f"aten.{target}", torch.zeros(2, 5, dtype=dtype), *arguments) == 0.0
    assert law(f"aten.{target}", torch.tensor([[1.0, eps / 4]], dtype=dtype), *arguments) > 0.0
    assert law(f"aten.{target}", torch.tensor([[1.0, 1.0, 2 * eps]], dtype=dtype), *arguments) == 0.0
    assert law(f"aten.{target}", torch.tensor([[1.0, 1.0, 2.0, 2 * eps]], dtype=dtype), *arguments) > 0.0


def test_integers_and_booleans_never_round() -> None:
    x = normal(64)
    assert law("aten.argmax.default", x) == law("aten.gt.Tensor", x, normal(64, seed=1)) == 0.0
    assert noises("aten.topk.default", x, 5) == [0.0, 0.0]
    assert law("aten.sum.dim_IntList", torch.arange(10), [0]) == 0.0


@pytest.mark.parametrize(
    "target",
    [
        *(
            "aten.add.Tensor",
            "aten.sqrt.default",
            "aten.softmax.int",
            "aten.native_layer_norm.default",
            "aten.mm.default",
        ),
        *("aten.mean.dim", "aten.linear.default", "aten.native_group_norm.default"),
    ],
)
def test_arguments_that_are_named_give_the_same_noise(target: str) -> None:
    """Serialized graphs name all of them."""
    x = normal(8, 64).abs()
    given: dict[str, dict[str, Any]] = {
        "aten.add.Tensor": {"self": x, "other": normal(8, 64, seed=1)},
        "aten.sqrt.default": {"self": x},
        "aten.softmax.int": {"self": x, "dim": -1},
        "aten.native_layer_norm.default": {
            **{"input": x, "normalized_shape": [64], "weight": None, "bias": None, "eps": 1e-5}
        },
        "aten.mm.default": {"self": x, "mat2": normal(64, 8, seed=1)},
        "aten.mean.dim": {"self": x, "dim": [1]},
        "aten.linear.default": {"input": x, "weight": normal(5, 64)},
        "aten.native_group_norm.default": {
            **{"input": x.view(2, 4, 64), "weight": None, "bias": None, "N": 2, "C": 4, "HxW": 64, "group": 2},
            "eps": 1e-5,
        },
    }
    values = given[target]
    assert law(target, **values) == law(target, *values.values()) > 0


@pytest.mark.parametrize("target", ["argmax.default", "max.dim", "topk.default", "sort.default"])
def test_indices_are_judged_by_the_elements_behind_them(target: str) -> None:
    """Of equal elements any index is right; any other index is a fault."""
    x = torch.tensor([[1.0, 3.0, 3.0, 2.0], [0.5, 4.0, 1.0, 4.0]])
    args: tuple[Any, ...] = {"argmax.default": (x, 1), "topk.default": (x, 2, 1), "sort.default": (x, 1, True)}.get(
        target, (x, 1)
    )
    call, node = Limits().call, Node("node", f"aten.{target}", args)
    value = call(node.target, args, {})
    found = [item.clone() for item in flat_values(value)]
    indices = found[-1].view(2, -1)
    first = indices[1, 0].clone()
    indices[1, :2] = torch.tensor([4 - first, first])[: indices.shape[1]]
    off = rms(found[-1].double() - flat_values(value)[-1])
    assert noise_of(call, node, args, {}, value, found)[-1] == pytest.approx(off)
    indices[0, 0] = 3
    assert noise_of(call, node, args, {}, value, found)[-1] == 0.0


def test_a_grid_that_is_chosen_has_the_error_of_a_difference_and_a_ratio() -> None:
    arguments = (normal(400), -128, 127, 1e-9, torch.int8)
    scale, zero_point = noises("quantized_decomposed.choose_qparams.tensor", *arguments)
    value = float(torch.ops.quantized_decomposed.choose_qparams.tensor(*arguments)[0])
    assert scale == pytest.approx(allowance(1) * 2.0**-23 * value)
    assert zero_point == pytest.approx(allowance(1) / math.sqrt(12))


GRID = (0.1, 0, -128, 127, Tag("dtype", "int8"))


def on_grid(*after: Node) -> Graph:
    """A quantize and a dequantize of the input, and what follows."""
    nodes = [
        Node("q", "quantized_decomposed.quantize_per_tensor.default", (Ref("x"), *GRID), {}),
        Node("dq", "quantized_decomposed.dequantize_per_tensor.default", (Ref("q"), *GRID), {}),
        *after,
    ]
    return Graph("forward", [Input("x", "user", "")], nodes, [Ref(nodes[-1].name)])


def again(graph: Graph, x: Tensor) -> tuple[Callable[[Any], Any], Any]:
    evaluator = Evaluator(graph, {})
    return lambda rounding: evaluator.call_again(graph, [x], rounding), evaluator.call(graph, [x])


@pytest.mark.parametrize("count", [24, 1000])
def test_what_follows_a_grid_is_granted_what_its_rounding_becomes_there(count: int) -> None:
    """A softmax of values that may each be off by s/√12: its derivative says how far it may be."""
    graph, x = on_grid(Node("y", "aten._softmax.default", (Ref("dq"), -1, False), {})), normal(count, 8)
    y = torch.softmax((x / 0.1).round() * 0.1, -1).double()
    jacobian = torch.diag_embed(y) - y[:, :, None] * y[:, None]
    expected = 0.1 / math.sqrt(12) * math.sqrt(float(jacobian.square().sum((1, 2)).mean()) / 8)
    assert factor(propagated(*again(graph, x))[0], expected) < 1.3
    growth = Growth()
    found, outputs = total_noise(lambda: Evaluator(graph, {}), [[x]], [(0, "y")], {0: growth})
    assert factor(found[0, "y", 0], expected) < 1.3
    assert outputs == [[found[0, "y", 0]]]
    assert growth.imposed == [pytest.approx(found[0, "y", 0], rel=0.1)]


def test_entering_a_grid_is_no_growth() -> None:
    """Its steps are large against float32's; what loses digits behind it is named."""
    values, centred = normal(200, 8) + 5.0, Node("less", "aten.sub.Tensor", (Ref("dq"), 5.0), {})
    graph, growth = on_grid(centred), Growth()
    graph.nodes[1] = replace(graph.nodes[1], outputs=(Meta("float32", (200, 8), 0.1),))
    _, outputs = total_noise(lambda: Evaluator(graph, {}), [[values]], [(0, "less")], {0: growth})
    assert outputs[0][0] == pytest.approx(0.1 / math.sqrt(12), rel=0.1)
    found = growth.stage(graph, "less")
    assert found is not None
    assert found[0] is centred
    assert found[1] == pytest.approx(math.sqrt(26), rel=0.1)


CHOSEN = (Ref("scale"), Ref("zero"), -128, 127, Tag("dtype", "int8"))
CHOICE = [
    Node("grid", "quantized_decomposed.choose_qparams.tensor", (Ref("x"), -128, 127, 1e-9, Tag("dtype", "int8"))),
    Node("scale", "getitem", (Ref("grid"), 0)),
    Node("zero", "getitem", (Ref("grid"), 1)),
    Node("q", "quantized_decomposed.quantize_per_tensor.tensor", (Ref("x"), *CHOSEN)),
    Node("dq", "quantized_decomposed.dequantize_per_tensor.tensor", (Ref("q"), *CHOSEN)),
]


def chosen_step(x: Tensor) -> float:
    return float(resolve("quantized_decomposed.choose_qparams.tensor")(x, -128, 127, 1e-9, torch.int8)[0])


@pytest.mark.parametrize("backend", ["XnnpackBackend", ""])
def test_a_grid_that_a_backend_chooses_needs_no_lane_of_its_own(backend: str) -> None:
    """All lanes have its error, ‖row of the weight‖·s/√12 behind a product; what it alone imposes is asked apart."""
    x, weight = normal(200, 64), normal(48, 64, seed=1)
    nodes = [*CHOICE, Node("y", "aten.linear.default", (Ref("dq"), Ref("w")))]
    inputs = [Input("x", "user", ""), Input("w", "constant", "w")]
    graph = in_a_delegate(Graph("inner", inputs, nodes, [Ref("y")], backend_id=backend), "y")
    graph.nodes = [replace(node, outputs=(Meta("float32", (200, 48), None),)) for node in graph.nodes]
    expected, growth = chosen_step(x) / math.sqrt(12) * math.sqrt(float(weight.square().sum(1).mean())), Growth()
    assert Lanes(Evaluator(graph, {"w": weight}), [0]).lanes == (1 if backend else 2)
    found, outputs = total_noise(lambda: Evaluator(graph, {"w": weight}), [[x]], [(0, "y")], {0: growth})
    assert factor(found[0, "y", 0], expected) < 1.1
    assert factor(outputs[0][0], expected) < 1.1
    assert factor(growth.imposed[0], expected) < 1.1


@pytest.mark.parametrize("cancel", [False, True])
def test_signs_tell_the_noise_of_a_single_number_from_one_lane(cancel: bool) -> None:
    """One lane may give any; s/√12/√n of n independent elements. Elements that cancel are not."""
    x, meta, single = normal(1, 4096), (Meta("float32", (1, 4096), None),), (Meta("float32", (1, 1), None),)
    graph = in_a_delegate(Graph("inner", [Input("x", "user", "")], [*CHOICE], [Ref("dq")], backend_id="B"), "dq")
    graph.nodes = [replace(node, outputs=meta) for node in graph.nodes] + [
        Node("less", "aten.mean.dim", (Ref("dq"), [1], True)),
        Node("centred", "aten.sub.Tensor", (Ref("dq"), Ref("less"))),
        Node("mean", "aten.mean.dim", (Ref("centred" if cancel else "dq"), [1], True), outputs=single),
        Node("result", "aten.add.Scalar", (Ref("mean"), 3.0)),
    ]
    graph.outputs = [Ref("result")]
    lanes, samples = Lanes(Evaluator(graph, {}), [0]), Samples()
    samples.run(lanes, partial(lanes.run, [x]))
    expected = chosen_step(x) / math.sqrt(12 * 4096)
    for kept in (samples, Samples.of_told(samples.told())):
        for name in ("mean", "result"):
            assert cancel or factor(kept.signs[name].rms, expected) < 1.3
            assert (kept.explained((name, 0), expected) is None) is cancel
            assert kept.explained((name, 0), 10 * expected) is None
    assert not lanes.signs
    graph.outputs = [Ref("dq")]
    noises, _ = total_noise(lambda: Evaluator(graph, {}), [[x]], [(0, "mean")], {0: (growth := Growth())})
    assert growth.imposed[0] > 0
    assert noises[0, "mean", 0] < 20 * expected


@pytest.mark.parametrize("seed", range(24))
def test_signs_tell_no_more_than_many_lanes_in_random_programs(seed: int) -> None:
    """Functions, weights, a softmax or a centre, then a number. Five lanes widen a difference by as much."""
    random = Random(seed)
    x, meta, single = normal(1, 2048, seed=seed), (Meta("float32", (1, 2048), None),), (Meta("float32", (1, 1), None),)
    graph = in_a_delegate(Graph("inner", [Input("x", "user", "")], [*CHOICE], [Ref("dq")], backend_id="B"), "dq")
    graph.nodes, last = [replace(node, outputs=meta) for node in graph.nodes], "dq"
    for at in range(random.randrange(4)):
        name, weight = f"v{at}", normal(1, 2048, seed=100 * seed + at)
        choices: list[tuple[str, tuple[Any, ...]]] = [
            *((f"aten.{each}.default", ()) for each in ("sin", "tanh", "sigmoid", "exp", "abs", "neg")),
            ("aten.mul.Tensor", (weight,)),
            ("aten.add.Tensor", (weight,)),
            ("aten._softmax.default", (-1, False)),
            ("aten.native_layer_norm.default", ([2048], None, None, 1e-5)),
        ]
        target, args = random.choice(choices)
        graph.nodes.append(Node(name, target, (Ref(last), *args)))
        if "native" in target:
            graph.nodes.append(Node(f"{name}_0", "getitem", (Ref(name), 0)))
        last = graph.nodes[-1].name
    target = random.choice(["aten.mean.dim", "aten.sum.dim_IntList", "aten.amax.default"])
    graph.nodes.append(Node("number", target, (Ref(last), [1], True), outputs=single))
    graph.outputs = [Ref("number")]
    one, many = Samples(), Spread()
    lanes = Lanes(Evaluator(graph, {}), [0])
    one.run(lanes, partial(lanes.run, [x]))
    others = Lanes(Evaluator(graph, {}), range(1000, 1064))
    (plain,) = others.run([x])
    for (perturbed,) in others.perturbed_outputs:
        many.add(perturbed, plain)
    if "number" in one.signs:
        assert one.signs["number"].rms < allowance(1, PASSES) * chance(1) * many.rms
        assert one.signs["number"].rms < max(3 * many.rms, 1.01 * allowance(1, PASSES) * one.values["number", 0][0].rms)
    if target == "aten.mean.dim" and last == "dq":
        assert one.signs["number"].rms > many.rms / 1.5


def test_what_is_put_on_its_own_grid_again_keeps_its_noise() -> None:
    """A quantized program has many such pairs, which round nothing."""
    pair = on_grid().nodes
    more = [
        Node(f"{node.name}_2", node.target, (Ref(before), *GRID))
        for node, before in zip(pair, ("dq", "q_2"), strict=True)
    ]
    graph, wanted = on_grid(*more), [(0, "dq"), (0, "dq_2")]
    found, _ = total_noise(lambda: Evaluator(graph, {}), [[normal(50, 64)]], wanted)
    assert [factor(noise, 0.1 / math.sqrt(12)) < 1.1 for noise in found.values()] == [True, True]


def test_wanted_values_are_looked_up_once_an_execution() -> None:
    """Not once for each pair of an execution and a value."""
    asked: list[int] = []

    class Wanted(tuple[int, str]):
        __slots__ = ()

        def __iter__(self) -> Iterator[Any]:
            asked.append(1)
            return super().__iter__()

    def look(count: int) -> int:
        asked.clear()
        graph, runs = on_grid(), [[normal(2, 8)] for _ in range(count)]
        total_noise(lambda: Evaluator(graph, {}), runs, [Wanted((run, "dq")) for run in range(count)])
        return len(asked)

    assert look(40) == 2 * look(20) > 0


@pytest.mark.parametrize("granularity", ["per_token", "per_channel", "per_tensor"])
def test_each_row_has_its_own_step(granularity: str) -> None:
    """A loud row does not drown a quiet one, and a quiet one does not hide what a loud one may be off by."""
    x = normal(4, 50_000) * torch.tensor([1e-3, 1.0, 30.0, 1e4])[:, None]
    scales = x.abs().amax(1) / 127
    zeros = torch.zeros(4, dtype=torch.int64)
    more: tuple[Any, ...] = (scales[:, None].double(), zeros[:, None], -128, 127, torch.int8)
    if granularity == "per_channel":
        more = (scales, zeros, 0, -128, 127, torch.int8)
    if granularity == "per_tensor":
        scales = scales.amax().expand(4)
        more = (float(scales[0]), 0, -128, 127, torch.int8)
    node = Node(
        "q",
        f"quantized_decomposed.quantize_{granularity}.default",
        (x, *more),
    )
    call = Limits().call
    plain = call(node.target, node.args, {})
    flips = torch.stack(
        [(Rounding(seed).call(call, node, node.args, {}) != plain).double().mean(1) for seed in range(4)]
    )
    inside = [float((row.abs() > step / 2).double().mean()) for row, step in zip(x, scales, strict=True)]
    for share, own in zip(flips.mean(0).tolist(), inside, strict=True):
        assert share == pytest.approx(own * DELTA * math.sqrt(3) / 2, rel=0.35, abs=1e-5)
    value = Rounding(0, {}).on_grid(Node("dq", node.target.replace(".quantize", ".dequantize")), (plain, *more), {}, x)
    moved = (value - x).double().square().mean(1).sqrt() / scales
    assert moved.tolist() == pytest.approx([1 / math.sqrt(12)] * 4, rel=0.1)


def test_an_operator_that_dequantizes_within_is_granted_its_grids() -> None:
    """With one position its result is the value, so it moves as one on that grid does."""
    generator = torch.Generator().manual_seed(0)
    shape, rows = (1, 1, 4, 4096), (1, 1, 4, 1)
    query, key, value = (torch.randint(-128, 128, shape, generator=generator, dtype=torch.int8) for _ in range(3))
    steps = torch.tensor([1e-3, 1e-2, 0.1, 1.0]).view(rows)
    grids = (torch.zeros(rows, dtype=torch.int8), steps) * 3
    node = Node("sdpa", "llama.custom_quantized_sdpa.default", ())
    args = (query, key, value, 0, None, 0.0, True, None, *grids)
    call = Limits().call
    plain = call(node.target, args, {})
    moved = Rounding(0, {}).call(call, node, args, {}) - plain
    assert (moved.double().square().mean(-1).sqrt() / steps.squeeze(-1)).flatten().tolist() == pytest.approx(
        [1 / math.sqrt(12)] * 4, rel=0.1
    )
    assert plain.flatten().tolist() == pytest.approx((value * steps).flatten().tolist())


def chain(first: Tensor, second: Tensor) -> tuple[Graph, dict[str, Tensor]]:
    """Two products of matrices, one after the other."""
    graph = Graph("forward")
    graph.inputs = [Input("x", "user", "x", Meta("float32", (30, 64), None))]
    for name in ("first", "second"):
        graph.inputs.append(Input(name, "parameter", name, None))
    graph.nodes = [
        Node("inner", "aten.mm.default", (Ref("x"), Ref("first")), {}, instruction=0),
        Node("outer", "aten.mm.default", (Ref("inner"), Ref("second")), {}, instruction=1),
    ]
    graph.outputs = [Ref("outer")]
    return graph, {"first": first, "second": second}


def test_noise_goes_through_what_follows() -> None:
    """First order: the inner error times the outer matrix, and the outer operator's own."""
    x, first = normal(30, 64), normal(64, 64, seed=1)
    second = normal(64, 100, seed=2) * torch.logspace(-3, 0, 64)[:, None]
    graph, constants = chain(first, second)
    noise, outputs = total_noise(lambda: Evaluator(graph, constants), [[x]], [(0, "inner"), (0, "outer")])
    inner = x @ first
    alone = law("aten.mm.default", x, first), law("aten.mm.default", inner, second)
    assert noise[0, "inner", 0] == pytest.approx(alone[0], rel=0.1)
    carried = alone[0] * math.sqrt(float(second.double().square().sum(0).mean()))
    assert noise[0, "outer", 0] == pytest.approx(math.hypot(carried, alone[1]), rel=0.25)
    assert outputs == [[noise[0, "outer", 0]]]


def test_noise_grows_where_numbers_cancel() -> None:
    graph, constants = chain(normal(64, 64, seed=1), normal(64, 100, seed=2))
    graph.nodes[1:] = [
        Node("up", "aten.add.Tensor", (Ref("inner"), 1e5), {}, instruction=1),
        Node("down", "aten.sub.Tensor", (Ref("up"), 1e5), {}, instruction=2),
        Node("outer", "aten.mm.default", (Ref("down"), Ref("second")), {}, instruction=3),
    ]
    growth, x = Growth(), normal(30, 64)
    total_noise(lambda: Evaluator(graph, constants), [[x]], [], {0: growth})
    found = growth.stage(graph, "outer")
    assert found is not None
    node, factor = found
    assert node.name == "down"
    up, down = rms(x @ constants["first"] + 1e5), rms(x @ constants["first"])
    assert factor == pytest.approx(up / down, rel=0.5)


def test_weights_are_dequantized_once_for_evaluations_in_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are the same whichever way the operators round, so they have no noise of their own."""
    dequantize = "quantized_decomposed.dequantize_per_tensor.default"
    graph, constants = chain(normal(64, 64, seed=1), normal(64, 100, seed=2))
    graph.inputs[1:] = [Input(name, "constant", name, None) for name in constants]
    constants["first"] = (constants["first"] * 32).round().clamp(-128, 127).to(torch.int8)
    grid = (1 / 32, 0, -128, 127, Tag("dtype", "int8"))
    graph.nodes[:1] = [
        Node("weights", dequantize, (Ref("first"), *grid), {}),
        Node("turned", "aten.permute_copy.default", (Ref("weights"), [1, 0]), {}),
        Node("inner", "aten.mm.default", (Ref("x"), Ref("turned")), {}, instruction=0),
    ]
    assert unpacked_weights(graph) == {"weights", "turned"}
    calls: list[str] = []
    call = Limits.call
    monkeypatch.setattr(Limits, "call", lambda self, target, *rest: calls.append(target) or call(self, target, *rest))
    noise, outputs = total_noise(lambda: Evaluator(graph, constants), [[normal(30, 64)]], [(0, "weights")])
    assert calls.count(dequantize) == 1
    assert noise == {(0, "weights", 0): 0.0}
    assert outputs[0][0] > 0.0


def test_random_numbers_are_those_of_an_operator_wherever_it_stands() -> None:
    """What noise says does not hang on the order of a graph: record and ETRecord have one of their own."""
    x = normal(3, 4)
    nodes = [
        Node("a", "aten.exp.default", (Ref("x"),), handles=(1,)),
        Node("b", "aten.sin.default", (Ref("x"),), handles=(2,)),
        Node("c", "aten.sin.default", (Ref("b"),), handles=(3,)),
    ]

    def values(nodes: list[Node], seed: int) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        evaluator = Evaluator(Graph("forward", [Input("x", "user", "")], nodes, [Ref("c")]), {})
        evaluator.rounding = Rounding(seed)
        evaluator.run([x], lambda node, value: found.update({node.name: value.reference}))
        return found

    here, elsewhere, other = values(nodes, 0), values(nodes[1:] + nodes[:1], 0), values(nodes, 1)
    for name in ("a", "b", "c"):
        assert torch.equal(here[name], elsewhere[name])
        assert not torch.equal(here[name], other[name])
    assert not torch.equal(here["b"] - x.sin(), here["c"] - here["b"].sin())


@pytest.mark.parametrize("delegated", [False, True])
@pytest.mark.parametrize("alone", [False, True])
def test_lanes_carry_on_their_own_buffers(alone: bool, delegated: bool) -> None:
    """Side by side or one after the other: the second execution begins with what the first left in each lane."""
    graph, constants = chain(normal(64, 64, seed=1), normal(64, 100, seed=2))
    graph.inputs.append(Input("kept", "buffer", "kept", None))
    meta = (Meta("float32", (), None),)
    graph.nodes += [
        Node("mean", "aten.mean.dim", (Ref("outer"), None), {}, instruction=2, outputs=meta),
        Node("sum", "aten.add.Tensor", (Ref("mean"), Ref("kept")), {}, instruction=3, outputs=meta),
    ]
    graph.outputs, graph.mutations = [Ref("sum")], {"kept": "sum"}
    constants["kept"], x = torch.tensor(1.0), normal(30, 64)
    if delegated:
        graph = in_a_delegate(graph, "mean", "sum")
    sized = graph
    if alone:  # where the file doesn't tell all sizes
        unsized = replace(graph.nodes[0], outputs=(None,))
        graph = replace(graph, nodes=[unsized, *graph.nodes[1:]])
        assert largest_value(graph) is None
    wanted = [(run, name) for run in (0, 1) for name in ("mean", "sum")]
    found, outputs = total_noise(lambda: Evaluator(graph, constants), [[x], [x + 1]], wanted)
    assert outputs[1][-1] == found[1, "sum", 0]
    first, second = found[0, "sum", 0], found[1, "sum", 0]
    assert second > 0.3 * first > 0
    if alone:
        again, _ = total_noise(lambda: Evaluator(sized, constants), [[x], [x + 1]], wanted)
        assert found == pytest.approx(again, rel=1e-9)


def in_a_delegate(inner: Graph, *names: str) -> Graph:
    """All of a graph as one delegate, which gives out some of its values."""
    inner.outputs, meta = [Ref(name) for name in names], (Meta("float32", (), None),)
    graph = Graph("forward", [item for item in inner.inputs if item.kind == "user"])
    graph.nodes = [Node("call", "delegate", (Ref("x"),), outputs=meta * len(names), subgraphs=("inner",))]
    graph.nodes += [
        Node(name, "getitem", (Ref("call"), at), instruction=0, outputs=meta) for at, name in enumerate(names)
    ]
    graph.outputs, graph.subgraphs = [Ref(name) for name in names], {"inner": inner}
    return graph


def test_a_delegate_and_its_replay_read_a_weight_once() -> None:
    x, meta = normal(4, 64), (Meta("float32", (4, 64), None),)
    inner = Graph("inner", [Input("x", "user", "x", meta[0]), *(Input(w, "parameter", w, None) for w in "abc")])
    inner.nodes = [
        Node(f"by_{w}", "aten.linear.default", (Ref(before), Ref(w)))
        for before, w in zip(("x", "by_a", "by_b"), "abc", strict=True)
    ]
    graph = in_a_delegate(inner, "by_c")
    graph.nodes = [
        Node("before", "aten.relu.default", (Ref("x"),), instruction=0, outputs=meta),
        replace(graph.nodes[0], args=(Ref("before"),), instruction=1, outputs=meta),
    ]
    graph.outputs = []
    reads = list[str]()

    class Counted(dict[str, Tensor]):
        def __getitem__(self, name: str) -> Tensor:
            reads.append(name)
            return super().__getitem__(name)

    weights, found = Counted({w: normal(64, 64) for w in "abc"}), dict[str, Value]()
    logged = {"before": [x + 1]}
    evaluator = Evaluator(graph, weights)
    evaluator.run([x], lambda node, value: found.update({node.name: value}), lambda node: logged.get(node.name))
    assert reads == ["a", "b", "c"]
    wanted = x + 1
    for weight in weights.values():
        wanted = torch.nn.functional.linear(wanted, weight)
    assert torch.equal(found["call"].local[0], wanted)


def quantized_layer(weight: Tensor, step: float) -> tuple[Graph, dict[str, Tensor]]:
    """A delegate of an int8 layer: grid, product, cut, and grid."""
    inner = on_grid(
        Node("y", "aten.linear.default", (Ref("dq"), Ref("w"))),
        Node("cut", "aten.relu.default", (Ref("y"),)),
        Node("r", "quantized_decomposed.quantize_per_tensor.default", (Ref("cut"), step, *GRID[1:])),
        Node("back", "quantized_decomposed.dequantize_per_tensor.default", (Ref("r"), step, *GRID[1:])),
    )
    inner.inputs.append(Input("w", "parameter", "w", None))
    graph = in_a_delegate(inner, "back")
    graph.nodes = [replace(node, outputs=()) for node in graph.nodes]
    return graph, {"w": weight}


@pytest.mark.parametrize("large", [False, True])
def test_before_a_grid_a_product_rounds_only_where_that_matters(large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside δ, float32 moves nothing, unless large terms cancel out."""
    x, weight = normal(200, 32), normal(16, 32, seed=1)
    if large:
        x[:, 16:], weight[:, 16:] = x[:, :16], weight[:, :16] - 1e5 * weight[:, :16].sign()
        weight[:, :16] = 1e5 * weight[:, :16].sign()
    graph, weights = quantized_layer(weight, 0.1)
    sized, found = list[str](), list[float]()

    def counted(node: Node, *rest: Any) -> Any:
        sized.append(node.name)
        return sizes(node, *rest)

    monkeypatch.setattr("etviz.evaluation.noise.sizes", counted)
    for never in (False, True):
        if never:
            monkeypatch.setattr(Lanes, "_is_lost", lambda *_: False)
        noise, _ = total_noise(lambda: Evaluator(graph, weights), [[x]], [(0, "call")])
        found.append(noise[0, "call", 0])
    assert sized.count("y") == PASSES * (2 if large else 1)
    assert found[0] == pytest.approx(found[1], rel=0.05)


def test_lanes_that_begin_at_each_grid_have_values_after_the_last_one_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, weights = quantized_layer(normal(16, 32, seed=1), 0.1)
    found = list[Any]()
    for whole in (False, True):
        lanes = Lanes(Evaluator(graph, weights), range(2))
        if whole:
            monkeypatch.setattr(Lanes, "_ending", lambda *_: frozenset())
        lanes.run([normal(5, 32)])
        found.append(torch.cat([outputs[0] for outputs in lanes.perturbed_outputs]))
    assert torch.equal(*found)
    assert len(found[0]) == 4 * 5


def block(computed: bool) -> tuple[Graph, dict[str, Tensor]]:
    """A linear layer, a function, another layer, and its result added to what came in, or to what is computed of it."""
    inner = Graph("inner", [Input("x", "user", "x", Meta("float32", (30, 64), None))])
    inner.inputs += [Input(name, "parameter", name, None) for name in ("up", "down")]
    inner.nodes = [
        Node("wide", "aten.linear.default", (Ref("x"), Ref("up"))),
        Node("act", "aten.gelu.default", (Ref("wide"),)),
        Node("narrow", "aten.linear.default", (Ref("act"), Ref("down"))),
        Node("moved", "aten.view_copy.default", (Ref("narrow"), [64, 30])),
        Node("back", "aten.view_copy.default", (Ref("moved"), [30, 64])),
        Node("other", "aten.relu.default", (Ref("x"),)),
        Node("sum", "aten.add.Tensor", (Ref("back"), Ref("other" if computed else "x"))),
    ]
    weights = {"up": normal(256, 64, seed=1) / 8, "down": normal(64, 256, seed=2) / 16}
    graph = in_a_delegate(inner, "sum")
    graph.nodes = [replace(node, outputs=()) for node in graph.nodes]
    return graph, weights


@pytest.mark.parametrize("computed", [False, True])
def test_the_operators_that_round_last_give_a_lower_bound(computed: bool) -> None:
    graph, weights = block(computed)
    evaluator, x, inner = Evaluator(graph, weights), normal(30, 64), graph.subgraphs["inner"]
    sizing = evaluator.sizing(inner)
    assert not evaluator.rounds_once(inner)
    (total,) = evaluator.call_again(inner, [x], sizing)
    act = torch.nn.functional.gelu(torch.nn.functional.linear(x, weights["up"]))
    added = torch.nn.functional.linear(act, weights["down"]), torch.relu(x) if computed else x
    own, narrow = law("aten.add.Tensor", *added), law("aten.linear.default", act, weights["down"])
    (bound,) = sizing.noise([total])
    assert sizing.of_output([total], 0) == bound
    assert bound == pytest.approx(own if computed else math.hypot(own, narrow), rel=0.01)
    (measured,) = propagated(lambda rounding: evaluator.call_again(inner, [x], rounding), [total])
    assert 0.1 * measured < bound < 1.05 * measured


def test_a_delegate_of_the_programs_inputs_has_the_noise_of_the_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, weights = block(computed=True)
    x, lanes, found = normal(30, 64), Lanes(Evaluator(graph, weights), [0]), list[Value]()
    lanes.run([x], lambda node, value: found.append(value), lambda node: None)
    again = found[0].again
    assert isinstance(again, Again)
    total, _ = total_noise(lambda: Evaluator(graph, weights), [[x]], [(0, "call")])
    monkeypatch.setattr(Evaluator, "again", lambda *_: pytest.fail("evaluated again"))
    assert propagated(again, found[0].local) == [pytest.approx(total[0, "call", 0], rel=1e-6)]


def test_what_is_not_finite_stays_as_it_is() -> None:
    x, weight = normal(4, 1024), normal(1100, 1024, seed=1)
    x[1, 5], weight[700, 2], x[3, 9] = math.inf, -math.inf, math.nan
    node = Node("node", "aten.linear.default", (x, weight))
    call = Limits().call
    plain = call(node.target, node.args, {})
    other = Rounding(0).call(call, node, node.args, {})
    finite = torch.isfinite(plain)
    assert torch.equal(other.isinf(), plain.isinf())
    assert torch.equal(other.isnan(), plain.isnan())
    assert 0.0 < float((other - plain)[finite].abs().max()) < 1e-3


@pytest.mark.parametrize(
    "target", ["aten.mul.Tensor", "aten.mm.default", "aten.copy_.default", "aten.rand_like.default"]
)
def test_roundings_share_what_they_compute_of_the_same_arguments(target: str) -> None:
    """Bit for bit; other arguments, and random numbers, are computed for each."""
    draws, computed_in = target == "aten.rand_like.default", list[torch.dtype]()
    given = [(normal(8, 8, seed=at), normal(8, 8, seed=at + 1))[: 1 if draws else 2] for at in (0, 2)]

    def call(target: str, args: Any, kwargs: Any) -> Any:
        computed_in.append(args[0].dtype)
        return args[1].clone() if "copy_" in target else Limits().call(target, args, kwargs)

    node, computed = Node("node", target, (Ref("x"), Ref("y"))), Computed()
    roundings = [Rounding(seed, None, computed) for seed in range(3)]
    for args in given:
        computed_in.clear()
        shared = [rounding.call(call, node, args, {}) for rounding in roundings]
        if draws:
            assert not torch.equal(shared[0], shared[1])
            continue
        assert computed_in.count(torch.float32) == 1  # the law computes in float64
        for seed, value in enumerate(shared):
            assert torch.equal(value, Rounding(seed).call(call, node, args, {}))
        assert (shared[0] is shared[1]) == (target == "aten.copy_.default")


def beyond(elements: int, lanes: int | None, trials: int = 400_000) -> float:
    """The share of correct values of so many elements that exceed the threshold; `lanes` measured their noise."""
    random = np.random.default_rng(elements)
    error = np.sqrt(random.chisquare(elements, trials) / elements)
    noise = 1.0 if lanes is None else np.sqrt(random.chisquare(elements * lanes, trials) / (elements * lanes))
    widened = allowance(elements, math.inf if lanes is None else elements * lanes) * noise
    return float((error > THRESHOLD * widened).mean())


@pytest.mark.parametrize("lanes", [None, 2, 5])
@pytest.mark.parametrize("elements", [1, 2, 3, 8, 100])
def test_correct_values_are_named_as_seldom_as_stated(elements: int, lanes: int | None) -> None:
    """Of 400,000, four are expected where the threshold is as low as it may be; 15 are once in 10⁵ tests."""
    assert beyond(elements, lanes) <= 15 / 400_000
    assert allowance(elements, math.inf) == 1.0 or elements < 3


def test_the_allowance_is_no_larger_than_it_has_to_be() -> None:
    """With a hundredfold rate of false alarms, as many are found: t distributions have heavy tails, but no heavier."""
    assert FALSE_ALARMS == 1e-5
    assert allowance(1) * THRESHOLD == pytest.approx(4.417, abs=0.01)  # of a normal distribution, both sides
    assert allowance(1, 10) * THRESHOLD == pytest.approx(8.15, abs=0.05)  # of Student's t with 10 degrees of freedom
    assert allowance(1000, 5000) == 1.0


def test_samples_count_by_their_size() -> None:
    """A token that is much larger than the others is one sample, not 64."""
    assert independent(torch.ones(64)) == 64
    assert independent(torch.tensor([1e4] + [1.0] * 63)) == pytest.approx(1.0, abs=0.02)
    size = torch.tensor([100.0] + [1e-3] * 63)
    assert by_law(size, size) == pytest.approx(allowance(1) * 2.0**-24 * 100 / 8)


@pytest.mark.parametrize("together", [64, 1])
def test_elements_that_err_together_count_as_one(together: int) -> None:
    """The lanes' sums of squares then differ as those of single numbers."""
    generator, value = torch.Generator().manual_seed(0), torch.zeros(64, dtype=torch.float64)

    def drawn() -> Tensor:
        return torch.randn(64 // together, generator=generator, dtype=torch.float64).repeat_interleave(together)

    named, factors = 0, []
    for _ in range(2000):
        found = Spread()
        for _ in range(PASSES):
            found.add(drawn(), value)
        assert found.noise.how == MEASURED
        factors.append(found.noise)
        named += float(drawn().square().mean().sqrt()) > THRESHOLD * found.noise
    assert named <= 2
    assert bool(np.median(factors) > 2) is (together == 64)


def test_terms_that_repeat_or_rise_err_as_a_kernel_that_adds_in_order() -> None:
    """Equal terms inside a longer sum repeat an error; sums of neighbours that are alike are large on the way."""
    generator = torch.Generator().manual_seed(3)
    sparse = torch.where(torch.rand(400, 300, generator=generator) < 0.1, normal(400, 300), torch.tensor(-0.055))
    ramp = torch.linspace(-1.7, 1.7, 300) * (1 + normal(400, 1).abs()) + 0.01 * normal(400, 300)
    for rows in (sparse, ramp, normal(400, 300), normal(400, 300).relu()):
        total = torch.zeros(len(rows))
        for column in rows.unbind(1):  # as the portable kernels do
            total = total + column
        error = total.double() - rows.double().sum(1)
        size = in_order(rows.double()).sqrt() * 2.0**-24
        assert 0.2 < float((error / size).square().mean().sqrt()) < 1.0
        assert float((error.abs() / size).max()) < allowance(1) * THRESHOLD


@pytest.mark.parametrize("target", ["aten.sin.default", "aten.mul.Tensor", "aten.gelu.default"])
def test_arguments_that_are_named_round_as_those_in_order(target: str) -> None:
    """A graph of an ETRecord names all arguments of its operators, a recorded one none."""
    x, call = normal(40, 50), Limits().call
    args = [x, normal(50, seed=1)] if "mul" in target else [x]
    names = ["self", "other"]
    named = dict(zip(names, args, strict=False))
    value = call(target, args, {})
    first = sizes(Node("n", target, tuple(args)), args, {}, value, call)[0]
    second = sizes(Node("n", target, (), named), [], named, value, call)[0]
    assert first is not None
    assert second is not None
    assert torch.equal(first, second)


@pytest.mark.parametrize("terms", [2, 8, 300])
def test_variances_err_as_a_kernel_that_adds_in_order(terms: int) -> None:
    """The mean, each deviation, its square and the quotient are rounded; equal terms repeat all of these."""
    generator = torch.Generator().manual_seed(4)
    few = torch.randint(-1, 2, (20_000, terms), generator=generator) * normal(20_000, 1).abs() + 0.3 * normal(20_000, 1)
    blank = normal(20_000, 1).expand(-1, terms)
    for x in (normal(20_000, terms), normal(20_000, terms) + 100.0, few, blank):
        mean = functools.reduce(torch.add, x.unbind(1)) / terms
        squares = ((column - mean).square() for column in x.unbind(1))
        value = functools.reduce(torch.add, squares) / (terms - 1)
        found = sizes(Node("n", "aten.var.correction"), [x, [1]], {}, value, Limits().call)[0]
        assert found is not None
        error = value.double() - x.double().var(1)
        assert float((error.abs() / found)[found > 0].max()) < THRESHOLD * allowance(1) * 2.0**-24
        assert not bool(error[found == 0].any())
        if x.stride(1):  # equal terms have a mean that is seldom off
            assert rms(error) > 0.1 * rms(found) * 2.0**-24


def test_equal_rows_count_as_one() -> None:
    """All 24 results err alike where all rows of a blank image are the same."""
    row, others = normal(1, 16), normal(24, 16, seed=1)
    call, node = Limits().call, Node("n", "aten.var.correction")

    def noise(x: Tensor) -> tuple[float, float]:
        value = call(node.target, [x, [1]], {})
        (size,) = sizes(node, [x, [1]], {}, value, call)
        assert size is not None
        return by_law(value, size), 2.0**-24 * rms(size)

    found, plain = noise(row.expand(24, -1))
    assert found == pytest.approx(plain * allowance(1))
    found, plain = noise(others)
    assert found == pytest.approx(plain)


@pytest.mark.parametrize("elements", [1, 5, 3000])
def test_what_a_few_evaluations_explain_takes_no_more(elements: int) -> None:
    """Whatever these evaluations drew: of 100,000 errors at the threshold, not one is called explained."""
    random = np.random.default_rng(1)
    noise = np.sqrt(random.chisquare(elements, 100_000) / elements)
    assert (noise > chance(elements)).sum() <= 6
    found = Spread()
    found.add(normal(elements).double() * 0.0 + 1.0, torch.zeros(elements, dtype=torch.float64))
    assert found.explains(0.9 * THRESHOLD / chance(elements))
    assert not found.explains(1.1 * THRESHOLD / chance(elements))


@pytest.mark.parametrize(
    ("width", "rows", "expected"),
    [
        (16, 8, [[0, 1, 2, 3, 4]]),
        (512, 256, [[0], [1, 2, 3, 4]]),
        (512, 2048, [[0], [1], [2], [3], [4]]),
    ],
)
def test_large_operators_have_one_lane_first(width: int, rows: int, expected: list[list[int]]) -> None:
    """Their lanes take as long as their reference; very large ones take memory, too."""

    def graph(*nodes: Node) -> Graph:
        weight = Input("w", "constant", "w", Meta("float32", (width, width)))
        return Graph("forward", [Input("x", "user", "", large), weight], list(nodes), [Ref(nodes[-1].name)])

    large, number = Meta("float32", (rows, width)), Meta("float32", (1,))
    product = Node("product", "aten.mm.default", (Ref("x"), Ref("w")), outputs=(large,), instruction=0)
    mean = Node("mean", "aten.mean.dim", (Ref("product"), [0, 1]), outputs=(number,), instruction=1)
    names = ["product", "mean"]
    assert batches(graph(product, mean), names) == expected
    left = batches(graph(product, mean), names, taken=1)
    assert [seed for part in left for seed in part] == [1, 2, 3, 4]
    assert len(left) <= len(expected)
    delegate = Node("mean", "delegate", (Ref("x"),), outputs=(number,), instruction=1)
    alone = expected if rows * width > 1 << 19 else [[0, 1, 2, 3, 4]]
    assert batches(graph(product, delegate), names) == alone, "its lanes judge what it introduced"


def test_totals_that_are_explained_have_the_noise_of_one_evaluation() -> None:
    graph, constants = chain(normal(64, 64, seed=1), normal(64, 2, seed=2))
    wanted, inputs, key = [(0, "outer")], [[normal(30, 64)]], (0, "outer", 0)
    whole = total_noise(lambda: Evaluator(graph, constants), inputs, wanted)[0][key]

    def found(error: float) -> Noise:
        return total_noise(lambda: Evaluator(graph, constants), inputs, wanted, None, {key: error})[0][key]

    assert found(20 * whole) == whole
    assert whole != found(0.1 * whole) == pytest.approx(whole, rel=0.5)


@pytest.mark.parametrize("shape", [(5, 2), (3, 7), (64, 96)])
def test_the_compiled_sum_of_repeated_errors_is_torchs(shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = torch.randn(shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    rows = [drawn, drawn.round() / 8, torch.zeros(shape, dtype=torch.float64), torch.full_like(drawn, 1e-150)]

    def both() -> list[Any]:
        deviations = [noises("aten.var.correction", terms, [1], correction=0) for terms in rows]
        return [*map(in_order, rows), *map(torch.tensor, deviations)]

    compiled = both()
    monkeypatch.setattr(law_module, "errors_of_sums", lambda *given: False)
    for found, expected in zip(compiled, both(), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=0.0)


@pytest.mark.parametrize("special", [None, math.nan, math.inf, 1e30])
@pytest.mark.parametrize("target", ["gelu.default", "sigmoid.default", "atan2.default", "add.Tensor", "div.Tensor"])
def test_compiled_sizes_of_functions_are_torchs(
    target: str, special: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    args = [3 * normal(37, 1500), normal(37, 1500, seed=1)][: 1 if target[0] in "gs" else 2]
    args[0][0, :2] = torch.tensor([0.0, 0.0 if special is None else special])
    node = Node("node", f"aten.{target}", tuple(args), {})
    evaluator = Evaluator(Graph("forward"), {})
    value = evaluator.operator(evaluator.graph, node, args, {})

    def both() -> tuple[Any, Noise]:
        size = sizes(node, args, {}, value, evaluator.limits.call)[0]
        return size, noise_of(evaluator.limits.call, node, args, {}, value)[0]

    (compiled, noise), _ = both(), monkeypatch.setattr("etviz.native._library", lambda: None)
    size, expected = both()
    torch.testing.assert_close(compiled, size, rtol=0.0, atol=0.0)
    assert noise == pytest.approx(expected, rel=1e-12)
    assert 0 < rms(size) < math.inf


@pytest.mark.parametrize("special", [None, math.nan, 1e30, 2e36])
@pytest.mark.parametrize("offset", [0.0, 50.0])
@pytest.mark.parametrize("target", ["native_layer_norm.default", "rms_norm.default"])
def test_compiled_sizes_of_norms_are_torchs(
    target: str, offset: float, special: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, weight, bias = normal(3, 40, 300) + offset, normal(300, seed=1), normal(300, seed=2)
    one = offset if special is None else special
    x[0], x[1, 1], x[2] = one if one == 2e36 else 0.1, one, x[2].round()
    args = [x, [300], weight, *([bias] if "layer" in target else []), 1e-5]
    node = Node("node", f"aten.{target}", tuple(args), {})
    evaluator = Evaluator(Graph("forward"), {})
    value = evaluator.operator(evaluator.graph, node, args, {})

    def both() -> tuple[Any, list[Noise]]:
        found = sizes(node, args, {}, value, evaluator.limits.call)
        return [size.double() for size in found if size is not None], noise_of(
            evaluator.limits.call, node, args, {}, value
        )

    (compiled, noise), _ = both(), monkeypatch.setattr("etviz.native._library", lambda: None)
    expected, plain = both()
    torch.testing.assert_close(compiled, expected, rtol=1e-7, atol=0.0)
    assert noise == pytest.approx(plain, rel=1e-7)


@pytest.mark.parametrize("size", [8, 1 << 17])
def test_a_copy_into_a_state_rounds_nothing(size: int) -> None:
    state, given = normal(size), Ref("given")
    assert law("aten.copy_.default", state, normal(size, seed=1)) == 0
    nodes = [Node("sine", "aten.sin.default", (given,)), Node("kept", "aten.copy_.default", (given, Ref("sine")))]
    lanes = Lanes(Evaluator(Graph("forward", [Input("given", "user", "")], nodes, [Ref("sine"), Ref("kept")]), {}), [0])
    lanes.run([state])
    ((sine, kept),) = lanes.perturbed_outputs
    assert torch.equal(sine, kept)
    assert not torch.equal(sine, state.sin())


@pytest.mark.parametrize(
    ("target", "args"),
    [
        ("aten.linear.default", (Ref("x"), normal(5, 8, seed=1))),
        ("aten._softmax.default", (Ref("x"), -1, False)),
        ("aten.permute_copy.default", (Ref("x"), [1, 0])),
        ("aten.cat.default", ([Ref("x"), Ref("y")], 0)),
        ("aten.split_copy.Tensor", (Ref("x"), 4, 1)),
        ("aten.index_put.default", (Ref("x"), [torch.tensor([2])], Ref("y"))),
        ("torchao.choose_qparams_affine.default", (Ref("x"), "ASYMMETRIC", [1, 8], Tag("dtype", "int8"), -128, 127)),
        ("quantized_decomposed.quantize_per_tensor.default", (Ref("x"), 0.1, 0, -128, 127, Tag("dtype", "int8"))),
        ("aten.nonzero.default", (Ref("x"),)),
    ],
)
def test_lanes_as_a_further_axis_have_the_values_of_lanes_one_by_one(
    target: str, args: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    nodes = [
        Node("x", "aten.sin.default", (Ref("given"),)),
        Node("y", "aten.slice_copy.Tensor", (Ref("x"), 0, 0, 1)),
        Node("result", target, args),
    ]
    graph, results = Graph("forward", [Input("given", "user", "")], nodes, [Ref("result")]), []
    for together in (True, False):
        if not together:
            monkeypatch.setattr(Lanes, "_together", lambda *_: None)
        lanes = Lanes(Evaluator(graph, {}), range(3))
        plain = lanes.run([normal(3, 8)])
        assert lanes.lanes == (6 if "quantize_per" in target else 3)
        results.append([flat_values(outputs) for outputs in lanes.perturbed_outputs])
        first = flat_values(plain)[0]
        assert not first.is_floating_point() or not any(torch.equal(own, first) for own, *_ in results[-1])
    for one, other in zip(*results, strict=True):
        for own, expected in zip(one, other, strict=True):
            torch.testing.assert_close(own, expected, rtol=1e-6, atol=1e-6)
    assert not recwarn.list


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_function_may_round_where_its_exact_result_needs_no_rounding(dtype: torch.dtype) -> None:
    """Backends multiply hardswish's product by 1/6 in the type of the values, so it is not x where x is above 3."""
    x = normal(64, 64, dtype=dtype) * 12
    sixth = torch.tensor(1 / 6, dtype=dtype)
    error = (x * (x + 3).clamp(0, 6) * sixth).double() - torch.nn.functional.hardswish(x).double()
    assert 0 < rms(error) < THRESHOLD * law("aten.hardswish.default", x)
    assert law("aten.relu.default", x) == 0


@pytest.mark.parametrize("target", ["aten.exp.default", "aten.add.Tensor"])
def test_a_large_result_has_the_sizes_of_its_rows(target: str) -> None:
    x = normal(1, 200, 1000)
    x[:, :100] = 0.0  # where every result is exact
    args = [x] if target == "aten.exp.default" else [x, normal(1000, seed=1).round()]
    call = Limits().call
    node, value = Node("n", target, tuple(args)), call(target, args, {})
    (whole,) = sizes(node, args, {}, value, call)
    (last,) = sizes(node, [x[:, -20:], *args[1:]], {}, value[:, -20:], call)
    assert whole is not None
    assert last is not None
    torch.testing.assert_close(whole[:, -20:], last, rtol=1e-12, atol=0.0)
    exact = 1.0 if target == "aten.exp.default" else 0.0  # a function may round all, arithmetic only what is inexact
    assert bool((whole[:, :100] == exact).all())


@pytest.mark.parametrize("degrees", [1.0, 3.0, 17.0, 100.0, 990.0])
def test_allowances_are_quantiles_of_the_f_distribution(degrees: float) -> None:
    """With two degrees of freedom its tail has a closed form."""
    of_errors = degrees / 2 * (FALSE_ALARMS ** (-2 / degrees) - 1)
    assert allowance(2, degrees) == pytest.approx(math.sqrt(of_errors) / THRESHOLD, rel=1e-9)
    below = (1 - FALSE_ALARMS) ** (2 / degrees)
    of_samples = 2 / degrees * below / -math.expm1(2 / degrees * math.log1p(-FALSE_ALARMS))
    assert allowance(degrees, 2) == pytest.approx(math.sqrt(of_samples) / THRESHOLD, rel=1e-9)
    assert chance(2) == pytest.approx(math.sqrt(-math.log(FALSE_ALARMS)), rel=1e-9)


def test_ties_round_to_the_other_step_only_what_is_near_to_the_middle() -> None:
    steps = torch.tensor([0.4990, 0.5010, -0.4990, 0.4970, 7.4993, 0.0, 3.0, math.inf, math.nan])
    for step in (1.0, 0.25):
        value = steps * step
        moved = value + Ties(0).moves(value, step) * DELTA * step
        other = torch.tensor([1.0, 0.0, -1.0, 0.0, 8.0, 0.0, 3.0, math.inf, math.nan])
        torch.testing.assert_close((moved / step).round().float(), other, equal_nan=True)
    assert bool((Ties(0).moves(torch.zeros(2), torch.tensor(0.0)) == 0).all())


def test_the_norms_of_a_weight_are_those_of_what_it_holds_now() -> None:
    """They are computed once for each weight; another one may get its id, or it may be written to."""
    node, x, ones = Node("n", "aten.linear.default"), torch.ones(1, 4), torch.ones(2, 4)

    def size(weight: Tensor) -> Tensor:
        (found,) = sizes(node, [x, weight], {}, torch.zeros(1, 2), Limits().call)
        assert found is not None
        return found

    weight = ones.clone()
    once = size(weight)
    assert torch.equal(size(weight), once)
    weight.mul_(2)
    assert torch.equal(size(weight), size(2 * ones))
    assert bool((size(weight) > 1.9 * once).all())
