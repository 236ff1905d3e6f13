"""Python's own functions that exported programs call on sizes; a target names one as ``py.mul``."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

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
