"""Running a program in a child process: right outputs, a buffer that is large enough, and no harm to the parent."""

from __future__ import annotations

import importlib
import logging
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from executorch.runtime import Runtime, Verification
from torch import nn
from torch.utils._pytree import tree_leaves

import etviz
from etviz.artifacts.etdump.debug_buffer import DebugBuffer
from etviz.artifacts.etdump.etdump import read_etdump
from etviz.artifacts.program.logged import debug_buffer_bytes
from etviz.artifacts.program.program import read_program
from etviz.errors import ArtifactError, ExecutionError, UsageError
from etviz.pipeline import execute as module
from etviz.pipeline.execute import execute
from etviz.pipeline.worker import WORKER
from tests.oracles import logged, same
from tests.programs import Executed


@pytest.fixture(autouse=True)
def _nothing_left_behind(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every test of this file leaves the folder for temporary files empty."""
    folder = tmp_path_factory.mktemp("scratch")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield
    assert not list(folder.iterdir())


def in_this_process(pte: Path, inputs: list[Any]) -> list[Any]:
    method = Runtime.get().load_program(pte, verification=Verification.Minimal).load_method("forward")
    assert method is not None
    return [value.clone() if isinstance(value, torch.Tensor) else value for value in method.execute(inputs)]


def test_logged_outputs_are_those_of_the_runtime_in_this_process(program: Executed) -> None:
    expected = in_this_process(program.path("pte"), tree_leaves(program.inputs))
    found = logged(program.folder).outputs
    assert len(found) == len(expected)
    assert all(same(a, b) for a, b in zip(found, expected, strict=True))


def test_without_a_folder_there_are_outputs_only(executed: Callable[[str], Executed]) -> None:
    program = executed("many_outputs")
    inputs = tree_leaves(program.inputs)
    found = execute(program.path("pte"), [inputs])
    assert (found.etdump, found.debug_buffer) == (None, None)
    expected = in_this_process(program.path("pte"), inputs)
    assert len(found.outputs) == 1
    assert all(same(a, b) for a, b in zip(found.outputs[0], expected, strict=True))


def test_several_runs_keep_the_state_of_the_program(executed: Callable[[str], Executed], tmp_path: Path) -> None:
    program = executed("counter")
    runs = [[torch.full((3, 4), float(value))] for value in range(4)]
    done: list[int] = []
    found = execute(program.path("pte"), runs, workdir=tmp_path, progress=done.append)
    method = Runtime.get().load_program(program.path("pte"), verification=Verification.Minimal).load_method("forward")
    assert method is not None
    for outputs, inputs in zip(found.outputs, runs, strict=True):
        assert same(outputs[0], method.execute(inputs)[0])
    assert done[-1] == 4
    assert done == sorted(set(done))
    blocks = [block.name for block in read_etdump(tmp_path / "etdump.etdp").blocks]
    assert blocks.count("Execute") == 4


def test_the_buffer_is_trimmed_to_what_was_used(program: Executed) -> None:
    buffer, etdump = program.path("debug_buffer"), read_etdump(program.path("etdump"))
    used = DebugBuffer(buffer).used(etdump.tensor_refs())
    assert buffer.stat().st_size == used <= debug_buffer_bytes(read_program(program.path("pte")), "forward")
    assert not DebugBuffer(buffer).is_blank(etdump.tensor_refs())


@pytest.fixture
def sizes(executed: Callable[[str], Executed], monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes of the debug buffers that are asked for, once the program is there."""
    executed("encoder")
    asked: list[int] = []
    original = WORKER.run

    def run(request: Any, *rest: Any) -> Any:
        asked.append(request["debug_buffer_size"])
        return original(request, *rest)

    monkeypatch.setattr(WORKER, "run", run)
    return asked


def test_the_buffer_is_sized_from_the_program(
    executed: Callable[[str], Executed], tmp_path: Path, sizes: list[int]
) -> None:
    program = executed("encoder")
    execute(program.path("pte"), [tree_leaves(program.inputs)] * 30, workdir=tmp_path / "new" / "folder")
    estimate = debug_buffer_bytes(read_program(program.path("pte")), "forward")
    assert sizes == [30 * max(estimate, 1 << 16)]
    assert sorted(path.name for path in (tmp_path / "new" / "folder").iterdir()) == ["debug_buffer.bin", "etdump.etdp"]


def test_too_small_an_estimate_is_corrected(
    executed: Callable[[str], Executed],
    tmp_path: Path,
    sizes: list[int],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    program = executed("encoder")
    monkeypatch.setattr(module, "_needs", lambda pte, method: (1 << 14, []))
    with caplog.at_level(logging.INFO, "etviz"):
        execute(program.path("pte"), [tree_leaves(program.inputs)], workdir=tmp_path)
    assert sizes == [(1 << 14) << doublings for doublings in range(len(sizes))]
    assert len(sizes) > 1
    assert "too small" in caplog.text
    ours, first = logged(tmp_path).values, logged(program.folder).values
    assert ours.keys() == first.keys()
    assert all(same(a, b) for key in ours for a, b in zip(ours[key], first[key], strict=True))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["debug_buffer.bin", "etdump.etdp"]


def test_too_small_a_buffer_that_was_asked_for_is_an_error(executed: Callable[[str], Executed], tmp_path: Path) -> None:
    program = executed("encoder")
    with pytest.raises(ExecutionError, match=r"too small.*debug_buffer_size=") as found:
        execute(program.path("pte"), [tree_leaves(program.inputs)], workdir=tmp_path, debug_buffer_size=1024)
    assert found.value.exit_status == -signal.SIGABRT
    assert found.value.last_lines
    assert not list(tmp_path.iterdir())


def test_an_abort_for_another_reason_is_not_tried_again(
    executed: Callable[[str], Executed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = []

    def abort(*args: Any) -> None:
        attempts.append(args)
        raise ExecutionError("aborted", -signal.SIGABRT, ["Check failed (rank == 4)"])

    monkeypatch.setattr(WORKER, "run", abort)
    with pytest.raises(ExecutionError):
        execute(executed("counter").path("pte"), [[torch.zeros(3, 4)]], workdir=tmp_path)
    assert len(attempts) == 1


class Looked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.ones(10, 16, dtype=torch.int8))
        self.register_buffer("scales", torch.ones(10))

    def forward(self, at: torch.Tensor) -> torch.Tensor:
        rows = torch.ops.quantized_decomposed.embedding_byte.default(self.table, self.scales, None, -128, 127, at + 1)
        return rows * 2


def test_a_kernel_that_ends_the_process_is_named(tmp_path: Path) -> None:
    """Its runtime writes no ETDump, so the program is cut until it does not crash."""
    importlib.import_module("executorch.exir.passes._quant_patterns_and_replacements")  # registers the operator
    etviz.debug(Looked(), (torch.tensor([1, 2]),), workdir=tmp_path)
    says = (
        r"SIGABRT in instruction 1 \(quantized_decomposed::embedding_byte\.out\)\. Its last lines:\n.*index 10 must be"
    )
    with pytest.raises(ExecutionError, match=says) as found:
        execute(tmp_path / "model.pte", [[torch.tensor([1, 9])]])
    assert found.value.exit_status == -signal.SIGABRT


def test_an_instruction_that_its_kernel_refuses_is_named(tmp_path: Path) -> None:
    """ExecuTorch's portable convolution takes images, no volumes."""
    model = nn.Sequential(nn.Conv3d(2, 3, 3), nn.ReLU())
    says = r"Instruction 0 \(aten::convolution\.out\) refuses .*\(float32 \[1, 2, 5, 5, 5\], float32 \[3, 2, 3, 3, 3\]"
    with pytest.raises(ExecutionError, match=says) as found:
        etviz.debug(model, (torch.zeros(1, 2, 5, 5, 5),), strict=False, workdir=tmp_path)
    assert "give a partitioner" in str(found.value)
    assert "Expect input tensor to be 3-D or 4-D" in str(found.value)
    assert "Traceback" not in str(found.value)


def test_time_limit(executed: Callable[[str], Executed], tmp_path: Path) -> None:
    program = executed("counter")
    many = [tree_leaves(program.inputs)] * 20_000
    with pytest.raises(ExecutionError, match=r"0\.2 s.*timeout=") as found:
        execute(program.path("pte"), many, workdir=tmp_path, debug_buffer_size=128 << 20, timeout=0.2)
    assert found.value.exit_status is None
    assert not list(tmp_path.iterdir())


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Process ids of the children that are started, none of which runs already."""
    WORKER.stop()
    started: list[int] = []
    original = subprocess.Popen

    def popen(*args: Any, **kwargs: Any) -> Any:
        process = original(*args, **kwargs)
        started.append(process.pid)
        return process

    monkeypatch.setattr(subprocess, "Popen", popen)
    return started


def kept(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def earlier_run(program: Executed, folder: Path) -> dict[str, bytes]:
    """The files that a run left in a folder."""
    for kind in ("etdump", "debug_buffer"):
        shutil.copy(program.path(kind), folder)
    return kept(folder)


@pytest.mark.parametrize("how", [signal.SIGSEGV, signal.SIGKILL, signal.SIGABRT])
def test_a_crash_while_a_program_runs_keeps_what_was_there(
    how: signal.Signals, executed: Callable[[str], Executed], tmp_path: Path, child: list[int]
) -> None:
    """The process that runs the program is killed; the files of an earlier run stay as they are."""
    program = executed("counter")
    before = earlier_run(program, tmp_path)

    def crash(done: int) -> None:
        os.kill(child[-1], how)

    many = [tree_leaves(program.inputs)] * 20_000
    with pytest.raises(ExecutionError) as found:
        execute(program.path("pte"), many, workdir=tmp_path, debug_buffer_size=128 << 20, progress=crash)
    assert found.value.exit_status == -how
    assert ("out-of-memory" if how == signal.SIGKILL else how.name) in str(found.value)
    assert kept(tmp_path) == before


def test_interrupting_the_kernel_ends_the_run(
    executed: Callable[[str], Executed], tmp_path: Path, child: list[int]
) -> None:
    program = executed("counter")

    told: list[int] = []

    def interrupt(done: int) -> None:
        told.append(done)
        if len(told) == 1:
            os.kill(os.getpid(), signal.SIGINT)

    many = [tree_leaves(program.inputs)] * 20_000
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    try:
        with pytest.raises(KeyboardInterrupt):
            execute(program.path("pte"), many, workdir=tmp_path, debug_buffer_size=128 << 20, progress=interrupt)
    finally:
        signal.signal(signal.SIGINT, before)
    assert ended(child[-1])
    assert not kept(tmp_path)


def test_a_new_run_does_not_touch_the_files_that_are_open(executed: Callable[[str], Executed], tmp_path: Path) -> None:
    """Values of an Inspection are views of its files; running again into the same folder must not change them."""
    program = executed("counter")
    earlier_run(program, tmp_path)
    buffer = DebugBuffer(tmp_path / "debug_buffer.bin")
    before = bytes(buffer.data)
    execute(program.path("pte"), [[torch.ones(3, 4)]] * 2, workdir=tmp_path)
    assert bytes(buffer.data) == before != (tmp_path / "debug_buffer.bin").read_bytes()


def test_a_folder_that_can_not_be_written(executed: Callable[[str], Executed], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="workdir"):
        execute(executed("counter").path("pte"), [[torch.zeros(3, 4)]], workdir=tmp_path / "file")


def ended(pid: int) -> bool:
    """Wait for a process that was killed."""
    for _ in range(50):
        status = Path(f"/proc/{pid}/status")
        if not status.exists() or "Z (zombie)" in status.read_text():
            return True
        time.sleep(0.1)
    return False


@pytest.mark.parametrize(
    "runs",
    [
        [[torch.zeros(3, 4), torch.zeros(1)]],
        [[torch.zeros(9, 9)]],
    ],
    ids=["many", "shape"],
)
def test_wrong_inputs_are_an_error(runs: list[Any], executed: Callable[[str], Executed], tmp_path: Path) -> None:
    with pytest.raises(ExecutionError) as found:
        execute(executed("counter").path("pte"), runs, workdir=tmp_path)
    assert found.value.last_lines


def test_unknown_method(executed: Callable[[str], Executed], tmp_path: Path) -> None:
    program = executed("counter")
    with pytest.raises(UsageError, match=r"no method 'backward'.*forward"):
        execute(program.path("pte"), [tree_leaves(program.inputs)], workdir=tmp_path, method="backward")
    with pytest.raises(UsageError, match="forward"):
        execute(program.path("pte"), [tree_leaves(program.inputs)], method="backward")


@pytest.mark.parametrize("options", [{"debug_buffer_size": 0}, {"debug_buffer_size": -5}, {"timeout": 0}])
def test_options_that_make_no_sense(
    options: dict[str, Any], executed: Callable[[str], Executed], tmp_path: Path
) -> None:
    program = executed("counter")
    with pytest.raises(UsageError, match=next(iter(options))):
        execute(program.path("pte"), [tree_leaves(program.inputs)], workdir=tmp_path, **options)


@pytest.mark.parametrize("content", [None, b"", b"no program at all", b"\0" * 4096])
@pytest.mark.parametrize("with_workdir", [True, False])
def test_no_program(content: bytes | None, with_workdir: bool, tmp_path: Path) -> None:
    path = tmp_path / "broken.pte"
    if content is not None:
        path.write_bytes(content)
    (tmp_path / "out").mkdir()
    with pytest.raises(ArtifactError, match=r"broken\.pte"):
        execute(path, [[torch.zeros(1)]], workdir=tmp_path / "out" if with_workdir else None)


def test_paths_with_spaces_and_letters_of_all_kinds(executed: Callable[[str], Executed], tmp_path: Path) -> None:
    program = executed("counter")
    folder = tmp_path / "ein Ördner & 'mehr'"
    folder.mkdir()
    pte = folder / "模型 $HOME.pte"
    pte.write_bytes(program.path("pte").read_bytes())
    found = execute(os.fspath(pte), [tree_leaves(program.inputs)], workdir=folder)
    assert same(found.outputs[0][0], in_this_process(pte, tree_leaves(program.inputs))[0])


def test_a_call_that_fails_is_named_with_its_operator() -> None:
    """A position beyond a cache; upstream's line with the operator comes before many others."""

    class Ring(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("keys", torch.zeros(8, 4))

        def forward(self, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
            self.get_buffer("keys").index_copy_(0, at, x)
            return self.get_buffer("keys").sum(0)

    calls = [(torch.ones(1, 4), torch.tensor([at])) for at in (7, 9)]
    with pytest.raises(ExecutionError, match=r"aten::index_put\.out"):
        etviz.debug(Ring(), calls)
