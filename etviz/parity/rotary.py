"""Tables of rotary position embeddings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Rotary:
    """One table with frequencies, or a pair with cosines and sines.

    `frequencies` are radians a position, [pairs]; `amplitude` is the factor of cosines and sines; `width` counts
    columns.
    """

    names: tuple[str, ...]
    frequencies: torch.Tensor
    amplitude: float
    width: int

    @property
    def theta(self) -> float | None:
        """The base of a geometric sequence; None for scaled frequencies."""
        steps = self.frequencies[:-1] / self.frequencies[1:]
        geometric = bool((steps / steps[0] - 1).abs().max() < 1e-3)
        return float(steps[0]) ** len(self.frequencies) if geometric else None

    def equals(self, other: Rotary) -> bool:
        """Tables in float32 hold angles to 1e-4."""
        mine, theirs = self.frequencies, other.frequencies
        return (
            len(mine) == len(theirs)
            and bool((mine / theirs - 1).abs().max() < 1e-4)
            and abs(self.amplitude / other.amplitude - 1) < 1e-4
        )

    def described(self) -> str:
        base = f"theta {float(f'{self.theta:.5g}'):.10g}" if self.theta is not None else "scaled frequencies"
        factor = f", amplitude {self.amplitude:.6g}" if abs(self.amplitude - 1) > 1e-6 else ""
        return f"{base}, {2 * len(self.frequencies)} rotated dimensions{factor}"

    def like(self, other: Rotary, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        old = tensors[self.names[0]]
        if len(self.names) == 1:
            return {self.names[0]: other.frequencies.to(old.dtype)}
        angles = torch.arange(len(old), dtype=torch.float64)[:, None] * other.frequencies
        if self.width == 2 * len(self.frequencies):
            angles = torch.cat([angles, angles], -1)
        return {
            self.names[0]: (angles.cos() * other.amplitude).to(old.dtype),
            self.names[1]: (angles.sin() * other.amplitude).to(old.dtype),
        }


def frequencies_of(tensors: Mapping[str, torch.Tensor]) -> list[Rotary]:
    rotaries = []
    real = {name: value for name, value in tensors.items() if value.is_floating_point()}
    for name, value in real.items():
        rising = value.ndim == 1 and len(value) > 1 and bool((value[1:] < value[:-1]).all())
        if rising and float(value[-1]) > 0 and float(value[0]) <= 1:
            rotaries.append(Rotary((name,), value.double(), 1.0, len(value)))
    tables = [name for name, value in real.items() if value.ndim == 2 and len(value) > 1]
    for cos in tables:
        for sin in tables:
            table = _table((cos, sin), real[cos].double(), real[sin].double()) if cos != sin else None
            if table is not None:
                rotaries.append(table)
    return rotaries


def _table(names: tuple[str, str], cos: torch.Tensor, sin: torch.Tensor) -> Rotary | None:
    if cos.shape != sin.shape or bool(sin[0].any()) or not bool((cos[0] == cos[0, 0]).all()):
        return None
    amplitude = float(cos[0, 0])
    if amplitude <= 0 or bool(((cos**2 + sin**2).sqrt() / amplitude - 1).abs().max() > 1e-3):
        return None
    angles = torch.atan2(sin[1], cos[1])
    half = len(angles) // 2
    doubled = len(angles) % 2 == 0 and bool(torch.equal(angles[:half], angles[half:]))
    kept = angles[:half] if doubled else angles
    return Rotary(names, kept, amplitude, len(angles)) if bool((kept > 0).all()) else None
