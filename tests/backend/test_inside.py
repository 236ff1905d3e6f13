"""Values that a backend logs inside of its delegate are joined to the operators that they are of."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from executorch.exir import to_edge_transform_and_lower
from executorch.exir.dialects._ops import ops
from executorch.exir.pass_base import ExportPass
from torch import Tensor, nn

import etviz
from etviz.artifacts.program.raw_values import read_tensor, write_inputs
from etviz.errors import UsageError
from etviz.explain.zoom.inner_values import join
from etviz.graph.ir import Graph, Node
from etviz.pipeline.lower import Lowered, lower
from tests.backend.loops import LoopsPartitioner
from tests.cpp_runner import CppRunner


class Net(nn.Module):
    """One delegate: a linear layer, an addition with a ReLU, a sigmoid; a cumsum stays outside."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 5)

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        z = torch.relu(y + torch.tanh(y) * y)
        return torch.cumsum(torch.sigmoid(z) * y, -1)


class Image(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.cumsum(torch.tanh(x) * x - x, -1)


OPERATORS = ["linear", "tanh", "mul", "relu", "sigmoid", "mul_1"]


def _lower(folder: Path, model: nn.Module, x: Tensor, **options: str) -> Lowered:
    return lower(model.eval(), (x,), folder, partitioner=[LoopsPartitioner(**options)])


def _load(folder: Path, lowered: Lowered, runner: CppRunner, x: Tensor, **more: Any) -> etviz.Inspection:
    files = write_inputs(folder, [x])
    runner(folder, "--model", lowered.pte, "--inputs", files[0], "--dump-intermediate-outputs")
    dump, buffer = folder / "etdump.etdp", folder / "debug_output.bin"
    return etviz.load(
        dump,
        debug_buffer=buffer,
        pte=lowered.pte,
        record=lowered.record,
        etrecord=lowered.etrecord,
        inputs=(x,),
        **more,
    )


@pytest.mark.parametrize("ids", ["ints", "names"])
def test_each_operator_has_the_value_of_its_own(ids: str, runner: CppRunner, tmp_path: Path):
    model, x = Net(), torch.randn(3, 6)
    inspection = _load(tmp_path, _lower(tmp_path, model, x, ids=ids), runner, x)
    assert list(inspection.gaps.kind) == ["delegate", *["inner"] * len(OPERATORS), "kernel"]
    inside = inspection.zoom(0)
    assert list(inside.gaps.reference_ops) == OPERATORS
    assert set(inside.gaps.kind) == {"inner"}
    assert inside.faithful
    y = model.linear(x)
    z = torch.relu(y + torch.tanh(y) * y)
    eager = [y, torch.tanh(y), torch.tanh(y) * y, z, torch.sigmoid(z), torch.sigmoid(z) * y]
    for row, value in enumerate(eager):
        reference, runtime = inside.tensors(row)
        torch.testing.assert_close(runtime, value.detach())
        torch.testing.assert_close(reference, value.detach())
        expected = (runtime.double() - reference.double()).square().mean().sqrt()
        assert inside.gaps.rmse[row] == pytest.approx(float(expected), abs=1e-12)
    assert inside.gaps.rmse.max() < 1e-6
    part = inside.coverage[inside.coverage.status == "grouped"]
    assert list(part.reference_ops) == ["add"]
    assert part.reason.str.contains("part of aten_relu_default").all()
    assert "logged the inner values in the run itself" in inside.summary()


class Two(nn.Module):
    """What the first delegate does reaches the second through a kernel."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(torch.cumsum(torch.sigmoid(x) * x, -1)) * x


def test_gaps_hold_what_was_logged_inside_below_its_call(runner: CppRunner, tmp_path: Path):
    x = torch.randn(3, 6)
    inspection = _load(tmp_path, _lower(tmp_path, Two(), x, fault="2 sub"), runner, x)  # sigmoid(x) · x
    gaps = inspection.gaps
    assert list(gaps.kind) == ["delegate", "inner", "inner", "kernel", "delegate", "inner", "inner"]
    assert list(gaps.instruction) == [0, 0, 0, 1, 2, 2, 2]
    sigmoid = torch.sigmoid(x)
    first = torch.cumsum(sigmoid * x, -1)
    wrong = torch.cumsum(sigmoid - x, -1)
    total = (torch.tanh(first) - torch.tanh(wrong)).square().mean().sqrt()
    tanh = gaps[gaps.reference_ops == "tanh"].iloc[0]
    assert tanh.rmse == pytest.approx(float(total), rel=1e-4)  # from the program's inputs on
    assert tanh.introduced_rmse < 1e-6
    products = gaps[gaps.reference_ops.str.startswith("mul") & (gaps.kind == "inner")]
    assert list(products.introduced_rmse > 0.1) == [True, False]
    for row, about in gaps.iterrows():
        for address in (row, about):
            reference, runtime = inspection.tensors(address)
            error = float((reference.double() - runtime.double()).square().mean().sqrt())
            assert about.rmse == pytest.approx(error, abs=1e-9)
    torch.testing.assert_close(inspection.tensors(tanh)[0], torch.tanh(first))
    assert inspection.worst(1).index[0] in (0, products.index[0])


def test_operator_that_broke_inside_is_named(runner: CppRunner, tmp_path: Path):
    x = torch.randn(3, 6)
    inspection = _load(tmp_path, _lower(tmp_path, Net(), x, fault="2 sub"), runner, x)  # the first multiplication
    inside = inspection.zoom(0)
    worst = inside.worst(1).iloc[0]
    assert worst.reference_ops == "mul"
    assert inside.first_divergence is not None
    assert inside.first_divergence.reference_ops == "mul"
    later = inside.gaps[inside.gaps.reference_ops.isin(["relu", "sigmoid", "mul_1"])]
    assert (later.rmse > 1e-3).all()
    assert (later.introduced_severity < 10).all()


class Negated(ExportPass):
    """A subtraction becomes an addition of what is negated: the program that is delegated is another one."""

    def call_operator(self, op: Any, args: Any, kwargs: Any, meta: Any) -> Any:
        aten: Any = ops.edge.aten
        if op != aten.sub.Tensor:
            return super().call_operator(op, args, kwargs, meta)
        negated = super().call_operator(aten.neg.default, (args[1],), {}, meta)
        return super().call_operator(aten.add.Tensor, (args[0], negated), {}, meta)


def test_qualcomms_form(runner: CppRunner, tmp_path: Path):
    """Names as identifiers, and the ETRecord's graph after transform passes as the reference; no record of our own."""
    x = torch.randn(2, 3, 4, 5)
    edge = to_edge_transform_and_lower(
        torch.export.export(Image().eval(), (x,)),
        transform_passes=[Negated()],
        partitioner=[LoopsPartitioner(ids="names")],
        generate_etrecord=True,
    )
    manager = edge.to_executorch()
    manager.save(str(tmp_path / "model.pte"))
    etrecord = manager.get_etrecord()
    etrecord.update_representative_inputs((x,))
    etrecord.save(str(tmp_path / "etrecord.bin"))
    files = write_inputs(tmp_path, [x])
    runner(tmp_path, "--model", "model.pte", "--inputs", files[0], "--dump-intermediate-outputs")
    inspection = etviz.load(tmp_path)
    gaps = inspection.gaps
    inner = gaps[gaps.kind == "inner"]
    assert list(inner.op) == ["aten.tanh.default", "aten.mul.Tensor", "aten.add.Tensor"]
    assert (gaps.rmse < 1e-6).all()
    eager = [torch.tanh(x), torch.tanh(x) * x, torch.tanh(x) * x - x]
    for row, value in zip(inner.index, eager, strict=True):
        torch.testing.assert_close(inspection.tensors(row)[1], value)
    other = inspection.against("edge_after_transform/forward").gaps
    assert (other.rmse[inner.index] < 1e-6).all()


LAYOUTS = {
    "channels_last": (lambda identifier, value: value.permute(0, 3, 1, 2), 0.0),
    "int8": (lambda identifier, value: value.float() / 16, 0.5 / 16),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_preprocessing_undoes_what_the_backend_did(layout: str, runner: CppRunner, tmp_path: Path):
    x = torch.randn(2, 3, 4, 5)
    inspection = _load(tmp_path, _lower(tmp_path, Image(), x, layout=layout), runner, x)
    raw = inspection.zoom(0)
    assert len(raw.gaps) == 0
    assert raw.coverage.reason.str.contains("preprocessing= can undo that").all()
    undo, error = LAYOUTS[layout]
    inside = inspection.zoom(0, preprocessing=undo)
    assert list(inside.gaps.reference_ops) == ["tanh", "mul", "sub"]
    assert (inside.gaps.max_abs <= error + 1e-6).all()
    with pytest.raises(UsageError, match="preprocessing failed for 0"):
        inspection.zoom(0, preprocessing=lambda identifier, value: value.no_such_thing)
    with pytest.raises(UsageError, match="must return a tensor, found int"):
        inspection.zoom(0, preprocessing=lambda identifier, value: 3)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_preprocessing_of_load(layout: str, runner: CppRunner, tmp_path: Path):
    x = torch.randn(2, 3, 4, 5)
    lowered, (undo, error) = _lower(tmp_path, Image(), x, layout=layout), LAYOUTS[layout]
    gaps = _load(tmp_path, lowered, runner, x, preprocessing=undo).gaps
    inner = gaps[gaps.kind == "inner"]
    assert list(inner.reference_ops) == ["tanh", "mul", "sub"]
    assert (inner.max_abs <= error + 1e-6).all()
    with pytest.raises(UsageError, match="must return a tensor, found int"):
        _load(tmp_path, lowered, runner, x, preprocessing=lambda identifier, value: 3)


def test_inner_events_stand_below_their_call(runner: CppRunner, tmp_path: Path):
    x = torch.randn(3, 6)
    inspection = _load(tmp_path, _lower(tmp_path, Net(), x, ids="names"), runner, x)
    events = inspection.events
    named = events[events.name.str.startswith("aten_") & (events.backend == "LoopsBackend")]
    assert set(named.name) >= {"aten_linear_default", "aten_sigmoid_default", "aten_sigmoid_default.exp"}
    assert set(named.instruction) == {0}
    call = events[events.name == "DELEGATE_CALL"].iloc[0]
    assert named.avg_ms.sum() <= call.avg_ms
    steps = dict(zip(named.name, zip(named.operator, named.confidence, strict=True), strict=True))
    assert steps["aten_sigmoid_default.exp"] == ("aten_sigmoid_default", "certain")
    assert steps["aten_linear_default"] == ("aten_linear_default", "certain")
    inner = inspection.gaps[inspection.gaps.kind == "inner"].set_index("reference_ops").latency_ms
    of_sigmoid = named[named.operator == "aten_sigmoid_default"].avg_ms.sum()
    assert inner["sigmoid"] == pytest.approx(of_sigmoid)
    assert inner["sigmoid"] == pytest.approx(inspection.zoom(0).time.latency[inspection.zoom(0).gaps.instruction[4]])


def test_share_of_runs_with_a_flipped_bit(runner: CppRunner, tmp_path: Path):
    x = torch.randn(3, 6)
    lowered = _lower(tmp_path, Net(), x, flip="0.3 0 7")
    files = write_inputs(tmp_path, [x])
    runner(tmp_path, "--model", lowered.pte, "--inputs", files[0], "--executions", "200", "--outputs", "out")
    seen = Counter((tmp_path / f"out-{at}-0.bin").read_bytes() for at in range(200))
    usual, count = seen.most_common(1)[0]
    assert 110 <= count <= 170
    (tmp_path / "usual.bin").write_bytes(usual)
    expected = read_tensor(tmp_path / "usual.bin", "float32", (3, 5))
    for other in seen:
        (tmp_path / "other.bin").write_bytes(other)
        found = read_tensor(tmp_path / "other.bin", "float32", (3, 5))
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def _command(runner: CppRunner) -> str:
    """With room for what the backend logs inside of its delegate, which no `.pte` tells."""
    files = "--model {pte} --inputs {inputs} --etdump {etdump} --debug-output {debug_buffer}"
    return f"{runner.path} {files} --debug-buffer-size {1 << 20} --dump-intermediate-outputs"


def test_census_finds_the_delegate_that_flips_a_bit(runner: CppRunner, tmp_path: Path):
    x = torch.randn(3, 6)
    flipping = _lower(tmp_path, Net(), x, flip="0.3 0 7")
    census = etviz.census(flipping.pte, (x,), n=76, runner=_command(runner))
    table = census.table.set_index("instruction")
    assert census.runs == 76
    assert list(table.kind) == ["delegate", "kernel"]
    assert list(table.origin) == [True, False]
    assert census.first is not None
    assert census.first["instruction"] == 0
    deviating = table.loc[0, "deviating"]
    assert 0 < deviating <= 38
    assert table.loc[0, "low"] < 0.3 < table.loc[0, "high"]
    usual, odd = (census.tensors(0, run)[0] for run in (0, census.kept[1]))
    assert 0 < (usual != odd).sum() <= 2 * 5
    assert table.loc[0, "max_abs"] < 1e-6


def test_census_of_a_steady_delegate(runner: CppRunner, tmp_path: Path):
    x = torch.randn(3, 6)
    census = etviz.census(_lower(tmp_path, Net(), x).pte, (x,), n=30, runner=_command(runner))
    assert census.varying == 0
    assert "30 runs of 2 instructions gave the same bits" in census.summary()


def _graph(*handles: tuple[str, tuple[int, ...]]) -> Graph:
    return Graph("inner", nodes=[Node(name, f"aten.{name}.default", handles=own) for name, own in handles])


def test_handles_of_the_old_belong_to_each_of_the_new():
    graph = _graph(("a", (1,)), ("b", (2,)), ("c", (3,)))
    logged: list[tuple[int | str, Any]] = [(0, "first"), (1, "second"), ("x", "strange"), (2, "third")]
    joined = join(graph, logged, {"0": (1, 2), "1": (1, 2), "2": (3,)})  # {a, b} became two steps
    assert joined.values == {"b": (1, "second"), "c": (2, "third")}
    assert joined.parts == {"a": "b"}
    assert joined.strange == ("x",)
