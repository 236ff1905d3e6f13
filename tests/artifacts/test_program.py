"""Programs read the same as upstream deserializes them, and what they log is known before they run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from executorch.exir import schema
from executorch.exir._serialize._program import deserialize_pte_binary

from etviz.artifacts.etdump.debug_buffer import DebugBuffer
from etviz.artifacts.etdump.etdump import read_etdump
from etviz.artifacts.program.logged import debug_buffer_bytes, logged_values
from etviz.artifacts.program.program import Method, TensorSpec, read_program
from etviz.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.artifacts.conftest import Run


KINDS = {
    schema.KernelCall: "kernel",
    schema.DelegateCall: "delegate",
    schema.MoveCall: "move",
    schema.JumpFalseCall: "jump",
    schema.FreeCall: "free",
}
VALUES = {
    schema.Int: ("int", "int_val"),
    schema.Bool: ("bool", "bool_val"),
    schema.Double: ("double", "double_val"),
    schema.String: ("string", "string_val"),
    schema.IntList: ("int_list", "items"),
    schema.DoubleList: ("double_list", "items"),
    schema.BoolList: ("bool_list", "items"),
    schema.TensorList: ("tensor_list", "items"),
}
NAMES = ("partly", "channels_last", "kinds", "half", "branches", "loop", "dynamic", "two_methods")
DYNAMISM = ("static", "dynamic_bound", "dynamic_unbound")


def upstream_plans(path: Path):
    return deserialize_pte_binary(path.read_bytes()).program.execution_plan


def as_list(items: Sequence[Any] | None):
    return tuple(items or ())


def spec(method: Method, value: int) -> TensorSpec:
    tensor = method.values[value].tensor
    assert tensor is not None
    return tensor


@pytest.fixture(params=NAMES)
def run(runs: dict[str, Run], request: pytest.FixtureRequest):
    return runs[request.param]


def test_methods_and_values_equal_upstreams(run: Run):
    methods = read_program(run.pte).methods
    plans = upstream_plans(run.pte)
    assert [method.name for method in methods] == [plan.name for plan in plans]
    for method, plan in zip(methods, plans, strict=True):
        assert (method.inputs, method.outputs) == (as_list(plan.inputs), as_list(plan.outputs))
        assert list(method.backends) == [item.id for item in plan.delegates]
        for ours, theirs in zip(method.values, plan.values, strict=True):
            value = theirs.val
            if isinstance(value, schema.Tensor):
                assert ours.tensor is not None
                assert ours.tensor.scalar_type == int(value.scalar_type)
                assert ours.tensor.sizes == as_list(value.sizes)
                assert ours.tensor.dim_order == as_list(value.dim_order)
                assert ours.tensor.data_index == value.data_buffer_idx
                assert ours.tensor.dynamism == DYNAMISM[value.shape_dynamism]
                place = value.allocation_info
                assert ours.tensor.memory == (place and (place.memory_id, place.memory_offset))
            elif isinstance(value, schema.Null):
                assert ours == type(ours)("null", None)
            else:
                kind, field = VALUES[type(value)]
                expected = getattr(value, field)
                assert ours.kind == kind
                assert ours.value == (as_list(expected) if kind.endswith("list") else expected)


def test_instructions_equal_upstreams(run: Run):
    for method, plan in zip(read_program(run.pte).methods, upstream_plans(run.pte), strict=True):
        stored = [
            (number, row, item)
            for number, chain in enumerate(plan.chains)
            for row, item in enumerate(chain.instructions)
        ]
        assert len(stored) == len(method.instructions)
        for ours, (chain, index, theirs) in zip(method.instructions, stored, strict=True):
            call = theirs.instr_args
            assert (ours.chain, ours.index, ours.kind) == (chain, index, KINDS[type(call)])
            assert method.by_position[chain, index] is ours
            if isinstance(call, schema.KernelCall):
                operator = plan.operators[call.op_index]
                assert ours.operator == f"{operator.name}.{operator.overload}"
                assert ours.args == as_list(call.args)
            elif isinstance(call, schema.DelegateCall):
                assert ours.delegate == call.delegate_index
                assert ours.args == as_list(call.args)
                assert method.backend(ours) == "XnnpackBackend"
            elif isinstance(call, schema.JumpFalseCall):
                assert ours.inputs == (call.cond_value_index,)
                assert ours.target == call.destination_instruction
            elif isinstance(call, schema.MoveCall):
                assert (ours.inputs, ours.outputs) == ((call.move_from,), (call.move_to,))


def test_instruction_numbers_are_those_of_the_etdump(run: Run):
    program, dump = read_program(run.pte), read_etdump(run.etdump)
    executions = [block for block in dump.blocks if block.name == "Execute"]
    names = {"OPERATOR_CALL": "kernel", "DELEGATE_CALL": "delegate", "MOVE_CALL": "move", "JF_CALL": "jump"}
    for block in executions:
        timed = {
            (chain, instruction, names[name])
            for chain, instruction, name in zip(
                block.profile.chain.tolist(),
                block.profile.instruction_id.tolist(),
                block.profile.name.tolist(),
                strict=True,
            )
            if name in names
        }
        candidates = [
            {(item.chain, item.index, item.kind) for item in method.instructions} for method in program.methods
        ]
        assert any(timed <= known for known in candidates)


@pytest.mark.parametrize("name", ["partly", "channels_last", "kinds"])
def test_what_is_logged_is_known_before_the_run(runs: dict[str, Run], name: str):
    run = runs[name]
    method = read_program(run.pte).method()
    expected = [
        (item.position, [spec(method, tensor).sizes for tensor in method.tensors(item.value)])
        for item in logged_values(method)
    ]
    logged = [
        (
            None if event.chain < 0 else (event.chain, event.instruction_id),
            [ref.layout.sizes for ref in event.tensors],
        )
        for event in read_etdump(run.etdump).blocks[-1].debug
    ]
    assert logged == expected


@pytest.mark.parametrize("name", ["partly", "channels_last", "kinds", "half", "branches", "dynamic", "two_methods"])
def test_debug_buffer_bound_holds_and_is_not_wild(runs: dict[str, Run], name: str):
    run = runs[name]
    program = read_program(run.pte)
    used = DebugBuffer(run.buffer).used(read_etdump(run.etdump).tensor_refs())
    if name == "two_methods":
        bound = debug_buffer_bytes(program, "forward") + debug_buffer_bytes(program, "other")
    else:
        bound = debug_buffer_bytes(program) * len(run.outputs)
    assert used <= bound
    if name in ("partly", "channels_last", "kinds", "loop"):
        assert bound <= used + 128


def test_delegates_inputs_and_outputs_are_told_apart(runs: dict[str, Run]):
    method = read_program(runs["partly"].pte).method()
    calls = [item for item in method.instructions if item.kind == "delegate"]
    assert len(calls) == 3
    for call in calls:
        assert (len(call.inputs), len(call.outputs)) == (1, 1)
    assert calls[0].inputs == method.inputs
    assert calls[-1].outputs == method.outputs[:1]


def test_kernels_with_several_outputs(runs: dict[str, Run]):
    method = read_program(runs["partly"].pte).method()
    norm = next(item for item in method.instructions if item.operator == "aten::native_layer_norm.out")
    assert [spec(method, item).sizes for item in norm.outputs] == [
        (1, 8, 16, 16),
        (1, 8, 16, 1),
        (1, 8, 16, 1),
    ]
    method = read_program(runs["kinds"].pte).method()
    parts = next(item for item in method.instructions if "split" in str(item.operator))
    assert [len(method.tensors(item)) for item in parts.outputs] == [2]


def test_branches_jump_forward(runs: dict[str, Run]):
    method = read_program(runs["branches"].pte).method()
    jumps = [(item.index, item.target) for item in method.instructions if item.target is not None]
    assert jumps
    assert all(target > index for index, target in jumps)


def test_loop_is_seen_and_writes_its_result(runs: dict[str, Run]) -> None:
    run = runs["loop"]
    method = read_program(run.pte).method()
    assert any(item.target is not None and item.target <= item.index for item in method.instructions)
    append = next(item for item in method.instructions if "et_copy_index" in str(item.operator))
    assert spec(method, append.outputs[0]).sizes == (9, 4)


def test_literal_looks_up_the_integers_of_a_list(runs: dict[str, Run]):
    method = read_program(runs["channels_last"].pte).method()
    convolution = method.instructions[0]
    assert method.literal(convolution.args[4]) == (1, 1)


def test_long_program(long_program: Path):
    assert len(read_program(long_program).method().instructions) == 4000


def test_unknown_method_is_named(runs: dict[str, Run]):
    with pytest.raises(UsageError, match="no method 'backward'; its methods: 'forward', 'other'"):
        read_program(runs["two_methods"].pte).method("backward")
