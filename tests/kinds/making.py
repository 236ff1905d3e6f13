"""Makes the program of a kind with upstream's own tools, runs it, and says independently what every value must be."""

from __future__ import annotations

import copy
import shutil
import tempfile
from collections.abc import Callable
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
from tests.programs import FILES
from tests.shelf import Shelf
from tests.zoo.models import Inputs
from tests.zoo.programs import KINDS, Recipe

Values: TypeAlias = dict[oracles.Key, list[Any]]
WAYS = ("exact", "derived", "handles")


@dataclass(frozen=True)
class Truth:
    """What one execution really gave: the runtime's values by instruction, the reference's by node, the results."""

    runtime: dict[int, list[Any]]
    reference: dict[oracles.Key, list[Any]]
    results: list[Any]


@dataclass(frozen=True)
class Lowering:
    """The methods of a program before `to_executorch()`, and what that gave."""

    edge: dict[str, ExportedProgram]
    manager: ExecutorchProgramManager


@dataclass(frozen=True, eq=False)
class Made:
    """A program that was lowered and run without etviz, once a test run; only its files are there in every process.

    Attributes
    ----------
    program, folder
        Where the program's files are, and those of its executions.
    made
        Set in the process that lowered it.
    base
        The kind that has the same program.
    """

    name: str
    recipe: Recipe
    program: Path
    folder: Path
    made: Lowering | None = None
    base: Made | None = None

    def path(self, kind: str) -> Path:
        """One of the artifacts, by its argument of `etviz.load`."""
        return (self.folder if kind in ("etdump", "debug_buffer") else self.program) / FILES[kind]

    @cached_property
    def runs(self) -> list[Inputs]:
        """Inputs of each execution."""
        return self.recipe.executions()

    @cached_property
    def outputs(self) -> list[list[Any]]:
        """What the runtime's Python bindings returned for each execution."""
        return torch.load(self.folder / "outputs.pt", weights_only=True)

    @cached_property
    def lowering(self) -> Lowering:
        """The program in memory; it is lowered again where another process made it."""
        if self.base is not None:
            return self.base.lowering
        if self.made is not None:
            return self.made
        with tempfile.TemporaryDirectory() as folder:
            return _lower(self.recipe, Path(folder))

    @property
    def edge(self) -> ExportedProgram:
        """The method before `to_executorch()`."""
        return self.lowering.edge[self.recipe.method]

    @property
    def emitted(self) -> ExportedProgram:
        """Afterwards."""
        return self.lowering.manager.exported_program(self.recipe.method)

    @property
    def plan(self) -> ExecutionPlan:
        """What upstream emitted for the runtime."""
        plans = self.lowering.manager.executorch_program.execution_plan
        return next(plan for plan in plans if plan.name == self.recipe.method)

    @cached_property
    def _loaded(self) -> dict[str, etviz.Inspection]:
        return {}

    def load(self, way: str) -> etviz.Inspection:
        """`etviz.load` with the record, with ETRecord and `.pte`, or with the ETRecord alone; shared by all tests."""
        if way not in self._loaded:
            self._loaded[way] = self.load_own(way)
        lost = way == "handles" and self.name in ("half", "bfloat16")  # the ETDump holds none, and no program tells
        assert len(self._loaded[way].gaps) or lost
        return self._loaded[way]

    def load_own(self, way: str, *, introduced: bool = True) -> etviz.Inspection:
        """The same, for a test that changes it."""
        given: dict[str, Any] = {kind: self.path(kind) for kind in ("etrecord", "debug_buffer")}
        if way != "handles":
            given["pte"] = self.path("pte") if way == "exact" else self.program / "alone.pte"
        return etviz.load(
            self.path("etdump"), **given, inputs=self.runs, method=self.recipe.method, introduced=introduced
        )

    @cached_property
    def nodes(self) -> dict[int, oracles.Key]:
        """The node behind each instruction."""
        return oracles.nodes_of_instructions(self)

    @cached_property
    def truth(self) -> list[Truth]:
        """Each execution, with the state that the one before it left."""
        state: dict[str, Any] = {}
        logs = [] if self.recipe.told else oracles.executions(self.folder)
        found = []
        for run, inputs in enumerate(self.runs):
            reference, results = _evaluate(self.edge, inputs, state)
            runtime = self._told(run) if self.recipe.told else oracles.runtime_values(self, logs[run])
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


def make(name: str, shelf: Shelf, others: Callable[[str], Made]) -> Made:
    """A program of `KINDS`; it is made if no process has made it yet. `others` gives the one that it is the same as."""
    kind, lowered = KINDS[name], list[Lowering]()
    base = others(kind.same_as) if kind.same_as else None
    program = base.program if base else shelf.folder(f"{name}-program", lambda to: lowered.append(_lower(kind, to)))
    folder = shelf.folder(f"{name}-run", lambda to: _run(program / FILES["pte"], kind, to))
    return Made(name, kind, program, folder, next(iter(lowered), None), base)


def _lower(kind: Recipe, folder: Path) -> Lowering:
    """Export, lower and save."""
    with torch.random.fork_rng(), torch.enable_grad():
        torch.manual_seed(0)
        programs = kind.methods()
    edge = to_edge_transform_and_lower(programs, partitioner=kind.partitioner(), generate_etrecord=True)
    before = {method: copy.deepcopy(edge.exported_program(method)) for method in edge.methods}
    manager = edge.to_executorch()
    manager.save(str(folder / FILES["pte"]))
    shutil.copy(folder / FILES["pte"], folder / "alone.pte")
    etrecord = manager.get_etrecord()
    etrecord.update_representative_inputs(kind.executions()[0])
    etrecord.save(str(folder / FILES["etrecord"]))
    etviz.record(edge, manager, folder / FILES["record"])
    return Lowering(before, manager)


def _run(pte: Path, kind: Recipe, folder: Path) -> None:
    """Execute, all runs into one ETDump."""
    program = Runtime.get().load_program(pte, enable_etdump=True, debug_buffer_size=1 << 20)
    entry: Any = program.load_method(kind.method)
    outputs = []
    for inputs in kind.executions():
        found = entry.execute(pytree.tree_leaves(inputs))
        outputs.append([value.clone() if isinstance(value, torch.Tensor) else value for value in found])
    torch.save(outputs, folder / "outputs.pt")
    program.write_etdump_result_to_file(str(folder / FILES["etdump"]), str(folder / FILES["debug_buffer"]))
