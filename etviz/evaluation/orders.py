"""Sums as correct kernels may add them up: one element after the other, and the variance as the difference of two sums.

torch sums in pairs of blocks, and takes a variance from what is left after the mean: the most exact of all ways.
ExecuTorch's portable kernels add one element after the other, and group and batch norms subtract the squared mean from
the mean square, which loses as many digits as the mean is larger than the deviation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import numpy as np
    import torch

MANY: Final = 1 << 15
"""Elements of a sum from which it matters: what is added is then so small that roundings no longer cancel out."""
NORMS: Final = frozenset(("aten.native_group_norm.default", "aten._native_batch_norm_legit.no_stats"))
"""Operators that normalize by a variance of their own input."""
LAYER_NORM: Final = "aten.native_layer_norm.default"
_SUMS: Final = frozenset(
    ("aten.sum.default", "aten.sum.dim_IntList", "aten.mean.default", "aten.mean.dim", "aten.var.correction")
)
_POOLING: Final = "aten.avg_pool2d.default"
_RUNNING: Final = frozenset(("aten.cumsum.default", _POOLING))
_WINDOWS: Final = 1 << 22
"""Elements of windows that are laid side by side at most."""


def one_after_another(target: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> torch.Tensor | None:
    """A sum, mean or variance in float32, each element added to the sum of those before; None of what is none."""
    import torch

    if target not in _SUMS | _RUNNING or not args or kwargs.get("dtype") not in (None, torch.float32):
        return None
    x = args[0]
    if x.dtype != torch.float32 or not x.numel():
        return None
    if target == _POOLING:
        return _pooled(args, kwargs)
    if target in _RUNNING:
        return _running(x, kwargs.get("dim", args[1] if len(args) > 1 else 0))
    return _reduced(target, args, kwargs)


def _reduced(target: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> torch.Tensor:
    import numpy as np
    import torch

    name, x = target.split(".")[1], args[0]
    dims, keep = [*args[1:], None, None][:2]
    dims, keep = kwargs.get("dim", dims), kwargs.get("keepdim", keep)
    axes = sorted({int(dim) % x.ndim for dim in ([dims] if isinstance(dims, int) else dims or range(x.ndim))})
    rows = np.moveaxis(x.detach().numpy(), axes, range(-len(axes), 0))
    shape = rows.shape[: x.ndim - len(axes)]
    rows = rows.reshape(math.prod(shape), -1)
    number = rows.shape[1]
    total = _accumulated(rows)
    if name == "var":
        correction = kwargs.get("correction")
        mean = total / np.float32(number)
        total = _accumulated((rows - mean[:, None]) ** 2)
        number -= 1 if correction is None else correction
    if name != "sum":
        total = total / np.float32(max(number, 0))
    found = torch.from_numpy(total.reshape(shape))
    for axis in axes if keep else ():
        found = found.unsqueeze(axis)
    return found


def _running(x: torch.Tensor, dim: int) -> torch.Tensor:
    """Sums of all elements up to each."""
    import numpy as np
    import torch

    return torch.from_numpy(np.add.accumulate(x.detach().numpy(), axis=dim)) if x.ndim else x.clone()


def _both(value: Any) -> list[int]:
    """What holds for both axes of an image; empty where nothing is said."""
    return [value, value] if isinstance(value, int) else [*value, *value][:2] if value else []


def _pooled(args: Sequence[Any], kwargs: Mapping[str, Any]) -> torch.Tensor | None:
    """Averages over windows of images; None where windows that lie side by side take too much memory."""
    import torch

    names = ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override")
    given = dict(zip(names, args[1:], strict=False)) | dict(kwargs)
    x, (kernel, stride, padding) = args[0], (_both(given.get(name)) for name in names[:3])
    value = torch.ops.aten.avg_pool2d.default(x, **given)
    if x.ndim != 4 or given.get("ceil_mode") or value.numel() * math.prod(kernel) > _WINDOWS:
        return None
    images = x.reshape(-1, 1, *x.shape[2:])
    windows = torch.ops.aten.im2col.default(images, kernel, [1, 1], padding or [0, 0], stride or kernel)
    rows = windows.transpose(1, 2).reshape(value.numel(), -1)
    exact = rows.double().sum(1)
    ratio = torch.from_numpy(_accumulated(rows.numpy())) / exact.where(exact != 0, 1.0)
    return (value * ratio.reshape(value.shape)).to(x.dtype)


def normalized(
    target: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    summed: Callable[[torch.Tensor, torch.Tensor, int], torch.Tensor],
) -> list[torch.Tensor] | None:
    """What a group or batch norm gives with the variance as mean square minus squared mean, in float32.

    Parameters
    ----------
    summed
        Perturbs a sum: it is told the size of its partial sums, and how many there are.

    Returns
    -------
    list of Tensor or None
        The outputs of the operator: normalized values, means, 1 over deviations. None for other types and forms.
    """
    import torch

    x, weight, bias, *rest = [*args, None, None, None][: max(len(args), 3)]
    group = target == "aten.native_group_norm.default"
    if not isinstance(x, torch.Tensor) or x.dtype != torch.float32 or kwargs or len(rest) != (5 if group else 3):
        return None
    if x.ndim < 2 or not x.numel():
        return None
    eps, channels = rest[-1], x.shape[1]
    swapped = x if group else x.transpose(0, 1)
    rows = swapped.reshape(x.shape[0] * rest[3] if group else channels, -1)
    number = rows.shape[1]
    total, squares = (_summed_up(values) for values in (rows, rows.square()))
    mean = summed(total, torch.hypot(total, squares.sqrt()), number) / number
    variance = (summed(squares, squares, number) / number - mean.square()).clamp_min(0.0)
    scale = (variance + eps).rsqrt()
    values = ((rows - mean[:, None]) * scale[:, None]).reshape(swapped.shape)
    values = values if group else values.transpose(0, 1)
    along = [1, channels, *[1] * (x.ndim - 2)]
    values = values if weight is None else values * weight.reshape(along)
    values = values if bias is None else values + bias.reshape(along)
    shape = (x.shape[0], rest[3]) if group else (channels,)
    return [values, mean.reshape(shape), scale.reshape(shape)]


def in_two_passes(args: Sequence[Any]) -> list[torch.Tensor] | None:
    """A layer norm in float32, each element added to the sum of those before: first the mean, then the variance.

    `args` and outputs as for `by_moments`; None of other types.
    """
    import torch

    x, shape, _, _, eps = args
    if not isinstance(x, torch.Tensor) or x.dtype != torch.float32 or not x.numel():
        return None
    rows = x.reshape(-1, math.prod(shape))
    mean = _summed_up(rows) / rows.shape[1]
    centred = rows - mean[:, None]
    scale = (_summed_up(centred.square()) / rows.shape[1] + eps).rsqrt()
    return _scaled(centred * scale[:, None], mean, scale, args)


def _scaled(values: torch.Tensor, mean: torch.Tensor, scale: torch.Tensor, args: Sequence[Any]) -> list[torch.Tensor]:
    """What a layer norm makes of normalized rows, and the mean and scale of each, in their shapes."""
    x, shape, weight, bias, _ = args
    values = values.reshape(x.shape)
    values = values if weight is None else values * weight
    values = values if bias is None else values + bias
    along = [*x.shape[: x.ndim - len(shape)], *[1] * len(shape)]
    return [values, mean.reshape(along), scale.reshape(along)]


def by_moments(args: Sequence[Any]) -> list[torch.Tensor]:
    """What a layer norm gives with its variance as mean square minus squared mean, each step in the type of the values.

    As in ``kernels/portable/cpu/op_native_layer_norm.cpp``: each element is added to the sum of those before. That is
    not what noise allows: other layer norms keep the digits that it loses.

    Parameters
    ----------
    args
        Values, normalized shape, weight and bias or None, epsilon.

    Returns
    -------
    list of Tensor
        Normalized values, means, 1 over deviations.
    """
    import torch

    x, shape, _, _, eps = args
    rows = x.reshape(-1, math.prod(shape))
    total = squares = torch.zeros(len(rows), dtype=x.dtype)
    for column in rows.unbind(1):
        total, squares = total + column, squares + column * column
    mean = total / rows.shape[1]
    deviation = (squares / rows.shape[1] - mean * mean + eps).sqrt()
    return _scaled((rows - mean[:, None]) / deviation[:, None], mean, 1 / deviation, args)


def _summed_up(rows: torch.Tensor) -> torch.Tensor:
    import torch

    return torch.from_numpy(_accumulated(rows.detach().numpy()))


def _accumulated(rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The sums of rows: `numpy.add.accumulate` adds one element after the other, unlike `numpy.sum`."""
    import numpy as np

    total = np.zeros((len(rows), 1), rows.dtype)
    for start in range(0, rows.shape[1], MANY):
        part = np.concatenate([total, rows[:, start : start + MANY]], axis=1)
        total = np.add.accumulate(part, axis=1)[:, -1:]
    return total[:, 0]
