"""The numerics lock: one file for all classes of devices, which says at which instruction a run, or a class, parts."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from etviz.artifacts.etdump.debug_buffer import DebugBuffer
from etviz.artifacts.etdump.etdump import read_etdump
from etviz.cli.app import app
from etviz.errors import ArtifactError, UsageError
from etviz.gate.lock import compare_lock, read_lock, write_lock
from tests.programs import Executed

Get = Callable[[str], Executed]
_AT = 3
"""The instruction whose value is changed."""


@pytest.fixture
def other(executed: Get, tmp_path: Path) -> Path:
    """The files of another device: one bit of the value of one instruction is not the same."""
    folder = tmp_path / "other"
    shutil.copytree(executed("plain_cnn").folder, folder)
    dump = read_etdump(folder / "etdump.etdp")
    events = [event for block in dump.blocks for event in block.debug if event.chain >= 0 and not event.is_output]
    ref = next(event for event in events if event.instruction_id == _AT).tensors[0]
    assert len(DebugBuffer(folder / "debug_buffer.bin").raw(ref))
    data = np.fromfile(folder / "debug_buffer.bin", np.uint8)
    data[ref.offset] ^= 1
    data.tofile(folder / "debug_buffer.bin")
    return folder


def _run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(map(str, arguments)))
    if isinstance(result.exception, (UsageError, ArtifactError)):
        raise result.exception
    return result.exit_code, " ".join(result.output.split())


def test_classes_of_devices_in_one_file(executed: Get, other: Path, tmp_path: Path) -> None:
    lock, folder = tmp_path / "lock.json", executed("plain_cnn").folder
    assert _run("check", folder, "--write-lock", lock, "--device", "phone")[0] == 0
    assert _run("check", folder, "--lock", lock, "--device", "phone")[0] == 0
    status, said = _run("check", other, "--lock", lock, "--device", "phone", "--no-outputs")
    assert status == 1
    assert f"parts from phone at #{_AT} " in said
    assert "1 of" in said
    _run("check", other, "--write-lock", lock, "--device", "watch", "--no-outputs")
    status, said = _run("check", folder, "--lock", lock, "--device", "phone")
    assert status == 0
    assert f"parts from watch at #{_AT} " in said
    held = read_lock(lock)
    assert set(held.classes) == {"phone", "watch"}
    key = held.parting("phone", "watch")
    assert key is not None
    assert held.names[key].startswith(f"#{_AT} ")
    assert held.parting("phone", "phone") is None


def test_what_does_not_fit_is_refused(executed: Get, tmp_path: Path) -> None:
    lock, program = tmp_path / "lock.json", executed("plain_cnn")
    write_lock(lock, program.inspection.analysis, "phone", None)
    with pytest.raises(UsageError, match="no class 'watch'"):
        compare_lock(program.inspection.analysis, read_lock(lock), "watch")
    another = executed("counter").inspection.analysis
    with pytest.raises(UsageError, match="other inputs"):
        compare_lock(another, read_lock(lock), "phone")
    with pytest.raises(UsageError, match="other inputs"):
        write_lock(lock, another, "watch", read_lock(lock))
    body = json.loads(lock.read_text())
    for wrong in ("[]", "{", json.dumps(body | {"version": 9}), json.dumps(body | {"classes": [1]})):
        lock.write_text(wrong)
        with pytest.raises(ArtifactError):
            read_lock(lock)
    with pytest.raises(ArtifactError):
        read_lock(tmp_path / "none.json")
