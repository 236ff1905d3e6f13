"""What if: held against runs that really happened, of programs in which only the other faults are."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from torch import nn

import etviz
from etviz.comparison.gap import ExecutionGaps
from etviz.pipeline.execute import execute
from etviz.pipeline.lower import lower
from tests.kinds.making import Made
from tests.programs import Executed

Make = Callable[[str], Executed]


def broken(program: Executed, folder: Path, faults: Sequence[str]) -> etviz.Inspection:
    """A run of the program with the weights of these modules changed in the `.pte` alone."""
    folder.mkdir()
    content = program.path("pte").read_bytes()
    for number, name in enumerate(faults):
        right = program.model.state_dict()[f"{name}.weight"]
        wrong = right.clone()
        wrong[2 + number] *= 4.0
        assert content.count(right.numpy().tobytes()) == 1
        content = content.replace(right.numpy().tobytes(), wrong.numpy().tobytes())
    (folder / "model.pte").write_bytes(content)
    shutil.copy(program.path("etrecord"), folder / "etrecord.bin")
    run = execute(folder / "model.pte", [list(program.inputs)], workdir=folder)
    assert run.etdump is not None
    files = {"etrecord": folder / "etrecord.bin", "debug_buffer": run.debug_buffer, "pte": folder / "model.pte"}
    return etviz.load(run.etdump, inputs=program.inputs, **files)


def row_of(inspection: etviz.Inspection, name: str) -> int:
    """The gap row of a module's first output."""
    gaps = inspection.gaps
    return int(gaps.index[(gaps["module"] == name) & (gaps["output"] == 0) & (gaps["kind"] == "kernel")][0])


def output(inspection: etviz.Inspection) -> torch.Tensor:
    """What the runtime gave."""
    return inspection.analysis.tables.compared.runs[0].comparison.runtime_outputs[0]


def step(inspection: etviz.Inspection) -> float:
    """The largest difference that a flipped rounding makes: two steps of the output's grid, or float rounding."""
    scale = inspection.analysis.tables.compared.runs[0].comparison.output_scales[0]
    return 2 * scale if scale else 1e-5


@pytest.mark.parametrize(
    ("name", "first", "second"), [("digits_int8", "norm1", "norm2"), ("plain_cnn", "features.4", "head")]
)
def test_one_fault_taken_away(executed: Make, tmp_path: Path, name: str, first: str, second: str) -> None:
    """Without both faults it is the run of the right program, without the second one the run with the first alone."""
    program = executed(name)
    both = broken(program, tmp_path / "both", [first, second])
    right, tolerance = output(program.inspection), step(program.inspection)
    assert (output(both) - right).abs().max() > 3 * tolerance
    rows = [row_of(both, first), row_of(both, second)]
    fixed = both.what_if(rows)
    assert (fixed.outputs[0] - right).abs().max() <= tolerance
    assert fixed.after["matches"].all()
    assert not fixed.before["matches"].all()
    assert fixed.before["rmse"].equals(both.outputs["rmse"])
    alone = broken(program, tmp_path / "alone", [first])
    assert (both.what_if(rows[1]).outputs[0] - output(alone)).abs().max() <= tolerance


@dataclass
class Silent:
    """A log without the values of an instruction."""

    log: Any
    instruction: int

    def __getattr__(self, name: str) -> Any:
        return getattr(self.log, name)

    def values(self, instruction: int) -> list[Any]:
        """None of that instruction."""
        return [] if instruction == self.instruction else self.log.values(instruction)


def test_the_error_of_a_value_that_was_not_logged_stays(executed: Make, tmp_path: Path) -> None:
    program = executed("plain_cnn")
    both = broken(program, tmp_path / "both", ["features.4", "head"])
    right, first, second = output(program.inspection), row_of(both, "features.4"), row_of(both, "head")
    assert both.what_if([first, second]).after["matches"].all()
    replay = both.analysis.tables.compared.replay
    assert replay is not None
    silent: Any = Silent(replay.executions[0].log, both.gaps["instruction"].tolist()[second])
    replay.executions[0] = replace(replay.executions[0], log=silent)
    found = both.what_if(first)
    assert not found.after["matches"].any()
    assert (found.outputs[0] - right).abs().max() > 3 * step(program.inspection)


class Layers(nn.Module):
    """One delegate, and a kernel behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.zeroth, self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 8), nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cumsum(torch.sigmoid(self.second(torch.relu(self.first(self.zeroth(x))))), -1)


def test_a_fault_inside_a_delegate_taken_away(tmp_path: Path) -> None:
    """The other fault of the delegate keeps the error that it introduced in the run."""
    torch.manual_seed(0)
    model, x = Layers().eval(), torch.randn(3, 6)
    lowered = lower(model, (x,), tmp_path, partitioner=[XnnpackPartitioner()])
    content, wrong = lowered.pte.read_bytes(), copy.deepcopy(model)
    for right, other in ((model.first, wrong.first), (model.second, wrong.second)):
        assert content.count(right.weight.detach().numpy().tobytes()) == 1
        other.weight.data[2] *= 4
        content = content.replace(right.weight.detach().numpy().tobytes(), other.weight.detach().numpy().tobytes())
    lowered.pte.write_bytes(content)
    lowered.record.unlink()
    run = execute(lowered.pte, [[x]], workdir=tmp_path)
    assert run.etdump is not None
    both = etviz.load(
        run.etdump, etrecord=lowered.etrecord, debug_buffer=run.debug_buffer, pte=lowered.pte, inputs=(x,)
    )
    with torch.no_grad():
        first, at_runtime = (torch.relu(made.first(made.zeroth(x))) for made in (model, wrong))
        introduced = wrong.second(at_runtime) - model.second(at_runtime)
        expected = torch.cumsum(torch.sigmoid(model.second(first) + introduced), -1)
        torch.testing.assert_close(output(both), wrong(x), rtol=1e-5, atol=1e-6)
    inside = both.zoom(0)
    own = len(both.gaps)
    rows = {name: own + int(inside.gaps.index[inside.gaps.module == name][0]) for name in ("first", "second")}
    found = both.what_if(rows["first"])
    torch.testing.assert_close(found.outputs[0], expected, rtol=1e-5, atol=1e-6)
    assert (output(both) - expected).abs().max() > 0.01
    assert found.rows == (rows["first"],)
    whole = both.what_if([rows["first"], rows["second"]])
    torch.testing.assert_close(whole.outputs[0], model(x).detach(), rtol=1e-5, atol=1e-6)


def test_where_nothing_was_introduced_nothing_changes(executed: Make) -> None:
    inspection = executed("branches").load()
    gaps = inspection.gaps
    exact = gaps.index[gaps["introduced_rmse"] == 0]
    assert len(exact)
    found = inspection.what_if(list(exact))
    for a, b in zip(found.outputs, inspection.analysis.tables.compared.runs[0].comparison.runtime_outputs, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("name", ["many_outputs", "casts", "poisoned", "counter", "channels_last"])
def test_all_rows_exact_is_the_reference(executed: Make, name: str) -> None:
    """Every value exact leaves nothing of the error: the outputs are those of the reference, bit for bit."""
    inspection = executed(name).load()
    found = inspection.what_if(list(inspection.gaps.index))
    reference = inspection.analysis.tables.compared.runs[0].comparison.reference_outputs
    for a, b in zip(found.outputs, reference, strict=True):
        assert a == b if not isinstance(a, torch.Tensor) else torch.equal(a.nan_to_num(7), b.nan_to_num(7))


@pytest.mark.parametrize("name", ["several", "stack", "masked_transformer"])
def test_a_derived_pairing_proves_the_same(made: Callable[[str], Made], name: str) -> None:
    """Where `.pte` and ETRecord tell the operators of a delegate, its output can be exact too, and what follows."""
    inspection = made(name).load("derived")
    assert inspection.gaps["pairing"].eq("derived").all()
    found = inspection.what_if(list(inspection.gaps.index))
    reference = [item for run in found.runs for item in _run(inspection, run).reference_outputs]
    for a, b in zip(found.outputs, reference, strict=True):
        assert a == b if not isinstance(a, torch.Tensor) else torch.equal(a.nan_to_num(7), b.nan_to_num(7))
    one = inspection.what_if(0)
    assert (one.runs, len(one.after)) == ((0,), len(_run(inspection, 0).reference_outputs))


def _run(inspection: etviz.Inspection, run: int) -> ExecutionGaps:
    return inspection.analysis.tables.compared.runs[run].comparison


def test_non_finite_values_that_an_operator_made_go_with_it(executed: Make) -> None:
    inspection = executed("poisoned").load()
    created = inspection.gaps.index[inspection.gaps["non_finite"] == "created"]
    bad = [int(row) for row in created if inspection.gaps["status"][row] == "non-finite mismatch"]
    assert inspection.outputs["runtime_nan"].sum() > inspection.outputs["reference_nan"].sum()
    after = inspection.what_if(bad).after
    assert list(after["runtime_nan"]) == list(inspection.outputs["reference_nan"])


def test_wrong_rows_are_refused(executed: Make) -> None:
    inspection = executed("casts").inspection
    for wrong in (-1, 10**6, [], True, "3", [0, 10**6]):
        with pytest.raises(etviz.errors.UsageError):
            inspection.what_if(wrong)
    with pytest.raises(etviz.errors.UsageError, match="row must be"):
        executed("casts").load(debug_buffer=None).what_if(0)
