"""Rounding and its inverse in float64: what the quantize and dequantize operators compute, with a derivative.

Quantized values are float64 tensors of whole numbers here. Rounding happens in float32, as in the program, so that
the same element falls on the same side of a tie.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from etviz.numerics.operators import resolve

if TYPE_CHECKING:
    import torch

_QUANTIZE: Final = "quantized_decomposed.quantize_per_"
_DEQUANTIZE: Final = "quantized_decomposed.dequantize_per_"
_LIMITS: Final = {"tensor": 3, "channel": 4, "token": 3, "channel_group": 3}
"""Position of the lowest quantized value among the arguments, by granularity."""
_STEPS: Final = frozenset(f"aten.{name}.default" for name in ("round", "floor", "ceil", "trunc"))


def is_rounding(target: str) -> bool:
    """True for operators whose derivative is 0 almost everywhere though they only round."""
    return target in _STEPS or (target.startswith(_QUANTIZE) and _granularity(target) in _LIMITS)


def is_dequantize(target: str) -> bool:
    """True for operators that turn quantized integers into floats."""
    return target.startswith(_DEQUANTIZE) and _granularity(target) in _LIMITS


def positional(target: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """All arguments of an operator by position; those that have to be named are left out."""
    schema = resolve(target)._schema  # pyright: ignore[reportFunctionMemberAccess]
    names = [argument.name for argument in schema.arguments if not argument.kwarg_only]
    defaults = {argument.name: argument.default_value for argument in schema.arguments}
    return [*args, *(kwargs.get(name, defaults[name]) for name in names[len(args) :])]


def round_through(target: str, args: Sequence[Any]) -> torch.Tensor:
    """The value of a rounding operator, with the straight-through derivative: 1/scale inside of the range.

    Parameters
    ----------
    target
        Name of the operator, one for which `is_rounding` is true.
    args
        Its arguments by position; the first is a float64 tensor.
    """
    x = args[0]
    if target in _STEPS:
        return _through(x, resolve(target)(x.detach()), 1.0)
    narrow = [a.float() if _is_float64(a) and i < 2 else a for i, a in enumerate([x.detach(), *args[1:]])]
    rounded = resolve(target)(*narrow).double()
    if not x.requires_grad:
        return rounded
    scale, zero = _grid(target, args, x)
    low, high = (args[_LIMITS[_granularity(target)] + i] for i in (0, 1))
    place = x.detach() / scale + zero
    inside = (place >= float(low) - 0.5) & (place <= float(high) + 0.5)
    return _through(x, rounded, inside.double() / scale)


def widen_dequantize(target: str, args: Sequence[Any]) -> torch.Tensor:
    """``(q − zero_point)·scale`` in float64, whatever type the program asks for."""
    q = args[0].double()
    scale, zero = _grid(target, args, q)
    return (q - zero) * scale


def _granularity(target: str) -> str:
    return target.split(".")[1].partition("_per_")[2]


def _is_float64(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor) and value.dtype == torch.float64


def _grid(target: str, args: Sequence[Any], like: torch.Tensor) -> tuple[Any, Any]:
    """Scale and zero point, of a shape that broadcasts with the value."""
    return _spread(target, args, args[1], like), _spread(target, args, 0 if args[2] is None else args[2], like)


def _spread(target: str, args: Sequence[Any], value: Any, like: torch.Tensor) -> Any:
    import torch

    if not isinstance(value, torch.Tensor):
        return value
    value = value.detach().double()
    kind = _granularity(target)
    if kind == "channel":
        shape = [1] * like.dim()
        shape[args[3]] = -1
        return value.reshape(shape)
    if kind == "channel_group":
        group = like.shape[-1] // max(value.shape[-1], 1)
        return value.repeat_interleave(group, -1)
    return value


def _through(x: torch.Tensor, rounded: torch.Tensor, slope: Any) -> torch.Tensor:
    """`rounded` with the derivative `slope` by `x`."""
    if not x.requires_grad:
        return rounded
    linear = x * slope
    return linear + (rounded - linear.detach())
