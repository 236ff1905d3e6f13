"""Which function a graph's target names.

Targets may come from somebody else's file, so only operators of known libraries that compute a value from their
arguments are called: nothing that reads or writes files, and nothing that changes its arguments.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from etviz.errors import PairingError
from etviz.executorch import load_operator_library

if TYPE_CHECKING:
    import torch

_LIBRARIES: Final = {"aten", "quantized_decomposed", "dim_order_ops", "torchao", "llama", "et_vk", "quantized"}
_FORBIDDEN: Final = {"aten.from_file", "aten.save", "aten.to_sparse", "aten.set_", "aten.resize"}
_ARITHMETIC: Final = ("add", "sub", "mul", "floordiv", "truediv", "mod", "neg", "pos", "abs", "lshift", "rshift")
_LOGIC: Final = ("eq", "ne", "lt", "le", "gt", "ge", "and_", "or_", "xor", "not_", "invert")
_PYTHON: Final[dict[str, Callable[..., Any]]] = {
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


def _memory_format(dim_order: Sequence[int] | None) -> torch.memory_format:
    import torch

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
    import torch

    return torch.clone(self, memory_format=_memory_format(dim_order))


def _to_dim_order_copy(self: torch.Tensor, *, dim_order: Sequence[int] | None = None, **options: Any) -> torch.Tensor:
    import torch

    return torch.ops.aten._to_copy.default(self, memory_format=_memory_format(dim_order), **options)


# Upstream registers these two in a module whose import reads a large YAML file, which takes seconds.
_DIM_ORDER: Final[dict[str, Callable[..., Any]]] = {
    "dim_order_ops._clone_dim_order.default": _clone_dim_order,
    "dim_order_ops._to_dim_order_copy.default": _to_dim_order_copy,
}


class UnknownOperatorError(PairingError):
    """The reference can't be evaluated: an operator is not installed here, or is not one that etviz calls."""


@functools.cache
def resolve(target: str) -> Callable[..., Any]:
    """The function behind a target such as ``aten.add.Tensor`` or ``py.mul``.

    Raises
    ------
    UnknownOperatorError
        If there is none, or it is not a pure operator of a known library.
    """
    if target in _PYTHON:
        return _PYTHON[target]
    if target.startswith("executorch_prim.") and (plain := f"py.{target.split('.')[1]}") in _PYTHON:
        return _PYTHON[plain]
    if target in _DIM_ORDER:
        return _DIM_ORDER[target]
    parts = target.split(".")
    if len(parts) != 3 or parts[0] not in _LIBRARIES or f"{parts[0]}.{parts[1]}" in _FORBIDDEN:
        raise UnknownOperatorError(f"The reference uses {target}, which etviz does not evaluate")
    import torch

    missing = load_operator_library(parts[0])
    try:
        packet = getattr(getattr(torch.ops, parts[0]), parts[1])
        overload = getattr(packet, parts[2])
    except AttributeError:
        hint = missing or "install its library"
        raise UnknownOperatorError(f"The reference uses {target}, which is not registered here", hint) from None
    if overload._schema.is_mutable:
        raise UnknownOperatorError(f"The reference uses {target}, which changes its arguments")
    return overload


def constant(kind: str, value: str) -> Any:
    """The torch object for a dtype, memory format, layout or device.

    Raises
    ------
    UnknownOperatorError
        If torch has none of that name.
    """
    import torch

    if kind == "device":
        return torch.device("cpu")
    found = getattr(torch, value, None)
    expected = {"dtype": torch.dtype, "memory_format": torch.memory_format, "layout": torch.layout}.get(kind)
    if expected is None or not isinstance(found, expected):
        raise UnknownOperatorError(f"The reference uses the {kind} {value}, which torch does not have")
    return found
