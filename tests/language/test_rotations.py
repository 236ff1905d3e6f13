"""Grouped attention with rotary positions, spelled in slices: a port's faults, found with the right model."""

from __future__ import annotations

import re

import pytest
import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

import etviz

INPUTS = (torch.randn(1, 6, 32, generator=torch.Generator().manual_seed(0)),)


class Attention(nn.Module):
    """Four heads of queries, two of keys and values, as Hugging Face's Llama computes them, with one of the faults."""

    cosines: Tensor
    sines: Tensor

    def __init__(self, fault: str = "", rotated: int = 6) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.fault, self.rotated = fault, rotated
        self.query, self.key, self.value, self.out = (nn.Linear(32, size) for size in (32, 16, 16, 32))
        angles = torch.arange(8.0)[:, None] * 100.0 ** -torch.arange(0, 1, 2 / rotated)
        self.register_buffer("cosines", torch.cat([angles.cos(), angles.cos()], -1))
        self.register_buffer("sines", torch.cat([angles.sin(), angles.sin()], -1))

    def _turned(self, x: Tensor) -> Tensor:
        half = x.shape[-1] // 2
        match self.fault:
            case "interleaved":
                return torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
            case "interleaved, then joined":
                return torch.cat((-x[..., 1::2], x[..., ::2]), -1)
            case "other direction":
                return torch.cat((x[..., half:], -x[..., :half]), -1)
            case "halves not exchanged":
                return torch.cat((-x[..., :half], x[..., half:]), -1)
        return torch.cat((-x[..., half:], x[..., :half]), -1)

    def _placed(self, x: Tensor, first: int) -> Tensor:
        length = x.shape[-2]
        cosines, sines = self.cosines[first : first + length], self.sines[first : first + length]
        if self.fault == "tables exchanged":
            cosines, sines = sines, cosines
        front, rest = x[..., : self.rotated], x[..., self.rotated :]
        if self.fault == "the last dimensions are rotated":
            rest, front = x[..., : 8 - self.rotated], x[..., 8 - self.rotated :]
        turned = front * cosines + self._turned(front) * sines
        return torch.cat((turned, rest), -1)

    def _shared(self, x: Tensor) -> Tensor:
        if self.fault == "groups in another order":
            return x.repeat(1, 2, 1, 1)
        if self.fault == "groups by expand":
            return x.unsqueeze(2).expand(-1, -1, 2, -1, -1).flatten(1, 2)
        return x.repeat_interleave(2, 1)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (
            layer(x).unflatten(-1, (-1, 8)).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        query = self._placed(query, 0)
        key = self._placed(key, int(self.fault == "keys one position late"))
        key, value = self._shared(key), self._shared(value)
        shares = torch.softmax(query @ key.transpose(-1, -2) * 8**-0.5, -1)
        return self.out((shares @ value).transpose(1, 2).flatten(-2))


FAULTS = {
    "": "",
    "groups by expand": "",
    "interleaved": "slice",
    "interleaved, then joined": "slice",
    "other direction": "slice",
    "halves not exchanged": "slice",
    "tables exchanged": "mul",
    "the last dimensions are rotated": "mul",
    "keys one position late": "slice",
    "groups in another order": "repeat",
}
"""By fault, the operator of the port that is named first; none for a correct spelling."""


@pytest.fixture(scope="module")
def right() -> ExportedProgram:
    return torch.export.export(Attention().eval(), INPUTS, strict=False)


@pytest.mark.parametrize("fault", list(FAULTS))
def test_a_fault_of_the_port_is_named_first(right: ExportedProgram, fault: str) -> None:
    found = etviz.debug(Attention(fault).eval(), INPUTS, strict=False, reference=right)
    first = found.first_divergence
    if not FAULTS[fault]:
        assert first is None
        assert found.outputs["matches"].all()
        return
    assert first is not None
    assert re.sub(r"_\d+$", "", str(first["reference_ops"])) == FAULTS[fault]
    assert not found.outputs["matches"].any()


@pytest.mark.parametrize("rotated", [4, 8])
def test_another_number_of_dimensions_is_rotated(right: ExportedProgram, rotated: int) -> None:
    found = etviz.debug(Attention(rotated=rotated).eval(), INPUTS, strict=False, reference=right)
    first = found.first_divergence
    assert first is not None
    assert str(first["reference_ops"]).startswith("slice")
    assert not found.outputs["matches"].any()
