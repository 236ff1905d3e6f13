# pyright: reportPrivateUsage=false
"""The same artifacts through the upstream Inspector and through etviz, wherever none of upstream's traps bites.

Compared are event names and times, tensors, operators, stack traces, debug handles, the delegated graph and gaps.
Counts of delegated nodes and the gaps of whole programs are compared in `tests/test_oracle.py`.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.devtools.inspector import Event
from executorch.exir import to_edge_transform_and_lower
from executorch.exir.backend.utils import format_delegated_graph
from torch import Tensor, nn
from torch._higher_order_ops.map import map as upstream_map
from torch.export import export

import etviz
from etviz.analysis.profile import durations
from etviz.artifacts.etdump.etdump import read_etdump
from etviz.artifacts.record.etrecord import ETRecord
from etviz.errors import UsageError
from etviz.graph.listing import format_delegated_graph as listing
from etviz.pipeline.execute import execute
from tests.conformance.cases import Case, assert_same_events, load, rerun, timed, upstream
from tests.oracles import same
from tests.programs import FILES, Encoder, Executed

Cases = Callable[[str], Case]
Programs = Callable[[str], Executed]
map_rows: Any = upstream_map  # which is annotated for no more than a tensor that is mapped
MIXED = ("encoder", "residual_cnn", "many_outputs", "plain_cnn")


@pytest.mark.parametrize("name", MIXED)
def test_events_and_their_times(name: str, executed: Programs) -> None:
    program = executed(name)
    assert_same_events(program.inspection, upstream(program))


def test_events_over_several_executions(case: Cases, tmp_path: Any) -> None:
    """Percentiles over five equal runs."""
    early = case("early")
    found = rerun(early, [list(early.runs[0])] * 5, tmp_path)
    assert set(found.events.loc[found.events["event_block"] == "Execute", "count"]) == {5}
    assert_same_events(found, upstream(early, tmp_path))


def test_parsers_and_converters_are_functions(case: Cases) -> None:
    early = case("early")
    with pytest.raises(UsageError, match="must be a function of an event's name and a time, found str"):
        load(early, delegate_time_scale_converter="ms")
    with pytest.raises(UsageError, match="delegate_time_scale_converter fails on the event"):
        _ = load(early, delegate_time_scale_converter=lambda name, time: None).events
    with pytest.raises(UsageError, match="must be a function of a list of bytes, found str"):
        load(early, delegate_metadata_parser="json")
    assert "delegate_debug_metadatas" not in load(early).events


@pytest.mark.parametrize("name", ["encoder", "residual_cnn", "plain_cnn"])
def test_logged_tensors(name: str, executed: Programs) -> None:
    """Every tensor that upstream inflates is a runtime tensor of the instruction's rows, or a delegate's input."""
    program = executed(name)
    found = program.inspection
    values: dict[int, list[Tensor]] = {}
    for index, row in found.gaps.iterrows():
        values.setdefault(int(row["instruction"]), []).append(found.tensors(index)[1])
    for event in timed(upstream(program)).values():
        if event.name in ("OPERATOR_CALL", "DELEGATE_CALL"):
            logged: Any = event.debug_data
            outputs = [value for value in logged if value.numel()][-len(values[event._instruction_id or 0]) :]
            for ours, theirs in zip(values[event._instruction_id or 0], outputs, strict=True):
                assert same(ours, theirs)


@pytest.mark.parametrize("name", ["residual_cnn", "plain_cnn"])
def test_operators_stacks_and_handles(name: str, executed: Programs) -> None:
    """Operator types, stack traces and debug handles of every kernel call."""
    program = executed(name)
    found, record = program.inspection, ETRecord(program.path("etrecord"))
    handles = record.debug_handles("forward")
    calls = found.events[found.events["name"] == "OPERATOR_CALL"].set_index("instruction")
    stacks = found.analysis.tables.rows.drop_duplicates("instruction").set_index("instruction")["stack"]
    compared = 0
    for event in timed(upstream(program)).values():
        if event.name != "OPERATOR_CALL" or not event.op_types:
            continue
        instruction = event._instruction_id or 0
        theirs = event.debug_handles if isinstance(event.debug_handles, (list, tuple)) else [event.debug_handles]
        assert list(handles[instruction]) == list(theirs)
        assert set(calls["op_types"][instruction]) <= set(event.op_types)
        assert stacks[instruction].strip() in [str(stack).strip() for stack in event.stack_traces.values()]
        compared += 1
    assert compared >= 3


@pytest.mark.parametrize("name", [*MIXED, "digits_int8", "counter", "branches", "casts", "poisoned"])
def test_the_delegated_graph_as_text(name: str, executed: Programs) -> None:
    program = executed(name)
    assert program.inspection.format_delegated_graph() == format_delegated_graph(program.edge.graph_module)


@pytest.mark.parametrize("name", ["plain_cnn", "residual_cnn", "digits_int8", "many_outputs", "counter", "encoder"])
def test_the_delegated_graph_from_pte_and_etrecord(name: str, executed: Programs, tmp_path: Path) -> None:
    program = executed(name)
    kinds = ("etdump", "etrecord", "debug_buffer", "pte")
    files: dict[str, Any] = {
        kind: shutil.copy(program.path(kind), tmp_path / program.path(kind).name) for kind in kinds
    }
    found = etviz.load(**files, inputs=program.inputs).format_delegated_graph()
    assert found == format_delegated_graph(program.edge.graph_module)


class Parted(nn.Module):
    """Delegates with weights in common, views, and values that do not depend on each other."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        self.norm = nn.LayerNorm(8)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        left, right = self.first(x).cumsum(-1), torch.sin(self.second(x))
        both = self.third(self.norm(left)) + right
        turned = left.view(2, 2, 4).transpose(0, 1).reshape(-1)
        return torch.relu(both) + left, turned, torch.cumsum(both * right, 0), torch.topk(self.first(both), 2)[0]


class Recurrent(nn.Module):
    """Three steps, whose weights are the same."""

    def __init__(self) -> None:
        super().__init__()
        self.steps, self.head = nn.LSTM(6, 8, batch_first=True), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.steps(x)[0][:, -1])


class Branched(nn.Module):
    """A branch and a loop, each between delegates."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        chosen = torch.cond(x.sum() > 0, torch.sin, torch.cos, (self.first(x),))
        return self.last(map_rows(lambda row, other: (row + other).sin(), self.last(chosen), torch.ones(4)))


@pytest.mark.parametrize(
    ("model", "shape", "by_operator"),
    [
        (Branched, (2, 4), False),
        (Parted, (2, 8), False),
        (Parted, (2, 8), True),
        (Recurrent, (1, 3, 6), False),
        (Encoder, (1, 6, 16), True),
    ],
)
def test_the_order_in_which_upstream_lowers(
    model: type[nn.Module], shape: tuple[int, ...], by_operator: bool, tmp_path: Path
) -> None:
    """Partitions by operator are lowered from the first to the last, merged ones the other way round."""
    x = torch.randn(shape)
    partitioner: Any = [XnnpackPartitioner(per_op_mode=by_operator)]
    edge = to_edge_transform_and_lower(export(model().eval(), (x,)), partitioner=partitioner, generate_etrecord=True)
    expected = format_delegated_graph(edge.exported_program().graph_module)
    manager = edge.to_executorch()
    manager.save(str(tmp_path / FILES["pte"]))
    manager.get_etrecord().save(str(tmp_path / FILES["etrecord"]))
    execute(tmp_path / FILES["pte"], [[x]], workdir=tmp_path)
    kinds = ("etdump", "etrecord", "debug_buffer", "pte")
    files: dict[str, Any] = {kind: tmp_path / FILES[kind] for kind in kinds}
    found = etviz.load(**files, inputs=(x,))
    assert expected.count("backend_id") > 1
    assert found.format_delegated_graph() == expected
    etviz.record(edge, manager, tmp_path / "model.etviz")
    exact = etviz.load(**files, inputs=(x,))
    assert set(exact.gaps["pairing"]) == {"exact"}
    assert exact.format_delegated_graph() == expected


def test_the_delegated_graph_of_a_program_that_was_emitted(executed: Programs, case: Cases) -> None:
    """From the record of another pipeline: the same lines, but nodes are numbered as in the emitted program."""
    program = executed("plain_cnn")
    assert listing(program.inspection.analysis.graph) == format_delegated_graph(program.edge.graph_module)
    text = load(case("early")).format_delegated_graph()
    assert "backend_id: XnnpackBackend" in text
    assert text.count("call_function[target=executorch.exir.dialects.edge._ops.aten.linear.default]") == 2
    with pytest.raises(UsageError, match="give record="):
        load(case("early"), pte=None).format_delegated_graph()


def test_an_inspector_that_exists(executed: Programs) -> None:
    """Its events, values and parser are taken over; with the files' `.pte` and record the rows are the exact ones."""
    program = executed("residual_cnn")
    inspector = upstream(program, delegate_metadata_parser=len)
    found = etviz.from_inspector(inspector)
    exact = program.inspection.gaps.set_index(["instruction", "output"])
    assert len(found.gaps)
    for _, row in found.gaps.iterrows():
        assert row["mse"] == pytest.approx(exact["mse"][row["instruction"], row["output"]], rel=1e-3, abs=1e-13)
    assert_same_events(found, inspector)
    assert "delegate_debug_metadatas" in found.events
    whole = etviz.from_inspector(inspector, pte=program.path("pte"))
    assert whole.gaps["mse"].tolist() == program.inspection.gaps["mse"].tolist()


def test_an_inspector_forgets_strides(executed: Programs) -> None:
    program = executed("channels_last")
    inspector = upstream(program)
    found = etviz.from_inspector(inspector, pte=program.path("pte"))
    assert "keeps values without their strides" in found.summary()
    assert found.gaps[found.gaps["shape"].map(len) > 1].empty
    files = {"etdump": program.path("etdump"), "debug_buffer": program.path("debug_buffer")}
    whole = etviz.from_inspector(inspector, pte=program.path("pte"), **files)
    assert whole.gaps["mse"].tolist() == program.inspection.gaps["mse"].tolist()


def test_what_is_no_inspector(executed: Programs) -> None:
    with pytest.raises(UsageError, match="found dict"):
        etviz.from_inspector({})  # pyright: ignore[reportArgumentType]
    program = executed("channels_last")
    with pytest.raises(UsageError, match="give etdump= too"):
        etviz.from_inspector(upstream(program), debug_buffer=program.path("debug_buffer"))


def test_an_inspector_without_an_etrecord(executed: Programs) -> None:
    found = etviz.from_inspector(upstream(executed("encoder"), etrecord=None))
    assert set(found.gaps["status"]) <= {"not compared"}
    assert "There is no reference" in found.summary()
    assert torch.tensor(found.events["avg_ms"].tolist()).isfinite().all()


def test_a_clock_that_wraps_around(executed: Programs) -> None:
    """A counter of 32 bits starts again at 0; upstream is one tick short. Other clocks that run backwards give NaN."""
    profile = read_etdump(executed("channels_last").path("etdump")).blocks[-1].profile
    count = len(profile)
    wrapped = replace(profile, start=np.full(count, 2**32 - 5, np.uint64), end=np.full(count, 7, np.uint64))
    assert durations(wrapped, 1.0).tolist() == [12.0] * count
    backwards = replace(profile, start=np.full(count, 2**40, np.uint64), end=np.full(count, 7, np.uint64))
    assert np.isnan(durations(backwards, 1.0)).all()
    assert Event._calculate_elapsed_time(2**32 - 5, 7) == 11
