"""How much memory and work the evaluation of a graph may take.

A graph from somebody else's file must not be able to fill the machine's memory or to keep it busy for hours. What it
may use grows with the files and the inputs, which an honest program reads; an operator that would need more is refused
before it runs. All that one call evaluates, however often, has one budget.
"""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from etviz.errors import PairingError
from etviz.evaluation.operators import ArgumentError, Operator, UnknownOperatorError, resolve
from etviz.evaluation.result_sizes import Rule, in_order, size_rule
from etviz.graph import python_operators

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


_BYTES: Final = 192 << 20
"""Memory that every evaluation may use."""
_BYTES_PER_INPUT: Final = 64
"""Bytes for each byte of input: a first layer of 64 channels, a few of which are alive at a time."""
_WORK: Final = 10**10
_WORK_PER_BYTE: Final = 10**5
"""Multiply-adds for each byte of files and inputs: a convolution of a few thousand channels on each."""
_PASS: Final = 16
"""Multiply-adds that count for touching one element."""
_SECONDS: Final = 30.0
_SECONDS_PER_BYTE: Final = 5e-6
"""Of this thread's computing, for what the estimate of the work misses."""
_MOMENT: Final = 0.02
"""Seconds after which the system is asked again how long it computed."""
_WIDE_NAMES: Final = """
adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d argmax argmin argsort bucketize cummax cummin float_power
masked_scatter masked_select max_pool1d max_pool2d_with_indices max_pool3d_with_indices median nonzero nonzero_numpy
searchsorted sort topk tril_indices triu_indices
"""
_WIDE: Final = frozenset(_WIDE_NAMES.split())
"""Operators whose result, or what they compute it with, has elements of 64 bits."""
_SUMS: Final = frozenset(("sum", "prod", "trace", "cumsum", "cumprod"))
"""Operators that give integers of 64 bits for any integers."""
_KEEP_TYPE_NAMES: Final = """
_reshape_copy _unsafe_view alias alias_copy channel_shuffle clone copy detach detach_copy diagonal diagonal_copy dropout
feature_dropout fill flatten flip fliplr flipud gather index_add index_copy index_fill index_put _unsafe_index_put
lift_fresh_copy moveaxis movedim narrow narrow_copy numpy_T permute permute_copy pixel_shuffle pixel_unshuffle ravel
relu reshape resolve_conj resolve_neg roll rot90 scatter scatter_add scatter_reduce select select_copy select_scatter
slice slice_copy slice_scatter squeeze squeeze_copy swapaxes swapdims t t_copy take transpose transpose_copy tril triu
unflatten unsqueeze unsqueeze_copy view view_as view_copy _clone_dim_order
"""
_KEEP_TYPE: Final = frozenset(_KEEP_TYPE_NAMES.split())
"""Operators whose result has the type of their first tensor."""


_BY_VALUE: Final = frozenset(("one_hot", "repeat_interleave"))
"""Operators whose result is as large as the values of a tensor say."""
_LONG: Final = 64
_MOST_KNOWN: Final = 1 << 12
_PLAIN: Final = (int, float, bool, str, type(None))
_Examined = tuple[Callable[..., Any], int, int]
_KNOWN: Final[dict[Any, _Examined]] = {}


class TooLargeError(PairingError):
    """An operator of the graph would take more memory or time than its files justify."""


@dataclass(slots=True)
class Budget:
    """What has been spent of the work of one call, and when that began."""

    spent: int = 0
    since: float = field(default_factory=time.thread_time)
    _seconds: float = 0.0
    _asked: float = field(default_factory=time.perf_counter)

    def seconds(self) -> float:
        """Seconds of this thread's computing since then, as of a moment ago at most.

        It is no more than the time that passed, which takes no system call to ask: on busy cores, each one is a moment
        at which another process gets its turn.
        """
        now = time.perf_counter()
        if now - self._asked > _MOMENT:
            self._seconds, self._asked = time.thread_time() - self.since, now
        return self._seconds


class Limits:
    """Memory and work of an evaluation.

    Attributes
    ----------
    files
        Size of all artifacts in bytes.
    budget
        Shared by the evaluations of one call; by default, there is only this one.
    live
        Bytes of the values that are alive.
    peak
        The most that were.
    """

    def __init__(self, files: int = 0, budget: Budget | None = None) -> None:
        self._files = files
        self._budget = budget or Budget()
        self._given = 0
        self.live = self.peak = 0
        self._most = _BYTES + files

    def begin(self, inputs: Sequence[Any]) -> None:
        """Start an evaluation on flat inputs; the storage of a tensor counts, which a broadcast one does not have."""
        import torch

        given = sum(value.untyped_storage().nbytes() for value in inputs if isinstance(value, torch.Tensor))
        self.live = 0
        self._given = max(self._given, given)
        self._most = _BYTES + self._files + _BYTES_PER_INPUT * given

    def call(self, target: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Call an operator; a `TooLargeError` before it runs if its result or its work would be beyond the limits."""
        result = self.admitted(target, args, kwargs)(*args, **kwargs)
        try:
            python_operators.check_result(target, result)
        except python_operators.ArithmeticRefusedError as error:
            raise TooLargeError(str(error)) from None
        return result

    def admitted(
        self, target: str, args: Sequence[Any], kwargs: Mapping[str, Any], times: int = 1
    ) -> Callable[..., Any]:
        """What calls an operator, as in `call`, so many times: of its arguments only shapes and types are looked at."""
        function, nbytes, work = _examined(target, args, kwargs)
        self.admit(target, times * nbytes, times * work)
        return function

    def is_plain(self, target: str) -> bool:
        """True if `call` calls the operator itself."""
        return True

    def terms(self, target: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> int:
        """Products that each element of a result is a sum of, 1 if it is no sum."""
        if target.startswith(("py.", "executorch_prim.")):
            return 1
        rule, _, names = _rule(target)
        elements, work = rule(in_order(names, args, kwargs))
        return max(1, work // max(elements, 1))

    def admit(self, target: str, nbytes: int, work: int) -> None:
        """A `TooLargeError` if so many bytes more, or so much work, are beyond the limits."""
        if self.live + nbytes > self._most:
            raise TooLargeError(
                f"The graph's {target} would need {nbytes:,} bytes beside {self.live:,} in use; "
                f"its files and inputs justify {self._most:,}"
            )
        self._spend(target, work)

    def _spend(self, target: str, work: int) -> None:
        self._budget.spent += work
        size = self._files + self._given
        seconds = self._budget.seconds()
        if self._budget.spent > _WORK + _WORK_PER_BYTE * size or seconds > _SECONDS + _SECONDS_PER_BYTE * size:
            raise TooLargeError(f"The graph takes more work than its files and inputs justify, at {target}")

    def has_room(self, size: int) -> bool:
        """True if so many bytes more may be alive."""
        return self.live + size <= self._most

    def add(self, target: str, value: Any) -> int:
        """Account for a value that was computed; returns its bytes, for `live` to be reduced by when it is freed."""
        size = nbytes(value)
        self.live += size
        self.peak = max(self.peak, self.live)
        if self.live > self._most:
            raise TooLargeError(
                f"The graph's values take {self.live:,} bytes at {target}; its files and inputs justify {self._most:,}"
            )
        self._spend(target, _PASS * size // 4)
        return size


def _examined(target: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> _Examined:
    """What calls an operator with such arguments, of which it was made sure, and what that needs.

    It depends on shapes, types and plain values only, but for two operators, so it is found out once for each of these.
    """
    told = _BY_VALUE.isdisjoint(target.split("."))
    kinds, named = (_kinds(args), _kinds(tuple(kwargs.items()))) if told else (None, None)
    key = (target, kinds, named) if kinds is not None and named is not None else None
    found = _KNOWN.get(key) if key is not None else None
    if found is None:
        function = resolve(target)
        if isinstance(function, Operator):
            function.check(args, kwargs)
            function = function.overload
        found = function, *needs(target, args, kwargs)
        if key is not None:
            if len(_KNOWN) >= _MOST_KNOWN:
                _KNOWN.clear()
            _KNOWN[key] = found
    return found


def _kinds(values: Sequence[Any]) -> tuple[Any, ...] | None:
    """What checks and rules see of some arguments; None where they may see more, or it would take long."""
    tensors, marks = _types()
    found: list[Any] = []
    for value in values:
        kind = type(value)
        if kind in tensors:
            found.append((value.dtype, value.shape, value.layout, value.device.type))
        elif kind in _PLAIN:
            found.append((kind, value))
        elif kind in marks:
            found.append(value)
        elif kind in (list, tuple) and len(value) <= _LONG and (inner := _kinds(value)) is not None:
            found.append((kind, inner))
        else:
            return None
    return tuple(found)


@functools.cache
def _types() -> tuple[tuple[type, ...], tuple[type, ...]]:
    """Of tensors, and of what names a property of one."""
    import torch

    return (torch.Tensor, torch.nn.Parameter), (torch.dtype, torch.memory_format, torch.layout, torch.device)


def needs(target: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[int, int]:
    """Bytes of the result of a call whose arguments are of the right types, and multiply-adds for it, at most."""
    rule, width, names = _rule(target)
    values = in_order(names, args, kwargs)
    try:
        elements, work = rule(values)
        return elements * width(values), work
    except (ArithmeticError, AttributeError, IndexError, TypeError, ValueError):
        raise ArgumentError(f"The reference gives {target} shapes and sizes that don't go together") from None


def _width(target: str) -> Callable[[Sequence[Any]], int]:
    """What tells the bytes of an element of a target's result."""
    name = target.split(".")[1]
    if name in _WIDE or target == "aten.where.default":
        return lambda values: 8
    if name in _SUMS:
        return lambda values: 4 if _is_real(values[0]) and _widest(values) < 8 else 8
    if name in _KEEP_TYPE:
        return lambda values: values[0].itemsize
    return _widest


def _is_real(value: Any) -> bool:
    return value.is_floating_point() or value.is_complex()


def _widest(values: Sequence[Any]) -> int:
    """Of all tensors and dtypes that go in; at least those of the numbers that integers become."""
    widths = [getattr(getattr(value, "dtype", value), "itemsize", 0) for value in values]
    return max(max(widths, default=0) or 8, 4)


def nbytes(value: Any) -> int:
    """Bytes of a value's tensors."""
    if isinstance(value, (list, tuple)):
        return sum(map(nbytes, value))
    return getattr(value, "nbytes", 0)


def _arithmetic(target: str, values: list[Any]) -> tuple[int, int]:
    """Nothing is needed for numbers."""
    try:
        python_operators.check(target, values)
    except python_operators.ArithmeticRefusedError as error:
        raise TooLargeError(str(error)) from None
    return 0, 0


@functools.cache
def _rule(target: str) -> tuple[Rule, Callable[[Sequence[Any]], int], tuple[str, ...]]:
    """The rule for the size of a target's result, what tells its width, and the names of its arguments."""
    if target.startswith(("py.", "executorch_prim.")):
        return functools.partial(_arithmetic, target), _nothing, ()
    function = resolve(target)
    rule = size_rule(target)
    if rule is None:
        raise UnknownOperatorError(f"The reference uses {target[:100]}, which etviz does not evaluate")
    names = function.names if isinstance(function, Operator) else tuple(inspect.signature(function).parameters)
    return rule, _width(target), names


def _nothing(values: Sequence[Any]) -> int:
    return 0
