"""How large the result of an operator will be, and how much work it is, known before it runs.

Graphs may come from somebody else's file, and one ``aten.full`` in it may ask for a terabyte. So every operator that is
called has a rule here, by its class: what keeps the size of its tensor, what computes element by element on shapes that
fit each other, reductions, factories, views that list sizes, products. An operator without a rule is not called.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from etviz.graph.language_operators import LANGUAGE_OPERATORS
from etviz.upstream.libraries import is_users

if TYPE_CHECKING:
    import torch

Size = tuple[int, int]
"""Elements of the result (an upper bound), and multiply-adds for them."""
Rule = Callable[[list[Any]], Size]

# At most as many elements as the first tensor, with its type.
_KEEP_NAMES: Final = """
_assert_scalar _assert_tensor_metadata _conj_physical _local_scalar_dense _reshape_copy _to_copy _unsafe_view abs
absolute acos acosh adjoint alias alias_copy arccos arccosh arcsin arcsinh arctan arctanh asin asinh atan atanh
bitwise_not ceil celu channel_shuffle clone contiguous copy cos cosh cumprod cumsum deg2rad detach detach_copy
diagonal diagonal_copy digamma dropout elu empty_like erf erfc erfinv exp exp2 expm1 feature_dropout fill fix flatten
flip fliplr flipud floor frac full_like gelu glu hardshrink hardsigmoid hardswish hardtanh imag index_add index_copy
index_fill isfinite isinf isnan isneginf isposinf leaky_relu lgamma lift lift_fresh lift_fresh_copy log log10 log1p
log2 log_sigmoid logcumsumexp logical_not logit mH mT mish moveaxis movedim nan_to_num narrow narrow_copy neg negative
numpy_T ones_like permute permute_copy pixel_shuffle pixel_unshuffle positive rad2deg rand_like randn_like ravel real
reciprocal relu relu6 reshape reshape_as resolve_conj resolve_neg roll rot90 round rsqrt scalar_tensor scatter
scatter_add scatter_reduce select select_copy select_scatter selu sgn sigmoid sign signbit silu sin sinc sinh slice
slice_copy slice_scatter softplus softshrink special_erf special_erfc special_exp2 special_expit special_expm1
special_log1p special_logit special_ndtr special_round special_sinc sqrt square squeeze squeeze_copy swapaxes swapdims
sym_numel sym_size sym_storage_offset sym_stride t t_copy tan tanh threshold to transpose transpose_copy tril triu
trunc unflatten unsqueeze unsqueeze_copy view view_as view_as_complex view_as_complex_copy view_as_real
view_as_real_copy view_copy zero zeros_like _clone_dim_order _to_dim_order_copy _h2d_copy _d2h_copy
convert_element_type
"""
# The same, with the statistics that they normalise by, or with a mask.
_NORMALIZE_NAMES: Final = """
_fused_rms_norm _native_batch_norm_legit _native_batch_norm_legit_functional _native_batch_norm_legit_no_training
batch_norm group_norm instance_norm layer_norm native_batch_norm native_dropout native_group_norm native_layer_norm
rms_norm
"""
_REDUCE_NAMES: Final = """
all amax amin aminmax any argmax argmin linalg_vector_norm logsumexp max mean min norm prod std std_mean sum trace var
var_mean
"""
_ELEMENTWISE_NAMES: Final = """
_prelu_kernel _weight_norm add addcdiv addcmul arctan2 atan2 bitwise_and bitwise_left_shift bitwise_or
bitwise_right_shift bitwise_xor clamp clamp_max clamp_min clip complex copysign cosine_similarity cross dist div
divide eq expand_as float_power floor_divide fmax fmin fmod ge greater greater_equal gt heaviside hypot isclose
huber_loss l1_loss ldexp le lerp less less_equal linalg_cross logaddexp logaddexp2 logical_and logical_or logical_xor
lt masked_fill maximum minimum mse_loss mul multiply ne not_equal pairwise_distance polar pow prelu remainder rsub
smooth_l1_loss sub subtract take_along_dim special_xlogy true_divide where xlogy
"""
_TWO: Final = frozenset(("max", "min", "aminmax", "std_mean", "var_mean"))
_CONVERT: Final = frozenset(("sum", "prod", "mean", "norm", "linalg_vector_norm", "logsumexp"))
_COPY: Final = frozenset(("logsumexp",))
_FACTORY_NAMES: Final = (
    "new_empty new_full new_ones new_zeros empty full ones rand randn zeros broadcast_to expand expand_copy"
)
_QPARAMS_NAMES: Final = """
choose_qparams choose_qparams_per_token choose_qparams_per_token_asymmetric choose_qparams_symmetric
_choose_qparams_per_token_asymmetric_impl choose_qparams_affine choose_scale_float8
"""
_QUANTIZE_NAMES: Final = """
dequantize_per_channel dequantize_per_channel_group dequantize_per_tensor dequantize_per_token fake_quant_per_channel
quantize_per_channel quantize_per_channel_group quantize_per_tensor quantize_per_token dequantize_affine quantize_affine
"""
_ELEMENTS_OF_A_TENSOR: Final = 100
"""What a tensor takes beside its elements, in elements."""
_SORTED: Final = 64
"""Multiply-adds that sorting, or a Fourier transform, takes for each element."""
_VECTORS: Final = 64
"""Numbers of 32 bits that a softmax keeps for each place along its axis."""
_PRIME: Final = 24
"""What a Fourier transform of a length without small factors takes, in elements for each."""
_UNLIMITED: Final = (1 << 62, 0)


def size_rule(target: str) -> Rule | None:
    """The rule for a target such as ``aten.add.Tensor``; None if there is none.

    Rules take the values of all arguments in the order of the operator's schema.
    """
    namespace, name, overload = target.split(".")[:3]
    if target == "aten.where.default":
        return _places
    if target in LANGUAGE_OPERATORS or is_users(target):
        return _language
    if overload == "other" and name in ("max", "min"):
        return _broadcast
    if (namespace, name) in (("quantized_decomposed", "add"), ("quantized_decomposed", "add_relu")):
        return _broadcast
    if name in ("embedding_2bit", "embedding_4bit"):
        return _packed_rows
    return functools.partial(_reduced, name) if name in _REDUCE_NAMES.split() else _RULES.get(name)


def _is_tensor(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor)


def _is_dtype(value: Any) -> bool:
    import torch

    return isinstance(value, torch.dtype)


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


def _kept(values: list[Any]) -> Size:
    """As large as the first tensor."""
    return next((tensor.numel() for tensor in _tensors(values)), 1), 0


def _normalized(values: list[Any]) -> Size:
    """The same, and two statistics of which there may be as many."""
    return 3 * values[0].numel(), 0


def _softmaxed(values: list[Any]) -> Size:
    """Of 16 bits, it is computed in float32 on a vector's width at a time, however few are there."""
    x, axis = values[:2]
    wide = x.element_size() == 2 and x.dim() and -x.dim() <= axis < x.dim()
    return x.numel() + (_VECTORS * x.shape[axis] if wide else 0), 0


def _qparams(values: list[Any]) -> Size:
    """Scales and zero points, at most one for each element, and the rounding that they are found by."""
    return 3 * max(tensor.numel() for tensor in _tensors(values)), 0


def _reduced(name: str, values: list[Any]) -> Size:
    """What the axes that are not reduced leave, twice where there are two results; torch converts integers whole."""
    x = values[0]
    if not _is_tensor(x):
        return 1, 0
    place = 2 if name in ("norm", "linalg_vector_norm") else 1
    axes = values[place] if len(values) > place else None
    axes = [axes] if type(axes) is int else axes
    kept = 1
    if isinstance(axes, (list, tuple)):
        reduced = {axis % max(x.dim(), 1) for axis in axes}
        kept = math.prod(size for axis, size in enumerate(x.shape) if axis not in reduced)
    asked = any(_is_dtype(value) for value in values[1:])
    whole = x.numel() if asked or (name in _CONVERT and not (x.is_floating_point() or x.is_complex())) else 0
    return kept * (2 if name in _TWO else 1) + whole + (x.numel() if name in _COPY else 0), 0


def _taken(values: list[Any]) -> Size:
    """`gather`, `take`: as many as the index has."""
    return [*_tensors(values)][-1].numel(), 0


def _put(values: list[Any]) -> Size:
    """`index_put`: the tensor, and the places that its indices mean together."""
    x, indices = values[0], [*_tensors(values[1])]
    places = _broadcast(indices)[0] if indices else 1
    return x.numel() + 8 * (len(indices) + 1) * places // x.element_size() + 1, _SORTED * places


def _masked(values: list[Any]) -> Size:
    """`masked_select`, `masked_scatter`: two counts of 64 bits for each element."""
    return 3 * _broadcast(values)[0], 0


def _broadcast(values: list[Any]) -> Size:
    return _broadcast_size([tensor.shape for tensor in _tensors(values)]), 0


def _broadcast_size(shapes: Sequence[Sequence[int]]) -> int:
    if all(shape == shapes[0] for shape in shapes):
        return math.prod(shapes[0]) if shapes else 1
    elements = 1
    for axis in range(max(map(len, shapes))):
        elements *= max(shape[-1 - axis] for shape in shapes if len(shape) > axis)
    return elements


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
    """The axes without an index stay; an index of numbers stands for one axis, a mask for as many as it has."""
    import torch

    table, indices = values[0], list(values[1])
    shapes, axis, kept = [], 0, 1
    for index in indices:
        if index is None:
            kept, axis = kept * table.shape[axis], axis + 1
            continue
        mask = index.dtype in (torch.bool, torch.uint8)
        shapes.append((index.numel(),) if mask else index.shape)
        axis += index.dim() if mask else 1
    kept *= math.prod(table.shape[axis:])
    return max(kept, 1) * _broadcast_size(shapes) + table.numel(), 0


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
    return elements + _workspace(x, weight, pixels, batch), elements * (weight.numel() // max(weight.shape[0], 1))


def _workspace(x: torch.Tensor, weight: torch.Tensor, pixels: int, batch: int) -> int:
    """Elements into which torch unfolds the windows, where the library that needs no such copy has no kernel."""
    if x.element_size() in (2, 4) and x.is_floating_point():
        return 0
    return batch * pixels * x.shape[1 if x.dim() == weight.dim() else 0] * math.prod(weight.shape[2:])


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


def _parts(values: list[Any]) -> Size:
    """`split`, `chunk`, `unbind`: each part is a tensor of its own, which takes memory also without elements."""
    x, by, *axis = [*values, None]
    if isinstance(by, (list, tuple)):
        count = len(by) + 1
    else:
        place = axis[0] if len(values) > 2 and isinstance(axis[0], int) else 0
        size = x.shape[place] if -x.dim() <= place < x.dim() else 1
        count = -(-size // max(int(by), 1)) if isinstance(by, int) else size
    return x.numel() + _ELEMENTS_OF_A_TENSOR * count, 0


def _sections(values: list[Any]) -> Size:
    """`tensor_split`, `chunk`: the number of parts is given, or where they begin."""
    x, by = values[:2]
    count = len(by) + 1 if isinstance(by, (list, tuple)) else int(by) if isinstance(by, int) else x.numel()
    return x.numel() + _ELEMENTS_OF_A_TENSOR * max(count, 0), 0


def _unbound(values: list[Any]) -> Size:
    x, place = [*values, 0][:2]
    count = x.shape[place or 0] if -x.dim() <= (place or 0) < x.dim() else 1
    return x.numel() + _ELEMENTS_OF_A_TENSOR * count, 0


def _one_hot(values: list[Any]) -> Size:
    x, classes = [*values, -1][:2]
    if (classes is None or classes < 0) and x.numel():
        classes = 2 if x.device.type == "meta" else int(x.max()) + 1
    return x.numel() * max(classes or 1, 1), 0


def _repeated(values: list[Any]) -> Size:
    """`repeat_interleave`: a number for all, or a tensor with one for each."""
    tensors = [*_tensors(values[:2])]
    counts = tensors[-1]
    if len(tensors) == 1 and len(values) > 1 and isinstance(values[1], int):
        return counts.numel() * max(values[1], 1), 0
    if counts.device.type == "meta" or counts.is_floating_point():
        return _product(values)
    total = int(counts.clamp(min=0).double().sum())
    return (total if len(tensors) == 1 else tensors[0].numel() // max(counts.numel(), 1) * total), 0


def _sorted(values: list[Any]) -> Size:
    """`sort`, `topk`: values, and indices of 64 bits."""
    elements = sum(tensor.numel() for tensor in _tensors(values))
    return 2 * elements, _SORTED * elements


def _places(values: list[Any]) -> Size:
    """`nonzero`, `where`: the indices of every element that may be there."""
    x = next(_tensors(values))
    return x.numel() * max(x.dim(), 1), _SORTED * x.numel()


def _pooled(values: list[Any]) -> Size:
    """Every element of the result looks at a whole window."""
    x, window = values[:2]
    sizes = [max(int(size), 1) for size in _numbers(window if isinstance(window, (list, tuple)) else [window])]
    area = math.prod(sizes * (x.dim() - 1) if len(sizes) == 1 else sizes)
    return 2 * x.numel(), x.numel() * min(area, max(x.numel(), 1))


def _contracted(values: list[Any]) -> Size:
    """`einsum`: every combination of the indices, unless there are only two tensors."""
    equation, tensors = values[0], [*_tensors(values[1:])]
    sizes: dict[str, int] = {}
    sides = equation.replace(" ", "").split("->")
    for text, tensor in zip(sides[0].split(","), tensors, strict=False):
        head, dots, tail = text.partition("...")
        axes = tensor.shape
        named = [*zip(head, axes, strict=False), *zip(tail[::-1], axes[::-1], strict=False)]
        for letter, size in named:
            sizes[letter] = max(sizes.get(letter, 1), size)
        for place, size in enumerate(axes[len(head) : tensor.dim() - len(tail)] if dots else ()):
            sizes[f"...{place}"] = max(sizes.get(f"...{place}", 1), size)
    work = math.prod(sizes.values())
    if len(tensors) > 2 or len(sides) < 2:
        return work, work
    kept = math.prod(size for name, size in sizes.items() if name in sides[1] or name.startswith("."))
    return kept + sum(tensor.numel() for tensor in tensors), work


def _tensor_product(values: list[Any]) -> Size:
    """`tensordot`, `kron`, `outer`: at most every element with every other."""
    left, right, *axes = [*values]
    depth = 1
    if axes and isinstance(axes[0], (list, tuple)):
        depth = math.prod(left.shape[axis] for axis in axes[0] if -left.dim() <= axis < left.dim())
    every = left.numel() * right.numel() // max(depth, 1)
    return every // max(depth, 1), every


def _distances(values: list[Any]) -> Size:
    """`cdist`, `pdist`: every row to every row."""
    pair = [*_tensors(values)][:2]
    left, right = pair if len(pair) > 1 else pair * 2
    width = max(left.shape[-1], 1) if left.dim() else 1
    elements = left.numel() // width * max(right.shape[-2] if right.dim() > 1 else 1, 1)
    return elements, elements * width


def _recurrent(values: list[Any]) -> Size:
    """`lstm`, `gru`: every step takes all the weights."""
    x = values[0]
    steps = x.numel() // max(x.shape[-1], 1) if x.dim() else 1
    weights = [tensor for tensor in _tensors(values[1:]) if tensor.dim()]
    return 4 * steps * sum(tensor.shape[0] for tensor in weights), steps * sum(map(_count, weights))


def _count(tensor: torch.Tensor) -> int:
    return tensor.numel()


def _transformed(values: list[Any]) -> Size:
    """Fourier transforms: complex, and as long as a size says."""
    elements, _ = _product([value for value in values[:2] if not isinstance(value, (list, tuple))])
    sizes = [*_finite([value for value in values[1:2] if isinstance(value, (list, tuple))])]
    elements = max(elements, int(values[0].numel() * math.prod(max(size, 1) for size in sizes)) if sizes else 0)
    return _PRIME * elements, _SORTED * elements


def _spectrum(values: list[Any]) -> Size:
    """The same, of a length that the tensor has."""
    return _PRIME * values[0].numel(), _SORTED * values[0].numel()


def _plain_convolution(values: list[Any]) -> Size:
    """`conv1d` … `conv3d`: as `convolution`, with less said."""
    x, weight, bias, stride, padding, dilation, groups = [*values, *[None] * 7][:7]
    if isinstance(padding, str):
        padding = [size // 2 + 1 for size in weight.shape[2:]]
    return _convolution([x, weight, bias, _or(stride, 1), _or(padding, 0), _or(dilation, 1), False, 0, _or(groups, 1)])


def _plain_transposed(values: list[Any]) -> Size:
    """`conv_transpose1d` … `conv_transpose3d`."""
    x, weight, bias, stride, padding, extra, groups, dilation = [*values, *[None] * 8][:8]
    return _convolution(
        [x, weight, bias, _or(stride, 1), _or(padding, 0), _or(dilation, 1), True, _or(extra, 0), _or(groups, 1)]
    )


def _or(value: Any, other: int) -> Any:
    return other if value is None else value


def _square(values: list[Any]) -> Size:
    """`eye`: rows, and columns if they differ."""
    rows, *more = _finite(values) or [1]
    return int(max(rows, 1)) * int(max(more[0] if more else rows, 1)), 0


def _grid(values: list[Any]) -> Size:
    """`affine_grid_generator`: the coordinates of each pixel, before and after."""
    sizes = [max(int(size), 1) for size in _numbers(values[1])]
    return 8 * math.prod(sizes[:1] + sizes[2:]), 0


def _diagonals(values: list[Any]) -> Size:
    """`diag`, `diag_embed`: a square for each row."""
    x, offset = [*values, 0][:2]
    last = x.shape[-1] if x.dim() else 1
    return max(x.numel() // max(last, 1), 1) * (last + abs(offset or 0)) ** 2, 0


def _bags(values: list[Any]) -> Size:
    """`embedding_bag`: a row for each index and each bag."""
    table, indices, offsets = values[:3]
    width = table.numel() // max(table.shape[0] if table.dim() else 1, 1)
    return (indices.numel() + offsets.numel() + 1) * (width + 3), 0


def _packed_rows(values: list[Any]) -> Size:
    """`embedding_4bit`, `embedding_2bit`: up to four numbers from each byte, and what they are computed by."""
    elements, work = _rows_by_width(values)
    return 8 * elements, work


def _strided(values: list[Any]) -> Size:
    """`empty_strided`: up to the last place that the strides reach."""
    sizes, strides = ([*_numbers(value)] for value in values[:2])
    reach = sum(max(int(size) - 1, 0) * abs(int(stride)) for size, stride in zip(sizes, strides, strict=False))
    return 1 + reach + math.prod(max(int(size), 1) for size in sizes), 0


def _window(values: list[Any]) -> Size:
    return 4 * max(int(values[0]), 1), 0


def _spaced(values: list[Any]) -> Size:
    """`linspace`: as many as are asked for."""
    return max(int(values[2]), 1), 0


def _mesh(values: list[Any]) -> Size:
    """`meshgrid`: every tensor in as many dimensions as there are tensors."""
    tensors = [*_tensors(values)]
    return len(tensors) * math.prod(max(tensor.numel(), 1) for tensor in tensors), 0


def _triangle(values: list[Any]) -> Size:
    """`tril_indices`, `triu_indices`: a row and a column of each place."""
    return 2 * max(int(values[0]), 1) * max(int(values[1]), 1), 0


def _language(values: list[Any]) -> Size:
    """Of a language operator: all that it takes, and of an attention the scores of each query and position."""
    tensors = [*_tensors(values)]
    query, positions = tensors[0], tensors[1].shape[1] if len(tensors) > 2 and tensors[1].dim() > 1 else 0
    scores = query.numel() // max(query.shape[-1], 1) * positions
    return sum(item.numel() for item in tensors) + scores, 2 * scores * query.shape[-1]


def _mixed(values: list[Any]) -> Size:
    """`mixed_mm`, `mixed_linear`: a product with weights that are dequantized first."""
    x, weight = values[:2]
    elements, work = _multiplied(x, weight) if x.dim() else _UNLIMITED
    return elements + 2 * weight.numel(), work


def _resized_twice(values: list[Any]) -> Size:
    """`adaptive_max_pool2d`: values, and indices of 64 bits."""
    elements, work = _resized(values)
    return 2 * elements, work


def _running(values: list[Any]) -> Size:
    """`cummax`: values, and indices of 64 bits."""
    return 2 * values[0].numel(), 0


_RULES: Final[Mapping[str, Rule]] = {
    **dict.fromkeys(_KEEP_NAMES.split(), _kept),
    **dict.fromkeys(_ELEMENTWISE_NAMES.split(), _broadcast),
    **dict.fromkeys(
        ("_log_softmax", "_safe_softmax", "_softmax", "log_softmax", "softmax", "special_softmax"), _softmaxed
    ),
    **dict.fromkeys(_NORMALIZE_NAMES.split(), _normalized),
    **dict.fromkeys(_QPARAMS_NAMES.split(), _qparams),
    **dict.fromkeys(_QUANTIZE_NAMES.split(), _kept),
    **dict.fromkeys(_FACTORY_NAMES.split(), _sizes),
    **dict.fromkeys(("cummax", "cummin"), _running),
    **dict.fromkeys((f"adaptive_max_pool{axes}d" for axes in "123"), _resized_twice),
    **dict.fromkeys(("gather", "take"), _taken),
    **dict.fromkeys(("index_put", "_unsafe_index_put"), _put),
    **dict.fromkeys(("masked_select", "masked_scatter"), _masked),
    **dict.fromkeys(("atleast_1d", "atleast_2d"), _together),
    **dict.fromkeys(("to", "type_as"), _kept),
    **dict.fromkeys(("diag", "diag_embed"), _diagonals),
    **dict.fromkeys(("tril_indices", "triu_indices"), _triangle),
    **dict.fromkeys(("mixed_mm", "mixed_linear"), _mixed),
    **dict.fromkeys(
        ("constant_pad_nd", "pad", *(f"{kind}_pad{axes}d" for kind in ("reflection", "replication") for axes in "123")),
        _padded,
    ),
    **dict.fromkeys(
        (
            *("upsample_bilinear2d", "_upsample_bilinear2d_aa", "upsample_bicubic2d", "upsample_linear1d"),
            *("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "upsample_trilinear3d"),
            *(f"_upsample_nearest_exact{axes}d" for axes in "123"),
        ),
        _resized,
    ),
    "affine_grid_generator": _grid,
    "embedding_bag": _bags,
    "empty_strided": _strided,
    "hann_window": _window,
    "linspace": _spaced,
    "meshgrid": _mesh,
    **dict.fromkeys(
        (
            "mm",
            "bmm",
            "addmm",
            "baddbmm",
            "addbmm",
            "matmul",
            "linalg_matmul",
            "dot",
            "mv",
            "addmv",
            "_weight_int8pack_mm",
        ),
        _matrices,
    ),
    **dict.fromkeys(("repeat", "tile", "unfold", "unfold_copy", "im2col", "col2im"), _product),
    **dict.fromkeys(("index", "_unsafe_index"), _indexed),
    **dict.fromkeys(("embedding", "index_select", "embedding_byte"), _rows_by_width),
    **dict.fromkeys((f"{a}adaptive_avg_pool{c}d" for a in ("", "_") for c in "123"), _resized),
    **dict.fromkeys(("as_strided", "as_strided_copy"), _sizes),
    **dict.fromkeys(("cat", "stack"), _together),
    **dict.fromkeys(("tensor_split", "chunk", "unsafe_chunk"), _sections),
    **dict.fromkeys(
        (f"{a}{b}{c}" for a in ("", "unsafe_") for b in ("split", "split_with_sizes") for c in ("", "_copy")), _parts
    ),
    **dict.fromkeys(("unbind", "unbind_copy"), _unbound),
    "arange": _arange,
    "eye": _square,
    **dict.fromkeys(("grid_sampler_2d", "grid_sampler_3d", "grid_sampler"), _sampled),
    "linear": _linear,
    "convolution": _convolution,
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), _plain_convolution),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), _plain_transposed),
    **dict.fromkeys(("sort", "argsort", "topk", "median", "searchsorted", "bucketize"), _sorted),
    **dict.fromkeys(("nonzero", "nonzero_numpy"), _places),
    **dict.fromkeys(
        (f"{kind}_pool{axes}d{more}" for kind in ("avg", "max") for axes in "123" for more in ("", "_with_indices")),
        _pooled,
    ),
    "einsum": _contracted,
    "one_hot": _one_hot,
    "repeat_interleave": _repeated,
    **dict.fromkeys(("tensordot", "kron", "outer", "addr", "inner"), _tensor_product),
    **dict.fromkeys(("cdist", "_cdist_forward", "pdist", "_pdist_forward"), _distances),
    **dict.fromkeys(
        (f"{kind}{cell}" for kind in ("lstm", "gru", "rnn_tanh", "rnn_relu") for cell in ("", "_cell")), _recurrent
    ),
    **dict.fromkeys(
        (f"fft_{kind}{more}" for kind in ("fft", "ifft", "rfft", "irfft") for more in ("", "2")), _transformed
    ),
    **dict.fromkeys(("_fft_r2c", "_fft_c2r", "_fft_c2c"), _spectrum),
    **dict.fromkeys(("concat", "concatenate", "vstack", "hstack", "dstack"), _together),
    **dict.fromkeys(
        (
            "scaled_dot_product_attention",
            "_scaled_dot_product_attention_math",
            "_scaled_dot_product_flash_attention_for_cpu",
        ),
        _attention,
    ),
}


def in_order(names: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """The values of a call's arguments in the order of its schema, None for those that are left out."""
    if not kwargs:
        return list(args)
    return [*args, *(kwargs.get(name) for name in names[len(args) :])]
