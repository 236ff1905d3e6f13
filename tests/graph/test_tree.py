"""The delegated-graph tree: sound preorder arrays in which every operator stands once, beside its gap row."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from etviz.demo import digits
from etviz.graph.tree import KINDS, Tree
from tests import oracles, programs
from tests.programs import Executed


@pytest.fixture(params=["program", "modules"])
def tree(request: pytest.FixtureRequest, program: Executed) -> Tree:
    """Both trees of each program."""
    return program.inspection.tree if request.param == "program" else program.inspection.analysis.modules


def children(tree: Tree, index: int) -> list[int]:
    found, at = [], index + 1
    while at < index + tree.size[index]:
        found.append(at)
        at += tree.size[at]
    return found


def test_preorder(tree: Tree) -> None:
    columns = [
        getattr(tree, name) for name in ("size", "kind", "label", "backend", "instruction", "operators", "stack")
    ]
    assert {len(column) for column in columns} == {len(tree)}
    assert tree.depth[0] == 0
    assert tree.size[0] == len(tree)
    for index in range(len(tree)):
        below = children(tree, index)
        assert tree.size[index] == 1 + sum(tree.size[child] for child in below)
        assert all(tree.depth[child] == tree.depth[index] + 1 for child in below)
        assert tree.label[index]
        assert tree.kind[index] in KINDS


def test_operators_are_counted(tree: Tree) -> None:
    for index in range(len(tree)):
        below = children(tree, index)
        if tree.kind[index] in ("method", "module", "delegate", "value"):
            leaves = sum(1 for i in range(index + 1, index + tree.size[index]) if _is_operator(tree, i))
            assert tree.operators[index] == leaves
        elif not below:
            assert tree.operators[index] == 0


def _is_operator(tree: Tree, index: int) -> bool:
    return tree.kind[index] in ("kernel", "inner") and tree.size[index] == 1


def test_every_instruction_stands_once_in_program_order(program: Executed) -> None:
    tree = program.inspection.tree
    instructions = [i for i in tree.instruction if i >= 0]
    assert instructions == sorted(oracles.nodes_of_instructions(program))
    assert tree.by_instruction == {i: at for at, i in enumerate(tree.instruction) if i >= 0}


def test_a_delegate_holds_the_operators_of_its_lowered_module(program: Executed) -> None:
    """Names and shapes of the inner operators are those of the subgraph that upstream lowered."""
    tree = program.inspection.tree
    nodes = dict(oracles.calls(program.edge.graph_module))
    count = 0
    for instruction, key in oracles.nodes_of_instructions(program).items():
        lowered = _lowered(program, nodes[key])
        index = tree.by_instruction[instruction]
        if lowered is None:
            assert tree.kind[index] == "kernel"
            continue
        count += 1
        assert tree.kind[index] == "delegate"
        assert tree.backend[index] == lowered.backend_id
        inner = [n for _, n in oracles.calls(lowered.original_module.graph_module)]
        shown = children(tree, index)
        assert [_short(n) for n in inner] == [tree.label[i] for i in shown]
        assert {tree.kind[i] for i in shown} == {"inner"}
        assert [_shape(n) for n in inner] == [tree.shape[i] for i in shown]
    assert count == program.info.num_delegated_subgraphs


def _lowered(program: Executed, node: oracles.Node) -> Any:
    target = getattr(node.args[0], "target", None) if node.args else None
    found = getattr(program.edge.graph_module, str(target), None)
    return found if hasattr(found, "backend_id") else None


def _short(node: oracles.Node) -> str:
    return str(node.target).removeprefix("<EdgeOpOverload: ").split(">")[0].split(".")[1]


def _shape(node: oracles.Node) -> str:
    value = node.meta["val"]
    values = value if isinstance(value, (list, tuple)) else [value]
    return ", ".join(f"{str(v.dtype).removeprefix('torch.')} {list(v.shape)}" for v in values)


def test_both_trees_hold_the_same_operators(program: Executed) -> None:
    def operators(tree: Tree) -> Counter[tuple[str, ...]]:
        rows = [i for i in range(len(tree)) if _is_operator(tree, i)]
        return Counter((tree.kind[i], tree.label[i], tree.backend[i], tree.shape[i], tree.module[i]) for i in rows)

    assert operators(program.inspection.analysis.modules) == operators(program.inspection.tree)


def test_modules_are_those_of_the_model(program: Executed) -> None:
    tree = program.inspection.analysis.modules
    known = {name for name, _ in program.model.named_modules()}
    for index, kind in enumerate(tree.kind):
        if kind == "module":
            assert tree.module[index] in known
            assert tree.label[index] == tree.module[index].rpartition(".")[2]
        elif kind in ("kernel", "inner"):
            assert tree.module[index] in known


def test_every_gap_row_has_its_node_in_both_trees(program: Executed) -> None:
    inspection = program.inspection
    nodes = dict(oracles.calls(program.edge.graph_module))
    keys = oracles.nodes_of_instructions(program)
    for _, row in inspection.gaps.iterrows():
        instruction, output = int(row["instruction"]), int(row["output"])
        index = inspection.tree.node_of(instruction, output)
        assert inspection.tree.instruction[index] == instruction
        place = inspection.analysis.modules.node_of(instruction, output)
        assert place >= 0
        if row["kind"] == "kernel":
            assert inspection.analysis.modules.instruction[place] == instruction
        else:
            lowered = _lowered(program, nodes[keys[instruction]])
            maker = lowered.original_module.graph_module.graph.output_node().args[0][output]
            assert inspection.analysis.modules.kind[place] == "inner"
            if maker.op == "call_function" and "getitem" not in str(maker.target):
                assert inspection.analysis.modules.label[place] == _short(maker)


def test_every_instruction_of_the_tree_has_a_row_or_a_reason(program: Executed) -> None:
    inspection = program.inspection
    rows = set(inspection.gaps["instruction"])
    reasons = inspection.coverage.set_index("instruction")["reason"]
    for instruction in inspection.tree.instruction:
        if instruction >= 0 and instruction not in rows:
            assert reasons[instruction]


def test_latency_is_beside_its_instruction(program: Executed) -> None:
    tree = program.inspection.tree
    shown = {i: time for i, time in zip(tree.instruction, tree.latency, strict=True) if i >= 0 and time == time}
    assert shown == dict(program.inspection.time.latency)


def test_sources_point_into_the_models_own_file(program: Executed) -> None:
    """For float models and for quantized ones."""
    place = Path(inspect.getfile(digits if program.name == "digits_int8" else programs))
    lines = place.read_text().splitlines()
    cls = type(program.model)
    modules = [cls, programs.EncoderBlock] if cls is programs.Encoder else [cls]
    spans = [(start, start + len(body)) for body, start in map(inspect.getsourcelines, modules)]
    with_source = [source for source in program.inspection.gaps["source"] if source]
    assert len(with_source) >= 0.6 * len(program.inspection.gaps)
    for source in (*with_source, *filter(None, program.inspection.tree.source)):
        name, _, line = source.rpartition(":")
        assert name == place.name
        assert any(start <= int(line) < end for start, end in spans)
        assert lines[int(line) - 1].strip()


def test_the_branch_that_was_taken_is_marked(executed: Callable[[str], Executed]) -> None:
    tree = executed("branches").inspection.tree
    branches = [label for kind, label in zip(tree.kind, tree.label, strict=True) if kind == "value"]
    assert [label.partition(" ")[2] for label in branches] == ["(taken)", "(not taken)"], "the condition is true"


def test_stack_traces_are_kept(executed: Callable[[str], Executed]) -> None:
    stacks = executed("encoder").inspection.analysis.tables.rows["stack"]
    assert stacks.str.contains("self.norm_1").any()
