"""Traps of upstream's Inspector that have to do with what a run was given: inputs, states, several runs.

Every test says what etviz shows. Lines below "upstream:" pin what upstream shows; they fail once upstream is repaired.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from executorch.devtools import BundledProgram
from executorch.devtools.bundled_program.config import MethodTestCase, MethodTestSuite
from executorch.devtools.bundled_program.serialize import serialize_from_bundled_program_to_flatbuffer

import etviz
from etviz.errors import ExecutionError, UsageError
from etviz.pipeline.execute import execute
from tests.conformance.cases import Case, load, mse, rerun, upstream, upstream_gaps
from tests.programs import Executed

Record = Callable[[str, object], None]
Cases = Callable[[str], Case]
Programs = Callable[[str], Executed]


def assert_gaps_are_numpys(inspection: etviz.Inspection, largest: float = 1e-10) -> None:
    """Every gap is that of its tensors by NumPy in float64, and a rounding error."""
    assert len(inspection.gaps)
    for index, row in inspection.gaps.iterrows():
        assert row["mse"] == pytest.approx(mse(*inspection.tensors(index)), rel=1e-9, abs=0)
        assert row["mse"] < largest


def test_t01_the_bundled_test_set_is_recognized(case: Cases, tmp_path: Path, record_property: Record) -> None:
    """The runtime writes -1 for the index of the bundled inputs; the second of three sets was run."""
    rows = case("rows")
    inputs = [torch.randn(2, 10) for _ in range(3)]
    model = rows.programs["forward"].module()
    sets = [MethodTestCase((x,), model(x)) for x in inputs]
    bundle = BundledProgram(rows.manager, [MethodTestSuite("forward", sets)])
    path, etrecord = tmp_path / "model.bpte", tmp_path / "bundle-etrecord.bin"
    path.write_bytes(serialize_from_bundled_program_to_flatbuffer(bundle))
    found = rerun(rows, [[inputs[1]]], tmp_path, pte=path, record=rows.path("record"))
    assert set(found.gaps["input_index"]) == {1}
    assert_gaps_are_numpys(found)
    assert "match" in found.summary().splitlines()[0]
    # upstream:
    kept = rows.manager.get_etrecord()
    kept.update_reference_outputs(bundle)
    kept.save(str(etrecord))
    block = upstream(rows, tmp_path, etrecord=str(etrecord)).event_blocks[-1]
    assert block.bundled_input_index == -1
    assert block.reference_output is not None
    assert block.run_output is not None
    shown, right = (mse(x, block.run_output[0]) for x in (block.reference_output[0], model(inputs[1])))
    assert shown > 0.01 > 1e-10 > right
    record_property("figures", f"{shown:.3g}, {found.outputs['mse'][0]:.3g}, {right:.3g}")


def test_t02_representative_inputs_of_another_run(executed: Programs, tmp_path: Path, record_property: Record) -> None:
    encoder = executed("encoder")
    other = torch.randn(1, 6, 16)
    found = rerun(encoder, [[other]], tmp_path)
    assert "The run had other inputs than the reference's" in found.summary()
    assert_gaps_are_numpys(found)
    expected = encoder.model(other)
    assert mse(expected, found.tensors(found.gaps.index[-1])[1]) < 1e-10
    # upstream:
    shown = max(upstream_gaps(upstream(encoder, tmp_path)))
    assert shown > 0.05
    record_property(
        "figures",
        f"{shown:.3g}, {found.gaps['mse'].max():.3g}, {mse(expected, found.tensors(found.gaps.index[-1])[1]):.3g}",
    )


def test_t02_inputs_that_nobody_knows(case: Cases, tmp_path: Path) -> None:
    """Portable kernels log no inputs: then no total gap is shown, and it is said why."""
    found = rerun(case("rows"), [[torch.randn(2, 10)]], tmp_path)
    assert "most likely had other inputs" in found.summary()
    assert found.gaps["mse"].isna().all()


def test_t05_every_execution_with_its_own_state(case: Cases, record_property: Record) -> None:
    """A buffer adds up its input: 1, 2, 3 after three calls."""
    running = case("running")
    found = load(running)
    assert sorted(set(found.gaps["event_block"])) == [1, 2, 3]
    assert_gaps_are_numpys(found)
    last = found.gaps[found.gaps["op"].str.startswith("aten::mul")]
    for calls, index in enumerate(last.index, start=1):
        truth = 2 * np.cos(np.full((2, 3), float(calls)))
        assert np.abs(found.tensors(index)[0].numpy() - truth).max() < 1e-6
        assert np.abs(found.tensors(index)[1].numpy() - truth).max() < 1e-6
    # upstream:
    with pytest.raises(AssertionError, match="different"):
        upstream(running)
    record_property("figures", f"AssertionError, {found.gaps['mse'].max():.3g}, {0:.3g}")


def test_t08_several_runs_in_one_dump(executed: Programs, tmp_path: Path) -> None:
    encoder = executed("encoder")
    runs = [[torch.randn(1, 6, 16)] for _ in range(2)]
    found = rerun(encoder, runs, tmp_path, inputs=[tuple(run) for run in runs])
    assert (
        found.gaps.groupby("event_block")["instruction"].nunique().tolist() == [found.gaps["instruction"].nunique()] * 2
    )
    assert set(found.gaps["input_index"]) == {0, 1}
    assert_gaps_are_numpys(found)
    # upstream:
    with pytest.raises(AssertionError, match="Tensors Debug Data is different"):
        upstream(encoder, tmp_path)


def test_t08_the_same_nan_twice(executed: Programs, tmp_path: Path) -> None:
    poisoned = executed("poisoned")
    found = rerun(poisoned, [list(poisoned.inputs)] * 2, tmp_path)
    first, second = (part.reset_index(drop=True) for _, part in found.gaps.groupby("event_block"))
    same = ["instruction", "output", "mse", "runtime_nan", "status"]
    assert first[same].equals(second[same])
    assert (first["status"] == "non-finite mismatch").any()
    # upstream:
    with pytest.raises(AssertionError):
        upstream(poisoned, tmp_path)


def test_t10_a_buffer_that_is_too_small_kills_no_kernel(executed: Programs, tmp_path: Path) -> None:
    encoder = executed("encoder")
    with pytest.raises(ExecutionError, match="debug_buffer_size=") as found:
        execute(encoder.path("pte"), [list(encoder.inputs)], workdir=tmp_path, debug_buffer_size=256)
    assert found.value.exit_status == -6  # upstream: SIGABRT, here in the child process
    again = execute(encoder.path("pte"), [list(encoder.inputs)], workdir=tmp_path)
    assert again.etdump is not None
    assert load(encoder, tmp_path).gaps["mse"].equals(encoder.inspection.gaps["mse"])


def test_t15_several_methods(case: Cases, tmp_path: Path) -> None:
    two = case("two_methods")
    execute(two.path("pte"), [list(two.runs[0])], workdir=tmp_path, method="encode")
    for method, folder in (("forward", two.folder), ("encode", tmp_path)):
        found = load(two, folder, method=method)
        assert_gaps_are_numpys(found)
        assert (found.coverage["status"] == "compared").all()
        truth = two.programs[method].module()(*two.runs[0])
        assert mse(truth, found.tensors(found.gaps.index[-1])[1]) < 1e-12
    with pytest.raises(UsageError, match=r"no method 'decode'.*encode.*forward"):
        load(two, method="decode")
    assert "no execution of the method forward; say with method=" in load(two, tmp_path, method="forward").summary()
    # upstream:
    for folder in (two.folder, tmp_path):
        with pytest.raises((AttributeError, KeyError)):
            upstream(two, folder)


def test_t16_shapes_are_not_broadcast(case: Cases, tmp_path: Path, record_property: Record) -> None:
    """One row was run, the ETRecord's inputs have two: the pair (2, 10) and (1, 10) has no gap, and is no fault."""
    rows = case("rows")
    found = rerun(rows, [[torch.randn(1, 10)]], tmp_path)
    told = found.gaps.set_index("instruction").loc[1]
    assert "(1, 10)" in told["reason"]
    assert "the run most likely had other inputs" in found.summary()
    assert found.first_divergence is None
    wide = found.gaps["shape"].map(lambda shape: shape == (1, 10))
    assert found.gaps[wide]["rmse"].isna().all()
    assert "match" not in found.summary().splitlines()[0]
    # upstream:
    shown = upstream_gaps(upstream(rows, tmp_path))
    assert len(shown) == 3
    assert np.isfinite(shown).all()
    record_property("figures", f"{max(shown):.3g}, none, none")
