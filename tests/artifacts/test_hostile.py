"""Damaged files end in a value or in one of etviz's errors, quickly and within bounded memory."""

from __future__ import annotations

import contextlib
import os
import resource
import struct
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from etviz.artifacts.bundle import read_bundled_program
from etviz.artifacts.debug_buffer import DebugBuffer
from etviz.artifacts.etdump import read_etdump
from etviz.artifacts.flatbuffer import FlatBuffer
from etviz.artifacts.lost_values import restore_lost_values
from etviz.artifacts.program import debug_buffer_bytes, read_program
from etviz.errors import ArtifactError, EtvizError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tests.artifacts.conftest import Bundle, Run

EXAMPLES = int(os.environ.get("ETVIZ_FUZZ_EXAMPLES", "3000")) // 25
SECONDS = 5
# Values that stand for lengths, offsets, sizes and signs gone wrong.
WORDS = (
    0,
    1,
    4,
    7,
    255,
    256,
    0x7FFF,
    0x8000,
    0xFFFF,
    1 << 24,
    0x7FFFFFFF,
    0x80000000,
    0xFFFFFFF8,
    0xFFFFFFFF,
)

fuzz = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize="ETVIZ_FUZZ_EXAMPLES" not in os.environ,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

positions = st.integers(0, 1 << 20)
edits = st.one_of(
    st.tuples(st.just("byte"), positions, st.integers(0, 255)),
    st.tuples(st.just("word"), positions, st.sampled_from(WORDS)),
    st.tuples(st.just("word"), positions, st.integers(0, 4096)),
    st.tuples(st.just("copy"), positions, positions),
    st.tuples(st.just("cut"), positions, st.just(0)),
)
changes = st.lists(edits, min_size=1, max_size=6)


def damage(content: bytes, changes: Sequence[tuple[str, int, int]]) -> bytes:
    """Apply edits to the content of a file; positions wrap around."""
    data = bytearray(content)
    for kind, position, value in changes:
        at = position % max(len(data), 1)
        if kind == "byte":
            data[at : at + 1] = bytes([value])
        elif kind == "word":
            at -= at % 4
            data[at : at + 4] = struct.pack("<I", value)
        elif kind == "copy":
            source = value % max(len(data), 1)
            data[at : at + 8] = data[source : source + 8]
        else:
            del data[at:]
    return bytes(data)


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


def read_dump_and_tensors(buffer: DebugBuffer) -> Callable[[Path], object]:
    def read(path: Path) -> int:
        count = 0
        for ref in read_etdump(path).tensor_refs():
            with contextlib.suppress(ArtifactError):
                count += buffer.tensor(ref).size
        return count

    return read


@pytest.mark.fuzz
@pytest.mark.parametrize("name", ["partly", "kinds", "half"])
@fuzz
@given(changes=changes)
def test_damaged_etdumps(runs: dict[str, Run], tmp_path: Path, name: str, changes: list[tuple[str, int, int]]) -> None:
    run = runs[name]
    read = read_dump_and_tensors(DebugBuffer(run.buffer))
    outcome(tmp_path / "damaged.etdp", damage(run.etdump.read_bytes(), changes), read)


@pytest.mark.fuzz
@pytest.mark.parametrize("name", ["partly", "branches"])
@fuzz
@given(changes=changes)
def test_damaged_programs(runs: dict[str, Run], tmp_path: Path, name: str, changes: list[tuple[str, int, int]]) -> None:
    def read(path: Path) -> list[int]:
        program = read_program(path)
        return [debug_buffer_bytes(program, method.name) for method in program.methods]

    outcome(tmp_path / "damaged.pte", damage(runs[name].pte.read_bytes(), changes), read)


@pytest.mark.fuzz
@pytest.mark.parametrize("damaged", ["pte", "etdump"])
@fuzz
@given(changes=changes)
def test_restoring_values_from_damaged_files(
    runs: dict[str, Run], tmp_path: Path, damaged: str, changes: list[tuple[str, int, int]]
) -> None:
    run = runs["half"]
    buffer = DebugBuffer(run.buffer)

    def read(path: Path) -> int:
        dump = read_etdump(path if damaged == "etdump" else run.etdump)
        program = read_program(path if damaged == "pte" else run.pte)
        method = program.methods[0] if program.methods else None
        restored = restore_lost_values(dump, method, buffer) if method else dump
        return sum(event.restored for block in restored.blocks for event in block.debug)

    outcome(tmp_path / "damaged.bin", damage(getattr(run, damaged).read_bytes(), changes), read)


@pytest.mark.fuzz
@fuzz
@given(changes=changes)
def test_damaged_bundles(bundle: Bundle, tmp_path: Path, changes: list[tuple[str, int, int]]) -> None:
    def read(path: Path) -> int:
        bundled = read_bundled_program(path)
        return len(bundled.program().methods)

    outcome(tmp_path / "damaged.bpte", damage(bundle[0].read_bytes(), changes), read)


@pytest.mark.fuzz
@fuzz
@given(size=st.integers(1, 1 << 17))
def test_debug_buffers_cut_anywhere(runs: dict[str, Run], tmp_path: Path, size: int) -> None:
    run = runs["partly"]
    refs = list(read_etdump(run.etdump).tensor_refs())
    used = DebugBuffer(run.buffer).used(refs)
    result = outcome(tmp_path / "cut.bin", run.buffer.read_bytes()[:size], lambda path: DebugBuffer(path).used(refs))
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
