"""`etviz.load` with pieces missing or wrong: what can be shown is, the rest is said, and no number is invented."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from torch import nn
from torchao.quantization import Int8DynamicActivationIntxWeightConfig, quantize_
from torchao.quantization.granularity import PerGroup
from torchao.utils import unwrap_tensor_subclass

import etviz
from etviz.artifacts.etdump.etdump import read_etdump
from etviz.errors import UsageError
from etviz.evaluation.noise import Lanes
from tests.programs import FILES, Executed

OPTIONAL = ("etrecord", "debug_buffer", "pte", "record")


@pytest.fixture
def encoder(executed: Callable[[str], Executed]) -> Executed:
    return executed("encoder")


def files(program: Executed, *kinds: str, **changes: Any) -> dict[str, Any]:
    return {kind: program.path(kind) for kind in kinds} | changes


def alone(program: Executed, folder: Path, *kinds: str) -> dict[str, Any]:
    """Copies of some files with no others beside them."""
    return {kind: Path(shutil.copy(program.path(kind), folder / f"copy-{FILES[kind]}")) for kind in kinds}


def test_etdump_alone(encoder: Executed) -> None:
    found = etviz.load(encoder.path("etdump"))
    assert found.gaps.empty
    assert found.outputs.empty
    assert found.time.latency == encoder.inspection.time.latency
    assert len(found.tree) > len(found.time.latency)
    assert "There is no debug buffer" in found.summary()
    assert "debug_buffer=" in found.summary()
    assert "not compared" in found.summary()
    assert found.delegation is None
    assert not found.introduced
    assert found.worst().empty
    for table in ("gaps", "coverage", "outputs"):  # without a row they have the columns and dtypes of those with rows
        assert getattr(found, table).dtypes.to_dict() == getattr(encoder.inspection, table).dtypes.to_dict()


def test_etdump_and_program(encoder: Executed, tmp_path: Path) -> None:
    """Latency, kernels, backends and coverage are there without a reference."""
    found = etviz.load(encoder.path("etdump"), pte=alone(encoder, tmp_path, "pte")["pte"])
    assert found.gaps.empty
    tree = found.tree
    calls = {i: backend for i, backend in zip(tree.instruction, tree.backend, strict=True) if i >= 0}
    expected = encoder.inspection.coverage.set_index("instruction")["backend"]
    assert calls == expected.to_dict()


def test_without_a_debug_buffer_there_is_no_gap(encoder: Executed) -> None:
    found = etviz.load(encoder.path("etdump"), **files(encoder, "etrecord", "pte", "record"))
    assert found.gaps.empty
    assert "There is no debug buffer, so no value can be compared" in found.summary()
    assert found.delegation is not None
    assert found.analysis.digest.level == "unknown"
    assert len(found.tree) == len(encoder.inspection.tree)


def test_without_reference(encoder: Executed, tmp_path: Path) -> None:
    found = etviz.load(
        encoder.path("etdump"), debug_buffer=encoder.path("debug_buffer"), pte=alone(encoder, tmp_path, "pte")["pte"]
    )
    assert set(found.gaps["status"]) == {"not compared"}
    assert found.gaps["runtime_max"].notna().any()
    assert "There is no reference" in found.summary()
    assert "etrecord=" in found.summary()


def test_without_program(encoder: Executed) -> None:
    found = etviz.load(encoder.path("etdump"), **files(encoder, "etrecord", "debug_buffer", "record"))
    assert_equal_gaps(found, encoder.inspection)


def test_record_beside_the_program_is_found(encoder: Executed) -> None:
    found = etviz.load(encoder.path("etdump"), **files(encoder, "etrecord", "debug_buffer", "pte"))
    assert_equal_gaps(found, encoder.inspection)
    assert set(found.gaps["pairing"]) == {"exact"}


def assert_equal_gaps(found: etviz.Inspection, expected: etviz.Inspection) -> None:
    ours, theirs = found.gaps, expected.gaps
    assert ours.equals(theirs)
    assert found.outputs.equals(expected.outputs)


def test_paths_may_be_text(encoder: Executed) -> None:
    given: dict[str, Any] = {kind: str(path) for kind, path in files(encoder, *OPTIONAL).items()}
    assert_equal_gaps(etviz.load(str(encoder.path("etdump")), **given), encoder.inspection)


def test_without_a_record_every_pair_is_right(program: Executed, tmp_path: Path) -> None:
    """From an ETRecord alone fewer values can be paired, but never with another's reference."""
    if not program.path("etrecord").exists():
        pytest.skip("upstream can't save an ETRecord of this program")
    for kinds in (("etrecord", "debug_buffer", "pte"), ("etrecord", "debug_buffer")):
        found = etviz.load(program.path("etdump"), **alone(program, tmp_path, *kinds), inputs=program.inputs)
        exact = program.inspection.gaps.set_index(["instruction", "output"])
        assert len(found.gaps) <= len(exact)
        assert found.outputs["allclose"].tolist() == program.inspection.outputs["allclose"].tolist()
        for index, row in found.gaps.iterrows():
            reference, runtime = found.tensors(index)
            position = next(i for i, key in enumerate(exact.index) if key == (row["instruction"], row["output"]))
            expected, logged = program.inspection.tensors(position)
            assert torch.equal(runtime.nan_to_num(), logged.nan_to_num())
            assert reference.shape == expected.shape
            torch.testing.assert_close(reference, expected, rtol=1e-5, atol=1e-5, equal_nan=True)
        statuses = set(found.coverage["status"])
        assert statuses <= {"compared", "grouped", "not compared"}
        rest = found.coverage[~found.coverage["instruction"].isin(found.gaps["instruction"])]
        assert (rest["reason"] != "").all()


def test_a_wrong_number_of_inputs(encoder: Executed) -> None:
    with pytest.raises(UsageError, match="takes 1 inputs, found 2"):
        etviz.load(encoder.path("etdump"), **files(encoder, *OPTIONAL), inputs=(*encoder.inputs, torch.zeros(1)))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (torch.Tensor.double, "must be float32, found float64"),
        (str, "must be a tensor, found"),
        (torch.Tensor.to_sparse, "must be a dense tensor"),
    ],
)
def test_inputs_of_another_kind(changed: Callable[[Any], Any], words: str, executed: Callable[[str], Executed]) -> None:
    program = executed("plain_cnn")
    with pytest.raises(UsageError, match=words):
        etviz.load(program.path("etdump"), **files(program, *OPTIONAL), inputs=[(changed(program.inputs[0]),)])


@pytest.mark.parametrize("value", [torch.zeros(1, 16, 6), torch.zeros(1, 6, 16, device="meta"), 3.0])
def test_inputs_that_do_not_fit_are_refused_also_where_delegates_logged_others(value: Any, encoder: Executed) -> None:
    with pytest.raises(UsageError, match=r"must .*the run can't have had these inputs"):
        etviz.load(encoder.path("etdump"), **files(encoder, *OPTIONAL), inputs=(value,))


def test_several_executions_are_a_list_of_tuples(executed: Callable[[str], Executed]) -> None:
    program = executed("plain_cnn")
    with pytest.raises(UsageError, match=r"takes 1 inputs, found 2: .*several executions are a list of tuples"):
        etviz.load(program.path("etdump"), **files(program, *OPTIONAL), inputs=[list(program.inputs)] * 2)


def test_inputs_of_another_shape(executed: Callable[[str], Executed]) -> None:
    program = executed("plain_cnn")
    with pytest.raises(UsageError, match=r"\(2, 3, 8, 8\), found \(2, 8, 8, 3\): the run can't have had these inputs"):
        etviz.load(program.path("etdump"), **files(program, *OPTIONAL), inputs=(torch.zeros(2, 8, 8, 3),))


def test_inputs_of_more_executions_than_there_are(encoder: Executed) -> None:
    with pytest.raises(UsageError, match=r"2 tuples.*1 executions"):
        etviz.load(encoder.path("etdump"), **files(encoder, *OPTIONAL), inputs=[encoder.inputs] * 2)


def test_inputs_that_the_run_did_not_have(encoder: Executed) -> None:
    """The encoder's delegates logged what went in, so the gaps are those of the operators all the same."""
    found = etviz.load(encoder.path("etdump"), **files(encoder, *OPTIONAL), inputs=(torch.zeros(1, 6, 16),))
    assert "The run had other inputs than the reference's" in found.summary()
    assert found.gaps.drop(columns="input_index").equals(encoder.inspection.gaps.drop(columns="input_index"))


def test_inputs_that_the_run_did_not_have_and_did_not_log(executed: Callable[[str], Executed]) -> None:
    """Whoever names inputs is believed: then the first operator looks guilty, and the note names both ways."""
    program = executed("plain_cnn")
    found = etviz.load(program.path("etdump"), **files(program, *OPTIONAL), inputs=(torch.zeros(2, 3, 8, 8),))
    assert "they are at fault, or the run had other inputs" in found.summary()
    assert found.diagnosis(look_inside=False)["finding"]["text"].startswith("If the run had these inputs, #0 ")
    assert found.analysis.digest.level != "ok"
    assert found.worst(1)["instruction"].item() == 0
    later = found.gaps[found.gaps["instruction"] > 0]
    assert later["introduced_rmse"].equals(program.inspection.gaps.loc[later.index, "introduced_rmse"])


def test_unknown_method(encoder: Executed) -> None:
    with pytest.raises(UsageError, match=r"no method 'backward'.*forward"):
        etviz.load(encoder.path("etdump"), **files(encoder, *OPTIONAL), method="backward")


def without(source: Path, target: Path, member: str) -> Path:
    """An ETRecord that lacks a member."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for info in old.infolist():
            if info.filename != member:
                new.writestr(info, old.read(info))
    return target


def test_etrecord_without_representative_inputs(encoder: Executed, tmp_path: Path) -> None:
    bare = without(encoder.path("etrecord"), tmp_path / "bare.bin", "representative_inputs")
    found = etviz.load(encoder.path("etdump"), **files(encoder, "debug_buffer", "pte", etrecord=bare))
    assert set(found.gaps["status"]) <= {"not compared"}
    assert "The inputs of the run are not known" in found.summary()
    assert "inputs=" in found.summary()
    again = etviz.load(
        encoder.path("etdump"), **files(encoder, "debug_buffer", "pte", etrecord=bare), inputs=encoder.inputs
    )
    assert_equal_gaps(again, encoder.inspection)


def test_zeros_of_a_run_made_here_are_values() -> None:
    found = etviz.debug(torch.nn.ReLU(), (-torch.rand(2, 3),))
    assert set(found.gaps["status"]) == {"compared"}
    assert "matches the reference" in found.summary()


def test_a_buffer_of_zeros_gives_no_numbers(encoder: Executed, tmp_path: Path) -> None:
    path = tmp_path / "zeros.bin"
    path.write_bytes(bytes(encoder.path("debug_buffer").stat().st_size))
    found = etviz.load(encoder.path("etdump"), **files(encoder, "etrecord", "pte", "record", debug_buffer=path))
    assert found.gaps.empty
    assert "All logged tensors are zero" in found.summary()
    assert found.analysis.digest.level == "unknown"


@pytest.mark.parametrize("name", ["residual_cnn", "counter", "branches"])
def test_introduced_gaps_can_wait(executed: Callable[[str], Executed], name: str) -> None:
    """Without them everything else is the same; asked for later they are what they would have been."""
    program = executed(name)
    paths = {kind: program.path(kind) for kind in ("etrecord", "debug_buffer", "pte")}
    given: dict[str, Any] = {kind: path for kind, path in paths.items() if path.exists()}  # upstream lacks cond's
    found = etviz.load(program.path("etdump"), **given, introduced=False)
    total = [name for name in found.gaps if name in etviz.metrics]
    at_once = etviz.load(program.path("etdump"), **given)
    assert not found.introduced
    assert found.gaps["introduced_rmse"].isna().all()
    pd.testing.assert_frame_equal(found.gaps[total], at_once.gaps[total])
    assert found.analysis.digest.verdict == at_once.analysis.digest.verdict
    found.compute_introduced()
    assert found.introduced
    pd.testing.assert_frame_equal(found.gaps, at_once.gaps)
    pd.testing.assert_frame_equal(found.coverage, at_once.coverage)
    assert str(found.analysis.digest) == str(at_once.analysis.digest)


@pytest.mark.parametrize("name", ["encoder", "residual_cnn", "digits_int8"])
def test_noise_is_the_same_with_and_without_the_record(
    executed: Callable[[str], Executed], name: str, tmp_path: Path
) -> None:
    """Its random numbers follow from the values, not from how a file numbers or orders its operators."""
    program = executed(name)
    kinds = ("etrecord", "debug_buffer", "pte")
    first = etviz.load(program.path("etdump"), **files(program, *kinds, "record"))
    second = etviz.load(program.path("etdump"), **alone(program, tmp_path, *kinds))
    assert set(first.gaps["pairing"]) == {"exact"}
    assert set(second.gaps["pairing"]) == {"derived"}
    compared = ["instruction", "output", "rmse", "noise", "severity", "introduced_noise", "introduced_severity"]
    assert first.gaps["noise"].notna().any()
    pd.testing.assert_frame_equal(first.gaps[compared], second.gaps[compared], check_exact=True)
    pd.testing.assert_frame_equal(first.outputs, second.outputs, check_exact=True)


class Growing(torch.nn.Module):
    """Sixty products, none of which is exact."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for at in range(30):
            x = (x * (1.1 + at / 300)) * (0.9 - at / 900)
        return x


def test_a_bias_that_operators_share_is_no_rounding(tmp_path: Path) -> None:
    """Each operator rounds up, within its own noise; together they are far beyond what rounding explains."""
    torch.manual_seed(5)
    x = torch.rand(1, 500) + 1.0
    sound = etviz.debug(Growing(), (x,), workdir=tmp_path)
    assert float(sound.gaps["introduced_severity"].max()) < 3
    assert bool(sound.outputs["matches"].all())
    block = next(b for b in read_etdump(tmp_path / FILES["etdump"]).blocks if b.name == "Execute")
    data = np.memmap(tmp_path / FILES["debug_buffer"], np.uint8, "r+")
    value = x.double().numpy().ravel()
    factors = [factor for at in range(30) for factor in (1.1 + at / 300, 0.9 - at / 900)]
    offsets = sorted({t.offset for event in block.debug for t in event.tensors})
    for offset, factor in zip(offsets, [*factors, 1.0], strict=True):  # the last one is the program's output
        exact = value * np.float64(np.float32(factor))
        rounded = exact.astype(np.float32)
        value = np.where(rounded < exact, np.nextafter(rounded, np.float32(np.inf)), rounded).astype(np.float64)
        data[offset : offset + 2000].view(np.float32)[:] = value
    data.flush()
    found = etviz.load(tmp_path)
    assert float(found.gaps["introduced_severity"].max()) < 3
    assert float(found.gaps["severity"].iloc[-1]) > 3
    assert float(found.outputs["severity"].max()) > 3


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="open files are counted in /proc")
@pytest.mark.parametrize("introduced", [True, False])
def test_what_is_let_go_is_closed_at_once(encoder: Executed, introduced: bool) -> None:
    """A loop over hundreds of runs must not wait for the cyclic collector: each mapped file is an open one."""
    given = files(encoder, "etrecord", "debug_buffer", "pte", "record")
    counts = []
    gc.collect()
    gc.disable()
    try:
        for _ in range(4):
            found = etviz.load(encoder.path("etdump"), **given, introduced=introduced)
            assert not found.gaps.empty
            assert found.summary()
            counts.append(len(list(Path("/proc/self/fd").iterdir())))
    finally:
        gc.enable()
    assert counts[-1] == counts[1], counts


def test_the_compiler_stays_out(encoder: Executed, tmp_path: Path) -> None:
    """A first load and attribution import neither torch's compiler nor executorch's exporter, which takes longer."""
    given = alone(encoder, tmp_path, "etrecord", "debug_buffer", "pte")
    code = (
        "import sys, etviz\n"
        "found = etviz.load(sys.argv[1], etrecord=sys.argv[2], debug_buffer=sys.argv[3], pte=sys.argv[4])\n"
        "heavy = {'torch._dynamo', 'sympy', 'executorch.exir'}\n"
        "print(len(found.gaps), len(found.attribution()), [*heavy.intersection(sys.modules)])"
    )
    command = [sys.executable, "-c", code, encoder.path("etdump"), *given.values()]
    done = subprocess.run([os.fspath(part) for part in command], capture_output=True, text=True, timeout=120)
    assert done.stdout == f"{len(encoder.inspection.gaps)} {len(encoder.inspection.attribution())} []\n", done.stderr


@pytest.mark.parametrize("given", ["pte", "etrecord"])
def test_grids_that_a_backend_chooses_are_known_before_values_are_perturbed(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the first lanes and those that follow would measure different things."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64, bias=False), nn.ReLU(), nn.Linear(64, 32, bias=False)).eval()
    config = Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int4, weight_granularity=PerGroup(32))  # pyright: ignore[reportAttributeAccessIssue]
    quantize_(model, config)
    model = unwrap_tensor_subclass(model)
    etviz.debug(model, (torch.randn(4, 64),), partitioner=[XnnpackPartitioner()], workdir=tmp_path)
    made, begin = list[tuple[int, int]](), Lanes.__init__

    def note(lanes: Lanes, *args: Any, **kwargs: Any) -> None:
        begin(lanes, *args, **kwargs)
        made.append((lanes.lanes, lanes.number))

    monkeypatch.setattr(Lanes, "__init__", note)
    files = {"pte": {"pte": tmp_path / "model.pte"}, "etrecord": {}}[given]
    dump, buffer = tmp_path / "etdump.etdp", tmp_path / "debug_buffer.bin"
    (tmp_path / "model.etviz").unlink()
    inspection = etviz.load(dump, etrecord=tmp_path / "etrecord.bin", debug_buffer=buffer, **files)
    assert inspection.analysis.digest.level == "ok"
    assert made
    assert all(lanes == number for lanes, number in made)
