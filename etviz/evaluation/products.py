"""Products with quantized weights, which are dequantized some rows at a time.

Each block of rows is multiplied with all operands
(reference, runtime, perturbed) while it is in the cache.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch

from etviz.evaluation.unpacked import Quantized
from etviz.graph.quantize_ops import LINEAR

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


def weight_of(target: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Quantized | None:
    if target != LINEAR:
        return None
    weight = kwargs.get("weight") if len(args) < 2 else args[1]
    return weight if isinstance(weight, Quantized) else None


def is_cut(weight: Quantized, given: Sequence[Any]) -> bool:
    return all(bias is None or bias.shape == weight.shape[:1] for bias in given[2:])


def products(
    call: Callable[..., torch.Tensor], weight: Quantized, operands: Sequence[Sequence[Any]]
) -> list[torch.Tensor]:
    results = [_empty(given[0], weight) for given in operands]
    for rows, block in weight.rows():
        for result, given in zip(results, operands, strict=True):
            result[..., rows] = call(given[0], block, *_bias(given, rows))
    return results


def product(call: Callable[..., torch.Tensor], weight: Quantized, given: Sequence[Any]) -> torch.Tensor:
    """`LINEAR` with a gradient that does not keep the weight."""
    if not (given[0].requires_grad and torch.is_grad_enabled()):
        return products(call, weight, [given])[0]
    return _function().apply(given[0], call, weight, given[2:])


@functools.cache
def _function() -> Any:
    class ByRows(torch.autograd.Function):
        @staticmethod
        def forward(
            ctx: Any, x: torch.Tensor, call: Callable[..., torch.Tensor], weight: Quantized, bias: Sequence[Any]
        ) -> torch.Tensor:
            ctx.weight = weight
            return products(call, weight, [[x, None, *bias]])[0]

        @staticmethod
        def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
            (gradient,) = gradients
            product = gradient.new_zeros((*gradient.shape[:-1], ctx.weight.shape[1]))
            for rows, block in ctx.weight.rows():
                product += gradient[..., rows] @ block
            return product, None, None, None

    return ByRows


def _empty(x: torch.Tensor, weight: Quantized) -> torch.Tensor:
    return x.new_empty((*x.shape[:-1], weight.shape[0]), dtype=weight.dtype)


def _bias(given: Sequence[Any], rows: slice) -> list[Any]:
    return [None if bias is None else bias[rows] for bias in given[2:]]
