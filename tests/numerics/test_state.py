"""Mutable buffers: each operator is judged by what the runtime had in them, whatever it began with and made of it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import etviz
from etviz.pipeline.execute import execute
from tests.numerics.test_handles import lower
from tests.programs import FILES


class Averaging(nn.Module):
    """Keeps a moving average, which begins with a half."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.head = nn.Linear(8, 8), nn.Linear(8, 4)
        self.register_buffer("average", torch.full((8,), 0.5))
        self.average: Tensor

    def forward(self, x: Tensor) -> Tensor:
        y = torch.tanh(self.linear(x) + self.average)
        self.average.copy_(self.average * 0.5 + y.mean(0))
        return self.head(y)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What `etviz.load` takes for three steps of a program with a wrong weight."""
    folder = tmp_path_factory.mktemp("state")
    torch.manual_seed(0)
    model = Averaging().eval()
    inputs = [torch.randn(4, 8) for _ in range(3)]
    with torch.no_grad():
        lower(model, (inputs[0],), folder)
        (folder / FILES["etrecord"]).rename(folder / "right.bin")
        model.linear.weight[3] *= 1.5
        lower(model, (inputs[0],), folder)
    execute(folder / FILES["pte"], [[x] for x in inputs], workdir=folder)
    given: dict[str, Any] = {kind: folder / FILES[kind] for kind in ("etdump", "debug_buffer", "pte")}
    return given | {"etrecord": folder / "right.bin", "inputs": [(x,) for x in inputs]}


@pytest.fixture(scope="module")
def steps(files: dict[str, Any]) -> etviz.Inspection:
    """Those steps, with all files."""
    return etviz.load(**files)


def test_what_earlier_steps_left_is_no_operators_fault(steps: etviz.Inspection) -> None:
    gaps = steps.gaps
    wrong = gaps[gaps["introduced_severity"] > 2]
    assert wrong["event_block"].nunique() == 3
    assert set(wrong["reference_ops"]) == {"linear"}
    readers = gaps[gaps["reference_ops"].isin(["add", "mul"])]
    assert (readers["severity"] > 1e3).all()
    assert (readers["introduced_severity"] < 2).all()


def test_what_upstream_does_not_keep_is_said(steps: etviz.Inspection) -> None:
    """It keeps the initial value of no buffer that changes; the logged product shows that it was 0."""
    gaps = steps.gaps
    product = gaps.index[(gaps["reference_ops"] == "mul")][0]
    reference, runtime = steps.tensors(product)
    assert torch.equal(reference, torch.full((8,), 0.25))
    assert torch.equal(runtime, torch.zeros(8))
    assert any("does not keep what average held at first" in note for note in steps.analysis.digest.notes)


def test_what_only_the_program_tells_is_said_to_be_unknown(files: dict[str, Any]) -> None:
    without: dict[str, Any] = files | {"pte": None}
    notes = etviz.load(**without).analysis.digest.notes
    assert any("it is not known whether it keeps what average held at first" in note for note in notes)
