"""Tensors with axes that operators do not see."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch

BATCHED: Final[Any] = getattr(torch._C, "_functorch", None)  # pyright: ignore[reportPrivateUsage]


def has_further_axis(value: Any) -> bool:
    return BATCHED is not None and isinstance(value, torch.Tensor) and BATCHED.is_batchedtensor(value)


def unwrapped(value: torch.Tensor) -> torch.Tensor:
    """A tensor with all its axes, in the order of memory."""
    while BATCHED is not None and has_further_axis(value):
        value = BATCHED.get_unwrapped(value)
    return value


def in_memory(function: Callable[..., torch.Tensor], *values: torch.Tensor) -> torch.Tensor:
    """`function` of tensors as they lie in memory, with all further axes first."""
    levels = [BATCHED.maybe_get_level(value) for value in values if has_further_axis(value)]
    if not levels:
        return function(*values)
    level = max(levels)

    def inner(value: torch.Tensor) -> torch.Tensor:
        if not has_further_axis(value) or BATCHED.maybe_get_level(value) != level:
            return value
        return BATCHED.get_unwrapped(value).movedim(BATCHED.maybe_get_bdim(value), 0)

    return BATCHED._add_batch_dim(in_memory(function, *map(inner, values)), 0, level)
