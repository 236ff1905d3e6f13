"""Programs for Arm's NPUs run in the TOSA reference model, operator by operator."""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

import etviz
from etviz.artifacts.etdump.etdump import read_etdump
from etviz.artifacts.program.program import read_program
from etviz.artifacts.program.tosa_graph import is_tosa, read_tosa, returning
from etviz.artifacts.record.record_file import read_record
from etviz.errors import ArtifactError, EtvizError, ExecutionError, UsageError
from etviz.graph.exposure import expose
from etviz.pipeline.emulation import emulate
from etviz.pipeline.tosa_values import Places
from etviz.upstream.tosa import run_reference_model
from tests.vendors import models
from tests.vendors.plants import Plant, executed, planted, plants

KINDS = ("tosa", "tosa-int8")
NAMES = [
    pytest.param(kind, name, marks=() if name in ("cnn", "residual") else pytest.mark.slow)
    for kind in KINDS
    for name in models.MODELS
]
"""All correct programs; `make test` runs two of them."""


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], tuple[Path, etviz.Inspection]]:
    """The emulated run of a model by a recipe, once for the session."""

    @cache
    def once(kind: str, name: str) -> tuple[Path, etviz.Inspection]:
        folder = tmp_path_factory.mktemp(f"{kind}-{name}")
        model, inputs = (models.MODELS | models.WRONG)[name]()
        recipe = etviz.recipe(kind)
        if recipe.quantizer is not None:
            recipe = etviz.recipe(kind, calibration=models.calibration(inputs))
        return folder, etviz.debug(model, inputs, recipe, runner="emulated", workdir=folder)

    return once


def delegates(inspection: etviz.Inspection) -> Iterable[Any]:
    rows = inspection.gaps[inspection.gaps["kind"] == "delegate"]
    return rows.drop_duplicates("instruction").index


def not_compared(inside: etviz.Inspection) -> pd.DataFrame:
    """Operators with a value of their own that were not compared: conversions and constants have none."""
    table = inside.coverage
    there = ~table["op"].str.contains("dequantize") & ~table["reason"].str.contains("from constants|copies its input")
    return table[there & ~table["status"].isin(["compared", "grouped"])]


@pytest.mark.parametrize(("kind", "name"), NAMES)
def test_a_correct_program_has_no_culprit(kind: str, name: str, run: Any) -> None:
    _, inspection = run(kind, name)
    assert "First divergence: none" in str(inspection.summary())
    calls = inspection.gaps[inspection.gaps["kind"] == "delegate"]
    assert len(calls)
    assert calls["reason"].str.contains("emulated: computed by the TOSA reference model").all()


@pytest.mark.parametrize(("kind", "name"), NAMES)
def test_every_operator_inside_is_compared(kind: str, name: str, run: Any) -> None:
    _, inspection = run(kind, name)
    for row in delegates(inspection):
        inside = inspection.zoom(row)
        assert inside.faithful is True
        assert not_compared(inside).empty
        assert "First divergence: none" in str(inside.summary())


@pytest.mark.parametrize("kind", KINDS)
def test_the_outputs_are_those_of_the_model(kind: str, run: Any) -> None:
    _, inspection = run(kind, "cnn")
    model, inputs = models.MODELS["cnn"]()
    _, runtime = inspection.tensors(len(inspection.gaps) - 1)
    expected = model(*inputs)
    tolerance = 1e-6 if kind == "tosa" else 0.02  # a few steps of the grid of probabilities
    torch.testing.assert_close(runtime.float(), expected, atol=tolerance, rtol=0)


def test_inner_values_are_what_the_reference_model_prints(run: Any) -> None:
    """By hand: the convolution's tensor of the TOSA graph, in NCHW, against torch's own convolution."""
    folder, _ = run("tosa", "cnn")
    model, (x,) = models.MODELS["cnn"]()
    blob = bytes(read_program(folder / "model.pte").payload("forward", 0) or b"")
    (found,) = run_reference_model(returning(blob, ["tosa_conv2d_default"]), [x.numpy()])
    expected = model.norm(model.first(x)).detach().permute(0, 2, 3, 1).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("target", ["ethos-u55", "ethos-u85"])
def test_ethos_u_is_opened_by_the_graph_in_the_record(target: str, run: Any) -> None:
    pytest.importorskip("ethosu.vela")
    folder, inspection = run(target, "cnn")
    payload = read_program(folder / "model.pte").payload("forward", 1)
    assert payload is not None
    assert not is_tosa(payload)
    for row in delegates(inspection):
        inside = inspection.zoom(row)
        assert inside.faithful is True
        assert not_compared(inside).empty
    assert "First divergence: none" in str(inspection.summary())


def test_a_relu_that_the_lowering_drops_is_found(run: Any) -> None:
    """Arm's quantizer gives the inputs of a concatenation one grid; a ReLU before it then clamps nothing."""
    _, inspection = run("tosa-int8", "relu_before_cat")
    (row,) = delegates(inspection)
    inside = inspection.zoom(row)
    worst = inside.gaps["introduced_severity"].idxmax()
    assert inside.gaps.loc[worst, "introduced_severity"] > 10
    assert "conv2d, relu (quantized)" in inside.gaps.loc[worst, "name"]


FAULTY = [("tosa-int8", "cnn"), ("tosa-int8", "residual"), ("tosa", "cnn")]
EACH = 10
"""Number of faults that are planted in each of these programs."""


def test_planted_faults_are_named(run: Any, tmp_path: Path) -> None:
    found: dict[str, bool] = {}
    for kind, name in FAULTY:
        folder, _ = run(kind, name)
        graph = read_record(folder / "model.etviz").graphs["forward"]
        calls = [node for node in graph.nodes if node.target == "delegate"]
        every = [(call.instruction, plant) for call in calls for plant in _plants(folder, call.instruction)]
        for instruction, plant in every[:: max(len(every) // EACH, 1)]:
            key = f"{kind} {name} {instruction} {plant.kind} {plant.output}"
            found[key] = _is_named(folder, tmp_path / str(len(found)), instruction, plant, models.MODELS[name]()[1])
    missed = [key for key, named in found.items() if not named]
    assert len(found) >= 20
    assert len(missed) <= 0.05 * len(found), missed


def _plants(folder: Path, instruction: int) -> list[Plant]:
    return list(plants(bytes(read_program(folder / "model.pte").payload("forward", instruction) or b"")))


def _is_named(folder: Path, to: Path, instruction: int, plant: Plant, inputs: tuple[Tensor, ...]) -> bool:
    """True if the operator with the largest introduced error is the one that the faulty TOSA operator comes from."""
    pte, record = planted(folder, to, instruction, plant)
    inspection = executed(pte, record, folder / "etrecord.bin", inputs)
    calls = inspection.gaps[inspection.gaps["instruction"] == instruction]
    inside = inspection.zoom(calls.index[0])
    table: Any = inside.gaps
    worst = table.loc[table["introduced_severity"].idxmax()]
    node = _graph(record, instruction).nodes[int(worst["instruction"])]
    return node.name in _holders(record, instruction, pte, plant.output)


def _graph(record: Path, instruction: int) -> Any:
    graph = read_record(record).graphs["forward"]
    return next(graph.inside(node) for node in graph.nodes if node.instruction == instruction)


def _holders(record: Path, instruction: int, pte: Path, output: str) -> set[str]:
    """The operators whose row holds the value of a TOSA operator."""
    graph, known = _graph(record, instruction), read_record(record)
    specification = known.specification("forward", graph.name)
    assert specification is not None
    blob = bytes(read_program(pte).payload("forward", instruction) or b"")
    places, exposure = Places(graph, read_tosa(blob), specification.origins), expose(graph)
    origin = specification.origins.get(output) or next(n for n, t in places.tensors.items() if t == output)
    owner = exposure.owners.get(origin, origin)
    return {origin, owner, places.parts.get(owner, owner)}


def test_shares_inside_are_what_each_operator_causes(run: Any) -> None:
    """Against the network written down in plain torch: what an operator added is put in there, in float64."""
    _, inspection = run("tosa", "cnn")
    (row,) = delegates(inspection)
    inside = inspection.zoom(row)
    net, (x,) = models.MODELS["cnn"]()
    net = net.double()
    steps: list[Callable[..., Tensor]] = [
        *(lambda x: net.norm(net.first(x)), torch.relu, net.second, nn.functional.relu6, torch.add, net.third),
        *(lambda x: x.mean((2, 3)), net.last, lambda x: torch.softmax(x, -1)),
    ]
    ran = [inside.tensors(at)[1].double() for at in range(len(inside.gaps))]
    assert len(ran) == len(steps)
    exact = x.double()

    def final(faulty: int = -1) -> Tensor:
        values: list[Tensor] = []
        for at, step in enumerate(steps):
            pair = [(values[1], ran[1]), (values[3], ran[3])] if step is torch.add else [(exact, exact)]
            pair = [(values[-1], ran[at - 1])] if at and step is not torch.add else pair
            given, seen = zip(*pair, strict=True)
            values.append(step(*given) + (ran[at] - step(*seen) if at == faulty else 0.0))
        return values[-1]

    with torch.no_grad():
        reference = final()
        error = ran[-1] - reference
        found = inside.attribution()
        assert found.attrs["sum"] == pytest.approx(1.0, abs=1e-4)
        assert found.attrs["error"] == pytest.approx(float(error.norm()), rel=1e-6)
        for at in range(len(steps)):
            effect = float(((final(at) - reference) * error).sum() / (error * error).sum())
            assert found.loc[at, "share"] == pytest.approx(effect, abs=1e-4), at


# ---- bad input ----


def test_another_version_is_named(run: Any, tmp_path: Path) -> None:
    folder, _ = run("tosa", "cnn")
    with pytest.raises(ExecutionError, match=r"the delegate holds TOSA 7\.0\.0; etviz reads TOSA 1\.x"):
        emulate(*_changed(folder, tmp_path, _as_version_7), [list(models.MODELS["cnn"]()[1])], workdir=tmp_path)


def _as_version_7(blob: bytearray) -> None:
    root = struct.unpack_from("<I", blob, 0)[0]
    vtable = root - struct.unpack_from("<i", blob, root)[0]
    field = root + struct.unpack_from("<H", blob, vtable + 4)[0]
    version = field + struct.unpack_from("<I", blob, field)[0]
    own = version - struct.unpack_from("<i", blob, version)[0]
    struct.pack_into("<i", blob, version + struct.unpack_from("<H", blob, own + 4)[0], 7)


def _changed(folder: Path, to: Path, change: Callable[[bytearray], None]) -> tuple[Path, Path]:
    blob = bytes(read_program(folder / "model.pte").payload("forward", 0) or b"")

    def whole(values: np.ndarray[Any, Any]) -> None:
        content = bytearray(values.tobytes())
        change(content)
        values[:] = np.frombuffer(bytes(content), np.uint8)

    return planted(folder, to, 0, Plant("whole", "", 0, np.uint8, len(blob), whole))


def test_a_graph_that_the_reference_model_refuses_is_named(run: Any, tmp_path: Path) -> None:
    folder, _ = run("tosa", "cnn")

    def damage(blob: bytearray) -> None:
        blob[len(blob) // 2 :] = bytes(len(blob) - len(blob) // 2)

    with pytest.raises(ExecutionError, match=r"TOSA reference model can't run the delegate call 0: .*damaged"):
        emulate(*_changed(folder, tmp_path, damage), [list(models.MODELS["cnn"]()[1])], workdir=tmp_path)


def test_damaged_graphs_end_in_errors_that_say_so(run: Any) -> None:
    folder, _ = run("tosa", "cnn")
    blob = bytes(read_program(folder / "model.pte").payload("forward", 0) or b"")
    random = np.random.default_rng(0)
    for _ in range(400):
        content = bytearray(blob)
        for at in random.integers(0, len(content), 8):
            content[at] = random.integers(0, 256)
        try:
            graph = read_tosa(bytes(content))
            returning(bytes(content), [name for operator in graph.operators for name in operator.outputs])
        except (ArtifactError, UsageError):
            pass


def test_a_record_without_the_graph_says_what_is_missing(run: Any, tmp_path: Path) -> None:
    import dataclasses

    from etviz.artifacts.record.record_file import SPECIFICATIONS, write_record

    folder, _ = run("tosa", "cnn")
    known = read_record(folder / "model.etviz")
    bare = dataclasses.replace(known, extra={k: v for k, v in known.extra.items() if k != SPECIFICATIONS})
    write_record(bare, tmp_path / "model.etviz")
    again = etviz.load(folder / "etdump.etdp", debug_buffer=folder / "debug_buffer.bin", pte=folder / "model.pte",
                       record=tmp_path / "model.etviz", etrecord=folder / "etrecord.bin")  # fmt: skip
    inside = again.zoom(next(iter(delegates(again))))
    assert inside.faithful is True
    assert "the record does not name the operators of the TOSA graph" in "".join(inside.coverage["reason"])


def test_dynamic_shapes_are_refused_with_the_reason(tmp_path: Path) -> None:
    class Net(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.relu(x) + x

    x = torch.randn(3, 4)
    program = torch.export.export(Net(), (x,), dynamic_shapes=({0: torch.export.Dim("n", min=2, max=8)},))
    with pytest.raises(EtvizError, match=r"size|shape"):
        etviz.debug(program, (x,), "tosa", runner="emulated", workdir=tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_values_of_16_bits_are_refused_with_the_reason(dtype: torch.dtype, tmp_path: Path) -> None:
    model, (x,) = models.MODELS["mlp"]()
    with pytest.raises(UsageError, match=r"portable instructions have float16 or bfloat16 values; use float32"):
        etviz.debug(model.to(dtype), (x.to(dtype),), "tosa", runner="emulated", workdir=tmp_path)


def test_a_sweep_compares_vendors(tmp_path: Path) -> None:
    model, inputs = models.MODELS["cnn"]()
    known = ("xnnpack", "tosa", "tosa-int8")
    recipes = {
        name: etviz.recipe(name, calibration=models.calibration(inputs) if "int8" in name else None) for name in known
    }
    table: Any = etviz.sweep(model, recipes, [inputs], folder=tmp_path, latency=False).table
    assert table["status"].tolist() == ["measured"] * 3
    assert table["reason"].tolist() == ["", *["emulated by the TOSA reference model, so without latency"] * 2]
    assert (table["rmse"] < [1e-6, 1e-6, 0.01]).all()
    assert set(table["size_bytes"]) <= {path.stat().st_size for path in tmp_path.glob("**/*.pte")}


# ---- from the device ----


def test_a_board_that_differs_from_the_specification_is_told(run: Any, tmp_path: Path) -> None:
    """The files of a board, as base64 in the log of its UART: a delegate's output is off by one step in one element."""
    pytest.importorskip("ethosu.vela")
    folder, inspection = run("ethos-u55", "cnn")
    call = next(iter(delegates(inspection)))
    instruction = int(inspection.gaps["instruction"][call])
    block = read_etdump(folder / "etdump.etdp").blocks[-1]
    output = [event for event in block.debug if event.instruction_id == instruction and event.tensors][-1].tensors[0]
    etdump = (folder / "etdump.etdp").read_bytes().replace(b'"emulated"', b'"simulate"')
    buffer = bytearray((folder / "debug_buffer.bin").read_bytes())
    for name, change in (("same", 0), ("off", 1)):
        buffer[output.offset] ^= change
        log = tmp_path / f"{name}.log"
        log.write_text(_uart(etdump, bytes(buffer)), encoding="utf-8")
        board = etviz.load(
            log, pte=folder / "model.pte", record=folder / "model.etviz", etrecord=folder / "etrecord.bin"
        )
        assert "Emulated" not in str(board.summary())
        row = board.gaps.index[board.gaps["instruction"] == instruction][0]
        inside = board.zoom(row)
        assert inside.faithful is (change == 0)
        told = "The device differs from the specification: its output is off by up to 1 from that of the TOSA reference"
        assert (told in str(inside.summary())) is bool(change)
        assert ("The specification leaves integers no freedom" in str(inside.summary())) is bool(change)


def _uart(etdump: bytes, buffer: bytes) -> str:
    """What Arm's runner prints where it has no file system."""
    return "".join(
        f'I [executorch] done\n#---\necho "{base64.b64encode(content).decode()}" | base64 -d >{name}\n'
        for name, content in (("etdump.bin", etdump), ("debug_buffer.bin", buffer))
    )
