"""Folders, archives and logs give the artifacts that are in them, or say what is wrong."""

from __future__ import annotations

import base64
import copy
import gzip
import shutil
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import etviz
from etviz.artifacts.collection import collect, is_collection
from etviz.artifacts.record.etrecord import ETRecord
from etviz.cli.app import app
from etviz.errors import ArtifactError, UsageError
from tests.programs import FILES, Executed

Make = Callable[[str], Executed]


def _log(folder: Path) -> str:
    """What an Arm runner without a file system prints."""
    parts = ["I [executorch:arm_executor_runner.cpp] done", ""]
    for name, source in {"etdump.bin": "etdump.etdp", "debug_buffer.bin": "debug_buffer.bin"}.items():
        text = base64.encodebytes((folder / source).read_bytes()).decode()
        parts += [f'echo "{text}" | base64 -d >{name}', "#----"]
    return "\n".join([*parts, "EXITTHESIM"])


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
    log.write_text(_log(made.folder))
    others: dict[str, Any] = {kind: made.path(kind) for kind in ("etrecord", "pte", "record")}
    found = etviz.load(log, **others, inputs=made.inputs, source_time_scale="auto")
    assert found.gaps.rmse.equals(made.inspection.gaps.rmse)
    ticks = found.gaps.latency_ms / made.inspection.gaps.latency_ms
    assert ticks.to_numpy() == pytest.approx(1e6)
    packed = tmp_path / "uart.log.gz"
    packed.write_bytes(gzip.compress(log.read_bytes()))
    assert set(collect(packed).paths) == {"etdump", "debug_buffer"}
    assert collect(packed).cycles


CUTS = {
    "in the middle of the last block": lambda text: text[: text.rindex(" | base64")][:-500],
    "in the middle of the first block": lambda text: text[:200] + text[text.index("#----") :],
    "of one character": lambda text: text.replace('" | base64 -d >etdump.bin', 'A" | base64 -d >etdump.bin'),
    "before any block": lambda text: text.split("echo")[0] + "base64",
}


@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
def test_cut_log_is_said(cut: Callable[[str], str], executed: Make, tmp_path: Path) -> None:
    log = tmp_path / "uart.log"
    log.write_text(cut(_log(executed("plain_cnn").folder)))
    with pytest.raises(ArtifactError, match=r"uart\.log.*(cut off|holds no base64 block)"):
        etviz.load(log)


@pytest.mark.parametrize("part", ["echo AAAA ", "echo" + " " * 9, "echo AAAA | ", 'echo "AAAAAAAAAAAAAAAA'])
def test_a_log_without_an_end_is_read_once(part: str, tmp_path: Path) -> None:
    """An expression that looks for the end from each `echo` takes an hour for this one."""
    log = tmp_path / "uart.log"
    log.write_text("base64 " + part * 200_000)
    start = time.process_time()
    with pytest.raises(ArtifactError, match=r"uart\.log"):
        collect(log)
    assert time.process_time() - start < 5


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
    with zipfile.ZipFile(bad, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("etdump.etdp", bytes(100 << 20))
    with pytest.raises(ArtifactError, match="unpacks to more than"):
        collect(bad)
    (inside / "bomb.gz").write_bytes(gzip.compress(bytes(100 << 20)))
    with pytest.raises(ArtifactError, match="unpacks to more than"):
        collect(inside / "bomb.gz")
    bad.write_bytes(bad.read_bytes()[:100])
    with pytest.raises(ArtifactError, match="the zip archive is damaged"):
        collect(bad)
    (inside / "bomb.gz").write_bytes(gzip.compress(b"abc" * 1000)[:-20])
    with pytest.raises(ArtifactError, match="the gzip file is damaged"):
        collect(inside / "bomb.gz")
    with zipfile.ZipFile(bad, "w") as archive:
        archive.writestr("a/etdump.etdp", b"1")
        archive.writestr("b/etdump.etdp", b"2")
    with pytest.raises(ArtifactError, match=r"two of its files are called etdump\.etdp"):
        collect(bad)


def _in_directory(content: bytes, offset: int, *number: int) -> bytes:
    """A zip archive with other bytes in each entry of its directory."""
    found, at = bytearray(content), 0
    while (at := found.find(b"PK\x01\x02", at)) >= 0:
        found[at + offset : at + offset + len(number)] = bytes(number)
        at += 4
    return bytes(found)


DAMAGED: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "packed as bzip2": (lambda content: _in_directory(content, 10, 12, 0), "packed in an unusual way"),
    "directory elsewhere": (lambda content: content[:-6] + b"\xff" * 4 + content[-2:], "damaged"),
    "members elsewhere": (lambda content: _in_directory(content, 42, 0xF0, 0xFF, 0xFF, 0xFF), "damaged"),
    "cut": (lambda content: content[: len(content) // 2], ""),
}


@pytest.mark.parametrize("how", DAMAGED)
def test_a_damaged_archive_is_named(how: str, executed: Make, tmp_path: Path) -> None:
    change, words = DAMAGED[how]
    with zipfile.ZipFile(tmp_path / "sent.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name in FILES.values():
            archive.write(executed("plain_cnn").folder / name, name)
    (tmp_path / "sent.zip").write_bytes(change((tmp_path / "sent.zip").read_bytes()))
    with pytest.raises(ArtifactError, match=f"sent.zip: .*{words}"):
        etviz.load(tmp_path / "sent.zip")


def test_an_archive_of_very_many_files_takes_no_time(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "sent.zip", "w") as archive:
        for number in range(10_001):
            archive.writestr(str(number), b"")
    start = time.process_time()
    with pytest.raises(ArtifactError, match="more than 10000 files"):
        collect(tmp_path / "sent.zip")
    assert time.process_time() - start < 0.5


def test_what_is_missing_or_there_twice_is_said(executed: Make, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="no ETDump in it"):
        etviz.load(tmp_path)
    for name in ("a.etdp", "b.etdp"):
        shutil.copy(executed("plain_cnn").path("etdump"), tmp_path / name)
    with pytest.raises(UsageError, match=r"several files could be meant \(a\.etdp, b\.etdp\)"):
        etviz.load(tmp_path)
    assert not is_collection(tmp_path / "a.etdp")
    assert not is_collection(executed("plain_cnn").path("etrecord"))


def test_etrecord_that_was_packed_again_is_named(executed: Make, tmp_path: Path) -> None:
    made = executed("plain_cnn")
    again = tmp_path / "etrecord.bin"
    with zipfile.ZipFile(made.path("etrecord")) as old, zipfile.ZipFile(again, "w", zipfile.ZIP_DEFLATED) as new:
        for info in old.infolist():
            new.writestr(info.filename, old.read(info))
    with pytest.raises(ArtifactError, match=r"etrecord\.bin: the ETRecord was packed again.*zip -0"):
        etviz.load(made.path("etdump"), etrecord=again)


def _overlapped(path: Path, count: int) -> None:
    """A zip archive whose directory names one member many times."""
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("large", bytes(1 << 16))
        for number in range(count):
            again = copy.copy(archive.getinfo("large"))
            again.filename = f"large {number}"
            archive.filelist.append(again)


def test_members_that_overlap_are_refused(executed: Make, tmp_path: Path) -> None:
    """Checking 100 MB that thousands of members share would take hours."""
    shutil.copy(executed("plain_cnn").path("etrecord"), tmp_path / "etrecord.bin")
    _overlapped(tmp_path / "etrecord.bin", 1000)
    with pytest.raises(ArtifactError, match=r"etrecord\.bin: .*members overlap"):
        ETRecord(tmp_path / "etrecord.bin")
    _overlapped(tmp_path / "sent.zip", 1000)
    with pytest.raises(ArtifactError, match=r"sent\.zip: its files overlap"):
        collect(tmp_path / "sent.zip")


def test_files_packed_with_gzip_share_what_they_may_unpack_to(tmp_path: Path) -> None:
    packed = gzip.compress(bytes(40 << 20))
    for name in ("notes.txt.gz", "other.txt.gz", "model.pte.gz"):
        (tmp_path / name).write_bytes(packed)
    assert set(collect(tmp_path).paths) == {"pte"}, "what is no artifact is not unpacked"
    (tmp_path / "etdump.etdp.gz").write_bytes(packed)
    with pytest.raises(ArtifactError, match="it unpacks to more than"):
        collect(tmp_path)
