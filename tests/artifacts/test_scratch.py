"""Temporary folders: their owner's only, gone with whoever made them, and left by nobody for long."""

from __future__ import annotations

import errno
import gc
import os
import signal
import stat
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import etviz
from etviz.artifacts import scratch
from etviz.artifacts.files import room_for, whole_file
from etviz.artifacts.scratch import Scratch
from etviz.errors import ArtifactError, ExecutionError
from etviz.pipeline.execute import execute
from tests.programs import Executed

Make = Callable[[str], Executed]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the system has temporary folders, here and in other processes."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    scratch._sweep.cache_clear()  # pyright: ignore[reportPrivateUsage]
    yield tmp_path
    scratch._sweep.cache_clear()  # pyright: ignore[reportPrivateUsage]


def aged(path: Path) -> Path:
    """As if it had been made an hour ago."""
    hour_ago = time.time() - 3600
    os.utime(path, (hour_ago, hour_ago))
    return path


def test_a_folder_goes_with_its_object(place: Path) -> None:
    folder = Scratch()
    assert stat.S_IMODE(Path(folder.name).stat().st_mode) == 0o700
    assert Path(folder.name).parent == place
    (Path(folder.name) / "tensors").write_text("secret")
    del folder
    gc.collect()
    with Scratch() as name:
        assert list(place.iterdir()) == [Path(name)]
    assert not list(place.iterdir())


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL], ids=lambda how: how.name)
def test_what_a_killed_process_left_is_swept(how: signal.Signals, place: Path, tmp_path: Path) -> None:
    """And what a living one has, or somebody else made, stays."""
    code = """
    import pathlib, signal, sys, time
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run under nohup
    from etviz.artifacts.files import room_for, whole_file
    from etviz.artifacts.scratch import Scratch
    kept = Scratch()
    with whole_file(sys.argv[1], "the report") as partial:
        partial.write_text("half")
        print(kept.name, partial.parent, flush=True)
        time.sleep(60)
    """
    reports = tmp_path / "reports"
    reports.mkdir()
    command = [sys.executable, "-c", textwrap.dedent(code), str(reports / "report.html")]
    mine = [place / name for name in ("etviz-tmp-mine", "etviz-demo")]
    for folder in mine:
        aged(folder).mkdir() if folder.exists() else folder.mkdir()
        aged(folder)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        left = [aged(Path(name)) for name in process.stdout.readline().split()]
        assert len(left) == 2

        def start_anew() -> None:
            scratch._sweep.cache_clear()  # pyright: ignore[reportPrivateUsage]
            Scratch().cleanup()
            with whole_file(reports / "report.html", "the report") as partial:
                partial.write_text("whole")

        start_anew()
        assert all(folder.exists() for folder in left)
        process.send_signal(how)
    assert all(folder.exists() for folder in left)
    start_anew()
    assert not any(folder.exists() for folder in left)
    assert all(folder.exists() for folder in mine)
    assert [path.name for path in reports.iterdir()] == ["report.html"]


def test_loading_sweeps(place: Path) -> None:
    """Whatever a process that was killed had; links, folders that others may look into, and files stay."""
    code = "import os, signal\nfrom etviz.artifacts.scratch import Scratch\nkept = [Scratch() for _ in range(3)]\n"
    killed = subprocess.run([sys.executable, "-c", code + "os.kill(os.getpid(), signal.SIGKILL)"], check=False)
    assert killed.returncode == -signal.SIGKILL
    left = sorted(aged(path) for path in place.iterdir())
    assert len(left) == 3
    for folder in left:
        (folder / "deep" / "deeper").mkdir(parents=True)
        (folder / "deep" / "link").symlink_to(place / "precious")
        aged(folder)
    (precious := place / "precious").mkdir(mode=0o700)
    (precious / "thesis").write_text("precious")
    (place / "etviz-tmp-link").symlink_to(precious)
    (place / "etviz-tmp-open").mkdir(mode=0o755)
    (place / "etviz-tmp-file").write_text("")
    (place / "etviz-tmp-file").chmod(0o700)
    stay = {"etviz-tmp-link", "etviz-tmp-open", "etviz-tmp-file", "precious"}
    for name in stay:
        os.utime(place / name, (0, 0), follow_symlinks=False)

    def load() -> set[str]:
        scratch._sweep.cache_clear()  # pyright: ignore[reportPrivateUsage]
        with pytest.raises(ArtifactError):
            etviz.load(place / "nothing.etdp")
        return {path.name for path in place.iterdir()}

    place.chmod(0o777)
    assert load() == {path.name for path in left} | stay, "anybody could have given them their names"
    place.chmod(0o1777)
    assert load() == stay
    assert (precious / "thesis").exists()


def test_a_fork_leaves_the_folder_of_its_parent(place: Path) -> None:
    code = """
    import os, pathlib, sys
    from etviz.artifacts.scratch import Scratch
    folder = Scratch()
    if not os.fork():
        sys.exit(0)  # with what is registered for the end
    os.wait()
    assert pathlib.Path(folder.name).exists()
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, timeout=60)
    assert not list(place.iterdir())


def _open_files() -> dict[str, int]:
    """How many descriptors, threads' children and temporary folders this process has."""
    gc.collect()
    children = [path.read_text().split() for path in Path("/proc/self/task").glob("*/children")]
    return {"descriptors": len(list(Path("/proc/self/fd").iterdir())), "children": sum(map(len, children))}


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_loading_again_and_again_leaves_nothing(executed: Make, place: Path) -> None:
    """No descriptor, no process, no file: of Inspections, of their widgets, and of files that are refused."""
    program = executed("counter")
    broken: Any = place / "broken.etdp"
    broken.write_bytes(program.path("etdump").read_bytes()[:100])

    def use() -> None:
        inspection = program.load()
        inspection.widget().close()
        inspection.summary()
        with pytest.raises(ArtifactError):
            etviz.load(broken)

    use()
    before = _open_files()
    for _ in range(5):
        use()
    assert _open_files() == before
    assert list(place.iterdir()) == [broken]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 kB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder], capture_output=True).returncode:
        pytest.skip("needs the right to mount")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


@pytest.mark.skipif(sys.platform != "linux", reason="mounts a small disk")
@pytest.mark.parametrize("full", ["workdir", "temporary files"])
def test_a_full_disk_is_one_clear_message(
    full: str, executed: Make, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing half remains, whether the program's own files have no room or those that go to and fro."""
    program = executed("encoder")
    if full != "workdir":
        monkeypatch.setattr(tempfile, "tempdir", str(small_disk))
    workdir = small_disk / "run" if full == "workdir" else small_disk.parent / "run"
    runs = [[torch.randn_like(value) for value in program.inputs] for _ in range(200)]
    with pytest.raises(ArtifactError, match=f"^{small_disk}.*: the disk is full.* Free some space"):
        execute(program.path("pte"), runs, workdir=workdir, debug_buffer_size=8 << 20)
    assert not [path for path in small_disk.rglob("*") if path.is_file() and path.stat().st_size]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_whoever_could_not_write_is_understood(code: int, tmp_path: Path) -> None:
    """Upstream's errors wrap it, or only repeat what the system says."""

    def wrap() -> None:
        try:
            raise OSError(code, os.strerror(code))
        except OSError as error:
            raise RuntimeError("a pass failed") from error

    with pytest.raises(ArtifactError, match=f"^{tmp_path}: the disk is full"), room_for(tmp_path):
        wrap()
    with pytest.raises(ArtifactError, match="TMPDIR"), room_for():
        raise ExecutionError("The child process failed", 1, [f"RuntimeError: {os.strerror(code)}"])
    with pytest.raises(RuntimeError, match="another"), room_for(tmp_path):
        raise RuntimeError("another")
