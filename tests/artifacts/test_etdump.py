"""ETDumps of real runs read the same as upstream reads them, and broken ones as far as they go."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from executorch.devtools import Inspector
from executorch.devtools.etdump.serialize import deserialize_from_etdump_flatcc
from executorch.devtools.inspector import TimeScale

from etviz.artifacts.etdump.etdump import DebugEvent, Layout, TensorRef, read_etdump

if TYPE_CHECKING:
    from pathlib import Path

    from tests.artifacts.conftest import Run


if TYPE_CHECKING:
    from executorch.devtools.etdump.schema_flatcc import DebugEvent as UpstreamDebugEvent
    from executorch.devtools.etdump.schema_flatcc import Tensor as UpstreamTensor


def as_ref(tensor: UpstreamTensor | None) -> TensorRef:
    assert tensor is not None
    layout = Layout(int(tensor.scalar_type), tuple(tensor.sizes), tuple(tensor.strides))
    return TensorRef(layout, tensor.offset or 0)


def as_debug_event(event: UpstreamDebugEvent) -> DebugEvent:
    entry = event.debug_entry
    value = as_ref(entry.tensor) if entry.val == "Tensor" else None
    if entry.val == "TensorList":
        assert entry.tensor_list is not None
        value = tuple(as_ref(item) for item in entry.tensor_list.tensors)
    assert value is not None
    number, text = event.delegate_debug_id_int, event.delegate_debug_id_str
    return DebugEvent(
        chain=int(np.uint64(event.chain_index).astype(np.int64)),
        instruction_id=event.instruction_id,
        delegate_debug_id=text if number == -1 else number,
        kind={"Tensor": "tensor", "TensorList": "tensor_list"}[entry.val],
        value=value,
        is_output=entry.output is not None,
    )


def test_every_event_equals_upstreams(sound: Run):
    dump = read_etdump(sound.etdump)
    upstream = deserialize_from_etdump_flatcc(sound.etdump.read_bytes())
    assert dump.problems == []
    assert [block.name for block in dump.blocks] == [run.name for run in upstream.run_data]
    for block, run in zip(dump.blocks, upstream.run_data, strict=True):
        profile = [event.profile_event for event in run.events or [] if event.profile_event]
        debug = [event.debug_event for event in run.events or [] if event.debug_event]
        for field in ("name", "instruction_id"):
            ours = getattr(block.profile, field).tolist()
            assert ours == [getattr(event, field) for event in profile]
        assert block.profile.chain.tolist() == [event.chain_index for event in profile]
        assert block.profile.start.tolist() == [event.start_time for event in profile]
        assert block.profile.end.tolist() == [event.end_time for event in profile]
        assert block.profile.delegate_debug_id.tolist() == [
            event.delegate_debug_id_str if event.delegate_debug_id_int == -1 else event.delegate_debug_id_int
            for event in profile
        ]
        metadata = [event.delegate_debug_metadata for event in profile]
        assert block.profile.metadata.tolist() == [None if item is None else bytes(item) for item in metadata]
        assert list(block.debug) == [as_debug_event(event) for event in debug]


def test_timings_equal_the_inspectors(runs: dict[str, Run]):
    run = runs["partly"]
    inspector = Inspector(etdump_path=str(run.etdump), source_time_scale=TimeScale.NS, target_time_scale=TimeScale.NS)
    for block, upstream in zip(read_etdump(run.etdump).blocks, inspector.event_blocks, strict=True):
        durations = [event.perf_data.raw[0] for event in upstream.events if event.perf_data is not None]
        assert (block.profile.end - block.profile.start).tolist() == durations


def test_program_outputs_are_marked(runs: dict[str, Run]):
    block = read_etdump(runs["partly"].etdump).blocks[-1]
    outputs = [event for event in block.debug if event.is_output]
    assert [event.value.layout.sizes for event in outputs] == [(1, 8, 16, 4), (1, 8, 16)]
    assert [event.value.layout.dtype for event in outputs] == ["float32", "int64"]
    assert all(event.chain == -1 for event in outputs)


@pytest.mark.parametrize("name", ["half", "bfloat16"])
def test_t09_a_dump_broken_by_16_bit_floats_is_read_as_far_as_it_goes(runs: dict[str, Run], name: str):
    run = runs[name]
    dump = read_etdump(run.etdump)
    executions = [block for block in dump.blocks if block.name == "Execute"]
    assert len(executions) == len(run.outputs)
    for block in executions:
        calls = block.profile.name == "OPERATOR_CALL"
        assert block.profile.instruction_id[calls].tolist() == list(range(7))
        assert (block.profile.name == "Method::execute").sum() == 1
        logged = [(event.chain, event.instruction_id) for event in block.debug]
        assert logged == [(0, 0), (0, 4), (0, 5), (0, 6), (-1, 0)]
        assert {event.value.layout.dtype for event in block.debug} == {"float32"}
    assert "float16, bfloat16" in dump.problems[0]
    assert "no value of 3 instructions is left: 1, 2, 3" in dump.problems[1]


def test_ten_thousand_events(long_run: Run):
    dump = read_etdump(long_run.etdump)
    assert sum(len(block.profile) + len(block.debug) for block in dump.blocks) > 10_000
    assert len(dump.blocks) == 601


def test_bytes_after_the_end_are_ignored(runs: dict[str, Run], tmp_path: Path):
    path = tmp_path / "padded.etdp"
    path.write_bytes(runs["partly"].etdump.read_bytes() + b"\xff" * 4096)
    assert read_etdump(path).problems == []
