"""The checksum of a `.pte` changes with every change that happens by accident."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from etviz import native
from etviz.artifacts.checksum import Checking, checksum_of


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


@pytest.mark.parametrize("compiled", [True, False])
def test_a_file_has_the_checksum_of_its_bytes(
    content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiled: bool
) -> None:
    if not compiled:
        monkeypatch.setattr("etviz.artifacts.checksum.table_sums", lambda *_: None)
    elif not native.available():
        pytest.skip("there was no C compiler when etviz was installed")
    many = content * 130  # more tables than are read at once
    for name, data in {"few": content, "many": many, "whole": many[: 260 << 19], "small": b"abc", "none": b""}.items():
        (tmp_path / name).write_bytes(data or b" ")
        assert checksum_of(tmp_path / name) == checksum_of(data or b" "), name


def test_files_and_records_of_version_1(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.pte").write_bytes(content)
    assert checksum_of(tmp_path / "x.pte") == checksum_of(content)
    checking = Checking(tmp_path / "x.pte")
    assert checking.agrees(checksum_of(content))
    assert checking.agrees(f"sha256:{hashlib.sha256(content).hexdigest()}")
    assert not checking.agrees(f"sha256:{'0' * 64}")
    assert not checking.agrees("")
    assert not Checking(content).agrees("")
    assert not Checking(tmp_path / "none.pte").agrees("")
