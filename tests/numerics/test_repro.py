"""The repro capsule: a folder that shows a row's introduced gap in a process that knows nothing of etviz."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from etviz.errors import UsageError
from tests.programs import Executed

Programs = Callable[[str], Executed]
_LINE = re.compile(r"output (\d+): rmse (\S+), max \|error\| (\S+), NaN or Inf on one side only: (\d+)")


def _run(folder: Path) -> dict[int, tuple[float, float, int]]:
    """Run the script elsewhere, without etviz on the path."""
    code = "import runpy, sys; runpy.run_path(sys.argv[1]); assert not any(m.startswith('etviz') for m in sys.modules)"
    command = [sys.executable, "-I", "-W", "ignore", "-c", code, str(folder / "repro.py")]
    done = subprocess.run(command, cwd=os.sep, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return {int(k): (float(r), float(m), int(n)) for k, r, m, n in _LINE.findall(done.stdout)}


def test_a_delegate_alone_prints_the_gap_of_its_row(executed: Programs, tmp_path: Path) -> None:
    inspection = executed("many_outputs").inspection
    rows = inspection.gaps[inspection.gaps["kind"] == "delegate"]
    row = rows[rows["instruction"] == rows["instruction"].iloc[0]].index
    folder = inspection.repro(row[0], tmp_path / "capsule")
    assert sorted(path.name for path in folder.iterdir()) == [
        "README.md",
        "expected.safetensors",
        "inputs.safetensors",
        "model.pte",
        "repro.json",
        "repro.py",
        "runtime.safetensors",
    ]
    printed = _run(folder)
    assert sorted(printed) == list(range(len(row)))
    for index in row:
        gap = inspection.gaps.loc[index]
        rmse, largest, odd = printed[int(gap["output"])]
        assert rmse == pytest.approx(gap["introduced_rmse"], rel=1e-3, abs=1e-12)
        assert largest == pytest.approx(gap["introduced_max_abs"], rel=1e-3, abs=1e-12)
        assert odd == 0
    assert len((folder / "repro.py").read_text().splitlines()) <= 25
    assert str(tmp_path) not in (folder / "README.md").read_text()


@pytest.mark.parametrize("op", ["aten::native_layer_norm.out", "aten::cumsum.out"])
def test_a_portable_operator_alone_gives_what_it_gave_in_the_program(
    executed: Programs, tmp_path: Path, op: str
) -> None:
    inspection = executed("residual_cnn").inspection
    gaps = inspection.gaps
    row = gaps.index[gaps["op"] == op][0]
    folder = inspection.repro(row, tmp_path / "capsule")
    runtime, expected = (load_file(folder / f"{name}.safetensors") for name in ("runtime", "expected"))
    error = (runtime["output_0"].double() - expected["output_0"].double()).square().mean().sqrt().item()
    assert error == pytest.approx(gaps.loc[row, "introduced_rmse"], rel=1e-3)
    assert "it gives the outputs" in (folder / "README.md").read_text()


def test_an_operator_inside_a_delegate_can_be_taken_out(executed: Programs, tmp_path: Path) -> None:
    inside = executed("residual_cnn").load().zoom(0)
    row = inside.gaps.index[inside.gaps["reference_ops"] == "conv2d_1"][0]
    folder = inside.repro(row, tmp_path / "capsule")
    assert "conv2d_1 on XnnpackBackend" in (folder / "README.md").read_text()
    assert list(load_file(folder / "inputs.safetensors")) == ["input_0"], "weights are in the program"


@pytest.mark.parametrize("op", ["aten::cumsum.out", "delegate"])
def test_names_of_a_record_are_no_code(executed: Programs, tmp_path: Path, op: str) -> None:
    """Whatever values are called, they can be taken out and looked into; torch.fx writes names into code."""
    program, mark = executed("residual_cnn"), tmp_path / "ran"

    def called(value: Any) -> Any:
        if isinstance(value, list):
            return [called(item) for item in value]
        if not isinstance(value, dict):
            return value
        found = {key: called(item) for key, item in value.items()}
        if found.get("$") == "ref":
            found["v"] = code(found["v"])
        for item in (*found.get("nodes", ()), *(found.get("inputs", ()) if "nodes" in found else ())):
            item[0] = code(item[0])
        return found

    def code(name: str) -> str:
        return f"{name}=__import__('pathlib').Path({str(mark)!r}).touch()"

    record = tmp_path / "model.etviz"
    with zipfile.ZipFile(program.path("record")) as before, zipfile.ZipFile(record, "w") as after:
        body = json.loads(before.read("record.json"))
        body["graphs"] = called(body["graphs"])
        after.writestr("record.json", json.dumps(body))
        after.writestr("tensors.safetensors", before.read("tensors.safetensors"))
    inspection = program.load(record=record)
    gaps = inspection.gaps
    row = gaps.index[(gaps["op"] == op) | (gaps["kind"] == op)][0]
    folder = inspection.repro(row, tmp_path / "capsule")
    assert "it gives the outputs" in (folder / "README.md").read_text()
    if op == "delegate":
        inside = inspection.zoom(row)
        assert inside.faithful
        assert list(inside.gaps["rmse"]) == list(program.load().zoom(row).gaps["rmse"])
    assert not mark.exists()


def test_only_an_earlier_repro_is_replaced(executed: Programs, tmp_path: Path) -> None:
    inspection = executed("residual_cnn").inspection
    kernel = inspection.gaps.index[inspection.gaps["op"] == "aten::cumsum.out"][0]
    folder = inspection.repro(kernel, tmp_path / "capsule")
    assert inspection.repro(1, folder) == folder
    assert "layer_norm" in (folder / "repro.json").read_text()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    for bad in (tmp_path / "mine", tmp_path / "mine" / "thesis.txt", tmp_path / "none" / "capsule"):
        with pytest.raises(UsageError):
            inspection.repro(kernel, bad)
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "years of work"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["capsule", "mine"], "nothing half-made is left"
