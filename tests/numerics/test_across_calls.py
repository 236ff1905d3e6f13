"""Errors that buffers carry into later executions: shares and what-if against the closed form of a linear program."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import etviz
from etviz.pipeline.execute import execute
from etviz.pipeline.lower import lower

CALLS = 4
DECAY = 0.5


class Cell(nn.Module):
    """Each call halves the state and adds a layer's output to it."""

    state: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.Linear(6, 5), nn.Linear(5, 3)
        self.register_buffer("state", torch.zeros(1, 5))

    def forward(self, x: Tensor) -> Tensor:
        self.state.copy_(self.state * DECAY + self.layer(x))
        return self.head(self.state)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[etviz.Inspection, list[Tensor]]:
    """Four calls of a program whose first layer has a wrong weight, and what that adds to its output in each call."""
    torch.manual_seed(3)
    folder = tmp_path_factory.mktemp("cell")
    model, inputs = Cell().eval().requires_grad_(False), [torch.randn(1, 6) for _ in range(CALLS)]
    files = lower(model, (inputs[0],), workdir=folder)
    right = model.layer.weight
    wrong = right.clone()
    wrong[2] *= 3.0
    content = Path(files.pte).read_bytes()
    assert content.count(right.numpy().tobytes()) == 1
    bad = folder / "bad"
    bad.mkdir()
    (bad / "model.pte").write_bytes(content.replace(right.numpy().tobytes(), wrong.numpy().tobytes()))
    shutil.copy(folder / "etrecord.bin", bad / "etrecord.bin")
    done = execute(bad / "model.pte", [[x] for x in inputs], workdir=bad)
    assert done.etdump is not None
    inspection = etviz.load(
        done.etdump,
        debug_buffer=done.debug_buffer,
        etrecord=bad / "etrecord.bin",
        pte=bad / "model.pte",
        inputs=[(x,) for x in inputs],
    )
    head = model.head.weight.double()
    return inspection, [(head @ (wrong - right).double() @ x[0].double()) for x in inputs]


def rows_of(inspection: etviz.Inspection, call: int) -> list[int]:
    """The rows of the wrong layer in a call: the copy of its weight, and its product."""
    gaps = inspection.gaps
    block = gaps["event_block"].unique()[call]
    found = gaps.index[(gaps["module"] == "layer") & (gaps["event_block"] == block)]
    assert len(found) >= 1
    return [int(row) for row in found]


@pytest.mark.parametrize("call", range(CALLS))
def test_shares_follow_the_state_into_the_calls_that_wrote_it(
    run: tuple[etviz.Inspection, list[Tensor]], call: int
) -> None:
    inspection, added = run
    parts = [DECAY ** (call - at) * added[at] for at in range(call + 1)]
    error = torch.stack(parts).sum(0)
    expected = [float(part @ error / (error @ error)) for part in parts]
    found = inspection.attribution(run=call)
    known = found["share"].fillna(0.0)
    shares = [sum(known.get(row, 0.0) for row in rows_of(inspection, at)) for at in range(call + 1)]
    assert shares == pytest.approx(expected, abs=1e-4)
    assert found["share"].sum() == pytest.approx(1.0, abs=1e-4)
    assert found.attrs["sum"] == pytest.approx(1.0, abs=1e-4)
    assert ("by run 0" in found.attrs["note"]) == (call in {1, 2, 3})
    assert "no instruction is known" not in found.attrs["note"]


@pytest.mark.parametrize("call", range(CALLS))
def test_a_value_that_was_exact_changes_the_later_calls(run: tuple[etviz.Inspection, list[Tensor]], call: int) -> None:
    inspection, added = run
    found = inspection.what_if(rows_of(inspection, call))
    assert found.runs == tuple(range(call, CALLS))
    for number, output in zip(found.runs, found.outputs, strict=True):
        given = inspection.analysis.tables.compared.runs[number].comparison.runtime_outputs[0]
        torch.testing.assert_close(
            output[0].double(), given[0].double() - DECAY ** (number - call) * added[call], atol=1e-5, rtol=1e-5
        )
