# pyright: reportPrivateUsage=false
"""Traps of upstream's Inspector in how it pairs runtime and reference: handles, instructions, graphs.

Every test says what etviz shows. Lines below "upstream:" pin what upstream shows; they fail once upstream is repaired.
"""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from executorch.devtools.inspector import Event, EventBlock
from executorch.devtools.inspector._inspector_utils import (
    map_runtime_aot_intermediate_outputs,
    merge_runtime_overlapping_debug_handles,
)
from executorch.exir.schema import DelegateCall, KernelCall

import etviz
from etviz.artifacts.record.etrecord import ETRecord
from etviz.errors import ArtifactError
from etviz.graph.ir import Graph, Node
from etviz.pairing.handles import group_by_handles
from etviz.view.payload.program_payload import table_rows
from tests.conformance.cases import Case, load, upstream
from tests.counting import calls
from tests.programs import Executed

Record = Callable[[str, object], None]
Cases = Callable[[str], Case]
Programs = Callable[[str], Executed]


def by_handles(program: Executed) -> etviz.Inspection:
    """What the ETRecord alone, without `.pte` and record, can pair."""
    return load(program, pte=None)


def assert_rows_are_exact(found: etviz.Inspection, program: Executed) -> None:
    """No row of `found` has another reference or runtime value than the recorded program's."""
    exact = program.inspection.gaps
    assert len(found.gaps)
    for index, row in found.gaps.iterrows():
        same = exact.index[(exact["instruction"] == row["instruction"]) & (exact["output"] == row["output"])][0]
        for ours, expected in zip(found.tensors(index), program.inspection.tensors(same), strict=True):
            torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-5)


def test_t11_an_etrecord_in_memory(executed: Programs, case: Cases, record_property: Record) -> None:
    """Its tables have integers as keys, a saved one texts."""
    rows = case("rows")
    inspector = upstream(rows, etrecord=rows.manager.get_etrecord())
    found = etviz.from_inspector(inspector)
    parsed = etviz.from_inspector(upstream(rows))
    assert len(found.gaps) == len(parsed.gaps) >= 3
    assert found.gaps["mse"].tolist() == parsed.gaps["mse"].tolist()
    assert found.gaps["mse"].max() < 1e-12
    # upstream:
    assert len(inspector.calculate_numeric_gap("MSE")) == 0
    record_property("figures", f"0 rows, {len(found.gaps)} rows, {len(load(rows).gaps)} values logged")


def test_t14_every_instruction_has_its_own_row(executed: Programs, record_property: Record) -> None:
    encoder = executed("encoder")
    found = encoder.inspection
    assert found.gaps["instruction"].nunique() == len(found.coverage) == (found.coverage["status"] == "compared").sum()
    # upstream:
    shown = len(upstream(encoder).calculate_numeric_gap("MSE"))
    assert 4 * shown < len(found.gaps)
    record_property("figures", f"{shown} rows, {len(found.gaps)} rows, {len(found.coverage)} instructions")


def test_t18_names_of_delegated_events_are_not_searched_in_one_another(executed: Programs) -> None:
    """Event 12 of a delegate is not event 1, nor is instruction 12 instruction 1."""
    encoder = executed("encoder")
    events = encoder.inspection.events
    calls = events[events["name"].isin(["OPERATOR_CALL", "DELEGATE_CALL"])].set_index("instruction")
    assert {1, 12} <= set(calls.index)
    for instruction, item in enumerate(encoder.plan.chains[0].instructions):
        call = item.instr_args
        if isinstance(call, KernelCall):
            name = encoder.plan.operators[call.op_index].name.partition("::")[2]
            assert [target.split(".")[1] for target in calls["op_types"][instruction]] == [name]
        if isinstance(call, DelegateCall):
            assert calls["backend"][instruction] == encoder.plan.delegates[call.delegate_index].id
    # upstream:
    block = EventBlock("Execute", [Event("12", delegate_debug_identifier=12, _instruction_id=0)])
    table: Any = {"0": {"name": "backend", "delegate_map": {"12": 20, "1": 10}}}
    block._gen_resolve_debug_handles({"0": [9]}, table)
    assert block.events[0].debug_handles == 10


def test_t19_a_group_is_closed_by_its_last_instruction() -> None:
    """Instructions 7 and 5 share no handle; 3, which comes last in the table, has one of each."""
    edge = Graph(
        "forward", nodes=[Node("a", "aten.sin.default", handles=(1,)), Node("b", "aten.cos.default", handles=(2,))]
    )
    groups = group_by_handles(edge, {7: (1,), 5: (2,), 3: (1, 2)})
    assert [group.instructions for group in groups] == [[3, 5, 7]]
    # upstream:
    merged = merge_runtime_overlapping_debug_handles(
        {(1,): (7, "seven", 1), (2,): (5, "five", 1), (1, 2): (3, "three", 1)}
    )
    assert [value[0] for value in merged.values()] == [5]


def test_t20_no_instruction_is_dropped(executed: Programs) -> None:
    """Whatever the handles say, each instruction that was executed is in the coverage, with a reason."""
    encoder = executed("encoder")
    found = by_handles(encoder)
    executed_ones = set(encoder.inspection.time.latency)
    assert set(found.coverage["instruction"]) == executed_ones
    rest = found.coverage[~found.coverage["instruction"].isin(found.gaps["instruction"])]
    assert len(rest)
    assert (rest["reason"] != "").all()
    assert_rows_are_exact(found, encoder)
    # upstream:
    tensor = torch.ones(2)
    assert map_runtime_aot_intermediate_outputs({(5, 1): tensor}, {(1,): ([tensor], 1)}) == {}


def test_t21_grouping_is_linear() -> None:
    """Two thousand instructions with two thousand operators: upstream's graph of overlaps takes seconds."""

    def work(count: int) -> int:
        nodes = [Node(f"n{i}", "aten.sin.default", handles=(i,)) for i in range(count)]
        graph, handles = Graph("forward", nodes=nodes), {i: (i,) for i in range(count)}
        assert len(group_by_handles(graph, handles)) == count
        return calls(lambda: group_by_handles(graph, handles))

    assert work(2000) < 5 * work(500)


def test_t22_a_chain_of_thousands() -> None:
    """Each instruction shares a handle with the next one."""
    count = 5000
    nodes = [Node(f"n{i}", "aten.sin.default", handles=(i,)) for i in range(count + 1)]
    handles = {i: (i, i + 1) for i in range(count)}
    groups = group_by_handles(Graph("forward", nodes=nodes), handles)
    assert [len(group.instructions) for group in groups] == [count]
    # upstream:
    one = torch.ones(1)
    chain = {(i, i + 1): ([one], 1) for i in range(0, 1200)}
    with pytest.raises(RecursionError):
        map_runtime_aot_intermediate_outputs({(i,): one for i in range(1201)}, chain)


def changed(source: Path, target: Path, change: Callable[[str, bytes], bytes]) -> Path:
    """An ETRecord with other contents."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for info in old.infolist():
            new.writestr(info.filename, change(info.filename, old.read(info)))
    return target


def shift(name: str, content: bytes) -> bytes:
    if name not in ("debug_handle_map", "delegate_map", "instruction_id_to_num_outs_map"):
        return content
    tables = json.loads(content)
    return json.dumps(
        {method: {str(int(key) + 1000): value for key, value in table.items()} for method, table in tables.items()}
    ).encode()


def test_t30_shifted_instruction_ids(executed: Programs, tmp_path: Path) -> None:
    encoder = executed("encoder")
    shifted = changed(encoder.path("etrecord"), tmp_path / "shifted.bin", shift)
    alone = tmp_path / "alone.pte"
    shutil.copy(encoder.path("pte"), alone)
    with pytest.raises(ArtifactError, match=r"shifted\.bin.*belongs to another program"):
        load(encoder, etrecord=shifted, pte=alone)
    with pytest.raises(ArtifactError, match=r"ETDump belongs to another program than .*shifted\.bin"):
        load(encoder, etrecord=shifted, pte=None)
    # upstream:
    assert len(upstream(encoder, etrecord=str(shifted)).calculate_numeric_gap("MSE")) == 0


def test_t30_a_member_that_is_there_twice(executed: Programs, tmp_path: Path) -> None:
    encoder = executed("encoder")
    double = tmp_path / "double.bin"
    shutil.copy(encoder.path("etrecord"), double)
    with zipfile.ZipFile(double, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr("debug_handle_map", json.dumps({"forward": {}}))
    with pytest.raises(ArtifactError, match=r"double\.bin.*debug_handle_map is there twice"):
        load(encoder, etrecord=double)
    # upstream:
    assert len(upstream(encoder, etrecord=str(double)).calculate_numeric_gap("MSE")) == 0


def test_t31_handles_do_not_tell_what_is_delegated(executed: Programs, record_property: Record) -> None:
    """Some handles lie inside of a delegate and outside of it too; the program says what lies where."""
    encoder = executed("encoder")
    etrecord = ETRecord(encoder.path("etrecord"))
    handles, backends = etrecord.debug_handles("forward"), etrecord.backends("forward")
    inside = {handle for at, items in handles.items() if at in backends for handle in items}
    outside = {handle for at, items in handles.items() if at not in backends for handle in items}
    assert inside & outside
    found, info = encoder.inspection, encoder.info
    assert found.delegation is not None
    assert found.delegation.num_delegated_nodes == info.num_delegated_nodes
    assert found.tree.kind.count("inner") == info.num_delegated_nodes
    assert found.tree.kind.count("delegate") == info.num_delegated_subgraphs == len(backends)
    record_property(
        "figures",
        f"{len(inside & outside)} handles in both, {found.tree.kind.count('inner')}, {info.num_delegated_nodes}",
    )


def test_t14_what_is_grouped_stands_in_the_table_too(executed: Programs) -> None:
    """By debug handle alone, instructions without a value of their own are rows that can be filtered in."""
    found = by_handles(executed("encoder"))
    rows, compared = table_rows(found.analysis)
    assert compared == len(found.gaps)
    rest = rows[compared:]
    expected = found.coverage[found.coverage["status"] != "compared"]
    assert rest["instruction"].tolist() == expected["instruction"].tolist()
    assert rest["status"].tolist() == expected["status"].tolist()
    assert {"grouped", "not compared"} >= set(rest["status"]) > set()
    assert (rest["reason"] != "").all()
