"""Python's own functions that exported programs call on sizes; a target names one as ``py.mul``."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_ARITHMETIC: Final = ("add", "sub", "mul", "floordiv", "truediv", "mod", "neg", "pos", "abs", "lshift", "rshift")
_LOGIC: Final = ("eq", "ne", "lt", "le", "gt", "ge", "and_", "or_", "xor", "not_", "invert")
PYTHON: Final[dict[str, Callable[..., Any]]] = {
    **{f"py.{name}": getattr(operator, name) for name in (*_ARITHMETIC, *_LOGIC)},
    "py.max": max,
    "py.min": min,
    "py.round": round,
    "py.sym_max": max,
    "py.sym_min": min,
    "py.sym_float": float,
    "py.sym_int": int,
    "py.sym_not": operator.not_,
}
"""By target. No others are called: the names come from files, and `operator` has functions that call anything."""

LARGEST: Final = 1 << 64
"""Sizes are integers of 64 bits: no number or text of a file grows beyond that."""


class ArithmeticRefusedError(ValueError):
    """A call on sizes that no honest program has."""


def check(target: str, values: Sequence[Any]) -> None:
    """Refuse arguments that are no numbers of 64 bits, and a shift by as many; an `ArithmeticRefusedError`."""
    if not all(isinstance(value, (int, float)) for value in values):
        raise ArithmeticRefusedError("The graph computes a size from something that is not a number")
    if any(isinstance(value, int) and abs(value) >= LARGEST for value in values):
        raise ArithmeticRefusedError("The graph computes with a number of more than 64 bits")
    if "shift" in target and len(values) > 1 and not 0 <= values[1] < 64:
        raise ArithmeticRefusedError("The graph shifts a number by more than 63 bits")


def check_result(target: str, value: Any) -> None:
    """Refuse a result of more than 64 bits; an `ArithmeticRefusedError`."""
    if isinstance(value, int) and abs(value) >= LARGEST:
        raise ArithmeticRefusedError(f"The graph's {target} gives a number of {value.bit_length()} bits")


def compute(target: str, values: Sequence[Any]) -> Any:
    """What one of `PYTHON` gives on numbers; an `ArithmeticRefusedError` where it is too much."""
    check(target, values)
    result = PYTHON[target](*values)
    check_result(target, result)
    return result
