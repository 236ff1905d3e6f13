"""What if: held against runs that really happened, of programs in which only the other faults are."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch

import etviz
from etviz.pipeline.execute import execute
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
