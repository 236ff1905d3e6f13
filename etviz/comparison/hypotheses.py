"""Hypotheses about a wrong operator: other settings or other weights that give the runtime's value.

A suspect operator is computed again on the runtime's inputs, with one change at a time.
"""

from __future__ import annotations

import itertools
import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import torch

from etviz.evaluation.operator_rules import Operator, by_position, resolve
from etviz.evaluation.unpacked import Quantized
from etviz.evaluation.values import flat_values
from etviz.graph.draws import draws
from etviz.graph.ir import Ref, map_arg
from etviz.graph.labels import constant_names, short_operator
from etviz.graph.quantize_ops import is_conversion, is_dequantize
from etviz.graph.uses import MOVING, only_moves
from etviz.tensors.blocks import dtype_name
from etviz.tensors.changes import describe_change, rearrange, rearrangements, shortest_number
from etviz.tensors.fingerprints import (
    FEWEST_EACH,
    FORMULA,
    SETTING,
    WEIGHTS,
    Fingerprint,
    TensorPair,
    adjusted,
    explaining,
)

if TYPE_CHECKING:
    from etviz.comparison.gap import ExecutionGaps, Gap
    from etviz.evaluation.values import Perturbation
    from etviz.graph.ir import Graph, Meta, Node

logger = logging.getLogger(__name__)

_LAYER_NORM: Final = "aten.native_layer_norm.default"

_MOST: Final = 64
_SECONDS: Final = 2.0
_INSTRUCTIONS: Final = 4
_SURE, _SURE_OF_NUMBER = 0.9, 0.99
"""Thresholds for the share of the squared error that a hypothesis explains, and a fitted number."""
_CANDIDATES: Final = 3
_ALIKE: Final = 1e-3
"""Tolerance of correlations within which a row counts as itself."""
_IDLE: Final = frozenset(
    (
        *("half_to_float", "cudnn_enabled", "benchmark", "deterministic", "allow_tf32"),
        *("sparse", "scale_grad_by_freq", "transposed", "train", "training", "pin_memory", "non_blocking", "copy"),
        *("enable_gqa", "dropout_p", "drpout_p", "correction"),
    )
)
"""Arguments that change the kind of a value, or nothing, let it be drawn, or warn."""
_CHOICES: Final[Mapping[str, tuple[Any, ...]]] = {
    "approximate": ("none", "tanh"),
    "rounding_mode": (None, "trunc", "floor"),
}
_DECADES: Final = 6
_SECTIONS: Final = 24
_GOLDEN: Final = (math.sqrt(5) - 1) / 2
_PLACES: Final = frozenset(("start", "index", "diagonal", "offset", "storage_offset", "shifts"))
"""Arguments that count elements, where implementations are off by one."""
_FAR: Final = 1 << 40
"""Ends of slices from which the end means the whole axis."""
_AXES: Final = frozenset(("dim", "dims", "axis"))
_PADDING: Final = frozenset(("padding", "pad", "output_padding", "output_size", "scale_factors", "align_corners"))
"""Arguments of operators that compute border elements differently."""
_ADDING: Final = frozenset(("bias", "mat1", "batch1"))
"""Arguments of operators that add a bias; ``addmm`` calls it ``self``."""
_BIAS_FIRST: Final = ("addmm", "baddbmm")
_PRODUCTS: Final = (*_BIAS_FIRST, "bmm", "mm", "matmul", "linear", "convolution")
_CHOOSING: Final = MOVING | {
    *("ceil", "clamp", "floor", "index", "maximum", "minimum", "relu", "round", "trunc", "where", "embedding"),
    *("amax", "amin", "max", "min", "max_pool2d_with_indices", "hardtanh", "gather", "index_select", "flip", "cat"),
    *("sort", "topk", "constant_pad_nd", "repeat"),
}
"""Operators whose results are elements of their inputs, maybe rounded or bounded."""
_PRECISION: Final = "dtype truncation"
_HALVES: Final = (torch.bfloat16, torch.float16)
_ROUNDING: Final = ("floor", "ceil", "trunc", "round")
_RESIZING: Final = frozenset(f"aten.upsample_{kind}.vec" for kind in ("bilinear2d", "bicubic2d", "nearest2d"))

Call: TypeAlias = Callable[[str, Sequence[Any], Mapping[str, Any]], Any]
Compute: TypeAlias = "Callable[[Call, Node, Sequence[Any], Mapping[str, Any]], Any]"


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """Another way to compute an operator; `places` are ids of nodes."""

    name: str
    text: str
    places: frozenset[int]
    compute: Compute


class _Otherwise:
    def __init__(self, places: frozenset[int], compute: Compute) -> None:
        self._places, self._compute = places, compute

    def call(
        self,
        call: Callable[..., Any],
        node: Node,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        *,
        delegated: bool = False,
    ) -> Any:
        if id(node) not in self._places:
            return call(node.target, args, kwargs)
        whole = [argument.whole() if isinstance(argument, Quantized) else argument for argument in args]
        named = {name: item.whole() if isinstance(item, Quantized) else item for name, item in kwargs.items()}
        return self._compute(call, node, whole, named)


def explain_gaps(
    result: ExecutionGaps,
    gaps: Sequence[Gap],
    graph: Graph,
    nodes: Sequence[Node],
    again: Callable[[Perturbation], Any] | None,
    value: Any,
) -> None:
    # `explain` tries them later, as gaps that are bad may be forgotten until then.
    if again is not None and len(result.unexplained) < _INSTRUCTIONS and any(gap.is_bad() for gap in gaps):
        result.unexplained.append(partial(_explain, gaps, graph, nodes, again, value))


def explain(*results: ExecutionGaps) -> None:
    with torch.no_grad():
        for result in results:
            for each in result.unexplained:
                each()
            result.unexplained.clear()


def _explain(
    gaps: Sequence[Gap], graph: Graph, nodes: Sequence[Node], again: Callable[[Perturbation], Any], value: Any
) -> None:
    bad = [gap for gap in gaps if gap.is_bad()]
    if not bad:
        return
    plain, end = flat_values(value), time.monotonic() + _SECONDS
    for hypothesis in itertools.islice(hypotheses(graph, nodes), _MOST):
        if time.monotonic() > end:
            break
        try:
            others = flat_values(again(_Otherwise(hypothesis.places, hypothesis.compute)))
        except Exception:
            logger.debug("%s can't be computed", hypothesis, exc_info=True)
            continue
        for gap in bad:
            if gap.output < min(len(plain), len(others)):
                _note(gap, _fit(gap, plain[gap.output], others[gap.output], hypothesis))
    if any(gap.hypothesis for gap in bad):
        return
    _explain_by_numbers(bad, nodes, again, plain, end)
    computing = _computing(nodes)
    if len(computing) == 1:  # a weight may fit better than a number
        _explain_by_weights(bad[0], graph, computing[0], again, end)


def _note(gap: Gap, fingerprint: Fingerprint | None) -> None:
    if fingerprint is not None and (gap.hypothesis is None or fingerprint.score > gap.hypothesis.score):
        gap.hypothesis = fingerprint


def in_precision(precision: str, plain: torch.Tensor, ran: torch.Tensor, single: torch.Tensor) -> Fingerprint | None:
    """For a backend that says in which precision it computed `ran`, and can compute it in float32, too (`single`)."""
    score = TensorPair(ran, plain).confirmed_by(ran, plain, single)
    text = f"The backend computed in {precision} (the program says float32); in float32, it computes the reference"
    return explaining(_PRECISION, score, text) if score >= _SURE else None


def _fit(gap: Gap, plain: Any, other: Any, hypothesis: Hypothesis) -> Fingerprint | None:
    kind = getattr(other, "shape", None), getattr(other, "dtype", None)
    if kind != (gap.runtime.shape, gap.runtime.dtype) or getattr(plain, "shape", None) != gap.runtime.shape:
        return None
    score = TensorPair(plain, gap.runtime, gap.scale).confirmed_by(plain, gap.runtime, other)
    return explaining(hypothesis.name, score, hypothesis.text) if score >= _SURE else None


def fits(name: str, operators: frozenset[str], *, on_grid: bool) -> bool:
    """True if a fingerprint of `NAMES` can be a fault of the operators, or none are known."""
    if not operators:
        return True
    arguments = {argument for target in operators for argument in _names(target)}
    short = {short_operator(target) for target in operators}
    if name == "border pixels":
        return bool(arguments & _PADDING)
    if name == "bias":
        return bool(arguments & _ADDING)
    if name == "constant offset":
        return on_grid or bool(arguments & {*_ADDING, "alpha"})
    if name == "scale factor":
        return on_grid or not short <= _CHOOSING
    return True


def _names(target: str) -> tuple[str, ...]:
    operator = _operator(target)
    return operator.names if operator is not None else ()


# Settings ---------------------------------------------------------------------------------------------------------


def hypotheses(graph: Graph, nodes: Sequence[Node]) -> Iterator[Hypothesis]:
    yield from _formulas(nodes)
    by_text: dict[tuple[int, str, str], tuple[set[int], Compute]] = {}
    for node in nodes:
        operator = _operator(node.target)
        if operator is not None and not is_conversion(node) and not draws(node):
            for order, text, compute in (*_arguments(operator, node), *_operands(operator, node)):
                by_text.setdefault((order, node.target, text), (set(), compute))[0].add(id(node))
    for (_, target, text), (places, compute) in sorted(by_text.items(), key=lambda pair: pair[0][0]):
        yield Hypothesis(SETTING, f"The values fit {short_operator(target)} {text}", frozenset(places), compute)
    yield from _rearranged_weights(graph, nodes)


def _operator(target: str) -> Operator | None:
    try:
        operator = resolve(target) if "." in target else None
    except Exception:  # noqa: BLE001 - an operator that is not registered here
        return None
    return operator if isinstance(operator, Operator) else None


def _formulas(nodes: Sequence[Node]) -> Iterator[Hypothesis]:
    floats = [node for node in nodes if any(meta and meta.dtype == "float32" for meta in node.outputs)]
    products = [node for node in floats if short_operator(node.target) in _PRODUCTS]
    for dtype, (places, stored), adding in itertools.product(
        _HALVES, ((products, False), (floats, False), (floats, True)), (False, True)
    ):
        if places:
            text = f"The values fit operators on {dtype_name(dtype)} numbers (the program says float32)"
            compute = partial(_in_half, dtype, stored, adding)
            yield Hypothesis(_PRECISION, text, frozenset(map(id, places)), compute)
    norms = frozenset(id(node) for node in nodes if node.target == _LAYER_NORM)
    if norms:
        text = "The values fit a layer_norm whose variance is the mean square less the squared mean, which loses digits"
        yield Hypothesis(
            FORMULA, text, norms, lambda call, node, args, kwargs: by_moments(by_position(node.target, args, kwargs)[0])
        )
    for node in nodes:
        name = short_operator(node.target)
        for other in _ROUNDING if name in _ROUNDING and node.target.endswith(".default") else ():
            if other != name:
                target = f"aten.{other}.default"
                text = f"The values fit {other} (the program says {name})"
                yield Hypothesis(FORMULA, text, frozenset((id(node),)), partial(_as_target, target))
        meta = node.outputs[0] if node.outputs else None
        if node.target not in _RESIZING or meta is None:
            continue
        factors = by_position(node.target, node.args, node.kwargs)[0][-1]
        sizes = [size for size in meta.shape[-len(factors or ()) :] if isinstance(size, int)]
        if factors and len(sizes) == len(factors):
            given = ", ".join(f"{factor:g}" for factor in factors)
            text = f"The values fit {name} by the ratio of the sizes (the program gives the factors {given})"
            yield Hypothesis(SETTING, text, frozenset((id(node),)), partial(_by_sizes, sizes))


def _in_half(
    dtype: torch.dtype,
    stored: bool,
    adding: bool,
    call: Call,
    node: Node,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> Any:
    """Operands are rounded, results if `stored`, biases if `adding`, sums are not."""

    def rounded(leaf: Any) -> Any:
        single = isinstance(leaf, torch.Tensor) and leaf.dtype == torch.float32
        return leaf.to(dtype).to(torch.float32) if single else leaf

    names = list(_names(node.target))
    if short_operator(node.target) in _BIAS_FIRST:
        names[0] = "bias"
    kept = "" if adding else "bias"
    given = [a if name == kept else map_arg(a, rounded) for name, a in itertools.zip_longest(names[: len(args)], args)]
    named = {name: argument if name == kept else map_arg(argument, rounded) for name, argument in kwargs.items()}
    result = call(node.target, given, named)
    return map_arg(result, rounded) if stored else result


def by_moments(args: Sequence[Any]) -> list[torch.Tensor]:
    """A layer norm by moments: variance = mean square − squared mean, in the values' dtype.

    As in ``kernels/portable/cpu/op_native_layer_norm.cpp``. Noise does not grant it, because other layer norms keep the
    digits that it loses. Returns normalized values, means and 1 / deviations.
    """
    x, shape, weight, bias, eps = args
    rows = x.reshape(-1, math.prod(shape))
    total = squares = torch.zeros(len(rows), dtype=x.dtype)
    for column in rows.unbind(1):
        total, squares = total + column, squares + column * column
    mean = total / rows.shape[1]
    deviation = (squares / rows.shape[1] - mean * mean + eps).sqrt()
    values = ((rows - mean[:, None]) / deviation[:, None]).reshape(x.shape)
    values = values if weight is None else values * weight
    along = [*x.shape[: x.ndim - len(shape)], *[1] * len(shape)]
    return [values if bias is None else values + bias, mean.reshape(along), (1 / deviation).reshape(along)]


def _as_target(target: str, call: Call, node: Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    return call(target, args, kwargs)


def _by_sizes(sizes: list[int], call: Call, node: Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    given = by_position(node.target, args, kwargs)[0]
    return call(node.target, [given[0], sizes, *given[2:-1], None], {})


def _arguments(operator: Operator, node: Node) -> Iterator[tuple[int, str, Compute]]:
    rank = next((len(meta.shape) for meta in node.outputs if meta is not None), 0)
    for place, argument in enumerate(operator.schema.arguments):
        said, default = _said(node, place, argument)
        for order, tried in _others(argument.name, said, default, rank):
            change = {argument.name: tried}
            end = node.args[place + 1] if argument.name == "start" and place + 1 < len(node.args) else None
            if isinstance(end, int) and end < _FAR:
                change["end"] = end + tried - said
            yield order, f"with {argument.name}={tried!r} (the program says {said!r})", partial(_with, change)


def _said(node: Node, place: int, argument: Any) -> tuple[Any, Any]:
    default = argument.default_value if argument.has_default_value() else None
    return node.args[place] if place < len(node.args) else node.kwargs.get(argument.name, default), default


def _others(name: str, said: Any, default: Any, rank: int) -> Iterator[tuple[int, Any]]:
    if name in _CHOICES:
        yield from ((0, other) for other in _CHOICES[name] if other != said)
    elif isinstance(said, bool):
        yield from [(2, not said)] if name not in _IDLE else []
    elif name in _AXES and isinstance(said, int):
        yield from ((1, axis) for axis in range(rank) if axis != said % max(rank, 1))
    elif name in _AXES and isinstance(said, (list, tuple)):
        orders = itertools.permutations(said) if 1 < len(said) <= 4 else ((axis,) for axis in range(rank + 1))
        yield from ((3, list(order)) for order in orders if list(order) != list(said))
    elif name in _PLACES and isinstance(said, int):
        yield from ((1, said + step) for step in (1, -1) if said + step >= 0 or said < 0)
    elif isinstance(said, int) and isinstance(default, (int, float)) and said != default:
        yield 1, default


def _numbers(nodes: Sequence[Node]) -> list[tuple[str, str, float | None, frozenset[int]]]:
    """Targets, arguments, numbers, and the ids of all such nodes, and of each."""
    places: dict[tuple[str, str, float | None], set[int]] = {}
    for node in nodes:
        skipped = is_conversion(node) or draws(node) or short_operator(node.target) in _PRODUCTS
        operator = None if skipped else _operator(node.target)
        for place, argument in enumerate(operator.schema.arguments if operator is not None else ()):
            said, _ = _said(node, place, argument)
            real = str(argument.type).removeprefix("Optional[").removesuffix("]") in ("float", "number")
            if real and argument.name not in _IDLE and isinstance(said, (int, float, type(None))):
                places.setdefault((node.target, argument.name, said), set()).add(id(node))
    everywhere = [(*what, frozenset(ids)) for what, ids in places.items()]
    return everywhere + [(*what, frozenset((one,))) for what, ids in places.items() if len(ids) > 1 for one in ids]


def _explain_by_numbers(
    bad: Sequence[Gap], nodes: Sequence[Node], again: Callable[[Perturbation], Any], plain: Sequence[Any], end: float
) -> None:
    for target, name, said, places in _numbers(nodes):

        def results(number: float, name: str = name, places: frozenset[int] = places) -> list[Any]:
            if time.monotonic() > end:
                raise TimeoutError
            return flat_values(again(_Otherwise(places, partial(_with, {name: number}))))

        def left(gap: Gap, number: float, results: Callable[[float], list[Any]] = results) -> float:
            square = float((gap.runtime.double() - results(number)[gap.output].double()).square().sum())
            return square if math.isfinite(square) else math.inf

        for gap in bad:
            try:
                number = _fitted(partial(left, gap), said)
                text = f"The values fit {short_operator(target)} with {name}={number:.6g} (the program says {said!r})"
                hypothesis = Hypothesis(SETTING, text, places, partial(_with, {name: number}))
                found = _fit(gap, plain[gap.output], results(number)[gap.output], hypothesis)
                _note(gap, found if found is not None and found.score >= _SURE_OF_NUMBER else None)
            except Exception:
                logger.debug("%s of %s can't be fitted", name, target, exc_info=True)


def _fitted(left: Callable[[float], float], said: float | None) -> float:
    """The shortest number for which `left` is least: 0, or by golden sections from powers of ten of what is said."""
    powers = range(-2 * _DECADES, 2 * _DECADES + 1)
    grid = [0.0, *(sign * 10 ** (power / 2) * (said or 1.0) for power in powers for sign in (1, -1))]
    number = min(grid, key=left)
    low, high = number / math.sqrt(10), number * math.sqrt(10)
    for _ in range(_SECTIONS if number else 0):
        ratio = (high / low) ** _GOLDEN
        if left(high / ratio) <= left(low * ratio):
            high = low * ratio
        else:
            low = high / ratio
    number = math.copysign(math.sqrt(low * high), number)
    least = left(number)
    return next((short for digits in (1, 2, 3) if left(short := float(f"{number:.{digits}g}")) <= least), number)


def _with(change: Mapping[str, Any], call: Call, node: Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    operator = _operator(node.target)
    names = operator.names if operator is not None else ()
    given = [change.get(name, value) for name, value in zip(names, args, strict=False)]
    return call(node.target, given, dict(kwargs) | {k: v for k, v in change.items() if names.index(k) >= len(args)})


def _operands(operator: Operator, node: Node) -> Iterator[tuple[int, str, Compute]]:
    for place, argument in enumerate(operator.schema.arguments[: len(node.args)]):
        given = node.args[place]
        if isinstance(given, (list, tuple)) and len(given) > 1 and all(isinstance(operand, Ref) for operand in given):
            straight = tuple(range(len(given)))
            orders = list(itertools.permutations(straight))[1:] if len(given) <= 3 else [straight[::-1]]
            orders += [(*range(i), i + 1, i, *range(i + 2, len(given))) for i in straight[:-1] if len(given) > 3]
            for order in orders:
                yield 1, f"with its {argument.name} in the order {order}", partial(_in_order, place, order)
        following = node.args[place + 1 : place + 2]
        if following and all(isinstance(operand, (Ref, int, float)) for operand in (given, *following)):
            names = argument.name, operator.names[place + 1]
            if isinstance(following[0], Ref) or isinstance(given, Ref):
                yield 1, f"with {names[0]} and {names[1]} swapped", partial(_swapped, place)


def _in_order(
    place: int, order: Sequence[int], call: Call, node: Node, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    reordered = [args[place][at] for at in order]
    return call(node.target, [*args[:place], reordered, *args[place + 1 :]], kwargs)


def _swapped(place: int, call: Call, node: Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:

    pair = [item if isinstance(item, torch.Tensor) else torch.tensor(item) for item in args[place : place + 2]]
    like = next(item for item in args[place : place + 2] if isinstance(item, torch.Tensor))
    first, second = (item.to(like.dtype) for item in reversed(pair))
    return call(node.target, [*args[:place], first, second, *args[place + 2 :]], kwargs)


# Weights ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _StoredWeight:
    name: str
    place: int | str
    meta: Meta | None

    def of(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> torch.Tensor:
        return kwargs[self.place] if isinstance(self.place, str) else args[self.place]

    def given(self, weight: torch.Tensor, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, Any]:
        if isinstance(self.place, str):
            return args, {**kwargs, self.place: weight}
        return [*args[: self.place], weight, *args[self.place + 1 :]], kwargs


def _weights(graph: Graph, node: Node) -> list[_StoredWeight]:
    constants = {placeholder.name: placeholder for placeholder in graph.inputs if placeholder.kind == "constant"}
    names = constant_names(graph)
    makers = {other.name: other for other in graph.nodes}
    weights = []
    for place, value in (*enumerate(node.args), *node.kwargs.items()):
        name = value.name if isinstance(value, Ref) else ""
        while name in makers and (is_dequantize(makers[name]) or only_moves(makers[name])):
            name = next(iter(makers[name].reads()), "")
        if name in constants:
            placeholder = constants[name]
            weights.append(_StoredWeight(names[placeholder.target], place, placeholder.meta))
    return weights


def _rearranged_weights(graph: Graph, nodes: Sequence[Node]) -> Iterator[Hypothesis]:
    readers = [(node, weights) for node in _computing(nodes) if (weights := _weights(graph, node))]
    if len(readers) != 1:
        return
    node, weights = readers[0]
    for weight in weights:
        shape = [size for size in weight.meta.shape if isinstance(size, int)] if weight.meta is not None else []
        for words, *how in rearrangements(shape):
            compute = partial(_with_weight, weight, how)
            yield Hypothesis(WEIGHTS, f"{weight.name} {words}", frozenset((id(node),)), compute)


def _computing(nodes: Sequence[Node]) -> Sequence[Node]:
    return [node for node in nodes if not (is_conversion(node) or only_moves(node))] or nodes


def _with_weight(
    weight: _StoredWeight, how: Sequence[Any], call: Call, node: Node, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    changed = rearrange(weight.of(args, kwargs), *how)
    return call(node.target, *weight.given(changed, args, kwargs))


def _explain_by_weights(gap: Gap, graph: Graph, node: Node, again: Callable[[Perturbation], Any], end: float) -> None:
    asked: list[tuple[Call, Sequence[Any], Mapping[str, Any]]] = []

    def listen(call: Call, node: Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        asked.append((call, args, kwargs))
        return call(node.target, args, kwargs)

    try:
        again(_Otherwise(frozenset((id(node),)), listen))
        for call, args, kwargs in asked[:1]:
            for weight in _weights(graph, node):
                fitted = _FittedWeight(gap, weight, node.target, call, args, kwargs)
                for changed, parameters in fitted.candidates():
                    if time.monotonic() > end:
                        return
                    _note(gap, fitted.judge(changed, parameters))
    except Exception:
        logger.debug("no weight of %s can be fitted", node.target, exc_info=True)


class _FittedWeight:
    def __init__(
        self, gap: Gap, weight: _StoredWeight, target: str, call: Call, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> None:
        self._gap, self._weight, self._call = gap, weight, partial(call, target)
        self._args, self._kwargs = args, kwargs
        self.before = weight.of(args, kwargs).detach()
        self._plain = self._value(self.before)

    def _value(self, weight: torch.Tensor) -> torch.Tensor:
        result = self._call(*self._weight.given(weight.to(self.before.dtype), self._args, self._kwargs))
        return flat_values(result)[self._gap.output]

    def candidates(self) -> Iterator[tuple[torch.Tensor, int]]:
        if self.before.dtype.is_floating_point and self._plain.shape == self._gap.runtime.shape:
            yield from self._by_output_channel()
            yield from self._by_gradient()

    def judge(self, changed: torch.Tensor, parameters: int) -> Fingerprint | None:
        text = describe_change(self._weight.name, self.before, changed)
        value, gap = self._value(changed), self._gap
        if not text or value.shape != gap.runtime.shape:
            return None
        r, q, p = (tensor.double().reshape(-1) for tensor in (self._plain, gap.runtime, value))
        score = adjusted(float(((q - p) ** 2).sum()), float(((q - r) ** 2).sum()), q.numel(), parameters)
        return explaining(WEIGHTS, score, text) if score >= _SURE else None

    def _by_output_channel(self) -> Iterator[tuple[torch.Tensor, int]]:
        empty = self._value(torch.zeros_like(self.before)).double()
        y, z = self._plain.double() - empty, self._gap.runtime.double() - empty
        for axis, along in itertools.product(range(self.before.dim()), reversed(range(y.dim()))):
            size = self.before.shape[axis]
            if y.shape[along] != size or size < 2 or not self._makes(axis, along):
                continue
            rows, runs = (tensor.movedim(along, 0).reshape(size, -1).numpy() for tensor in (y, z))
            squares = np.einsum("ij,ij->i", rows, rows)
            if rows.shape[1] < FEWEST_EACH or not squares.all():
                return
            products = runs @ rows.T
            norms = np.sqrt(np.outer(np.maximum(np.einsum("ij,ij->i", runs, runs), 1e-300), squares))
            alike = np.abs(products) / norms
            source, straight = alike.argmax(1), np.arange(size)
            source = np.where(np.diag(alike) >= alike.max(1) - _ALIKE, straight, source)
            factors = products[straight, source] / squares[source]
            error = np.sqrt(np.square(runs - factors[:, None] * rows[source]).sum(1) / squares[source] / rows.shape[1])
            near = np.abs(factors - 1) <= np.maximum(3 * error, _ALIKE)
            factors = np.where(near, 1.0, factors)
            simple = np.isin(np.round(factors, 3), (-1, 0, 1)) & (np.abs(factors - np.round(factors)) < 3 * _ALIKE)
            factors = np.where(simple, np.round(factors), factors)
            index = torch.from_numpy(source)
            shape = [size if k == axis else 1 for k in range(self.before.dim())]
            scale = torch.from_numpy(factors).reshape(shape)
            yield self.before.index_select(axis, index).double() * scale, int((~simple).sum())
            return

    def _makes(self, axis: int, along: int) -> bool:
        without = self.before.clone()
        without.select(axis, 0).zero_()
        change = (self._value(without).double() - self._plain.double()).movedim(along, 0)
        return bool(change[0].any()) and not bool(change[1:].any())

    def _by_gradient(self) -> Iterator[tuple[torch.Tensor, int]]:
        error = (self._gap.runtime.double() - self._plain.double()).to(self._plain.dtype)
        with torch.enable_grad():
            leaf = self.before.clone().requires_grad_()
            (gradient,) = torch.autograd.grad(self._value(leaf), leaf, error)
        pull = gradient.double()
        for axis in range(self.before.dim()):
            others = [k for k in range(self.before.dim()) if k != axis]
            size = self.before.double().square().sum(others) if others else self.before.double().square()
            along = (pull * self.before.double()).sum(others) if others else pull * self.before.double()
            for index in (along.abs() / size.sqrt().clamp_min(1e-300)).argsort(descending=True)[:_CANDIDATES].tolist():
                part = torch.zeros_like(self.before)
                part.select(axis, index).copy_(self.before.select(axis, index))
                yield from self._fitted(part)
        for index in pull.abs().reshape(-1).argsort(descending=True)[:_CANDIDATES].tolist():
            part = torch.zeros_like(self.before)
            part.view(-1)[index] = self.before.reshape(-1)[index]
            yield from self._fitted(part)

    def _fitted(self, part: torch.Tensor) -> Iterator[tuple[torch.Tensor, int]]:
        y = self._plain.double() - self._value(self.before - part).double()
        d = self._gap.runtime.double() - self._plain.double()
        norm = float((y * y).sum())
        if norm > 0.0 and d.numel() >= FEWEST_EACH:
            factor = 1.0 + float((y * d).sum()) / norm
            left = float(((d - (factor - 1.0) * y) ** 2).sum()) / norm / d.numel()
            short = float(shortest_number(factor, 3 * math.sqrt(left)).replace("−", "-"))
            yield self.before.double() + (short - 1.0) * part.double(), 1
