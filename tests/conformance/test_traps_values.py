"""Traps of upstream's Inspector that have to do with values: layouts, element types, NaN, metrics.

Every test says what etviz shows. Lines below "upstream:" pin what upstream shows; they fail once upstream is repaired.
"""

from __future__ import annotations

import contextlib
import io
import subprocess
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from executorch.devtools.inspector import compare_results

from tests.conformance.cases import Case, load, mse, upstream, upstream_gaps
from tests.programs import Executed

Record = Callable[[str, object], None]
Cases = Callable[[str], Case]
Programs = Callable[[str], Executed]


def test_t03_strides_are_honoured(executed: Programs, record_property: Record) -> None:
    program = executed("channels_last")
    found = program.inspection
    conv = found.gaps.index[found.gaps["op"] == "aten::convolution.out"][0]
    reference, runtime = found.tensors(conv)
    truth = program.model.get_submodule("conv")(*program.inputs)
    assert mse(truth, runtime) < 1e-12
    assert found.gaps["mse"][conv] == pytest.approx(mse(reference, runtime), rel=1e-9, abs=0)
    assert found.gaps["mse"].max() < 1e-12
    # upstream:
    shown = max(upstream_gaps(upstream(program)))
    assert shown > 0.1
    record_property("figures", f"{shown:.3g}, {found.gaps['mse'].max():.3g}, {mse(truth, runtime):.3g}")


def test_t04_outputs_of_a_delegate_in_their_order(case: Cases, record_property: Record) -> None:
    """The first of two outputs is read again inside of the delegate."""
    early = case("early")
    found = load(early)
    truth = early.programs["forward"].module()(*early.runs[0])
    assert found.gaps["output"].tolist() == [0, 1]
    for index, expected in enumerate(truth):
        assert mse(expected, found.tensors(index)[1]) < 1e-12
        assert found.gaps["mse"][index] == pytest.approx(mse(*found.tensors(index)), rel=1e-9, abs=0)
    assert found.gaps["mse"].max() < 1e-12
    # upstream:
    shown = max(upstream_gaps(upstream(early)))
    assert shown > 0.05
    record_property("figures", f"{shown:.3g}, {found.gaps['mse'].max():.3g}, {mse(truth[1], found.tensors(1)[1]):.3g}")


def test_t06_nan_is_not_zero(executed: Programs, record_property: Record) -> None:
    """XNNPACK takes 1e-40 for 0, so its quotient with itself is NaN; the reference's is 1."""
    program = executed("poisoned")
    found = program.inspection
    bad = found.gaps[found.gaps["status"] == "non-finite mismatch"]
    assert len(bad)
    for index in bad.index:
        reference, runtime = (tensor.numpy() for tensor in found.tensors(index))
        assert bad["runtime_nan"][index] == np.isnan(runtime).sum() > np.isnan(reference).sum() == 0
    assert found.worst(1).index[0] in bad.index
    assert "NaN or Inf where the reference is not" in found.summary()
    # upstream:
    shown = upstream_gaps(upstream(program))
    assert 0.0 in shown
    record_property("figures", f"{min(shown):.3g}, non-finite mismatch, 1 NaN against 0")


def test_t06_the_matrix_of_non_finite_elements(executed: Programs) -> None:
    """Counts of each class of the reference against each of the runtime."""
    found = executed("poisoned").inspection
    for index in found.gaps.index:
        pair = [tensor.double().numpy().ravel() for tensor in found.tensors(index)]
        classes = [np.select([np.isposinf(x), np.isneginf(x), np.isnan(x)], [1, 2, 3], 0) for x in pair]
        expected = np.zeros((4, 4), int)
        np.add.at(expected, (classes[0], classes[1]), 1)
        counts = found.row(index).histogram().nonfinite
        assert counts is not None
        assert counts.tolist() == expected.tolist()


def test_t07_without_a_debug_buffer_there_is_no_gap(case: Cases, record_property: Record) -> None:
    rows = case("rows")
    found = load(rows, debug_buffer=None)
    assert found.gaps.empty
    assert "no debug buffer" in found.summary()
    assert len(found.events)
    assert found.delegation is not None
    # upstream:
    shown = upstream_gaps(upstream(rows, debug_buffer_path=None))
    assert max(shown) > 0.01
    record_property("figures", f"{max(shown):.3g}, none, none")


def test_t09_half_precision_does_not_break_the_dump(case: Cases, record_property: Record) -> None:
    half = case("half")
    found = load(half)
    x = half.runs[0][0].numpy().astype(np.float64)
    middle = found.gaps.index[found.gaps["dtype"] == "float16"]
    assert len(middle)
    for index in found.gaps.index:
        assert found.gaps["mse"][index] == pytest.approx(mse(*found.tensors(index)), rel=1e-9, abs=0)
    doubled = found.tensors(found.gaps.index[found.gaps["op"] == "aten::mul.out"][0])[1]
    assert np.abs(doubled.numpy().astype(np.float64) - 2 * np.sin(x)).max() < 2e-3
    assert "float16" in found.summary()
    # upstream:
    with pytest.raises(subprocess.CalledProcessError):
        upstream(half)
    record_property("figures", f"unreadable, {found.gaps['mse'].max():.3g}, –")


def test_t13_every_output_of_a_layer_norm(executed: Programs, record_property: Record) -> None:
    """Upstream drops sequences of several tensors; mean and inverse deviation are among them."""
    encoder = executed("encoder")
    found = encoder.inspection
    norms = found.gaps[found.gaps["op"] == "aten::native_layer_norm.out"]
    assert sorted(set(norms["output"])) == [0, 1, 2]
    assert len(norms) == 3 * norms["instruction"].nunique() == 15
    first = norms["instruction"].min()
    x = encoder.inputs[0].numpy().astype(np.float64)
    mean = found.tensors(norms.index[(norms["instruction"] == first) & (norms["output"] == 1)][0])[1].numpy()
    assert np.abs(mean - x.mean(-1, keepdims=True)).max() < 1e-6
    # upstream:
    gaps = upstream(encoder).calculate_numeric_gap("MSE", reference_graph="edge_dialect_exported_program")
    dropped = [ops for ops in gaps["runtime_ops"] if "native_call_native_layer_norm.out" in ops]
    assert not dropped
    record_property("figures", f"{len(dropped)} rows, {len(norms)} rows, {len(norms)} values logged")


def test_t17_results_are_not_rounded(case: Cases, record_property: Record) -> None:
    early = case("early")
    found = load(early).outputs
    truth = [tensor.detach() for tensor in early.programs["forward"].module()(*early.runs[0])]
    runtime: Any = upstream(early).event_blocks[-1].run_output
    assert runtime is not None
    off = [tensor + 0.05 for tensor in truth]
    # upstream:
    with contextlib.redirect_stdout(io.StringIO()):
        shown = compare_results(off, truth, ["mse"])["mse"]
    assert shown == [0.0, 0.0]
    assert mse(off[0], truth[0]) == pytest.approx(0.0025, rel=1e-5)
    for index in range(2):
        expected = mse(truth[index], runtime[index])
        assert found["mse"][index] == pytest.approx(expected, rel=0.5, abs=1e-15)
        assert found["mse"][index] > 0
    record_property("figures", f"0.0 for 0.0025, {found['mse'][0]:.3g}, {mse(truth[0], runtime[0]):.3g}")


def test_t27_a_pair_of_another_shape_costs_only_its_own_row(executed: Programs, record_property: Record) -> None:
    program = executed("many_outputs")
    found = program.inspection
    assert (found.coverage["status"] == "compared").mean() > 0.5
    for index in found.gaps.index:
        assert found.gaps["mse"][index] == pytest.approx(mse(*found.tensors(index)), rel=1e-9, abs=0)
    shapes = {tuple(tensor.shape) for index in found.gaps.index for tensor in found.tensors(index)}
    assert len(shapes) > 3
    # upstream:
    shown = len(upstream(program).calculate_numeric_gap("MSE"))
    assert shown < len(found.gaps)
    record_property("figures", f"{shown} rows, {len(found.gaps)} rows, –")


def test_t28_large_values_are_not_the_worst(case: Cases, record_property: Record) -> None:
    """By mean squared error the sums over a mask of -10,000 come first, one ulp off."""
    masked = case("masked")
    found = load(masked)
    large = found.gaps.index[found.gaps["op"] == "aten::cumsum.out"][0]
    assert found.gaps["mse"].idxmax() == large
    reference, runtime = found.tensors(large)
    relative = np.sqrt(mse(reference, runtime) / np.mean(reference.numpy().astype(np.float64) ** 2))
    assert found.gaps["severity"][large] == pytest.approx(relative / 2.0**-24, rel=1e-6)
    assert found.gaps["severity"][large] < 1
    assert found.gaps["introduced_severity"][large] < 1
    assert found.worst(1, by="severity").index[0] != large
    # upstream:
    gaps = upstream(masked).calculate_numeric_gap("MSE")
    first = max(range(len(gaps)), key=lambda i: gaps["gap"][i][0])
    assert gaps["runtime_ops"][first] == ["native_call_cumsum.out"]
    shown = float(gaps["gap"][first][0])
    record_property(
        "figures", f"{shown:.3g} (first), severity {found.gaps['severity'][large]:.2g}, {relative / 2.0**-23:.2g}"
    )
    assert torch.isfinite(runtime).all()
