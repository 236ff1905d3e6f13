"""Which function a graph's target names.

Targets may come from somebody else's file, so only operators of known libraries that compute a value from their
arguments are called: nothing that reads or writes files, nothing that changes its arguments, and none of the internal
operators that trust their arguments to be well formed (packed weights, sparse and nested tensors), which may crash.
"""

from __future__ import annotations

import functools
import operator
import re
from typing import TYPE_CHECKING, Any, Final

from etviz.errors import PairingError
from etviz.upstream.operators import load_operator_library

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch

_LIBRARIES: Final = {"aten", "quantized_decomposed", "dim_order_ops", "torchao", "llama", "et_vk"}
_FORBIDDEN: Final = re.compile(
    r"from_file|save|set|resize.*|bincount|repeat_interleave\.(Tensor|self_Tensor)|(q_|to_|.*_)?(per_tensor|per_channel).*"
    r"|.*(sparse|nested|mkldnn|cudnn|miopen|cuda|fbgemm|packed|quantized|storage|forward_ad|jvp|histogramdd).*"
)
_INTERNAL: Final = re.compile(
    r"_(adaptive_avg_pool[23]d|cdist_forward|conj_physical|conv_depthwise2d|embedding_bag|fft_(c2c|c2r|r2c)"
    r"|(local|assert)_scalar(_dense)?|(log_)?softmax|native_batch_norm_legit(_no_training|_functional)?|pdist_forward"
    r"|prelu_kernel|safe_softmax|scaled_dot_product_\w+|thnn_fused_(gru|lstm)_cell|to_copy|trilinear|unique2"
    r"|unsafe_(index|index_put|masked_index|view)|upsample_\w+|weight_(norm|int8pack_mm)|reshape_copy|stack|chunk_cat"
    r"|assert_tensor_metadata|functional_\w+)"
)
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

    An `UnknownOperatorError` if there is none, or it is not a pure operator of a known library.
    """
    if target in _PYTHON:
        return _PYTHON[target]
    if target.startswith("executorch_prim.") and (plain := f"py.{target.split('.')[1]}") in _PYTHON:
        return _PYTHON[plain]
    if target in _DIM_ORDER:
        return _DIM_ORDER[target]
    parts = target.split(".")
    if len(parts) != 3 or parts[0] not in _LIBRARIES or (parts[0] == "aten" and not _is_plain(*parts[1:])):
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


def _is_plain(name: str, overload: str) -> bool:
    """True for operators that only compute, and check what they are given."""
    if any(_FORBIDDEN.fullmatch(text) for text in (name, f"{name}.{overload}")):
        return False
    return not name.startswith("_") or _INTERNAL.fullmatch(name) is not None


def constant(kind: str, value: str) -> Any:
    """The torch object for a dtype, memory format, layout or device; an `UnknownOperatorError` if torch has none."""
    import torch

    if kind == "device":
        return torch.device("cpu")
    named = getattr(torch, value, None)
    expected = {"dtype": torch.dtype, "memory_format": torch.memory_format, "layout": torch.layout}.get(kind)
    if expected is None or not isinstance(named, expected):
        raise UnknownOperatorError(f"The reference uses the {kind} {value}, which torch does not have")
    return named
