"""Evaluates the forms of a program that its files hold, from the float model to the lowered program.

Lowering keeps an exported operator's name, which joins the stages. A value is taken where the next operators read it:
after quantize and dequantize if it is put on a quantization grid.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import torch

from etviz.comparison.gap import ExecutionGaps, Gap
from etviz.comparison.measurement import as_tensor
from etviz.errors import EtvizError, FileChangedError, UsageError
from etviz.evaluation.evaluator import Evaluator
from etviz.evaluation.limits import Limits
from etviz.evaluation.noise import total_noise
from etviz.evaluation.operator_rules import OperatorError
from etviz.evaluation.replay import Replay, question
from etviz.evaluation.spill import SpillFile
from etviz.evaluation.unpacked import elements
from etviz.evaluation.values import Value, flat_values
from etviz.explain.stages.alignment import align
from etviz.explain.stages.exported_operators import OperatorValues, find_partners
from etviz.graph.inline import inline
from etviz.graph.ir import Graph, Node
from etviz.graph.language_operators import LANGUAGE_OPERATORS
from etviz.graph.quantize_ops import Grid, grid_of, is_dequantize, is_quantize
from etviz.graph.uses import Key
from etviz.pairing.matched_constants import VIEW
from etviz.pipeline.functional import functional
from etviz.tensors.metrics import Noise

RUNTIME: Final = "runtime"
LOWERED: Final = "lowered"
FLOAT, EXPORTED, QUANTIZED = "float", "exported", "quantized"
NO_PARTNER: Final = "no partner"
NAMELESS: Final = "the stage has no operator of that name: it was decomposed or folded"

Fresh = Callable[[], Evaluator]


Hook = Callable[["torch.Tensor"], Any]
"""Takes an evaluated value, and returns what to keep."""


@dataclass(slots=True)
class Taken:
    values: dict[Key, Any] = field(default_factory=dict)
    outputs: list[Any] = field(default_factory=list)


class ProgramForm:
    """With the operators of its delegates in place of the calls; `inside` has their names' prefix by call."""

    def __init__(self, graph: Graph, constants: Mapping[str, torch.Tensor], limits: Limits | None = None) -> None:
        flat = inline(graph)
        self._written, self.inside = flat.written, flat.inside
        self.values = OperatorValues(functional(flat.graph))
        self.constants = constants
        self.fresh: Fresh = partial(Evaluator, self.values.graph, constants, limits)

    @classmethod
    def of(cls, original: Evaluator) -> ProgramForm:
        return cls(original.graph, original.constants, original.limits)

    def evaluate(
        self, executions: Sequence[Sequence[Any]], hooks: Callable[[int], Mapping[Key, Hook]], runs: Container[int]
    ) -> dict[int, Taken]:
        evaluator = self.fresh()
        taken = {
            run: _taken(evaluator, self._typed(inputs), hooks(run) if run in runs else {})
            for run, inputs in enumerate(executions)
        }
        return {run: taken[run] for run in taken if run in runs}

    def _typed(self, inputs: Sequence[Any]) -> list[Any]:
        given = list(inputs)
        for at, (placeholder, value) in enumerate(zip(self.values.graph.user_inputs(), inputs, strict=False)):
            dtype = getattr(torch, placeholder.meta.dtype, None) if placeholder.meta is not None else None
            if isinstance(value, torch.Tensor) and value.is_floating_point() and getattr(dtype, "is_floating_point", 0):
                given[at] = value.to(dtype)
        return given

    def readings(self) -> dict[str, Key]:
        """By operator, ``name[1]`` its second output; none of one that became several."""
        readings: dict[str, Key] = {}
        for operator in self.values.operators.values():
            for key in self.values.values_of(operator) if len(operator.last) == 1 else ():
                readings[operator.name + f"[{key[1]}]" * bool(key[1])] = self.values.on_grid(key) or key
        return readings

    def measured(
        self, executions: Sequence[Sequence[Any]], hooks: Mapping[Key, Hook], runs: Sequence[int]
    ) -> tuple[dict[int, Taken], dict[int, dict[Key, Noise]], list[list[Noise]]]:
        names = {node.name for node in self.values.graph.nodes if any((node.name, at) in hooks for at in _places(node))}
        given, taken = [self._typed(inputs) for inputs in executions], dict[int, Taken]()

        def take(evaluator: Evaluator, run: int) -> None:
            taken[run] = _taken(evaluator, given[run], hooks if run in noises else {})

        noises: dict[int, dict[Key, Noise]] = {run: {} for run in runs}
        wanted = [(run, name) for run in runs for name in names]
        noise, outputs = total_noise(self.fresh, given, wanted, run_first=take)
        for (run, name, at), rms in noise.items():
            if run in noises:
                noises[run][name, at] = rms
        return taken, noises, outputs

    def logged(self, gap: Gap, call: int | None = None) -> Key | None:
        """The value of this form that a gap's runtime value belongs to; `call`: the delegate call with the row."""
        if call is not None:
            return self.inside.get(call, "") + gap.source[0], gap.source[1]
        key = self._written.get((gap.instruction, gap.output))
        return key if key is None or key[1] else self.values.value(key[0])

    def inside_nodes(self, text: str) -> dict[str, str]:
        starts = tuple(self.inside.values())
        return {node.name: text for node in self.values.graph.nodes if node.name.startswith(starts)}


def _taken(evaluator: Evaluator, inputs: Sequence[Any], hooks: Mapping[Key, Hook]) -> Taken:
    values: dict[Key, Any] = {}

    def keep(node: Node, value: Value) -> None:
        for output, computed in enumerate(flat_values(value.reference)):
            hook = hooks.get((node.name, output))
            if hook is not None and (tensor := as_tensor(computed)) is not None:
                values[node.name, output] = hook(tensor)

    return Taken(values, list(evaluator.run(inputs, keep)))


def _places(node: Node) -> range:
    return range(max(1, len(node.outputs)))


def read_grid(quantize: Node, read: Callable[[Any], Any] = lambda argument: argument) -> Grid | None:
    """The grid of a quantize, None where elements have several; `read` gives its numbers."""
    grid = grid_of(quantize)
    numbers = [read(item) for item in (grid.scale, grid.zero_point, grid.qmin, grid.qmax)] if grid is not None else []
    if not numbers or not all(isinstance(number, (int, float)) for number in numbers) or not numbers[0]:
        return None
    return Grid(float(numbers[0]), *(int(number) for number in numbers[1:]))


class StageError(OperatorError, UsageError):
    pass


@dataclass(slots=True)
class Stage:
    """`noise` and `output_noise` are RMS in the value's units, NaN or absent if unknown.

    `steps` has, by operator's name, the quantization step. `problem` says why the stage could not be evaluated.
    """

    name: str
    values: dict[str, torch.Tensor] = field(default_factory=dict)
    outputs: list[Any] = field(default_factory=list)
    noise: dict[str, Noise] = field(default_factory=dict)
    output_noise: list[Noise] = field(default_factory=list)
    steps: dict[str, float] = field(default_factory=dict)
    problem: str = ""


@question
def evaluated(replay: Replay, name: str, runs: Sequence[int]) -> list[Stage]:
    with SpillFile() as file:
        return Stages(replay).evaluate(name, file, runs)


class Stages:
    def __init__(self, replay: Replay) -> None:
        self.replay = replay
        self._inputs = [execution.inputs for execution in replay.executions]
        here = replay.elsewhere is None
        self.lowered = ProgramForm.of(replay.fresh()) if here else ProgramForm(replay.graph, replay.constants)
        self._readings = readings = self.lowered.readings()
        self._operators = {key: operator for operator, key in readings.items()}
        for operator, key in readings.items():
            node = self.lowered.values.nodes.get(key[0])
            if node is None or not node.reads():
                continue
            source = self.lowered.values.value(node.reads()[0])
            if is_dequantize(node) or node.target == VIEW:  # a view is not logged, but what it shows is
                self._operators.setdefault(source, operator)

    @property
    def makers(self) -> dict[str, Fresh]:
        replay = self.replay
        fresh: dict[str, Fresh] = {FLOAT: replay.fresh_float} if replay.fresh_float is not None else {}
        kept = dict(replay.stages)
        if FLOAT in fresh and EXPORTED in kept:
            kept = {QUANTIZED: kept.pop(EXPORTED), **kept}
        return fresh | {**kept, LOWERED: replay.fresh}

    def evaluate(self, name: str, file: SpillFile, runs: Sequence[int], *, measured: bool = True) -> list[Stage]:
        try:
            form = self.lowered if name == LOWERED else ProgramForm.of(self.makers[name]())
            readings = {key: operator for operator, key in self.readings(name, form).items()}
            given, hooks = self._inputs[: max(runs, default=-1) + 1], dict.fromkeys(readings, file.put)
            if measured:
                taken, noise, output_noise = form.measured(given, hooks, runs)
            else:
                taken = form.evaluate(given, lambda run: hooks, runs)
                noise, output_noise = {run: {} for run in runs}, [[] for _ in given]
        except FileChangedError:
            raise
        except EtvizError as error:
            return [Stage(name, problem=str(error)) for _ in runs]
        metas = {key: form.values.meta(key) for key in readings}
        steps = {readings[key]: meta.scale for key, meta in metas.items() if meta is not None and meta.scale}
        return [
            Stage(
                name,
                {readings[key]: value for key, value in taken[run].values.items()},
                taken[run].outputs,
                {readings[key]: rms for key, rms in noise[run].items() if key in readings},
                output_noise[run],
                steps,
            )
            for run in runs
        ]

    def readings(self, name: str, form: ProgramForm) -> dict[str, Key]:
        """By the lowered program's operators: the value of a stage that answers each.

        A float convolution that took a batch norm in is compared with the norm. Upstream's passes rename language
        operators in another order: dataflow matches them.
        """
        if name in (EXPORTED, QUANTIZED):
            return self._by_dataflow(form)
        if name != FLOAT:
            return form.readings()
        partners = find_partners(form.values, self.lowered.values)
        return {item.op: item.floating for item in partners if item.value is not None and not item.output}

    def _by_dataflow(self, form: ProgramForm) -> dict[str, Key]:
        reads, lowered = form.readings(), self.lowered.readings()
        made_anew = {name for name, (node, _) in reads.items() if form.values.nodes[node].target in LANGUAGE_OPERATORS}
        if not made_anew:
            return reads
        keys_by_name = {name: key for name, key in reads.items() if name not in made_anew}
        known = {key: lowered[name] for name, key in keys_by_name.items() if name in lowered}
        inputs = self.lowered.values.graph.inputs
        constants = {item.target.rpartition("/")[2]: item.name for item in inputs if item.target}
        targets = {placeholder.name: placeholder.target.rpartition("/")[2] for placeholder in form.values.graph.inputs}
        same = {name: constants[target] for name, target in targets.items() if target in constants}
        pairs = align(self.lowered.values.graph, form.values.graph, same, known).reference.partner
        names = {key: name for name, key in lowered.items()}
        keys = (reads[name] for name in made_anew)
        return keys_by_name | {names[pairs[key]]: key for key in keys if key in pairs and pairs[key] in names}

    def runtime_value(self, gap: Gap, call: int | None = None) -> tuple[str, torch.Tensor] | None:
        key = self.lowered.logged(gap, call)
        operator = self._operators.get(key) if key is not None else None
        node = self.lowered.values.nodes.get(key[0]) if key is not None else None
        if operator is None:
            return None
        if node is None or not is_quantize(node) or self._readings[operator] == key:
            return operator, self._as_shown(gap.runtime, self._readings[operator])
        grid = read_grid(node)
        return (operator, grid.dequantize(gap.runtime)) if grid is not None else None

    def _as_shown(self, value: torch.Tensor, key: Key) -> torch.Tensor:
        meta = self.lowered.values.meta(key)
        sizes = [size for size in meta.shape if isinstance(size, int)] if meta is not None else []
        return value.reshape(sizes) if elements(meta) == value.numel() else value

    def runtime(self, comparisons: Sequence[tuple[ExecutionGaps, int | None]], run: int, lowered: Stage) -> Stage:
        stage = Stage(RUNTIME, noise=lowered.noise, output_noise=lowered.output_noise, steps=lowered.steps)
        for comparison, call in comparisons:
            for gap in comparison.gaps:
                if (value := self.runtime_value(gap, call)) is not None:
                    stage.values.setdefault(*value)
        stage.outputs = self.replay.executions[run].log.outputs()
        return stage
