"""A file that etviz writes stands under its name whole or not at all, and what stood there before is kept till then."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from etviz.artifacts.files import whole_file, whole_files, whole_folder
from etviz.errors import ArtifactError, UsageError


def run_limited(code: str, *arguments: object) -> str:
    """Run code in a process of its own, so that its limits are not the test session's; returns what it printed."""
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def test_the_file_is_there_at_the_end_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    target.write_text("before")
    with whole_file(target, "the report") as partial:
        partial.write_text("after")
        assert target.read_text() == "before"
    assert target.read_text() == "after"
    assert list(tmp_path.iterdir()) == [target]


def test_a_full_disk_leaves_what_was_there(tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    target.write_text("before")
    said = run_limited(
        """
        import resource, sys
        from etviz.artifacts.files import whole_file, whole_files, whole_folder
        from etviz.errors import ArtifactError

        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))  # writing fails in the middle, as on a full disk
        try:
            with whole_file(sys.argv[1], "the report") as partial:
                partial.write_bytes(bytes(100_000))
        except ArtifactError as error:
            print(error)
        """,
        target,
    )
    assert "report.html: the report can't be written" in said
    assert target.read_text() == "before"
    assert list(tmp_path.iterdir()) == [target]


def test_an_interrupt_leaves_nothing_behind(tmp_path: Path) -> None:
    def interrupted() -> None:
        with whole_file(tmp_path / "report.html", "the report") as partial:
            partial.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_without_permission_is_named() -> None:
    said = run_limited(
        """
        import os
        from etviz.artifacts.files import whole_file, whole_files, whole_folder
        from etviz.errors import ArtifactError

        if os.geteuid() == 0:
            os.seteuid(65534)  # permissions mean nothing to root
        try:
            with whole_file("/etvizreport.html", "the report"):
                print("there was nothing to write into")
        except ArtifactError as error:
            print(error)
        """
    )
    assert "/etvizreport.html: no permission to write into /" in said


@pytest.mark.parametrize(
    ("name", "problem"), [(".", "this is a folder"), ("no/such/report.html", "there is no folder .*no/such")]
)
def test_a_name_that_no_file_can_have_is_refused(tmp_path: Path, name: str, problem: str) -> None:
    with pytest.raises(ArtifactError, match=problem), whole_file(tmp_path / name, "the report"):
        pytest.fail("there was nothing to write into")


def test_a_file_that_is_not_whole_yet_is_for_its_owners_eyes(tmp_path: Path) -> None:
    with whole_file(tmp_path / "report.html", "the report") as partial:
        assert stat.S_IMODE(partial.parent.stat().st_mode) == 0o700
        assert partial.parent.parent == tmp_path
        partial.write_text("half")


def test_a_reader_that_goes_away_is_no_full_disk(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    def read_a_byte() -> None:
        with pipe.open("rb", buffering=0) as file:
            file.read(1)

    reader = threading.Thread(target=read_a_byte, daemon=True)
    reader.start()
    with pytest.raises(ArtifactError, match="whoever read the report went away"), whole_file(pipe, "the report") as new:
        new.write_bytes(bytes(1 << 20))
    reader.join()


def test_a_link_in_a_folder_of_others_is_replaced_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("not ours")
    (tmp_path / "report.html").symlink_to(tmp_path / "elsewhere")
    with whole_file(tmp_path / "report.html", "the report", through=False) as partial:
        partial.write_text("ours")
    assert (tmp_path / "elsewhere").read_text() == "not ours"
    assert (tmp_path / "report.html").read_text() == "ours"


def fail_half_way(path: Path) -> None:
    path.write_text("half")
    raise KeyError


def test_files_of_one_run_replace_those_of_the_one_before(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("before")
    with (tmp_path / "a").open() as mapped:
        with whole_files(tmp_path) as fresh:
            (fresh / "a").write_text("after")
            (fresh / "b").write_text("new")
        assert mapped.read() == "before"
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a": "after", "b": "new"}
    with pytest.raises(KeyError), whole_files(tmp_path) as fresh:
        fail_half_way(fresh / "a")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a": "after", "b": "new"}
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"workdir .*file can't be written to"), whole_files(tmp_path / "file"):
        pytest.fail("there was nothing to write into")


def test_a_folder_replaces_a_folder_or_stays_away(tmp_path: Path) -> None:
    target = tmp_path / "capsule"
    for content in ("first", "second"):
        with whole_folder(target, "the capsule") as fresh:
            (fresh / "file").write_text(content)
        assert (target / "file").read_text() == content
    with pytest.raises(KeyError), whole_folder(target, "the capsule") as fresh:
        fail_half_way(fresh / "file")
    assert (target / "file").read_text() == "second"
    assert list(tmp_path.iterdir()) == [target]
    nowhere = whole_folder(tmp_path / "no" / "folder", "the capsule")
    with pytest.raises(ArtifactError, match="the capsule can't be written"), nowhere:
        pytest.fail("there was nothing to write into")


def _write(target: Path, text: str) -> None:
    with whole_file(target, "the report") as partial:
        partial.write_text(text)


def test_a_link_stays_and_its_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    file, link, chain = tmp_path / "runs" / "report.html", tmp_path / "latest.html", tmp_path / "chain.html"
    link.symlink_to("runs/report.html")
    chain.symlink_to(link)
    _write(link, "first")  # a link to what is not there yet
    assert link.is_symlink()
    assert file.read_text() == "first"
    file.chmod(0o600)
    _write(chain, "second")
    assert chain.is_symlink()
    assert link.is_symlink()
    assert file.read_text() == "second"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["chain.html", "latest.html", "report.html", "runs"]


def test_links_in_a_circle_are_refused(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.symlink_to(other)
    other.symlink_to(one)
    with pytest.raises(ArtifactError, match=r"one: the report can't be written"):
        _write(one, "text")


def test_a_device_is_written_into(tmp_path: Path) -> None:
    """As root, replacing it would take the device from every process of the machine."""
    if os.geteuid() == 0:
        null = tmp_path / "null"
        os.mknod(null, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    else:
        null = Path(os.devnull)
    _write(null, "text")
    assert stat.S_ISCHR(null.stat().st_mode)


def test_a_pipe_is_written_into(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE) as reader:
        try:
            _write(pipe, "text")
            assert reader.communicate(timeout=20)[0] == b"text"
        finally:
            reader.kill()
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_what_a_shell_names_is_written_into(tmp_path: Path) -> None:
    """A descriptor of the process, in each of its names; a file behind it keeps what was written before."""
    out = tmp_path / "out"
    code = """
    import sys
    from etviz.artifacts.files import whole_file

    for name in sys.argv[1:]:
        with whole_file(name, "the report") as partial:
            partial.write_text(name)
    """
    shown = run_limited(code, "/dev/stdout", "/proc/self/fd/1", "/dev/fd/1")
    assert shown == "/dev/stdout/proc/self/fd/1/dev/fd/1"
    with out.open("w") as file:
        file.write("before ")
        file.flush()
        subprocess.run([sys.executable, "-c", textwrap.dedent(code), "/dev/stdout"], stdout=file, check=True)
    assert out.read_text() == "before /dev/stdout"


def test_a_file_that_may_not_be_written_is_refused(tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    target.write_text("before")
    target.chmod(0o444)
    tmp_path.chmod(0o777)
    code = """
    import os, sys
    from etviz.artifacts.files import whole_file
    from etviz.errors import ArtifactError

    if os.geteuid() == 0:
        os.chmod(os.path.dirname(os.path.dirname(sys.argv[1])), 0o755)
        os.chmod(os.path.dirname(os.path.dirname(os.path.dirname(sys.argv[1]))), 0o755)
        os.seteuid(65534)
    try:
        with whole_file(sys.argv[1], "the report"):
            print("it was opened")
    except ArtifactError as error:
        print(error)
    """
    assert "no permission to write to it" in run_limited(code, target)
    assert target.read_text() == "before"
