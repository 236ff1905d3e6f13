"""How large the result of an operator will be, known before it runs.

Graphs may come from somebody else's file, and one ``aten.full`` in it may ask for a terabyte. Most operators can't give
more than they take; for the others the size of the result follows from shapes and arguments, by the rules below. What
has no rule is asked of torch's meta device, which computes shapes only but takes seconds to import.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import torch

Size = tuple[int, int]
"""Elements of the result (an upper bound), and multiply-adds for them."""
Rule = Callable[[list[Any]], Size]

# No result has more elements than all arguments together (pooling: than a small multiple of them).
_KEEP_NAMES: Final = """
_adaptive_avg_pool2d_backward _cdist_backward _conj_physical _local_scalar_dense _log_softmax _softmax
_native_batch_norm_legit _native_batch_norm_legit_no_training _to_copy _unsafe_view abs acos acosh alias alias_copy
all amax amin any argmax argmin argsort asin asinh atan atanh avg_pool1d avg_pool2d avg_pool3d batch_norm
bitwise_not ceil celu chunk clone copy cos cosh cumprod cumsum dequantize detach detach_copy diagonal
diagonal_copy dropout elu empty_like erf erfc erfinv exp exp2 expm1 fill flatten flip floor frac full_like gather
gelu glu group_norm hardshrink hardsigmoid hardswish hardtanh index_put instance_norm isfinite isinf isnan isneginf
isposinf layer_norm leaky_relu lgamma lift_fresh_copy log log10 log1p log2 log_sigmoid log_softmax logical_not logit
logsumexp masked_select max_pool1d max_pool2d max_pool2d_with_indices max_pool3d max_pool3d_with_indices mean median
mish narrow narrow_copy native_dropout native_group_norm native_layer_norm neg nonzero ones_like permute
permute_copy pixel_shuffle pixel_unshuffle positive prod rand_like randn_like reciprocal relu relu6 reshape rms_norm
roll round rsqrt scalar_tensor scatter scatter_add scatter_reduce select select_copy select_scatter selu sgn sigmoid
sign signbit silu sin sinh slice slice_copy slice_scatter softmax softplus softshrink softsign sort split split_copy
split_with_sizes split_with_sizes_copy sqrt square squeeze squeeze_copy std sum t t_copy tan tanh tensor_split
threshold topk transpose transpose_copy tril triu trunc unbind unbind_copy unsqueeze unsqueeze_copy var var_mean
view view_as_complex_copy view_as_real_copy view_copy zeros_like
"""
_ELEMENTWISE_NAMES: Final = """
add addcdiv addcmul atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor clamp clamp_max
clamp_min copysign div eq expand_as floor_divide fmax fmin fmod ge gt hypot le lerp logaddexp logical_and logical_or
logical_xor lt masked_fill masked_scatter max maximum min minimum mul ne pow prelu remainder rsub sub true_divide
where xlogy
"""
_KEEP: Final = frozenset(_KEEP_NAMES.split())
_ELEMENTWISE: Final = frozenset(_ELEMENTWISE_NAMES.split())
_FACTORIES: Final = frozenset(("empty", "full", "ones", "rand", "randn", "zeros", "expand", "expand_copy"))
_UNLIMITED: Final = (1 << 62, 0)


def size_rule(target: str) -> Rule | None:
    """The rule for a target such as ``aten.add.Tensor``; None if its result can't be larger than its arguments.

    Rules take the values of all arguments in the order of the operator's schema.
    """
    namespace, name = target.split(".")[:2]
    if namespace in ("dim_order_ops", "quantized_decomposed"):
        return _rows_by_width if "embedding" in name else None
    if namespace == "aten":
        if name in _KEEP or (name in ("max", "min") and not target.endswith("other")):
            return None
        if name in _ELEMENTWISE:
            return _broadcast
        if name in _FACTORIES:
            return _sizes
        if name in _RULES:
            return _RULES[name]
        if "pad" in name:
            return _padded
        if "upsample" in name:
            return _resized
    return functools.partial(_by_meta, target)


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    import torch

    if isinstance(values, torch.Tensor):
        yield values
    elif isinstance(values, (list, tuple)):
        for value in values:
            yield from _tensors(value)


def _numbers(values: Any) -> Iterator[float]:
    if isinstance(values, (int, float)) and not isinstance(values, bool):
        yield values
    elif isinstance(values, (list, tuple)):
        for value in values:
            yield from _numbers(value)


def _broadcast(values: list[Any]) -> Size:
    shapes = [tensor.shape for tensor in _tensors(values)]
    if all(shape == shapes[0] for shape in shapes):
        return (math.prod(shapes[0]) if shapes else 1), 0
    elements = 1
    for axis in range(max(map(len, shapes))):
        elements *= max(shape[-1 - axis] for shape in shapes if len(shape) > axis)
    return elements, 0


def _together(values: list[Any]) -> Size:
    """`cat` and `stack`: a list may name one tensor many times."""
    return sum(tensor.numel() for tensor in _tensors(values)), 0


def _sizes(values: list[Any]) -> Size:
    """A list of sizes says it all; in `expand`, −1 keeps the tensor's own."""
    sizes = next((value for value in values if isinstance(value, (list, tuple))), ())
    given = math.prod(int(abs(size)) or 1 for size in _numbers(sizes))
    return given * max((tensor.numel() for tensor in _tensors(values)) if -1 in sizes else (1,)), 0


def _product(values: list[Any]) -> Size:
    """Every list or number multiplies the tensor: `repeat`, `unfold`, `one_hot`."""
    elements = math.prod(max(tensor.numel(), 1) for tensor in _tensors(values))
    return elements * math.prod(int(max(abs(number), 1)) for number in _finite(values)), 0


def _finite(values: list[Any]) -> list[float]:
    numbers = [number for number in _numbers(values) if math.isfinite(number)]
    return numbers[:64] if len(numbers) <= 64 else [float(1 << 62)]


def _arange(values: list[Any]) -> Size:
    numbers = [value for value in values[:3] if isinstance(value, (int, float))]
    if not all(math.isfinite(number) for number in numbers):
        return _UNLIMITED
    start, end = (0, numbers[0]) if len(numbers) == 1 else numbers[:2]
    step = numbers[2] if len(numbers) > 2 else 1
    return (int(abs((end - start) / step)) + 1 if step else 1), 0


def _rows_by_width(values: list[Any]) -> Size:
    """One row of the first tensor for each element of an index: `embedding`, `index_select`."""
    table, *indices = _tensors(values)
    rows = max((index.numel() for index in indices), default=1)
    return rows * (table.numel() // max(min(table.shape, default=1), 1)), 0


def _indexed(values: list[Any]) -> Size:
    table, indices = values[0], [*_tensors(values[1])]
    places = _broadcast(indices)[0] if indices else 1
    return places * max(table.numel() // max(math.prod(table.shape[: len(indices)]), 1), 1) + table.numel(), 0


def _matrices(values: list[Any]) -> Size:
    """The last two tensors are multiplied; every row of one meets every column of the other."""
    pair = [tensor for tensor in _tensors(values) if tensor.dim()][:3]
    left, right = pair[-2:] if len(pair) > 1 else (pair * 2)[:2]
    return _multiplied(left, right)


def _multiplied(left: torch.Tensor, right: torch.Tensor) -> Size:
    depth = max(left.shape[-1], 1)
    batches = right.shape[0] if right.dim() == 3 == left.dim() and right.shape[0] == left.shape[0] else 1
    elements = (left.numel() // depth) * (right.numel() // depth + 1) // max(batches, 1)
    return elements, elements * depth


def _linear(values: list[Any]) -> Size:
    tensors = [*_tensors(values)]
    return _multiplied(tensors[0], tensors[1]) if len(tensors) > 1 and tensors[0].dim() else _UNLIMITED


def _attention(values: list[Any]) -> Size:
    query, key, value = [*_tensors(values)][:3]
    rows = query.numel() // max(query.shape[-1], 1)
    scores = rows * key.shape[-2]
    return scores + rows * value.shape[-1], scores * (query.shape[-1] + value.shape[-1])


def _convolution(values: list[Any]) -> Size:
    x, weight, _, stride, padding, dilation, transposed, extra = values[:8]
    depth = weight.dim() - 2
    steps, pads, holes, more = (
        [*_numbers(item if isinstance(item, (list, tuple)) else [item])] for item in (stride, padding, dilation, extra)
    )
    pixels = 1
    for axis in range(depth):
        step, pad, hole, rest = (part[min(axis, len(part) - 1)] if part else 1 for part in (steps, pads, holes, more))
        size = x.shape[axis - depth]
        wide = (size - 1) * step + rest if transposed else (size + 2 * abs(pad)) // max(step, 1)
        reach = abs(hole) * weight.shape[axis + 2] if transposed else 0
        pixels *= max(int(wide + reach) + 1, 1)
    batch = x.shape[0] if x.dim() > depth + 1 else 1
    channels = weight.shape[0] * (weight.shape[1] if transposed else 1)
    elements = batch * channels * pixels
    return elements, elements * (weight.numel() // max(weight.shape[0], 1))


def _sampled(values: list[Any]) -> Size:
    """`grid_sampler`: every channel at each place of the grid, whose last axis holds the coordinates."""
    x, grid = values[:2]
    return x.shape[1] * (grid.numel() // max(grid.shape[-1], 1)), 0


def _padded(values: list[Any]) -> Size:
    shape = [*values[0].shape]
    pads = [*_numbers(values[1])]
    for position, pad in enumerate(pads[: 2 * len(shape)]):
        shape[-1 - position // 2] += max(int(pad), 0)
    return math.prod(shape), 0


def _resized(values: list[Any]) -> Size:
    shape = [*values[0].shape]
    lists = [[*_numbers(value)] for value in values[1:] if isinstance(value, (list, tuple))]
    sizes = lists[0] if lists else []
    if not sizes or not all(math.isfinite(size) for size in sizes):
        return _UNLIMITED
    whole = all(isinstance(size, int) for size in sizes)
    outer = math.prod(shape[: max(len(shape) - len(sizes), 0)])
    inner = shape[-len(sizes) :]
    target = sizes if whole else [size * abs(factor) + 1 for size, factor in zip(inner, sizes, strict=False)]
    return int(outer * math.prod(max(size, 1) for size in target)), 0


def _square(values: list[Any]) -> Size:
    """`eye`: rows, and columns if they differ."""
    rows, *more = _finite(values) or [1]
    return int(max(rows, 1)) * int(max(more[0] if more else rows, 1)), 0


_RULES: Final[Mapping[str, Rule]] = {
    **dict.fromkeys(("mm", "bmm", "addmm", "baddbmm", "matmul", "dot", "mv", "addmv"), _matrices),
    **dict.fromkeys(
        ("repeat", "tile", "unfold", "unfold_copy", "one_hot", "repeat_interleave", "_cdist_forward"), _product
    ),
    **dict.fromkeys(("index", "_unsafe_index"), _indexed),
    **dict.fromkeys(("embedding", "index_select"), _rows_by_width),
    **dict.fromkeys(("adaptive_avg_pool1d", "adaptive_avg_pool2d", "_adaptive_avg_pool2d"), _resized),
    **dict.fromkeys(("as_strided", "as_strided_copy"), _sizes),
    **dict.fromkeys(("cat", "stack"), _together),
    "arange": _arange,
    "eye": _square,
    **dict.fromkeys(("grid_sampler_2d", "grid_sampler_3d", "grid_sampler"), _sampled),
    "linear": _linear,
    "convolution": _convolution,
    "scaled_dot_product_attention": _attention,
}


@functools.lru_cache(maxsize=4096)
def _meta_elements(target: str, shape_of_call: Any) -> int | None:
    """Elements of all results as the meta device tells them, None if it can't."""
    import torch

    from etviz.evaluation.operators import resolve

    def back(value: Any) -> Any:
        if isinstance(value, tuple) and value and value[0] == "tensor":
            return torch.empty_strided(value[1], value[2], dtype=value[3], device="meta")
        return [back(item) for item in value[1]] if isinstance(value, tuple) and value else value

    try:
        result = resolve(target)(*back(shape_of_call))
    except Exception:  # noqa: BLE001 - an operator may fail on the meta device in any way; then it tells nothing
        return None
    tensors = [*_tensors(result)]
    return (
        sum(tensor.numel() for tensor in tensors) if all(tensor.device.type == "meta" for tensor in tensors) else None
    )


def _by_meta(target: str, values: list[Any]) -> Size:
    """Ask the meta device; where it can't tell, the product of everything is the bound."""
    import torch

    def shape(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return ("tensor", tuple(value.shape), value.stride(), value.dtype)
        return ("list", tuple(map(shape, value))) if isinstance(value, (list, tuple)) else value

    elements = _meta_elements(target, shape(list(values))) if [*_tensors(values)] else None
    return (elements, 0) if elements is not None else _product(values)


def in_order(names: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """The values of a call's arguments in the order of its schema, None for those that are left out."""
    if not kwargs:
        return list(args)
    return [*args, *(kwargs.get(name) for name in names[len(args) :])]
