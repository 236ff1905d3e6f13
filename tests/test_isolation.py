"""Files that this machine did not write are evaluated in a process of its own first, whose death is an answer."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import etviz
from etviz.artifacts import ledger
from etviz.artifacts.ledger import is_known, note_written
from etviz.errors import ArtifactError, ExecutionError, UsageError
from etviz.loading import rehearsal
from etviz.pipeline.worker import Worker
from tests.programs import Executed

Make = Callable[[str], Executed]


@pytest.fixture
def foreign(executed: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """Copies of a program's files, on a machine that has seen nothing yet."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    files: dict[str, Any] = {}
    for kind in ("etdump", "debug_buffer", "pte", "record", "etrecord"):
        source = executed("counter").path(kind)
        files[kind] = shutil.copy(source, tmp_path / source.name)
    before, etviz.options.isolation = etviz.options.isolation, "auto"
    yield files
    etviz.options.isolation = before


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the child process is asked."""
    requests: list[dict[str, Any]] = []
    run = rehearsal.WORKER.run

    def note(request: dict[str, Any], *rest: Any) -> dict[str, Any]:
        requests.append(request)
        return run(request, *rest)

    monkeypatch.setattr(rehearsal.WORKER, "run", note)
    return requests


def load(files: dict[str, Any], **more: Any) -> etviz.Inspection:
    return etviz.load(**files, **more)


def test_foreign_files_are_rehearsed_once(foreign: dict[str, Any], asked: list[Any], executed: Make) -> None:
    found = load(foreign)
    assert len(asked) == 1
    again = load(foreign)
    assert len(asked) == 1
    assert found.gaps["rmse"].equals(again.gaps["rmse"])
    assert len(found.gaps) > 3
    Path(foreign["record"]).touch()
    load(foreign)
    assert len(asked) == 2
    etviz.options.isolation = "always"
    load(foreign, inputs=executed("counter").inputs)
    assert len(asked) == 3
    etviz.options.isolation = "never"
    Path(foreign["pte"]).touch()
    load(foreign)
    assert len(asked) == 3


def test_what_etviz_wrote_is_known(foreign: dict[str, Any], asked: list[Any], tmp_path: Path) -> None:
    note_written(foreign.values())
    assert is_known(foreign)
    load(foreign)
    assert not asked
    copy = shutil.copy(foreign["etdump"], tmp_path / "copy.etdp")
    assert not is_known(foreign | {"etdump": copy})
    written = tmp_path / "state" / "etviz" / "known-files.json"
    assert written.stat().st_mode & 0o077 == 0
    written.write_text("{broken")
    assert not is_known(foreign)


def test_files_that_are_used_stay_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many others are written; what nobody asks for is dropped."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(ledger, "_MOST", 8)
    used, left, *others = (tmp_path / str(at) for at in range(20))
    for path in (used, left, *others):
        path.touch()
    note_written([used, left])
    for path in others:
        assert is_known({"pte": used})
        note_written([path])
    assert is_known({"pte": used})
    assert not is_known({"pte": left})


def test_the_death_of_the_process_is_an_answer(foreign: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """It crashes, as by an operator: an error, and the next files find a new process."""
    folder = Path(foreign["pte"]).parent
    (folder / "crashing.py").write_text("import os, signal\ndef main(*_):\n    os.kill(os.getpid(), signal.SIGSEGV)\n")
    monkeypatch.setenv("PYTHONPATH", f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    sound = rehearsal.WORKER
    monkeypatch.setattr(rehearsal, "WORKER", Worker("crashing"))
    with pytest.raises(ExecutionError, match=r"SIGSEGV.*isolation"):
        load(foreign)
    assert not is_known(foreign)
    monkeypatch.setattr(rehearsal, "WORKER", sound)
    assert len(load(foreign).gaps) > 3


def test_a_file_that_is_changed_meanwhile(foreign: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def change(request: dict[str, Any], *rest: Any) -> dict[str, Any]:
        Path(foreign["debug_buffer"]).touch()
        return {"whole": True}

    monkeypatch.setattr(rehearsal.WORKER, "run", change)
    with pytest.raises(ArtifactError, match="changed while it was read"):
        load(foreign)


def test_errors_are_the_same(foreign: dict[str, Any]) -> None:
    """The child's error is not the answer: what is wrong is said as it always is."""
    with pytest.raises(UsageError, match="must have the shape"):
        load(foreign, inputs=(torch.zeros(7, 7),))


def test_outputs_alone(foreign: dict[str, Any], asked: list[Any], executed: Make) -> None:
    outputs = executed("counter").model(*executed("counter").inputs)
    files = {kind: foreign[kind] for kind in ("pte", "record", "etrecord")}
    found = etviz.load(outputs=[outputs], **files)
    assert len(asked) == 1
    assert len(found.outputs) == 1
    etviz.load(outputs=[outputs], **files)
    assert len(asked) == 1


def test_options() -> None:
    with pytest.raises(UsageError, match="isolation must be 'auto' or"):
        etviz.options.isolation = "sometimes"
