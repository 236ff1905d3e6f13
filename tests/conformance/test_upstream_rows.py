# pyright: reportPrivateUsage=false
"""Calls that several rows of docs/upstream.md name, on one program, beside the upstream Inspector's answers."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pytest
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.devtools import Inspector
from executorch.devtools.inspector import Event
from executorch.exir import to_edge_transform_and_lower
from typer.testing import CliRunner

import etviz
from etviz.cli.app import app
from etviz.pipeline.execute import execute
from tests.conformance.cases import upstream
from tests.oracles import same
from tests.programs import Executed, build
from tests.shifted import load_shifted


class Both(NamedTuple):
    program: Executed
    found: etviz.Inspection
    inspector: Inspector

    def calls(self) -> list[Event]:
        """What upstream has of each call of a kernel or a delegate."""
        names = ("OPERATOR_CALL", "DELEGATE_CALL")
        return [event for block in self.inspector.event_blocks for event in block.events if event.name in names]


@pytest.fixture
def both(executed: Callable[[str], Executed]) -> Both:
    program = executed("residual_cnn")
    return Both(program, program.load(), upstream(program))


def _said(*words: str) -> str:
    ended = CliRunner().invoke(app, [*words])
    assert ended.exit_code in ((0, 1) if words[0] in ("why", "check") else (0,)), ended.output
    return ended.stdout


def test_each_call_is_an_instruction(both: Both) -> None:
    """Kind, handles, operators, source and module are upstream's, where it has them."""
    gaps = both.found.gaps.drop_duplicates("instruction").set_index("instruction")
    coverage = both.found.coverage.set_index("instruction")
    assert set(coverage.index) == {event._instruction_id for event in both.calls()}
    assert set(gaps["pairing"]) == {"exact"}
    compared = Counter[str]()
    for event in both.calls():
        row = gaps.loc[event._instruction_id]
        assert (row["kind"] == "delegate") == (event.name == "DELEGATE_CALL")
        assert not event.is_delegated_op  # upstream's is True for what a delegate timed inside alone
        handles = event.debug_handles if isinstance(event.debug_handles, (list, tuple)) else [event.debug_handles]
        if event.name == "OPERATOR_CALL":
            assert set(handles) == set(row["debug_handles"])
            assert set(handles) == set(coverage["debug_handles"][event._instruction_id])
            compared["handles"] += 1
        if event.op_types and event.name == "OPERATOR_CALL":
            operator = re.sub(r"_\d+$", "", row["reference_ops"])
            assert any(operator in str(name) for name in event.op_types), (operator, event.op_types)
            compared["operators"] += 1
        traces = " ".join(map(str, (event.stack_traces or {}).values()))
        if traces and row["source"] and event.name == "OPERATOR_CALL":
            file, line = row["source"].rsplit(":", 1)
            assert Path(file).name in traces
            assert f"line {line}" in traces
            compared["source"] += 1
        modules = str(event.module_hierarchy or "")
        if modules and row["module"] and event.name == "OPERATOR_CALL":
            assert row["module"].rsplit(".", 1)[-1] in modules
            assert both.found.module_total(row["module"]).instructions
            compared["module"] += 1
    assert compared["handles"] >= 3
    assert min(compared["operators"], compared["source"]) >= 1


def test_outputs_are_those_of_the_event_block(both: Both) -> None:
    block = next(block for block in both.inspector.event_blocks if block.name == "Execute")
    assert block.run_output is not None
    assert len(both.found.outputs) == len(block.run_output)
    for (_, row), logged in zip(both.found.outputs.iterrows(), block.run_output, strict=True):
        assert isinstance(logged, torch.Tensor)
        assert same(both.found.tensors(row)[1], logged)
        assert row["matches"]
    if block.reference_output:
        for (_, row), expected in zip(both.found.outputs.iterrows(), block.reference_output, strict=True):
            torch.testing.assert_close(both.found.tensors(row)[0], expected)


def test_stages_and_graphs(both: Both) -> None:
    """The ladder evaluates what `get_exported_program` only returns; the graph holds the same operators."""
    assert {"edge", "lowered", "runtime"} <= set(both.found.ladder()["stage"])
    theirs = both.inspector.get_exported_program()
    assert theirs is not None
    ours = both.found.export.exported_program("edge")
    graphs = [
        [str(node.target) for node in program.graph.nodes if node.op == "call_function"] for program in (ours, theirs)
    ]
    plain = [Counter(name.replace("executorch.exir.dialects.edge._ops.", "") for name in graph) for graph in graphs]
    assert plain[0].total() == plain[1].total() > 5
    against = both.found.against("edge").gaps
    assert against["mse"].notna().sum() > 0


def test_sorted_and_filtered_by_gap(both: Both, tmp_path: Path) -> None:
    """`worst` by upstream's metric has its largest gap; a check fails below the largest error, and passes above."""
    frame = both.inspector.calculate_numeric_gap("MSE", reference_graph="edge_dialect_exported_program")
    ranked = frame.sort_values(
        by="gap", key=lambda column: pd.Series([float(gap[0]) for gap in column], column.index), ascending=False
    )
    worst = both.found.worst(len(both.found.gaps), by="mse")
    runtime: torch.Tensor = ranked["runtime_intermediate_output"].iloc[0]
    assert any(same(both.found.tensors(row)[1].double(), runtime.double()) for row in worst.index)
    folder, most = str(both.program.folder), float(worst["rmse"].max())
    for limit, status in ((most / 2, 1), (most * 2, 0)):
        assert CliRunner().invoke(app, ["check", folder, "--max-rmse", str(limit)]).exit_code == status


def test_commands_say_what_python_says(both: Both, tmp_path: Path) -> None:
    folder = str(both.program.folder)
    rows = json.loads(_said("gaps", folder, "--format", "json", "--top", "0"))["rows"]
    assert {row["row"] for row in rows} == set(both.found.gaps.index[: len(rows)]) or len(rows) <= len(both.found.gaps)
    files = json.loads(_said("info", folder, "--json"))
    assert [item["name"] for item in files["methods"]] == both.found.methods
    finding = both.found.diagnosis(look_inside=False)["finding"]
    assert finding["text"][:40] in _said("why", folder)
    _said("report", folder, "-o", str(tmp_path / "report.html"), "--svg", str(tmp_path / "graph.svg"))
    assert both.found.to_html(tmp_path / "own.html").exists()
    assert (tmp_path / "report.html").stat().st_size > 0 < (tmp_path / "graph.svg").stat().st_size
    _said("dump", folder, "-o", str(tmp_path / "tensors"))
    index = json.loads((tmp_path / "tensors" / "index.json").read_text("utf-8"))
    assert len(index["rows"]) == len(both.found.gaps)


def test_a_significant_gap_is_investigated(both: Both, tmp_path: Path) -> None:
    """The instruction whose value was changed is the first divergence, and causes the output's error."""
    at = both.found.gaps.index[both.found.gaps["op"].str.contains("cumsum")][0]
    planted = int(both.found.gaps["instruction"][at])
    found = load_shifted(both.program, tmp_path, planted, 0.5, inputs=both.program.inputs)
    first = found.first_divergence
    assert first is not None
    assert first["instruction"] == planted
    assert found.worst(1)["instruction"].iloc[0] == planted
    assert "cumsum" in found.summary()
    told = found.diagnosis(look_inside=False)
    assert told["culprit"]["instruction"] == planted
    assert planted in set(found.attribution()["instruction"])


def test_pipeline_1(executed: Callable[[str], Executed], tmp_path: Path) -> None:
    """Upstream's calls from export to files beside `etviz.debug`: the same values; `etviz.record` gives exact pairs."""
    program = executed("residual_cnn")
    model, inputs = build(program.recipe)
    debugged = etviz.debug(
        model, inputs, partitioner=[XnnpackPartitioner()], workdir=tmp_path / "run", debug_buffer_size=1 << 22
    )
    edge = to_edge_transform_and_lower(
        torch.export.export(model, inputs), partitioner=[XnnpackPartitioner()], generate_etrecord=True
    )
    manager = edge.to_executorch()
    record = manager.get_etrecord()
    record.update_representative_inputs(inputs)
    record.save(str(tmp_path / "etrecord.bin"))
    (tmp_path / "model.pte").write_bytes(manager.buffer)
    etviz.record(edge, manager, tmp_path / "model.etviz")
    execute(tmp_path / "model.pte", [list(inputs)], workdir=tmp_path)
    files: dict[str, Any] = {"debug_buffer": tmp_path / "debug_buffer.bin", "pte": tmp_path / "model.pte"}
    loaded = etviz.load(tmp_path / "etdump.etdp", etrecord=tmp_path / "etrecord.bin", **files, inputs=inputs)
    assert set(loaded.gaps["pairing"]) == {"exact"}
    pd.testing.assert_series_equal(loaded.gaps["mse"], debugged.gaps["mse"], rtol=1e-3, atol=1e-12)
    assert debugged.summary().splitlines()[0] == loaded.summary().splitlines()[0]
