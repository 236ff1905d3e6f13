"""The edges between the nodes of the tree: those of the emitted instructions, and inside of delegates."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from executorch.exir.schema import DelegateCall, EValue, ExecutionPlan, KernelCall, Tensor, TensorList

from etviz.graph.edges import data_edges
from etviz.graph.ir import Graph
from etviz.graph.tree import Tree, program_tree
from tests.programs import Executed

STRAIGHT = ("digits_int8", "encoder", "plain_cnn", "residual_cnn", "many_outputs", "poisoned")


def tensors(values: list[EValue], index: int) -> list[int]:
    value = values[index].val
    if isinstance(value, TensorList):
        return list(value.items)
    return [index] if isinstance(value, Tensor) and value.data_buffer_idx == 0 else []


def emitted_edges(plan: ExecutionPlan) -> set[tuple[int, int]]:
    """Who reads what whom wrote, from the ids of the values: a value that is new is written."""
    writer = dict.fromkeys(plan.inputs, -1)
    edges = set()
    for number, instruction in enumerate(plan.chains[0].instructions):
        call = instruction.instr_args
        if not isinstance(call, (KernelCall, DelegateCall)):
            continue
        used = [one for argument in call.args for one in tensors(plan.values, argument)]
        edges |= {(writer[one], number) for one in used if writer.get(one, -1) >= 0}
        writer |= {one: number for one in used if one not in writer}
    return {(source, target) for source, target in edges if source != target}


def trees(program: Executed) -> tuple[Tree, Graph]:
    inspection = program.inspection
    return inspection.tree, inspection.analysis.graph


@pytest.mark.parametrize("name", STRAIGHT)
def test_instructions_read_what_the_emitted_program_says(executed: Callable[[str], Executed], name: str) -> None:
    tree, graph = trees(executed(name))
    outer = ("kernel", "delegate")
    found = {
        (tree.instruction[edge.source], tree.instruction[edge.target])
        for edge in data_edges(tree, graph)
        if tree.kind[edge.source] in outer and tree.kind[edge.target] in outer
    }
    assert found
    assert {edge for edge in found if min(edge) >= 0} == emitted_edges(executed(name).plan)


def test_every_edge_goes_forward_or_up(program: Executed) -> None:
    tree, graph = trees(program)
    edges = data_edges(tree, graph)
    assert len(edges) == len(set(edges))
    for edge in edges:
        inside = edge.target < edge.source < edge.target + tree.size[edge.target]
        assert inside or edge.source < edge.target


def test_operators_inside_lead_from_the_arguments_of_a_delegate_to_its_outputs(
    executed: Callable[[str], Executed],
) -> None:
    program = executed("many_outputs")
    tree, graph = trees(program)
    edges = data_edges(tree, graph)
    for node in range(len(tree)):
        if tree.kind[node] != "delegate":
            continue
        call = next(one for one in graph.walk() if one.instruction == tree.instruction[node])
        inner = graph.subgraphs[call.subgraphs[0]]
        ups = {edge.argument: edge.source for edge in edges if edge.target == node and edge.source > node}
        names = {index: name for (instruction, name), index in tree.by_inner.items() if instruction == call.instruction}
        assert {out: names[index] for out, index in ups.items()} == {
            out: ref.name for out, ref in enumerate(inner.outputs)
        }
        around = {edge.source for edge in edges if edge.target == node and edge.source < node}
        fed = {edge.source for edge in edges if node < edge.target < node + tree.size[node] and edge.source < node}
        assert fed == around
        readers = {edge.target for edge in edges if edge.source == node}
        assert {edge.target for edge in edges if edge.source in ups.values() and edge.target > node} >= {
            reader for reader in readers if tree.kind[reader] == "kernel"
        }


def test_both_branches_of_a_condition_read_its_operands(executed: Callable[[str], Executed]) -> None:
    tree, graph = trees(executed("branches"))
    edges = data_edges(tree, graph)
    condition = tree.label.index("cond")
    branches = [node for node in range(len(tree)) if tree.kind[node] == "value"]
    before = {edge.source for edge in edges if edge.target == condition and edge.source < condition}
    for branch in branches:
        inside = range(branch + 1, branch + tree.size[branch])
        assert {edge.source for edge in edges if edge.target in inside and edge.source not in inside} <= before
        assert any(edge.source in inside and edge.target == condition for edge in edges)


def test_a_program_that_is_not_known_has_no_edges() -> None:
    assert data_edges(Tree(), Graph("forward")) == []
    assert data_edges(program_tree({"forward": Graph("forward")}), Graph("forward")) == []
