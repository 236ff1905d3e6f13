"""What etviz's values are checked against: upstream's own parser, and torch's interpreter on the lowered program."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import torch
from executorch.devtools.etdump import schema_flatcc as schema
from executorch.devtools.etdump.serialize import deserialize_from_etdump_flatcc
from executorch.exir import memory
from executorch.exir.delegate import executorch_call_delegate
from executorch.exir.schema import DelegateCall, ExecutionPlan, KernelCall
from torch import Tensor, fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree

from tests.programs import Executed

Node: TypeAlias = Any
"""An `fx.Node`; what its arguments are depends on its target."""
Key = tuple[str, str]
"""Name of the branch that a node stands in (empty outside of branches), and the node's own."""


@dataclass(frozen=True)
class Logged:
    """What upstream's parser reads: values by instruction, and the final outputs."""

    values: Mapping[int, list[Any]]
    outputs: list[Any]


def logged(folder: Path) -> Logged:
    """What upstream's reader finds of the only execution."""
    return executions(folder)[0]


def executions(folder: Path) -> list[Logged]:
    """Parse the ETDump with upstream's reader, and cut the tensors of each execution out of the debug buffer."""
    dump = deserialize_from_etdump_flatcc((folder / "etdump.etdp").read_bytes())
    buffer = bytearray((folder / "debug_buffer.bin").read_bytes())
    return [_logged(block, buffer) for block in dump.run_data if block.name == "Execute"]


def _logged(block: schema.RunData, buffer: bytearray) -> Logged:
    values: dict[int, list[Any]] = {}
    outputs: list[Any] = []
    for event in block.events or ():
        entry = event.debug_event
        if entry is None or entry.delegate_debug_id_int not in (None, -1) or entry.delegate_debug_id_str:
            continue
        found = _values(entry.debug_entry, buffer)
        if entry.debug_entry.output is not None and entry.debug_entry.output.bool_val:
            outputs += found
        elif entry.chain_index >= 0 and found != [None]:
            values.setdefault(entry.instruction_id, []).extend(found)
    return Logged(values, outputs)


def _values(entry: schema.Value, buffer: bytearray) -> list[Any]:
    if entry.tensor is not None:
        return [_tensor(entry.tensor, buffer)]
    if entry.tensor_list is not None:
        return [_tensor(item, buffer) for item in entry.tensor_list.tensors]
    return [None]


def _tensor(item: schema.Tensor, buffer: bytearray) -> Tensor:
    dtype = getattr(
        torch,
        {"BYTE": "uint8", "CHAR": "int8", "INT": "int32", "LONG": "int64", "FLOAT": "float32"}.get(
            item.scalar_type.name, item.scalar_type.name.lower()
        ),
    )
    if 0 in item.sizes:
        return torch.empty(item.sizes, dtype=dtype)
    count = 1 + sum((size - 1) * stride for size, stride in zip(item.sizes, item.strides, strict=True))
    flat = torch.frombuffer(buffer, dtype=dtype, count=count, offset=item.offset or 0)
    return flat.as_strided(item.sizes, item.strides).clone()


class Lowered(Protocol):
    """A program as it was lowered, as it was emitted, and what upstream emitted for the runtime."""

    @property
    def edge(self) -> ExportedProgram:
        """Before `to_executorch()`."""
        ...

    @property
    def emitted(self) -> ExportedProgram:
        """Afterwards."""
        ...

    @property
    def plan(self) -> ExecutionPlan:
        """The method's instructions."""
        ...


def calls(module: fx.GraphModule, scope: str = "") -> Iterator[tuple[Key, Node]]:
    """Every call that stands for work of the runtime, in program order, branches included."""
    for node in module.graph.nodes:
        if node.op != "call_function" or node.target in (operator.getitem, memory.alloc, memory.free):
            continue
        if node.target is torch.ops.higher_order.cond:
            for branch in node.args[1:3]:
                yield from calls(getattr(module, str(branch.target)), str(branch.target))
        else:
            yield (scope, node.name), node


def nodes_of_instructions(program: Lowered) -> dict[int, Key]:
    """The node of the lowered program behind each instruction.

    The lowered and the emitted program have the same calls in the same order, but for the `copy_` that emission adds
    for each mutated buffer and the views that it merges into others; the emitted program's calls and the runtime's
    instructions are the same, but for views that need no instruction.
    """
    before = list(calls(program.edge.graph_module))
    partners: dict[str, Key] = {}
    numbered: list[tuple[Key, bool]] = []
    position = 0
    after = list(calls(program.emitted.graph_module))
    names = {name for (_, name), _ in after}
    for (_, name), node in after:
        if node.target is torch.ops.aten.copy_.default:
            numbered.append((partners[node.args[1].name], False))
            continue
        while _is_merged(before[position][1], names):
            position += 1
        key, origin = before[position]
        position += 1
        assert _same_call(node, origin)
        partners[name] = key
        numbered.append((key, node.target is memory.view))
    assert all(_is_merged(node, names) for _, node in before[position:])
    return _number(numbered, program.plan)


def _number(calls_in_order: list[tuple[Key, bool]], plan: ExecutionPlan) -> dict[int, Key]:
    """Pair calls and instructions in order; a view has an instruction only where its size is dynamic."""
    found: dict[int, Key] = {}
    waiting = iter(calls_in_order)
    for index, item in enumerate(plan.chains[0].instructions):
        call: Any = item.instr_args
        if not isinstance(call, (KernelCall, DelegateCall)):
            continue
        viewing = isinstance(call, KernelCall) and plan.operators[call.op_index].name == "executorch_prim::et_view"
        found[index] = next(key for key, is_view in waiting if viewing or not is_view)
        assert not viewing or "view" in found[index][1]
    assert all(is_view for _, is_view in waiting)
    return found


def _is_merged(node: Node, names: set[str]) -> bool:
    """Tell whether emission merged a view of the lowered program into the one after it."""
    return _packet(node) == "aten.view_copy" and node.name not in names


def _same_call(emitted: Node, lowered: Node) -> bool:
    """Tell whether two calls are the same; arithmetic on sizes becomes an operator of the runtime's own."""
    if emitted.target is memory.view or _packet(emitted) == _packet(lowered):
        return True
    return _packet(emitted) == f"executorch_prim.{getattr(lowered.target, '__name__', '')}"


def _packet(node: Node) -> str:
    return str(node.target).removeprefix("<EdgeOpOverload: ").split(">")[0].rpartition(".")[0]


class Interpreter(fx.Interpreter):
    """Evaluates the lowered program in eager mode, delegates by their original modules, and keeps every value.

    With `runtime`, each value is replaced by what the runtime logged before the next node sees it, so that every node
    is evaluated on the runtime's own inputs.
    """

    def __init__(self, module: fx.GraphModule, runtime: Mapping[Key, list[Any]], scope: str = "") -> None:
        super().__init__(module)
        self.runtime, self.scope = runtime, scope
        self.kept: dict[Key, list[Any]] = {}

    def run_node(self, n: Node) -> Any:
        """Evaluate one node."""
        if n.op == "call_function" and n.target is torch.ops.higher_order.cond:
            return self._branch(n)
        value = super().run_node(n)
        key = self.scope, n.name
        if n.op == "call_function" and n.target is not operator.getitem:
            several = isinstance(value, (list, tuple))
            self.kept[key] = list(value) if several else [value]
            if key in self.runtime:
                value = type(value)(self.runtime[key]) if several else self.runtime[key][0]
        return value

    def _branch(self, n: Node) -> Any:
        predicate, yes, no, operands = n.args
        taken = yes if bool(self.env[predicate]) else no
        inner = Interpreter(getattr(self.module, taken.target), self.runtime, taken.target)
        result = inner.run(*map_arg(operands, lambda item: self.env[item]))
        self.kept |= inner.kept
        return result


def flat_inputs(program: ExportedProgram, inputs: tuple[Any, ...]) -> list[Any]:
    """Everything that the graph's placeholders take: weights, buffers, constants and the user's inputs."""
    user = iter(pytree.tree_leaves(inputs))
    found = []
    for spec in program.graph_signature.input_specs:
        target = str(spec.target)
        tables: tuple[Mapping[str, Any], ...] = (program.state_dict, program.constants)
        if spec.kind == InputKind.USER_INPUT:
            found.append(next(user))
        else:
            weight: Any = next(table[target] for table in tables if target in table)
            found.append(weight.detach())
    return found


def evaluate(program: Executed, runtime: Mapping[Key, list[Any]]) -> tuple[dict[Key, list[Any]], list[Any]]:
    """Values of every node, and the user's outputs."""
    interpreter = Interpreter(program.edge.graph_module, runtime)
    with torch.no_grad():
        results = interpreter.run(*flat_inputs(program.edge, program.inputs))
    specs = program.edge.graph_signature.output_specs
    outputs = [value for value, spec in zip(results, specs, strict=True) if spec.kind.name == "USER_OUTPUT"]
    return interpreter.kept, outputs


class Recorder(fx.Interpreter):
    """Runs a graph and keeps the value of every node by its name."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        self.values: dict[str, Any] = {}

    def run_node(self, n: Node) -> Any:
        """Evaluate one node."""
        value = super().run_node(n)
        self.values[n.name] = value.detach().clone() if isinstance(value, Tensor) else value
        return value


class _Calls(fx.Interpreter):
    """Evaluates the lowered program in eager mode, and keeps the values inside of each delegate call."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        self.calls: list[dict[str, Any]] = []

    def run_node(self, n: Node) -> Any:
        """Evaluate one node."""
        if n.target is not executorch_call_delegate:
            return super().run_node(n)
        program = getattr(self.module, str(n.args[0].target)).original_module
        inner = Recorder(program.graph_module)
        results = inner.run(*flat_inputs(program, tuple(map_arg(n.args[1:], lambda item: self.env[item]))))
        self.calls.append(inner.values)
        return results


def inner_values(program: Executed) -> list[dict[str, Any]]:
    """Values inside of each delegate call, in program order, by upstream's lowered modules in eager mode."""
    interpreter = _Calls(program.edge.graph_module)
    with torch.no_grad():
        interpreter.run(*flat_inputs(program.edge, program.inputs))
    return interpreter.calls


def runtime_values(program: Lowered, log: Logged) -> dict[int, list[Any]]:
    """What each instruction gave: a delegate logs its inputs first, and only its outputs count."""
    nodes = dict(calls(program.edge.graph_module))
    found = {}
    for instruction, key in nodes_of_instructions(program).items():
        values = log.values.get(instruction)
        if values is not None:
            node = nodes[key]
            inputs = len(node.args) - 1 if node.target is executorch_call_delegate else 0
            found[instruction] = values[inputs:]
    return found


def grid(program: Executed, key: Key, output: int) -> float | None:
    """Step of the quantization grid of a value, from the operator that made it."""
    node = dict(calls(program.edge.graph_module))[key]
    if node.target is executorch_call_delegate:
        lowered = getattr(program.edge.graph_module, str(node.args[0].target))
        results = lowered.original_module.graph_module.graph.output_node().args[0]
        node = results[output]
    name = str(node.target)
    if "dequantize_per_tensor" in name:
        return node.args[1]
    return 1.0 if "quantized_decomposed.quantize_per" in name else None


def same(a: Tensor, b: Tensor) -> bool:
    """Bit for bit the same values, NaN in the same places."""
    return (
        a.shape == b.shape
        and a.dtype == b.dtype
        and torch.equal(a.nan_to_num(0.25), b.nan_to_num(0.25))
        and bool((a.isnan() == b.isnan()).all())
    )
