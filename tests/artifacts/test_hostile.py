"""Files that are cut or made to harm end in a value or in one of etviz's errors, quickly and within bounded memory.

Damage at random is tried in `tests/fuzz`.
"""

from __future__ import annotations

import resource
import struct
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from etviz.artifacts.etdump.debug_buffer import DebugBuffer
from etviz.artifacts.etdump.etdump import read_etdump
from etviz.artifacts.flatbuffer import FlatBuffer
from etviz.errors import ArtifactError, EtvizError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.artifacts.conftest import Run

SECONDS = 5


def outcome(path: Path, content: bytes, read: Callable[[Path], object]) -> Any:
    """Read damaged content; anything but a value or an EtvizError, or slowness, fails the test."""
    path.write_bytes(content)
    result: Any
    start = time.process_time()
    try:
        result = read(path)
    except EtvizError as error:
        result = error
    assert time.process_time() - start < SECONDS
    if isinstance(result, EtvizError):
        assert str(path) in str(result)
    return result


def test_debug_buffers_cut_anywhere(runs: dict[str, Run], tmp_path: Path) -> None:
    run = runs["partly"]
    content, refs = run.buffer.read_bytes(), list(read_etdump(run.etdump).tensor_refs())
    used = DebugBuffer(run.buffer).used(refs)
    for size in (1, *range(500, used, used // 30), used - 1, used, used + 1, len(content)):
        result = outcome(tmp_path / "cut.bin", content[:size], lambda path: DebugBuffer(path).used(refs))
        assert isinstance(result, ArtifactError) if size < used else result == used


def nested(depth: int, fan: int) -> bytes:
    """A file in which `depth` levels of tables each hold `fan` offsets to the same next table."""
    levels = []
    vtable = struct.pack("<HHHH", 6, 8, 4, 0)
    for _ in range(depth):
        table = struct.pack("<iI", 8, 4)
        size = 8 + 8 + 4 + 4 * fan
        offsets = [size - (8 + 8 + 4 + 4 * row) + 8 for row in range(fan)]
        levels.append(vtable + table + struct.pack("<I", fan) + struct.pack(f"<{fan}I", *offsets))
    return struct.pack("<I", 12) + b"TEST" + b"".join(levels) + vtable + struct.pack("<iI", 8, 0)


def test_shared_tables_cannot_multiply_the_work() -> None:
    def descend() -> None:
        tables = FlatBuffer(nested(8, 1000), "bomb", "test file", "no advice").root()
        for _ in range(8):
            tables = tables.vectors(0).tables()

    with pytest.raises(ArtifactError, match="more content than the file can hold"):
        descend()


def test_table_that_contains_itself_is_read_to_the_schemas_depth() -> None:
    loop = struct.pack("<I4sHHHHiII", 16, b"TEST", 6, 8, 4, 0, 8, 0xFFFFFFFC, 0)
    tables = FlatBuffer(loop, "loop", "test file", "no advice").root()
    with pytest.raises(ArtifactError, match="outside of the file"):
        tables.table(0)


def test_huge_lengths_cost_no_memory(runs: dict[str, Run], tmp_path: Path) -> None:
    content = runs["partly"].etdump.read_bytes()
    words = np.frombuffer(content[: len(content) // 4 * 4], "<u4")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for row in range(3, len(words), 5):
        changed = words.copy()
        changed[row] = 0x7FFFFFFF
        outcome(tmp_path / "huge.etdp", changed.tobytes() + content[len(words) * 4 :], read_etdump)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024
