"""Values of one node in several lanes, and operators on all lanes at once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import torch

from etviz.evaluation.further_axis import BATCHED
from etviz.evaluation.operator_rules import is_composed
from etviz.graph.admitted import is_admitted
from etviz.graph.ir import map_arg

_RULES: Final = ("FuncTorchBatched", "CompositeImplicitAutograd")
"""Where torch has an operator's rule for a further axis; without one it calls the operator for each lane, and warns."""
_PARTS: Final = ("_add_batch_dim", "_remove_batch_dim", "is_batchedtensor", "vmap_increment_nesting")
_FALLBACK: Final = ("_is_vmap_fallback_enabled", "_set_vmap_fallback_enabled")


class Several:
    """One tensor or number in several lanes; tensors have the lanes as a first axis where they can."""

    __slots__ = ("_each", "_stacked")

    def __init__(self, each: Sequence[Any], stacked: torch.Tensor | None = None) -> None:
        self._each, self._stacked = each, stacked

    def __getitem__(self, lane: int) -> Any:
        return self._each[lane] if self._stacked is None else self._stacked[lane]

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
) -> Any:
    """`call` with the arguments and numbers of one lane, for all `lanes` at once.

    `numbers` have the lanes as their first axis. Raises what torch raises for a `call` that it can't do so.
    """
    with further_axis(len(lanes)) as axis:

        def enter(leaf: Any) -> Any:
            return axis.enter(leaf.stacked[lanes.start : lanes.stop]) if isinstance(leaf, Several) else leaf

        drawn = [axis.enter(item) for item in numbers]
        return _left(call(map_arg(args, enter), map_arg(dict(kwargs), enter), drawn), axis)


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
    return Several((), value.stacked[lanes.start : lanes.stop]) if isinstance(value, Several) else value


def in_one(parts: Sequence[tuple[Any, int]]) -> Any:
    """From the values of some lanes and those of the lanes after them, with the number of the lanes."""
    first = parts[0][0]
    if all(value is first or not count for value, count in parts):
        return first
    if isinstance(first, (list, tuple)):
        return [in_one([(value[at], count) for value, count in parts]) for at in range(len(first))]
    whole = [
        value.stacked if isinstance(value, Several) else value.expand(count, *value.shape) for value, count in parts
    ]
    return Several((), torch.cat(whole))
