# pyright: reportPrivateUsage=false
"""Where none of upstream's traps bites, etviz says what upstream's own tools say."""

from __future__ import annotations

import math
from collections.abc import Callable

import pandas as pd
import pytest
from executorch.devtools import Inspector
from executorch.devtools.inspector._inspector import Event

from tests.oracles import same
from tests.programs import Executed

# Programs that upstream pairs rightly, and the graph that both then take as the reference. Where the lowered program
# has its own way of computing a `linear` (permute and addmm), upstream's default reference rounds differently.
PAIRED = {
    "plain_cnn": "edge_dialect_exported_program",
    "encoder": None,
    "residual_cnn": None,
    "counter": "edge_dialect_exported_program",
}


def inspect(program: Executed, reference: bool = True) -> Inspector:
    return Inspector(
        etdump_path=str(program.path("etdump")),
        etrecord=str(program.path("etrecord")) if reference else None,
        debug_buffer_path=str(program.path("debug_buffer")),
    )


@pytest.mark.parametrize("name", PAIRED)
def test_gaps_are_those_of_the_inspector(name: str, executed: Callable[[str], Executed]) -> None:
    program = executed(name)
    options = {"reference_graph": PAIRED[name]} if PAIRED[name] else {}
    upstream = inspect(program).calculate_numeric_gap("MSE", **options)
    assert len(upstream) >= 5
    gaps = program.inspection.gaps
    pairs = [program.inspection.tensors(index) for index in gaps.index]
    for _, row in upstream.iterrows():
        expected = row["aot_intermediate_output"], row["runtime_intermediate_output"]
        ours = [
            index
            for index, (reference, runtime) in zip(gaps.index, pairs, strict=True)
            if same(reference.double(), expected[0].double()) and same(runtime.double(), expected[1].double())
        ]
        assert ours, f"no row for {row['runtime_ops']}"
        for index in ours:
            assert math.isclose(gaps["mse"][index], row["gap"][0], rel_tol=1e-12, abs_tol=0)


def test_the_inspector_has_fewer_rows(executed: Callable[[str], Executed]) -> None:
    """Debug handles are shared, so upstream merges rows; exact pairing by instruction does not."""
    program = executed("encoder")
    assert len(program.inspection.gaps) > 4 * len(inspect(program).calculate_numeric_gap("MSE"))


def test_delegation_is_that_of_get_delegation_info(program: Executed) -> None:
    found, info = program.inspection.delegation, program.info
    assert found is not None
    assert found.num_delegated_subgraphs == info.num_delegated_subgraphs
    assert found.num_delegated_nodes == info.num_delegated_nodes
    assert found.num_non_delegated_nodes == info.num_non_delegated_nodes
    assert found.summary() == info.get_summary()
    pd.testing.assert_frame_equal(found.by_operator, info.get_operator_delegation_dataframe(), check_dtype=False)


def test_latency_is_that_of_the_inspector(program: Executed) -> None:
    events: dict[int, list[float]] = {}
    for block in inspect(program, reference=False).event_blocks:
        for event in block.events if block.name == "Execute" else ():
            if event.name in ("OPERATOR_CALL", "DELEGATE_CALL"):
                events.setdefault(_instruction(event), []).append(_average(event))
    assert events
    found = program.inspection.time.latency
    assert found.keys() == events.keys()
    for instruction, times in events.items():
        assert found[instruction] == pytest.approx(sum(times) / len(times), rel=1e-9, abs=0)
    gaps = program.inspection.gaps
    assert (gaps["latency_ms"] == gaps["instruction"].map(found)).all()


def _instruction(event: Event) -> int:
    assert event._instruction_id is not None
    return event._instruction_id


def _average(event: Event) -> float:
    assert event.perf_data is not None
    assert event.perf_data.avg is not None
    return event.perf_data.avg


def test_latency_in_another_unit(executed: Callable[[str], Executed]) -> None:
    import etviz

    program = executed("plain_cnn")
    seconds = etviz.load(program.path("etdump"), source_time_scale="s").time.latency
    for instruction, time in program.inspection.time.latency.items():
        assert seconds[instruction] == pytest.approx(time * 1e9)
    with pytest.raises(etviz.errors.UsageError, match="source_time_scale"):
        etviz.load(program.path("etdump"), source_time_scale="weeks")
