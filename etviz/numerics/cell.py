"""One node's values side by side, and what is done with them."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import torch

NEAR: Final = 1e-4
"""Relative L2 distance of runtime and reference up to which derivatives are taken at the reference."""
_COMPACT: Final = 1 << 16
"""Elements from which autograd keeps a tensor as float32."""


@dataclass(slots=True)
class Cell:
    """The values of one node.

    `middle` carries the gradient; it equals `reference` where `near`. `reach` and `rounded` are sets of contributions,
    as bits: those that this value depends on, and those whose way here leads through a rounding. `parts` are what each
    of several outputs depends on.
    """

    reference: Any
    runtime: Any
    middle: Any
    near: bool = True
    reach: int = 0
    rounded: int = 0
    parts: tuple[int, ...] = ()


def item_of(cell: Cell, index: int) -> Cell:
    """One output of several."""
    reach = cell.parts[index] if index < len(cell.parts) else cell.reach
    reference, runtime = cell.reference[index], cell.runtime[index]
    return Cell(reference, runtime, cell.middle[index], cell.near, reach, cell.rounded)


def detached(value: Any) -> Any:
    """The value without its gradient."""
    import torch

    if isinstance(value, torch.Tensor):
        return value.detach()
    return [detached(item) for item in value] if isinstance(value, (list, tuple)) else value


def shift_of(reference: torch.Tensor, runtime: torch.Tensor) -> torch.Tensor | None:
    """Half the way from reference to runtime where both are finite; None where they are near each other."""
    import torch

    if runtime is reference or runtime.shape != reference.shape:
        return None
    shift = torch.nan_to_num(runtime - reference, 0.0, 0.0, 0.0)
    scale = torch.nan_to_num(reference, 0.0, 0.0, 0.0).norm()
    return None if bool(shift.norm() <= NEAR * scale) else shift / 2


def forget(leaf: torch.Tensor) -> None:
    """Hook that keeps a leaf from holding its gradient."""
    leaf.grad = None


@contextmanager
def compact() -> Generator[None]:
    """Let autograd keep large tensors as float32: derivatives need no more, and it halves the memory."""
    import torch

    def pack(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.dtype]:
        if tensor.dtype != torch.float64 or tensor.numel() < _COMPACT:
            return tensor, tensor.dtype
        small = tensor.float()
        overflow = bool((small.isinf() & tensor.isfinite()).any())
        return (tensor if overflow else small), tensor.dtype

    def unpack(packed: tuple[torch.Tensor, torch.dtype]) -> torch.Tensor:
        return packed[0].to(packed[1])

    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        yield
