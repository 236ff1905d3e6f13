"""One node's values side by side, and what is done with them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from etviz.numerics.reference import flat_values

if TYPE_CHECKING:
    import torch

NEAR: Final = 1e-4
"""Relative L2 distance of runtime and reference up to which derivatives are taken at the reference."""


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


def together(outs: Sequence[Cell]) -> Cell:
    """The outputs of one operator as one cell."""
    cell = Cell([out.reference for out in outs], [out.runtime for out in outs], [out.middle for out in outs])
    cell.near = all(out.near for out in outs)
    if all(out.runtime is out.reference for out in outs):
        cell.runtime = cell.reference
    cell.parts = tuple(out.reach for out in outs)
    for out in outs:
        cell.reach |= out.reach
        cell.rounded |= out.rounded
    return cell


def detached(value: Any) -> Any:
    """The value without its gradient."""
    import torch

    if isinstance(value, torch.Tensor):
        return value.detach()
    return [detached(item) for item in value] if isinstance(value, (list, tuple)) else value


def passing(computed: Cell) -> list[bool]:
    """For each output of an operator: whether errors pass to it.

    They do not where it has no derivative and comes out the same from the reference's inputs as from the runtime's,
    as a comparison with −∞ does.
    """
    references, locals_ = flat_values(computed.reference), flat_values(computed.runtime)
    if len(locals_) != len(references):
        return [True] * len(references)
    middles = flat_values(computed.middle)
    return [
        getattr(m, "requires_grad", False) or not _same(a, b)
        for a, b, m in zip(references, locals_, middles, strict=True)
    ]


def _same(reference: Any, runtime: Any) -> bool:
    import torch

    if reference is runtime:
        return True
    if isinstance(reference, torch.Tensor) and isinstance(runtime, torch.Tensor):
        return torch.equal(reference, runtime)
    return type(reference) is type(runtime) and bool(reference == runtime)


def shift_of(reference: torch.Tensor, runtime: torch.Tensor) -> torch.Tensor | None:
    """Half the way from reference to runtime where both are finite; None where they are near each other."""
    import torch

    if runtime is reference or runtime.shape != reference.shape:
        return None
    shift = runtime - reference
    distance, scale = float(shift.norm()), float(reference.norm())
    if not math.isfinite(distance + scale):
        shift = torch.nan_to_num(shift, 0.0, 0.0, 0.0)
        distance, scale = float(shift.norm()), float(torch.nan_to_num(reference, 0.0, 0.0, 0.0).norm())
    return None if distance <= NEAR * scale else shift / 2


def forget(leaf: torch.Tensor) -> None:
    """Hook that keeps a leaf from holding its gradient."""
    leaf.grad = None
