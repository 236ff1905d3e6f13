"""Folders, archives and logs give the artifacts that are in them, or say what is wrong."""

from __future__ import annotations

import base64
import gzip
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import etviz
from etviz.artifacts.collection import collect, is_collection
from etviz.cli.app import app
from etviz.errors import ArtifactError, UsageError
from tests.artifacts.test_damaged import log_of
from tests.programs import FILES, Executed

Make = Callable[[str], Executed]


@pytest.fixture
def sent(executed: Make, tmp_path: Path) -> dict[str, Path]:
    """The files of one run in every form in which people send them."""
    folder = executed("plain_cnn").folder
    named = tmp_path / "named"
    named.mkdir()
    other = {"etdump": "etdump.in", "etrecord": "cnn_etrecord.bin", "debug_buffer": "debug_output.bin"}
    for kind, name in FILES.items():
        shutil.copy(folder / name, named / other.get(kind, name))
    packed = tmp_path / "packed"
    packed.mkdir()
    for name in FILES.values():
        (packed / f"{name}.gz").write_bytes(gzip.compress((folder / name).read_bytes()))
    with zipfile.ZipFile(tmp_path / "artifacts.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name in FILES.values():
            archive.write(folder / name, f"build/out/{name}")
    return {"folder": folder, "other names": named, "gzip files": packed, "zip": tmp_path / "artifacts.zip"}


@pytest.mark.parametrize("form", ["folder", "other names", "gzip files", "zip"])
def test_every_form_gives_the_same(form: str, sent: dict[str, Path], executed: Make) -> None:
    found = etviz.load(sent[form], inputs=executed("plain_cnn").inputs)
    assert found.gaps.rmse.equals(executed("plain_cnn").inspection.gaps.rmse)
    ended = CliRunner().invoke(app, ["info", str(sent[form]), "--json"])
    assert ended.exit_code == 0, ended.output


def test_log_of_a_microcontroller(executed: Make, tmp_path: Path) -> None:
    made = executed("plain_cnn")
    log = tmp_path / "uart.log"
    log.write_text(log_of(made.folder))
    others: dict[str, Any] = {kind: made.path(kind) for kind in ("etrecord", "pte", "record")}
    found = etviz.load(log, **others, inputs=made.inputs, source_time_scale="auto")
    assert found.gaps.rmse.equals(made.inspection.gaps.rmse)
    ticks = found.gaps.latency_ms / made.inspection.gaps.latency_ms
    assert ticks.to_numpy() == pytest.approx(1e6)
    packed = tmp_path / "uart.log.gz"
    packed.write_bytes(gzip.compress(log.read_bytes()))
    assert set(collect(packed).paths) == {"etdump", "debug_buffer"}
    assert collect(packed).cycles


@pytest.mark.parametrize("name", [".", "..", "x" * 300])
def test_names_that_no_file_can_have(name: str, tmp_path: Path) -> None:
    """They are left out, like links."""
    text = base64.b64encode(b"x" * 64).decode()
    (tmp_path / "uart.log").write_text(f"echo {text} | base64 -d >{name}\necho {text} | base64 -d >etdump.bin")
    with zipfile.ZipFile(tmp_path / "sent.zip", "w") as archive:
        archive.writestr(name, b"x")
        archive.writestr("etdump.bin", b"x")
    for sent in ("uart.log", "sent.zip"):
        assert list(collect(tmp_path / sent).paths) == ["etdump"]


def test_archives_do_no_harm(tmp_path: Path) -> None:
    inside = tmp_path / "a" / "b"
    inside.mkdir(parents=True)
    bad = inside / "bad.zip"
    with zipfile.ZipFile(bad, "w") as archive:
        archive.writestr("../../escaped.etdp", b"x" * 64)
    found = collect(bad)
    assert found.paths["etdump"].parent != tmp_path
    assert not list(tmp_path.rglob("escaped*"))


def test_what_is_missing_or_there_twice_is_said(executed: Make, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="no ETDump in it"):
        etviz.load(tmp_path)
    for name in ("a.etdp", "b.etdp"):
        shutil.copy(executed("plain_cnn").path("etdump"), tmp_path / name)
    with pytest.raises(UsageError, match=r"several files could be meant \(a\.etdp, b\.etdp\)"):
        etviz.load(tmp_path)
    assert not is_collection(tmp_path / "a.etdp")
    assert not is_collection(executed("plain_cnn").path("etrecord"))


def test_files_packed_with_gzip_share_what_they_may_unpack_to(tmp_path: Path) -> None:
    packed = gzip.compress(bytes(40 << 20))
    for name in ("notes.txt.gz", "other.txt.gz", "model.pte.gz"):
        (tmp_path / name).write_bytes(packed)
    assert set(collect(tmp_path).paths) == {"pte"}, "what is no artifact is not unpacked"
    (tmp_path / "etdump.etdp.gz").write_bytes(packed)
    with pytest.raises(ArtifactError, match="it unpacks to more than"):
        collect(tmp_path)
