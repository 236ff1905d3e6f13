"""The bits of a baseline: one file for all classes of devices names the instruction at which a run or a class parts."""

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
from etviz.gate import Rules, check, read_baseline, write_baseline
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


def test_classes_of_devices_in_one_baseline(executed: Get, other: Path, tmp_path: Path) -> None:
    path, folder = tmp_path / "baseline.json", executed("plain_cnn").folder
    assert _run("check", folder, "--write-baseline", path, "--device", "phone")[0] == 0
    assert _run("check", folder, "--baseline", path, "--device", "phone")[0] == 0
    status, said = _run("check", other, "--baseline", path, "--device", "phone", "--no-outputs")
    assert status == 1
    assert f"parts from phone at #{_AT} " in said
    assert "1 of" in said
    _run("check", other, "--write-baseline", path, "--device", "watch", "--no-outputs")
    status, said = _run("check", folder, "--baseline", path, "--device", "phone")
    assert status == 0
    assert f"parts from watch at #{_AT} " in said
    stored = read_baseline(path)
    assert set(stored.bits) == {"phone", "watch"}
    parted = stored.parting(stored.bits["phone"], "watch")
    assert parted is not None
    assert parted[0].startswith(f"#{_AT} ")
    assert parted[1] == 1
    assert stored.parting(stored.bits["phone"], "phone") is None
    _run("check", folder, "--write-baseline", path)
    assert read_baseline(path).bits == {}


def test_what_does_not_fit_is_refused(executed: Get, tmp_path: Path) -> None:
    path, analysis = tmp_path / "baseline.json", executed("plain_cnn").inspection.analysis
    write_baseline(analysis, path, "phone")
    with pytest.raises(UsageError, match="no bits of the class 'watch'"):
        check(analysis, Rules(), read_baseline(path), "watch")
    another = executed("counter").inspection.analysis
    with pytest.raises(UsageError, match="other inputs"):
        check(another, Rules(), read_baseline(path), "phone")
    with pytest.raises(UsageError, match="other inputs"):
        write_baseline(another, path, "watch", read_baseline(path))
    with pytest.raises(UsageError, match="--device needs --baseline"):
        _run("check", executed("plain_cnn").folder, "--device", "phone")
    body = json.loads(path.read_text())
    for wrong in ("[]", "{", json.dumps(body | {"version": 9}), json.dumps(body | {"bits": [1]})):
        path.write_text(wrong)
        with pytest.raises(ArtifactError):
            read_baseline(path)
    with pytest.raises(ArtifactError):
        read_baseline(tmp_path / "none.json")
