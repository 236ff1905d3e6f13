"""T9: 16-bit floats that the ETDump lost are found in the debug buffer, or their absence is explained."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from etviz.artifacts.etdump.debug_buffer import DebugBuffer
from etviz.artifacts.etdump.etdump import DebugEvent, ETDump, read_etdump
from etviz.artifacts.etdump.lost_values import restore_lost_values
from etviz.artifacts.program.program import read_program

if TYPE_CHECKING:
    from pathlib import Path

    from tests.artifacts.conftest import Run


def restore(run: Run, program: Path | None = None, buffer: Path | None = None) -> ETDump:
    method = read_program(program or run.pte).method()
    return restore_lost_values(read_etdump(run.etdump), method, DebugBuffer(buffer or run.buffer))


def tensor(buffer: DebugBuffer, event: DebugEvent) -> torch.Tensor:
    raw = bytearray(buffer.raw(event.value))
    dtype = getattr(torch, event.value.layout.dtype)
    return torch.frombuffer(raw, dtype=dtype).as_strided(event.value.layout.sizes, event.value.layout.strides)


@pytest.mark.parametrize("name", ["half", "bfloat16", "all_half", "only_half"])
def test_t09_every_program_output_is_there_again(runs: dict[str, Run], name: str) -> None:
    run = runs[name]
    dump, buffer = restore(run), DebugBuffer(run.buffer)
    executions = [block for block in dump.blocks if block.name == "Execute"]
    for block, outputs in zip(executions, run.outputs, strict=True):
        logged = [event for event in block.debug if event.is_output]
        assert any(event.restored for event in logged)
        assert len(logged) == len(outputs)
        for event, output in zip(logged, outputs, strict=True):
            assert torch.equal(tensor(buffer, event), output)
    assert "lost values were restored" in dump.problems[1]


def test_t09_values_inside_are_what_eager_torch_computes(runs: dict[str, Run]) -> None:
    run = runs["half"]
    buffer = DebugBuffer(run.buffer)
    events = {event.instruction_id: event for event in restore(run).blocks[1].debug if not event.is_output}
    sine = tensor(buffer, events[0])
    assert torch.equal(tensor(buffer, events[1]), sine.half())
    assert torch.equal(tensor(buffer, events[3]), sine.half() * 2)
    assert [events[index].restored for index in range(7)] == [False, True, True, True, False, False, False]


def test_another_program_restores_nothing_and_says_why(runs: dict[str, Run]) -> None:
    run = runs["half"]
    dump = restore(run, program=runs["only_half"].pte)
    assert not any(event.restored for block in dump.blocks for event in block.debug)
    assert "could not be restored" in dump.problems[-1]


def test_buffer_that_is_too_small_restores_nothing(runs: dict[str, Run], tmp_path: Path) -> None:
    run = runs["half"]
    path = tmp_path / "cut.bin"
    path.write_bytes(run.buffer.read_bytes()[:1100])
    assert "too small" in restore(run, buffer=path).problems[-1]


@pytest.mark.parametrize("name", ["half", "only_half"])
def test_zeroed_buffer_restores_nothing(runs: dict[str, Run], tmp_path: Path, name: str) -> None:
    run = runs[name]
    path = tmp_path / "zeros.bin"
    path.write_bytes(bytes(1 << 16))
    dump = restore(run, buffer=path)
    assert not any(event.restored for block in dump.blocks for event in block.debug)
    assert "could not be restored" in dump.problems[-1]


def test_first_value_may_be_zero(runs: dict[str, Run], tmp_path: Path) -> None:
    run = runs["only_half"]
    refs = [ref for block in restore(run).blocks for event in block.debug for ref in event.tensors]
    content = bytearray(run.buffer.read_bytes())
    content[refs[0].offset : refs[0].offset + refs[0].layout.nbytes] = bytes(refs[0].layout.nbytes)
    path = tmp_path / "zero_first.bin"
    path.write_bytes(content)
    again = restore(run, buffer=path)
    assert [ref for block in again.blocks for event in block.debug for ref in event.tensors] == refs


def test_sound_dump_comes_back_as_it_is(runs: dict[str, Run]) -> None:
    run = runs["partly"]
    dump = read_etdump(run.etdump)
    assert restore_lost_values(dump, read_program(run.pte).method(), DebugBuffer(run.buffer)) is dump
