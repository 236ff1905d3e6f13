"""How much memory and work the evaluation of a graph may take.

A graph from somebody else's file must not be able to fill the machine's memory or to keep it busy for hours. What it
may use grows with the files and the inputs, which an honest program reads; an operator that would need more is refused
before it runs. All that one call evaluates, however often, has one budget.
"""

from __future__ import annotations

import functools
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from etviz.errors import PairingError
from etviz.evaluation.operators import Operator, resolve
from etviz.evaluation.result_sizes import Rule, in_order, size_rule

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch

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
_LARGEST: Final = 1 << 64
_WITH_INDICES: Final = "nonzero where nonzero_numpy sort argsort topk argmax argmin median cummax cummin"
_INDICES: Final = frozenset((*_WITH_INDICES.split(), "max_pool2d_with_indices", "max_pool3d_with_indices"))
"""Operators whose result has indices of 64 bits."""
_SUMS: Final = frozenset(("cumsum", "cumprod"))
"""Operators that keep the size of a tensor of integers, and give integers of 64 bits."""
_REAL_NAMES: Final = """
_log_softmax _softmax acos acosh asin asinh atan atanh cos cosh deg2rad digamma erf erfc erfinv exp exp2 expm1 lgamma
log log10 log1p log2 log_sigmoid log_softmax logit rad2deg reciprocal rsqrt sigmoid silu sin sinc sinh softmax
special_erf special_expit special_log1p sqrt tan tanh
"""
_REAL: Final = frozenset(_REAL_NAMES.split())
"""Operators that keep the size of a tensor of integers, and give float32."""


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
    """

    def __init__(self, files: int = 0, budget: Budget | None = None) -> None:
        self._files = files
        self._budget = budget or Budget()
        self._given = 0
        self.live = 0
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
        function = resolve(target)
        rule, names = _rule(target)
        if isinstance(function, Operator):
            function.check(args, kwargs)
            function = function.overload
        if rule is not None:
            values = in_order(names, args, kwargs)
            elements, work = rule(values)
            self._admit(target, elements * _item_size(target, values), work)
        elif widened := _widened(target, (*args, *kwargs.values())):
            self._admit(target, widened, 0)
        result = function(*args, **kwargs)
        if isinstance(result, int) and abs(result) >= _LARGEST:
            raise TooLargeError(f"The graph's {target} gives a number of {result.bit_length()} bits")
        return result

    def is_plain(self, target: str) -> bool:
        """True if `call` calls the operator itself."""
        return True

    def terms(self, target: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> int:
        """Products that each element of a result is a sum of, 1 if it is no sum."""
        rule, names = _rule(target)
        if rule is None or target.startswith(("py.", "executorch_prim.")):
            return 1
        elements, work = rule(in_order(names, args, kwargs))
        return max(1, work // max(elements, 1))

    def _admit(self, target: str, nbytes: int, work: int) -> None:
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
        if self.live > self._most:
            raise TooLargeError(
                f"The graph's values take {self.live:,} bytes at {target}; its files and inputs justify {self._most:,}"
            )
        self._spend(target, _PASS * size // 4)
        return size


def _item_size(target: str, values: Sequence[Any]) -> int:
    """Bytes of an element of a result: those of the widest tensor or dtype that goes in."""
    if target.split(".")[1] in _INDICES:
        return 8
    widths = [getattr(getattr(value, "dtype", value), "itemsize", 0) for value in values]
    return max(max(widths, default=0) or 8, 4)


def _widened(target: str, values: Sequence[Any]) -> int:
    """Bytes of the result of an operator without a rule, where it has wider elements than its tensor; else 0."""
    import torch

    tensor = next((value for value in values if isinstance(value, torch.Tensor)), None)
    if tensor is None:
        return 0
    name, size = target.split(".")[1], tensor.itemsize
    asked = next((value.itemsize for value in values if isinstance(value, torch.dtype)), 0)
    if asked:
        size = asked
    elif name.startswith("dequantize") or (name in _REAL and not _is_real(tensor)):
        size = max(size, 4)
    elif name in _SUMS and not _is_real(tensor):
        size = 8
    return tensor.numel() * size if size > tensor.itemsize else 0


def _is_real(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def nbytes(value: Any) -> int:
    """Bytes of a value's tensors."""
    if isinstance(value, (list, tuple)):
        return sum(map(nbytes, value))
    return getattr(value, "nbytes", 0)


def _arithmetic(values: list[Any]) -> tuple[int, int]:
    """Sizes are integers of 64 bits: nothing else is computed with, so that no number or text grows without end."""
    if not all(isinstance(value, (int, float)) for value in values):
        raise TooLargeError("The graph computes a size from something that is not a number")
    if any(isinstance(value, int) and abs(value) >= _LARGEST for value in values):
        raise TooLargeError("The graph computes with a number of more than 64 bits")
    return 0, 0


def _shift(values: list[Any]) -> tuple[int, int]:
    if len(values) > 1 and not 0 <= values[1] < 64:
        raise TooLargeError("The graph shifts a number by more than 63 bits")
    return _arithmetic(values)


@functools.cache
def _rule(target: str) -> tuple[Rule | None, tuple[str, ...]]:
    """The rule for the size of a target's result, and the names of its arguments."""
    if target.startswith(("py.", "executorch_prim.")):
        return (_shift if "shift" in target else _arithmetic), ()
    function = resolve(target)
    return size_rule(target), function.names if isinstance(function, Operator) else ()
