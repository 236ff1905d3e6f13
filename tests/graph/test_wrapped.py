"""Parts of a forward that run without gradients, or with autocast switched off, are exported as graphs of their own."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import etviz
from etviz.errors import EtvizError
from etviz.graph import inline

WRAPS = {*inline.WRAPS}


class Wrapped(torch.nn.Module):
    def __init__(self, scale: float = 1.0, autocast: bool = False) -> None:
        super().__init__()
        self.a, self.b = torch.nn.Linear(16, 16), torch.nn.Linear(16, 4)
        self.scale, self.autocast = scale, autocast

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        with torch.autocast("cpu", enabled=False):
            y = torch.sin(self.a(x))
            with torch.no_grad():
                values, indices = torch.topk(y * self.scale, 3)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.autocast):
            z = self.b(y)
        return z, values, indices, y, y


def model(**given: Any) -> Wrapped:
    torch.manual_seed(0)
    return Wrapped(**given).eval()


INPUTS = (torch.randn(3, 16, generator=torch.Generator().manual_seed(1)),)


@pytest.fixture(scope="module")
def faulty() -> etviz.Inspection:
    return etviz.debug(model(scale=1.1), INPUTS)


def test_their_operators_are_operators_of_the_program(faulty: etviz.Inspection) -> None:
    graph = torch.export.export(model(), INPUTS).graph
    assert WRAPS & {f"higher_order.{getattr(node.target, '__name__', '')}" for node in graph.nodes}
    rungs = faulty.ladder()
    known = rungs[(rungs["stage"] == "edge") & (rungs["against"] == "exported") & (rungs["operator"] != "")]
    assert {"linear", "sin", "mul", "topk", "linear_1"} <= set(known["operator"])
    assert set(known["status"]) <= {"same", "rounding"}


def test_a_reference_of_the_users_own_has_them_too(faulty: etviz.Inspection) -> None:
    same = faulty.against(model(scale=1.1))
    assert same.outputs["matches"].all()
    other = faulty.against(model())
    assert not other.outputs["matches"].all()
    first = other.first_divergence
    assert first is not None
    assert "mul" in first["name"]


def test_autocast_that_is_on_is_named(faulty: etviz.Inspection) -> None:
    with pytest.raises(EtvizError, match="wrap_with_autocast"):
        faulty.against(model(autocast=True))
