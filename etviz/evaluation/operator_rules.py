"""The function of a graph's target, and the check of its arguments.

Targets and arguments may come from foreign files. Many ATen kernels end the process on a wrong argument, so each is
checked against the operator's schema and against `_PRECONDITIONS`.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any, Final

import torch

from etviz.errors import PairingError
from etviz.evaluation import affine
from etviz.evaluation.language_kernels import LanguageFunction
from etviz.graph.admitted import ADMITTED, is_admitted
from etviz.graph.language_operators import LANGUAGE_OPERATORS
from etviz.graph.python_operators import PYTHON
from etviz.upstream.libraries import GIVE_A_LIBRARY, is_users
from etviz.upstream.operators import is_mutable, is_written, operator_of, overloads_of, schema_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


_NUMBERS: Final = frozenset(("other", "src", "value", "min", "max", "exponent"))
"""Tensor arguments for which exported programs may have a number, which torch converts."""
_LONGEST_TEXT: Final = 256
_LONGEST_LIST: Final = 100_000
_MOST_AXES: Final = 16
_LARGEST: Final = 1 << 31
"""Sizes and places beyond overflow in kernels; slices use more for an open end."""
_VERSION: Final = "load its library in the version that the program was exported with"
_MOST_EMPTY: Final = 1 << 20
"""Maximum number of rows of a tensor without elements: some kernels loop over them."""


def _memory_format(dim_order: Sequence[int] | None) -> torch.memory_format:
    if dim_order is None:
        return torch.preserve_format
    if list(dim_order) == [0, 2, 3, 1]:
        return torch.channels_last
    if list(dim_order) == sorted(dim_order):
        return torch.contiguous_format
    raise PairingError(f"The reference uses the dim order {list(dim_order)}, for which torch has no memory format")


def _clone_dim_order(
    self: torch.Tensor, *, non_blocking: bool = False, dim_order: Sequence[int] | None = None
) -> torch.Tensor:
    return resolve("aten.clone.default")(self, memory_format=_memory_format(dim_order))


def _to_dim_order_copy(
    self: torch.Tensor,
    *,
    dtype: torch.dtype | None = None,
    dim_order: Sequence[int] | None = None,
    **options: Any,
) -> torch.Tensor:
    return resolve("aten._to_copy.default")(self, dtype=dtype, memory_format=_memory_format(dim_order), **options)


def _empty_dim_order(
    size: Sequence[int], *, dtype: torch.dtype | None = None, dim_order: Sequence[int] | None = None, **options: Any
) -> torch.Tensor:
    """Zeros: whoever reads what was never written reads anything."""
    return resolve("aten.full.default")(size, 0, dtype=dtype).to(memory_format=_memory_format(dim_order))


def _copy_to_device(self: torch.Tensor) -> torch.Tensor:
    return self.clone()


_DEVICE_COPIES: Final = ("et_copy._h2d_copy.default", "et_copy._d2h_copy.default")
# Upstream registers these two in a module whose import reads a large YAML file, which takes seconds.
_DIM_ORDER: Final[dict[str, Callable[..., Any]]] = {
    "dim_order_ops._clone_dim_order.default": _clone_dim_order,
    "dim_order_ops._empty_dim_order.default": _empty_dim_order,
    "dim_order_ops._to_dim_order_copy.default": _to_dim_order_copy,
}


UNSET: Final = ("aten.empty.memory_format", "dim_order_ops._empty_dim_order.default")
"""Operators that take memory and write nothing to it."""


class OperatorError(PairingError):
    """The reference uses an operator in a way that is not possible here."""

    def in_file(self, path: str) -> OperatorError:
        return type(self)(f"{path}: {self.problem}", self.advice)


class UnknownOperatorError(OperatorError):
    """An operator is not installed here, or etviz does not call it."""


class ArgumentError(OperatorError):
    pass


class Operator:
    """An operator that checks its arguments; `overload` is for arguments that were checked."""

    def __init__(self, target: str, overload: Callable[..., Any]) -> None:
        self.schema = schema_of(overload)
        self.names = tuple(argument.name for argument in self.schema.arguments)
        self._target, self.overload = target, overload
        ends = ("start", "end") if ".slice" in target else ()
        self._takes = tuple(
            _is_end if argument.name in ends else _taker(argument.real_type, argument.N, argument.name)
            for argument in self.schema.arguments
        )
        self._positional = sum(not argument.kwarg_only for argument in self.schema.arguments)
        self._required = frozenset(a.name for a in self.schema.arguments if not a.has_default_value())
        self._enough = max((at for at, name in enumerate(self.names, 1) if name in self._required), default=0)
        self._places = {name: place for place, name in enumerate(self.names)}
        self._precondition = _PRECONDITIONS.get(target.rpartition(".")[0])

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        self.check(args, kwargs)
        return self.overload(*args, **kwargs)

    def check(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        if len(args) > self._positional:
            raise self._other(f"gives {self._target} {len(args)} arguments, and it takes {self._positional}")
        for value, takes, name in zip(args, self._takes, self.names, strict=False):
            if not takes(value):
                raise self._unfit(name, value)
        for name, value in kwargs.items():
            place = self._places.get(name, -1)
            if place < len(args):
                raise self._other(f"gives {self._target} an argument {name[:40]!r} that it does not take")
            if not self._takes[place](value):
                raise self._unfit(name, value)
        if len(args) < self._enough and (missing := self._required.difference(self.names[: len(args)], kwargs)):
            raise self._other(f"does not give {self._target} its {', '.join(sorted(missing))}")
        if self._precondition is not None:
            given = dict(zip(self.names, args, strict=False)) | dict(kwargs)
            values = [given.get(a.name, a.default_value) for a in self.schema.arguments]
            try:
                fits = self._precondition(*values)
            except (ArithmeticError, AttributeError, IndexError, TypeError, ValueError):
                fits = False
            if not fits:
                raise ArgumentError(f"The reference gives {self._target} arguments that don't go together")

    def _other(self, problem: str) -> ArgumentError:
        return ArgumentError(f"The reference {problem}; here it is {self.schema}", _VERSION)

    def _unfit(self, name: str, value: Any) -> ArgumentError:
        wanted = self.schema.arguments[self._places[name]].real_type
        return self._other(f"gives {self._target} as {name} {_describe(value)}, and it takes {wanted}")


def _describe(value: Any) -> str:
    shape = getattr(value, "shape", None)
    return f"a {type(value).__name__}" + (f" of {value.dtype} {list(shape)}" if shape is not None else "")


@functools.cache
def _tensor_dtypes() -> frozenset[torch.dtype]:
    names = "float16 bfloat16 float32 float64 complex32 complex64 complex128 bool uint8 int8 int16 int32 int64 uint16"
    return frozenset(
        getattr(torch, name) for name in (*names.split(), "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu")
    )


def _is_tensor(value: Any) -> bool:
    return (
        isinstance(value, torch.Tensor)
        and value.layout is torch.strided
        and (value.is_cpu or value.is_meta)
        and value.dtype in _tensor_dtypes()
        and value.dim() <= _MOST_AXES
        and (value.numel() > 0 or math.prod(max(size, 1) for size in value.shape) <= _MOST_EMPTY)
    )


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and -(1 << 63) <= value < 1 << 63


def _is_end(value: Any) -> bool:
    return value is None or _is_integer(value)


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and -_LARGEST <= value <= _LARGEST


def _is_number(value: Any) -> bool:
    return isinstance(value, float) or _is_integer(value)


def _is_dtype(value: Any) -> bool:
    return isinstance(value, torch.dtype) and value in _tensor_dtypes()


def _is_torch(name: str, value: Any) -> bool:
    return (isinstance(value, getattr(torch, name)) and str(value) in ("torch.strided", "cpu")) or (
        name == "memory_format" and isinstance(value, torch.memory_format)
    )


_TAKES: Final[dict[str, Callable[[Any], bool]]] = {
    "Tensor": _is_tensor,
    "int": _is_size,
    "SymInt": _is_size,
    "float": _is_number,
    "number": _is_number,
    "bool": lambda value: isinstance(value, bool),
    "str": lambda value: isinstance(value, str) and len(value) <= _LONGEST_TEXT and value.isascii(),
    "ScalarType": _is_dtype,
    "Layout": functools.partial(_is_torch, "layout"),
    "MemoryFormat": functools.partial(_is_torch, "memory_format"),
    "Device": functools.partial(_is_torch, "device"),
}


def _taker(kind: Any, size: int | None, name: str = "") -> Callable[[Any], bool]:
    form = kind.kind()
    if form == "OptionalType":
        inner = _taker(kind.getElementType(), size, name)
        return lambda value: value is None or inner(value)
    if form == "ListType":
        takes_element = _taker(kind.getElementType(), None)
        return lambda value: (
            (isinstance(value, (list, tuple)) and len(value) <= _LONGEST_LIST and all(map(takes_element, value)))
            or (size is not None and takes_element(value))
        )
    if name in _NUMBERS and str(kind) == "Tensor":
        return lambda value: _is_tensor(value) or _is_number(value)
    return _TAKES.get(str(kind), lambda value: value is None)


def _channels_fit(x: Any, *others: Any) -> bool:
    vectors = [argument for argument in others if isinstance(argument, torch.Tensor)]
    flags = [argument for argument in others if isinstance(argument, bool)]
    if flags and not flags[0] and not all(isinstance(argument, torch.Tensor) for argument in others[2:4]):
        return False
    return x.dim() > 1 and all(vector.dim() == 1 and vector.numel() == x.shape[1] for vector in vectors)


def _groups_fit(x: Any, groups: int, *_: Any) -> bool:
    return x.dim() > 1 and 0 < groups <= x.shape[1]


def _native_groups_fit(
    x: Any, weight: Any, bias: Any, batch: int, channels: int, area: int, groups: int, _: Any
) -> bool:
    vectors = all(vector is None or vector.numel() == channels for vector in (weight, bias))
    return 0 < groups <= channels and batch * channels * area == x.numel() and vectors


def _axes_fit(x: Any, axes: Any, normalization: int, *_: Any) -> bool:
    axes = [axes] if isinstance(axes, int) else axes
    inside = all(-x.dim() <= axis < x.dim() for axis in axes)
    return (
        inside
        and 0 <= normalization <= 2
        and (x.is_floating_point() or x.is_complex())
        and len({axis % x.dim() for axis in axes}) == len(axes) > 0
        and x.numel() > 0
    )


def _inverse_fits(x: Any, axes: Any, normalization: int, last: int) -> bool:
    return _axes_fit(x, axes, normalization) and 0 < last <= 2 * x.shape[axes[-1]]


def _recurrence_fits(
    gates: int, x: Any, state: Any, weights: Any, biases: bool, layers: int, _: float, *flags: bool
) -> bool:
    train, both, first = flags
    states = list(state) if isinstance(state, (list, tuple)) else [state]
    ways, each = (2 if both else 1), (4 if biases else 2)
    if layers <= 0 or len(weights) != each * ways * layers or x.dim() not in (2, 3) or train:
        return False
    if len(states) != (2 if gates == 4 else 1) or weights[1].dim() != 2:
        return False
    if any(item.dtype != x.dtype for item in (*weights, *states)) or not x.is_floating_point():
        return False
    size, width = weights[1].shape[1], x.shape[-1]
    for at in range(0, len(weights), each):
        takes = width if at < each * ways else size * ways
        shapes = [(gates * size, takes), (gates * size, size), (gates * size,), (gates * size,)]
        if [tuple(weight.shape) for weight in weights[at : at + each]] != shapes[:each]:
            return False
    batch = (x.shape[0 if first else 1],) if x.dim() == 3 else ()
    return all(tuple(item.shape) == (layers * ways, *batch, size) for item in states)


def _attention_fits(query: Any, key: Any, value: Any, start: int, mask: Any, dropout: float, *_: Any) -> bool:
    if any(tensor.dim() != 4 or not tensor.numel() for tensor in (query, key, value)) or key.shape != value.shape:
        return False
    batch, _, heads, width = query.shape
    same = key.shape[0] == batch and key.shape[3] == width and heads % key.shape[2] == 0
    return same and start >= 0 and dropout == 0.0 and (mask is None or mask.is_floating_point())


def _rows_fit(x: torch.Tensor, *_: Any) -> bool:
    """True for a matrix; the kernel reads a second axis unchecked."""
    return x.dim() == 2


def _heads_fit(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: Any) -> bool:
    """Matrices with elements: the kernel divides by the width, and reshapes by the number of heads."""
    return all(tensor.dim() >= 2 and tensor.numel() for tensor in (query, key, value))


def _norm_fits(v: torch.Tensor, g: torch.Tensor, dim: int) -> bool:
    return v.numel() > 0 and v.dim() == g.dim() > 0 and -v.dim() <= dim < v.dim()


_PRECONDITIONS: Final[dict[str, Callable[..., bool]]] = {
    **dict.fromkeys(
        ("aten._native_batch_norm_legit", "aten._native_batch_norm_legit_no_training", "aten.native_batch_norm"),
        _channels_fit,
    ),
    "llama.custom_sdpa": _attention_fits,
    "aten._pdist_forward": _rows_fit,
    "aten._scaled_dot_product_attention_math": _heads_fit,
    "aten._weight_norm": _norm_fits,
    "aten.group_norm": _groups_fit,
    "aten.native_group_norm": _native_groups_fit,
    "aten._fft_r2c": _axes_fit,
    "aten._fft_c2c": _axes_fit,
    "aten._fft_c2r": _inverse_fits,
    "aten.lstm": functools.partial(_recurrence_fits, 4),
    "aten.gru": functools.partial(_recurrence_fits, 3),
    "aten.rnn_tanh": functools.partial(_recurrence_fits, 1),
    "aten.rnn_relu": functools.partial(_recurrence_fits, 1),
}
"""By operator: argument combinations that the kernel trusts."""


def by_position(target: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Arguments by position with defaults, and keyword-only arguments; serialized graphs name them all."""
    function = resolve(target)
    if not isinstance(function, Operator):
        return [*args, *kwargs.values()], {}
    defaults = {item.name: item.default_value for item in function.schema.arguments if not item.kwarg_only}
    named = {name: value for name, value in kwargs.items() if name not in defaults}
    return [*args, *(kwargs.get(name, defaults[name]) for name in list(defaults)[len(args) :])], named


def as_written(target: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    try:
        function = resolve(target)
    except UnknownOperatorError:
        return list(args), dict(kwargs)
    if target not in _DIM_ORDER and not isinstance(function, Operator):
        return by_position(target, args, kwargs)
    schema = function.schema if isinstance(function, Operator) else schema_of(operator_of(target))
    places = {argument.name: argument.default_value for argument in schema.arguments if not argument.kwarg_only}
    given = max([len(args), *(at + 1 for at, name in enumerate(places) if name in kwargs)])
    placed = [*args, *(kwargs.get(name, places[name]) for name in list(places)[len(args) : given])]
    return placed, {name: value for name, value in kwargs.items() if name not in places}


def _giving_what_it_writes(overload: Any) -> Callable[..., Any]:
    schema = schema_of(overload)
    places = [at for at, argument in enumerate(schema.arguments) if is_written(argument)]
    if not places:
        return overload

    def call(*args: Any, **kwargs: Any) -> Any:
        given = {argument.name: argument.default_value for argument in schema.arguments}
        given |= dict(zip(given, args, strict=False)) | kwargs
        values = [value.clone() if at in places else value for at, value in enumerate(given.values())]
        result = overload(*values)
        results = list(result) if isinstance(result, (list, tuple)) else [] if result is None else [result]
        results += [values[at] for at in places]
        return results if len(results) > 1 else results[0]

    call._schema = schema  # pyright: ignore[reportFunctionMemberAccess]
    return call


def is_composed(target: str) -> bool:
    """True for functions of this package, which are made of torch's own operators."""
    composed = (_DIM_ORDER, affine.TARGETS, LANGUAGE_OPERATORS)
    return target == "aten.copy_.default" or any(target in functions for functions in composed)


@functools.cache
def is_pointwise(target: str) -> bool:
    if target in affine.POINTWISE:
        return True
    overload = getattr(resolve(target), "overload", None) if target.startswith("aten.") else None
    return torch.Tag.pointwise in getattr(overload, "tags", ())


@functools.cache
def resolve(target: str) -> Callable[..., Any]:
    """The function of a target such as ``aten.add.Tensor`` or ``py.mul``.

    Raises `UnknownOperatorError` if it is not in `etviz.graph.admitted`, or not installed.
    """
    if target in PYTHON:
        return PYTHON[target]
    if target.startswith("executorch_prim.") and (plain := f"py.{target.split('.')[1]}") in PYTHON:
        return PYTHON[plain]
    if target in _DIM_ORDER:
        return _DIM_ORDER[target]
    if target in _DEVICE_COPIES:
        return _copy_to_device
    users = is_users(target)
    if not users and not is_admitted(target):
        advice = "" if target.partition(".")[0] in ADMITTED else GIVE_A_LIBRARY
        raise UnknownOperatorError(f"The reference uses {target[:100]}, which etviz does not evaluate", advice)
    if target in affine.TARGETS:
        return Operator(target, affine.AffineOperator(target))
    if target in LANGUAGE_OPERATORS:
        return Operator(target, LanguageFunction(target))
    try:
        overload = operator_of(target)
    except AttributeError as error:
        others = ", ".join(f"{target.rpartition('.')[0]}.{name}" for name in overloads_of(target))
        problem = f"The reference uses {target[:100]}, which is not registered here"
        hint = str(error) or (_VERSION if others else "install its library")
        raise UnknownOperatorError(f"{problem}; there is {others}" if others else problem, hint) from None
    if users:
        return Operator(target, _giving_what_it_writes(overload))
    if is_mutable(overload):
        raise UnknownOperatorError(f"The reference uses {target}, which changes its arguments")
    return Operator(target, overload)


def constant(kind: str, value: str) -> Any:
    """The torch object for a dtype, memory format, layout or device (always the CPU); a graph's name stays a name."""
    if kind == "graph":
        return value
    if kind == "device":
        return torch.device("cpu")
    named = getattr(torch, value, None)
    expected = {"dtype": torch.dtype, "memory_format": torch.memory_format, "layout": torch.layout}.get(kind)
    if expected is None or not isinstance(named, expected):
        raise UnknownOperatorError(f"The reference uses the {kind} {value[:40]}, which torch does not have")
    return named
