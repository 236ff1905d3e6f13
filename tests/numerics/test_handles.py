"""Where the ETRecord is all that is known: what a group of debug handles introduced, and where that is not known."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge_transform_and_lower
from torch import Tensor, nn
from torch.export import export

import etviz
from etviz.errors import UsageError
from etviz.graph.ir import Graph, Input, Node, Ref
from etviz.pairing.handles import HandleGroups
from etviz.pipeline.execute import execute
from tests import oracles
from tests.counting import calls
from tests.numpy_metrics import EPS, expected_metrics
from tests.programs import FILES, RECIPES, Executed
from tests.zoo.judge import spoken_for

Programs = Callable[[str], Executed]
UNKNOWN = "what it introduced is not known: "


def by_handles(program: Executed, folder: Path | None = None, **options: Any) -> etviz.Inspection:
    """What the ETRecord tells of a run, without `.pte` and record."""
    where = folder or program.folder
    given: dict[str, Any] = {"etrecord": program.path("etrecord"), "debug_buffer": where / FILES["debug_buffer"]}
    return etviz.load(where / FILES["etdump"], **given | options)


def rerun(program: Executed, folder: Path, *runs: list[Any], **options: Any) -> etviz.Inspection:
    """What the ETRecord tells of other executions."""
    execute(program.path("pte"), runs, workdir=folder)
    return by_handles(program, folder, **options)


def lower(model: nn.Module, inputs: tuple[Tensor, ...], folder: Path, partitioner: list[Any] | None = None) -> None:
    """Write a program and its ETRecord."""
    edge = to_edge_transform_and_lower(export(model, inputs), partitioner=partitioner, generate_etrecord=True)
    manager = edge.to_executorch()
    manager.save(str(folder / FILES["pte"]))
    etrecord = manager.get_etrecord()
    etrecord.update_representative_inputs(inputs)
    etrecord.save(str(folder / FILES["etrecord"]))


def without_program(folder: Path) -> dict[str, Any]:
    """The arguments of `etviz.load` for what `lower` and a run have written, without the `.pte`."""
    return {kind: folder / FILES[kind] for kind in ("etdump", "etrecord", "debug_buffer")}


def known(found: etviz.Inspection) -> pd.DataFrame:
    """The rows with an introduced gap."""
    return found.gaps[found.gaps["introduced_allclose"].notna()]


def assert_close(found: Mapping[Any, Any], expected: Mapping[str, float], rounding: float, where: str) -> None:
    """Within 1e-6, or within the rounding of the value: two copies of a weight may give products that differ by it."""
    for name in ("rmse", "max_abs", "mean_abs", "severity"):
        got, value = float(found[f"introduced_{name}"]), expected[name]
        if math.isnan(value) or math.isinf(value):
            assert got == value or (math.isnan(got) and math.isnan(value)), f"{name} {where}"
            continue
        unit = rounding * value / expected["rmse"] if expected["rmse"] else rounding if name != "severity" else 1.0
        assert math.isclose(got, value, rel_tol=1e-6, abs_tol=unit), f"{name} {where}: {got} instead of {value}"


@pytest.mark.parametrize("name", [name for name in RECIPES if name != "branches"])
def test_introduced_metrics_of_every_group(name: str, executed: Programs) -> None:
    """Torch's interpreter evaluates the lowered program on the runtime's values, but those that a row speaks for."""
    program = executed(name)
    found, nodes = by_handles(program), oracles.nodes_of_instructions(program)
    runtime = oracles.runtime_values(program, oracles.logged(program.folder))
    every = {nodes[instruction]: values for instruction, values in runtime.items()}
    single, _ = oracles.evaluate(program, every)
    rows = known(found)
    for _, row in rows.iterrows():
        instruction, output = row["instruction"], row["output"]
        key, inside, local = nodes[instruction], {nodes[i] for i in spoken_for(row) - {instruction}}, single
        if inside:
            local, _ = oracles.evaluate(program, {k: v for k, v in every.items() if k not in inside})
        value = runtime[instruction][output]
        grid, noise = oracles.grid(program, key, output), row["introduced_noise"]
        expected = expected_metrics(local[key][output], value, grid, noise)
        finite = value.double()[value.isfinite()]
        rounding = EPS.get(value.dtype, 0.0) * float(finite.square().mean().sqrt()) if finite.numel() else 0.0
        assert_close(dict(row), expected, rounding, f"of {name}, instruction {instruction}")
    assert len(rows) or name == "poisoned"


def test_readers_of_a_value_that_is_not_paired_are_judged_with_its_maker(executed: Programs) -> None:
    """Which output of a delegate is which is not known, so the error of the delegate and its reader is one."""
    found = by_handles(executed("many_outputs"))
    (unpaired,) = found.coverage.loc[found.coverage["status"] == "not compared", "instruction"]
    assert len(known(found)) == len(found.gaps)
    spoken = [spoken_for(row) - {row["instruction"]} for _, row in found.gaps.iterrows()]
    assert {unpaired} in spoken
    assert all(others <= {unpaired} for others in spoken)


def test_introduced_can_be_left_out_and_asked_for_later(executed: Programs) -> None:
    program = executed("residual_cnn")
    now, later = by_handles(program), by_handles(program, introduced=False)
    assert not later.introduced
    assert known(later).empty
    later.compute_introduced()
    pd.testing.assert_frame_equal(later.gaps, now.gaps)


def test_what_needs_operators_says_so(executed: Programs, tmp_path: Path) -> None:
    found = by_handles(executed("residual_cnn"))
    assert not found.analysis.zooms.possible(0)
    for ask in (lambda: found.zoom(0), lambda: found.repro(0, tmp_path / "a"), lambda: found.repro(1, tmp_path / "b")):
        with pytest.raises(UsageError, match="paired by debug handle"):
            ask()
    with pytest.raises(UsageError, match="needs the operators of each instruction"):
        found.attribution()


def test_inputs_are_taken_from_what_a_delegate_logged(executed: Programs, tmp_path: Path) -> None:
    """The run had others than the ETRecord's: the gaps are those on its own inputs."""
    program = executed("residual_cnn")
    other = [torch.randn(1, 3, 8, 8, generator=torch.Generator().manual_seed(5))]
    found = rerun(program, tmp_path, other)
    assert "computed on the inputs that were logged" in found.summary()
    told = by_handles(program, tmp_path, inputs=tuple(other))
    assert "inputs" not in told.summary()
    pd.testing.assert_frame_equal(found.gaps.drop(columns="input_index"), told.gaps.drop(columns="input_index"))
    assert found.gaps["severity"].max() < 100


class TwoAlike(nn.Module):
    """A delegate that reads two inputs of the same shape."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.cumsum(self.linear(x) * y, -1)


def test_inputs_that_no_delegate_can_have_had(tmp_path: Path) -> None:
    """Which of two logged values is which input is not known, but that the given ones are not among them is."""
    given, other = ((torch.randn(2, 4), torch.randn(2, 4)) for _ in range(2))
    lower(TwoAlike().eval(), given, tmp_path, [XnnpackPartitioner()])
    execute(tmp_path / "model.pte", [list(given)], workdir=tmp_path)
    right = etviz.load(**without_program(tmp_path))
    assert right.gaps["introduced_severity"].max() < 100
    assert right.gaps["severity"].max() < 100
    wrong = etviz.load(**without_program(tmp_path), inputs=other)
    assert "not all of them were logged" in wrong.summary()
    assert wrong.gaps["severity"].isna().all()
    delegate = wrong.gaps["kind"] == "delegate"
    assert wrong.gaps.loc[delegate, "introduced_severity"].isna().all()
    assert wrong.gaps.loc[~delegate, "introduced_severity"].max() < 100


def test_inputs_that_are_not_believed_introduce_nothing(executed: Programs, tmp_path: Path) -> None:
    """No delegate logged them: what the first kernel introduced is not known, nor any total; the rest is."""
    program = executed("plain_cnn")
    other = [torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(5))]
    found = rerun(program, tmp_path, other)
    assert "most likely had other inputs" in found.summary()
    first = found.gaps["instruction"] == found.gaps["instruction"].min()
    assert found.gaps.loc[first, "introduced_severity"].isna().all()
    assert found.gaps["severity"].isna().all()
    assert found.gaps.loc[~first, "introduced_severity"].max() < 100
    assert (found.gaps["reason"] != "").all()
    assert found.first_divergence is None


def test_a_buffer_that_earlier_executions_changed(executed: Programs, tmp_path: Path) -> None:
    program = executed("counter")
    inputs = list(program.inputs)
    found = rerun(program, tmp_path, inputs, inputs, inputs=[program.inputs, program.inputs])
    blocks = [part for _, part in found.gaps.groupby("event_block")]
    assert blocks[0]["introduced_severity"].notna().all()
    changed = blocks[1][blocks[1]["introduced_severity"].isna()]
    assert len(changed) == 1
    assert (
        changed["reason"].iloc[0] == f"{UNKNOWN}its group reads the buffer mean, which earlier executions have changed"
    )
    assert changed["severity"].iloc[0] < 100
    count = len(known(found))
    assert f"First divergence: none in the {count} values where it is known" in found.summary()
    assert f"Known for {count} values" in " ".join(fact.hint for fact in found.analysis.digest.facts)


class SameNames(nn.Module):
    """The branches and what follows them have operators of the same name."""

    def forward(self, x: Tensor) -> Tensor:
        x = torch.cond(x.sum() > 0, lambda y: torch.sin(y).clone(), lambda y: torch.sin(-y).clone(), (x,))
        return torch.sin(x)


def test_operators_of_branches_are_no_other_operators(tmp_path: Path) -> None:
    inputs = (torch.tensor([[0.5, 1.0, 2.0]]),)
    lower(SameNames(), inputs, tmp_path)
    execute(tmp_path / "model.pte", [list(inputs)], workdir=tmp_path)
    found = etviz.load(**without_program(tmp_path))
    row = found.gaps[found.gaps["op"].str.contains("sin")].iloc[-1]
    reference, _ = found.tensors(row)
    torch.testing.assert_close(reference, torch.sin(torch.sin(inputs[0])))
    assert row["severity"] < 100
    assert "which torch.cond gives" in row["reason"]


def test_what_lies_between_groups_is_bounded() -> None:
    """A file can make thousands of groups read a value behind thousands of views that no instruction claims."""

    def chain(views: int, readers: int) -> tuple[Graph, Graph, dict[int, tuple[int, ...]]]:
        hidden = [
            Node(f"view_{i}", "aten.view_copy.default", (Ref(f"view_{i - 1}" if i else "x"),)) for i in range(views)
        ]
        seen = [Node(f"sin_{i}", "aten.sin.default", (Ref(hidden[-1].name),), handles=(i,)) for i in range(readers)]
        edge = Graph("forward", [Input("x", "user")], [*hidden, *seen], [Ref(node.name) for node in seen])
        program = Graph("forward", nodes=[Node(f"i{i}", "aten.sin.default", instruction=i) for i in range(readers)])
        return edge, program, {i: (i,) for i in range(readers)}

    few, many = chain(2_000, 100), chain(8_000, 400)
    work = calls(lambda: HandleGroups(*few))
    assert calls(lambda: HandleGroups(*many)) < 5 * work, "each reader with each view would be 16 times as much"
    groups = HandleGroups(*many)
    assert len(groups.cuts) == 400
    assert not any(own for kind in groups.readers.values() for own in kind.values())
    (stopped,) = groups.cuts[0].reads
    assert groups.origin(stopped) == "which no instruction claims by debug handle"
