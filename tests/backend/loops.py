"""The ahead-of-time part of a backend that executes a few operators with plain loops, and logs what each gives.

What happens to the graph on its way is what happens in real backends: an addition and the ReLU after it become one step
(many to one), a sigmoid becomes two (one to many); every step carries the debug handles of all operators that it comes
from. Compile specs choose how its values are known and stored:

- ``ids``: ``ints`` (numbers that count the steps) or ``names`` (of the tensors, as Qualcomm's backend does it);
- ``layout``: ``plain``, ``channels_last`` or ``int8`` (on a grid of 1/16) is how the values are logged;
- ``flip``: ``SHARE STEP SEED`` flips the last bit of one element of a step's value in that share of the executions;
- ``fault``: ``STEP OPERATION`` lets a step compute something else than its operator, ``sub`` for an addition.
"""

from __future__ import annotations

import operator
from typing import Any, final

import torch
from executorch.exir.backend.backend_details import BackendDetails, CompileSpec, ExportedProgram, PreprocessResult
from executorch.exir.backend.canonical_partitioners.pattern_op_partitioner import generate_partitions_from_list_of_nodes
from executorch.exir.backend.partitioner import DelegationSpec, Partitioner, PartitionResult
from executorch.exir.backend.utils import DelegateMappingBuilder, tag_constant_data
from executorch.exir.dialects._ops import ops

_aten: Any = ops.edge.aten
OPERATIONS = {
    _aten.add.Tensor: "add",
    _aten.sub.Tensor: "sub",
    _aten.mul.Tensor: "mul",
    _aten.relu.default: "relu",
    _aten.tanh.default: "tanh",
    _aten.sigmoid.default: "sigmoid",
    _aten.linear.default: "linear",
}


def compile_specs(**options: str) -> list[CompileSpec]:
    """The specs of the backend: ``ids``, ``layout``, ``flip``, ``fault``."""
    return [CompileSpec(name, value.encode()) for name, value in options.items()]


@final
class LoopsPartitioner(Partitioner):
    """Takes every operator that the backend has, in as few delegates as it can."""

    def __init__(self, **options: str) -> None:
        super().__init__()
        self.delegation_spec = DelegationSpec(LoopsBackend.__name__, compile_specs(**options))

    def ops_to_not_decompose(self, ep: ExportedProgram) -> tuple[list[Any], None]:
        return [torch.ops.aten.linear.default], None

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        nodes = [n for n in exported_program.graph.nodes if n.op == "call_function" and n.target in OPERATIONS]
        tags = {}
        for partition in generate_partitions_from_list_of_nodes(exported_program.graph_module, pattern_list=[nodes]):
            tag = f"loops{partition.id}"
            tags[tag] = self.delegation_spec
            for node in partition.nodes:
                node.meta["delegation_tag"] = tag
        tag_constant_data(exported_program)
        return PartitionResult(tagged_exported_program=exported_program, partition_tags=tags)


@final
class LoopsBackend(BackendDetails):
    """Writes the steps of a subgraph as text."""

    @staticmethod
    def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
        writer = _Writer(edge_program, {spec.key: spec.value.decode() for spec in compile_specs})
        return PreprocessResult(writer.text().encode(), debug_handle_map=writer.mapping.get_delegate_mapping())


class _Writer:
    def __init__(self, program: ExportedProgram, options: dict[str, str]) -> None:
        self.program, self.options = program, options
        self.named = options.get("ids", "ints") == "names"
        self.mapping = DelegateMappingBuilder(generated_identifiers=not self.named)
        self.lines: list[str] = []
        self.steps = 0
        self.slots: dict[str, int] = {}

    def text(self) -> str:
        signature = self.program.graph_signature
        constants = signature.inputs_to_lifted_tensor_constants
        stored = {**signature.inputs_to_parameters, **signature.inputs_to_buffers, **constants}
        tensors = {**self.program.state_dict, **self.program.constants}
        for node in self.program.graph.nodes:
            if node.op == "placeholder":
                slot = self._slot(node.name, node.meta["val"].shape)
                if node.name in stored:
                    numbers = tensors[stored[node.name]].detach().double().flatten().tolist()
                    self.lines.append(f"constant {slot} {' '.join(map(float.hex, numbers))}")
                else:
                    self.lines.append(f"input {slot}")
            elif node.op == "call_function" and node.target is not operator.getitem:
                self._call(node)
            elif node.op == "output":
                self.lines += [f"output {self.slots[result.name]}" for result in node.args[0]]
        if "flip" in self.options:
            self.lines.append(f"flip {self.options['flip']}")
        return "\n".join(self.lines) + "\n"

    def _slot(self, name: str, shape: Any) -> int:
        self.slots[name] = len(self.slots)
        self.lines.append(f"value {' '.join(map(str, shape))}")
        return self.slots[name]

    def _call(self, node: Any) -> None:
        operation = OPERATIONS[node.target]
        after = next(iter(node.users))
        if operation == "add" and len(node.users) == 1 and OPERATIONS.get(after.target) == "relu":
            return  # one step together with the ReLU
        first = node.args[0]
        if operation == "relu" and OPERATIONS.get(first.target) == "add" and len(first.users) == 1:
            self._step("add_relu", node.name, [first, node], first.args, node.meta["val"].shape)
        elif operation == "sigmoid":
            inner = f"{node.name}.exp"
            self._step("exp_neg", inner, [node], node.args, node.meta["val"].shape)
            self._step("inverse_of_one_more", node.name, [node], [inner], node.meta["val"].shape)
        else:
            self._step(operation, node.name, [node], node.args, node.meta["val"].shape)

    def _step(self, operation: str, name: str, origins: list[Any], inputs: Any, shape: Any) -> None:
        slot = self._slot(name, shape)
        number = self.mapping.insert_delegate_mapping_entry(origins, identifier=name if self.named else None)
        at, _, other = self.options.get("fault", "").partition(" ")
        operation = other if at == str(self.steps) else operation
        given = [self.slots[item if isinstance(item, str) else item.name] for item in inputs if item is not None]
        known = f"-1 {name}" if self.named else f"{number} -"
        layout = self.options.get("layout", "plain")
        self.lines.append(f"step {operation} {known} {layout} {slot} {' '.join(map(str, given))}")
        self.steps += 1
