"""Differences of float64 tensors."""

from __future__ import annotations

from typing import NamedTuple

import torch

from etviz import native
from etviz.tensors.blocks import dtype_name


class Narrowed(NamedTuple):
    """A difference, its norm and the base's, its largest magnitude."""

    value: torch.Tensor | None
    norm: float
    of_base: float
    largest: float


def narrowed(x: torch.Tensor, base: torch.Tensor | None = None, *, wanted: bool = True) -> Narrowed:
    """`x` less its `base`; NaN or Inf show in `largest`."""
    x, base = x.detach(), base.detach() if base is not None else None
    fits = base is None or (base.dtype == torch.float64 and base.shape == x.shape)
    if fits and x.dtype in (torch.float32, torch.float64):
        if not torch.ops.aten.is_non_overlapping_and_dense(x) or (base is not None and base.stride() != x.stride()):
            x, base = x.contiguous(), base.contiguous() if base is not None else None
        laid_out = torch.contiguous_format if x.is_contiguous() else torch.preserve_format
        small = torch.empty_like(x, dtype=torch.float32, memory_format=laid_out)
        elements = native.Elements(x.data_ptr(), dtype_name(x.dtype))
        below, out = base.data_ptr() if base is not None else 0, small.data_ptr() if wanted else 0
        found = native.narrow(elements, below, x.numel(), out)
        if found is not None:
            return Narrowed(
                small.contiguous() if wanted else None, found.squares**0.5, found.of_base**0.5, found.largest
            )
    difference = x if base is None else x - base
    of_base = float(base.norm()) if base is not None else 0.0
    return Narrowed(difference.float() if wanted else None, float(difference.norm()), of_base, largest_of(difference))


def dot(x: torch.Tensor, y: torch.Tensor) -> float:
    """Not finite unless all elements are."""
    x, y = x.detach(), y.detach()
    known = x.dtype == torch.float64 and y.dtype == torch.float32 and x.is_contiguous() and y.is_contiguous()
    found = native.dot(x.data_ptr(), y.data_ptr(), x.numel()) if known else None
    return found if found is not None else float(torch.dot(x.reshape(-1), y.reshape(-1).to(x.dtype)))


def largest_of(value: torch.Tensor) -> float:
    """The largest magnitude, NaN if an element is; ten times as fast as torch's norm."""
    if not value.numel():
        return 0.0
    low, high = torch.aminmax(value.detach())
    return max(float(high), -float(low))
