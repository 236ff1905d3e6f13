"""Whether tensors hold NaN or Inf."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from etviz import native


def has_nan(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype.is_floating_point and bool(value.isnan().any())


def has_nonfinite(value: Any) -> bool:
    """True if a floating tensor holds NaN or Inf: its sum is finite only if every element is."""
    if not isinstance(value, torch.Tensor) or not value.dtype.is_floating_point or not value.numel():
        return False
    plain = value.detach()
    values = (plain.float() if plain.element_size() < 4 else plain).numpy()
    with np.errstate(over="ignore", invalid="ignore"):
        total = np.add.reduce(values, axis=None)
    return not bool(np.isfinite(total)) and not bool(np.isfinite(values).all())


def largest_of(value: torch.Tensor) -> float:
    """The largest magnitude, NaN if an element is NaN; in a tenth of the time of torch's norm."""
    if not value.numel():
        return 0.0
    low, high = torch.aminmax(value.detach())
    return max(float(high), -float(low))


class Narrowed(NamedTuple):
    """A difference in float32, its norm and the base's, and its largest magnitude."""

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
    """Not finite if an element is not."""
    x, y = x.detach(), y.detach()
    known = x.dtype == torch.float64 and y.dtype == torch.float32 and x.is_contiguous() and y.is_contiguous()
    found = native.dot(x.data_ptr(), y.data_ptr(), x.numel()) if known else None
    return found if found is not None else float(torch.dot(x.reshape(-1), y.reshape(-1).to(x.dtype)))
