"""The references of executorch's language operators against its kernels, over shapes, positions, masks and types."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from executorch.extension.llm.custom_ops import custom_ops as _  # noqa: F401 - registers them
from torch.nn import functional

from etviz.errors import PairingError
from etviz.evaluation.law import sizes
from etviz.evaluation.operator_rules import resolve
from etviz.graph.ir import Node
from etviz.graph.language_operators import LANGUAGE_OPERATORS

CLOSE = {torch.float32: 2e-6, torch.bfloat16: 2e-2, torch.float16: 2e-3}


def _normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def _whole(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(-100, 100, shape, dtype=torch.int8, generator=torch.Generator().manual_seed(seed))


def _kernel(target: str) -> Any:
    library, name, overload = target.split(".")
    return getattr(getattr(getattr(torch.ops, library), name), overload)


def both(target: str, *args: Any, writes: int = 0) -> tuple[Any, Any]:
    """What the reference and the kernel give for the same arguments; of the kernel what it writes comes after."""
    names = LANGUAGE_OPERATORS[target].names
    given = [value.clone() if isinstance(value, torch.Tensor) else value for value in args]
    found, result = resolve(target)(*args), _kernel(target)(*given)
    if not writes:
        return found, result
    written = [given[names.index(name)] for name in LANGUAGE_OPERATORS[target].writes]
    return found, (written[0] if len(written) == 1 else [result, *written])


def assert_close(found: Any, expected: Any, tolerance: float = 2e-6) -> None:
    pairs = zip(found, expected, strict=True) if isinstance(found, (list, tuple)) else [(found, expected)]
    for one, other in pairs:
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        torch.testing.assert_close(one.double(), other.double(), rtol=tolerance, atol=tolerance, equal_nan=True)


@pytest.mark.parametrize("second", [False, True])
def test_what_attention_gives_is_contiguous_as_in_the_program(*, second: bool) -> None:
    """A model that was exported views it in other shapes."""
    query = _normal(1, 3, 4, 8)
    grids = (None,) * 6
    plain = resolve("llama.custom_sdpa.default")(query, query, query, 0)
    quantized = resolve("llama.custom_quantized_sdpa.default")(
        query, query, query, 0, None, 0.0, False, None, *grids, second
    )
    assert plain.is_contiguous()
    assert quantized.is_contiguous()


def test_schemas_are_those_that_are_registered() -> None:
    for target, known in LANGUAGE_OPERATORS.items():
        schema = _kernel(target)._schema
        assert tuple(argument.name for argument in schema.arguments) == known.names
        written = [a.name for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]
        assert tuple(written) == known.writes
        operator: Any = resolve(target)
        ours = operator.schema.arguments
        assert [(str(a.type), a.default_value) for a in ours] == [
            ("int" if str(a.type) == "SymInt" else str(a.type), a.default_value) for a in schema.arguments
        ]


@pytest.mark.parametrize("dtype", list(CLOSE))
@pytest.mark.parametrize(
    ("batch", "steps", "heads", "shared", "width", "room", "start"),
    [
        (1, 1, 4, 4, 16, 8, 0),
        (1, 1, 4, 2, 16, 8, 7),
        (2, 3, 8, 2, 8, 10, 2),
        (1, 5, 6, 1, 32, 40, 33),
        (1, 33, 2, 1, 64, 70, 5),
    ],
)
def test_attention(
    dtype: torch.dtype, batch: int, steps: int, heads: int, shared: int, width: int, room: int, start: int
) -> None:
    query, key, value = (
        _normal(batch, steps, heads, width).to(dtype),
        _normal(batch, room, shared, width, seed=1).to(dtype),
        _normal(batch, room, shared, width, seed=2).to(dtype),
    )
    target = "llama.custom_sdpa.default"
    for causal, scale in ((True, None), (False, None), (True, 0.3)):
        assert_close(*both(target, query, key, value, start, None, 0.0, causal, scale), CLOSE[dtype])
    for mask in (_normal(steps, room, seed=3), torch.where(_normal(steps, room, seed=4) > 0, 0.0, -math.inf)):
        mask[:, 0] = 0.0
        assert_close(*both(target, query, key, value, 0, mask, 0.0, False), CLOSE[dtype])


@pytest.mark.parametrize("mean", [0.0, 0.5, 10.0])
@pytest.mark.parametrize(("steps", "start", "width"), [(1, 63, 16), (1, 7, 128), (40, 20, 32), (4, 0, 64)])
def test_the_law_of_noise_knows_the_error_of_the_kernel(steps: int, start: int, width: int, mean: float) -> None:
    """Values with a mean have the error of the sum by which all terms are divided."""
    query, key, value = (
        _normal(2, steps, 8, width),
        _normal(2, 64, 2, width, seed=1),
        _normal(2, 64, 2, width, seed=2) + mean,
    )
    args = (query, key, value, start, None, 0.0, True)
    exact = resolve("llama.custom_sdpa.default")(*(item.double() for item in args[:3]), *args[3:])
    found = _kernel("llama.custom_sdpa.default")(*args)
    node = Node("attention", "llama.custom_sdpa.default", args)
    (size,) = sizes(node, args, {}, found, lambda target, given, named: resolve(target)(*given, **named))
    assert size is not None
    noise = 2.0**-24 * float(size.square().mean().sqrt())
    error = float((found.double() - exact).square().mean().sqrt())
    assert 0.05 < error / noise < 3


def test_random_attentions_are_within_the_law() -> None:
    """Positions, heads and widths at random, values with means up to 10: against upstream's kernel."""
    target, ratios = "llama.custom_sdpa.default", list[float]()
    generator = torch.Generator().manual_seed(0)
    for at in range(100):
        steps, start = (int(torch.randint(low, high, (), generator=generator)) for low, high in ((1, 40), (0, 200)))
        width, mean = (8, 16, 32, 64)[at % 4], (0.0, 0.5, 2.0, 10.0)[at // 25]
        query, key, value = (
            torch.randn(1, count, 4, width, generator=generator) for count in (steps, start + steps, start + steps)
        )
        args = (query, key, value + mean, start, None, 0.0, True)
        reference, found = both(target, *args)
        (size,) = sizes(
            Node("attention", target, args), args, {}, reference, lambda t, given, named: resolve(t)(*given, **named)
        )
        assert size is not None
        error = float((found - reference).double().square().mean().sqrt())
        ratios.append(error / (2.0**-24 * float(size.double().square().mean().sqrt())))
    assert max(ratios) < 1  # 1.2 if the terms did not share that error


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize(
    ("steps", "width", "columns", "shared", "kept"), [(1, 16, 8, 1, 0.0), (16, 16, 16, 2, 3.0), (64, 32, 16, 1, 8.0)]
)
def test_the_law_of_noise_knows_the_error_of_the_delta_rule(
    seed: int, each: bool, steps: int, width: int, columns: int, shared: int, kept: float
) -> None:
    """Each rounding is uniform in half a unit, so its RMS is 1/√3 of the law's; `kept` is the logit of the decay."""
    query, key, value = (
        functional.normalize(_normal(2, 2 * shared, steps, width, seed=seed), dim=-1),
        functional.normalize(_normal(2, 2, steps, width, seed=seed + 10), dim=-1),
        _normal(2, 2, steps, columns, seed=seed + 20),
    )
    decay = torch.sigmoid(_normal(2, 2, steps, *([width] if each else []), seed=seed + 30) + kept)
    beta = torch.sigmoid(_normal(2, 2, steps, seed=seed + 40))
    args = (query, key, value, decay, beta, _normal(2, 2, width, columns, seed=seed + 50))
    target = "llama.gated_delta_rule.default"
    exact, found = resolve(target)(*(item.double() for item in args)), _kernel(target)(*args)
    node = Node("delta", target, args)
    law = sizes(node, args, {}, found, lambda name, given, named: resolve(name)(*given, **named))
    for own, true, size in zip(found, exact, law, strict=True):
        assert size is not None
        error = float((own.double() - true).square().mean().sqrt())
        assert 0.3 < error / (2.0**-24 * float(size.square().mean().sqrt())) < 1


def test_attention_of_a_row_that_sees_nothing_is_undefined() -> None:
    query, key = _normal(1, 2, 2, 8), _normal(1, 4, 2, 8)
    mask = torch.tensor([[-math.inf] * 4, [0.0] * 4])
    found, kernel = both("llama.custom_sdpa.default", query, key, key, 0, mask)
    assert_close(found, kernel)
    assert found[0, 0].isnan().all()


@pytest.mark.parametrize("second", [False, True])
@pytest.mark.parametrize(
    ("batch", "steps", "heads", "shared", "start"), [(1, 1, 4, 2, 5), (1, 3, 4, 4, 0), (2, 4, 8, 2, 3)]
)
def test_attention_on_grids(batch: int, steps: int, heads: int, shared: int, start: int, second: bool) -> None:
    shapes = [(batch, steps, heads, 16), (batch, 10, shared, 16), (batch, 10, shared, 16)]
    values = [_whole(*shape, seed=at) for at, shape in enumerate(shapes)]
    grids = []
    for at, shape in enumerate(shapes):
        rows = (*shape[:-1], 1)
        grids += [_whole(*rows, seed=5 + at) // 10, _normal(*rows, seed=9 + at).abs() * 0.01 + 1e-3]
    if second:
        values, grids = ([item.transpose(1, 2).contiguous() for item in items] for items in (values, grids))
    target = "llama.custom_quantized_sdpa.default"
    assert_close(*both(target, *values, start, None, 0.0, True, None, *grids, second))
    if not second:
        assert_close(*both(target, *values, 0, _normal(steps, 10), 0.0, False, 0.2, *grids, second))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8, torch.float64])
def test_cache_updates(dtype: torch.dtype) -> None:
    cache, value = _whole(2, 8, 3, 4).to(dtype), _whole(2, 3, 3, 4, seed=1).to(dtype)
    for start in (0, 2, 5):
        assert_close(*both("llama.update_cache.default", value, cache, start, writes=1))
    places = torch.tensor([[6, 7, 0], [1, 2, 3]])
    assert_close(*both("llama.update_cache_with_indices.default", value, cache, 0, places, writes=1))
    across = value.transpose(1, 2).contiguous(), cache.transpose(1, 2).contiguous()
    assert_close(*both("executorch.update_cross_attn_cache.default", *across))


def test_a_position_beyond_the_cache_is_an_error() -> None:
    cache, value = torch.zeros(1, 4, 1, 2), torch.ones(1, 2, 1, 2)
    with pytest.raises(PairingError, match="4 positions is written from 3 to 4"):
        resolve("llama.update_cache.default")(value, cache, 3)
    with pytest.raises(PairingError, match="4 positions is written at"):
        resolve("llama.update_cache_with_indices.default")(value, cache, 0, torch.tensor([[3, 4]]))


@pytest.mark.parametrize("start", [0, 3])
def test_attention_that_updates_its_caches(start: int) -> None:
    caches = _normal(1, 8, 2, 16, seed=1), _normal(1, 8, 2, 16, seed=2)
    step = _normal(1, 3, 4, 16), _normal(1, 3, 2, 16, seed=3), _normal(1, 3, 2, 16, seed=4)
    assert_close(*both("llama.sdpa_with_kv_cache.default", *step, *caches, start, 3, None, 0.0, True, writes=1))


@pytest.mark.parametrize("size", [1, 2, 8, 64, 28, 56, 448])
def test_hadamard(size: int) -> None:
    assert_close(*both("llama.fast_hadamard_transform.default", _normal(3, size)), 1e-5)


@pytest.mark.parametrize("name", ["gated_delta_rule", "channelwise_gated_delta_rule"])
@pytest.mark.parametrize("steps", [1, 4, 35])
@pytest.mark.parametrize("shared", [1, 2])
@pytest.mark.parametrize("each", [False, True])
def test_gated_delta_rule(name: str, steps: int, shared: int, each: bool) -> None:
    query, key, value = (
        _normal(2, 2 * shared, steps, 5),
        _normal(2, 2, steps, 5, seed=1),
        _normal(2, 2, steps, 6, seed=2),
    )
    key = key / key.norm(dim=-1, keepdim=True)
    decay = torch.sigmoid(_normal(2, 2, steps, *([5] if each else []), seed=3))
    beta, state = torch.sigmoid(_normal(2, 2, steps, seed=4)), _normal(2, 2, 5, 6, seed=5)
    assert_close(*both(f"llama.{name}.default", query, key, value, decay, beta, state), 2e-5)


def test_copies() -> None:
    x = _normal(2, 3)
    assert_close(*both("llama.fallback.default", x))
    assert_close(resolve("executorch.alias.default")(x, x + 1), (x, x + 1))
