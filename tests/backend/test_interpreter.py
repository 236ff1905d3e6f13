"""A vendor's interpreter: the one of docs/backends.md opens and emulates a backend that the runtime does not have."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import etviz
from etviz.errors import ExecutionError, UsageError
from etviz.pipeline import interpreters
from etviz.pipeline.worker import WORKER
from tests.backend.loops import LoopsPartitioner

PAGE = Path(__file__).parents[2] / "docs" / "backends.md"
BACKEND = "LoopsBackend"


class Net(nn.Module):
    """Two delegates with a portable cumsum between them."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 5)

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        z = torch.cumsum(torch.relu(y + torch.tanh(y) * y), -1)
        return torch.tanh(z) * z + y


@pytest.fixture(scope="module")
def vendor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the interpreter of the page, in a module of its own, which the child process finds."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (code,) = [block for block in blocks if "def show(" in block]
    folder = tmp_path_factory.mktemp("vendor")
    (folder / "vendors_interpreter.py").write_text(code, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder))
        WORKER.stop()
        yield folder
        WORKER.stop()


@pytest.fixture
def interpreter(vendor: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The same, registered."""
    monkeypatch.setitem(interpreters.INTERPRETERS, BACKEND, interpreters.Interpreter(""))  # restored at the end
    interpreters.register(BACKEND, "vendors_interpreter:show", "loops in torch")
    return (vendor / "vendors_interpreter.py").read_text(encoding="utf-8")


@pytest.fixture
def changed(interpreter: str, vendor: Path) -> Iterator[Path]:
    """The folder, for a test that changes the interpreter: its child process is no other test's."""
    yield vendor
    WORKER.stop()


def net() -> tuple[nn.Module, tuple[Tensor]]:
    torch.manual_seed(0)
    return Net().eval(), (torch.randn(3, 6),)


def emulated(workdir: Path, **options: str) -> etviz.Inspection:
    model, inputs = net()
    partitioner = [LoopsPartitioner(ids="names", **options)]
    return etviz.debug(model, inputs, partitioner=partitioner, runner="emulated", workdir=workdir)


def test_fifty_lines_are_enough(interpreter: str) -> None:
    assert len([line for line in interpreter.splitlines() if line.strip()]) <= 50


def test_a_program_runs_without_its_device(interpreter: str, tmp_path: Path) -> None:
    inspection = emulated(tmp_path / "run")
    model, inputs = net()
    calls = inspection.gaps[inspection.gaps["kind"] == "delegate"]
    assert calls["instruction"].nunique() == 2
    assert calls["reason"].str.contains("emulated: computed by the loops in torch").all()
    assert "emulated" not in "".join(inspection.gaps.loc[inspection.gaps["kind"] == "kernel", "reason"])
    assert "Emulated: loops in torch computed the delegates" in str(inspection.summary())
    assert calls["latency_ms"].isna().all()
    torch.testing.assert_close(inspection.tensors(len(inspection.gaps) - 1)[1], model(*inputs))
    assert inspection.gaps["severity"].max() < 3


def test_each_operator_inside_is_compared(interpreter: str, tmp_path: Path) -> None:
    inspection = emulated(tmp_path / "run")
    for row in inspection.gaps.index[inspection.gaps["kind"] == "delegate"]:
        inside = inspection.zoom(row)
        assert inside.faithful is True
        left = inside.coverage[~inside.coverage["status"].isin(["compared", "grouped"])]
        assert set(left["op"]) <= {"aten.add.Tensor"}  # one step with the ReLU after it
        assert left["reason"].str.contains("LoopsBackend does not return it: the payload has no step for it").all()
        assert inside.gaps["reason"].str.contains("emulated").all()


def test_a_fault_inside_is_named(interpreter: str, tmp_path: Path) -> None:
    inspection = emulated(tmp_path / "run", fault="2 sub")  # the multiplication after linear and tanh
    calls = inspection.gaps[inspection.gaps["kind"] == "delegate"]
    inside = inspection.zoom(calls.index[0])
    table: Any = inside.gaps
    assert table.loc[table["introduced_severity"].idxmax(), "op"] == "aten.mul.Tensor"


HALF = """
import torch
import vendors_interpreter as page

def half(value):
    return value.to(torch.bfloat16).to(torch.float32)

page.STEPS["linear"] = lambda x, weight, bias: torch.nn.functional.linear(half(x), half(weight), bias)
show = page.show
"""


def test_a_backend_that_computes_in_bfloat16_is_called_that(changed: Path, tmp_path: Path) -> None:
    (changed / "half_interpreter.py").write_text(HALF, encoding="utf-8")
    interpreters.register(BACKEND, "half_interpreter:show", "loops in bfloat16")
    finding = emulated(tmp_path / "run").diagnosis()["finding"]
    assert "the values fit operators on bfloat16 numbers (the program says float32)" in finding["text"]


NARROW = """
from dataclasses import replace
from half_interpreter import page
import torch

half = page.STEPS["linear"]

def show(*given):
    page.STEPS["linear"] = half
    plain = page.show(*given).outputs[: len(given[0].outputs)]
    page.STEPS["linear"] = torch.nn.functional.linear
    return replace(page.show(*given), plain=plain, precision="bfloat16")
"""


def test_a_backend_that_says_its_precision_is_opened_in_float32(changed: Path, tmp_path: Path) -> None:
    """The emulated run is the backend's, in bfloat16; the values inside are right, and the cause is told."""
    for name, code in (("half", HALF), ("narrow", NARROW)):
        (changed / f"{name}_interpreter.py").write_text(code, encoding="utf-8")
    interpreters.register(BACKEND, "narrow_interpreter:show", "loops in bfloat16")
    inspection = emulated(tmp_path / "run")
    inside = inspection.zoom(0)
    assert inside.faithful is True
    assert inside.first_divergence is None
    assert "computed the delegate in bfloat16; so its output is the run's, bit for bit" in str(inside.summary())
    finding = inspection.diagnosis()["finding"]
    assert "computed in bfloat16 (the program says float32); in float32, it computes the reference" in finding["text"]


def test_files_of_an_emulated_run_say_so(interpreter: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    emulated(folder)
    again = etviz.load(folder / "etdump.etdp", debug_buffer=folder / "debug_buffer.bin", pte=folder / "model.pte",
                       record=folder / "model.etviz", etrecord=folder / "etrecord.bin")  # fmt: skip
    assert "Emulated: loops in torch" in str(again.summary())


def test_several_executions_follow_one_another(interpreter: str, tmp_path: Path) -> None:
    model, (x,) = net()
    partitioner = [LoopsPartitioner(ids="names")]
    inspection = etviz.debug(model, [(x,), (2 * x,), (-x,)], partitioner=partitioner, runner="emulated")
    assert inspection.gaps["event_block"].nunique() == 3
    assert inspection.gaps["severity"].max() < 3


def test_an_operator_that_the_reference_lacks_is_named(interpreter: str, tmp_path: Path) -> None:
    problem = r"loops in torch can't run the delegate call 0: the reference of LoopsBackend has no sin"
    with pytest.raises(ExecutionError, match=problem):
        emulated(tmp_path / "run", fault="2 sin")


def test_a_package_of_another_version_is_named_with_the_error(interpreter: str, tmp_path: Path) -> None:
    known = interpreters.INTERPRETERS[BACKEND]
    interpreters.INTERPRETERS[BACKEND] = dataclasses.replace(known, command="pip install torch==0", pinned="torch==0")
    with pytest.raises(ExecutionError, match=r"has no sin; torch \S+ is installed, 0 is known to work: pip install"):
        emulated(tmp_path / "run", fault="2 sin")


def test_a_backend_without_an_interpreter_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no reference implementation of LoopsBackend.*docs/backends\.md"):
        emulated(tmp_path / "run")


def test_a_missing_package_is_named_with_its_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    missing = interpreters.Interpreter("nowhere:show", "a reference", "a_package_that_nobody_has", "pip install vendor")
    monkeypatch.setitem(interpreters.INTERPRETERS, BACKEND, missing)
    with pytest.raises(UsageError, match=r"needs a_package_that_nobody_has .*pip install vendor"):
        emulated(tmp_path / "run")


def test_another_runner_is_refused(tmp_path: Path) -> None:
    model, inputs = net()
    with pytest.raises(UsageError, match="runner must be None or 'emulated', found 'simulated'"):
        etviz.debug(model, inputs, runner="simulated")
