"""Python's functions that exported programs call on sizes, named like ``py.mul``."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, Final

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
"""By target. The list is closed, because the names come from files."""

LARGEST: Final = 1 << 64


class ArithmeticRefusedError(ValueError):
    pass


def check(target: str, values: Sequence[Any]) -> None:
    if not all(isinstance(value, (int, float)) for value in values):
        raise ArithmeticRefusedError(f"The graph's {target[:100]} computes a size from something that is not a number")
    if any(isinstance(value, int) and abs(value) >= LARGEST for value in values):
        raise ArithmeticRefusedError("The graph computes with a number of more than 64 bits")
    if "shift" in target and len(values) > 1 and not 0 <= values[1] < 64:
        raise ArithmeticRefusedError("The graph shifts a number by more than 63 bits")


def check_result(target: str, value: Any) -> None:
    if isinstance(value, int) and abs(value) >= LARGEST:
        raise ArithmeticRefusedError(f"The graph's {target} gives a number of {value.bit_length()} bits")


def compute(target: str, values: Sequence[Any]) -> Any:
    check(target, values)
    result = PYTHON[target](*values)
    check_result(target, result)
    return result
