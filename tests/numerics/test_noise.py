"""Measured noise against computations that know nothing of it: sums in other orders, and formulas of propagation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from etviz.evaluation import noise
from etviz.evaluation.buffers import LARGE
from etviz.evaluation.evaluator import Evaluator
from etviz.evaluation.limits import Limits
from etviz.evaluation.noise import PASSES, STEP, Growth, Rounding, allowance, local_noise, total_noise
from etviz.evaluation.values import flat_values
from etviz.graph.ir import Graph, Input, Meta, Node, Ref, Tag
from etviz.graph.quantize_ops import unpacked_weights

HALF_ULP = {torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}


def noise_of(target: str, *args: Any, **kwargs: Any) -> float:
    """The noise of the first result of one operator."""
    evaluator, graph = Evaluator(Graph("forward"), {}), Graph("forward")
    node = Node("node", target, args, kwargs)
    value = evaluator.operator(graph, node, args, kwargs)
    node.outputs = described(value)
    return local_noise(lambda rounding: evaluator.again(graph, node, args, kwargs, rounding), value)[0]


def described(value: Any) -> tuple[Meta, ...]:
    tensors = (item for item in flat_values(value) if isinstance(item, Tensor))
    return tuple(Meta(str(item.dtype).removeprefix("torch."), tuple(item.shape)) for item in tensors)


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
    assert factor(noise_of("aten.mm.default", a, b), orders(products)) < 2


@pytest.mark.parametrize("terms", [64, 1024])
def test_sums_and_means_as_summed_one_after_another(terms: int) -> None:
    x = normal(2000, terms)
    expected = orders(x.numpy())
    assert factor(noise_of("aten.sum.dim_IntList", x, [1]), expected) < 2
    assert factor(noise_of("aten.mean.dim", x, [1]), expected / terms) < 2


@pytest.mark.parametrize("terms", [64, 1024, 8192])
def test_sums_of_one_sign_as_summed_one_after_another(terms: int) -> None:
    """Partial sums are of the result's size then: an RMS norm's mean of squares, a mean behind a relu."""
    x = normal(500, terms).abs()
    expected = orders(x.numpy())
    assert factor(noise_of("aten.sum.dim_IntList", x, [1]), expected) < 2
    assert factor(noise_of("aten.mean.dim", x, [1]), expected / terms) < 2


@pytest.mark.parametrize("target", ["mean.dim", "mm.default", "linear.default", "native_group_norm.default"])
def test_arguments_that_are_named_are_perturbed_as_well(target: str) -> None:
    """Serialized graphs name them all."""
    x, weight = normal(4, 8192), normal(300, 8192, seed=1)
    given: dict[str, dict[str, Any]] = {
        "mean.dim": {"self": x, "dim": [1]},
        "mm.default": {"self": x, "mat2": weight.t()},
        "linear.default": {"input": x, "weight": weight},
        "native_group_norm.default": {
            **{"input": x.view(2, 4, -1) + 5.0, "weight": None, "bias": None},
            **{"N": 2, "C": 4, "HxW": 4096, "group": 2, "eps": 1e-5},
        },
    }
    kwargs = given[target]
    named, by_place = noise_of(f"aten.{target}", **kwargs), noise_of(f"aten.{target}", *kwargs.values())
    assert named == by_place > 0.0


def test_roundings_of_very_long_sums_do_not_cancel_out() -> None:
    """The error is that of adding one element after the other, and not the root of their number."""
    x = torch.full((3, 1 << 20), 0.1)
    one, number = x[:1], x.shape[1]
    expected = abs(float(summed(one.numpy(), np.arange(number))[0]) - float(one.double().sum()))
    assert expected > 10 * math.sqrt(number) / 4 * 2.0**-24 * float(one.sum())
    assert noise_of("aten.sum.dim_IntList", x, [1]) == pytest.approx(expected, rel=0.05)
    assert noise_of("aten.mean.dim", one, [0, 1]) == pytest.approx(allowance(PASSES) * expected / number, rel=0.05)


def test_long_products_of_one_sign_as_summed_one_after_another() -> None:
    a, b = normal(20, 8192).abs(), normal(8192, 10, seed=1).abs()
    products = (a[:, None, :] * b.t()[None]).numpy()
    assert factor(noise_of("aten.mm.default", a, b), orders(products)) < 2


def test_convolution_as_summed_one_after_another() -> None:
    x, weight = normal(1, 8, 12, 12), normal(16, 8, 3, 3, seed=1)
    patches = torch.nn.functional.unfold(x, 3)[0].T
    products = (patches[:, None, :] * weight.flatten(1)[None]).numpy()
    found = noise_of("aten.convolution.default", x, weight, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    assert factor(found, orders(products)) < 2


@pytest.mark.parametrize("dtype", HALF_ULP)
@pytest.mark.parametrize(("target", "function"), [("exp", torch.exp), ("mul", None), ("tanh", torch.tanh)])
def test_one_rounding_is_half_a_unit(target: str, function: Any, dtype: torch.dtype) -> None:
    x, y = normal(5000, dtype=dtype), normal(5000, dtype=dtype, seed=1)
    value = x * y if function is None else function(x)
    found = noise_of("aten.mul.Tensor", x, y) if function is None else noise_of(f"aten.{target}.default", x)
    # Between an error that is uniform in half a unit, and that with the perturbed result rounded once more.
    assert rms(value) * HALF_ULP[dtype] / math.sqrt(3) <= found <= 2 * rms(value) * HALF_ULP[dtype]


@pytest.mark.parametrize("count", [24, 96, 384])
def test_one_rounding_to_the_neighbour_is_noise_where_none_was_met(count: int) -> None:
    """A correct backend may round one of a few values to its neighbour, though no pass happened to do that."""
    grid = (0.05, 0, -128, 127, torch.int8)
    nodes = [
        Node("q", "quantized_decomposed.quantize_per_tensor.default", (Ref("x"), *grid), {}),
        Node("dq", "quantized_decomposed.dequantize_per_tensor.default", (Ref("q"), *grid), {}),
        Node("gelu", "aten.gelu.default", (Ref("dq"),), {}),
    ]
    graph = Graph("forward", [Input("x", "user", "")], nodes, [Ref("gelu")])
    x = normal(count)
    evaluator = Evaluator(graph, {})
    (value,) = evaluator.run([x], lambda node, value: None)
    found = local_noise(lambda rounding: evaluator.call_again(graph, [x], rounding), [value])[0]
    on_grid = (x / 0.05).round() * 0.05
    neighbours = [torch.nn.functional.gelu(on_grid + step) - value for step in (-0.05, 0.05)]
    assert factor(found, rms(torch.stack(neighbours)) / math.sqrt(count)) < 2


@pytest.mark.parametrize("rows", [64, 4096, 20_000])
def test_a_neighbour_on_the_last_grid_is_noise_though_most_of_the_grids_hardly_matter(rows: int) -> None:
    """One of 16 values on the last grid may be off by its step, whatever it is that 1024 values before it can do.

    Any twelfth of them may, where they are the value between two instructions, be there as many as you like before.
    """
    fine, coarse = (0.03, 0, -128, 127, torch.int8), (0.07, 0, -128, 127, torch.int8)
    nodes = [
        Node("q", "quantized_decomposed.quantize_per_tensor.default", (Ref("x"), *fine), {}),
        Node("dq", "quantized_decomposed.dequantize_per_tensor.default", (Ref("q"), *fine), {}),
        Node("row", "aten.select_copy.int", (Ref("dq"), 0, 5), {}),
        Node("q_1", "quantized_decomposed.quantize_per_tensor.default", (Ref("row"), *coarse), {}),
        Node("dq_1", "quantized_decomposed.dequantize_per_tensor.default", (Ref("q_1"), *coarse), {}),
    ]
    graph, x = Graph("forward", [Input("x", "user", "")], nodes, [Ref("dq_1")]), normal(rows, 16)
    evaluator = Evaluator(graph, {})
    (value,) = evaluator.run([x], lambda node, value: None)
    one, any_of_them = (
        local_noise(lambda rounding: evaluator.call_again(graph, [x], rounding), [value], several=several)[0]
        for several in (False, True)
    )
    assert rows > 64 or factor(one, 0.07 / math.sqrt(16)) < 2
    assert factor(any_of_them, 0.07 / math.sqrt(12)) < 1.5


def test_what_is_put_on_its_own_grid_again_keeps_its_noise() -> None:
    """A quantized program has many such pairs, which round nothing."""
    grid = (0.1, 0, -128, 127, torch.int8)
    nodes = [
        Node(f"{kind}_{at}", f"quantized_decomposed.{kind}_per_tensor.default", (Ref(before), *grid), {})
        for at in (1, 2)
        for kind, before in (("quantize", "x" if at == 1 else "dequantize_1"), ("dequantize", f"quantize_{at}"))
    ]
    graph = Graph("forward", [Input("x", "user", "")], nodes, [Ref("dequantize_2")])
    wanted = [(0, f"dequantize_{at}") for at in (1, 2)]
    found, _ = total_noise(lambda: Evaluator(graph, {}), [[normal(50, 64)]], wanted)
    first, second = found.values()
    assert first == second
    assert factor(first, 0.1 / math.sqrt(12)) < 1.1


def test_a_few_values_on_a_grid_have_noise_whatever_they_are() -> None:
    """Where there are 16, every twelfth that rounds to its neighbour may be none of them."""
    grid = (0.1, 0, -128, 127, Tag("dtype", "int8"))
    nodes = [
        Node("q", "quantized_decomposed.quantize_per_tensor.default", (Ref("x"), *grid), {}),
        Node("dq", "quantized_decomposed.dequantize_per_tensor.default", (Ref("q"), *grid), {}),
        Node("y", "aten.mul.Tensor", (Ref("dq"), 2.0), {}, outputs=(Meta("float32", (16,), None),)),
    ]
    nodes[0].outputs = (Meta("int8", (16,), None),)
    graph = Graph("forward", [Input("x", "user")], nodes, [Ref("y")])
    for seed in range(20):
        found, _ = total_noise(lambda: Evaluator(graph, {}), [[normal(16, seed=seed)]], [(0, "y")])
        assert factor(found[0, "y", 0], 0.2 / math.sqrt(12)) < 3


@pytest.mark.parametrize("target", ["relu", "neg", "abs", "alias_copy", "detach"])
def test_what_does_not_round_has_no_noise(target: str) -> None:
    assert noise_of(f"aten.{target}.default", normal(100)) == 0.0


@pytest.mark.parametrize("size", [16, 64])
def test_places_in_a_grid_sampler_are_rounded(size: int) -> None:
    """Where it samples is computed in half precision, which moves it by a part of an element: as torch's own kernel."""
    image, places = normal(1, 4, size, size, dtype=torch.float16), torch.rand(1, size, size, 2) * 1.8 - 0.9
    arguments = (0, 0, False)
    exact = torch.ops.aten.grid_sampler_2d.default(image.double(), places.half().double(), *arguments)
    found = torch.ops.aten.grid_sampler_2d.default(image, places.half(), *arguments)
    assert factor(noise_of("aten.grid_sampler_2d.default", image, places.half(), *arguments), rms(found - exact)) < 2


def test_what_follows_a_grid_is_granted_what_its_rounding_becomes_there() -> None:
    """A softmax of values that may each be off by s/√12: its derivative says how far it may be."""
    grid = (0.1, 0, -128, 127, Tag("dtype", "int8"))
    graph = Graph(
        "forward",
        [Input("x", "user")],
        [
            Node("q", "quantized_decomposed.quantize_per_tensor.default", (Ref("x"), *grid), {}),
            Node("dq", "quantized_decomposed.dequantize_per_tensor.default", (Ref("q"), *grid), {}),
            Node("y", "aten._softmax.default", (Ref("dq"), -1, False), {}),
        ],
        [Ref("y")],
    )
    x = normal(200, 8)
    growth = Growth()
    found, outputs = total_noise(lambda: Evaluator(graph, {}), [[x]], [(0, "y")], {0: growth})
    y = torch.softmax((x / 0.1).round() * 0.1, -1).double()
    jacobian = torch.diag_embed(y) - y[:, :, None] * y[:, None]
    expected = 0.1 / math.sqrt(12) * math.sqrt(float(jacobian.square().sum((1, 2)).mean()) / 8)
    assert factor(found[0, "y", 0], expected) < 1.3
    assert outputs == [[found[0, "y", 0]]] == [growth.imposed]


def test_what_follows_a_grid_that_is_chosen_is_granted_the_rounding_to_that_one() -> None:
    """Its scale is that of the plain values, whatever rounding to a coarse grid before makes of the largest of them."""
    x = normal(400)
    coarse, narrow = float(x.abs().max()), (-128, 127, Tag("dtype", "int8"))
    grid = (coarse, 0, *narrow)
    given = (Ref("scale"), Ref("zero_point"), *narrow)
    nodes = [
        Node("before", "quantized_decomposed.quantize_per_tensor.default", (Ref("x"), *grid), {}),
        Node("values", "quantized_decomposed.dequantize_per_tensor.default", (Ref("before"), *grid), {}),
        Node("sum", "aten.add.Tensor", (Ref("values"), Ref("x")), {}),
        Node("chosen", "quantized_decomposed.choose_qparams.tensor", (Ref("sum"), -128, 127, 1e-9, narrow[2]), {}),
        Node("scale", "getitem", (Ref("chosen"), 0), {}),
        Node("zero_point", "getitem", (Ref("chosen"), 1), {}),
        Node("q", "quantized_decomposed.quantize_per_tensor.tensor", (Ref("sum"), *given), {}),
        Node("dq", "quantized_decomposed.dequantize_per_tensor.tensor", (Ref("q"), *given), {}),
    ]
    growth = Growth()
    graph = Graph("forward", [Input("x", "user", "", Meta("float32", (400,), None))], nodes, [Ref("dq")])
    total_noise(lambda: Evaluator(graph, {}), [[x]], [], {0: growth})
    y = (x / coarse).round() * coarse + x
    step = float(y.max().clamp_min(0) - y.min().clamp_max(0)) / 255
    assert growth.imposed == [pytest.approx(step / math.sqrt(12), rel=0.2)]


def test_what_is_exact_has_no_noise() -> None:
    """Powers of two, masks and comparisons: a product may be exact where another one rounds."""
    x, lowest = normal(100), torch.finfo(torch.float32).min
    assert noise_of("aten.mul.Tensor", x, torch.full((100,), 0.25)) == 0.0
    assert noise_of("aten.mul.Tensor", (x > 0).float() * 0, torch.full((100,), lowest)) == 0.0
    assert noise_of("aten.gt.Tensor", x, normal(100, seed=1)) == 0.0


def test_cancellation_has_the_noise_of_what_cancelled() -> None:
    """The mean of centred values is nearly zero, and off by what the sum of numbers of their size loses."""
    x = normal(2000, 256)
    centred = x - x.mean(1, keepdim=True)
    found = noise_of("aten.mean.dim", centred, [1])
    assert factor(found, orders(centred.numpy()) / 256) < 2
    assert found > 2.0**-24 * rms(centred.mean(1))


def test_layer_norm_allows_its_textbook_form_and_little_more() -> None:
    x = normal(500, 64) * 3 + 2
    mean = x.mean(-1, keepdim=True)
    textbook = (x - mean) / ((x - mean).square().mean(-1, keepdim=True) + 1e-5).sqrt()
    exact = torch.nn.functional.layer_norm(x.double(), (64,))
    found = noise_of("aten.native_layer_norm.default", x, [64], None, None, 1e-5)
    assert rms(textbook - exact) <= found < 4 * rms(textbook - exact)


def test_quantize_flips_as_often_as_its_values_lie_near_the_middle_of_two_steps() -> None:
    """A value at a distance t of the middle flips with the probability (δ − t) / 2δ, so a share of δ/2 does."""
    x, scale = normal(400_000), 0.02
    arguments = (scale, 0, -128, 127, torch.int8)
    found = noise_of("quantized_decomposed.quantize_per_tensor.default", x, *arguments)
    inside = float((x.abs() < 127 * scale).float().mean())
    assert found == pytest.approx(math.sqrt(inside * STEP / 2), rel=0.2)


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
    alone = noise_of("aten.mm.default", x, first), noise_of("aten.mm.default", inner, second)
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


def test_noise_of_one_element_is_that_of_five_roundings() -> None:
    graph, constants = chain(normal(64, 64, seed=1), normal(64, 100, seed=2))
    graph.nodes.append(Node("mean", "aten.mean.dim", (Ref("outer"), None), {}, instruction=2))
    graph.outputs, x = [Ref("mean")], normal(30, 64)
    noise, outputs = total_noise(lambda: Evaluator(graph, constants), [[x]], [(0, "mean"), (0, "outer")])
    plain = Evaluator(graph, constants).run([x])[0]
    others = []
    for seed in range(PASSES):
        evaluator = Evaluator(graph, constants)
        evaluator.rounding = Rounding(seed)
        others.append(float(evaluator.run([x])[0]) - float(plain))
    assert noise[0, "mean", 0] == outputs[0][0] == pytest.approx(allowance(PASSES) * rms(others), rel=1e-9)


@pytest.mark.parametrize("elements", [1, 2, 3, 8])
def test_errors_of_a_few_elements_are_seldom_beyond_three_times_their_noise(elements: int) -> None:
    """Errors that follow the same distribution as the perturbations are no fault, however few there are."""
    errors = np.random.default_rng(0).normal(size=(100_000, 1 + PASSES, elements))
    error, *others = np.moveaxis(np.sqrt((errors**2).mean(2)), 1, 0)
    noise = allowance(PASSES * elements) * np.sqrt(np.mean(np.square(others), 0))
    assert (error > 3 * noise).mean() < 1.6e-3


@pytest.mark.parametrize(("sizes", "allowed"), [([1.0], 10.5), ([100.0] + [1.0] * 63, 10.5), ([1.0] * 64, 1.0)])
def test_where_two_passes_tell_it_samples_count_by_their_size(sizes: list[float], allowed: float) -> None:
    """A token that is much larger than the others is one sample a pass, not 64."""
    values = torch.tensor(sizes)
    errors = values * torch.randn(3000, 3, len(sizes), generator=torch.Generator().manual_seed(0))
    far = 0
    for error, *others in errors:
        found = noise.Noise(even=False)
        for other in others:
            found.add(values.double() + other, values.double())
        assert found.rms == pytest.approx(allowed * rms(torch.stack(others)))
        far += rms(error) > 3 * found.rms
    assert far <= 6


def test_large_operands_are_perturbed_as_small_ones() -> None:
    """What that makes of the sums is added to them, which leaves no trace."""
    a, b = normal(40, 512), normal(512, 2200, seed=1)
    large, small = noise_of("aten.mm.default", a, b), noise_of("aten.mm.default", a, b[:, :100].contiguous())
    assert b.numel() >= LARGE > b[:, :100].numel()
    assert large == pytest.approx(small, rel=0.05)


@pytest.mark.parametrize("target", ["aten.linear.default", "aten.addmm.default", "aten.convolution.default"])
def test_a_large_weight_perturbs_each_sum_by_its_own_products(target: str) -> None:
    """By ``c·ε/2·√(Σa²b²)``, as perturbing each of its elements would; here the sums differ a hundredfold."""
    x, bias = normal(1, 1024, seed=1), normal(1100, seed=2)
    weight = normal(1100, 1024, seed=3) * torch.logspace(-1, 1, 1100)[:, None]
    args: tuple[Any, ...] = (x, weight, bias)
    if target == "aten.addmm.default":
        args = (bias, x, weight.t())
    if target == "aten.convolution.default":
        args = (x[..., None], weight[..., None], bias, [1], [0], [1], False, [0], 1)
    evaluator, graph, node = Evaluator(Graph("forward"), {}), Graph("forward"), Node("node", target, args)
    node.outputs = described(evaluator.operator(graph, node, args, {}))
    plain = evaluator.operator(graph, node, args, {}).flatten()
    others = [evaluator.again(graph, node, args, {}, Rounding(seed)).flatten() - plain for seed in range(100)]
    found = torch.stack(others).double().std(0).numpy()
    a, b = x.double().numpy(), weight.double().numpy()
    size = math.sqrt(1024) / 4 * float(np.finfo(np.float32).eps) / 2
    expected = size * np.sqrt(2 * (a**2 * b**2).sum(1) + 2 * bias.double().numpy() ** 2)
    assert np.median(found / expected) == pytest.approx(1.0, abs=0.1)
    assert (found / expected).min() > 0.7
    assert (found / expected).max() < 1.4


def test_where_more_comes_with_an_operand_the_sums_have_the_same_noise_without_squares() -> None:
    a, b = normal(200, 1024).double().numpy(), normal(1100, 1024, seed=1).double().numpy()
    x, weight = torch.from_numpy(a).float(), torch.from_numpy(b).float()
    node, found = Node("node", "aten.linear.default", (x, weight)), []
    for seed in range(4):
        (operand, other, *_), ending = Rounding(seed).product(node, [x, weight], 1024, drowned=True)
        assert other is weight
        value = torch.from_numpy(operand.double().numpy() @ b.T)
        found.append((ending(value, None).numpy() - a @ b.T) / np.sqrt((a**2) @ (b**2).T))
    expected = math.sqrt(1024) / 4 * float(np.finfo(np.float32).eps) / 2 * math.sqrt(2)
    assert np.sqrt(np.mean(np.square(found), (0, 1))) / expected == pytest.approx(1.0, abs=0.2)
    half_ulp = HALF_ULP[torch.float32]
    for times, drowned in ((20, False), (2000, True)):
        off = x * (1 + times * 8 * half_ulp * torch.sign(normal(200, 1024, seed=2)))
        off[3] = x[3] = 0.0
        assert Rounding(0).drowned([off, weight], [x, weight], 1024) is drowned
    off[4] = x[4]
    assert not Rounding(0).drowned([off, weight], [x, weight], 1024)


@pytest.mark.parametrize("delegated", [False, True])
@pytest.mark.parametrize("alone", [False, True])
def test_lanes_side_by_side_are_those_one_after_the_other(
    alone: bool, delegated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has roundings of its own, whichever way they are evaluated, and buffers that it carries on."""
    graph, constants = chain(normal(64, 64, seed=1), normal(64, 100, seed=2))
    graph.inputs.append(Input("kept", "buffer", "kept", None))
    meta = (Meta("float32", (), None),)
    graph.nodes += [
        Node("mean", "aten.mean.dim", (Ref("outer"), None), {}, instruction=2, outputs=meta),
        Node("sum", "aten.add.Tensor", (Ref("mean"), Ref("kept")), {}, instruction=3, outputs=meta),
    ]
    graph.outputs, graph.mutations = [Ref("sum")], {"kept": "sum"}
    constants["kept"], x = torch.tensor(1.0), normal(30, 64)
    wanted = [(run, name) for run in (0, 1) for name in ("mean", "sum")]
    if delegated:
        graph = _in_a_delegate(graph, "mean", "sum")
    if alone:
        monkeypatch.setattr(noise, "_lanes", lambda graph, names: 1)
    found, outputs = total_noise(lambda: Evaluator(graph, constants), [[x], [x + 1]], wanted)
    assert outputs[1][-1] == found[1, "sum", 0] > 0.0
    assert found == pytest.approx(_one_after_the_other(graph, constants, [x, x + 1]), rel=1e-9)


def _in_a_delegate(inner: Graph, *names: str) -> Graph:
    """All of a graph as one delegate, which gives out some of its values."""
    inner.outputs, meta = [Ref(name) for name in names], (Meta("float32", (), None),)
    graph = Graph("forward", [item for item in inner.inputs if item.kind == "user"])
    graph.nodes = [Node("call", "delegate", (Ref("x"),), outputs=meta * len(names), subgraphs=("inner",))]
    graph.nodes += [
        Node(name, "getitem", (Ref("call"), at), instruction=0, outputs=meta) for at, name in enumerate(names)
    ]
    graph.outputs, graph.subgraphs = [Ref(name) for name in names], {"inner": inner}
    return graph


def _one_after_the_other(graph: Graph, constants: dict[str, Tensor], inputs: list[Tensor]) -> dict[Any, float]:
    plain: dict[Any, float] = {}
    others: dict[Any, list[float]] = {}
    for seed in (None, *range(PASSES)):
        evaluator = Evaluator(graph, constants)
        evaluator.rounding = Rounding(seed) if seed is not None else None
        for run, x in enumerate(inputs):

            def seen(node: Node, value: Any, run: int = run, seed: int | None = seed) -> None:
                if node.name not in ("mean", "sum"):
                    return
                if seed is None:
                    plain[run, node.name, 0] = float(value.reference)
                else:
                    others.setdefault((run, node.name, 0), []).append(float(value.reference))

            evaluator.run([x], seen)
    return {key: allowance(PASSES) * rms([value - plain[key] for value in values]) for key, values in others.items()}


def test_what_is_not_finite_in_sums_of_large_operands_stays_as_it_is() -> None:
    x, weight = normal(4, 1024), normal(1100, 1024, seed=1)
    x[1, 5], weight[700, 2], x[3, 9] = math.inf, -math.inf, math.nan
    evaluator, graph = Evaluator(Graph("forward"), {}), Graph("forward")
    node = Node("node", "aten.linear.default", (x, weight))
    plain = evaluator.operator(graph, node, node.args, {})
    node.outputs = described(plain)
    other = evaluator.again(graph, node, node.args, {}, Rounding(0))
    finite = torch.isfinite(plain)
    assert torch.equal(other.isinf(), plain.isinf())
    assert torch.equal(other.isnan(), plain.isnan())
    assert 0.0 < float((other - plain)[finite].abs().max()) < 1e-3


@pytest.mark.parametrize(
    ("target", "values"),
    [
        ("aten.add.Tensor", {"self": normal(64), "other": normal(64, seed=1)}),
        ("aten.sqrt.default", {"self": normal(64).abs()}),
        ("aten.softmax.int", {"self": normal(4, 64), "dim": -1}),
        (
            "aten.native_layer_norm.default",
            {"input": normal(4, 64), "normalized_shape": [64], "weight": None, "bias": None, "eps": 1e-5},
        ),
        ("aten.mm.default", {"self": normal(8, 64), "mat2": normal(64, 8, seed=1)}),
    ],
)
def test_arguments_that_are_named_give_the_same_noise(target: str, values: dict[str, Any]) -> None:
    """As serialized graphs name all of them."""
    assert noise_of(target, **values) == pytest.approx(noise_of(target, *values.values()), rel=1e-12)
    assert noise_of(target, **values) > 0


@pytest.mark.parametrize(("together", "least", "most"), [(64, 0.001, 0.015), (1, 0.0, 0.002)])
def test_elements_that_err_together_count_as_one(together: int, least: float, most: float) -> None:
    """Of 64 correct values with one error, or one each, few are beyond 3 times what five passes found."""
    generator, value = torch.Generator().manual_seed(0), torch.zeros(64, dtype=torch.float64)

    def drawn() -> Tensor:
        return torch.randn(64 // together, generator=generator, dtype=torch.float64).repeat_interleave(together)

    beyond = []
    for _ in range(2000):
        found = noise.Noise()
        for _ in range(PASSES):
            found.add(drawn(), value)
        beyond.append(float(drawn().square().mean().sqrt()) > 3 * found.rms)
    assert least <= np.mean(beyond) <= most
