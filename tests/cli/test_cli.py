"""Every command on real artifacts: what it prints, what it writes, its exit status; and what it says to bad input."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import typer
from torch import nn

import etviz
from etviz.artifacts.etdump.etdump import read_etdump
from etviz.cli import console, main
from etviz.cli.app import app
from etviz.cli.commands import _COMMANDS  # pyright: ignore[reportPrivateUsage]
from etviz.pipeline.execute import execute
from tests.decoding.trained import program as trained
from tests.programs import Executed
from tests.shelf import Shelf

Make = Callable[[str], Executed]
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Run a command in this process; returns exit status, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")

    def command(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["etviz", *map(str, arguments)])
        capsys.readouterr()
        try:
            main()
            status = 0
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(bool(end.code))
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return command


@pytest.fixture
def folder(executed: Make) -> Path:
    return executed("residual_cnn").folder


def test_info_needs_no_torch(folder: Path) -> None:
    code = (
        "import sys; sys.argv = ['etviz', 'info', sys.argv[1]]; from etviz.cli import main\n"
        "try: main()\nexcept SystemExit as end: assert not end.code, end.code\n"
        "print([name for name in ('torch', 'executorch', 'pandas', 'etviz.cli.gaps') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("[]\n")
    assert "XnnpackBackend" in done.stdout


def test_the_child_process_starts_before_torch_is_imported(folder: Path) -> None:
    code = (
        "import sys\nfrom etviz.cli import main\nfrom etviz.pipeline import worker\n"
        "found, start = [], worker._Child.__init__\n"
        "worker._Child.__init__ = lambda *given: (found.append('torch' in sys.modules), start(*given))[1]\n"
        "try: main()\nexcept SystemExit as end: print(end.code, found)"
    )
    told = {**os.environ, "ETVIZ_ISOLATION": "always"}
    command = [sys.executable, "-c", code, "gaps", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=told)
    assert done.stdout.endswith("None [False]\n")


def test_info_of_a_program_counts_executions(run: Run, executed: Make, tmp_path: Path) -> None:
    """The bytes that it names hold what three executions log; those of one execution do not."""
    program = executed("counter")
    needed = {}
    for number in (1, 3):
        status, text, _ = run("info", program.path("pte"), "--executions", number, "--json")
        assert status == 0
        needed[number] = json.loads(text)["methods"][0]["debug_buffer_bytes"]
    execute(program.path("pte"), [list(program.inputs)] * 3, workdir=tmp_path)
    dump = read_etdump(tmp_path / "etdump.etdp")
    written = max(ref.offset + ref.layout.nbytes for ref in dump.tensor_refs())
    assert needed[1] < written <= needed[3]
    assert run("info", program.path("pte"), "--executions", 0)[0] != 0
    status, _, err = run("info", program.folder, "--executions", 3)
    assert (status, "--executions is for a program" in err) == (2, True)


def test_info_of_an_etdump_alone_says_that_the_backend_is_not_known(run: Run, executed: Make) -> None:
    status, out, _ = run("info", executed("residual_cnn").path("etdump"))
    assert status == 0
    assert "backends: not known × " in out


def test_info_as_json_says_what_the_inspection_says(run: Run, executed: Make) -> None:
    program = executed("residual_cnn")
    status, out, _ = run("info", program.folder, "--json")
    body = json.loads(out)
    method = body["methods"][0]
    assert status == 0
    assert method["instructions"] == len(program.inspection.coverage)
    assert method["delegation"]["num_delegated_nodes"] == program.info.num_delegated_nodes
    assert method["total_ms"] == pytest.approx(sum(program.inspection.time.latency.values()))
    assert {file["kind"] for file in body["files"]} == {"etdump", "etrecord", "debug_buffer", "pte", "record"}


def test_gaps(run: Run, executed: Make) -> None:
    program = executed("residual_cnn")
    expected = program.inspection.worst(3, "rmse")
    status, out, _ = run("gaps", program.folder, "--by", "rmse", "--top", 3, "--json")
    body = json.loads(out)
    assert status == 0
    assert [row["row"] for row in body["rows"]] == list(expected.index)
    assert [row["rmse"] for row in body["rows"]] == pytest.approx(list(expected["rmse"]), rel=1e-3, abs=1e-9)
    status, out, _ = run("gaps", program.folder, "--top", 0, "--format", "csv")
    assert len(out.splitlines()) == 1 + len(program.inspection.gaps)


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_the_table_fits_the_terminal(run: Run, folder: Path, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console.out, "width", width)
    status, out, _ = run("gaps", folder)
    assert status == 0
    assert out
    assert [line for line in out.splitlines() if len(line) > width] == []
    assert "\x1b" not in out


def test_report(run: Run, folder: Path, tmp_path: Path) -> None:
    status, out, _ = run("report", folder, "-o", "r.html", "--title", "<b>mine", "--json")
    assert status == 0
    assert json.loads(out)["bytes"] == (tmp_path / "r.html").stat().st_size
    assert "<b>mine" not in (tmp_path / "r.html").read_text()


def test_check_passes_and_fails(run: Run, folder: Path, tmp_path: Path) -> None:
    assert run("check", folder, "--max-rmse", 1)[0] == 0
    status, out, _ = run(
        "check", folder, "--max-rmse", 1e-9, "--junit", "j.xml", "--json", "c.json", "--markdown", "m.md"
    )
    assert status == 1
    assert "FAILED" in out
    assert not json.loads((tmp_path / "c.json").read_text())["passed"]
    assert (tmp_path / "j.xml").read_text().startswith("<?xml")
    assert (tmp_path / "m.md").read_text().startswith("### ❌")
    status, out, _ = run("check", folder, "--limit", "max_ulp=0", "--json", "-")
    assert status == 1
    assert json.loads(out)["failures"]


def test_check_against_a_baseline_and_with_rules(run: Run, folder: Path, tmp_path: Path) -> None:
    assert run("check", folder, "--write-baseline", "b.json")[0] == 0
    assert run("check", folder, "--baseline", "b.json")[0] == 0
    body = json.loads((tmp_path / "b.json").read_text())
    for values in body["rows"].values():
        values["severity"] = 0.0
    (tmp_path / "b.json").write_text(json.dumps(body))
    assert run("check", folder, "--baseline", "b.json", "--factor", 1.01)[0] == 1
    (tmp_path / "rules.toml").write_text("[check]\nmax_rmse = 0\n")
    assert run("check", folder, "--config", "rules.toml")[0] == 1


def test_outputs(run: Run, executed: Make, tmp_path: Path) -> None:
    """On the run's inputs they match; those of another model are refused, and so is a picture of no known format."""
    program = executed("plain_cnn")
    for name, values in (("own", program.inputs), ("other", [torch.zeros(3) for _ in program.inputs])):
        np.savez(tmp_path / f"{name}.npz", *(value.numpy() for value in values))
    status, out, _ = run("outputs", program.folder, "--inputs", tmp_path / "own.npz", "--plot", tmp_path / "o.svg")
    assert status == 0
    assert "matches" in out
    assert (tmp_path / "o.svg").read_text("utf-8").startswith("<?xml")
    status, _, err = run("outputs", program.folder, "--inputs", tmp_path / "other.npz")
    assert status == 2
    assert "shape" in err
    status, _, err = run("outputs", program.folder, "--plot", "o.exe")
    assert status == 2
    assert "o.exe" in err


def test_compare(run: Run, executed: Make, tmp_path: Path) -> None:
    status, out, _ = run("compare", executed("residual_cnn").folder, executed("plain_cnn").folder, "-o", "c.html")
    assert status == 0
    assert "in several programs" in out
    page = (tmp_path / "c.html").read_text()
    assert "script-src &#x27;sha256-" in page or "script-src 'sha256-" in page
    assert 'id="etviz-data"' in page


@pytest.mark.parametrize("width", [40, 80, 200])
def test_programs_side_by_side_fit_the_terminal(
    run: Run, executed: Make, tmp_path: Path, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console.out, "width", width)
    folders = [shutil.copytree(executed("residual_cnn").folder, tmp_path / name) for name in ("before", "now")]
    status, out, _ = run("compare", *folders)
    assert status == 0
    assert [line for line in out.splitlines() if len(line) > width] == []
    heading = next(line for line in out.splitlines() if "times worse" in line)
    assert heading.split() == ["times", "worse", "operator", "before", "now", *(["source"] if width >= 70 else [])]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gaps", "missing.etdp"], "missing.etdp: there is no such file"),
        (["gaps", "."], "no ETDump in this folder"),
        (["gaps", "{folder}", "--by", "nothing"], "by must be a column"),
        (["gaps", "{folder}", "--pte", "{folder}/etdump.etdp"], "an ETDump"),
        (["gaps", "{folder}", "--etrecord", "{other}/etrecord.bin"], "another program"),
        (["report", "{folder}", "-o", "missing/r.html"], "there is no folder missing"),
        (["report", "{folder}", "-o", "."], "this is a folder"),
        (["check", "{folder}", "--limit", "rmse"], "--limit must be NAME=NUMBER"),
        (["check", "{folder}", "--limit", "max_nothing=1"], "max_nothing is no limit"),
        (["check", "{folder}", "--config", "nothing.toml"], "nothing.toml"),
        (["check", "{folder}", "--baseline", "{folder}/model.pte"], "model.pte"),
        (["compare", "{folder}"], "two or more"),
        (["info", "{folder}", "--time-scale", "weeks"], "source_time_scale"),
        (["demo", "--out", "{folder}/model.pte"], "model.pte: the folder can't be made"),
        (["demo", "--out", "{folder}/model.pte/demo"], "demo: the folder can't be made"),
        (["why", "."], "no ETDump in this folder"),
    ],
)
def test_bad_input_is_one_line_and_status_2(run: Run, executed: Make, arguments: list[str], message: str) -> None:
    places = {"folder": executed("residual_cnn").folder, "other": executed("plain_cnn").folder}
    before = set(Path.cwd().iterdir())
    status, out, err = run(*(argument.format(**places) for argument in arguments))
    assert status == 2
    assert message in err
    assert err.count("\n") == 1
    assert not out
    assert set(Path.cwd().iterdir()) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("nonsense", "No such command 'nonsense'. etviz --help shows"),
        ("gap", "Did you mean 'gaps'? etviz --help"),
        ("gaps", "Missing argument 'ETDUMP'. etviz gaps --help"),
        ("gaps . --nothing", "--nothing. etviz gaps --help"),
        ("gaps . --top -1", "'--top'"),
        ("report . --tensors x", "'--tensors'"),
        ("check . --max-rmse x", "'--max-rmse'"),
        ("check . --max-rmse 1 --max-rmse 1e-9", "--max-rmse is given 2 times; give it once. etviz check --help"),
        ("check . --max-rmse 1 --limit max_rmse=1e-9", "the limit max_rmse is given twice; give it once"),
        ("check . --limit max_ulp=9 --limit max_ulp=1", "the limit max_ulp is given twice; give it once"),
        ("check . --outputs --no-outputs", "--outputs is given 2 times; give it once. etviz check --help"),
        (
            "check . --reference a --kl-divergence-base b",
            "--reference is given 2 times; give it once. etviz check --help",
        ),
        ("gaps . --top 1 --by rmse --top 2", "--top is given 2 times; give it once. etviz gaps --help"),
        ("load-outputs nothing", "nothing: there is no such folder"),
    ],
)
def test_bad_usage_is_one_line_and_status_2(run: Run, arguments: str, message: str) -> None:
    status, out, err = run(*arguments.split())
    assert status == 2
    assert err.startswith("etviz: ")
    assert message in err
    assert err.count("\n") == 1
    assert not out


WRITES = {
    "check --junit": (["check", "{folder}", "--junit", "{to}"], "<testsuite"),
    "check --json": (["check", "{folder}", "--json", "{to}"], '"passed"'),
    "check --markdown": (["check", "{folder}", "--markdown", "{to}"], "|"),
    "check --write-baseline": (["check", "{folder}", "--write-baseline", "{to}"], '"format"'),
    "decode -o": (["decode", "{llama}", "--ids", "72 101", "--steps", "1", "-o", "{to}"], "<!doctype html>"),
    "compare -o": (["compare", "{folder}", "{folder}", "-o", "{to}"], "<!doctype html>"),
    "load-outputs -o": (["load-outputs", "outputs", "--record", "{folder}", "-o", "{to}"], "<!doctype html>"),
    "outputs --plot": (["outputs", "{folder}", "--plot", "{to}"], "\x89PNG"),
    "report -o": (["report", "{folder}", "-o", "{to}"], "<!doctype html>"),
    "report --svg": (["report", "{folder}", "-o", "report.html", "--svg", "{to}"], "<svg"),
}
"""Each option that names a file to write, and what the file holds."""


def test_every_option_that_writes_a_file_is_known() -> None:
    """Folders (demo, dump, run, probe) are made, not written through."""
    commands: Any = typer.main.get_command(app)
    known = {
        f"{name} {option.opts[0]}"
        for name, command in commands.commands.items()
        for option in command.params
        if (getattr(option, "help", "") or "").startswith(("Write", "Also draw", "The HTML", "Store"))
    }
    assert known == {*WRITES}


@pytest.mark.parametrize("option", WRITES)
def test_outputs_go_through_links_pipes_and_devices(
    option: str, run: Run, executed: Make, shelf: Shelf, tmp_path: Path
) -> None:
    """As root, a file in the place of a device would take it from every process of the machine."""
    program = executed("residual_cnn")
    arguments, content = WRITES[option]
    places = {"folder": program.folder, "llama": trained(shelf, "custom") if option == "decode -o" else ""}
    (tmp_path / "outputs").mkdir()
    for at, row in program.inspection.outputs.iterrows():
        program.inspection.tensors(row)[1].numpy().tofile(tmp_path / "outputs" / f"model-{at}.bin")
    (tmp_path / "runs").mkdir()
    link, real, pipe, null = (tmp_path / name for name in ("link.png", "runs/real.png", "pipe.png", "null.png"))
    link.symlink_to(real)
    os.mkfifo(pipe)
    if os.geteuid() == 0:
        os.mknod(null, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    else:
        null.symlink_to(os.devnull)

    def write(to: Path) -> None:
        status, _, err = run(*(argument.format(to=to, **places) for argument in arguments))
        assert status == 0, err

    write(link)
    assert link.is_symlink()
    assert content in real.read_bytes().decode("latin-1").lower() or content in real.read_bytes().decode("latin-1")
    with (tmp_path / "piped").open("wb") as file:
        reader = subprocess.Popen(["timeout", "60", "cat", pipe], stdout=file)
        write(pipe)
        reader.wait()
    piped = (tmp_path / "piped").read_bytes().decode("latin-1")
    assert content in piped.lower() or content in piped
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    write(null)
    assert stat.S_ISCHR(null.stat().st_mode)


def test_without_arguments_there_is_help(run: Run) -> None:
    status, out, err = run()
    assert status == 2
    assert "Usage: etviz" in out + err
    assert "1 a check failed" in out + err


def test_a_damaged_file_is_one_line(run: Run, folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "copy")
    data = (tmp_path / "copy" / "etdump.etdp").read_bytes()
    (tmp_path / "copy" / "etdump.etdp").write_bytes(data[: len(data) // 2])
    status, _, err = run("info", tmp_path / "copy")
    assert status == 2
    assert err.startswith("etviz: ")
    assert "etdump.etdp" in err


def test_completion_is_shown(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_ETVIZ_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "etviz ga")
    monkeypatch.setenv("COMP_CWORD", "1")
    assert run()[:2] == (0, "gaps\n")


@pytest.mark.parametrize(
    "arguments",
    ["info {}", "gaps {} --json", "check {} --junit /dev/stdout", "report {} -o /dev/stdout"],
)
def test_a_reader_that_goes_away_is_no_failed_check(arguments: str, folder: Path) -> None:
    """The status 1 is that of a check: a pipe that is closed has another, and no disk is full.

    On a busy machine a command says what it does meanwhile, and nothing else.
    """
    ends = "import os, sys; reader, writer = os.pipe(); os.dup2(writer, 1); os.close(reader); "
    code = ends + "sys.argv = ['etviz', *sys.argv[1:]]; from etviz.cli import main; main()"
    command = [sys.executable, "-c", code, *arguments.format(folder).split()]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 141
    comparing = f"etviz: comparing {folder.name} with its reference …"
    assert {*done.stderr.splitlines()} <= {comparing, "etviz: writing the report …"}


def test_verbose_shows_the_trace(run: Run) -> None:
    status, _, err = run("gaps", "missing.etdp", "--verbose")
    assert status == 2
    assert "Traceback" in err
    assert "no such file" in err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_no_permission_to_write(run: Run, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0o500)
    status, _, err = run("report", folder, "-o", tmp_path / "locked" / "r.html")
    assert status == 2
    assert "permission" in err


def test_the_demo_says_what_it_lacks_before_it_trains(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("sklearn", "nbformat"):
        monkeypatch.setitem(sys.modules, name, None)
    status, out, err = run("demo", "--out", "demo")
    assert (status, out) == (2, "")
    assert "the demo needs scikit-learn and nbformat: pip install 'etviz[demo]'" in " ".join(err.split())
    assert not Path("demo").exists()


def test_demo(run: Run, tmp_path: Path) -> None:
    """The main job from training to the report, and its result as data."""
    status, text, steps = run("demo", "--out", "demo", "--json")
    assert status == 0
    assert "Training a digit classifier" in steps
    body = json.loads(text)
    assert body["float_accuracy"] > 0.9
    assert abs(body["executorch_accuracy"] - body["float_accuracy"]) < 0.05
    assert body["rows"][0]["introduced_severity"] >= body["rows"][1]["introduced_severity"]
    made = {path.name for path in (tmp_path / "demo").iterdir()}
    assert {"model.pte", "etrecord.bin", "etdump.etdp", "debug_buffer.bin", "model.etviz"} <= made
    assert {Path(body["notebook"]).name, Path(body["report"]).name} <= made
    planted = body["planted"]
    assert planted["accuracy"] < body["executorch_accuracy"] - 0.05
    assert abs(planted["proved_accuracy"] - body["executorch_accuracy"]) < 0.01
    assert "head · linear" in planted["finding"]
    assert re.search(r"introduced it: row 4 of \S+ is ×0\.25", planted["finding"])
    assert "100 % of the output's error" in planted["finding"]
    status, text, _ = run("why", tmp_path / planted["folder"], "--json", "--no-inside")
    assert status == 1
    culprit = json.loads(text)["culprit"]
    assert culprit["instruction"] == json.loads(text)["compared"]["instructions"] - 1
    assert culprit["code"] == "return self.head(x.flatten(1))"
    assert culprit["proof"]["outputs"][0]["matches"]
    said = json.loads(run("why", tmp_path / planted["folder"], "--json")[1])["finding"]["text"]
    inside = rf"#{culprit['instruction']}\.\d+ head · linear \(quantized\) inside #\d+ \(digits\.py:44\)"
    assert re.match(inside + r" introduced it: row 4 of \S+ is ×0\.25", said)


def test_the_diagnosis_fits_the_terminal(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines are broken, and no word of them is lost; only code is cut, and says so."""
    torch.manual_seed(0)
    etviz.debug(nn.LayerNorm(24).eval(), (torch.randn(5, 24) + 300.0,), workdir=tmp_path / "far")
    share = json.loads(run("why", tmp_path / "far", "--json")[1])["attribution"]["shares"][0]
    for width in (24, 40, 59, 60, 100):
        monkeypatch.setattr(console.out, "width", width)
        status, out, _ = run("why", tmp_path / "far")
        assert status == 1
        assert [line for line in out.splitlines() if len(line) > width] == []
        shares = out.partition("Share of the")[2].partition("What it looks like")[0]
        assert share["name"] in " ".join(shares.split())


@pytest.mark.parametrize("command", ["demo", "info", "gaps", "why", "report", "check", "compare", "mcp"])
def test_help_has_an_example(run: Run, command: str) -> None:
    status, out, _ = run(command, "--help")
    assert status == 0
    assert f"Example: etviz {command}" in out.replace("\n", " ")
    assert ("etviz[mcp]" in out) == (command == "mcp")


def test_the_status_of_why_says_whether_something_is_at_fault(run: Run, folder: Path, tmp_path: Path) -> None:
    assert run("why", folder, "--no-inside")[0] == 0
    shutil.copy(folder / "etdump.etdp", tmp_path)
    assert run("why", tmp_path)[0] == 3


@pytest.mark.parametrize("name", _COMMANDS)
def test_help_cuts_nothing_on_80_columns(run: Run, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    status, out, _ = run(name, "--help")
    assert status == 0
    assert max(map(len, out.splitlines())) <= 80
    assert re.search(r"[\w-]…", out) is None


def test_long_work_says_what_it_does_and_short_work_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    patience = {True: 0.05, False: 0.05}
    with console.doing("comparing", patience):
        time.sleep(0.3)
    assert capsys.readouterr().err == "etviz: comparing …\n"
    with console.doing("comparing", patience):
        pass
    time.sleep(0.2)
    assert capsys.readouterr().err == ""


def test_several_files_that_could_be_meant(run: Run, folder: Path, tmp_path: Path) -> None:
    shutil.copy(folder / "etdump.etdp", tmp_path / "etdump.etdp")
    for name in ("a.pte", "b.pte"):
        shutil.copy(folder / "model.pte", tmp_path / name)
    status, _, err = run("info", tmp_path)
    assert status == 2
    assert "a.pte, b.pte" in err
    assert run("info", tmp_path, "--pte", tmp_path / "a.pte")[0] == 0


def test_a_comparator_of_the_users_own(run: Run, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "my_metrics.py").write_text(
        "from executorch.devtools.inspector.numerical_comparator import NumericalComparatorBase\n"
        "class Farthest(NumericalComparatorBase):\n"
        "    def element_compare(self, a, b):\n"
        "        return float((a - b).abs().max())\n"
    )
    status, text, _ = run("gaps", folder, "--json", "--top", 0, "--metric", "my_metrics:Farthest")
    rows = json.loads(text)["rows"]
    assert status == 0
    assert [row["Farthest"] for row in rows] == pytest.approx([row["max_abs"] for row in rows])
    for wrong in ("my_metrics:Nearest", "no_such_module:Farthest", "my_metrics", "my_metrics:Farthest()", "os;x:y"):
        status, _, problem = run("gaps", folder, "--metric", wrong)
        assert status == 2
        assert wrong in problem


def test_the_task_is_the_first_number_of_a_verdict(run: Run, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "my_tasks.py").write_text("def three(expected, found, label):\n    return 3.0\n")
    status, text, _ = run("why", folder, "--task", "my_tasks:three", "--task", "kl")
    assert status in (0, 1)
    assert "(top-1 is the same (" in text  # the divergence reads scores
    assert ", three 3, kl " in " ".join(text.split())
    status, _, problem = run("why", folder, "--task", "best")
    assert status == 2
    assert "top1" in problem
    assert "'best'" in problem


@pytest.mark.parametrize("larger", ["alpha", "model"])
def test_a_gate_judges_every_program_of_a_folder(run: Run, executed: Make, tmp_path: Path, larger: str) -> None:
    """Also one whose files have the usual names, and whichever name comes first."""
    folder, smaller = tmp_path / "both", "model" if larger == "alpha" else "alpha"
    folder.mkdir()
    found = {name: etviz.load(executed(name).folder) for name in ("residual_cnn", "plain_cnn")}
    worst = sorted(found, key=lambda name: float(found[name].gaps["rmse"].max()))
    for name, program in zip((smaller, larger), worst, strict=True):
        for file in executed(program).folder.iterdir():
            if file.stem in ("model", "etdump", "etrecord", "debug_buffer"):
                before, after = ("model", "alpha") if file.stem == "model" else (file.stem, f"alpha_{file.stem}")
                shutil.copy(file, folder / (file.name if name == "model" else file.name.replace(before, after)))
    limit = sum(float(found[name].gaps["rmse"].max()) for name in worst) / 2
    status, out, _ = run("check", folder, "--max-rmse", limit)
    assert status == 1
    assert f"FAILED {larger}: " in out
    assert f"FAILED {smaller}: " not in out
    assert run("check", folder, "--max-rmse", limit, "--method", smaller)[0] == 0
    assert run("check", folder, "--write-baseline", "b.json")[0] == 2
    status, out, _ = run("outputs", folder, "--json")
    assert status == 0
    assert {row["method"] for row in json.loads(out)} == {"alpha", "model"}
    status, _, err = run("gaps", folder)
    assert status == 0
    assert "alpha is shown; the folder has model too (--method)" in err
    status, _, err = run("check", folder, "--inputs", "x.npz")
    assert status == 2
    assert "choose one of alpha, model with --method" in err


class Slow:
    """A module whose import the user interrupts."""

    def __getattr__(self, name: str) -> Any:
        raise KeyboardInterrupt


def test_an_interrupt_while_modules_are_imported(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "etviz.cli.commands", Slow())
    assert run("info", "model.pte") == (130, "", "etviz: interrupted\n")
