"""Tensors of a debug buffer are the numbers that the program computed, in the right places."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest
import torch

from etviz.artifacts.etdump.debug_buffer import DebugBuffer
from etviz.artifacts.etdump.etdump import Layout, TensorRef, read_etdump
from etviz.artifacts.etdump.runtime_log import RuntimeLog
from etviz.errors import ArtifactError, FileChangedError

if TYPE_CHECKING:
    from pathlib import Path

    from tests.artifacts.conftest import Run


FLOAT32 = 6
BFLOAT16 = 15


def make(tmp_path: Path, content: bytes) -> DebugBuffer:
    path = tmp_path / "buffer.bin"
    path.write_bytes(content)
    return DebugBuffer(path)


def test_logged_program_outputs_are_what_the_caller_got(sound: Run):
    buffer = DebugBuffer(sound.buffer)
    executions = [block for block in read_etdump(sound.etdump).blocks if block.name == "Execute"]
    for block, outputs in zip(executions, sound.outputs, strict=True):
        logged = [event.value for event in block.debug if event.is_output]
        assert len(logged) == len(outputs)
        for ref, output in zip(logged, outputs, strict=True):
            assert torch.equal(buffer.tensor(ref), output)


def test_t03_channels_last_strides_are_honoured(runs: dict[str, Run]):
    run = runs["channels_last"]
    ref = read_etdump(run.etdump).blocks[-1].debug[0].value
    assert ref.layout.strides == (80, 1, 20, 4)
    tensor = DebugBuffer(run.buffer).tensor(ref)
    assert tensor.stride() == ref.layout.strides
    assert torch.equal(tensor.relu(), run.outputs[0][0])


def test_empty_and_scalar_tensors(runs: dict[str, Run]):
    run = runs["kinds"]
    buffer = DebugBuffer(run.buffer)
    refs = [event.value for event in read_etdump(run.etdump).blocks[-1].debug if event.is_output]
    empty, total = refs[0], refs[3]
    assert (empty.offset, empty.layout.numel) == (-1, 0)
    assert buffer.tensor(empty).shape == (0, 4)
    assert len(buffer.raw(empty)) == 0
    assert total.layout.sizes == ()
    assert buffer.tensor(total).item() == run.outputs[0][3].item()


def test_nothing_is_copied(runs: dict[str, Run]):
    run = runs["partly"]
    buffer = DebugBuffer(run.buffer)
    ref = next(read_etdump(run.etdump).tensor_refs())
    assert buffer.tensor(ref).data_ptr() == buffer.tensor(ref).data_ptr()


def test_a_value_has_a_storage_of_its_own(runs: dict[str, Run]):
    """torch copies the whole storage of what ``slice_scatter`` changes: of a cache, the values of all calls."""
    run = runs["partly"]
    buffer = DebugBuffer(run.buffer)
    refs = [ref for ref in read_etdump(run.etdump).tensor_refs() if ref.layout.nbytes]
    assert len(refs) > 1
    for ref in refs:
        value = buffer.tensor(ref)
        assert value.untyped_storage().nbytes() == value.nbytes
        again = buffer.view(value.dtype, value.shape, value.stride(), ref.offset)
        assert again.data_ptr() == value.data_ptr()
        assert again.untyped_storage().nbytes() == value.nbytes


def test_used_ends_with_the_last_tensor(runs: dict[str, Run]):
    run = runs["partly"]
    refs = list(read_etdump(run.etdump).tensor_refs())
    used = DebugBuffer(run.buffer).used(refs)
    last = max(refs, key=lambda ref: ref.offset)
    assert used == last.offset + last.layout.nbytes
    content = run.buffer.read_bytes()
    assert not any(content[used:])
    assert DebugBuffer(run.buffer).used([]) == 0


def test_bfloat16(tmp_path: Path):
    values = torch.tensor([1.5, -2.0, 3.25], dtype=torch.bfloat16)
    buffer = make(tmp_path, values.view(torch.uint8).numpy().tobytes())
    ref = TensorRef(Layout(BFLOAT16, (3,), (1,)), 0)
    assert ref.layout.dtype == "bfloat16"
    assert torch.equal(buffer.tensor(ref), values)


def test_truncated_buffer_names_the_tensor_that_is_missing(runs: dict[str, Run], tmp_path: Path):
    run = runs["partly"]
    refs = list(read_etdump(run.etdump).tensor_refs())
    used = DebugBuffer(run.buffer).used(refs)
    buffer = make(tmp_path, run.buffer.read_bytes()[: used - 1])
    with pytest.raises(ArtifactError, match=rf"has {used - 1} bytes but the tensor .* needs .*truncated") as caught:
        buffer.used(refs)
    assert caught.value.found == used - 1
    assert caught.value.expected == used


def test_never_filled_buffer_is_told_from_real_zeros(runs: dict[str, Run], tmp_path: Path):
    run = runs["partly"]
    refs = list(read_etdump(run.etdump).tensor_refs())
    assert not DebugBuffer(run.buffer).is_blank(refs)
    assert make(tmp_path, bytes(run.buffer.stat().st_size)).is_blank(refs)
    assert not make(tmp_path, bytes(64)).is_blank([])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"offset": -1}, "described but not logged"),
        ({"offset": 1 << 62}, "needs"),
        ({"sizes": (-2, 3)}, "sizes"),
        ({"strides": (-3, 1)}, "strides"),
        ({"strides": (0, 0)}, "strides"),
        ({"strides": (3,)}, "strides"),
        ({"strides": (30, 1)}, "strides"),
        ({"sizes": (1 << 62, 1 << 62)}, "sizes"),
        ({"sizes": (0, 1 << 62, 1 << 62)}, "sizes"),
        ({"scalar_type": 99}, r"unknown\(99\)"),
    ],
)
def test_impossible_tensors_are_refused(tmp_path: Path, change: dict[str, Any], words: str):
    buffer = make(tmp_path, bytes(range(256)))
    sound = TensorRef(Layout(FLOAT32, (2, 3), (3, 1)), 0)
    assert buffer.tensor(sound).shape == (2, 3)
    layout = {name: value for name, value in change.items() if name != "offset"}
    ref = TensorRef(dataclasses.replace(sound.layout, **layout), change.get("offset", 0))
    for read in (buffer.tensor, buffer.raw, lambda item: buffer.used([item])):
        with pytest.raises(ArtifactError, match=words):
            read(ref)


@pytest.mark.parametrize("code", [12, 13, 14, 22])
@pytest.mark.parametrize("sizes", [(2, 3), (0, 3)])
def test_types_that_torch_cannot_read_are_refused(tmp_path: Path, code: int, sizes: tuple[int, int]):
    buffer = make(tmp_path, bytes(range(256)))
    with pytest.raises(ArtifactError, match="which torch can't read"):
        buffer.tensor(TensorRef(Layout(code, sizes, (3, 1)), 0))


def test_a_value_of_a_file_that_changed_is_no_value_that_cannot_be_read(sound: Run, tmp_path: Path):
    path = tmp_path / "buffer.bin"
    path.write_bytes(sound.buffer.read_bytes())
    block = next(block for block in read_etdump(sound.etdump).blocks if block.name == "Execute")
    log = RuntimeLog(block, DebugBuffer(path))
    path.write_bytes(b"")
    with pytest.raises(FileChangedError, match="cut or written to"):
        _ = [log.values(instruction) for instruction in log.instructions]
    assert not log.problems
