"""Whether tensors hold NaN or Inf."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch


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
