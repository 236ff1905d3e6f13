"""`etviz run`: runners of other people, and devices."""

from __future__ import annotations

import json
import os
import shlex
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
import torch
from executorch.exir import to_edge_transform_and_lower
from typer.testing import CliRunner, Result

import etviz
from etviz.artifacts.program.program import read_program
from etviz.cli.app import app
from etviz.demo.digits_demo import run_on_runner
from etviz.errors import ArtifactError, ExecutionError, UsageError
from etviz.pipeline import device
from tests.cpp_runner import CppRunner
from tests.programs import Executed

ADB = """#!/bin/sh
# Stands in for adb: the "device" is a folder of this machine.
[ "$1" = "-s" ] && shift 2
verb=$1; shift
case "$ADB_BREAKS:$verb" in
  unplugged:get-state) echo "error: no devices/emulators found" >&2; exit 1;;
  full:push) echo "adb: error: failed to copy: No space left on device" >&2; exit 1;;
  gone:shell) case "$*" in *etviz-status*) echo "starting"; exit 255;; esac;;
  lost:pull) case "$1" in *debug_output*) echo "adb: error: device offline" >&2; exit 1;; esac;;
esac
case $verb in
  get-state) echo device;;
  shell) sh -c "$*";;
  push) cp "$1" "$2";;
  pull) if [ "$ADB_BREAKS" = cut ]; then head -c 100 "$1" > "$2"; else cp "$1" "$2"; fi;;
  logcat) echo "11-22 kernel: thermal throttling";;
esac
"""


@pytest.fixture
def built(executed: Callable[[str], Executed], tmp_path: Path) -> Path:
    """A folder with a program, its ETRecord and its record."""
    made = executed("plain_cnn")
    folder = tmp_path / "build"
    folder.mkdir()
    for kind in ("pte", "etrecord", "record"):
        (folder / made.path(kind).name).write_bytes(made.path(kind).read_bytes())
    torch.save(made.inputs, folder / "inputs.pt")
    return folder


@pytest.fixture
def adb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for adb on the PATH; the folder of its device."""
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "adb").write_text(ADB)
    (tools / "adb").chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    return tmp_path / "phone"


def _run(built: Path, *arguments: str | Path) -> Result:
    words = ["run", built / "model.pte", "--inputs", built / "inputs.pt", "-o", built / "run", *arguments]
    return CliRunner().invoke(app, [str(word) for word in words])


def _rows(ended: Result) -> list[dict[str, Any]]:
    assert ended.exit_code == 0, (ended.output, ended.exception)
    rows = json.loads(ended.stdout)["rows"]
    return [{name: value for name, value in row.items() if name != "latency_ms"} for row in rows]


def test_from_a_program_to_its_rows(built: Path, runner: CppRunner, executed: Callable[[str], Executed]):
    rows = _rows(_run(built, "--runner", runner.path, "--json", "--top", "0"))
    expected = executed("plain_cnn").inspection.worst(100)
    assert [row["rmse"] for row in rows] == list(expected.rmse)
    names = {path.name for path in (built / "run").iterdir()}
    assert names == {"etdump.etdp", "debug_output.bin", "outputs-0.bin", "run.log"}


def test_runner_without_tracer_gives_the_verdict(built: Path, release_runner: CppRunner):
    command = f"{release_runner.path} --model {{pte}} --inputs {{inputs}} --outputs {{outputs}}"
    ended = _run(built, "--runner", command, "--json")
    assert _rows(ended) == []
    told = json.loads(ended.stdout)
    assert "matches the reference" in told["verdict"]
    assert any("Only the final outputs" in note for note in told["notes"])


def test_device_gives_what_this_machine_gives(built: Path, runner: CppRunner, adb: Path):
    here = _rows(_run(built, "--runner", runner.path, "--json"))
    there = _rows(_run(built, "--adb", "--push", runner.path, "--device-folder", adb, "--device", "emu", "--json"))
    assert here == there
    assert "thermal throttling" in (built / "run" / "logcat.txt").read_text()
    assert not adb.exists()


BROKEN = {
    "unplugged": "adb get-state failed: error: no devices/emulators found",
    "full": "can't be pushed: adb: error: failed to copy: No space left on device",
    "gone": "The device went away while the program ran",
    "lost": "debug_output.bin can't be pulled: adb: error: device offline",
}


@pytest.mark.parametrize("how", BROKEN)
def test_broken_device_is_said(how: str, built: Path, runner: CppRunner, adb: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ADB_BREAKS", how)
    ended = _run(built, "--adb", "--push", runner.path, "--device-folder", adb)
    assert isinstance(ended.exception, ExecutionError)
    assert BROKEN[how] in str(ended.exception)


def test_what_was_pulled_stays(built: Path, runner: CppRunner, adb: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ADB_BREAKS", "lost")
    (built / "run").mkdir()
    ended = _run(built, "--adb", "--push", runner.path, "--device-folder", adb)
    assert "What it left is in" in str(ended.exception)
    monkeypatch.setenv("ADB_BREAKS", "cut")
    ended = _run(built, "--adb", "--push", runner.path, "--device-folder", adb)
    assert "debug_output.bin was cut: 100 of" in ended.output
    assert ended.exit_code != 0


MISTAKES = {
    "crashes": ("sh -c 'echo about to fail; kill -SEGV $$; : {etdump}'", r"crashed \(SIGSEGV\)[\s\S]*about to fail"),
    "fails": ("sh -c 'echo bad model; exit 3; : {etdump}'", r"failed with exit status 3[\s\S]*bad model"),
    "writes nothing": ("sh -c 'echo {etdump}; : {outputs}'", "wrote neither an ETDump nor outputs"),
    "is not there": ("/no/such/runner {etdump}", "can't be started"),
    "floods": ("sh -c 'head -c 300000000 /dev/zero; sleep 30; : {etdump}'", "printed more than 256 MB and was ended"),
    "hangs": ("sh -c 'sleep 60; : {etdump}'", "took longer than 0.5 s"),
}


@pytest.mark.parametrize(("command", "message"), MISTAKES.values(), ids=MISTAKES)
def test_bad_runner_is_one_error(command: str, message: str, built: Path):
    ended = _run(built, "--runner", command, "--timeout", "0.5" if "60" in command else "20")
    assert isinstance(ended.exception, ExecutionError)
    with pytest.raises(ExecutionError, match=message):
        raise ended.exception


def test_a_runner_ends_with_the_process_that_started_it(tmp_path: Path):
    code = (
        "import sys\nfrom pathlib import Path\nfrom etviz.pipeline.device import ThisMachine\n"
        "folder = Path(sys.argv[1])\n"
        "run = ThisMachine(folder).run\n"
        "run(['sh', '-c', f'sleep 60 & echo $! > {folder}/new; mv {folder}/new {folder}/pid; wait'], "
        "folder / 'log', 60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, tmp_path]) as parent:
        while not (tmp_path / "pid").exists():
            assert parent.poll() is None
            time.sleep(0.02)
        parent.kill()
    _wait_for_the_end(tmp_path / "pid")


def _wait_for_the_end(pid: Path):
    runs, end = Path("/proc", pid.read_text().strip(), "cmdline"), time.monotonic() + 10
    while runs.exists() and runs.read_bytes():  # a zombie has none
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("killed", [False, True], ids=["timeout", "killed"])
def test_what_a_runner_starts_in_a_session_of_its_own_ends_too(killed: bool, tmp_path: Path):
    """Like `nohup setsid`, twice over; what others started with a like name goes on."""
    started = f"sleep 60 & echo $! > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/pid; wait"
    inner = f"setsid sh -c {shlex.quote(started)} &"
    command = ["sh", "-c", f"setsid sh -c {shlex.quote(inner)} & sleep 60"]
    code = (
        "import sys\nfrom pathlib import Path\nfrom etviz.pipeline.device import ThisMachine\n"
        "folder, timeout, *command = sys.argv[1:]\n"
        "ThisMachine(folder).run(command, Path(folder, 'log'), float(timeout))\n"
    )
    arguments = [sys.executable, "-c", code, str(tmp_path), "60" if killed else "1.5", *command]
    foreign = subprocess.Popen(["sleep", "60"], env={"ETVIZ_RUN": "other"})
    try:
        with subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True) as parent:
            while not (tmp_path / "pid").exists():
                assert parent.poll() is None
                time.sleep(0.02)
            if killed:
                parent.kill()
            assert killed or "took longer than 1.5 s and was ended" in parent.communicate()[1]
        _wait_for_the_end(tmp_path / "pid")
        assert foreign.poll() is None
    finally:
        foreign.kill()
        foreign.wait()


USAGE = {
    "unknown placeholder": (("--runner", "x {weights}"), "placeholder {weights}"),
    "writes nowhere": (("--runner", "x {pte}"), "must say where it writes"),
    "no words": (("--runner", "'"), "can't be split into words"),
    "nothing to run": ((), "--runner CMD, or --adb"),
    "device without adb": (("--runner", "x", "--device", "emu"), "are for --adb"),
}


@pytest.mark.parametrize(("arguments", "message"), USAGE.values(), ids=USAGE)
def test_usage(arguments: tuple[str, ...], message: str, built: Path):
    ended = _run(built, *arguments)
    assert isinstance(ended.exception, UsageError)
    assert message in str(ended.exception)


SSH = '#!/bin/sh\n# Stands in for ssh: joins its words and has a shell run them.\nshift; exec sh -c "$*"\n'
SHELLS = {
    "ssh": "ssh board cp {pte} {outputs}-0.bin",
    "ssh, quoted": """ssh board 'cp "{pte}" {outputs}-0.bin'""",
    "ssh, a word of its own": "ssh board cp {pte} {outputs}",
    "sh": "sh -c 'cp {pte} {outputs}-0.bin'",
    "sh, quoted": """sh -c 'cp "{pte}" {outputs}-0.bin'""",
    "a shell in a shell": """/usr/bin/env bash -c 'ssh board cp {pte} {outputs}-0.bin'""",
    "python": "python3 -c 'import os; os.system(\"cp {pte} {outputs}-0.bin\")'",
}


@pytest.fixture
def hostile(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with a program whose name is a command, and a stand-in for ssh on the PATH."""
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "ssh").write_text(SSH)
    (tools / "ssh").chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    (built / "model.pte").rename(built / "$(touch PWN).pte")
    return built / "$(touch PWN).pte"


@pytest.mark.parametrize("command", SHELLS.values(), ids=SHELLS)
def test_no_shell_reads_the_name_of_a_file(command: str, hostile: Path):
    program = read_program(hostile)
    with pytest.raises(UsageError, match=r"a shell may read it in this command: rename the file"):
        device.run_elsewhere(device.ThisMachine("run"), hostile, program, "forward", [], command, Path("run"))
    assert [path.name for path in Path().iterdir()] == ["run"]


def test_a_direct_command_takes_any_name_of_a_file(hostile: Path):
    program = read_program(hostile)
    ran = device.run_elsewhere(
        device.ThisMachine("run"), hostile, program, "forward", [], "cp {pte} {outputs}-0.bin", Path("run")
    )
    assert ran.outputs[0].read_bytes() == hostile.read_bytes()
    assert [path.name for path in Path().iterdir()] == ["run"]


@pytest.mark.parametrize("command", ["sh -c 'echo {method} > {outputs}-0.bin'", "echo {method} {outputs}"])
def test_a_method_that_is_a_command_is_refused(command: str, hostile: Path):
    x = torch.ones(2)
    exported = torch.export.export(torch.nn.ReLU(), (x,))
    to_edge_transform_and_lower({"forward;touch PWN": exported}).to_executorch().save("model.pte")
    ended = CliRunner().invoke(app, ["run", "model.pte", "--inputs", str(_inputs(x)), "--runner", command])
    assert isinstance(ended.exception, ArtifactError)
    assert "names a method 'forward;touch PWN'" in str(ended.exception)
    assert not Path("PWN").exists()


def _inputs(x: torch.Tensor) -> Path:
    torch.save((x,), "inputs.pt")
    return Path("inputs.pt")


def test_file_that_a_runner_cut_is_said(built: Path, runner: CppRunner):
    cut = (
        f"sh -c '{runner.path} --model {{pte}} --inputs {{inputs}} --etdump {{etdump}} --debug-output {{debug_buffer}}"
    )
    cut += " --dump-intermediate-outputs && truncate -s 200 {debug_buffer}'"
    ended = _run(built, "--runner", cut)
    assert ended.exception is not None
    assert "debug_output.bin" in str(ended.exception)


def test_debug_buffer_of_the_advised_size_is_enough(built: Path, runner: CppRunner, tmp_path: Path):
    ended = CliRunner().invoke(app, ["info", str(built / "model.pte"), "--json"])
    method = json.loads(ended.stdout)["methods"][0]
    size = method["debug_buffer_bytes"]
    common = ("--model", built / "model.pte", "--dump-intermediate-outputs", "--debug-buffer-size")
    runner(tmp_path, *common, size)
    used = (tmp_path / "debug_output.bin").stat().st_size
    assert used <= size < 1.2 * used
    assert "Ran out of space" in runner(tmp_path, *common, used // 2, status=2)
    assert method["flags"]["example_runner"]["enough"]
    text = CliRunner().invoke(app, ["info", str(built / "model.pte")]).stdout
    assert f"at most {size:,} bytes" in text
    assert "-DET_DEBUG_BUFFER_SIZE=65536" in text


def test_demo_with_the_runner_shows_what_it_wrote(
    executed: Callable[[str], Executed], runner: CppRunner, tmp_path: Path
):
    made = executed("digits_int8")
    for kind in ("pte", "etrecord", "record", "debug_buffer"):
        (tmp_path / made.path(kind).name).write_bytes(made.path(kind).read_bytes())
    found = run_on_runner(tmp_path, made.inputs[0], str(runner.path))
    assert list(found.gaps.rmse) == list(made.inspection.gaps.rmse)
    names = {path.name for path in tmp_path.iterdir()}
    assert {"etdump.etdp", "debug_output.bin"} <= names
    assert "debug_buffer.bin" not in names


def test_demo_without_a_built_runner_says_how_to_build_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """etviz stands outside of a clone, as an installed one does."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "etviz").symlink_to(Path(etviz.__file__).parent)
    spec = spec_from_file_location("etviz_elsewhere", tmp_path / "etviz" / "demo" / "digits_demo.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    with pytest.raises(UsageError, match="make runner"):
        module.run_demo(tmp_path / "demo", str, runner="cpp")
    assert not (tmp_path / "demo").exists()
