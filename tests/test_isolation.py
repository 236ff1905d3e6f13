"""A child process evaluates the files that this machine did not write, whichever question asks for it."""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from executorch.devtools import Inspector
from executorch.exir._serialize._program import deserialize_pte_binary

import etviz
from etviz.artifacts.known_files import is_known, is_noted, note_written
from etviz.errors import ArtifactError, ExecutionError, UsageError
from etviz.loading import foreign as wall
from etviz.pipeline import service
from etviz.pipeline.execute import execute
from etviz.pipeline.parcel import Known, Packer, Unpacker
from etviz.pipeline.worker import Worker
from tests.fuzz.test_crafted import node, with_graph
from tests.kinds.making import Made
from tests.programs import Executed

Make = Callable[[str], Executed]
KINDS = ("etdump", "debug_buffer", "pte", "record", "etrecord")
QUESTIONS: dict[str, Callable[[etviz.Inspection], Any]] = {
    "gaps": lambda found: found.gaps,
    "coverage": lambda found: found.coverage,
    "outputs": lambda found: found.outputs,
    "summary": lambda found: found.summary(),
    "references": lambda found: [torch.stack(found.tensors(row)) for row in range(len(found.gaps))],
    "attribution": lambda found: found.attribution(),
    "loss": lambda found: found.attribution(loss=lambda outputs: outputs[0].square().sum()),
    "quantization": lambda found: found.quantization(),
    "ladder": lambda found: found.ladder(),
    "against": lambda found: found.against("exported_program").gaps,
    "functions": lambda found: found.against({"aten.mm": lambda a, b: (a.double() @ b.double()).float()}).gaps,
    "what_if": lambda found: str(found.what_if(0)),
    "zoom": lambda found: found.zoom(0).gaps,
    "inside": lambda found: [found.zoom(0).tensors(0)[0], found.zoom(0).attribution()],
    "look_inside": lambda found: [found.look_inside(), found.gaps, found.quantization()][1:],
    "diagnosis": lambda found: found.diagnosis()["verdict"],
}
"""Everything that needs an evaluation; what fails has to fail with the same words."""


def copies(program: Executed | Made, folder: Path) -> dict[str, Any]:
    there = {kind: program.path(kind) for kind in KINDS if program.path(kind).exists()}
    return {kind: shutil.copy(path, folder / path.name) for kind, path in there.items()}


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A machine that has seen nothing yet."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    before, etviz.options.isolation = etviz.options.isolation, "auto"
    yield tmp_path
    etviz.options.isolation = before


@pytest.fixture
def foreign(executed: Make, state: Path) -> dict[str, Any]:
    """Copies of a program's files."""
    return copies(executed("counter"), state)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the child process is asked."""
    requests: list[dict[str, Any]] = []
    run = wall.WORKER.run

    def note(request: dict[str, Any], *rest: Any, **named: Any) -> dict[str, Any]:
        requests.append(request)
        return run(request, *rest, **named)

    monkeypatch.setattr(wall.WORKER, "run", note)
    return requests


def answer(question: str, found: etviz.Inspection) -> Any:
    try:
        return QUESTIONS[question](found)
    except etviz.errors.EtvizError as error:
        return str(error)


def same(a: Any, b: Any) -> None:
    if isinstance(a, list):
        for pair in zip(a, b, strict=True):
            same(*pair)
    elif isinstance(a, pd.DataFrame):
        pd.testing.assert_frame_equal(a, b)
    elif isinstance(a, torch.Tensor):
        assert torch.equal(a.view(torch.uint8), b.view(torch.uint8))
    else:
        assert a == b


@pytest.mark.parametrize("name", ["digits_int8", "counter", "branches"])
def test_every_question_has_the_same_answer_and_evaluates_nothing_here(
    name: str, executed: Make, state: Path, monkeypatch: pytest.MonkeyPatch, refuse_operators: Callable[[], None]
) -> None:
    files = copies(executed(name), state)
    monkeypatch.setattr(etviz.options, "look_inside", "never")
    etviz.options.isolation = "never"
    here = etviz.load(**files, inputs=executed(name).inputs)
    expected = {question: answer(question, here) for question in QUESTIONS}
    etviz.options.isolation = "auto"
    refuse_operators()
    there = etviz.load(**files, inputs=executed(name).inputs)
    for question, wanted in expected.items():
        same(wanted, answer(question, there))
        if question == "attribution":  # the child was replaced: the next one opens the files itself
            wall.WORKER.stop()
    there.to_html(state / "report.html")


def test_which_files_are_foreign(foreign: dict[str, Any], asked: list[Any], state: Path, executed: Make) -> None:
    etviz.load(**foreign)
    assert len(asked) == 1
    etviz.load(**foreign)
    assert len(asked) == 2  # that it went well once says nothing of the next question
    note_written(path for path in foreign.values())
    etviz.load(**foreign)
    assert len(asked) == 2
    np.savez(state / "inputs.npz", *(value.numpy() for value in executed("counter").inputs))
    etviz.load(**foreign, inputs=str(state / "inputs.npz"))
    assert len(asked) == 3
    etviz.options.isolation = "always"
    etviz.load(**foreign, inputs=executed("counter").inputs)
    assert len(asked) == 4
    etviz.options.isolation = "never"
    Path(foreign["pte"]).touch()
    etviz.load(**foreign)
    assert len(asked) == 4


def test_a_path_that_leads_nowhere_starts_no_child(foreign: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[bool] = []
    monkeypatch.setattr("etviz.loading.isolation.WORKER.warm", lambda: begun.append(True))
    files = {kind: path for kind, path in foreign.items() if kind != "etdump"}
    with pytest.raises(ArtifactError, match="no such file"):
        etviz.load("nowhere.etdp", **files)
    assert not begun
    with pytest.raises(ArtifactError, match="this is not an ETDump"):
        etviz.load(foreign["pte"], **files)
    assert begun


def test_another_method_of_foreign_files(made: Callable[[str], Made], asked: list[Any], state: Path) -> None:
    """That one method was evaluated without harm says nothing of another one, nor of the same one."""
    kinds, files = ("forward", "embed"), dict[str, dict[str, Any]]()
    for method in kinds:
        (folder := state / method).mkdir()
        files[method] = copies(made(f"method_{method}"), folder)
    program = {kind: files["forward"][kind] for kind in ("pte", "record", "etrecord") if kind in files["forward"]}
    for number, method in enumerate((*kinds, *kinds), 1):
        etviz.load(**files[method] | program, method=method)
        assert len(asked) == number


def test_what_etviz_wrote_is_known(foreign: dict[str, Any], asked: list[Any], tmp_path: Path) -> None:
    note_written(foreign.values())
    assert is_known(foreign.values())
    etviz.load(**foreign)
    assert not asked
    copy = shutil.copy(foreign["etdump"], tmp_path / "copy.etdp")
    assert not is_known([*foreign.values(), copy])
    written = tmp_path / "state" / "etviz" / "known-files.json"
    assert written.stat().st_mode & 0o077 == 0
    written.write_text("{broken")
    assert not is_known(foreign.values())


def test_processes_that_write_the_ledger_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No process loses what another one noted at the same moment."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    writes = (
        "import sys\nfrom etviz.artifacts.known_files import note\nfor at in range(100): note(sys.argv[1] + str(at))"
    )
    processes = [subprocess.Popen([sys.executable, "-c", writes, str(name)]) for name in range(3)]
    assert [process.wait(timeout=100) for process in processes] == [0, 0, 0]
    assert all(is_noted(f"{name}{at}") for name in range(3) for at in range(100))


def test_files_that_are_used_stay_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many others are written; what nobody asks for is dropped."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    used, left, *others = (tmp_path / str(at) for at in range(9002))
    for path in (used, left, *others):
        path.touch()
    note_written([used, left])
    for at in range(0, len(others), 500):
        assert is_known([used])
        note_written(others[at : at + 500])
    assert is_known([used])
    assert not is_known([left])


def test_a_crash_is_the_answer(foreign: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator ends the child process: each question says so, and nothing is evaluated here instead."""
    found = etviz.load(**foreign)
    folder = Path(foreign["pte"]).parent
    (folder / "crashing.py").write_text("import os, signal\ndef main(*_):\n    os.kill(os.getpid(), signal.SIGSEGV)\n")
    monkeypatch.setenv("PYTHONPATH", f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    with monkeypatch.context() as patch:
        patch.setattr(wall, "WORKER", Worker("crashing"))
        for question in (lambda: etviz.load(**foreign), found.attribution, found.ladder, lambda: found.what_if(0)):
            with pytest.raises(ExecutionError, match=r"SIGSEGV.*isolation"):
                question()
    assert len(found.attribution())


@pytest.mark.parametrize("size", [[1 << 28], [1 << 20, 1 << 20]], ids=["more than allowed", "more than there is"])
def test_too_much_memory_is_the_answer(
    size: list[int],
    foreign: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    refuse_operators: Callable[[], None],
) -> None:
    """A record of a few kilobytes asks for more than the child may have, or than there is; it is not tried here."""
    refuse_operators()
    monkeypatch.setattr(etviz.options, "isolation_megabytes", 256)

    def insert(graph: dict[str, Any]) -> None:
        graph["nodes"].insert(0, node("hostile", "aten.full.default", [size, 1.0]))

    foreign["record"] = with_graph(foreign["record"], tmp_path / "hostile.etviz", insert)
    with pytest.raises(etviz.errors.EtvizError, match=r"memory|bytes"):
        etviz.load(**foreign)


def test_memory_is_watched_where_the_system_has_no_limit() -> None:
    """As on macOS, whose limit covers a part of the memory only."""
    code = (
        "from etviz.pipeline import service\n"
        "service._limit = lambda spare: 0\n"
        "with service.spared_memory(1 << 26):\n"
        "    kept = []\n"
        "    while True:\n"
        "        kept.append(bytearray(1 << 20))\n"
        "        kept[-1][:] = b'1' * (1 << 20)\n"
    )
    import subprocess

    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=False)
    assert ended.returncode == service.OUT_OF_MEMORY
    assert b"took more than 67,108,864 bytes" in ended.stderr


def test_a_watched_child_that_takes_too_much_is_the_answer(
    foreign: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, refuse_operators: Callable[[], None]
) -> None:
    """Where no limit holds, the child ends itself, and this process says so."""
    (tmp_path / "unlimited.py").write_text(
        "from etviz.pipeline import service\nservice._limit = lambda spare: 0\nfrom etviz.loading.foreign import main\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setattr(etviz.options, "isolation_megabytes", 256)

    def insert(graph: dict[str, Any]) -> None:
        graph["nodes"][:0] = [node(f"v{at}", "aten.full.default", [[1 << 22], 1.0]) for at in range(100)]
        graph["outputs"] += [{"$": "ref", "v": f"v{at}"} for at in range(100)]

    foreign["record"] = with_graph(foreign["record"], tmp_path / "hostile.etviz", insert)
    refuse_operators()
    with monkeypatch.context() as patch:
        patch.setattr(wall, "WORKER", Worker("unlimited"))
        with pytest.raises(ExecutionError, match=r"took more memory than it may.*isolation"):
            etviz.load(**foreign)


def test_what_the_user_brings_runs_here(foreign: dict[str, Any]) -> None:
    """Metrics and loss functions are called in this process, and their exceptions arrive as they are."""
    seen: list[int] = []

    def note(reference: torch.Tensor, runtime: torch.Tensor) -> float:
        seen.append(os.getpid())
        return float((reference - runtime).abs().sum())

    etviz.metrics.register("note", note, higher_is_better=False)
    try:
        found = etviz.load(**foreign)
    finally:
        etviz.metrics.unregister("note")
    assert set(seen) == {os.getpid()}
    assert found.gaps["note"].notna().all()

    class StopError(Exception):
        pass

    def stop(_: list[Any]) -> Any:
        raise StopError("enough")

    with pytest.raises((StopError, etviz.errors.EtvizError), match="enough"):
        found.attribution(loss=stop)


def test_progress_comes_from_the_child_until_its_end(foreign: dict[str, Any]) -> None:
    found, seen = etviz.load(**foreign), list[tuple[int, int]]()
    found.analysis.attribution(0, 0, progress=lambda *step: seen.append(step))
    assert seen[-1][0] == seen[-1][1]
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)

    def stop(*_: int) -> None:
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        etviz.load(**foreign).analysis.attribution(0, 0, progress=stop)


def test_a_file_that_is_changed_meanwhile(foreign: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    run = wall.WORKER.run

    def change(request: dict[str, Any], *rest: Any, **named: Any) -> dict[str, Any]:
        found = run(request, *rest, **named)
        os.utime(foreign["debug_buffer"], ns=(1, 1))
        return found

    monkeypatch.setattr(wall.WORKER, "run", change)
    with pytest.raises(ArtifactError, match=r"changed while it was read|written to after"):
        etviz.load(**foreign)


def test_errors_are_the_same(foreign: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="must have the shape"):
        etviz.load(**foreign, inputs=(torch.zeros(7, 7),))


def test_outputs_alone(foreign: dict[str, Any], asked: list[Any], executed: Make) -> None:
    outputs = executed("counter").model(*executed("counter").inputs)
    files = {kind: foreign[kind] for kind in ("pte", "record", "etrecord")}
    found = etviz.load(outputs=[outputs], **files)
    assert len(asked) == 1
    assert len(found.outputs) == 1


@pytest.mark.parametrize("kinds", [(), ("pte",)])
def test_an_inspector(kinds: tuple[str, ...], foreign: dict[str, Any], asked: list[Any]) -> None:
    """Without the `.pte`, its events are all that is known of the instructions."""
    names = {"etdump": "etdump_path", "debug_buffer": "debug_buffer_path", "etrecord": "etrecord"}
    held: dict[str, Any] = {name: str(foreign[kind]) for kind, name in names.items()}
    inspector = Inspector(**held)
    given: dict[str, Any] = {kind: foreign[kind] for kind in kinds}
    found = etviz.from_inspector(inspector, **given)
    assert len(asked) == 1
    etviz.options.isolation = "never"
    own = etviz.from_inspector(inspector, **given)
    assert len(own.gaps)
    assert found.gaps["mse"].tolist() == own.gaps["mse"].tolist()


def test_values_travel_as_they_are(tmp_path: Path) -> None:
    """Strides, kinds of numbers, and objects that occur twice; what has no form of its own is refused."""
    shared = torch.arange(6.0)
    values: list[Any] = [
        *(None, True, -1, 1.5, "text", b"\0\xff", (1, [2, {3: {4}}]), frozenset([5]), torch.bfloat16, Path("a")),
        *(torch.zeros(0, 3), torch.tensor(2.0), torch.rand(2, 3, 4).permute(2, 0, 1), torch.rand(4, 1).expand(4, 3)),
        *(torch.tensor([1 + 2j]).conj(), torch.tensor([True, False]), np.arange(3, dtype=np.uint16), shared, shared),
        etviz.errors.ArtifactError("a.pte", "it is empty", "write it again", where=3),
    ]
    with Packer(tmp_path / "tensors", Known()) as packer:
        packed = packer.pack(values)
    found = Unpacker(tmp_path / "tensors", Known()).unpack(packed)
    assert str(found[:10]) == str(values[:10])
    for a, b in zip(values[10:16], found[10:16], strict=True):
        assert a.dtype == b.dtype
        assert torch.equal(a, b)
    assert found[12].stride() == values[12].stride()
    assert found[17] is found[18]
    assert str(found[-1]) == str(values[-1])
    for refused in (object(), lambda: None, torch.zeros(2).to_sparse()):
        with Packer(tmp_path / "tensors", Known()) as packer, pytest.raises(TypeError, match="can't be handed"):
            packer.pack([refused])
    for name in ("os.path:join", "etviz.api:load", "etviz.errors:checked"):
        module, _, part = name.partition(":")
        with pytest.raises(TypeError, match="can't be handed"):
            Unpacker(tmp_path / "none", Known()).unpack(["record", module, part])


def test_options() -> None:
    with pytest.raises(UsageError, match="isolation must be 'auto' or"):
        etviz.options.isolation = "sometimes"


@pytest.mark.parametrize("name", ["digits_int8", "counter"])
def test_a_study_of_foreign_files_evaluates_nothing_here(
    name: str, executed: Make, state: Path, refuse_operators: Callable[[], None]
) -> None:
    """Its runs and gaps are those of a study that trusts the files; noise is each input's own."""
    program = executed(name)
    pte = copies(program, state)["pte"]
    own = program.inputs if isinstance(program.inputs, list) else [program.inputs]
    inputs = [tuple(own[0]) for _ in range(3)]
    etviz.options.isolation = "never"
    here = etviz.study(pte, inputs, folder=state / "here")
    etviz.options.isolation = "auto"
    refuse_operators()
    there = etviz.study(pte, inputs, folder=state / "there")
    told = [column for column in here.inputs.columns if "severity" not in str(column)]
    assert set(there.inputs["status"]) == {"compared"}
    pd.testing.assert_frame_equal(here.inputs[told], there.inputs[told])
    again = there.open_input(0)
    assert again.gaps["rmse"].notna().all()


def test_a_misspelt_isolation_is_refused(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It must not open what it was set to close."""
    monkeypatch.setenv("ETVIZ_ISOLATION", "allways")
    code = "import etviz; etviz.options.isolation"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert "ETVIZ_ISOLATION must be auto or always or never, found 'allways'" in done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits it so")
def test_a_program_of_others_takes_no_more_memory_than_is_free(executed: Make, tmp_path: Path) -> None:
    """The runtime fills the planned memory with zeros, whatever size a file of some kilobytes plans."""
    program = executed("encoder")
    content = bytearray(program.path("pte").read_bytes())
    read: Any = deserialize_pte_binary(bytes(content))
    sizes = getattr(read, "program", read).execution_plan[0].non_const_buffer_sizes
    (free,) = re.findall(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    at = content.index(struct.pack(f"<{len(sizes)}q", *sizes)) + 8
    content[at : at + 8] = struct.pack("<q", 1024 * int(free) * 4 // 5 // 16 * 16)
    (tmp_path / "model.pte").write_bytes(content)
    with pytest.raises(ExecutionError):
        execute(tmp_path / "model.pte", [program.inputs], workdir=tmp_path)
    assert execute(program.path("pte"), [program.inputs], workdir=tmp_path).outputs
