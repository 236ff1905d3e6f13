"""Exact pairing: each value of the runtime stands beside its own reference value, and the gap is the gap."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from etviz.comparison.exact import compare_exact
from etviz.evaluation.evaluator import Evaluator
from etviz.graph.ir import OBSERVED, Graph, Input, Node, Ref
from etviz.tensors.metrics import METRICS
from tests import oracles
from tests.numpy_metrics import assert_metrics, expected_metrics
from tests.programs import Executed

UNTAKEN = "it was not executed: another branch was taken"


@cache
def logged(program: Executed) -> oracles.Logged:
    return oracles.logged(program.folder)


@cache
def truth(program: Executed) -> tuple[dict[oracles.Key, list[Any]], list[Any]]:
    return oracles.evaluate(program, {})


def test_every_logged_value_has_its_row(program: Executed) -> None:
    expected = {
        (instruction, output)
        for instruction, values in oracles.runtime_values(program, logged(program)).items()
        for output, value in enumerate(values)
        if value.numel()
    }
    gaps = program.inspection.gaps
    assert set(zip(gaps["instruction"], gaps["output"], strict=True)) == expected
    assert len(gaps) == len(expected)
    assert set(gaps["pairing"]) == {"exact"}


def test_runtime_values_are_those_of_the_files(program: Executed) -> None:
    values = oracles.runtime_values(program, logged(program))
    for index, row in program.inspection.gaps.iterrows():
        _, runtime = program.inspection.tensors(index)
        assert oracles.same(runtime, values[row["instruction"]][row["output"]])


def test_reference_values_are_those_of_the_lowered_program_in_eager_mode(program: Executed) -> None:
    nodes = oracles.nodes_of_instructions(program)
    values, _ = truth(program)
    for index, row in program.inspection.gaps.iterrows():
        reference, _ = program.inspection.tensors(index)
        assert oracles.same(reference, values[nodes[row["instruction"]]][row["output"]])


def test_metrics_of_every_row(program: Executed) -> None:
    nodes = oracles.nodes_of_instructions(program)
    values, _ = truth(program)
    runtime = oracles.runtime_values(program, logged(program))
    for _, row in program.inspection.gaps.iterrows():
        key, output = nodes[row["instruction"]], row["output"]
        scale = oracles.grid(program, key, output)
        expected = expected_metrics(values[key][output], runtime[row["instruction"]][output], scale, row["noise"])
        assert_metrics(dict(row), expected, f"of instruction {row['instruction']}")


def test_introduced_metrics_of_every_row(program: Executed) -> None:
    """Each operator is evaluated on what the runtime had as inputs; what differs then, it introduced itself."""
    nodes = oracles.nodes_of_instructions(program)
    runtime = oracles.runtime_values(program, logged(program))
    by_key = {
        nodes[instruction]: values for instruction, values in runtime.items() if not _is_copy(program, instruction)
    }
    local, _ = oracles.evaluate(program, by_key)
    assert program.inspection.introduced
    for _, row in program.inspection.gaps.iterrows():
        if _is_copy(program, row["instruction"]):
            continue
        key, output = nodes[row["instruction"]], row["output"]
        scale = oracles.grid(program, key, output)
        value, noise = runtime[row["instruction"]][output], row["introduced_noise"]
        expected = expected_metrics(local[key][output], value, scale, noise)
        expected = {f"introduced_{name}": value for name, value in expected.items()}
        assert_metrics(dict(row), expected, f"of instruction {row['instruction']}")


def _is_copy(program: Executed, instruction: int) -> bool:
    """Tell whether an instruction only writes a buffer back."""
    call: Any = program.plan.chains[0].instructions[instruction].instr_args
    return "op_index" in vars(call) and program.plan.operators[call.op_index].name == "aten::copy_"


def test_final_outputs(program: Executed) -> None:
    _, references = truth(program)
    found = program.inspection.outputs
    runtime = logged(program).outputs
    assert len(found) == len(references) == len(runtime)
    for (_, row), reference, value in zip(found.iterrows(), references, runtime, strict=True):
        expected = expected_metrics(reference, value, _output_grid(program, int(row["output"])), row["noise"])
        assert row["close"] == expected["allclose"]
        assert row["allclose"] == (expected.pop("allclose") == 1)
        assert_metrics(dict(row), expected)
        assert row["shape"] == tuple(value.shape)


def _output_grid(program: Executed, output: int) -> float | None:
    """Step of the grid of a final output: a delegate's, through its `getitem`, or a kernel's."""
    user = list(program.edge.graph_signature.user_outputs)[output]
    node: Any = next(node for node in program.edge.graph.nodes if node.name == user)
    index = 0
    if node.target is operator.getitem:
        node, index = node.args
    if node.target is torch.ops.higher_order.cond:
        return None
    return oracles.grid(program, ("", node.name), index)


def test_every_instruction_is_accounted_for(program: Executed) -> None:
    coverage = program.inspection.coverage
    nodes = oracles.nodes_of_instructions(program)
    assert coverage["instruction"].tolist() == sorted(nodes)
    compared = set(program.inspection.gaps["instruction"])
    for _, row in coverage.iterrows():
        done = row["instruction"] in compared
        assert row["status"] == ("compared" if done else "not compared")
        assert bool(row["reason"]) != done
    if program.name == "branches":
        assert set(coverage[coverage["status"] == "not compared"]["reason"]) == {UNTAKEN}
        assert (coverage["status"] == "not compared").sum() == 3
    else:
        assert compared == set(nodes)


def test_nan_of_the_runtime_is_the_worst_row_under_every_metric(executed: Callable[[str], Executed]) -> None:
    inspection = executed("poisoned").inspection
    gaps = inspection.gaps
    bad = gaps[gaps["status"] == "non-finite mismatch"]
    assert len(bad) == 1
    row = bad.iloc[0]
    assert (row["runtime_nan"], row["reference_nan"]) == (1, 0)
    for name in [*METRICS, *(f"introduced_{name}" for name in METRICS)]:
        assert inspection.worst(1, name).index[0] == bad.index[0]
    assert "NaN or Inf where the reference is not" in inspection.summary()
    assert inspection.analysis.digest.level == "bad"


def test_infinity_on_both_sides_is_no_fault(executed: Callable[[str], Executed]) -> None:
    gaps = executed("poisoned").inspection.gaps
    both = gaps[(gaps["reference_inf"] > 0) & (gaps["reference_inf"] == gaps["runtime_inf"])]
    assert len(both)
    assert set(both["status"]) == {"compared"}
    assert set(both["allclose"]) == {1.0}


@pytest.mark.parametrize("name", ["encoder", "residual_cnn"])
def test_introduced_and_total_differ_where_errors_are_inherited(name: str, executed: Callable[[str], Executed]) -> None:
    gaps = executed(name).inspection.gaps
    inherited = gaps[(gaps["introduced_rmse"] == 0) & (gaps["rmse"] > 0)]
    assert len(inherited)
    first = gaps.iloc[0]
    assert first["introduced_rmse"] == first["rmse"]
    assert not math.isnan(gaps["introduced_severity"].max())


class Logged:
    """What two instructions logged, of a third of which nothing is known but that it was executed."""

    def __init__(self, *values: Tensor | None) -> None:
        self._values = values
        self.problems: dict[int, str] = {}

    def values(self, instruction: int) -> list[Any]:
        return [value] if (value := self._values[instruction]) is not None else []

    def some_values(self, instruction: int, first: int, count: int) -> list[Any]:
        return self.values(instruction)[first : first + count]

    def last_values(self, instruction: int, count: int) -> list[Any] | None:
        return self.values(instruction)[-count:] if count else None

    def inside(self, instruction: int) -> list[tuple[int | str, Any]]:
        return []

    def outputs(self) -> list[Any]:
        return []


def test_what_reads_only_inputs_may_have_been_executed_at_any_time() -> None:
    x, y = torch.rand(4), torch.rand(4)
    nodes = [
        Node("unknown", OBSERVED, instruction=0),
        Node("sin", "aten.sin.default", (Ref("y"),), instruction=1),
        Node("exp", "aten.exp.default", (Ref("x"),)),
        Node("mul", "aten.mul.Tensor", (Ref("exp"), Ref("sin"))),
        Node("add", "aten.add.Tensor", (Ref("mul"), Ref("sin")), instruction=2),
    ]
    graph = Graph("forward", [Input("x", "user"), Input("y", "user")], nodes, [Ref("add")])
    log = Logged(torch.rand(3), y.sin(), x.exp() * y.sin() + y.sin())
    found = compare_exact(Evaluator(graph, {}), log, [x, y])
    assert found.gaps[-1].reason.startswith("introduced together with instruction 0 (exp, mul)")


def test_a_weight_that_is_moved_unseen_is_not_charged_to_its_reader_alone() -> None:
    """A kernel that splits a wrong weight may be at fault, though it only moves elements."""
    x, weight = torch.rand(2), torch.rand(4)
    nodes = [
        Node("split", "aten.split_with_sizes_copy.default", (Ref("w"), [2, 2]), instruction=0),
        Node("second", "getitem", (Ref("split"), 1)),
        Node("mul", "aten.mul.Tensor", (Ref("x"), Ref("second")), instruction=1),
    ]
    graph = Graph("forward", [Input("w", "constant", "w"), Input("x", "user")], nodes, [Ref("mul")])
    found = compare_exact(Evaluator(graph, {"w": weight}), Logged(None, x * weight[:2]), [x])
    assert found.gaps[0].reason.startswith("introduced together with instruction 0 (split_with_sizes_copy)")
