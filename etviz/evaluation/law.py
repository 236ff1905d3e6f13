"""The law of noise: by how much a correct kernel may differ from exact arithmetic, for each operator.

A correct kernel returns ``result + u·(ε/2)·S``. ``ε`` is the distance from 1 to the next number of the result's dtype,
``u`` a random number with an RMS of 1, and ``S`` the *size* of what the kernel rounds. `sizes` gives S for an operator
on its inputs, so the noise of one operator is ``ε/2 · rms S``: no random numbers, and no second evaluation. Only norms
of the operands are computed. The page docs/noise.md has S by family of operators, and derives it.

Functions are accurate to a rounding of the result and one of each argument (N. J. Higham, "Accuracy and Stability of
Numerical Algorithms", 2002, section 1.5): ``S² = v² + Σ (x·∂f/∂x)²``, with derivatives by finite differences in
float64. This rule also holds for operators that this module does not know. What the reference itself is off from
float64 is part of S, if it is larger.

Small samples: the error of one number exceeds three times its noise once in 370 cases. `allowance` widens the noise of
values with few independent elements, such that a correct value exceeds the threshold with a probability of
`FALSE_ALARMS`.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from torch.utils.weak import WeakIdKeyDictionary

from etviz.evaluation.further_axis import has_further_axis, in_memory, unwrapped
from etviz.evaluation.language_kernels import off_grids, scored
from etviz.evaluation.narrow_grids import as_kernels_choose
from etviz.evaluation.operator_rules import by_position, is_pointwise
from etviz.evaluation.unpacked import Quantized
from etviz.evaluation.values import flat_values
from etviz.graph.draws import draws
from etviz.graph.language_operators import LANGUAGE_OPERATORS
from etviz.graph.quantize_ops import chooses_grid, is_quantize
from etviz.graph.uses import only_moves
from etviz.native import Elements, errors_of_sums, powers, sizes_of_function, sizes_of_inexact, sizes_of_norm
from etviz.tensors.blocks import BLOCK
from etviz.tensors.metrics import BY_LAW, EPS, FALSE_ALARMS, NO_NOISE, THRESHOLD, Noise

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, MutableMapping, Sequence

    from etviz.graph.ir import Node

    Call = Callable[[str, Sequence[Any], Mapping[str, Any]], Any]
    Sizes = list[torch.Tensor | None]
    Family = Callable[[Sequence[Any], Sequence[Any], Call, str], Sizes]

_PART: Final = 1e-6
"""Relative step of the finite differences: about the cube root of float64's precision."""
_MOST_TERMS: Final = 1 << 22  # products to round one by one
_EQUAL: Final = math.sqrt(4 / 45)
"""Size of a sum of equal terms over ``K·|v|``: ``√(1/12 · (1 + 1/16 + 1/256 + …))``."""
_TINY: Final = 2.0**-1022
"""Smallest normal number of float64: what is below it is not divided by."""
_SPREAD: Final = -7046029254386353131
"""Odd multiplier that spreads the bits of numbers: 2⁶⁴ over the golden ratio (D. E. Knuth, 1973, section 6.4)."""
_LEAST, _MOST = 2.0**-50, 2.0**60
"""Two largest squared norms between these have a product between 2⁻¹⁰⁰ and 2¹²⁰, which float32 can hold."""
_FLUSHED: Final = torch.finfo(torch.float32).smallest_normal
"""Processors may take smaller numbers for 0."""
_ARITHMETIC: Final = frozenset(("add", "sub", "rsub", "mul", "div", "sqrt", "fmod", "remainder", "clamp", "hardtanh"))
_CUTTING: Final = frozenset(("clamp", "hardtanh", "relu"))
_UNITS: Final = {**EPS, "complex64": EPS["float32"], "complex128": EPS["float64"]}
_STEPPED: Final = frozenset(("fmod", "remainder"))
"""Functions with steps, as divisions that are rounded: a quotient's rounding may cross one."""
_FIRST: Final = 4096
"""Number of elements that tell whether a value consists of few different ones."""
ENOUGH: Final = 1000
"""Number of independent elements from which `allowance` is 1."""
_TERMS, _CLOSE = 60, 1e-12
"""Terms of the continued fraction that the F distribution needs for `ENOUGH` degrees of freedom."""
_PICKING: Final = frozenset(("copy_", "embedding", "index_select", "gather", "index", "where", "full_like"))
_NORMS: Final[MutableMapping[torch.Tensor, tuple[int, torch.Tensor]]] = WeakIdKeyDictionary()
_CHOOSING: Final = frozenset(
    ("argmax", "argmin", "max", "min", "topk", "sort", "kthvalue", "median", "max_pool2d_with_indices")
)
"""Operators that choose one of several equal elements; their last result holds its index."""


def half_ulp(value: Any) -> float | None:
    """Half the distance from 1 to the next number of a tensor's dtype; None for values that do not round."""
    eps = _UNITS.get(str(getattr(value, "dtype", "")).removeprefix("torch."))
    return eps / 2 if eps is not None and value.numel() else None


def only_picks(node: Node) -> bool:
    return only_moves(node) or node.target.partition(".")[2].partition(".")[0] in _PICKING


def goes_through(node: Node) -> bool:
    """True where no element's error grows."""
    return only_moves(node) or node.target.partition(".")[2].partition(".")[0] in _CUTTING


def sizes(node: Node, args: Sequence[Any], kwargs: Mapping[str, Any], value: Any, call: Call) -> Sizes:
    """The size S of the law for each output of an operator.

    `call` calls an operator by target and arguments. Each size broadcasts to its output's shape, in
    float32 or float64; it is None where nothing is rounded.
    """
    values = flat_values(value)
    if only_picks(node) or is_quantize(node) or all(half_ulp(result) is None for result in values):
        return [None] * len(values)
    if chooses_grid(node):
        return _chosen(node.target, args, kwargs, values)
    name = node.target.partition(".")[2].partition(".")[0]
    family = _FAMILIES.get(name)
    if family is not None:
        given = by_position(node.target, args, kwargs)[0]
        own_sizes = family(given, values, call, node.target)
    elif _is_exact_by_itself(node, [*args, *kwargs.values()], values):
        return [None] * len(values)
    else:
        own_sizes = _elementwise(node.target, args, kwargs, values, call)
    return [_finite(size, result) for size, result in zip(own_sizes, values, strict=True)]


def _is_exact_by_itself(node: Node, operands: Sequence[Any], values: Sequence[Any]) -> bool:
    """True for values of integers alone, and for those cut at numbers of their type."""
    tensors = [operand for operand in operands if isinstance(operand, torch.Tensor)]
    if not tensors or draws(node) or any(isinstance(operand, (list, tuple)) for operand in operands):
        return False
    if not any(tensor.is_floating_point() or tensor.is_complex() for tensor in tensors):
        return True
    ends = [operand for operand in operands if isinstance(operand, (int, float))]
    cuts = node.target.partition(".")[2].partition(".")[0] in _CUTTING and len(tensors) == len(values) == 1
    return cuts and all(float(torch.tensor(end, dtype=values[0].dtype)) == end for end in ends)


def _finite(size: torch.Tensor | None, value: Any) -> torch.Tensor | None:
    half = half_ulp(value)
    if size is None or half is None:
        return None
    largest, lost = float(unwrapped(size).max()), _lost(value)
    if not math.isfinite(largest):  # one NaN makes it NaN
        size = torch.nan_to_num(size, 0.0, 0.0, 0.0)
        largest = float(unwrapped(size).max())
    return size if largest * half >= lost else torch.where(size > 0, size.clamp_min(lost), size)


def _lost(value: torch.Tensor) -> float:
    """Least size of what is rounded."""
    normal = torch.finfo(value.dtype).smallest_normal
    return max(normal, 2 * min(normal, _FLUSHED) / _unit(value))


def _wide(value: torch.Tensor) -> torch.Tensor:
    return value.to(torch.promote_types(value.dtype, torch.float32))


def sum_size(terms: int, squares: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
    """Squared size of a sum in any order, from the number of terms, the sum of their squares and the sum.

    The kernel's partial sums, and those of the reference, which adds in pairs.

    Examples
    --------
    >>> import torch
    >>> float(sum_size(8, torch.tensor(36.0), torch.tensor(6.0)))
    90.0
    """
    of_squares, of_total = _in_any_order(terms)
    return torch.addcmul(squares * of_squares, total, total, value=of_total)


def _in_any_order(terms: int) -> tuple[float, float]:
    of_squares, of_total = _in_pairs(terms)
    return (terms + 1) / 18 + of_squares, (terms + 1) / 9 + of_total


def _in_pairs(terms: int) -> tuple[float, float]:
    """The reference's part: for L = log2 K levels of pairs ``(‖t‖²·(K·L − 2K + 2) + v²·(2K − 2 − L))/(3(K − 1))``."""
    if terms < 2:  # nothing is added
        return 0.0, 0.0
    levels, less = math.log2(terms), terms - 1
    return (terms * levels - 2 * less) / (3 * less), (2 * less - levels) / (3 * less)


def _plain_sum(terms: int, squares: torch.Tensor, total: torch.Tensor, unit: float) -> torch.Tensor:
    square = total.square()
    size, spread = sum_size(terms, squares, total), squares - square / max(terms, 1)
    equal = spread <= terms * unit**2 * square
    return torch.where(equal, torch.maximum(size, (_EQUAL * terms) ** 2 * square), size)


def _share(total: int, values: Sequence[Any]) -> int:
    return max(1, total // max(1, max(result.numel() for result in values if hasattr(result, "numel"))))


def _unit(value: torch.Tensor) -> float:
    return _UNITS.get(str(value.dtype).removeprefix("torch."), EPS["float32"])


def in_order(terms: torch.Tensor, unit: float = EPS["float32"]) -> torch.Tensor:
    """Squared size of the sum of each row, in float64: in any order, or in the order in which the terms stand.

    The largest of these and of the drift, since terms on a lattice may share a rest. In a row, terms that repeat a
    value repeat its error while the partial sums keep their exponent; a term of 0 has none. `unit` is the ε of the sum.
    """
    count = terms.shape[-1]
    if not count:
        return terms.new_zeros(terms.shape[:-1])
    of_squares, of_total = _in_pairs(count)
    repeated, drift, total, squares = _errors_of_sums(terms, min(unit, EPS["float32"])).unbind(-1)
    standing = repeated / 3 + of_squares * squares + of_total * total.square()
    size = torch.maximum(sum_size(count, squares, total), standing)
    return torch.maximum(size, (drift * 2 / unit).square())


def _is_exact(terms: torch.Tensor, unit: float) -> torch.Tensor:
    total = terms.abs().sum(-1, keepdim=True)
    step = torch.exp2(torch.log2(total).floor()) * unit
    return ((total == 0) | (torch.frac(terms / step) == 0)).all(-1)


def _on_grids(terms: torch.Tensor, unit: float) -> torch.Tensor:
    """Each term's error when it is rounded to the spacing of numbers at the partial sum."""
    partial = terms.cumsum(-1)
    step = torch.exp2(torch.log2(partial.abs()).floor()) * min(unit, EPS["float32"])
    return torch.where(step > 0, (terms / step).round() * step - terms, 0.0)


def _errors_of_sums(terms: torch.Tensor, unit: float = 0.0) -> torch.Tensor:
    """Of each row: squared errors, those of equal terms joined; the sum of `_on_grids`; sums of terms and squares.

    The errors are the terms, or with a `unit` the partial sums of equal exponent. A hash with four times as many
    places as terms joins them, so chance adds at most a quarter of the square.
    """
    count, terms = terms.shape[-1], terms.contiguous()
    if has_further_axis(terms):
        return in_memory(functools.partial(_errors_of_sums, unit=unit), terms)
    bits = _places(count)
    found = terms.new_empty((*terms.shape[:-1], 4))
    if errors_of_sums(terms.data_ptr(), found.numel() // 4, count, bits, unit, found.data_ptr()):
        return found
    errors, keys = terms, terms.view(torch.int64)
    if unit:
        errors = terms.cumsum(-1)
        keys, errors = keys ^ torch.frexp(errors).exponent, errors.abs() * (terms != 0)
    places = (keys * _SPREAD >> (64 - bits)) & ((1 << bits) - 1)
    squares = errors.new_zeros((*errors.shape[:-1], 1 << bits)).scatter_add_(-1, places, errors).square().sum(-1)
    drift = _on_grids(terms, unit).sum(-1) if unit else torch.zeros_like(squares)
    return torch.stack([squares, drift, terms.sum(-1), terms.square().sum(-1)], -1)


def _places(count: int) -> int:
    """Bits of the hash."""
    return max(2, (4 * count - 1).bit_length())


def _squared(deviations: torch.Tensor, unit: float) -> torch.Tensor:
    """Squared size of each row's sum of squares: each deviation d is rounded, its square, and the partial sums.

    The roundings of d and d² have variances of 4d⁴/3 and d⁴/3. Equal deviations repeat them.
    """
    squares = deviations.square()
    if not squares.shape[-1]:
        return in_order(squares)
    return in_order(squares, unit) + 5 / 3 * _errors_of_sums(squares)[..., 0]


def _rows(x: torch.Tensor, axes: Sequence[int]) -> torch.Tensor:
    first = [at for at in range(x.ndim) if at not in {axis % x.ndim for axis in axes}]
    others = [at for at in range(x.ndim) if at not in first]
    return x.double().permute(*first, *others).reshape([x.shape[at] for at in first] + [-1])


def _sum(args: Sequence[Any], values: Sequence[Any], call: Call, target: str) -> Sizes:
    rows, unit = _rows(args[0], _axes(args)), _unit(values[0])
    return [in_order(rows, unit).sqrt().where(~_is_exact(rows, unit), 0.0).reshape(values[0].shape)]


def _mean(args: Sequence[Any], values: Sequence[Any], call: Call, target: str) -> Sizes:
    return [_of_mean(_rows(args[0], _axes(args)), _unit(values[0])).sqrt().reshape(values[0].shape)]


def _of_mean(rows: torch.Tensor, unit: float) -> torch.Tensor:
    return in_order(rows, unit) / max(rows.shape[-1], 1) ** 2 + rows.mean(-1).square()


def _squared_error(square: torch.Tensor, unit: float) -> torch.Tensor:
    """Size of the square of an error, from its squared size S².

    A correct error is at most ``f·ε/2·S``, f the threshold with the `allowance` of one number; its square is f times a
    noise of ``f·(ε/2)²·S²``.
    """
    return THRESHOLD * allowance(1) * unit / 2 * square


def _pooled(args: Sequence[Any], values: Sequence[Any], call: Call, target: str) -> Sizes:
    x, rest = args[0].double(), list(args[1:])
    squares, mean = (call(target, [operand, *rest], {}) for operand in (x.square(), x))
    terms = math.prod(_pair(args[1])) if "avg_pool2d" in target and "adaptive" not in target else 0
    terms = terms or _share(x.numel(), values)
    return [_plain_sum(terms, terms * squares, terms * mean, _unit(values[0])).sqrt() / terms]


def _pair(size: Any) -> list[int]:
    return [size, size] if isinstance(size, int) else [*size, *size][:2]


def _running(args: Sequence[Any], values: Sequence[Any], call: Call, target: str) -> Sizes:
    x, dim = args[0].double(), args[1]
    if not x.ndim:
        return [x.abs()]
    size = (x.cumsum(dim).square().cumsum(dim) / 3).sqrt()
    unit = _unit(values[0])
    errors = _on_grids(x.movedim(dim, -1), unit).cumsum(-1).movedim(-1, dim)
    rounds = ~_is_exact(x.movedim(dim, -1), unit).unsqueeze(dim)
    return [torch.maximum(size, errors.abs() * 2 / unit).where(rounds, 0.0)]


def _product_of(args: Sequence[Any], values: Sequence[Any], call: Call, target: str) -> Sizes:
    """A rounding for each factor, or what the reference is off: factors near 1 repeat their errors in 16 bits."""
    plain = values[0].double().abs() * math.sqrt(_share(args[0].numel(), values))
    exact = flat_values(call(target, [_doubled(item) for item in args], {}))
    return _with_own([plain], exact, [_doubled(value) for value in values], values)


def _variance(args: Sequence[Any], values: Sequence[Any], call: Call, target: str) -> Sizes:
    rows, spread = _rows(args[0], _axes(args)), values[0].double()
    unit = _unit(values[0])
    of_mean, deviations = _of_mean(rows, unit), rows - rows.mean(-1, keepdim=True)
    plain = deviations.square().mean(-1)
    size = (_squared(deviations, unit) / max(rows.shape[-1], 1) ** 2 + plain.square()).sqrt()
    size = (size + _squared_error(of_mean, unit)).reshape(spread.shape)
    plain, of_mean = plain.reshape(spread.shape), of_mean.sqrt().reshape(spread.shape)
    size = size * torch.where(plain > 0, (spread.square() if "std" in target else spread) / plain, 1.0)  # K/(K - 1)
    if "std" in target:
        size = size / (2 * spread.clamp_min(_TINY)) + spread
    return [size, of_mean][: len(values)]


def _axes(args: Sequence[Any]) -> list[int]:
    dims = (
        args[1] if len(args) > 1 and isinstance(args[1], (int, list, tuple)) and not isinstance(args[1], bool) else None
    )
    return [dims] if isinstance(dims, int) else list(dims or range(args[0].ndim))


def _length(args: Sequence[Any], values: Sequence[Any], call: Call, target: str) -> Sizes:
    rows, value = _rows(args[0], _axes([args[0], *args[2:]])), values[0].double()
    squares = in_order(rows.square(), _unit(values[0])).reshape(value.shape) / value.square().clamp_min(_TINY)
    return [(value.square() + squares / 4).sqrt()]


def _distances(args: Sequence[Any], values: Sequence[Any], call: Call, target: str) -> Sizes:
    """``v = (Σ|x − y|^p)^(1/p)``: the sum of K terms has a p-th of its relative error there."""
    size, value = _elementwise(target, args, {}, values, call)[0], values[0].double()
    power = args[1 if "pdist" in target else 2]
    if size is None or not 0 < power < math.inf:
        return [size]
    terms = args[0].shape[-1]
    relative = sum_size(terms, torch.tensor(1 / max(terms, 1)), torch.tensor(1.0)) / power**2
    return [(size.double().square() + relative * value.square()).sqrt()]


def _transformed(args: Sequence[Any], values: Sequence[Any], call: Call, target: str) -> Sizes:
    """A fast Fourier transform of K numbers has log₂ K steps, whose values have the mean square of the result's."""
    dims = list(args[1])
    terms = math.prod(max(args[0].shape[at], values[0].shape[at]) for at in dims)
    square = _wide(values[0]).abs().square().mean(dims, keepdim=True)
    return [(square * (1 + math.log2(max(terms, 1)))).sqrt().expand(values[0].shape)]


def product_size(terms: int, left: torch.Tensor, right: torch.Tensor, value: torch.Tensor, bias: Any = None) -> Any:
    """Size of sums of products, from the squared norms of the operands' rows and columns, and the result.

    A `bias` is one term more, in each partial sum of a kernel that begins with it.
    """
    of_squares, of_total = _in_any_order(terms)
    squares = left * (of_squares / max(terms, 1)) * right
    wide, lost = value.to(squares.dtype), _lost(value)
    if lost**2 >= torch.finfo(squares.dtype).smallest_normal:
        squares = squares + terms / 3 * lost**2
    if isinstance(bias, torch.Tensor):
        squares = squares + ((terms + 1) / 3 - of_total) * bias.to(squares.dtype).square()
    return torch.addcmul(squares, wide, wide, value=of_total).sqrt_()


def _squares(value: torch.Tensor, function: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """A `function` that sums a tensor's squares, in float64 where float32 lacks the range."""
    squares = function(_wide(value))
    largest = float(unwrapped(squares).max()) if squares.numel() else 1.0
    return squares if squares.dtype == torch.float64 or _LEAST < largest < _MOST else function(value.double())


def _norms(value: torch.Tensor, dim: int) -> torch.Tensor:
    return _squares(value, lambda wide: torch.linalg.vector_norm(wide, dim=dim).square())


def _norms_once(weight: torch.Tensor) -> torch.Tensor:
    # As long as it is the same tensor, and nothing wrote to it, which tensors of inference_mode do not tell.
    if weight.is_inference():
        return _norms(weight, -1)
    known = _NORMS.get(weight)
    if known is None or known[0] != weight._version:
        known = _NORMS[weight] = weight._version, _norms(weight, -1)
    return known[1]


def _linear(args: Sequence[Any], values: Sequence[Any], call: Call, target: str) -> Sizes:
    x, weight, bias = args[:3]
    right = weight.norms() if isinstance(weight, Quantized) else _norms_once(weight)
    size = product_size(x.shape[-1], _norms(x, -1).unsqueeze(-1), right, values[0], bias)
    return [size if isinstance(weight, Quantized) else _with_drift(size, x, weight.mT, values[0])]


def _matmul(args: Sequence[Any], values: Sequence[Any], call: Call, target: str) -> Sizes:
    bias, a, b = ([None, *args] if "add" not in target else args)[:3]
    left, right = _norms(a, -1), _norms(b, -2 if b.ndim > 1 else 0)
    left = left.unsqueeze(-1) if b.ndim > 1 else left
    right = right.unsqueeze(-2) if b.ndim > 1 and a.ndim > 1 else right
    size = product_size(a.shape[-1], left, right, values[0], bias)
    return [_with_drift(size, a, b, values[0]) if min(a.ndim, b.ndim) > 1 else size]


def _with_drift(size: torch.Tensor, a: torch.Tensor, b: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    terms, unit = a.shape[-1], _unit(value)
    if terms**2 * min(unit, EPS["float32"]) < 1 or value.numel() * terms > _MOST_TERMS:
        return size
    errors = _on_grids(a.double().unsqueeze(-2) * b.double().mT.unsqueeze(-3), unit)
    return torch.fmax(size, errors.sum(-1).abs().to(size.dtype) * 2 / unit)  # beside Inf, no spacing is known


def _convolution(args: Sequence[Any], values: Sequence[Any], call: Call, target: str) -> Sizes:
    x, weight, bias, *rest = args
    transposed, groups = rest[3], rest[5]
    if transposed:  # (in, out / groups, …): each result takes the inputs of its group
        axes = [1, *range(3, weight.ndim + 1)]
        right = _squares(weight, lambda wide: wide.square().unflatten(0, (groups, -1)).sum(axes).flatten())
        ones = torch.ones(weight.shape[0], 1, *weight.shape[2:])
        terms = weight[:, 0].numel() // groups
    else:
        right = _squares(weight, lambda wide: wide.square().flatten(1).sum(1))
        ones = torch.ones(groups, *weight.shape[1:])
        terms = weight[0].numel()
    left = _squares(x, lambda wide: call(target, [wide.square(), ones.to(wide.dtype), None, *rest], {}))
    left = left.repeat_interleave(right.numel() // groups, left.ndim - weight.ndim + 1)
    along = [-1, *[1] * (weight.ndim - 2)]
    bias = bias.reshape(along) if isinstance(bias, torch.Tensor) else None
    return [product_size(terms, left, right.reshape(along), values[0], bias)]


def largest_size(node: Node, args: Sequence[Any], kwargs: Mapping[str, Any], value: Any) -> float:
    """Upper limit of the size S of a product with a weight; infinite for other operators."""
    family = _FAMILIES.get(node.target.partition(".")[2].partition(".")[0])
    if family not in (_linear, _convolution):
        return math.inf
    x, weight, bias, *rest = by_position(node.target, args, kwargs)[0]
    if isinstance(weight, Quantized) or (rest and rest[3]) or not x.numel():
        return math.inf
    terms, bias = weight[0].numel(), _largest(bias) if isinstance(bias, torch.Tensor) else None
    right = _squares(weight, lambda wide: wide.square().flatten(1).sum(1)).max()
    return float(product_size(terms, terms * _wide(_largest(x)).square(), right, _largest(value), bias))


def _largest(value: torch.Tensor) -> torch.Tensor:
    low, high = torch.aminmax(value)
    return torch.maximum(-low, high)


def _normalized(
    rows: torch.Tensor,
    eps: float,
    weight: torch.Tensor | float,
    value: torch.Tensor,
    unit: float,
    *,
    passes: int,
    mean: bool = True,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Sizes of normalized rows, of their means and of 1 over their deviations.

    `passes` is 1 if the variance is mean square less squared mean.
    """
    terms = rows.shape[1]
    middle = rows.mean(1, keepdim=True) if mean else 0.0
    of_mean = _of_mean(rows, unit).unsqueeze(1) if mean else rows.new_zeros(len(rows), 1)
    centred = rows - middle if mean else rows
    variance = centred.square().mean(1, keepdim=True)
    of_variance = _squared(rows if passes == 1 else centred, unit).unsqueeze(1) / terms**2
    if passes == 1:
        squares = rows.square().mean(1, keepdim=True)
        of_variance = of_variance + squares.square() + 4 * middle**2 * of_mean
    else:
        of_variance = of_variance + variance.square() + 4 * middle**2 * variance / (3 * terms)
        of_variance = of_variance + _squared_error(of_mean, unit).square()
    inverse = 1 / (variance + eps)
    steps = 1 + of_variance * inverse.square() / 4
    of_statistics = centred.square().mul_(inverse * steps).add_(of_mean * inverse)
    size = of_statistics.mul_(weight**2).add_(value.square()).sqrt_()
    return size, of_mean.sqrt(), (inverse * steps).sqrt()


def _normalized_in_one_pass(
    rows: torch.Tensor, eps: float, weight: torch.Tensor | None, value: torch.Tensor, *, mean: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None:
    if rows.dtype != torch.float32 or value.dtype != torch.float32 or not rows.numel():
        return None
    if any(map(has_further_axis, (rows, value, weight))):
        return None
    (number, count), unit = rows.shape, EPS["float32"]
    rows, value, weight = rows.contiguous(), value.contiguous(), weight.contiguous() if weight is not None else None
    size, statistics = torch.empty_like(value), rows.new_empty((2, number), dtype=torch.float64)
    given = rows.data_ptr(), value.data_ptr(), weight.data_ptr() if weight is not None else 0
    law = *_in_any_order(count), *_in_pairs(count), unit, eps, float(_squared_error(torch.ones(()), unit)), float(mean)
    known = sizes_of_norm(*given, number, count, _places(count), law, size.data_ptr(), statistics.data_ptr())
    return (size, statistics[0], statistics[1]) if known else None


def _layer_norm(args: Sequence[Any], values: Sequence[Any], call: Call, target: str) -> Sizes:
    x, shape, weight, _, eps = args[:5] if "layer" in target else (args[0], args[1], args[2], None, args[3])
    count = math.prod(shape)
    rows, value = x.reshape(-1, count), values[0].reshape(-1, count)
    scale = weight.double().reshape(1, count) if isinstance(weight, torch.Tensor) else None
    eps = EPS[str(x.dtype).removeprefix("torch.")] if eps is None else eps
    mean, unit = "layer" in target, _unit(values[0])
    normalized = _normalized_in_one_pass(rows, eps, scale, value, mean=mean)
    if normalized is None:
        factor = 1.0 if scale is None else scale
        normalized = _normalized(rows.double(), eps, factor, value.double(), unit, passes=2, mean=mean)
    each: list[torch.Tensor | None] = [
        normalized[0].reshape(x.shape),
        *(result.reshape(values[-1].shape) for result in normalized[1:] if len(values) > 1),
    ]
    return each if "layer" in target else [each[0], *each[2:]][: len(values)]


def _group_norm(args: Sequence[Any], values: Sequence[Any], call: Call, target: str) -> Sizes:
    """Kernels take the variance in one pass, also of batch norms on their input's statistics."""
    group, eps = "group" in target, args[-1]
    x = args[0].double() if group else args[0].double().transpose(0, 1)
    value = values[0].double() if group else values[0].double().transpose(0, 1)
    count = x.shape[0] * (args[6] if group else 1)
    scale: torch.Tensor | float = 1.0
    if isinstance(args[1], torch.Tensor):
        along = [1, -1, *[1] * (x.ndim - 2)] if group else [-1, *[1] * (x.ndim - 1)]
        scale = args[1].double().reshape(along).expand(x.shape).reshape(count, -1)
    normalized = _normalized(x.reshape(count, -1), eps, scale, value.reshape(count, -1), _unit(values[0]), passes=1)
    size = normalized[0].reshape(x.shape)
    return [
        size if group else size.transpose(0, 1),
        *(a.reshape(b.shape) for a, b in zip(normalized[1:], values[1:], strict=False)),
    ]


def _batch_norm(args: Sequence[Any], values: Sequence[Any], call: Call, target: str) -> Sizes:
    x, weight, bias, mean, variance = args[:5]
    eps = args[-1] if "legit" in target else args[7]
    along = [1, -1, *[1] * (x.ndim - 2)]
    factor = (variance.double() + eps).rsqrt()
    factor = factor if weight is None else factor * weight.double()
    shift = mean.double() * factor
    shift = shift if bias is None else torch.hypot(shift, bias.double())
    value = _wide(values[0])
    scaled = x.to(value.dtype) * factor.to(value.dtype).reshape(along)
    size = torch.hypot(torch.hypot(scaled, value), shift.to(value.dtype).reshape(along))
    return [size, *[None] * (len(values) - 1)]


def _softmax(args: Sequence[Any], values: Sequence[Any], call: Call, target: str) -> Sizes:
    x, dim, value = _wide(args[0]), args[1], _wide(values[0])
    if not x.ndim:
        return [torch.ones_like(value)]
    below = x - x.amax(dim, keepdim=True)
    steps = below.square() + _of_exponentials(below, dim, _unit(values[0]))
    if "log" in target:  # the logarithm's error is the relative one of the sum
        return [(value.square() + steps + 1).sqrt()]
    return [torch.nan_to_num(value * (1 + steps).sqrt(), 0.0, 0.0, 0.0)]


def _of_exponentials(below: torch.Tensor, dim: int, unit: float) -> torch.Tensor:
    """Squared size of their sum over the square of the sum; the largest exponent is 0."""
    terms = below.exp().movedim(dim, -1).double()
    return (in_order(terms, unit) / terms.sum(-1).square()).to(below.dtype).unsqueeze(dim)


def _attention(args: Sequence[Any], values: Sequence[Any], call: Call, target: str) -> Sizes:
    """Attention with a cache: products of the scores, their softmax, and the sum of K weighted values.

    A score's error s is an error of the exponential's argument, so each term ``t = p·v`` has a relative error of
    ``√(s² + (x − max x)² + 1)``. The terms are summed as in any product. All share the sum that divides them, so its
    relative error is one of the result.
    """
    names = LANGUAGE_OPERATORS[target].names
    given = dict(zip(names, args, strict=False))
    query, key, value = (given[name] for name in ("query", "key", "value"))
    second = bool(given.get("is_seq_at_dim_2"))
    if "quantized" in target:
        query, key, value = off_grids((query, key, value), [given.get(name) for name in names[8:14]], second=second)
    if "key_cache" in given:
        used = given["start_pos"] + given["seq_len"]
        key, value = values[1][:, :used], values[2][:, :used]
    rest: dict[str, Any] = {"causal": bool(given.get("is_causal")), "scale": given.get("scale")}
    query, key, value = (tensor.double() for tensor in (query, key, value))
    scores, q, k, v = scored(query, key, value, given["start_pos"], given.get("attn_mask"), **rest)
    width, count = q.shape[-1], scores.shape[-1]
    factor = rest["scale"] or width**-0.5
    norms = q.square().sum(-1, keepdim=True) * k.square().sum(-1)[:, :, None] / width
    of_scores = factor**2 * (width + 1) * (norms / 18 + (q @ k.transpose(2, 3)).square() / 9) + scores.square()
    below = scores - scores.amax(-1, keepdim=True)
    steps, divisor = below.square(), _of_exponentials(below, -1, _unit(values[0])) + (count + 1) / 9
    weights = torch.nan_to_num(scores.softmax(-1).square(), 0.0, 0.0, 0.0)
    relative = torch.nan_to_num(of_scores + steps + 1, 0.0, 0.0, 0.0)
    total = (weights * relative) @ v.square() + (count + 1) * (weights @ v.square() / 18)
    plain = values[0].double() if second else values[0].double().transpose(1, 2)
    total = total + torch.nan_to_num(divisor, 0.0, 0.0, 0.0) * plain.square()
    total = total if second else total.transpose(1, 2)
    return [total.sqrt(), *[None] * (len(values) - 1)]


def _recurrence(args: Sequence[Any], values: Sequence[Any], call: Call, target: str) -> Sizes:
    """The gated delta rule, step by step.

    The step ``S ← (1 − β k kᵀ)·diag(g)·S + β k vᵀ`` acts on all columns of the state alike, so one covariance of the
    rows has their errors: ``C ← A C Aᵀ + D``, where D is what a step rounds. An output has the variance ``qᵀ C q`` and
    that of its sum.
    """
    query, key, value, decay, beta, state = (tensor.double() for tensor in args)
    gates = decay.unsqueeze(-1).expand_as(key) if decay.dim() == 3 else decay
    shared, terms, columns = query.shape[1] // key.shape[1], key.shape[-1], value.shape[-1]
    spread, squares = torch.zeros(*state.shape[:2], terms, terms, dtype=state.dtype), list[torch.Tensor]()
    one = torch.eye(terms, dtype=state.dtype)
    for at in range(key.shape[2]):
        k, gate, rate = key[:, :, at, :, None], gates[:, :, at, :, None], beta[:, :, at, None, None]
        decayed = state * gate
        predicted = (decayed * k).sum(2, keepdim=True)
        change = (value[:, :, at, None] - predicted) * rate
        state = decayed + k * change
        through = one - rate * (k @ k.mT)
        spread = (spread * gate) * gate.mT + torch.diag_embed(decayed.square().sum(-1))
        of_change = rate.square() * sum_size(terms, (decayed * k).square().sum(2, keepdim=True), predicted)
        of_change = (of_change + 2 * change.square()).sum(-1, keepdim=True)
        rounded = ((k * change).square() + state.square()).sum(-1)
        spread = through @ spread @ through.mT + of_change * (k @ k.mT) + torch.diag_embed(rounded)
        q, seen = query[:, :, at, :, None], state.repeat_interleave(shared, 1)
        inherited = (q * (spread.repeat_interleave(shared, 1) @ q)).sum(2)
        squares.append(inherited / columns + sum_size(terms, (seen * q).square().sum(2), (seen * q).sum(2)))
    rows = spread.diagonal(dim1=-2, dim2=-1).unsqueeze(-1) / columns
    return [torch.stack(squares, 2).sqrt(), rows.sqrt().expand_as(state)]


def _logsumexp(args: Sequence[Any], values: Sequence[Any], call: Call, target: str) -> Sizes:
    rows, value = _rows(args[0], _axes(args)), values[0].double()
    of_sum = _of_exponentials(rows - rows.amax(-1, keepdim=True), -1, _unit(values[0])).reshape(value.shape)
    return [torch.nan_to_num((value.square() + 1 + of_sum).sqrt(), 0.0, 0.0, 0.0)]


def _resized(args: Sequence[Any], values: Sequence[Any], call: Call, target: str) -> Sizes:
    """Averages of neighbours at places up to the width W, each rounded: ``x·√(1 + W²/9)``."""
    x = args[0].double()
    width = max(x.shape[2:])
    return [(call(target, [x.square(), *args[1:]], {}).abs() * (1 + width**2 / 9)).sqrt()]


def _sampled(args: Sequence[Any], values: Sequence[Any], call: Call, target: str) -> Sizes:
    """Values at places in −1 … 1, which become ``(1 + place)·W/2``: the error of one rounding of that."""
    image, places = args[0].double(), args[1].double()
    value = call(target, [image, places, *args[2:]], {})
    moved = call(target, [image, places + _PART * (1 + places.abs()), *args[2:]], {})
    return [(((moved - value) / _PART).square() + 2 * value.square()).sqrt()]


def _chosen(target: str, args: Sequence[Any], kwargs: Mapping[str, Any], values: Sequence[Any]) -> Sizes:
    """Scales are a difference and a ratio in float32; zero points have the error of a step of 1.

    The distance to a kernel's other grid is added.
    """
    others = flat_values(as_kernels_choose(target, args, kwargs, list(values)))
    chosen: Sizes = []
    for value, other in zip(values, others, strict=True):
        half = half_ulp(value)
        rounding = value.double().abs() * EPS["float32"] / half if half else torch.tensor(12**-0.5)
        chosen.append((rounding.square() + ((other.double() - value.double()) / (half or 1.0)).square()).sqrt())
    return chosen


def _elementwise(
    target: str, args: Sequence[Any], kwargs: Mapping[str, Any], values: Sequence[Any], call: Call
) -> Sizes:
    """One rounding of inexact results, for functions also one of each argument.

    One inexact result tells that all may be rounded.
    """
    axis, blocks = _blocks(target, args, kwargs, values)
    of_blocks = [_of_block(target, *block, call) for block in blocks]
    if len(blocks) == 1 or all(size is None for (size,) in of_blocks):
        return of_blocks[0]
    for at, block in enumerate(blocks):
        of_blocks[at] = _of_block(target, *block, call, inexact=True) if of_blocks[at][0] is None else of_blocks[at]
    return [torch.cat([size for (size,) in of_blocks if size is not None], axis)]


def _blocks(
    target: str, args: Sequence[Any], kwargs: Mapping[str, Any], values: Sequence[Any]
) -> tuple[int, list[tuple[Sequence[Any], Mapping[str, Any], Sequence[Any]]]]:
    value, leaves = values[0], [*args, *kwargs.values()]
    whole = 0, [(args, kwargs, values)]
    if len(values) > 1 or value.numel() <= BLOCK or any(map(has_further_axis, (value, *leaves))):
        return whole
    if not is_pointwise(target):
        return whole
    axis = next(at for at, size in enumerate(value.shape) if size > 1) - value.ndim
    size = value.shape[axis]
    length = max(1, torch.get_num_threads() * BLOCK * size // value.numel())

    def part(leaf: Any, start: int) -> Any:
        if not isinstance(leaf, torch.Tensor) or leaf.ndim < -axis or leaf.shape[axis] == 1:
            return leaf
        return leaf.narrow(axis, start, min(length, size - start))

    if any(isinstance(leaf, (list, tuple)) for leaf in leaves):
        return whole
    return axis, [
        (
            [part(leaf, start) for leaf in args],
            {name: part(leaf, start) for name, leaf in kwargs.items()},
            [part(value, start)],
        )
        for start in range(0, size, length)
    ]


def _of_block(
    target: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    values: Sequence[Any],
    call: Call,
    *,
    inexact: bool = False,
) -> Sizes:
    plain = [_wide(result).abs() if half_ulp(result) is not None else None for result in values]
    wide = [_doubled(operand) for operand in args]
    named = {name: _doubled(operand) for name, operand in kwargs.items()}
    try:
        exact = flat_values(call(target, wide, named))
    except Exception:  # noqa: BLE001 - operators without a float64 kernel fail in many ways
        return plain
    if len(exact) != len(values) or any(
        getattr(a, "shape", None) != getattr(b, "shape", None) for a, b in zip(exact, values, strict=True)
    ):
        return plain
    found = [_doubled(result) for result in values]
    rounding = [size is not None and b.dtype != torch.float64 for b, size in zip(values, plain, strict=True)]
    rounded = [_differ(a, b) for a, b, rounds in zip(exact, found, rounding, strict=True) if rounds]
    if rounded and not inexact and not any(map(_is_true, rounded)):
        return [None] * len(values)
    name = target.partition(".")[2].partition(".")[0]
    if name in _ARITHMETIC:
        each = zip(plain, exact, values, rounding, strict=True)
        plain = [_inexact(size, a, b) if size is not None and rounds else size for size, a, b, rounds in each]
        return _with_own(plain, exact, found, values) if name in _STEPPED or "_mode" in target else plain
    moved: list[list[Any]] = []
    places: list[tuple[Any, Any]] = [*((wide, at) for at in range(len(wide))), *((named, name) for name in named)]
    for given, at in places:
        operand = given[at]
        if half_ulp(operand) is None and not (isinstance(operand, float) and float(torch.tensor(operand)) != operand):
            continue
        given[at] = operand * (1 + _PART)
        moved.append(flat_values(call(target, wide, named)))
        given[at] = operand
    operand = (wide[0] if wide else named["self"]) if name == "gelu" else None
    each = [
        _of_function(size, value, a, b, [others[at] for others in moved], operand) if size is not None else None
        for at, (size, value, a, b) in enumerate(zip(plain, values, exact, found, strict=True))
    ]
    rounds = functools.reduce(torch.logical_or, rounded, torch.tensor(inexact or not rounded))
    return [size * rounds if size is not None else None for size in each] if has_further_axis(rounds) else each


def _inexact(size: torch.Tensor, exact: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    if _can_compile(value, exact):
        found = torch.empty_like(value)
        if sizes_of_inexact(value.data_ptr(), exact.data_ptr(), value.numel(), found.data_ptr()):
            return found
    return torch.where(exact != value, size, 0.0)


def _of_function(
    size: torch.Tensor, value: Any, exact: Any, found: Any, moved: Sequence[Any], operand: torch.Tensor | None
) -> torch.Tensor:
    """From results in float64, also with each argument `moved`; a GELU's `operand` adds the error of its erf."""
    moved, half = [other for other in moved if other.shape == exact.shape], half_ulp(value) or 1.0
    given = [exact, *moved, *([operand] if operand is not None else [])]
    if _can_compile(value, *given):
        of_all, others = torch.empty_like(value), [other.data_ptr() for other in moved]
        x = operand.data_ptr() if operand is not None else 0
        pointers = value.data_ptr(), exact.data_ptr(), others, x
        if sizes_of_function(*pointers, _PART, half, value.numel(), of_all.data_ptr()):
            return of_all
    squares = found.abs().square()
    if operand is not None:
        of_erf = (exact - operand / 2) * min(1.0, EPS["float32"] / _unit(value))
        squares = squares + of_erf.square()
    for other in moved:
        squares = squares + _where_finite((other - exact) / _PART).square()
    return torch.maximum(squares.sqrt(), _where_finite(exact - found) / half).to(size.dtype)


def _can_compile(value: torch.Tensor, *others: torch.Tensor) -> bool:
    return (
        value.dtype == torch.float32
        and all(tensor.is_contiguous() and not has_further_axis(tensor) for tensor in (value, *others))
        and all(other.dtype == torch.float64 and other.shape == value.shape for other in others)
    )


def _where_finite(difference: torch.Tensor) -> torch.Tensor:
    """Its size, 0 where it is not finite."""
    return torch.nan_to_num(difference.abs(), 0.0, 0.0, 0.0)


def _with_own(each: Sizes, exact: Sequence[Any], found: Sequence[Any], values: Sequence[Any]) -> Sizes:
    larger = list(each)
    for place, (size, a, b, value) in enumerate(zip(each, exact, found, values, strict=True)):
        half = half_ulp(value)
        if size is not None and half:
            larger[place] = torch.maximum(size, (_where_finite(a - b) / half).to(size.dtype))
    return larger


def _differ(exact: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    if has_further_axis(exact) or has_further_axis(value):
        return (exact != value).any()
    return torch.tensor(not torch.equal(exact, value))  # most often the first ones tell


def _is_true(value: torch.Tensor) -> bool:
    return bool(unwrapped(value).any())


def _doubled(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_doubled(item) for item in value]
    if not isinstance(value, torch.Tensor):
        return value
    return value.double() if value.is_floating_point() else value.to(torch.complex128) if value.is_complex() else value


@functools.lru_cache(maxsize=4096)
def _quantile(errors: float, samples: float) -> float:
    """Where an F distribution with these degrees of freedom leaves `FALSE_ALARMS` above.

    Newton's method converges from anywhere, since the tail's logarithm is concave.
    """
    # The import of scipy.special takes longer than most programs need quantiles.
    at = 0.0
    for _ in range(_TERMS):  # 25 are the most that any degrees up to `ENOUGH` need
        tail, density = _tail(samples / 2, errors / 2, math.exp(at))
        step = math.log(tail / FALSE_ALARMS) * tail / density
        at += min(step, 1.0)  # far above, the tail would be 0
        if abs(step) < _CLOSE:
            break
    return math.exp(at)


def _tail(a: float, b: float, value: float) -> tuple[float, float]:
    if math.isinf(a):
        y = b * value
        tail = torch.special.gammaincc(*torch.tensor([b, y], dtype=torch.float64))
        return float(tail), math.exp(b * math.log(y) - y - math.lgamma(b))
    x = a / (a + b * value)
    density = math.exp(a * math.log(x) + b * math.log1p(-x) + math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b))
    if x < (a + 1) / (a + b + 2):
        return density / (a * _fraction(a, b, x)), density
    return 1 - density / (b * _fraction(b, a, 1 - x)), density


def _fraction(a: float, b: float, x: float) -> float:
    """The continued fraction of the incomplete beta function (NIST DLMF, 8.17.22)."""
    value = 1.0
    for term in range(_TERMS, 0, -1):
        half, odd = divmod(term, 2)
        factor = -(a + half) * (a + b + half) if odd else half * (b - half)
        value = 1 + factor * x / ((a + term - 1) * (a + term) * value)
    return value


def _rounded(count: float) -> float:
    return count if math.isinf(count) or count < 2 else float(f"{count:.2g}")


def chance(errors: float) -> float:
    """By what factor the RMS of so many independent errors exceeds their noise with a probability of `FALSE_ALARMS`."""
    return math.sqrt(_quantile(_rounded(min(max(errors, 1.0), ENOUGH)), math.inf))


def allowance(errors: float, samples: float = math.inf) -> float:
    """Factor by which noise is widened for small samples.

    The square of error over noise follows an F distribution. Its `FALSE_ALARMS` quantile must not exceed the square of
    the threshold. `samples` are the independent elements that the noise was measured on, infinite for a law.

    Examples
    --------
    >>> round(allowance(1), 2), allowance(10), round(allowance(1, 10), 1)
    (1.47, 1.0, 2.7)
    """
    wide = _quantile(
        _rounded(min(max(errors, 1.0), ENOUGH)), _rounded(max(samples, 1.0)) if samples < ENOUGH else math.inf
    )
    return max(1.0, math.sqrt(wide) / THRESHOLD)


def independent(squares: torch.Tensor) -> float:
    """Number of equal elements that some squares count as: ``(Σs)²/Σs²``, 1 if one is far larger than the others.

    This is the number of degrees of freedom of their sum (F. E. Satterthwaite, 1946).
    """
    largest = float(squares.max()) if squares.numel() else 0.0
    if not 0 < largest < math.inf:
        return float(max(squares.numel(), 1))
    share = squares.double()
    if not 1e-100 < largest < 1e100:  # whose squares would leave float64's range
        share = share / largest
    return (float(share.sum()) / float(torch.linalg.vector_norm(share))) ** 2


def by_law(value: Any, size: torch.Tensor | None, together: int = 1) -> Noise:
    """The noise of one result of an operator, from its size S; `together` elements share an error."""
    if size is None:
        return NO_NOISE
    if value.numel() == size.numel() == 1:
        return Noise((half_ulp(value) or 1.0) * math.sqrt(float(size) ** 2) * allowance(1.0), BY_LAW)
    total, independent_squares = _squares_of(size, value.numel())
    rms = (half_ulp(value) or 1.0) * math.sqrt(total / max(size.numel(), 1))
    return Noise(rms * allowance(_independent(value, size, independent_squares) / together), BY_LAW)


def _squares_of(size: torch.Tensor, count: int) -> tuple[float, float]:
    """The sum of the squares of a size, and as how many equal ones the squares of its `count` elements count."""
    size = size.contiguous()
    known = powers(Elements(size.data_ptr(), str(size.dtype).removeprefix("torch.")), size.numel())
    if known is not None and 1e-50 < known.largest < 1e50:  # else the fourth powers leave float64's range
        return known.squares, known.squares**2 / known.fourths * (count / size.numel())
    squares = size.double().square()
    return float(squares.sum()), independent(squares.expand(count // max(1, size.numel()), *size.shape))


def _independent(value: torch.Tensor, size: torch.Tensor, plain: float) -> float:
    """As `independent`; equal results of equal size count as one: equal inputs made them."""
    # The first elements of a large value are looked at, then all if these are few different ones.
    values = (value.abs() if value.is_complex() else value).reshape(-1)
    sizes = size.expand(value.shape).reshape(-1)
    for count in (_FIRST, None):
        part = sizes[:count].double().square()
        keys = values[:count].double() + part * math.pi
        ordered = np.sort(keys.detach().numpy())
        if (ordered[1:] > ordered[:-1]).all():
            return plain
        _, groups = torch.unique(torch.nan_to_num(keys), return_inverse=True)
        grouped = independent(torch.zeros_like(part).scatter_add_(0, groups, part))
        if grouped >= independent(part) / 2:
            return plain
        if len(part) == len(sizes):
            break
    return min(plain, grouped)


LastRounded = list[list["tuple[Node, int | None]"]]
"""For each result of a graph, the operators whose roundings it has, and their outputs."""


class Sizing:
    """Computes operators unchanged; gives by law the noise that those of `last` leave in a graph's results.

    An operator of which no output is named rounds the elements of all results.
    """

    def __init__(self, last: LastRounded) -> None:
        self._last = last
        self.wanted = {id(node) for operators in last for node, _ in operators}
        self._ran: dict[int, tuple[list[Any], Callable[[], list[Noise]]]] = {}

    def call(
        self,
        call: Callable[..., Any],
        node: Node,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        *,
        delegated: bool = False,
    ) -> Any:
        value = call(node.target, args, kwargs)
        if id(node) in self.wanted:
            law = functools.cache(functools.partial(noise_of, call, node, args, kwargs, value))
            self._ran[id(node)] = flat_values(value), law
        return value

    def noise(self, results: Sequence[Any]) -> list[Noise]:
        return [self.of_output(results, output) for output in range(min(len(self._last), len(results)))]

    def of_output(self, results: Sequence[Any], output: int) -> Noise:
        """0 where a result does not hold all elements of what an operator rounded."""
        ran = [(self._ran[id(node)], at) for node, at in self._last[output] if id(node) in self._ran]
        parts = [_part(values, law(), at, results[output]) ** 2 for (values, law), at in ran]
        return Noise(math.sqrt(sum(parts)), BY_LAW)


def _part(values: Sequence[Any], noises: Sequence[Noise], output: int | None, result: Any) -> Noise:
    if output is None:
        return max(noises, default=NO_NOISE)
    return noises[output] if values[output].numel() == result.numel() else NO_NOISE


def noise_of(
    call: Callable[..., Any],
    node: Node,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    value: Any,
    runtime: Sequence[Any] | None = None,
) -> list[Noise]:
    """The noise of each result of one operator on its inputs, by law.

    Where the `runtime` chose other indices of equal elements, their distance is the noise.
    """
    values = flat_values(value)
    own_sizes = sizes(node, args, kwargs, value, call)
    given = by_position(node.target, args, kwargs)[0] if kwargs else args
    noises = [by_law(*pair, _together(node, given, values)) for pair in zip(values, own_sizes, strict=True)]
    name = node.target.partition(".")[2].partition(".")[0]
    computed, logged = values[-1], runtime[-1] if runtime is not None and len(runtime) == len(values) else None
    if name in _CHOOSING and _same_elements(name, by_position(node.target, args, kwargs)[0], computed, logged):
        noises[-1] = Noise(math.sqrt(float((computed - logged).double().square().mean())), BY_LAW)
    return noises


def _same_elements(name: str, args: Sequence[Any], indices: Any, others: Any) -> bool:
    x = args[0]
    if getattr(others, "shape", None) != indices.shape or others.dtype != indices.dtype or not x.ndim:
        return False
    dim = {"topk": 2, "kthvalue": 2}.get(name, 1)
    axis = args[dim] if len(args) > dim else -1
    if name == "max_pool2d_with_indices":
        x, indices, others, axis = x.flatten(-2), indices.flatten(-2), others.flatten(-2), -1
    elif axis is None:
        x, indices, others, axis = x.flatten(), indices.flatten(), others.flatten(), 0
    elif indices.ndim < x.ndim:
        indices, others = indices.unsqueeze(axis), others.unsqueeze(axis)
    if not bool(((others >= 0) & (others < x.shape[axis])).all()):
        return False
    return torch.equal(x.gather(axis, indices), x.gather(axis, others))


def _together(node: Node, args: Sequence[Any], values: Sequence[Any]) -> int:
    name = node.target.partition(".")[2].partition(".")[0]
    if "softmax" in name and len(args) > 1 and isinstance(args[1], int) and values[0].ndim:
        return values[0].shape[args[1]]
    if "norm" in name and len(values) > 1 and values[-1].numel():
        return values[0].numel() // values[-1].numel()
    return 1


_FAMILIES: Final[Mapping[str, Family]] = {
    "sum": _sum,
    "mean": _mean,
    **dict.fromkeys(("avg_pool1d", "avg_pool2d", "avg_pool3d"), _pooled),
    **dict.fromkeys(("_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "adaptive_avg_pool2d"), _pooled),
    "cumsum": _running,
    "prod": _product_of,
    "cumprod": _product_of,
    **dict.fromkeys(("var", "std", "var_mean"), _variance),
    **dict.fromkeys(("norm", "linalg_vector_norm"), _length),
    **dict.fromkeys(("mm", "bmm", "addmm", "baddbmm", "matmul", "mv", "dot"), _matmul),
    "linear": _linear,
    "convolution": _convolution,
    **dict.fromkeys(("native_layer_norm", "layer_norm", "rms_norm", "_fused_rms_norm"), _layer_norm),
    "native_group_norm": _group_norm,
    "_native_batch_norm_legit": _group_norm,
    **dict.fromkeys(("_native_batch_norm_legit_no_training", "native_batch_norm", "batch_norm"), _batch_norm),
    **dict.fromkeys(("_softmax", "softmax", "_log_softmax", "log_softmax"), _softmax),
    **dict.fromkeys(("custom_sdpa", "custom_quantized_sdpa", "sdpa_with_kv_cache"), _attention),
    **dict.fromkeys(("gated_delta_rule", "channelwise_gated_delta_rule"), _recurrence),
    **dict.fromkeys(("cdist", "_cdist_forward", "pdist", "_pdist_forward"), _distances),
    **dict.fromkeys(("_fft_r2c", "_fft_c2r", "_fft_c2c"), _transformed),
    "logsumexp": _logsumexp,
    **dict.fromkeys(
        ("upsample_bilinear2d", "upsample_bicubic2d", "upsample_linear1d", "_upsample_bilinear2d_aa"), _resized
    ),
    **dict.fromkeys(("grid_sampler", "grid_sampler_2d", "grid_sampler_3d"), _sampled),
}
"""By the operator's name: S of each output, from arguments in order, results, how to call, target."""
