"""What one output of an instruction adds to the error, and how much of it arrives at the program's output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from etviz.numerics.nonfinite import has_nonfinite

if TYPE_CHECKING:
    import torch


@dataclass(slots=True)
class Contribution:
    """One output of an instruction.

    Attributes
    ----------
    instruction, output
        Which one; instruction −1 stands for a mutable buffer as earlier executions left it.
    bit
        Its place in sets of contributions.
    difference
        Runtime − local value, None where that has no gradient; float32 where this loses nothing that matters.
    replacement
        ``(where, runtime)`` for integers that differ.
    size
        Norm of the difference over the norm of the value; the share of different elements for integers.
    problem
        Why the difference is not known.
    excluded
        Non-finite elements that were left out.
    influence
        Σ gradient · difference, None until the gradient has come.
    """

    instruction: int
    output: int
    bit: int
    difference: torch.Tensor | None = None
    replacement: tuple[torch.Tensor, torch.Tensor] | None = None
    size: float = 0.0
    problem: str = ""
    excluded: int = 0
    influence: float | None = None

    def measure(self, runtime: torch.Tensor, local: torch.Tensor) -> None:
        """Note what the runtime's value differs by from the local one."""
        import torch

        if not runtime.is_floating_point():
            where = runtime != local
            self.size = float(where.double().mean()) if where.numel() else 0.0
            self.replacement = (where, runtime) if self.size else None
            return
        difference = runtime - local
        if has_nonfinite(difference):
            finite = torch.isfinite(difference)
            same = (runtime == local) | (runtime.isnan() & local.isnan())
            self.excluded += int((~finite & ~same).sum())
            difference, local = torch.where(finite, difference, 0.0), torch.where(finite, local, 0.0)
        largest = float(torch.linalg.vector_norm(difference, torch.inf)) if difference.numel() else 0.0
        norm = float(local.norm())
        self.size = float(difference.norm()) / norm if norm else largest
        self.difference = difference.float() if 1e-30 < largest < 1e30 else difference

    def collect(self, gradient: torch.Tensor | None) -> torch.Tensor | None:
        """Take the gradient by this output; returns it without its non-finite elements if it has any."""
        import torch

        if gradient is None:
            return None
        clean = None
        if has_nonfinite(gradient):
            finite = torch.isfinite(gradient)
            self.excluded += int((~finite).sum())
            gradient = clean = torch.where(finite, gradient, 0.0)
        if self.difference is not None:
            self.influence = float((gradient * self.difference).sum()) + (self.influence or 0.0)
        return clean

    def inject(self, value: torch.Tensor) -> torch.Tensor:
        """The reference's value with this difference in it."""
        import torch

        if self.replacement is not None:
            return torch.where(self.replacement[0], self.replacement[1], value)
        return value if self.difference is None else value + self.difference
