"""A file that etviz writes stands under its name whole or not at all, and what stood there before is kept till then."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from etviz.artifacts.saving import whole_file
from etviz.errors import ArtifactError


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
        from etviz.artifacts.saving import whole_file
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
        from etviz.artifacts.saving import whole_file
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
