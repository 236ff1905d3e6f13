"""Upstream's quantization and embeddings without torchao, whose import takes longer than a decoder.

The same steps in the same order give the same bits. Other types and arguments are left to upstream.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

import torch

from etviz import native
from etviz.evaluation.further_axis import in_memory
from etviz.tensors.blocks import dtype_name
from etviz.upstream.operators import operator_of, parsed_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


PER_TENSOR: Final = "quantized_decomposed.quantize_per_tensor.default"
_EMBEDDINGS: Final = {"embedding_2bit": (0, 2, 4, 6), "embedding_4bit": (4, 0), "embedding_byte": (0,)}
"""By name: where the elements of a byte begin, in their order."""
_TABLE: Final = "Tensor weight, Tensor weight_scales, Tensor? weight_zero_points"
_ENDS: Final = "Scalar? quant_min=None, Scalar? quant_max=None"
_PLAIN: Final = "Tensor input, float scale, int zero_point, int quant_min, int quant_max, ScalarType dtype"
_SCHEMAS: Final = {
    "torchao.choose_qparams_affine.default": (
        "(Tensor? input, str mapping_type, SymInt[] block_size, ScalarType target_dtype, "
        f"{_ENDS}, float? eps=None, ScalarType? scale_dtype=None, ScalarType? zero_point_dtype=None, "
        "bool keepdim=False) -> (Tensor, Tensor)"
    ),
    "torchao.quantize_affine.default": (
        "(Tensor input, SymInt[] block_size, Tensor scale, Tensor? zero_point, ScalarType output_dtype, "
        f"{_ENDS}) -> Tensor"
    ),
    "torchao.dequantize_affine.default": (
        "(Tensor input, SymInt[] block_size, Tensor scale, Tensor? zero_point, ScalarType input_dtype, "
        f"{_ENDS}, ScalarType output_dtype=6) -> Tensor"
    ),
    PER_TENSOR: f"({_PLAIN}) -> Tensor",
    "quantized_decomposed.dequantize_per_tensor.default": f"({_PLAIN}, *, ScalarType? out_dtype=None) -> Tensor",
    **{
        f"quantized_decomposed.{name}.{overload}": (
            f"({_TABLE}, int weight_quant_min, int weight_quant_max, Tensor indices{more}) -> Tensor"
        )
        for name in _EMBEDDINGS
        for overload, more in (("default", ""), ("dtype", ", *, ScalarType? dtype=None"))
    },
}
_NARROW: Final = (torch.float32, torch.float16, torch.bfloat16)
_RANGES: Final = {
    "uint8": (0, 255),
    "int8": (-128, 127),
    "int16": (-(2**15), 2**15 - 1),
    "int32": (-(2**31), 2**31 - 1),
}


class AffineOperator:
    def __init__(self, target: str) -> None:
        self._target = target
        self._schema = parsed_schema(target, _SCHEMAS[target])
        self._function = _FUNCTIONS[target]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        result = self._function(*args, **kwargs)
        return self.overload(*args, **kwargs) if result is None else result

    @property
    def overload(self) -> Any:
        return operator_of(self._target)


def _choose(
    input: torch.Tensor,  # noqa: A002 - the operator's own names
    mapping_type: str,
    block_size: Sequence[int],
    target_dtype: torch.dtype,
    quant_min: float | None = None,
    quant_max: float | None = None,
    eps: float | None = None,
    scale_dtype: torch.dtype | None = None,
    zero_point_dtype: torch.dtype | None = None,
    keepdim: bool = False,
) -> Any:
    ends = _ends(target_dtype, quant_min, quant_max)
    if not _is_plain(input, block_size) or ends is None or mapping_type not in ("SYMMETRIC", "ASYMMETRIC"):
        return None
    low, high = ends
    eps = torch.finfo(input.dtype).smallest_normal if eps is None else eps
    sizes, axes = _apart(input.shape, block_size)
    if not axes:  # torch takes that for all axes
        return None
    value = input.view(sizes)
    least, most = torch.amin(value, dim=axes, keepdim=keepdim), torch.amax(value, dim=axes, keepdim=keepdim)
    least, most = torch.min(least, torch.zeros_like(least)), torch.max(most, torch.zeros_like(most))
    if mapping_type == "SYMMETRIC":
        scale = torch.max(-least, most) / (float(high - low) / 2)
        zero_point = torch.full_like(scale, int((high + low + 1) / 2))
        scale = torch.clamp(scale, min=eps)
    else:
        scale = torch.clamp((most - least) / float(high - low), min=eps)
        zero_point = torch.clamp(low - _round(least / scale), low, high)
        zero_point_dtype = zero_point_dtype or torch.int32
    if keepdim:
        shape = [size // block for size, block in zip(input.shape, block_size, strict=True)]
        scale, zero_point = scale.reshape(shape), zero_point.reshape(shape)
    return scale.to(scale_dtype or input.dtype), zero_point.to(zero_point_dtype)


def _quantize(
    input: torch.Tensor,  # noqa: A002
    block_size: Sequence[int],
    scale: torch.Tensor,
    zero_point: torch.Tensor | None,
    output_dtype: torch.dtype,
    quant_min: float | None = None,
    quant_max: float | None = None,
) -> torch.Tensor | None:
    ends, grid = _ends(output_dtype, quant_min, quant_max), _grid(input, block_size, scale, zero_point)
    narrow = input.dtype in _NARROW
    value, step, zero = grid or (None, None, None)
    if ends is None or value is None or step is None or zero is None or not narrow:
        return None
    return torch.clamp(_round(value * (1.0 / step)) + zero, *ends).view(input.shape).to(output_dtype)


def _dequantize(
    input: torch.Tensor,  # noqa: A002
    block_size: Sequence[int],
    scale: torch.Tensor,
    zero_point: torch.Tensor | None,
    input_dtype: torch.dtype,
    quant_min: float | None = None,
    quant_max: float | None = None,
    output_dtype: torch.dtype | None = None,
) -> torch.Tensor | None:
    output_dtype = output_dtype or torch.float32
    ends, grid = _ends(input_dtype, quant_min, quant_max), _grid(input, block_size, scale, zero_point)
    narrow = output_dtype in (torch.float32, torch.float16, torch.bfloat16)
    if ends is None or grid is None or input.dtype != input_dtype or not narrow:
        return None
    value, step, zero = grid
    value = value.to(output_dtype, copy=True)
    value = value - zero.to(output_dtype) if zero is not None else value
    return (value * step).view(input.shape).to(output_dtype)


def _to_grid(
    input: torch.Tensor,  # noqa: A002
    scale: float,
    zero_point: int,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
) -> torch.Tensor | None:
    if input.dtype != torch.float32 or not scale or _ends(dtype, quant_min, quant_max) is None:
        return None
    return in_memory(lambda x: rounded_to_grid(x, scale, zero_point, quant_min, quant_max, dtype), input)


def rounded_to_grid(
    x: torch.Tensor,
    scale: float,
    zero_point: int,
    low: int,
    high: int,
    dtype: torch.dtype,
    *,
    numbers: torch.Tensor | None = None,
    part: float = 0.0,
) -> torch.Tensor:
    """Elements that are not 0 move by ``numbers · part`` before."""
    x = x if numbers is None else x.expand(numbers.shape)
    together = [tensor for tensor in (x, numbers) if tensor is not None]
    if all(map(_lies_flat, together)):
        made, first = torch.empty_like(x, dtype=dtype), 0 if numbers is None else numbers.data_ptr()
        grid = part, 1.0 / scale, zero_point, low, high
        if native.to_grid(x.data_ptr(), first, x.numel(), grid, made.data_ptr(), dtype_name(dtype)):
            return made
    moved = x if numbers is None else x + (numbers * part) * (x != 0)
    return torch.clamp(torch.round(moved * (1.0 / scale)) + zero_point, low, high).to(dtype)


def _from_grid(
    input: torch.Tensor,  # noqa: A002
    scale: float,
    zero_point: int,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
    *,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor | None:
    if input.dtype != dtype or out_dtype not in (None, torch.float32) or _ends(dtype, quant_min, quant_max) is None:
        return None

    def numbers(q: torch.Tensor) -> torch.Tensor:
        made = torch.empty_like(q, dtype=torch.float32)
        given = q.data_ptr(), q.numel(), dtype_name(dtype), scale, zero_point
        if _lies_flat(q) and native.from_grid(*given, made.data_ptr()):
            return made
        return (q.to(torch.float32) - zero_point) * scale

    return in_memory(numbers, input)


def _embedding(
    starts: Sequence[int],
    weight: torch.Tensor,
    weight_scales: torch.Tensor,
    weight_zero_points: torch.Tensor | None,
    weight_quant_min: int,
    weight_quant_max: int,
    indices: torch.Tensor,
    dtype: torch.dtype | None = None,
) -> torch.Tensor | None:
    if weight_scales.dtype not in _NARROW:
        raise TypeError(f"scales of {weight_scales.dtype}")
    bits, scales, zeros = 8 // len(starts), weight_scales, weight_zero_points
    packed = weight.dtype == torch.uint8 or (weight.dtype == torch.int8 and bits == 8)
    alike = zeros is None or (zeros.dtype == scales.dtype and zeros.shape == scales.shape)
    if not packed or not alike or weight.dim() != 2 or not 0 < scales.dim() < 3 or len(scales) != len(weight):
        return None
    groups = scales.numel() // max(1, len(scales))
    half = 1 << (bits - 1)
    known = bits == 8 or (weight_quant_min, weight_quant_max) == (-half, half - 1)
    if not known or not groups or len(starts) * weight.shape[1] % groups or len(starts) * weight.shape[1] <= groups:
        return None
    rows, steps = torch.embedding(weight, indices), torch.embedding(scales.view(-1, groups), indices)
    if bits < 8:
        parts = [rows >> start & (1 << bits) - 1 for start in starts]
        rows = torch.stack(parts, -1).flatten(-2).to(torch.int8) - half
    value = rows.unflatten(-1, (groups, -1))
    if zeros is not None:
        value = value - torch.embedding(zeros.view(-1, groups), indices).unsqueeze(-1)
    return (value * steps.unsqueeze(-1)).flatten(-2).to(dtype or scales.dtype)


_FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "torchao.choose_qparams_affine.default": _choose,
    "torchao.quantize_affine.default": _quantize,
    "torchao.dequantize_affine.default": _dequantize,
    PER_TENSOR: _to_grid,
    "quantized_decomposed.dequantize_per_tensor.default": _from_grid,
    **{
        f"quantized_decomposed.{name}.{overload}": functools.partial(_embedding, starts)
        for name, starts in _EMBEDDINGS.items()
        for overload in ("default", "dtype")
    },
}
TARGETS: Final = frozenset(_FUNCTIONS)
POINTWISE: Final = frozenset(target for target, function in _FUNCTIONS.items() if function in (_to_grid, _from_grid))
BLOCKS: Final = {
    "torchao.choose_qparams_affine.default": 2,
    "torchao.quantize_affine.default": 1,
    "torchao.dequantize_affine.default": 1,
}
"""Which argument has a block's sizes."""


def _lies_flat(value: torch.Tensor) -> bool:
    return value.is_contiguous() and not value.requires_grad


def _ends(dtype: torch.dtype, low: float | None, high: float | None) -> tuple[float, float] | None:
    known = _RANGES.get(str(dtype).removeprefix("torch."))
    if known is None:
        return None
    ends = known[0] if low is None else low, known[1] if high is None else high
    return ends if known[0] <= ends[0] and ends[1] <= known[1] else None


def _round(value: torch.Tensor) -> torch.Tensor:
    rounded = torch.round(value.detach())
    return rounded if not value.requires_grad else _straight_through().apply(value, rounded)


@functools.cache
def _straight_through() -> Any:
    class StraightThrough(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, value: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
            return other

        @staticmethod
        def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
            return gradients[0], None

    return StraightThrough


def _is_plain(value: Any, block: Sequence[int]) -> bool:
    if not isinstance(value, torch.Tensor):
        return False
    pairs = zip(value.shape, block, strict=False)
    return len(block) == value.dim() and all(part > 0 and size % part == 0 for size, part in pairs)


def _apart(shape: Sequence[int], block: Sequence[int]) -> tuple[list[int], list[int]]:
    sizes, axes = list[int](), list[int]()
    for size, part in zip(shape, block, strict=True):
        if part not in (size, 1):
            sizes.append(size // part)
        if part != 1:
            axes.append(len(sizes))
        sizes.append(size if part in (size, 1) else part)
    return sizes, axes


def _grid(
    value: torch.Tensor, block: Sequence[int], scale: torch.Tensor, zero_point: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None] | None:
    empty = zero_point is not None and not zero_point.numel()
    if not _is_plain(value, block) or empty:
        return None
    sizes, axes = _apart(value.shape, block)
    shared = [1 if at in axes else size for at, size in enumerate(sizes)]
    return value.view(sizes), scale.view(shared), None if zero_point is None else zero_point.view(shared)
