"""Quantization grids: the numbers that a quantized value can take, and what lies beyond them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from etviz.artifacts.ir import Node

if TYPE_CHECKING:
    import torch

_CONVERSION: Final = re.compile(r"(quantized_decomposed|torchao)\.(de)?quantize_(per_|affine)|.*choose_qparams")
_FIRST: Final = ("scale", "zero_point", "quant_min", "quant_max")


@dataclass(frozen=True, slots=True)
class Grid:
    """Numbers ``(q − zero_point)·scale`` for whole q from `qmin` to `qmax`."""

    scale: float
    zero_point: int
    qmin: int
    qmax: int

    @property
    def low(self) -> float:
        """The least number on the grid."""
        return (self.qmin - self.zero_point) * self.scale

    @property
    def high(self) -> float:
        """The largest number on the grid."""
        return (self.qmax - self.zero_point) * self.scale

    def dequantize(self, values: torch.Tensor) -> torch.Tensor:
        """The numbers that integers of any dtype stand for, float32."""
        import torch

        return (values.to(torch.float32) - self.zero_point) * self.scale

    def position(self, values: torch.Tensor) -> torch.Tensor:
        """Where numbers lie on the grid, in steps, neither rounded nor clipped: the inverse of `dequantize`."""
        return values / self.scale + self.zero_point

    def saturated(self, floats: torch.Tensor, quantized: torch.Tensor) -> float:
        """Share of values that the grid cuts off.

        An element counts if its quantized value is `qmin` or `qmax` and its float value lies beyond that end by more
        than half a step: rounding alone would not have moved it so far.

        Parameters
        ----------
        floats
            Values of the float model.
        quantized
            Integers of the quantized model, of the same shape.
        """
        if not floats.numel():
            return 0.0
        half = self.scale / 2
        below = (quantized == self.qmin) & (floats < self.low - half)
        above = (quantized == self.qmax) & (floats > self.high + half)
        return int((below | above).sum()) / floats.numel()


def is_conversion(node: Node) -> bool:
    """True for what only goes to integers and back: quantize, dequantize, and the choice of their parameters."""
    return _CONVERSION.match(node.target) is not None


def is_quantize(node: Node) -> bool:
    """True for a quantize of any granularity."""
    return is_conversion(node) and ".quantize_" in node.target


def is_dequantize(node: Node) -> bool:
    """True for a dequantize of any granularity."""
    return is_conversion(node) and ".dequantize_" in node.target


def grid_arguments(node: Node) -> tuple[Any, Any, Any, Any] | None:
    """Scale, zero point, least and largest integer of a per-tensor quantize; values of other nodes as `Ref`."""
    if not re.match(r"quantized_decomposed\.(de)?quantize_per_tensor\.", node.target):
        return None
    found = [
        node.kwargs.get(name, node.args[i + 1] if len(node.args) > i + 1 else None) for i, name in enumerate(_FIRST)
    ]
    return (found[0], found[1], found[2], found[3])


def weight_scheme(node: Node, dtype: str) -> str:
    """How a weight is quantized, in words: ``int8 per channel, axis 0``."""
    name = node.target.split(".")[1].removeprefix("dequantize_")
    if name.startswith("per_channel"):
        axis = node.kwargs.get("axis", node.args[3] if len(node.args) > 3 else None)
        return f"{dtype} {name.replace('_', ' ')}" + (f", axis {axis}" if isinstance(axis, int) else "")
    return f"{dtype} {name.replace('_', ' ')}"
