"""The quantization split says of every operator how far quantization and how far the backend moved its value.

Checked against plain torch: the float model and the quantized one, each run node by node with `torch.fx`, and the
runtime's logged values; numbers from NumPy in float64.
"""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import pytest
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import XNNPACKQuantizer, get_symmetric_quantization_config
from executorch.devtools.etrecord import parse_etrecord
from torch import Tensor, fx, nn
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

import etviz
from etviz.errors import ArtifactError, UsageError
from etviz.view.payload.program_payload import build_payload
from etviz.view.payload.tensor import build_tensor
from tests.oracles import Recorder
from tests.programs import FILES, Executed

NUMBERS = ["quantization_rmse", "quantization_sqnr_db", "error_steps", "saturated"]


class Net(nn.Module):
    """A folded and a kept batch norm, an activation in place, a residual, portable operators between delegates."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.folded = nn.BatchNorm2d(8)
        self.act = nn.ReLU(inplace=True)
        self.second = nn.Conv2d(8, 8, 3, padding=1)
        self.kept = nn.BatchNorm2d(8)
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 5)
        for norm in (self.folded, self.kept):
            norm.load_state_dict(
                norm.state_dict() | {"running_mean": torch.randn(8), "running_var": torch.rand(8) + 0.5}
            )
            nn.init.uniform_(norm.weight, 0.5, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.folded(self.stem(x)))
        x = x + torch.relu(self.second(x))
        x = torch.cumsum(self.kept(x), -1).mean((2, 3))
        return self.head(self.norm(x)) * 0.5


@dataclass(frozen=True)
class Split:
    """A quantized program that was run, and its values by plain torch."""

    inspection: etviz.Inspection
    folder: Path
    floats: dict[str, Any]
    quantized: dict[str, Any]
    graph: fx.Graph


def make(folder: Path, config: dict[str, Any], **options: Any) -> Split:
    """Quantize by hand, and give `etviz.debug` the float model as the reference."""
    torch.manual_seed(0)
    model = Net().eval()
    inputs = (3 * torch.randn(1, 3, 8, 8),)
    exported = torch.export.export(model, inputs)
    quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(**config))
    prepared = prepare_pt2e(exported.module(), quantizer)
    for _ in range(4):
        prepared(torch.randn(1, 3, 8, 8))
    # torchao tries 96 patterns of training wherever a batch norm is left, for twenty seconds; nothing was trained here
    with mock.patch("torchao.quantization.pt2e.quantize_pt2e._fold_conv_bn_qat", lambda module: module):
        converted = convert_pt2e(prepared)
    with torch.no_grad():
        floats, quantized = Recorder(torch.export.export(model, inputs).module()), Recorder(converted)
        floats.run(*inputs)
        quantized.run(*inputs)
    program = torch.export.export(converted, inputs)
    inspection = etviz.debug(program, inputs, reference=model, workdir=folder, **options)
    return Split(inspection, folder, floats.values, quantized.values, converted.graph)


@pytest.fixture(scope="module")
def portable(tmp_path_factory: pytest.TempPathFactory) -> Split:
    """Every operator is a kernel of its own; the inputs go beyond what was calibrated."""
    return make(tmp_path_factory.mktemp("portable"), {"is_per_channel": True})


@pytest.fixture(scope="module")
def delegated(tmp_path_factory: pytest.TempPathFactory) -> Split:
    """Linear layers with dynamic quantization on XNNPACK."""
    config = {"is_per_channel": True, "is_dynamic": True}
    return make(tmp_path_factory.mktemp("dynamic"), config, partitioner=[XnnpackPartitioner()])


def rmse(a: Tensor, b: Tensor) -> float:
    return float(np.sqrt(np.mean((a.double().numpy() - b.double().numpy()) ** 2)))


def test_ladder(portable: Split) -> None:
    """Float to quantized is what the split measures; from there on only the runtime's rounding is left."""
    ladder, split = portable.inspection.ladder(), portable.inspection.quantization().set_index("op")
    assert list(ladder.loc[ladder["operator"] == "relu", "stage"]) == ["quantized", "edge", "lowered", "runtime"]
    found = ladder[(ladder["stage"] == "quantized") & (ladder["status"] != "no partner")].set_index("operator")
    both = [op for op in split.index if op in found.index and split.at[op, "status"] != "no partner"]
    assert len(both) > 3
    np.testing.assert_allclose(found.loc[both, "rmse"], split.loc[both, "quantization_rmse"], rtol=1e-12)
    assert set(ladder.loc[ladder["stage"].isin(["edge", "lowered"]), "status"]) <= {"same", "rounding", "no partner"}
    ran = ladder[(ladder["stage"] == "runtime") & ladder["rmse"].notna()].set_index("operator")
    both = [op for op in both if op in ran.index and split.at[op, "row"] >= 0]
    assert len(both) > 3
    np.testing.assert_allclose(ran.loc[both, "rmse"], split.loc[both, "backend_rmse"], rtol=1e-6, atol=1e-9)
    final = ladder[ladder["operator"] == ""]
    outputs = portable.inspection.outputs
    assert final.loc[final["stage"] == "runtime", "rmse"].iloc[0] == pytest.approx(outputs["rmse"].iloc[0])


def users(graph: fx.Graph, name: str, kind: str) -> list[fx.Node]:
    node = next(node for node in graph.nodes if node.name == name)
    return [user for user in node.users if str(user.target).startswith(f"quantized_decomposed.{kind}")]


FOLDED = {"conv2d": "batch_norm"}


def expected(split: Split, op: str) -> dict[str, float]:
    """The numbers of one operator from the plain runs."""
    floats, value = split.floats[FOLDED.get(op, op)], split.quantized[op]
    quantizes = users(split.graph, op, "quantize_per_tensor.default")
    if not quantizes:
        found = rmse(floats, value)
        return {"quantization_rmse": found, "quantization_sqnr_db": decibel(floats, found)}
    arguments: Any = quantizes[0].args
    _, scale, zero, low, high, _ = arguments
    ints = split.quantized[quantizes[0].name].double().numpy()
    found = rmse(floats, torch.tensor((ints - zero) * scale))
    r = floats.double().numpy()
    cut = ((ints == low) & (r < (low - zero - 0.5) * scale)) | ((ints == high) & (r > (high - zero + 0.5) * scale))
    return {
        "quantization_rmse": found,
        "quantization_sqnr_db": decibel(floats, found),
        "error_steps": found / scale,
        "saturated": cut.mean(),
    }


def decibel(signal: Tensor, error: float) -> float:
    return 10 * np.log10(np.mean(signal.double().numpy() ** 2) / error**2)


def test_every_operator_as_plain_torch_computes_it(portable: Split) -> None:
    frame = portable.inspection.quantization().set_index("op")
    compared = frame[frame["status"] != "no partner"]
    names = ["conv2d", "relu_", "conv2d_1", "relu", "add", "batch_norm_1", "cumsum", "mean", "layer_norm", "linear"]
    assert compared.index.tolist() == [*names, "mul"]
    for row in compared.reset_index().to_dict("records"):
        wanted = expected(portable, row["op"])
        for name in NUMBERS:
            if name not in wanted:
                assert np.isnan(row[name])
            else:
                assert row[name] == pytest.approx(wanted[name], rel=1e-4, abs=1e-6), (row["op"], name)


def test_what_the_calibration_did_not_see_is_saturated(portable: Split) -> None:
    frame = portable.inspection.quantization().set_index("op")
    assert frame.loc["relu_", "saturated"] > 0.02
    assert frame.loc["relu_", "error_steps"] > 1 / 12**0.5
    assert frame["saturated"].dropna().between(0, 1).all()


def test_backend_and_total_are_those_of_the_logged_values(portable: Split) -> None:
    """The row of each operator is where it is on its grid; its runtime value is taken from there."""
    frame = portable.inspection.quantization()
    frame = frame[frame["row"] >= 0]
    assert len(frame) == 11
    ops, instructions = (portable.inspection.gaps[name].tolist() for name in ("op", "instruction"))
    for row in frame.to_dict("records"):
        runtime = portable.inspection.tensors(row["row"])[1]
        if not np.isnan(row["scale"]):
            assert ops[row["row"]] == "quantized_decomposed::quantize_per_tensor.out"
            runtime = (runtime.double() - row["zero_point"]) * row["scale"]
        op = str(row["op"])
        floats = portable.floats[FOLDED.get(op, op)]
        assert row["total_rmse"] == pytest.approx(rmse(floats, runtime), rel=1e-5, abs=1e-6), row["op"]
        assert row["backend_rmse"] < 1e-5
        assert row["instruction"] == instructions[row["row"]]


def test_a_folded_norm_has_no_partner_and_is_said_so(portable: Split) -> None:
    frame = portable.inspection.quantization().set_index("op")
    assert frame.loc["batch_norm", "status"] == "no partner"
    assert frame.loc["batch_norm", "reason"] == "batch norm was folded into the convolution conv2d: no partner"
    assert np.isnan(frame.loc["batch_norm", "quantization_rmse"])
    assert frame.loc["batch_norm", "row"] == -1
    assert "batch_norm of the float model" in frame.loc["conv2d", "reason"]


def test_weights_against_what_their_integers_stand_for(portable: Split) -> None:
    torch.manual_seed(0)
    model = Net().eval()
    frame = portable.inspection.quantization().set_index("op")
    assert frame.loc[["conv2d", "conv2d_1", "linear"], "weight"].unique().tolist() == ["int8 per channel, axis 0"]
    assert (frame["weight"] != "").sum() == 3
    variance: Any = model.folded.running_var
    gamma = model.folded.weight / torch.sqrt(variance + model.folded.eps)
    weights = {"conv2d": model.stem.weight * gamma[:, None, None, None], "linear": model.head.weight}
    for op, weight in weights.items():
        flat = weight.detach().double().flatten(1).numpy()
        step = np.abs(flat).max(1, keepdims=True) / 127  # symmetric, −127 … 127 (XNNPACK's own choice)
        error = np.round(flat / step) * step - flat
        assert frame.loc[op, "weight_rmse"] == pytest.approx(np.sqrt(np.mean(error**2)), rel=0.02)


def test_dynamic_quantization_joins_by_name(delegated: Split) -> None:
    """Scales are chosen while it runs; what is inside of a delegate has no runtime value."""
    frame = delegated.inspection.quantization().set_index("op")
    for op in ("linear", "cumsum", "mean"):
        found = rmse(delegated.floats[op], delegated.quantized[op])
        assert frame.loc[op, "quantization_rmse"] == pytest.approx(found, rel=1e-4, abs=1e-6)
    assert frame.loc["linear", "weight"] == "int8 per channel, axis 0"
    assert frame.loc["linear", "quantization_rmse"] > 1e-4
    grid: Any = frame.loc["layer_norm"]
    value: Tensor = delegated.floats["layer_norm"]
    assert grid["scale"] == pytest.approx(float(value.max() - value.min()) / 255, rel=0.01)
    assert 0.1 < grid["error_steps"] < 1


def test_debug_keeps_the_float_model_by_itself(executed: Callable[[str], Executed]) -> None:
    """Quantized by `etviz.debug`, in delegates: inner operators are known, only outputs have a runtime value."""
    program = executed("digits_int8")
    frame = etviz.load(
        program.path("etdump"),
        **{kind: program.path(kind) for kind in ("etrecord", "debug_buffer", "pte")},  # type: ignore[arg-type]
    ).quantization()
    kept = pd.read_csv(io.StringIO(program.told("quantization")))
    numbers = ["quantization_rmse", "quantization_sqnr_db"]
    np.testing.assert_allclose(frame[numbers], kept[numbers], rtol=1e-4, atol=1e-6)
    assert frame["quantization_rmse"].notna().any()
    assert (frame["status"] == "no runtime value").any()
    logged = frame[frame["row"] >= 0]
    assert len(logged) >= 1
    inner = frame[frame["status"] == "no runtime value"]
    assert inner["backend_rmse"].isna().all()
    assert inner["quantization_rmse"].notna().all()
    assert inner["reason"].str.contains("zoom into it").all()
    with torch.no_grad():
        output = program.model(*program.inputs)
    last = logged.iloc[-1]
    runtime = program.inspection.tensors(last["row"])[1]
    assert last["total_rmse"] == pytest.approx(rmse(output, runtime), rel=1e-4)


def test_the_split_from_files_alone_is_that_of_the_record(portable: Split, tmp_path: Path) -> None:
    """With the float program in the ETRecord; of two it could be either, and none is said to be missing."""
    folder, inputs = portable.folder, (torch.zeros(1, 3, 8, 8),)
    torch.manual_seed(0)
    floating = torch.export.export(Net().eval(), inputs).run_decompositions({})

    def load(*names: str) -> etviz.Inspection:
        etrecord = parse_etrecord(str(folder / FILES["etrecord"]))
        etrecord.add_extra_export_modules(dict.fromkeys(names, floating))
        etrecord.save(str(tmp_path / "etrecord.bin"))
        pte = shutil.copy(folder / FILES["pte"], tmp_path / "alone.pte")
        log: dict[str, Any] = {"etrecord": tmp_path / "etrecord.bin", "debug_buffer": folder / FILES["debug_buffer"]}
        return etviz.load(folder / FILES["etdump"], pte=pte, **log)

    frame, expected = load("float").quantization(), portable.inspection.quantization()
    assert list(frame["op"]) == list(expected["op"])
    assert frame["backend_rmse"].notna().sum() > 3
    for name in ("quantization_rmse", "backend_rmse", "total_rmse", "saturated"):
        np.testing.assert_allclose(frame[name], expected[name], rtol=1e-4, atol=1e-7)
    own = frame["op"] != "conv2d"  # it took a batch norm in, which is made of other operators there
    np.testing.assert_allclose(frame["weight_rmse"][own], expected["weight_rmse"][own], rtol=1e-4)
    for names in ((), ("float", "other")):
        with pytest.raises(UsageError, match="add_extra_export_modules"):
            load(*names).quantization()


def test_without_a_float_model(executed: Callable[[str], Executed]) -> None:
    inspection = executed("plain_cnn").inspection
    assert not inspection.analysis.quantization.known
    with pytest.raises(UsageError, match="quantizer= or reference="):
        inspection.quantization()
    payload, _ = build_payload(inspection.analysis)
    assert not [column for column in payload["columns"] if column["group"] == "quantization"]


def test_the_view_has_columns_and_a_third_histogram(portable: Split) -> None:
    inspection = portable.inspection
    payload, buffers = build_payload(inspection.analysis)
    columns = {column["name"]: column for column in payload["columns"] if column["group"] == "quantization"}
    frame = inspection.quantization()
    frame = frame[frame["row"] >= 0]
    for name in ("quantization_rmse", "backend_sqnr_db", "error_steps", "saturated"):
        values = np.frombuffer(buffers[columns[name]["values"]["buffer"]], "<f8")
        np.testing.assert_array_equal(values[frame["row"]], frame[name])
    row: Any = frame.set_index("op").loc["relu_"]
    answer, data = build_tensor(inspection.analysis, int(row["row"]))
    found = answer["quantization"]
    assert (found["low"], found["high"]) == (row["qmin"], row["qmax"]) == (-128, 127)
    counts = np.frombuffer(data[found["float"]["buffer"]], found["float"]["dtype"])
    edges = np.frombuffer(data[answer["edges"]["buffer"]], "<f8")
    assert counts.sum() == answer["elements"]
    assert counts[edges[:-1] > 127.5].sum() / counts.sum() == pytest.approx(row["saturated"], abs=0.03)
    plain, _ = build_tensor(inspection.analysis, 0)
    assert plain["quantization"] is None


def test_damaged_weights_of_the_float_model(portable: Split, tmp_path: Path) -> None:
    content = bytearray((portable.folder / FILES["record"]).read_bytes())
    content[content.index(b"PK\x01\x02") - 50] ^= 0xFF  # the last weight, before the table of members
    (tmp_path / "model.etviz").write_bytes(content)
    found = etviz.load(
        portable.folder / FILES["etdump"],
        etrecord=portable.folder / FILES["etrecord"],
        debug_buffer=portable.folder / FILES["debug_buffer"],
        record=tmp_path / "model.etviz",
    )
    with pytest.raises(ArtifactError, match="checksum"):
        found.quantization()
    payload, _ = build_payload(found.analysis)
    assert any("checksum" in note for note in payload["summary"]["notes"])
