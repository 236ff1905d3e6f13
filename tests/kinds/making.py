"""Makes the program of a kind with upstream's own tools, runs it, and says independently what every value must be."""

from __future__ import annotations

import copy
import shutil
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import torch
from executorch.exir import ExecutorchProgramManager, to_edge_transform_and_lower
from executorch.exir.schema import ExecutionPlan
from executorch.runtime import Runtime
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.utils import _pytree as pytree

import etviz
from tests import oracles
from tests.kinds.recipes import Inputs, Kind

Values: TypeAlias = dict[oracles.Key, list[Any]]
WAYS = ("exact", "derived", "handles")


@dataclass(frozen=True)
class Truth:
    """What one execution really gave: the runtime's values by instruction, the reference's by node, the results."""

    runtime: dict[int, list[Any]]
    reference: dict[oracles.Key, list[Any]]
    results: list[Any]


@dataclass(frozen=True, eq=False)
class Made:
    """A program that was lowered and run without etviz.

    Attributes
    ----------
    edge, emitted, plan
        As for `oracles.Lowered`.
    outputs
        What the runtime's Python bindings returned for each execution.
    """

    name: str
    kind: Kind
    folder: Path
    manager: ExecutorchProgramManager
    runs: list[Inputs]
    edge: ExportedProgram
    emitted: ExportedProgram
    plan: ExecutionPlan
    outputs: list[list[Any]]

    def load(self, way: str, **changes: Any) -> etviz.Inspection:
        """`etviz.load` with the record, with ETRecord and `.pte`, or with the ETRecord alone."""
        given: dict[str, Any] = {
            "etrecord": self.folder / "etrecord.bin",
            "debug_buffer": self.folder / "debug_buffer.bin",
            "inputs": self.runs,
            "method": self.kind.method,
        }
        if way != "handles":
            given["pte"] = self.folder / ("model.pte" if way == "exact" else "alone.pte")
        return etviz.load(self.folder / "etdump.etdp", **given | changes)

    @cached_property
    def nodes(self) -> dict[int, oracles.Key]:
        """The node behind each instruction."""
        return oracles.nodes_of_instructions(self)

    @cached_property
    def truth(self) -> list[Truth]:
        """Each execution, with the state that the one before it left."""
        state: dict[str, Any] = {}
        logs = [] if self.kind.told else oracles.executions(self.folder)
        found = []
        for run, inputs in enumerate(self.runs):
            reference, results = _evaluate(self.edge, inputs, state)
            runtime = self._told(run) if self.kind.told else oracles.runtime_values(self, logs[run])
            found.append(Truth(runtime, reference, results))
        return found

    def _told(self, run: int) -> dict[int, list[Any]]:
        """Values that are outputs of the program, as the bindings returned them."""
        by_name = dict(zip(self.edge.graph_signature.user_outputs, self.outputs[run], strict=True))
        return {i: [by_name[name]] for i, (_, name) in self.nodes.items() if name in by_name}


def _evaluate(program: ExportedProgram, inputs: Inputs, state: dict[str, Any]) -> tuple[Values, list[Any]]:
    """Values of every node and the results; `state` is brought up to date."""
    flat = oracles.flat_inputs(program, inputs)
    for position, spec in enumerate(program.graph_signature.input_specs):
        if spec.kind == InputKind.BUFFER and spec.target in state:
            flat[position] = state[str(spec.target)]
    interpreter = oracles.Interpreter(program.graph_module, {})
    with torch.no_grad():
        values = interpreter.run(*flat)
    results = []
    for value, spec in zip(values, program.graph_signature.output_specs, strict=True):
        if spec.kind.name == "BUFFER_MUTATION":
            state[str(spec.target)] = value
        else:
            results.append(value)
    return interpreter.kept, results


def make(name: str, kind: Kind, folder: Path) -> Made:
    """Export, lower, save and run a kind of program."""
    torch.manual_seed(0)
    runs = kind.runs()
    edge = to_edge_transform_and_lower(kind.programs(), partitioner=kind.partitioners(), generate_etrecord=True)
    before = copy.deepcopy(edge.exported_program(kind.method))
    manager = edge.to_executorch()
    manager.save(str(folder / "model.pte"))
    shutil.copy(folder / "model.pte", folder / "alone.pte")
    etrecord = manager.get_etrecord()
    etrecord.update_representative_inputs(runs[0])
    etrecord.save(str(folder / "etrecord.bin"))
    etviz.record(edge, manager, folder / "model.etviz")
    outputs = _run(folder, kind.method, runs)
    plan = next(plan for plan in manager.executorch_program.execution_plan if plan.name == kind.method)
    emitted = manager.exported_program(kind.method)
    return Made(name, kind, folder, manager, runs, before, emitted, plan, outputs)


def _run(folder: Path, method: str, runs: list[Inputs]) -> list[list[Any]]:
    program = Runtime.get().load_program(folder / "model.pte", enable_etdump=True, debug_buffer_size=1 << 20)
    entry: Any = program.load_method(method)
    outputs = []
    for inputs in runs:
        found = entry.execute(pytree.tree_leaves(inputs))
        outputs.append([value.clone() if isinstance(value, torch.Tensor) else value for value in found])
    program.write_etdump_result_to_file(str(folder / "etdump.etdp"), str(folder / "debug_buffer.bin"))
    return outputs
