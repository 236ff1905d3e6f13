"""Constants in float64: no more of them than allowed are kept, and derivatives through them stay right."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from etviz.errors import PairingError
from etviz.explain.attribution.wide_constants import WideConstants


class Reads(dict[str, torch.Tensor]):
    """Counts how often each constant is read."""

    def __init__(self, constants: dict[str, torch.Tensor]) -> None:
        super().__init__(constants)
        self.names: list[str] = []

    def __getitem__(self, name: str) -> torch.Tensor:
        self.names.append(name)
        return super().__getitem__(name)


def weights(count: int, *, size: int = 256) -> Reads:
    generator = torch.Generator().manual_seed(0)
    return Reads({f"w{i}": torch.randn(size, size, generator=generator) / size**0.5 for i in range(count)})


def test_the_last_used_ones_are_kept() -> None:
    constants = weights(3)
    wide = WideConstants(constants, most=2 * 256 * 256 * (8 + 4))  # in float64, and as they are
    for name in ("w0", "w1", "w0", "w2", "w0", "w1"):
        assert wide[name].dtype == torch.float64
        torch.testing.assert_close(wide[name], dict.__getitem__(constants, name).double(), rtol=0, atol=0)
    assert constants.names == ["w0", "w1", "w2", "w1"]


def test_what_is_larger_than_all_that_may_be_kept() -> None:
    constants = weights(1)
    wide = WideConstants(constants, most=1000)
    assert torch.equal(wide["w0"], wide["w0"])
    assert constants.names == ["w0", "w0"]


def test_other_types_and_missing_ones() -> None:
    wide = WideConstants(
        {"index": torch.arange(3), "empty": torch.empty(0), "half": torch.ones(2, dtype=torch.float16)}
    )
    assert wide["index"].dtype == torch.int64
    assert wide["empty"].dtype == wide["half"].dtype == torch.float64
    with pytest.raises(PairingError, match="weights gone are in none of the files"):
        wide["gone"]


@pytest.mark.parametrize("kept", [1000, 2 * 256 * 256 * 8, 1 << 30])
def test_gradients_flow_through_constants_that_were_dropped(kept: int) -> None:
    """Against NumPy: a chain of products, with weights as they are, transposed and cut."""
    constants = weights(4)
    wide = WideConstants(constants, most=kept)
    x = torch.linspace(-1.0, 1.0, 256, dtype=torch.float64).reshape(1, 256).requires_grad_()
    with wide.compact():
        y = x @ wide["w0"] @ wide["w1"].t() @ wide["w2"] @ wide["w3"][:, 8:]
    y.sum().backward()
    a, b, c, d = (dict.__getitem__(constants, f"w{i}").double().numpy() for i in range(4))
    assert x.grad is not None
    np.testing.assert_allclose(x.grad[0].numpy(), (a @ b.T @ c @ d[:, 8:]).sum(1), rtol=1e-5, atol=1e-6)


def test_values_too_large_for_float32_are_kept_as_they_are() -> None:
    x = torch.full((256, 256), 1e200, dtype=torch.float64, requires_grad=True)
    with WideConstants({}).compact():
        y = (x * x.detach()).sum() * 1e-300
    y.backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), 1e-100)
