"""Grids of values of hardly any range, where ExecuTorch's kernels choose other scales than the operators.

The operators keep a scale from falling below their ``eps``. The kernels take 0.1 if all values are
0, and 6.1e-5 for smaller scales.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


_WITHOUT_RANGE: Final = 0.1
_LEAST: Final = 6.1e-5
_DIFFERS: Final = 1e-3
"""Relative difference between scales that different rules chose."""
_TENSOR: Final = "quantized_decomposed.choose_qparams.tensor"
_ROWS: Final = "quantized_decomposed.choose_qparams_per_token_asymmetric.default"


def as_kernels_choose(target: str, args: Sequence[Any], kwargs: Mapping[str, Any], chosen: Any) -> Any:
    """The chosen ``[scale, zero point]``, or the kernel's where it follows another rule."""
    x = args[0] if args else kwargs.get("input")
    if target not in (_TENSOR, _ROWS) or not isinstance(x, torch.Tensor) or x.dtype != torch.float32 or not x.numel():
        return chosen
    rows = x.reshape(1, -1) if target == _TENSOR else x.reshape(-1, x.shape[-1])
    low, high = (args[1], args[2]) if target == _TENSOR and len(args) > 2 else (-128, 127)
    of_kernel = [value.reshape(chosen[0].shape) for value in kernel_grids(rows, low, high)]
    other = (of_kernel[0] - chosen[0]).abs() > _DIFFERS * chosen[0]
    return [torch.where(other, kernel, value) for kernel, value in zip(of_kernel, chosen, strict=True)]


def kernel_grids(rows: torch.Tensor, low: int, high: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Scale (float64) and zero point (int64) by row, as in ``kernels/quantized/cpu/op_choose_qparams.cpp``."""
    least, most = rows.amin(1).clamp(max=0.0), rows.amax(1).clamp(min=0.0)
    scale = (most.double() - least) / (high - low)
    scale = torch.where(torch.isinf(1 / scale.float()), _WITHOUT_RANGE, scale)
    threshold = torch.tensor(_LEAST)
    narrow, widened = scale < threshold, threshold / scale.float()
    whole = threshold * (high - low)
    least = torch.where(narrow & (least < 0), torch.where(most > 0, least * widened, -whole), least)
    most = torch.where(narrow & (most > 0), torch.where(least < 0, most * widened, whole), most)
    scale = torch.where(narrow, threshold.double(), scale)
    below, above = least / scale, most / scale
    from_low = abs(low) - below.abs() < abs(high) - above.abs()
    return scale, torch.where(from_low, low - below, high - above).clamp(low, high).round().long()
