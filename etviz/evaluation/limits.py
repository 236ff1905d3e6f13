"""Calls a graph's operators with checked arguments, and counts the memory of its values.

The child process that evaluates foreign files limits memory and time; here a lack of memory becomes an error.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.utils._pytree import tree_map

from etviz.errors import PairingError
from etviz.evaluation.further_axis import has_further_axis
from etviz.evaluation.operator_rules import Operator, resolve
from etviz.graph import python_operators

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_BYTES: Final = 192 << 20
_BYTES_PER_INPUT: Final = 64
"""Maximum bytes of values per byte of input, beside `_BYTES` and the files' size, before later values are not kept."""
_LONG: Final = 64
_MOST_KNOWN: Final = 1 << 12
_PLAIN: Final = (int, float, bool, str, type(None))
_NUMBERS: Final = ("py.", "executorch_prim.")
_SHORT: Final = (
    *("can't allocate memory", "not enough memory", "Storage size calculation overflowed", "bad_alloc"),
    "Failed to allocate a Tensor object",
)
_LACKING: Final = re.compile("not implemented for '(Half|BFloat16)'")
_NARROW: Final = {"Half": torch.float16, "BFloat16": torch.bfloat16}
_VIEWS: Final = frozenset(["alias", "detach", "expand", "permute", "squeeze", "t", "transpose", "unsqueeze", "view"])
_ALIGNED: Final = 64  # as torch aligns memory; kernels round differently on other
_KNOWN: Final[dict[Any, Callable[..., Any]]] = {}


class TooLargeError(PairingError):
    """Not enough memory, or numbers without end."""


class Limits:
    """Memory of an evaluation; `live` counts the bytes of the values that are alive."""

    def __init__(self, files: int = 0) -> None:
        self._files = files
        self.live = self.peak = 0
        self._room = _BYTES + files

    def begin(self, inputs: Sequence[Any]) -> None:
        given = sum(value.untyped_storage().nbytes() for value in inputs if isinstance(value, torch.Tensor))
        self.live, self._room = 0, _BYTES + self._files + _BYTES_PER_INPUT * given

    def call(self, target: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Raises `TooLargeError` without enough memory, `PairingError` for what is not admitted.

        Where torch has no kernel for 16-bit numbers, float32's result is rounded.
        """
        function = self.admitted(target, args, kwargs)
        if (view := _view_of(target)) is not None and (same := _same_memory(view, args, kwargs)) is not None:
            return same
        try:
            result = function(*args, **kwargs)
            if target.startswith(_NUMBERS):
                python_operators.check_result(target, result)
            return result
        except python_operators.ArithmeticRefusedError as error:
            raise TooLargeError(str(error)) from None
        except (MemoryError, RuntimeError) as error:
            if isinstance(error, MemoryError) or any(text in str(error) for text in _SHORT):
                raise TooLargeError(f"The graph's {target} takes more memory than there is") from None
            if not (lacking := _LACKING.search(str(error))):
                raise
        narrow = _NARROW[lacking[1]]
        wide = tree_map(lambda leaf: _of_dtype(leaf, narrow, torch.float32), (list(args), dict(kwargs)))
        return tree_map(lambda leaf: _of_dtype(leaf, torch.float32, narrow), self.call(target, *wide))

    def admitted(
        self, target: str, args: Sequence[Any], kwargs: Mapping[str, Any], times: int = 1
    ) -> Callable[..., Any]:
        """For arguments of these types and shapes; raises as `call`."""
        if target.startswith(_NUMBERS):
            try:
                python_operators.check(target, list(args))
            except python_operators.ArithmeticRefusedError as error:
                raise TooLargeError(str(error)) from None
            return resolve(target)
        return _checked(target, args, kwargs)

    def is_plain(self, target: str) -> bool:
        return True

    def has_room(self, size: int) -> bool:
        return self.live + size <= self._room

    def add(self, value: Any) -> int:
        """Returns the bytes, to be subtracted from `live` when the value is freed."""
        size = nbytes(value)
        self.live += size
        self.peak = max(self.peak, self.live)
        return size


@functools.cache
def _view_of(target: str) -> Callable[..., torch.Tensor | None] | None:
    if target == "dim_order_ops._clone_dim_order.default":
        return _in_dim_order
    library, _, rest = target.partition(".")
    name, _, overload = rest.partition("_copy.")
    if library != "aten" or name not in _VIEWS or not overload:
        return None
    return getattr(getattr(torch.ops.aten, name), overload, None)


def _in_dim_order(
    self: torch.Tensor, *, non_blocking: bool = False, dim_order: Sequence[int] | None = None
) -> torch.Tensor | None:
    return torch.ops.aten.alias.default(self) if [*(dim_order or ())] == sorted(dim_order or ()) else None


def _same_memory(
    view: Callable[..., torch.Tensor | None], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> torch.Tensor | None:
    """No admitted operator writes to what it reads."""
    given = args[0] if args else kwargs.get("self")  # serialized graphs may name all arguments
    if type(given) is not torch.Tensor or has_further_axis(given):
        return None
    if not given.is_contiguous() or given.data_ptr() % _ALIGNED:
        return None
    same = view(*args, **kwargs)
    return same if same is not None and same.is_contiguous() and same.numel() == given.numel() else None


def _checked(target: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Callable[..., Any]:
    kinds, named = _kinds(args), _kinds(tuple(kwargs.items())) if kwargs else ()
    key = (target, kinds, named) if kinds is not None and named is not None else None
    function = _KNOWN.get(key) if key is not None else None
    if function is None:
        function = resolve(target)
        if isinstance(function, Operator):
            function.check(args, kwargs)
            function = function.overload
        if key is not None:
            if len(_KNOWN) >= _MOST_KNOWN:
                _KNOWN.clear()
            _KNOWN[key] = function
    return function


def _kinds(values: Sequence[Any]) -> tuple[Any, ...] | None:
    kinds: list[Any] = []
    for value in values:
        kind = type(value)
        if kind is torch.Tensor or kind is torch.nn.Parameter:
            kinds.append((value.dtype, value.shape, value.layout, value.is_cpu))
        elif kind in _PLAIN:
            kinds.append((kind, value))
        elif kind in (torch.dtype, torch.memory_format, torch.layout, torch.device):
            kinds.append(value)
        elif kind in (list, tuple) and len(value) <= _LONG and (inner := _kinds(value)) is not None:
            kinds.append((kind, inner))
        else:
            return None
    return tuple(kinds)


def _of_dtype(leaf: Any, old: torch.dtype, new: torch.dtype) -> Any:
    return leaf.to(new) if isinstance(leaf, torch.Tensor) and leaf.dtype == old else new if leaf is old else leaf


def nbytes(value: Any) -> int:
    if isinstance(value, torch.Tensor):
        return value.nbytes
    if isinstance(value, (list, tuple)):
        return sum(map(nbytes, value))
    return getattr(value, "nbytes", 0)
