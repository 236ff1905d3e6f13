"""A file that etviz writes stands under its name whole or not at all, and what stood there before is kept till then."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from etviz.artifacts.saving import whole_file
from etviz.errors import ArtifactError

NOBODY = 65534


@pytest.fixture
def small_disk() -> Iterator[None]:
    """No file can grow beyond 4 kB: writing fails in the middle, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture
def ordinary_user() -> Iterator[None]:
    """Permissions mean nothing to root."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(NOBODY)
    yield
    os.seteuid(user)


def test_the_file_is_there_at_the_end_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    target.write_text("before")
    with whole_file(target, "the report") as partial:
        partial.write_text("after")
        assert target.read_text() == "before"
    assert target.read_text() == "after"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.usefixtures("small_disk")
def test_a_full_disk_leaves_what_was_there(tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    target.write_text("before")
    with (
        pytest.raises(ArtifactError, match=r"report\.html: the report can't be written"),
        whole_file(target, "the report") as partial,
    ):
        partial.write_bytes(bytes(100_000))
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


@pytest.mark.usefixtures("ordinary_user")
def test_a_folder_without_permission_is_named() -> None:
    target = Path("/etvizreport.html")
    with (
        pytest.raises(ArtifactError, match=r"/etvizreport\.html: no permission to write into /"),
        whole_file(target, "the report"),
    ):
        pytest.fail("there was nothing to write into")


@pytest.mark.parametrize(
    ("name", "problem"), [(".", "this is a folder"), ("no/such/report.html", "there is no folder .*no/such")]
)
def test_a_name_that_no_file_can_have_is_refused(tmp_path: Path, name: str, problem: str) -> None:
    with pytest.raises(ArtifactError, match=problem), whole_file(tmp_path / name, "the report"):
        pytest.fail("there was nothing to write into")
