"""Inside a delegate: every inner operator against an independent evaluation, faithful to the run or said to be not."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import etviz
from etviz.errors import BackendRefusedError, ExecutionError, UsageError
from etviz.graph.exposure import expose
from etviz.pipeline.interpreters import INTERPRETERS
from etviz.pipeline.piece_program import widest
from etviz.pipeline.relower import Piece, run_alone
from etviz.pipeline.worker import WORKER
from etviz.view.payload.program_payload import build_payload
from etviz.view.payload.tensor import build_tensor
from tests.oracles import inner_values
from tests.programs import Executed
from tests.shifted import load_shifted

Programs = Callable[[str], Executed]
_WATCHED = """
import sys
from etviz.pipeline import piece_program

def show_inside(*given):
    shown = piece_program.show_inside(*given)
    assert "executorch.exir.capture" not in sys.modules
    return shown
"""


def _delegates(inspection: etviz.Inspection) -> list[int]:
    gaps = inspection.gaps
    return list(gaps[gaps["kind"] == "delegate"].drop_duplicates("instruction").index)


@pytest.fixture(scope="module")
def residual(executed: Programs) -> etviz.Inspection:
    """The first delegate was zoomed into."""
    inspection = executed("residual_cnn").load()
    inspection.zoom(_delegates(inspection)[0])
    return inspection


def test_inner_operators_are_compared_with_their_own_references(residual: etviz.Inspection, executed: Programs) -> None:
    inside = residual.zoom(_delegates(residual)[0])
    gaps = inside.gaps
    assert list(gaps["kind"]) == ["inner"] * len(gaps)
    assert set(gaps["backend"]) == {"XnnpackBackend"}
    assert [op.split(".")[1] for op in gaps["op"]] == [
        "convolution",
        "relu",
        "convolution",
        "relu",
        "convolution",
        "add",
    ]
    assert inside.faithful is True
    assert inside.deviation == 0
    assert "bit for bit" in inside.summary()
    expected = inner_values(executed("residual_cnn"))[0]
    for row, gap in gaps.iterrows():
        reference, runtime = inside.tensors(row)
        independent = expected[inside.analysis.rows.find(row).gap.node.name].double().numpy()
        assert np.allclose(reference.double().numpy(), independent, rtol=1e-5, atol=1e-6)
        error = runtime.double().numpy() - reference.double().numpy()
        assert gap["rmse"] == pytest.approx(float(np.sqrt(np.mean(error**2))), rel=1e-6)
        assert gap["severity"] < 10
    relus = gaps[gaps["op"].str.contains("relu")]
    assert (relus["rmse"] > 0).all(), "a relu inherits the convolution's rounding"
    assert (relus["introduced_rmse"] == 0).all(), "and adds none of its own"


def test_quantized_delegates_show_the_integers_between_operators(executed: Programs) -> None:
    inspection = executed("digits_int8").load()
    inside = inspection.zoom(_delegates(inspection)[0])
    assert inside.faithful is True
    gaps = inside.gaps
    assert list(gaps["dtype"]) == ["int8"] * 4 + ["float32"]
    assert list(gaps["reference_ops"])[1:4] == ["conv2d, relu", "conv2d_1, relu_1", "add"]
    assert (gaps["introduced_max_abs"] <= 1).all(), "an integer operator is off by at most one step of rounding"
    grouped = inside.coverage[inside.coverage["status"] == "grouped"]
    assert {op.split(".")[1] for op in grouped["op"]} == {"convolution", "relu", "add"}
    assert inside.coverage["reason"][inside.coverage["status"] != "compared"].str.len().gt(0).all()


def test_what_ran_is_taken_as_it_is(executed: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the program nothing is lowered, without it XNNPACK's part is lowered once; both give the same bits."""
    asked: list[str] = []
    answer = WORKER.run
    monkeypatch.setattr(WORKER, "run", lambda request, *rest: asked.append(request["work"]) or answer(request, *rest))
    inspection = executed("digits_int8").load()
    row = _delegates(inspection)[0]
    inside = inspection.zoom(row)
    assert asked == ["inside"]
    piece = inspection.analysis.zooms.piece(row)
    own = run_alone(piece, expose(piece.graph).candidates)
    assert asked == ["inside", "relower"]
    assert own.lowered
    assert not own.left_out
    assert len(own.values) == len(inside.gaps) - len(piece.outputs) > 3
    for at, gap in enumerate(inside.analysis.tables.gaps):
        if gap.node.name in own.values:
            assert torch.equal(own.values[gap.node.name], inside.tensors(at)[1])


def test_a_zoom_does_not_wait_for_the_compiler(
    executed: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its import takes seconds, and what ran is lowered already."""
    (tmp_path / "watched_values.py").write_text(_WATCHED)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    own = replace(INTERPRETERS["XnnpackBackend"], function="watched_values:show_inside")
    monkeypatch.setitem(INTERPRETERS, "XnnpackBackend", own)
    asked: list[str] = []
    answer = WORKER.run
    monkeypatch.setattr(WORKER, "run", lambda request, *rest: asked.append(request["work"]) or answer(request, *rest))
    inspection = executed("digits_int8").load()
    WORKER.stop()
    assert inspection.zoom(_delegates(inspection)[0]).faithful is True
    assert asked == ["inside"]
    WORKER.stop()


class Gated(nn.Module):
    """The hard sigmoid is no operator of XNNPACK: its steps take floats, in another order than the convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.gate = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.first(x))
        return y * functional.hardsigmoid(self.gate(y.mean((2, 3), keepdim=True)))


class Normed(nn.Module):
    """Three batch norms that no convolution takes in, one of them behind another, and one that a convolution does."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.BatchNorm2d(3) for _ in range(4))
        self.conv = nn.Conv2d(3, 3, 3, padding=1)
        for parameter in self.norms.parameters():
            nn.init.normal_(parameter)

    def forward(self, x: Tensor) -> Tensor:
        first, second, third, fourth = self.norms
        x = torch.relu(first(x))
        return fourth(x + third(second(self.conv(x))))


@pytest.mark.parametrize(("kind", "recipe"), [(Gated, "xnnpack-int8"), (Normed, "xnnpack"), (Normed, "xnnpack-int8")])
def test_what_ran_is_taken_where_steps_have_no_handle(
    kind: type[nn.Module], recipe: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    answer = WORKER.run
    torch.manual_seed(0)
    inspection = etviz.debug(kind().eval(), (torch.randn(1, 3, 8, 8),), recipe)
    monkeypatch.setattr(WORKER, "run", lambda request, *rest: asked.append(request["work"]) or answer(request, *rest))
    insides = [inspection.zoom(row) for row in _delegates(inspection)]
    assert {*asked} == {"inside"}
    assert [inside.faithful for inside in insides] == [True] * len(insides)
    assert all(inside.first_divergence is None for inside in insides)


def test_a_planted_difference_is_not_called_faithful(executed: Programs, tmp_path: Path) -> None:
    inspection = load_shifted(executed("residual_cnn"), tmp_path, instruction=0, by=0.5)
    inside = inspection.zoom(0)
    assert inside.faithful is False
    assert inside.deviation == pytest.approx(0.5, abs=1e-6)
    assert "run again as it is, without returning inner values" in inside.analysis.digest.notes[0]
    assert inside.analysis.digest.notes[0] in inside.summary()


def test_a_value_that_disappears_in_another_is_not_shown() -> None:
    """A batch norm disappears in the weights of the convolution before it."""
    norm = torch.nn.BatchNorm2d(4)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), norm, torch.nn.ReLU()).eval()
    torch.manual_seed(3)
    for value in (norm.running_mean, norm.running_var, norm.weight.data):
        if value is not None:
            value.uniform_(0.5, 2)
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner

    inspection = etviz.debug(model, (torch.randn(1, 3, 6, 6),), partitioner=[XnnpackPartitioner()])
    inside = inspection.zoom(_delegates(inspection)[0])
    assert inside.faithful is True
    assert list(inside.coverage["status"]) == ["grouped", "compared", "compared"]
    piece = inspection.analysis.zooms.piece(_delegates(inspection)[0])
    hidden = next(iter(expose(piece.graph).owners))
    asked = run_alone(piece, [hidden])
    assert list(asked.left_out) == [hidden]
    assert asked.values == {}
    assert torch.equal(asked.outputs[0], piece.outputs[0])


def test_a_second_zoom_costs_nothing_and_other_rows_are_refused(residual: etviz.Inspection) -> None:
    row = _delegates(residual)[0]
    assert residual.zoom(row) is residual.zoom(residual.gaps.loc[row])
    kernel = residual.gaps.index[residual.gaps["kind"] == "kernel"][0]
    with pytest.raises(UsageError, match="delegate"):
        residual.zoom(kernel)


def test_the_view_gets_the_inner_rows(residual: etviz.Inspection) -> None:
    inspection = residual
    inside = inspection.zoom(_delegates(inspection)[0])
    own = len(inspection.gaps)
    payload, buffers = build_payload(inspection.analysis)
    offset = next(first for first, call, _ in inspection.analysis.rows.parts() if call == (0, 0))
    assert payload["compared"] >= own + len(inside.gaps)
    said = {
        "row": 0,
        "instruction": 0,
        "faithful": True,
        "deviation": 0.0,
        "message": inside.analysis.digest.notes[0],
    }
    assert said in payload["zooms"]
    zoomable = np.frombuffer(buffers[payload["zoomable"]["buffer"]], np.uint8)
    assert len(zoomable) == payload["rows"]
    assert zoomable[0] == 0
    tree = payload["trees"]["program"]
    nodes = np.frombuffer(buffers[tree["row_node"]["buffer"]], np.int32)
    labels = np.frombuffer(buffers[tree["label"]["buffer"]], np.int32)
    shown = [tree["labels"][labels[node]] for node in nodes[offset : offset + len(inside.gaps)]]
    assert [label.split(" · ")[-1] for label in shown] == ["conv2d", "relu", "conv2d_1", "relu_1", "conv2d_2", "add"]
    assert build_tensor(inspection.analysis, offset)[0]["elements"] == inside.tensors(0)[1].numel()
    assert torch.equal(inspection.tensors(offset + 1)[1], inside.tensors(1)[1])
    with pytest.raises(UsageError):
        inspection.tensors(10_000)


def test_what_a_backend_refuses_is_said(executed: Programs) -> None:
    piece = executed("residual_cnn").inspection.analysis.zooms.piece(0)
    graph = replace(piece.graph, backend_id="NoBackend")
    with pytest.raises(BackendRefusedError, match="NoBackend") as caught:
        run_alone(Piece(graph, piece.constants, piece.inputs, piece.outputs))
    assert "lower" in str(caught.value)


def test_a_zoom_can_be_cancelled_and_has_a_time_limit(executed: Programs) -> None:
    piece = executed("residual_cnn").inspection.analysis.zooms.piece(0)
    cancel = threading.Event()
    cancel.set()
    with pytest.raises(ExecutionError, match="cancelled"):
        run_alone(piece, cancel=cancel)
    with pytest.raises(ExecutionError, match="did not end within"):
        run_alone(piece, timeout=0.001)
    with pytest.raises(UsageError, match="timeout"):
        run_alone(piece, timeout=0)
    assert len(run_alone(piece).outputs) == 1, "the next request starts a new process"


def _refusing(bad: set[str]) -> Callable[[Sequence[str]], list[str]]:
    def attempt(names: Sequence[str]) -> list[str]:
        if bad.intersection(names):
            raise RuntimeError(f"no {sorted(bad.intersection(names))[0]}")
        return ["out", *names]

    return attempt


@pytest.mark.parametrize("bad", [set(), {"c"}, {"a", "h"}, set("abcdefgh")])
def test_as_many_values_as_a_backend_gives_are_kept(bad: set[str]) -> None:
    found = widest(_refusing(bad), list("abcdefgh"))
    assert found.names == [name for name in "abcdefgh" if name not in bad]
    assert found.outputs == ["out", *found.names]
    assert set(found.left_out) == bad
    assert all(name in reason for name, reason in found.left_out.items())


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    yield
    assert not [t for t in threading.enumerate() if t.name.startswith("etviz-")]
