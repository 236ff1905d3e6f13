# pyright: reportPrivateUsage=false
"""Each row of docs/upstream.md is executed on one program, beside what upstream's own call answers."""

from __future__ import annotations

import base64
import contextlib
import copy
import inspect
import io
import json
import logging
import math
import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.devtools import BundledProgram, Inspector
from executorch.devtools.backend_debug import get_delegation_info
from executorch.devtools.backend_debug.delegation_info import DelegationInfo
from executorch.devtools.bundled_program.config import MethodTestCase, MethodTestSuite
from executorch.devtools.bundled_program.serialize import serialize_from_bundled_program_to_flatbuffer
from executorch.devtools.etdump.serialize import deserialize_from_etdump_flatcc, serialize_to_etdump_flatcc
from executorch.devtools.inspector import (
    Event,
    TimeScale,
    compare_results,
    inspector_cli,
    parse_vgf_neural_statistics_delegate_metadata,
)
from executorch.devtools.inspector.numerical_comparator import NumericalComparatorBase
from executorch.exir import to_edge_transform_and_lower
from executorch.exir.backend.utils import format_delegated_graph, print_delegated_graph
from executorch.extension.pybindings.portable_lib import _load_bundled_program_from_buffer
from executorch.runtime import Runtime
from torch import Tensor, nn
from typer.testing import CliRunner

import etviz
from etviz.artifacts.program.raw_values import write_inputs
from etviz.cli.app import app
from tests.backend.loops import LoopsPartitioner
from tests.conformance.cases import Case, Lowering, assert_same_events, load, timed, upstream
from tests.cpp_runner import CppRunner
from tests.oracles import same
from tests.programs import FILES, ResidualCNN
from tests.shifted import load_shifted
from tests.test_upstream_table import ROWS, code, words

EXECUTED: dict[str, Callable[..., None]] = {}
"""The test that executes each row, by what the row says of upstream."""
EDGE = "edge_dialect_exported_program"
Test = Callable[..., None]


def rows(*upstream: str) -> Callable[[Test], Test]:
    """The test executes these rows."""

    def note(test: Test) -> Test:
        assert not set(upstream) & set(EXECUTED)
        EXECUTED.update(dict.fromkeys(upstream, test))
        return test

    return note


def named(row: list[str]) -> str:
    """What a row says of upstream, without its links."""
    return re.sub(r"\[([^]]+)\]\([^)]*\)", r"\1", row[0]).replace("`", "")


def test_every_row_is_executed() -> None:
    assert sorted(named(row) for row in ROWS) == sorted(EXECUTED)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:50])
def test_the_execution_calls_what_the_row_names(row: list[str]) -> None:
    """Each function, argument, command and column of etviz."""
    text = inspect.getsource(EXECUTED[named(row)])
    columns = [name for listed in re.findall(r"\(columns? ([^)]*)\)", row[1]) for name in code(listed)]
    members = [word for name in code(re.sub(r"\(columns? [^)]*\)", "", row[1])) for word in words(name)]
    assert [name for name in (*members, *columns) if not re.search(rf"\b{re.escape(name)}\b", text)] == []


class Shown(ResidualCNN):
    """Three delegates and five kernels; XNNPACK refuses the pooling, whose stride exceeds its window."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(nn.functional.max_pool2d(x, 2, 3))


@dataclass(frozen=True)
class Both:
    """The model, its files as upstream's own calls make them, and what both tools read of these."""

    model: nn.Module
    inputs: tuple[Any, ...]
    case: Case
    info: DelegationInfo
    text: str
    printed: str
    refused: list[str]
    found: etviz.Inspection
    inspector: Inspector

    @property
    def folder(self) -> str:
        return str(self.case.folder)

    def calls(self) -> list[Event]:
        """What upstream has of each call of a kernel or a delegate."""
        names = ("OPERATOR_CALL", "DELEGATE_CALL")
        return [event for block in self.inspector.event_blocks for event in block.events if event.name in names]

    def execute(self) -> Any:
        """Upstream's block of the only execution."""
        return next(block for block in self.inspector.event_blocks if block.name == "Execute")


class Refused(logging.Handler):
    """What upstream's `WhyNoPartition` logs."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if "WhyNoPartition" in str(record.msg):
            self.said.append(str(record.msg))


@contextlib.contextmanager
def refusals() -> Generator[list[str]]:
    logger, handler = logging.getLogger("executorch.backends.xnnpack"), Refused()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield handler.said
    logger.removeHandler(handler)
    logger.setLevel(level)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Both:
    """Upstream's pipeline from Python: export, lower, ETRecord, run."""
    folder = tmp_path_factory.mktemp("upstream")
    torch.manual_seed(2)
    model, inputs = Shown().eval(), (torch.randn(1, 3, 24, 24),)
    exported = torch.export.export(model, inputs)
    with refusals() as refused:
        edge = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()], generate_etrecord=True)
    delegated = edge.exported_program().graph_module
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        print_delegated_graph(delegated)
    info, text = get_delegation_info(delegated), format_delegated_graph(delegated)
    with etviz.recording(folder / FILES["record"]):
        manager = edge.to_executorch()
    record = manager.get_etrecord()
    record.update_representative_inputs(inputs)
    record.update_reference_outputs([[model(*inputs).detach()]])
    record.save(str(folder / FILES["etrecord"]))
    manager.save(str(folder / FILES["pte"]))
    program = Runtime.get().load_program(folder / FILES["pte"], enable_etdump=True, debug_buffer_size=1 << 20)
    method = program.load_method("forward")
    assert method is not None
    method.execute(list(inputs))
    program.write_etdump_result_to_file(str(folder / FILES["etdump"]), str(folder / FILES["debug_buffer"]))
    case = Case("upstream", folder, Lowering({"forward": exported}, [inputs], edge, manager))
    return Both(
        *(model, inputs, case, info, text, printed.getvalue(), refused),
        *(load(case, inputs=inputs), upstream(case, enable_module_hierarchy=True)),
    )


def said(*arguments: str) -> str:
    """What a command prints; `why`, `check` and `verify` judge with status 1."""
    ended = CliRunner().invoke(app, [*arguments])
    assert ended.exit_code in ((0, 1) if arguments[0] in ("why", "check", "verify") else (0,)), ended.output
    return ended.stdout


def marked(both: Both, folder: Path) -> dict[str, Path]:
    """The run's files as of a backend that attaches statistics to its events, and of a runner with a test set."""
    folder.mkdir()
    files = {kind: Path(shutil.copy(both.case.path(kind), folder)) for kind in FILES if both.case.path(kind).exists()}
    dump = deserialize_from_etdump_flatcc(files["etdump"].read_bytes())
    blob = {"available": True, "encoding": "base64", "data": base64.b64encode(b"42").decode()}
    told = {"schema": "executorch.vgf.neural_statistics", "schema_version": 1, "segments": [{"debug_database": blob}]}
    for data in dump.run_data:
        data.bundled_input_index = 0
        for event in data.events or ():
            if event.profile_event and event.profile_event.delegate_debug_id_str:
                event.profile_event.delegate_debug_metadata = json.dumps(told).encode()
    data = serialize_to_etdump_flatcc(dump)
    files["etdump"].write_bytes(len(data).to_bytes(4, "little") + data)
    return files


@rows(
    *("Inspector(etdump_path=)", "Inspector(etdump_data=)", "Inspector.to_dataframe"),
    *("EventBlock.name", "EventBlock.events", "Event.name", "Event._instruction_id", "Event.delegate_backend_name"),
    "Event.perf_data (raw, p10, p50, p90, avg, min, max)",
)
def test_events(both: Both) -> None:
    """Names, blocks, instructions, backends and times: "samples_ms", "std_ms" and the statistics between."""
    etdump = both.case.path("etdump")
    alone = etviz.load(etdump=etdump)
    for inspector in (Inspector(etdump_path=str(etdump)), Inspector(etdump_data=etdump.read_bytes())):
        for found in (alone, etviz.from_inspector(inspector), both.found):
            assert_same_events(found, inspector)
    columns = ["event_block", "name", "instruction", "backend", "p10_ms", "p50_ms", "p90_ms", "avg_ms", "min_ms"]
    theirs = both.inspector.to_dataframe()
    ours = both.found.events[[*columns, "max_ms"]]
    assert len(ours) == len(theirs)
    for name in ("p10", "p50", "p90", "avg", "min", "max"):
        assert ours[f"{name}_ms"].to_numpy() == pytest.approx(theirs[f"{name} (ms)"].to_numpy(), rel=1e-9, abs=1e-9)
    assert ours["name"].tolist() == theirs["event_name"].tolist()
    assert ours["event_block"].tolist() == theirs["event_block_name"].tolist()


@rows(
    *("Inspector(source_time_scale=)", "Inspector(target_time_scale=)"),
    *("EventBlock.source_time_scale", "EventBlock.target_time_scale"),
)
def test_times_are_in_milliseconds(both: Both) -> None:
    scales: dict[str, Any] = {"source_time_scale": TimeScale.US, "target_time_scale": TimeScale.S}
    inspector = upstream(both.case, **scales)
    assert {(block.source_time_scale, block.target_time_scale) for block in inspector.event_blocks} == {
        (TimeScale.US, TimeScale.S)
    }
    assert_same_events(load(both.case, source_time_scale="us"), inspector, 1e-3)
    events = etviz.load(both.case.path("etdump"), source_time_scale=TimeScale.US).events
    assert events["avg_ms"].tolist() == pytest.approx((both.found.events["avg_ms"] * 1e3).tolist())


@rows("Inspector(etrecord=)")
def test_an_etrecord_in_a_file_and_in_memory(both: Both) -> None:
    record: Any = both.inspector._etrecord
    kept = copy.deepcopy(record._representative_inputs)
    buffer = both.case.path("debug_buffer")
    in_file = etviz.load(both.case.path("etdump"), etrecord=both.case.path("etrecord"), debug_buffer=buffer)
    in_memory = etviz.from_inspector(both.inspector)
    assert len(in_file.gaps) >= 8
    assert in_memory.gaps["reference_ops"].tolist() == in_file.gaps["reference_ops"].tolist()
    assert in_memory.gaps["mse"].to_numpy() == pytest.approx(in_file.gaps["mse"].to_numpy(), rel=1e-3, abs=1e-13)
    assert all(map(torch.equal, kept, record._representative_inputs))


@rows(
    *("Inspector(debug_buffer_path=)", "Event.debug_data", "Event.num_outputs"),
    "intermediate outputs (kIntermediateOutputs)",
)
def test_logged_tensors(both: Both) -> None:
    """The last values of a call are its outputs, a row of `gaps` each, in the order of its column "output"."""
    found = etviz.load(both.case.path("etdump"), debug_buffer=both.case.path("debug_buffer"), pte=both.case.path("pte"))
    for inspection in (found, both.found):
        gaps = inspection.gaps
        for event in both.calls():
            own = gaps[gaps["instruction"] == event._instruction_id]
            values: list[Any] = [value for value in event.debug_data if isinstance(value, Tensor) and value.numel()]
            assert list(own["output"]) == list(range(len(own)))
            if event.name == "DELEGATE_CALL":
                assert len(own) == event.num_outputs
            for row, value in zip(own.index, values[-len(own) :], strict=True):
                assert same(inspection.row(row).runtime, value)
                assert inspection is found or same(inspection.tensors(row)[1], value)
    assert len(etviz.load(etdump=both.case.path("etdump"), pte=both.case.path("pte")).gaps) == 0


@rows(
    *("Inspector(delegate_metadata_parser=)", "Event._delegate_metadata_parser"),
    *("Event._delegate_debug_metadatas", "Inspector.get_vgf_neural_statistics"),
    *("EventBlock.bundled_input_index", "EventBlock.reference_output"),
)
def test_what_a_backend_attached_and_a_test_set(both: Both, tmp_path: Path) -> None:
    files: dict[str, Any] = dict(marked(both, tmp_path / "marked"))
    parser: Any = parse_vgf_neural_statistics_delegate_metadata
    theirs = Inspector(
        etdump_path=str(files["etdump"]),
        etrecord=str(files["etrecord"]),
        debug_buffer_path=str(files["debug_buffer"]),
        delegate_metadata_parser=parser,
    )
    found = etviz.load(delegate_metadata_parser=parser, **files)
    read = found.events["delegate_debug_metadatas"].dropna()
    attached = [event.delegate_debug_metadatas for event in timed(theirs).values() if event.delegate_debug_metadatas]
    assert read.tolist() == attached
    assert [record for records in read for record in records] == theirs.get_vgf_neural_statistics()
    assert read.iloc[0][0]["segments"][0]["debug_database"]["raw_data"] == b"42"
    block = next(block for block in theirs.event_blocks if block.name == "Execute")
    assert set(found.gaps["input_index"]) == {block.bundled_input_index} == {0}
    assert block.reference_output is not None
    for (_, row), expected in zip(found.outputs.iterrows(), block.reference_output, strict=True):
        assert isinstance(expected, Tensor)
        torch.testing.assert_close(found.tensors(row)[0], expected)


@rows("Inspector(delegate_time_scale_converter=)", "Event._delegate_time_scale_converter")
def test_a_clock_of_the_backends_own(both: Both) -> None:
    seen: dict[str, list[tuple[str, int]]] = {"ours": [], "theirs": []}

    def converter(who: str) -> Any:
        return lambda name, time: seen[who].append((str(name), int(time))) or int(time) / 1e3

    found = load(both.case, delegate_time_scale_converter=converter("ours"))
    assert_same_events(found, upstream(both.case, delegate_time_scale_converter=converter("theirs")))
    assert set(seen["ours"]) == set(seen["theirs"]) != set()


@rows(
    *("Event.op_types", "Event.debug_handles", "Event.stack_traces", "Event.module_hierarchy"),
    *("Event.is_delegated_op", "Inspector(enable_module_hierarchy=)", "Inspector.get_op_list"),
    "link intermediate outputs to the eager model's code",
)
def test_each_call_is_an_instruction(both: Both) -> None:
    """Kind, handles, operators, source and module are upstream's, where it has them."""
    found = both.found
    gaps = found.gaps.drop_duplicates("instruction").set_index("instruction")
    events = found.events[found.events["name"].isin(["OPERATOR_CALL", "DELEGATE_CALL"])].set_index("instruction")
    coverage = found.coverage.set_index("instruction")
    assert set(coverage.index) == {event._instruction_id for event in both.calls()} == set(gaps.index)
    assert set(gaps["pairing"]) == {"exact"}
    shares = found.diagnosis(look_inside=False)["attribution"]["shares"]
    assert all(share["source"] == found.gaps["source"][share["row"]] for share in shares)
    for event in both.calls():
        number: Any = event._instruction_id
        row = gaps.loc[number]
        assert (row["kind"] == "delegate") == (event.name == "DELEGATE_CALL")
        assert not event.is_delegated_op  # upstream's is True for what a delegate timed inside alone
        handles = event.debug_handles if isinstance(event.debug_handles, (list, tuple)) else [event.debug_handles]
        assert set(handles) == set(row["debug_handles"]) == set(coverage["debug_handles"][number])
        assert list(events["op_types"][number]) == list(event.op_types)
        assert len(row["reference_ops"].split(", ")) == len(handles)
        traces = " ".join(map(str, (event.stack_traces or {}).values()))
        file, line = row["source"].rsplit(":", 1)
        assert f'{Path(file).name}", line {line}' in traces
        assert found.row(_first(found, number)).stack.strip() in traces
        if row["module"]:
            assert f"'{row['module']}'" in str(event.module_hierarchy)
            assert number in {*(total := found.module_total(row["module"])).instructions, *total.shared}
    kinds = Counter(kind for kind in found.tree.kind if kind in ("kernel", "delegate"))
    assert kinds == Counter(gaps["kind"])
    assert both.inspector.get_op_list("Execute") == {}  # which upstream has not written
    at = found.diagnosis(look_inside=False)["finding"]["row"]
    assert found.gaps["source"][at] in said("why", both.folder, "--no-inside").replace("\n", "")


def _first(found: etviz.Inspection, instruction: int) -> int:
    return int(found.gaps.index[found.gaps["instruction"] == instruction][0])


@rows("Inspector(reference_graph_name=)", "Inspector.get_exported_program")
def test_stages_and_graphs(both: Both) -> None:
    """A graph by its name, evaluated and compared; what `get_exported_program` returns computes the same."""
    theirs = both.inspector.get_exported_program()
    assert theirs is not None
    ours = both.found.export.exported_program("edge")
    expected: Any = theirs.module()(*both.inputs)
    given: Any = ours.module()(*both.inputs)
    assert torch.equal(given[0], expected)
    graphs = [[node for node in each.graph.nodes if node.op == "call_function"] for each in (ours, theirs)]
    assert len(graphs[0]) == len(graphs[1]) > 10
    assert {"edge", "lowered", "runtime"} <= set(both.found.ladder()["stage"])
    named = load(both.case, reference="edge", inputs=both.inputs)
    frame = both.found.against("edge").gaps
    pd.testing.assert_frame_equal(frame, named.gaps)
    gap = both.inspector.calculate_numeric_gap("MSE", reference_graph=EDGE)
    paired = {float(row["gap"][0]) for _, row in gap.iterrows()}
    close = [any(math.isclose(mine, value, rel_tol=1e-6) for mine in frame["mse"]) for value in paired]
    assert sum(close) >= 4


@rows("Inspector.calculate_numeric_gap", "MSE, L1, SNR of calculate_numeric_gap", "NumericalComparatorBase")
def test_gaps_are_upstreams(both: Both) -> None:
    """Where upstream compares the value that the instruction's operator gives."""

    class Largest(NumericalComparatorBase):
        def element_compare(self, a: Any, b: Any) -> float:
            return float(torch.as_tensor(a).sub(torch.as_tensor(b)).abs().max())

    found = load(both.case, inputs=both.inputs, metrics=[Largest()])
    own = str(next(name for name in found.gaps if str(name).lower() == "largest"))
    compared = 0
    pairs = [[value.double() for value in found.tensors(at)] for at in found.gaps.index]
    for distance, column in {"MSE": "mse", "L1": "l1", "SNR": "sqnr_db", Largest(): own}.items():
        for _, row in both.inspector.calculate_numeric_gap(distance).iterrows():
            theirs = [row[f"{side}_intermediate_output"].double() for side in ("aot", "runtime")]
            for at, ours in zip(found.gaps.index, pairs, strict=True):
                if all(map(same, ours, theirs)):
                    assert found.gaps[column][at] == pytest.approx(row["gap"][0], rel=1e-4)
                    compared += 1
    assert compared >= 16
    formulas = {name: etviz.metrics[name].formula for name in ("mse", "l1", "sqnr_db")}
    assert all(formulas.values())


@rows("Inspector.print_data_tabular", "Inspector.save_data_to_tsv", "python -m devtools.inspector.inspector_cli")
def test_tables_and_commands(both: Both, tmp_path: Path) -> None:
    """The times of upstream's table and of its TSV are in `gaps` and `info`; upstream's own command makes both."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        both.inspector.print_data_tabular(file=sys.stdout)
        words = ("--etdump_path", str(both.case.path("etdump")), "--etrecord_path", str(both.case.path("etrecord")))
        with mock.patch.object(sys, "argv", ["inspector_cli", *words, "--tsv_path", str(tmp_path / "upstream.tsv")]):
            inspector_cli.main()
    with (tmp_path / "python.tsv").open("w") as file:
        both.inspector.save_data_to_tsv(file)
    theirs = pd.read_csv(tmp_path / "upstream.tsv", sep="\t", index_col=0)
    assert theirs["event_name"].tolist() == pd.read_csv(tmp_path / "python.tsv", sep="\t")["event_name"].tolist()
    ours = pd.read_csv(io.StringIO(said("gaps", both.folder, "--format", "csv", "--top", "0")))
    delegates = ours[ours["kind"] == "delegate"].drop_duplicates("instruction").sort_values("instruction")
    calls = theirs[theirs["event_name"] == "DELEGATE_CALL"]
    assert delegates["latency_ms"].to_numpy() == pytest.approx(calls["avg (ms)"].to_numpy())
    assert "DELEGATE_CALL" in printed.getvalue()
    told = json.loads(said("info", both.folder, "--json"))["methods"][0]
    whole = theirs.loc[theirs["event_name"] == "Method::execute", "avg (ms)"].iloc[0]
    assert told["total_ms"] == pytest.approx(sum(e.perf_data.avg for e in both.calls() if e.perf_data), rel=1e-9)
    assert told["total_ms"] < whole
    assert {row["instruction"] for row in told["slowest"]} <= {event._instruction_id for event in both.calls()}
    finding = both.found.diagnosis(look_inside=False)["finding"]
    assert finding["text"][:40] in said("why", both.folder, "--no-inside")
    said("report", both.folder, "-o", str(tmp_path / "report.html"))
    assert "conv2d" in (tmp_path / "report.html").read_text("utf-8")


@rows("inspector_cli --compare_results", "compare_results", "compare_results(plot=True)")
def test_results_are_compared(both: Both, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Upstream's numbers have two digits; its plots are drawn by both, as are ours for any row."""
    block = both.execute()
    with contextlib.redirect_stdout(io.StringIO()):
        theirs = compare_results(block.reference_output, block.run_output)
    outputs = both.found.outputs
    for name, column, digits in (("mse", "mse", 6e-3), ("snr", "sqnr_db", 6e-3), ("cosine_similarity", "cosine", 6e-3)):
        assert outputs[column].to_numpy() == pytest.approx(np.array(theirs[name]), abs=digits)
    monkeypatch.chdir(tmp_path)
    arguments = [f"--{name}={both.case.path(kind)}" for name, kind in UPSTREAMS.items()]
    with mock.patch.object(sys, "argv", ["inspector_cli", *arguments, "--compare_results"]):
        inspector_cli.main()
    plt.close("all")
    drawn = [both.found.plot.gaps(), both.found.plot.histogram(0), both.found.plot.steps("mse")]
    assert all(axes.has_data() for axes in drawn)
    path = etviz.bundle(
        both.case.manager, [both.inputs], tmp_path / "model.bpte", expected=[list(block.reference_output)]
    )
    assert etviz.verify(path)["verified"].all()
    assert "verified" in said("verify", str(path))
    assert "passed" in said("check", both.folder, "--max-rmse", "1").lower()


UPSTREAMS = {"etdump_path": "etdump", "etrecord_path": "etrecord", "debug_buffer_path": "debug_buffer"}


@rows("Inspector.write_tensorboard_artifact", "Event._start_time")
def test_the_graph_and_the_times_in_one_file(both: Both, tmp_path: Path) -> None:
    both.inspector.write_tensorboard_artifact(str(tmp_path / "upstream"))
    assert not (tmp_path / "upstream").exists()  # which upstream has not written
    made = "".join(path.read_text("utf-8") for path in both.found.export.model_explorer(tmp_path / "graph.json"))
    report = both.found.to_html(tmp_path / "report.html").read_text("utf-8")
    for name in ("convolution", "unsqueeze", "native_layer_norm", "cumsum"):
        assert name in made
    assert "model.pte (forward)" in report
    trace = json.loads(both.found.export.chrome_trace(tmp_path / "trace.json").read_text("utf-8"))["traceEvents"]
    spans = [(event["ts"], event["name"]) for event in trace if event.get("ph") == "X"]
    start = next(at for at, name in spans if name == "Method::execute")
    theirs: Any = [event.start_time[0] for event in both.execute().events]
    ours = sorted(at - start for at, _ in spans if at >= start)
    assert np.multiply(ours, 1e3) == pytest.approx(np.sort(theirs) - min(theirs), abs=1)


@rows("Event.delegate_debug_identifier")
def test_inside_of_delegates(both: Both) -> None:
    """Names of what runs inside, compared as they are, and the operators they are told to be."""
    names = {
        (event._instruction_id, str(event.delegate_debug_identifier))
        for event in timed(both.inspector).values()
        if event.is_delegated_op
    }
    events = both.found.events
    inner = events[(events["backend"] != "") & (events["name"] != "DELEGATE_CALL")]
    assert {(int(row["instruction"]), row["name"]) for _, row in inner.iterrows()} == names
    assert set(inner.loc[inner["operator"] != "", "confidence"]) <= {"certain", "likely"}


@rows(
    *("EventBlock.run_output", "EventBlock.run_output as tensors", "compare the final outputs first"),
    "program outputs only (kProgramOutputs)",
)
def test_outputs_are_those_of_the_event_block(both: Both, tmp_path: Path) -> None:
    block = both.execute()
    for (_, row), logged in zip(both.found.outputs.iterrows(), block.run_output, strict=True):
        assert isinstance(logged, Tensor)
        assert same(both.found.tensors(row)[1], logged)
        assert row["matches"]
        assert same(both.found.run_outputs[0][int(row["output"])], logged)
    assert both.found.summary().startswith("The final output matches the reference")
    only = etviz.load(
        etrecord=both.case.path("etrecord"), pte=both.case.path("pte"), inputs=both.inputs, outputs=[block.run_output]
    )
    assert only.outputs["mse"].tolist() == both.found.outputs["mse"].tolist()
    said("dump", both.folder, "-o", str(tmp_path / "tensors"))
    load(both.case).export.tensors(tmp_path / "again")
    indices = [json.loads((tmp_path / name / "index.json").read_text("utf-8")) for name in ("tensors", "again")]
    assert [len(index["rows"]) for index in indices] == [len(both.found.gaps)] * 2
    assert len(both.found.what_if(2).outputs) == len(block.run_output)


@rows(
    *("get_delegation_info", "DelegationInfo.get_summary", "DelegationInfo.get_operator_delegation_dataframe"),
    "format_delegated_graph, print_delegated_graph",
    "the graph as SVG with the errors in it (Qualcomm's QNNIntermediateDebugger)",
)
def test_delegation(both: Both, tmp_path: Path) -> None:
    delegation = both.found.delegation
    assert delegation is not None
    for name in ("num_delegated_subgraphs", "num_delegated_nodes", "num_non_delegated_nodes"):
        assert getattr(delegation, name) == getattr(both.info, name)
    assert delegation.summary() == both.info.get_summary()
    frame = both.info.get_operator_delegation_dataframe()
    pd.testing.assert_frame_equal(delegation.by_operator, frame, check_dtype=False)
    assert f"{delegation.num_delegated_subgraphs} delegates" in both.found.summary()
    assert both.found.format_delegated_graph() == both.text
    assert both.printed.strip() == both.text.strip()
    picture = both.found.export.svg(tmp_path / "graph.svg").read_text("utf-8")
    said("report", both.folder, "-o", str(tmp_path / "report.html"), "--svg", str(tmp_path / "own.svg"))
    assert all(picture.count(name) for name in ("convolution", "cumsum", "native_layer_norm"))
    assert (tmp_path / "own.svg").stat().st_size > 0
    assert both.found.time.ledger()["operators"].str.len().gt(0).all()


@rows("sort by gap, filter by a threshold")
def test_sorted_and_filtered_by_gap(both: Both) -> None:
    """`worst` by upstream's metric has its largest gap; a check fails below the largest error, and passes above."""
    frame = both.inspector.calculate_numeric_gap("MSE", reference_graph=EDGE)
    largest = max(range(len(frame)), key=lambda at: float(frame["gap"].iloc[at][0]))
    runtime: Tensor = frame["runtime_intermediate_output"].iloc[largest]
    worst = both.found.worst(len(both.found.gaps), by="mse")
    assert any(same(both.found.tensors(row)[1].double(), runtime.double()) for row in worst.index)
    most = float(worst["rmse"].max())
    for limit, status in ((most / 2, 1), (most * 2, 0)):
        assert CliRunner().invoke(app, ["check", both.folder, "--max-rmse", str(limit)]).exit_code == status


@rows("Inspector.find_total_for_module")
def test_module_totals(both: Both) -> None:
    """Upstream counts what its kernels take, etviz the whole call; what one call shares with others it counts apart."""
    total = both.found.module_total("norm")
    events = both.found.events
    kernels = events["name"].str.startswith("native_call_") & events["instruction"].isin(total.instructions)
    theirs = both.inspector.find_total_for_module("norm")
    assert theirs == pytest.approx(events.loc[kernels, "avg_ms"].sum(), rel=1e-9)
    assert total.latency_ms >= theirs > 0
    shared = both.found.module_total("block.0")
    assert math.isnan(shared.latency_ms)
    assert shared.shared_ms > 0


@rows(
    *("check accumulation patterns", "identify and investigate operators with significant gaps"),
    "values without a reference",
)
def test_a_significant_gap_is_investigated(both: Both, tmp_path: Path) -> None:
    """The instruction whose value was changed is the first divergence; what follows inherits its error."""
    gaps = both.found.gaps
    at = gaps.index[gaps["op"].str.contains("cumsum")][0]
    planted = int(gaps["instruction"][at])
    found = load_shifted(both.case, tmp_path, planted, 0.5, inputs=both.inputs)
    first = found.first_divergence
    assert first is not None
    assert first["instruction"] == planted
    assert found.worst(1)["instruction"].iloc[0] == planted
    mean = gaps[gaps["op"].str.contains("mean")].iloc[0]
    alone = both.found.tensors(at)[1].mean((2, 3)).double() - both.found.tensors(mean)[1].double()
    assert mean["introduced_rmse"] == pytest.approx(float(alone.square().mean().sqrt()), rel=1e-6)
    assert mean["rmse"] > mean["introduced_rmse"]
    assert mean["noise"] > 0 < mean["introduced_severity"] < 2
    assert planted in set(found.attribution()["instruction"])
    assert found.row(at).reference.shape == found.row(at).runtime.shape
    assert len(found.what_if(at).outputs) == len(found.outputs)
    plain, changed = (
        etviz.load(folder / FILES["etdump"], debug_buffer=folder / FILES["debug_buffer"])
        for folder in (both.case.folder, tmp_path)
    )
    apart = changed.against(plain)
    assert apart.gaps.loc[apart.gaps["rmse"] > 0, "instruction"].tolist() == [planted]
    assert f"{apart.worst(1)['rel_l2'].iloc[0]:.3g}" in etviz.compare(plain, changed).summary()


@rows(
    *("pipeline 1: export, run and debug in Python", "ETRecord.update_representative_inputs"),
    *(
        "to_edge_transform_and_lower(generate_etrecord=True), ETRecord.save",
        "programs that belong together (encoder.pte, decoder.pte)",
    ),
    "Runtime.load_program(debug_buffer_size=)",
    "WhyNoPartition, WhyNoPartitionReporter",
)
def test_pipeline_1(both: Both, tmp_path: Path) -> None:
    """`etviz.debug` gives the values, pairs and verdict of upstream's pipeline, whose record `etviz.record` writes."""
    debugged = etviz.debug(
        both.model, both.inputs, partitioner=[XnnpackPartitioner()], workdir=tmp_path, debug_buffer_size=1 << 20
    )
    etviz.record(None, both.case.manager, tmp_path / "later.etviz")
    loaded = load(both.case, record=tmp_path / "later.etviz", inputs=both.inputs)
    for found in (debugged, loaded):
        assert set(found.gaps["pairing"]) == {"exact"}
        assert found.gaps["reference_ops"].tolist() == both.found.gaps["reference_ops"].tolist()
        for row in both.found.gaps.index:
            assert same(found.tensors(row)[1], both.found.tensors(row)[1])
        assert found.summary().splitlines()[0] == both.found.summary().splitlines()[0]
    ledger = debugged.time.ledger("instruction")
    reasons = [line.rsplit(" because ", 1)[1].rstrip(".") for line in both.refused]
    assert sorted(reason.rstrip(".") for reason in ledger["refused"] if reason) == sorted(reasons)
    names = ("etdump", "debug_buffer", "pte", "etrecord")
    files = [{kind: folder / FILES[kind] for kind in names} for folder in (both.case.folder, tmp_path)]
    together = etviz.load({"a": files[0], "b": files[1]})
    assert together.methods == ["a", "b"]
    assert same(together.method("b").tensors(0)[1], both.found.tensors(0)[1])


@rows(
    *("pipeline 2: a C++ runner", "BundledProgram, MethodTestSuite, MethodTestCase"),
    "example_runner --bundled_program_path --output_verification",
    "example_runner --dump_intermediate_outputs --debug_buffer_size --etdump_path --debug_output_path",
)
def test_pipeline_2(both: Both, runner: CppRunner, tmp_path: Path) -> None:
    """A bundle is upstream's, and judged as by upstream; what `make runner` builds takes upstream's flags."""
    expected = [both.model(*both.inputs).detach()]
    cases = [MethodTestCase(both.inputs, expected), MethodTestCase(both.inputs, [expected[0] + 1])]
    theirs = BundledProgram(both.case.manager, [MethodTestSuite("forward", cases)])
    right, wrong = expected, [expected[0] + 1]
    path = etviz.bundle(both.case.manager, [both.inputs] * 2, tmp_path / "model.bpte", expected=[right, wrong])
    assert path.read_bytes() == serialize_from_bundled_program_to_flatbuffer(theirs)
    verdicts = list[bool]()
    for at in range(2):
        module = _load_bundled_program_from_buffer(path.read_bytes())
        try:
            module.verify_result_with_bundled_expected_output("forward", at, 1e-3, 1e-5)
            verdicts.append(True)
        except RuntimeError:
            verdicts.append(False)
    assert etviz.verify(path)["verified"].tolist() == verdicts == [True, False]
    assert "test set 1" in said("verify", str(path))
    flags = ("--dump_intermediate_outputs", "--debug_buffer_size=1048576", "--etdump_path=a", "--debug_output_path=b")
    told = runner(tmp_path, f"--bundled_program_path={path}", "--output_verification", *flags, status=1)
    assert "test set 0: verified" in told
    assert "test set 1: output 0 differs" in told
    found = etviz.load(tmp_path / "a", debug_buffer=tmp_path / "b", pte=path, etrecord=both.case.path("etrecord"))
    for row in both.found.gaps.index:
        assert same(found.tensors(row)[1], both.found.tensors(row)[1])


class Looped(nn.Module):
    """One delegate of the backend in `tests/backend`, which logs what it computes inside."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cumsum(torch.sigmoid(x) * torch.tanh(x), -1)


@rows(
    *("debug handles in backends (#16316)", "every delegate call is one operator", "focus on delegated operators"),
)
def test_values_that_a_backend_logs(runner: CppRunner, tmp_path: Path) -> None:
    """Each value that upstream joins by debug handle is a row's; of an operator in two steps it joins the first."""
    x = torch.randn(3, 6)
    edge = to_edge_transform_and_lower(
        torch.export.export(Looped(), (x,)), partitioner=[LoopsPartitioner(ids="ints")], generate_etrecord=True
    )
    manager = edge.to_executorch()
    manager.get_etrecord().update_representative_inputs((x,))
    manager.get_etrecord().save(str(tmp_path / "etrecord.bin"))
    manager.save(str(tmp_path / "model.pte"))
    arguments = ("--model", "model.pte", "--inputs", write_inputs(tmp_path, [x])[0], "--dump-intermediate-outputs")
    runner(tmp_path, *arguments)
    found = etviz.load(tmp_path, inputs=(x,))
    inside = found.zoom(0)
    (look,) = found.look_inside()
    assert look.gaps["mse"].tolist() == inside.gaps["mse"].tolist()
    assert found.gaps["kind"].tolist() == ["delegate", *["inner"] * 3, "kernel"]
    assert inside.gaps["reference_ops"].tolist() == ["sigmoid", "tanh", "mul"]
    inspector = Inspector(
        etdump_path=str(tmp_path / "etdump.etdp"),
        etrecord=str(tmp_path / "etrecord.bin"),
        debug_buffer_path=str(tmp_path / "debug_output.bin"),
    )
    theirs = inspector.calculate_numeric_gap("MSE", reference_graph=EDGE)
    joined = [row["runtime_intermediate_output"].double() for _, row in theirs.iterrows() if row["gap"][0] < 1e-9]
    assert len(joined) == len(theirs) - 1 == 3
    for value in joined:
        assert any(same(found.tensors(row)[1].double(), value) for row in found.gaps.index)
    assert found.gaps["rmse"].max() < 1e-6
