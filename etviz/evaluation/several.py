"""Values of one node in several lanes, and operators on all lanes at once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import torch

from etviz.evaluation.affine import BLOCKS
from etviz.evaluation.further_axis import BATCHED
from etviz.evaluation.operator_rules import is_composed, is_pointwise
from etviz.graph.admitted import is_admitted
from etviz.graph.ir import map_arg

_RULES: Final = ("FuncTorchBatched", "CompositeImplicitAutograd")
"""Where torch has an operator's rule for a further axis; without one it calls the operator for each lane, and warns."""
_PARTS: Final = ("_add_batch_dim", "_remove_batch_dim", "is_batchedtensor", "vmap_increment_nesting")
_FALLBACK: Final = ("_is_vmap_fallback_enabled", "_set_vmap_fallback_enabled")


class Several:
    """One tensor or number in several lanes; tensors have the lanes as a first axis where they can.

    The `others` after these have `rest`.
    """

    __slots__ = ("_each", "_others", "_rest", "_stacked")

    def __init__(
        self,
        each: Sequence[Any],
        stacked: torch.Tensor | None = None,
        rest: torch.Tensor | None = None,
        others: int = 0,
    ) -> None:
        self._each, self._stacked, self._rest, self._others = each, stacked, rest, others

    def __getitem__(self, lane: int) -> Any:
        if self._stacked is None:
            return self._each[lane]
        return self._stacked[lane] if self._rest is None or lane < len(self._stacked) else self._rest

    def part(self, lanes: range) -> Any:
        """Those of some lanes, or what all of them share."""
        if self._stacked is not None and self._rest is not None:
            if lanes.start >= len(self._stacked):
                return self._rest
            if lanes.stop <= len(self._stacked):
                return Several((), self._stacked[lanes.start : lanes.stop])
        return Several((), self.stacked[lanes.start : lanes.stop])

    @property
    def nbytes(self) -> int:
        each = self._each if self._stacked is None else (self._stacked,)
        return sum(getattr(value, "nbytes", 0) for value in each)

    @property
    def can_stack(self) -> bool:
        """False for numbers, and for tensors of unlike shapes or types."""
        kinds = [(value.shape, value.dtype) if isinstance(value, torch.Tensor) else None for value in self._each]
        return self._stacked is not None or (None not in kinds and all(kind == kinds[0] for kind in kinds))

    @property
    def stacked(self) -> torch.Tensor:
        """Raises `TypeError` or `RuntimeError` where they can't be stacked."""
        if self._stacked is None:
            self._stacked = torch.stack(list(self._each))
            self._each = ()
        if self._rest is not None:
            self._stacked = torch.cat([self._stacked, self._rest.expand(self._others, *self._rest.shape)])
            self._rest = None
        return self._stacked


def several(values: Sequence[Any]) -> Any:
    """From the values of all lanes; what all lanes share, and what a single lane has, stays as it is."""
    first = values[0]
    if all(value is first for value in values):
        return first
    if isinstance(first, (list, tuple)):
        return [several(items) for items in zip(*values, strict=True)]
    return Several(values)


def lane_of(value: Any, lane: int) -> Any:
    if isinstance(value, Several):
        return value[lane]
    return [lane_of(item, lane) for item in value] if isinstance(value, (list, tuple)) else value


@functools.cache
def over_axis(target: str) -> str | None:
    """An operator with the same values, for which torch knows how it takes a further axis; None without one.

    A ``_copy`` has the values of its view.
    """
    if _vmap() is None or not is_admitted(target):
        return None
    if is_composed(target):
        return target
    return next((other for other in (target, target.replace("_copy.", ".")) if _has_rule(other)), None)


def _has_rule(target: str) -> bool:
    name = target.replace(".", "::", 1).removesuffix(".default")
    return (
        target.startswith("aten.")
        and is_admitted(target)
        and any(torch._C._dispatch_has_kernel_for_dispatch_key(name, key) for key in _RULES)  # pyright: ignore[reportPrivateUsage]
    )


@functools.cache
def _vmap() -> Any:
    """The parts of `torch.vmap`, which takes ten times as long for a small operator; None without them."""
    try:
        from torch._functorch import vmap

        torch.vmap(torch.neg)(torch.zeros(1))  # loads its rules
        known = all(hasattr(vmap, name) for name in _PARTS) and all(hasattr(BATCHED, name) for name in _FALLBACK)
        return vmap if known else None
    except (AttributeError, ImportError):
        return None


def over_lanes(
    call: Callable[[list[Any], dict[str, Any], Sequence[torch.Tensor]], Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    numbers: Sequence[torch.Tensor],
    lanes: range,
    target: str = "",
) -> Any:
    """`call` with the arguments and numbers of one lane, for all `lanes` at once.

    `numbers` have the lanes as their first axis. Raises what torch raises for a `call` that it can't do so.
    """
    if len(lanes) == 1:
        given, named = ([lane_of(leaf, lanes.start) for leaf in leaves] for leaves in (args, kwargs.values()))
        value = call(given, dict(zip(kwargs, named, strict=True)), [item[0] for item in numbers])
        return _stacked(map_arg(value, lambda item: item.unsqueeze(0)))
    if (given := _with_first_axis(target, args, kwargs, lanes)) is not None:
        return _stacked(call(*given, numbers))
    with further_axis(len(lanes)) as axis:

        def enter(leaf: Any) -> Any:
            part = part_of(leaf, lanes) if isinstance(leaf, Several) else leaf
            return axis.enter(part.stacked) if isinstance(part, Several) else part

        drawn = [axis.enter(item) for item in numbers]
        return _left(call(map_arg(args, enter), map_arg(dict(kwargs), enter), drawn), axis)


def _stacked(value: Any) -> Any:
    return map_arg(value, partial(Several, ()))


def _with_first_axis(
    target: str, args: Sequence[Any], kwargs: Mapping[str, Any], lanes: range
) -> tuple[list[Any], dict[str, Any]] | None:
    """None for operators that a first axis would change."""
    blocks = BLOCKS.get(target)
    if blocks is None and not is_pointwise(target):
        return None
    leaves = [*args, *kwargs.values()]
    parts = [leaf.part(lanes) if isinstance(leaf, Several) else leaf for leaf in leaves]
    tensors = [part.stacked[0] if isinstance(part, Several) else part for part in parts]
    tensors = [tensor for tensor in tensors if isinstance(tensor, torch.Tensor)]
    if blocks is None and len({tensor.dtype for tensor in tensors}) != 1:  # 0 axes make a type yield to others
        return None
    axes = max(tensor.ndim for tensor in tensors)

    def widened(part: Any) -> Any:
        each = part.stacked if isinstance(part, Several) else part
        if not isinstance(each, torch.Tensor):
            return each
        each = each if isinstance(part, Several) else each.expand(len(lanes), *each.shape)
        return each if blocks is not None else each.reshape(len(lanes), *[1] * (axes + 1 - each.ndim), *each.shape[1:])

    given = [*map(widened, parts)]
    if blocks is not None:
        at = len(args) + [*kwargs].index("block_size") if "block_size" in kwargs else blocks
        given[at] = [1, *given[at]]
    return given[: len(args)], dict(zip(kwargs, given[len(args) :], strict=True))


def _left(value: Any, axis: Axis) -> Any:
    if isinstance(value, (list, tuple)):
        return [_left(item, axis) for item in value]
    return Several((), axis.leave(value)) if axis.has(value) else value


@dataclass(frozen=True, slots=True)
class Axis:
    """A further axis of tensors, which torch's operators do not see."""

    parts: Any
    level: int
    size: int

    def enter(self, stacked: torch.Tensor) -> torch.Tensor:
        return self.parts._add_batch_dim(stacked, 0, self.level)

    def has(self, value: Any) -> bool:
        return isinstance(value, torch.Tensor) and self.parts.is_batchedtensor(value)

    def leave(self, value: torch.Tensor) -> torch.Tensor:
        return self.parts._remove_batch_dim(value, self.level, self.size, 0)


@contextmanager
def further_axis(size: int) -> Generator[Axis]:
    """Operators on what enters it, and what they are composed of, raise where torch has no rule for a further axis."""
    parts, goes_on = _vmap(), BATCHED._is_vmap_fallback_enabled()
    BATCHED._set_vmap_fallback_enabled(False)
    try:
        with parts.vmap_increment_nesting(size, "error") as level:
            yield Axis(parts, level, size)
    finally:
        BATCHED._set_vmap_fallback_enabled(goes_on)


def part_of(value: Any, lanes: range) -> Any:
    if isinstance(value, (list, tuple)):
        return [part_of(item, lanes) for item in value]
    return value.part(lanes) if isinstance(value, Several) else value


def in_one(parts: Sequence[tuple[Any, int]]) -> Any:
    """From the values of some lanes and those of the lanes after them, with the number of the lanes."""
    first = parts[0][0]
    if all(value is first or not count for value, count in parts):
        return first
    if isinstance(first, (list, tuple)):
        return [in_one([(value[at], count) for value, count in parts]) for at in range(len(first))]
    if len(parts) == 2 and isinstance(first, Several) and not isinstance(parts[1][0], Several):
        return Several((), first.stacked, *parts[1])
    whole = [
        value.stacked if isinstance(value, Several) else value.expand(count, *value.shape) for value, count in parts
    ]
    return Several((), torch.cat(whole))
