"""Differences of float64 tensors."""

from __future__ import annotations

from typing import NamedTuple

import torch

from etviz import native


class Narrowed(NamedTuple):
    """A difference, its norm and the base's, its largest magnitude."""

    value: torch.Tensor | None
    norm: float
    of_base: float
    largest: float


def narrowed(x: torch.Tensor, base: torch.Tensor | None = None, *, wanted: bool = True) -> Narrowed:
    """`x` less its `base`; NaN or Inf show in `largest`."""
    x, base = x.detach(), base.detach() if base is not None else None
    if all(tensor.dtype == torch.float64 and tensor.shape == x.shape for tensor in (x, x if base is None else base)):
        whole, of_base = x.contiguous(), base.contiguous() if base is not None else None
        out = torch.empty(x.shape, dtype=torch.float32) if wanted else None
        pointers = whole.data_ptr(), of_base.data_ptr() if of_base is not None else 0
        found = native.narrow(*pointers, x.numel(), out.data_ptr() if out is not None else 0)
        if found is not None:
            return Narrowed(out, found.squares**0.5, found.of_base**0.5, found.largest)
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
