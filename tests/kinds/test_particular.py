"""What only some kinds of program show: another branch than the reference's, scales chosen at run time, no float8."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from torch import Tensor, nn
from torch._export.verifier import SpecViolationError

import etviz
from etviz.comparison.exact import compare_exact
from etviz.evaluation.evaluator import Evaluator
from tests import oracles
from tests.kinds.making import Made
from tests.zoo import small
from tests.zoo.programs import openvino

Programs = Callable[[str], Made]


def test_what_the_runtimes_branch_introduced_is_known(made: Programs) -> None:
    """Each operator of it is evaluated on the values that the runtime logged."""
    program = made("cond_diverging")
    found = program.load("exact")
    runtime = program.truth[0].runtime
    logged = {program.nodes[instruction]: values for instruction, values in runtime.items()}
    interpreter = oracles.Interpreter(program.edge.graph_module, logged)
    with torch.no_grad():
        interpreter.run(*oracles.flat_inputs(program.edge, program.runs[0]))
    unpaired = found.gaps[found.gaps["reason"].str.contains("takes the other branch")]
    assert len(unpaired) >= 2
    for instruction, output, rmse, largest in zip(
        unpaired["instruction"],
        unpaired["output"],
        unpaired["introduced_rmse"],
        unpaired["introduced_max_abs"],
        strict=True,
    ):
        local = interpreter.kept[program.nodes[instruction]][output].double().numpy()
        error = runtime[instruction][output].double().numpy() - local
        error = error[np.isfinite(error)]
        np.testing.assert_allclose(
            [rmse, largest], [np.sqrt(np.mean(error**2)), np.abs(error).max()], rtol=1e-6, atol=0
        )


def test_value_without_reference_is_described_alone(made: Programs) -> None:
    found = made("cond_diverging").load("exact")
    for row in found.gaps.index[found.gaps["reason"].str.contains("takes the other branch")]:
        pair = found.analysis.values.pair(row)
        assert "other branch" in pair.missing
        assert pair.reference is None
        runtime = pair.runtime
        drawn = found.row(row).histogram(bins=16)
        assert drawn.reference is None
        assert drawn.error is None
        numbers = runtime.double().numpy().ravel()
        numbers = numbers[np.isfinite(numbers)]
        np.testing.assert_array_equal(drawn.runtime, np.histogram(numbers, drawn.edges)[0])
        np.testing.assert_allclose(drawn.statistics["runtime"].rms, np.sqrt(np.mean(numbers**2)), rtol=1e-9)


def _first_layer(x: Tensor) -> tuple[Any, Any]:
    """What the first linear layer of a dynamically quantized gives, by NumPy: with that quantization, and without."""
    torch.manual_seed(0)
    layer = small.Feed().first
    weight, bias = (p.detach().double().numpy() for p in (layer.weight, layer.bias))
    step = np.abs(weight).max(1, keepdims=True) / 127
    weight = np.clip(np.round(weight / step), -127, 127) * step
    plain = x.double().numpy()
    scale = (max(plain.max(), 0) - min(plain.min(), 0)) / 255
    rounded = np.round(plain / scale) * scale
    return rounded @ weight.T + bias, plain @ weight.T + bias


def _root_mean_square(values: Any) -> float:
    return float(np.sqrt(np.mean(values**2)))


def test_severity_of_scales_chosen_at_run_time_is_relative_to_their_own_error(made: Programs) -> None:
    program = made("dynamic_int8")
    found = program.load("exact")
    row = found.gaps[(found.gaps["kind"] == "delegate") & (found.gaps["shape"] == (5, 32))].index[0]
    with_it, without = (np.maximum(value, 0) for value in _first_layer(program.runs[0][0]))
    reference, runtime = (tensor.double().numpy() for tensor in found.tensors(row))
    np.testing.assert_allclose(reference, with_it, atol=1e-5)
    error = _root_mean_square(runtime - reference)
    np.testing.assert_allclose(found.gaps["severity"][row], error / _root_mean_square(with_it - without), rtol=1e-3)
    assert "scale for each row" in found.gaps["reason"][row]
    plain = program.load_own("exact", introduced=False)
    assert plain.outputs["severity"][0] == found.outputs["severity"][0]


def test_noise_of_scales_chosen_at_run_time_is_known_without_the_program(made: Programs) -> None:
    """The ETRecord's graph is that of before delegation: which operators a delegate executed, handles tell."""
    program = made("dynamic_int8")
    exact, handles = (
        program.load(way).gaps.set_index(["instruction", "output"])["noise"] for way in ("exact", "handles")
    )
    both = exact.dropna().index.intersection(handles.dropna().index)
    assert len(both)
    np.testing.assert_allclose(handles[both], exact[both], rtol=0.3)


def test_operators_that_choose_scales_at_run_time_are_judged_inside_of_a_delegate(made: Programs) -> None:
    """By the error of that quantization too; where the reference has another weight, it is theirs."""
    program = made("dynamic_int8")
    found = program.load_own("exact")
    row = found.gaps[(found.gaps["kind"] == "delegate") & (found.gaps["shape"] == (5, 32))].index[0]
    inside = found.zoom(row)
    (linear,) = inside.gaps.index[inside.gaps["op"] == "aten.linear.default"]
    with_it, without = _first_layer(program.runs[0][0])
    reference, runtime = (tensor.double().numpy() for tensor in inside.tensors(linear))
    np.testing.assert_allclose(reference, with_it, atol=1e-5)
    error = _root_mean_square(runtime - reference)
    severity = error / _root_mean_square(with_it - without)
    np.testing.assert_allclose(inside.gaps["introduced_severity"][linear], severity, rtol=1e-3)
    assert inside.first_divergence is None

    looked = inside.analysis.findings.zoom
    assert looked is not None
    (execution,), constants = looked.replay.executions, found.analysis.zooms.piece(row).constants
    changed = {item.target: constants[item.target].clone() for item in looked.graph.inputs if item.kind != "user"}
    (weight,) = (value for value in changed.values() if value.dtype == torch.int8)
    weight[3] = 0
    comparison = compare_exact(Evaluator(looked.graph, changed), execution.log, execution.inputs)
    gaps = {gap.node.target: gap.introduced for gap in comparison.gaps}
    assert (gaps["aten.linear.default"] or {})["severity"] > 5 * severity
    assert (gaps["aten.relu.default"] or {})["severity"] == 0


def test_float8_is_refused_before_there_is_a_program() -> None:
    """executorch's dialect knows no float8, so no instruction can give one."""
    from executorch.exir import to_edge_transform_and_lower

    class Narrow(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.sin(x).to(torch.float8_e4m3fn).to(torch.float32) * 2

    with pytest.raises(SpecViolationError, match="float8"):
        to_edge_transform_and_lower(torch.export.export(Narrow(), (torch.randn(2, 5),)))


def test_inside_of_a_delegate_of_openvino(made: Programs) -> None:
    """Its operators, each an output of the delegate that OpenVINO runs again, against the layers of the model."""
    program = made("openvino_whole")
    inside = program.load_own("exact").zoom(0)
    assert inside.faithful is True
    torch.manual_seed(0)
    model, expected = small.ConvNet().eval(), [program.runs[0][0]]
    with torch.no_grad():
        for step in (model.first, torch.relu, model.second, torch.relu, lambda x: x.flatten(1), model.head):
            expected.append(step(expected[-1]))
    assert len(inside.gaps) == len(expected) - 1
    for row, value in enumerate(expected[1:]):
        reference, runtime = inside.tensors(row)
        torch.testing.assert_close(reference, value, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(runtime, value, rtol=0.03, atol=0.03)
        error = runtime.double().numpy() - reference.double().numpy()
        np.testing.assert_allclose(inside.gaps["rmse"][row], np.sqrt(np.mean(error**2)), rtol=1e-6)


def test_two_delegates_of_one_model(tmp_path: Path) -> None:
    """XNNPACK and OpenVINO in one Comparison: the final outputs are joined, and each has its own error."""
    partitioners = {"xnnpack": [XnnpackPartitioner()], "openvino": openvino()}
    torch.manual_seed(0)
    model, inputs = small.ConvNet().eval(), (torch.randn(1, 3, 4, 4),)
    runs = {
        name: etviz.debug(model, inputs, partitioner=chosen, workdir=tmp_path / name)
        for name, chosen in partitioners.items()
    }
    table = etviz.compare(*runs.values(), labels=list(runs)).table
    shared = table[table["joined"] == "operator"]
    assert len(shared)
    with torch.no_grad():
        expected = model(*inputs).double().numpy()
    for name, inspection in runs.items():
        _, ran = inspection.tensors(inspection.gaps.index[-1])
        rmse = np.sqrt(np.mean((ran.double().numpy() - expected) ** 2))
        np.testing.assert_allclose(shared[f"rmse.{name}"].iloc[-1], rmse, rtol=1e-3, atol=1e-9)
