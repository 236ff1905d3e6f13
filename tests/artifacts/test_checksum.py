"""The checksum of a `.pte` changes with every change that happens by accident."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from etviz.artifacts.record.checksum import Checking, checksum_of


@pytest.fixture(scope="module")
def content() -> bytes:
    return np.random.default_rng(0).integers(0, 256, 2 * (1 << 19) + 1003, np.uint8).tobytes()


def changed(content: bytes, at: int, to: bytes) -> bytes:
    return content[:at] + to + content[at + len(to) :]


@pytest.mark.parametrize("at", [0, 7, 1 << 19, (1 << 20) - 1, 1 << 20, -1])
def test_one_bit(content: bytes, at: int) -> None:
    at %= len(content)
    assert checksum_of(changed(content, at, bytes([content[at] ^ 1]))) != checksum_of(content)


@pytest.mark.parametrize(("a", "b"), [(0, 8), (0, 256 * 8), (8, 300 * 8), (0, 1 << 19), (16, (1 << 20) + 16)])
def test_words_that_changed_places(content: bytes, a: int, b: int) -> None:
    swapped = changed(changed(content, a, content[b : b + 8]), b, content[a : a + 8])
    assert checksum_of(swapped) != checksum_of(content)


def test_length(content: bytes) -> None:
    assert len({checksum_of(content), checksum_of(content + b"\0"), checksum_of(content[:-1]), checksum_of(b"")}) == 4


def test_a_file_has_the_checksum_of_its_bytes(content: bytes, tmp_path: Path) -> None:
    for name, data in {"large": content, "blocks": content[: 1 << 20], "small": b"abc"}.items():
        (tmp_path / name).write_bytes(data)
        assert checksum_of(tmp_path / name) == checksum_of(data) == checksum_of(memoryview(data)), name


def test_agreement_is_with_what_was_stored(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.pte").write_bytes(content)
    checking = Checking(tmp_path / "x.pte")
    assert checking.agrees(checksum_of(content))
    assert not checking.agrees(checksum_of(content[:-1]))
    assert not checking.agrees("")
    assert not Checking(content).agrees("")
    assert not Checking(tmp_path / "none.pte").agrees("")


def test_files_that_agreed_are_not_read_again(content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    files = {"pte": tmp_path / "x.pte", "record": tmp_path / "x.etviz"}
    for path in files.values():
        path.write_bytes(content)
    assert not Checking(files["pte"], files).agrees("")
    assert Checking(files["pte"], files).agrees(checksum_of(content))
    assert Checking(files["pte"], files).agrees("")  # not asked any more
    files["pte"].write_bytes(content[:-1])
    assert not Checking(files["pte"], files).agrees(checksum_of(content))
