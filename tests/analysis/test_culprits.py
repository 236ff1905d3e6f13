"""The one decision: who is at fault in runs with NaN, other shapes, several executions and several faults."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from torch import Tensor, nn

import etviz
from etviz.analysis.analysis import Analysis
from etviz.analysis.culprits import Decision
from etviz.artifacts.etdump.etdump import read_etdump
from etviz.artifacts.record.record_file import read_record, write_record
from etviz.comparison.exact import compare_exact
from etviz.comparison.gap import ExecutionGaps
from etviz.comparison.input_checks import Entrance
from etviz.errors import ArtifactError
from etviz.gate import Rules, check
from etviz.pipeline.execute import execute
from etviz.pipeline.lower import lower
from etviz.view.payload.program_payload import build_payload
from tests.numerics.test_hypotheses import Applied, matrix, run_against
from tests.numerics.test_what_if import broken
from tests.programs import Executed
from tests.statements import contradictions

RIGHT = {"record": "model.etviz", "etrecord": "etrecord.bin"}
Make = Callable[[str], Executed]


class Hidden(nn.Module):
    """NaN arises in a portable kernel, and XNNPACK's exp gives numbers for it."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.exp(torch.asin(x)) + 1


OTHER: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "shape": (lambda x: torch.cumsum(x, 0).sum(0), lambda x: torch.cumsum(x, 0).sum(1)),
    "dtype": (lambda x: torch.cumsum(x, 0).half(), lambda x: torch.cumsum(x, 0).double()),
}


class Branching(nn.Module):
    """The input is read by a delegate and, later, by a portable kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cumsum(torch.relu(self.linear(x)), -1) + torch.cumsum(x, 0)


def test_the_operator_that_loses_a_nan_is_at_fault() -> None:
    x = torch.linspace(-0.9, 0.9, 16).reshape(2, 8)
    x[0, 3] = 2.0
    found = etviz.debug(Hidden(), (x,), partitioner=[XnnpackPartitioner()])
    first, gaps = found.first_divergence, found.gaps
    lost = gaps[gaps["introduced_non_finite"] > 0]
    if lost.empty:
        pytest.skip("this XNNPACK passes NaN on")
    assert first is not None
    assert first.name == lost.index[0]
    body = found.diagnosis(look_inside=False)
    assert body["culprit"]["row"] == first.name
    assert "loses NaN" in body["finding"]["text"]
    assert body["culprit"]["share"] is None
    assert "% of the output's error" not in body["finding"]["text"], "no share counts NaN"
    assert any(f.label == "Worst introduced" and "non-finite" in f.value for f in found.analysis.digest.facts)
    origin = gaps[gaps["non_finite"] == "created"].iloc[0]
    assert f"NaN arises at #{origin['instruction']} asin" in body["finding"]["text"]
    assert found.analysis.digest.level == "bad"
    assert "reference is at fault" not in found.analysis.digest.verdict
    assert body["attribution"]["sum"] is None or "NaN or Inf" in body["attribution"]["note"]
    assert not check(found.analysis, Rules()).passed


@dataclass
class _Other:
    """A log in which the value of one instruction is another one."""

    log: Any
    instruction: int
    change: Callable[[Tensor], Tensor]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.log, name)

    def values(self, instruction: int) -> list[Any]:
        """The values, the last one changed."""
        values = self.log.values(instruction)
        return values if instruction != self.instruction else [*values[:-1], self.change(values[-1])]

    def last_values(self, instruction: int, count: int) -> list[Any] | None:
        """The last of them."""
        values = self.values(instruction)
        return values[-count:] if 0 < count <= len(values) else None

    def outputs(self) -> list[Any]:
        """The final outputs."""
        return self.log.outputs()


def changed(found: etviz.Inspection, instruction: int, change: Callable[[Tensor], Tensor]) -> ExecutionGaps:
    """The comparison of a run in which an instruction gave something else."""
    replay = found.analysis.tables.compared.replay
    assert replay is not None
    (execution,) = replay.executions
    log: Any = _Other(execution.log, instruction, change)
    return compare_exact(replay.fresh(), log, execution.inputs)


def analysis_of(found: etviz.Inspection, comparison: ExecutionGaps) -> Analysis:
    """The same program with another comparison."""
    findings, compared = found.analysis.findings, found.analysis.tables.compared
    run = compared.runs[0]._replace(comparison=comparison)
    return Analysis(replace(findings, compared=replace(compared, runs=(run,)), complete=None))


@pytest.mark.parametrize("change", [lambda v: v[:, :1], lambda v: v.double()], ids=["shape", "dtype"])
def test_another_shape_or_dtype_is_a_divergence(executed: Make, change: Callable[[Tensor], Tensor]) -> None:
    program = executed("plain_cnn").inspection
    gaps = program.gaps
    at = int(gaps.loc[gaps["op"].str.contains("relu|clamp|hardtanh"), "instruction"].iloc[0])
    analysis = analysis_of(program, changed(program, at, change))
    rows = analysis.gaps
    row = rows.index[rows["instruction"] == at].tolist()[0]
    assert rows["status"][row] == "shape or dtype mismatch"
    finding, first = analysis.finder.finding(), analysis.finder.first_divergence()
    assert finding is not None
    assert first is not None
    assert (finding.row, first.name, finding.level) == (row, row, "bad")
    assert "is not the reference's" in finding.text
    assert analysis.tables.ranked("introduced_severity").index[0] == row
    assert analysis.tables.ranked("rmse").index[0] == row
    assert analysis.digest.level == "bad"
    assert any(case.row == row for case in check(analysis, Rules()).failures)
    build_payload(analysis)
    assert analysis.values.pair(row).reference is None


def test_an_uncompared_instruction_before_the_first_wrong_value_is_named_first(executed: Make) -> None:
    program = executed("plain_cnn").inspection
    order = sorted(program.gaps["instruction"].unique())
    early, late = int(order[0]), int(order[4])
    comparison = changed(program, late, lambda value: value + 1)
    comparison.gaps[:] = [gap for gap in comparison.gaps if gap.instruction != early]
    comparison.reasons[early] = "values of complex64 are not compared"
    finding = analysis_of(program, comparison).finder.finding()
    assert finding is not None
    assert finding.text.startswith(f"#{early} ")
    assert "was not compared (values of complex64 are not compared). After it, " in finding.text
    assert f"#{late} " in finding.text


def test_a_record_whose_output_has_other_sizes_is_another_programs(tmp_path: Path) -> None:
    right, wrong = OTHER["shape"]
    run_against(Applied(right), Applied(wrong), (matrix(5, 7),), tmp_path)
    files: dict[str, Any] = {
        "etdump": tmp_path / "wrong/etdump.etdp",
        "debug_buffer": tmp_path / "wrong/debug_buffer.bin",
    }
    with pytest.raises(ArtifactError, match=r"another program.*an output gives sizes \(5,\) in the one and \(7,\)"):
        etviz.load(**files, etrecord=tmp_path / "right/etrecord.bin")


@pytest.mark.parametrize(("name", "kinds"), [("shape", ("pte",)), ("dtype", ("pte",)), ("dtype", ())])
def test_of_wrong_outputs_what_was_not_compared_is_named(name: str, kinds: tuple[str, ...], tmp_path: Path) -> None:
    """Nothing that was compared is wrong; the instruction that was not precedes the output."""
    right, wrong = OTHER[name]
    run_against(Applied(right), Applied(wrong), (matrix(5, 7),), tmp_path)
    files: dict[str, Any] = {}
    for kind, path in {"etdump": "etdump.etdp", "debug_buffer": "debug_buffer.bin", "pte": "model.pte"}.items():
        if kind != "pte" or kinds:
            files[kind] = shutil.copy(tmp_path / "wrong" / path, tmp_path)
    found = etviz.load(**files, etrecord=tmp_path / "right/etrecord.bin")
    finding, verdict = found.analysis.finder.finding(), found.analysis.digest
    assert "has another shape or dtype than the reference" in verdict.verdict
    assert verdict.level == "bad"
    assert not check(found.analysis, Rules()).passed
    assert contradictions(found) == []
    missing = found.coverage[found.coverage["status"] == "not compared"]
    assert finding is not None
    if found.first_divergence is None:
        assert finding.text.startswith(f"#{missing['instruction'].iloc[0]} ")
        assert "no operator that was compared adds more error" in finding.text


def test_statements_follow_the_execution_that_is_wrong(executed: Make, tmp_path: Path) -> None:
    """Of four executions the third one has a wrong value, in the log of its last instruction and of its output."""
    program = executed("plain_cnn")
    shutil.copy(program.path("pte"), tmp_path / "model.pte")
    shutil.copy(program.path("etrecord"), tmp_path / "etrecord.bin")
    inputs = [tuple(item + 0.1 * run for item in program.inputs) for run in range(4)]
    ran = execute(tmp_path / "model.pte", [list(item) for item in inputs], workdir=tmp_path)
    assert ran.etdump is not None
    assert ran.debug_buffer is not None
    blocks = [block for block in read_etdump(ran.etdump).blocks if block.name == "Execute"]
    events = blocks[2].debug
    last = max(event.instruction_id for event in events if event.chain >= 0 and not event.is_output)
    refs = {
        tensor.offset
        for event in events
        if event.is_output or (event.chain >= 0 and event.instruction_id == last)
        for tensor in event.tensors[-1:]
    }
    data = np.memmap(ran.debug_buffer, np.uint8, "r+")
    for offset in refs:
        data[offset:][:4].view(np.float32)[:] += np.float32(5)
    data.flush()
    files: dict[str, Any] = {
        "etrecord": tmp_path / "etrecord.bin",
        "debug_buffer": ran.debug_buffer,
        "pte": tmp_path / "model.pte",
    }
    found = etviz.load(ran.etdump, inputs=inputs, **files)
    wrong, run = int(found.outputs.loc[~found.outputs["matches"].astype(bool), "event_block"].iloc[0]), 2
    first, body = found.first_divergence, found.diagnosis(look_inside=False)
    assert first is not None
    assert (first["event_block"], first["instruction"]) == (wrong, last)
    assert f", run {run}" in body["finding"]["text"]
    assert body["attribution"]["run"] == run
    assert body["culprit"]["share"] == pytest.approx(1.0, abs=0.05)
    assert [item["run"] for item in body["culprit"]["proof"]["outputs"]] == [run]
    assert body["culprit"]["proof"]["outputs"][0]["matches"]
    assert body["suspects"] == []
    both = found.what_if([int(str(first.name)), 0])
    assert set(both.runs) == {0, 2}
    assert len(both.after) == 2


class Summing(nn.Module):
    """Each call adds what it is given to what earlier calls left, times a number of its position."""

    seen: Tensor
    table: Tensor

    def __init__(self, table: Tensor) -> None:
        super().__init__()
        self.register_buffer("table", table)
        self.register_buffer("seen", torch.zeros(1, 8))

    def forward(self, x: Tensor, at: Tensor) -> Tensor:
        self.seen.add_(x * self.table[at])
        return torch.cumsum(self.seen, -1)


def test_of_calls_in_turn_the_first_with_a_fault_is_named(tmp_path: Path) -> None:
    """The table is wrong from the second call on, which most of that call's outputs do not feel."""
    table = matrix(4, 1)
    wrong = torch.cat([table[:1], -table[1:]])
    calls = [(matrix(1, 8), torch.tensor([at])) for at in range(4)]
    calls[1][0][:, :-1] = 0
    for name, held in (("right", table), ("wrong", wrong)):
        (tmp_path / name).mkdir()
        lower(Summing(held), calls[0], tmp_path / name)
    ran = execute(tmp_path / "wrong" / "model.pte", [list(call) for call in calls], workdir=tmp_path)
    files: dict[str, Any] = {name: tmp_path / "right" / file for name, file in RIGHT.items()}
    found = etviz.load(ran.etdump, debug_buffer=ran.debug_buffer, inputs=calls, **files)
    assert found.analysis.tables.worst_run > 1
    first, body = found.first_divergence, found.diagnosis(look_inside=False)
    assert first is not None
    assert (first["op"], found.analysis.tables.gaps[int(str(first.name))].run) == ("aten::index.Tensor_out", 1)
    assert ", run 1 " in body["finding"]["text"]
    assert "; 100 % of the output's error" in body["finding"]["text"]
    assert {fact.row for fact in found.analysis.digest.facts if fact.label == "First divergence"} == {first.name}
    assert {build_payload(found.analysis)[0]["summary"]["finding"]["row"], body["culprit"]["row"]} == {first.name}
    assert body["culprit"]["executions"] == 3
    assert body["culprit"]["share"] == pytest.approx(1.0, abs=0.05)
    assert "in all 3 executions in which it is at fault" in body["culprit"]["proof"]["message"]
    proof = [(item["run"], item["matches"]) for item in body["culprit"]["proof"]["outputs"]]
    assert proof == [(1, True), (2, True), (3, True)]
    assert body["suspects"] == []
    assert contradictions(found) == []


class Collecting(nn.Module):
    """A delegate of several operators, whose results are added up over calls."""

    seen: Tensor

    def __init__(self, factor: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        first = nn.Linear(8, 16)
        self.body = nn.Sequential(first, nn.ReLU(), nn.Linear(16, 8), nn.Tanh()).requires_grad_(False)
        first.weight[3] *= factor
        self.register_buffer("seen", torch.zeros(1, 8))

    def forward(self, x: Tensor) -> Tensor:
        self.seen.add_(self.body(x))
        return torch.cumsum(self.seen, -1)


def test_the_proof_covers_the_calls_that_were_not_zoomed_into(tmp_path: Path) -> None:
    calls = [(torch.randn(1, 8, generator=torch.Generator().manual_seed(seed)),) for seed in range(3)]
    for name, factor in (("right", 1.0), ("wrong", 2.0)):
        (tmp_path / name).mkdir()
        lower(Collecting(factor), calls[0], tmp_path / name, partitioner=[XnnpackPartitioner()], strict=False)
    right, wrong = (read_record(tmp_path / name / "model.etviz") for name in ("right", "wrong"))
    write_record(replace(right, pte_checksum=wrong.pte_checksum), tmp_path / "wrong" / "model.etviz")
    ran = execute(tmp_path / "wrong" / "model.pte", [list(call) for call in calls], workdir=tmp_path)
    files: dict[str, Any] = {"etrecord": tmp_path / "right" / "etrecord.bin", "pte": tmp_path / "wrong" / "model.pte"}
    found = etviz.load(ran.etdump, debug_buffer=ran.debug_buffer, inputs=calls, **files)
    first = found.first_divergence
    assert first is not None
    before = found.diagnosis(look_inside=False)["culprit"]
    assert found.zoom(first).faithful
    body = found.diagnosis(look_inside=False)
    after = body["culprit"]
    assert " inside #0" in after["name"]
    assert before["executions"] == after["executions"] > 1
    others = after["executions"] - 1
    assert f"({others} of them not zoomed into: there, of its whole delegate)" in after["proof"]["message"]
    assert "not zoomed into" not in before["proof"]["message"]
    assert all(output["matches"] for output in after["proof"]["outputs"])
    assert body["suspects"] == []


def test_the_proof_names_the_other_faults(executed: Make, tmp_path: Path) -> None:
    found = broken(executed("plain_cnn"), tmp_path / "both", ["features.4", "head"])
    body = found.diagnosis(look_inside=False)
    assert f"Other operators are at fault too: {body['suspects'][0]['name']}." in body["culprit"]["proof"]["message"]
    assert not body["culprit"]["proof"]["outputs"][0]["matches"]


@dataclass(frozen=True)
class Fault:
    """Stands for a `Culprit`."""

    run: int
    instruction: int
    severity: float

    @property
    def operator(self) -> tuple[int, str]:
        return self.instruction, "operator"


def test_an_operator_at_fault_in_several_calls_is_named_by_its_worst_row_in_the_worst_call() -> None:
    faults: Any = [
        Fault(0, 3, 5.0),
        Fault(0, 7, 9.0),
        Fault(1, 3, 4.0),
        Fault(1, 7, 6.0),
        Fault(1, 7, 8.0),
        Fault(2, 9, 9),
    ]
    decision = Decision(1, faults[0], tuple(faults), "", in_turn=True)
    assert decision.others(faults[0]) == [faults[4]]
    assert [group[0] for group in decision.operators()] == [faults[2], faults[4], faults[5]]


class TwoInputs(nn.Module):
    """Reads a tensor of floats and an index."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(8, 4)

    def forward(self, x: Tensor, at: Tensor) -> Tensor:
        return torch.tanh(torch.relu(x) + self.table(at))


def test_one_input_that_was_another_is_doubted(tmp_path: Path) -> None:
    x, at = torch.rand(1, 4), torch.tensor([3])
    etviz.debug(TwoInputs().eval(), (x, at), workdir=tmp_path)
    assert etviz.load(tmp_path, inputs=(x, at)).first_divergence is None
    found = etviz.load(tmp_path, inputs=(x, at + 1))
    assert found.diagnosis()["finding"]["text"].startswith("If the run had these inputs, #")
    assert "or the run had other inputs than inputs=" in found.summary()


def test_inputs_are_not_doubted_where_a_delegate_logged_them(tmp_path: Path) -> None:
    found = etviz.debug(Branching().eval(), (torch.rand(4, 8),), partitioner=[XnnpackPartitioner()], workdir=tmp_path)
    gaps = found.gaps
    reads = [g.instruction for g in found.analysis.tables.gaps if g.node.target == "aten.cumsum.default"]
    at = max(reads)
    assert len(reads) == 2, gaps
    for instruction in reads:
        analysis = analysis_of(found, changed(found, instruction, lambda value: value * 3))
        finding = analysis.finder.finding()
        assert finding is not None
        assert "If the run had these inputs" not in finding.text
        comparison = analysis.tables.compared.runs[0].comparison
        assert not Entrance(found.analysis.graph).starts_far_off(comparison), at


def test_of_equal_rows_the_culprit_is_called_the_worst(tmp_path: Path) -> None:
    """Other weights are equally wrong in all executions, and change the outputs of one whose inputs reach them."""
    right, wrong = (nn.Sequential(nn.Linear(8, 8), nn.Sigmoid()) for _ in range(2))
    wrong.load_state_dict(right.state_dict())
    with torch.no_grad():
        wrong.get_parameter("0.weight")[:, 5] *= 1.5
    inputs = [matrix(2, 8) + run for run in range(3)]
    for x in inputs[:2]:
        x[:, 5] = 0
    for name, model in (("right", right), ("wrong", wrong)):
        (tmp_path / name).mkdir()
        lower(model, (inputs[0],), tmp_path / name)
    ran = execute(tmp_path / "wrong" / "model.pte", [[x] for x in inputs], workdir=tmp_path)
    files: dict[str, Any] = {name: tmp_path / "right" / file for name, file in RIGHT.items()}
    found = etviz.load(ran.etdump, debug_buffer=ran.debug_buffer, inputs=[(x,) for x in inputs], **files)
    worst, first = (
        item for item in found.analysis.digest.facts if item.label in ("Worst introduced", "First divergence")
    )
    assert found.first_divergence is not None
    assert worst.row == first.row == found.first_divergence.name
    assert first.value.endswith(", run 2")
