"""A user's reference, a model or outputs, for faults that the program's exported graph has too.

The model's operators are paired with the program's by dataflow. Each of them also gets the runtime's inputs, so the
first to add an error is at fault.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import torch
from torch.export import ExportedProgram
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from etviz.comparison.exact import compare_together
from etviz.comparison.gap import ExecutionGaps, Gap, Keeper, Run
from etviz.comparison.in_lanes import InLanes
from etviz.comparison.judging import judge_totals
from etviz.comparison.measurement import as_tensor, why_not_comparable
from etviz.errors import UsageError
from etviz.evaluation.evaluator import Evaluator
from etviz.evaluation.operator_rules import OperatorError
from etviz.evaluation.replay import Execution, Replay, question
from etviz.evaluation.spill import SpillFile
from etviz.explain.given_values import GivenValues
from etviz.explain.stages.against import Counterpart, OtherReference, without_reference
from etviz.explain.stages.alignment import Between, Side, align, left_out, put_in_between
from etviz.explain.stages.ladder import agree
from etviz.explain.stages.stages import EXPORTED, LOWERED, NO_PARTNER, QUANTIZED, ProgramForm, Stage, StageError, Stages
from etviz.graph.ir import Graph, Node, Ref, renamed
from etviz.graph.quantize_ops import is_conversion
from etviz.graph.uses import Key, item_of, operators
from etviz.tensors.digest import octets
from etviz.tensors.metrics import NAN

REFERENCE: Final = "reference"
_LISTED: Final = 4
_UNKNOWN: Final = f"{NO_PARTNER} in the reference"
_NO_EXPORT: Final = "the files hold no exported program to pair it with: give the ETRecord (etrecord=)"


_WRAPPED: Final = "export.access_subclass_inner_tensor"


@dataclass(slots=True)
class AlignedModels:
    """A model beside the program.

    `operators` has the program's operator by value; an operator that only the program has (`added`) is a copy in
    `graph`. `lacking` has what the model does behind a program's operator; `missing` operators only the model has,
    by target. The runtime begins with zeros in `forgotten` buffers, inputs of `graph` by target.
    """

    graph: Graph
    operators: dict[Key, str] = field(default_factory=dict)
    added: list[str] = field(default_factory=list)
    lacking: dict[str, list[str]] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)


@question
def paired(replay: Replay, graph: Graph, digests: Mapping[str, tuple[str, str]]) -> AlignedModels:
    """`digests` has, by name of a constant's input, its name in the model and the digest of its numbers."""
    if EXPORTED not in replay.stages:
        raise UsageError(_NO_EXPORT)
    form, engine = ProgramForm.of(replay.stages[EXPORTED]()), Stages(replay)
    program = form.values.graph
    if any(node.target.startswith(_WRAPPED) for node in program.nodes):
        raise UsageError(
            "the exported form in the ETRecord keeps weights in a subclass of tensors, as torchao's quantize_ does, "
            "which etviz does not open: export and lower torchao.utils.unwrap_tensor_subclass(model), and run it again"
        )
    if any(map(is_conversion, program.nodes)) and not any(map(is_conversion, graph.nodes)):
        raise UsageError(
            "the program is quantized and the reference is not: give the quantized model, or see quantization()"
        )
    constants = _constants(form, digests)
    alignment = align(program, graph, constants)
    names = _names(engine, form)
    taken = AlignedModels(
        replace(graph, nodes=list(graph.nodes), outputs=list(graph.outputs), mutations=dict(graph.mutations))
    )
    known = {item.name: item.target.rpartition("/")[2] for item in program.inputs}
    zeros = {target.rpartition("/")[2] for target in replay.fresh().runtime_state}
    taken.forgotten = [item.target for item in graph.inputs if known.get(constants.get(item.name, "")) in zeros]
    ends, right = left_out(alignment), alignment.reference
    for key, partner in alignment.program.partner.items():
        if operator := names.get(key, ""):
            last, between = ends.get(partner, (partner, []))
            taken.operators[last] = operator
            if between:
                taken.lacking[operator] = [right.uses.nodes[name].target for name in between]
    metas = dict(right.metas)
    for item in put_in_between(alignment):
        name, value = f"{item.node.name}.copy", item.value
        reads = next((node.name for node in graph.nodes if item_of(node) == value), value[0])
        metas[item.node.name, 0] = metas[value]
        copy = Node(name, "aten.clone.default", (Ref(f"{item.first}.copy" if item.first else reads),))
        copy.outputs = (metas[value],)
        _insert(taken.graph, copy, reads, item)
        if (operator := names.get((item.node.name, 0), "")) != "":
            taken.operators[name, 0] = operator
            taken.added.append(operator)
    between = {name for end in ends.values() for name in end[1]}
    taken.missing = [right.uses.nodes[name].target for name in alignment.fewer if name not in between]
    return taken


def _names(engine: Stages, form: ProgramForm) -> dict[Key, str]:
    run = min(1, len(engine.replay.executions) - 1)
    stages = QUANTIZED if QUANTIZED in engine.makers else EXPORTED, LOWERED
    with SpillFile() as file:
        before = engine.evaluate(stages[0], file, [run], measured=False)[0]
        after = engine.evaluate(LOWERED, file, [run])[0]
        if after.problem:  # perhaps only in the perturbed lanes
            after = engine.evaluate(LOWERED, file, [run], measured=False)[0]
        for stage in (before, after):
            if stage.problem:
                raise StageError(f"the stage {stage.name} can't be evaluated: {stage.problem}")
        keys = engine.readings(stages[0], form)
        both = before.values.keys() & after.values.keys()
        noise = {name: after.noise.get(name, NAN) for name in both}
        same = {name for name in both if agree(before.values[name], after.values[name], noise[name])}
    return {key: name for name, key in keys.items() if name in same}


def _constants(form: ProgramForm, digests: Mapping[str, tuple[str, str]]) -> dict[str, str]:
    free = {item.name: item.target.rpartition("/")[2] for item in form.values.graph.inputs if item.kind != "user"}
    by_name = {known: name for name, known in free.items()}
    partners = {name: by_name[known] for name, (known, _) in digests.items() if known in by_name}
    targets = {placeholder.name: placeholder.target for placeholder in form.values.graph.inputs}
    equal: dict[str, list[str]] = {}
    for name in free.keys() - partners.values() if len(partners) < len(digests) else ():
        equal.setdefault(digest_of(form.constants[targets[name]]), []).append(name)
    for name, (known, numbers) in digests.items():
        others = equal.get(numbers, []) if name not in partners else []
        if others:
            partners[name] = best = max(others, key=lambda other: _common_end(free[other], known))
            others.remove(best)
    return partners


def _common_end(one: str, other: str) -> int:
    pairs = zip(reversed(one.split(".")), reversed(other.split(".")), strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(one.count("."), other.count(".")) + 1)


def digest_of(tensor: torch.Tensor) -> str:
    return f"{tensor.dtype} {tuple(tensor.shape)} {hashlib.sha256(octets(tensor).numpy().data).hexdigest()}"


def _insert(graph: Graph, copy: Node, value: str, between: Between) -> None:
    _put(graph, copy, copy.reads()[0])
    for *repeated, last in between.chains:
        other = {value: Ref(copy.name)}
        for node in repeated:
            name = f"{copy.name}.{node.name}"
            _put(graph, _reading(node, other, name=name), node.name)
            other = {node.name: Ref(name)}
        at = next(at for at, node in enumerate(graph.nodes) if node.name == last.name)
        graph.nodes[at] = _reading(graph.nodes[at], other)
    for place in between.results:
        if isinstance(place, str):
            graph.mutations[place] = copy.name
        else:
            graph.outputs[place] = Ref(copy.name)


def _put(graph: Graph, node: Node, behind: str) -> None:
    graph.nodes.insert(next((at + 1 for at, other in enumerate(graph.nodes) if other.name == behind), 0), node)


def _reading(node: Node, other: Mapping[str, Ref], **changes: Any) -> Node:
    return replace(node, args=tuple(renamed(node.args, other)), kwargs=renamed(node.kwargs, other), **changes)


def exported(model: Any, inputs: Sequence[Any]) -> ExportedProgram:
    from etviz.pipeline.lower import LoweringError, export

    weights = model.state_dict if isinstance(model, ExportedProgram) else dict(model.named_parameters())
    wrapped = next(filter(is_traceable_wrapper_subclass, weights.values()), None)
    if isinstance(model, ExportedProgram):
        if wrapped is not None:
            raise UsageError(f"the program's weights are {type(wrapped).__name__}: give the model itself as reference")
        return model
    if wrapped is not None:
        from torchao.utils import unwrap_tensor_subclass

        model = unwrap_tensor_subclass(copy.deepcopy(model))
    training = [module for module in model.modules() if module.training]
    try:
        for module in training:
            module.training = False
        return export(model, tuple(inputs), strict=False, what=REFERENCE)
    except LoweringError as error:
        raise UsageError(f"{error}; give torch.export.export(model, example_inputs) as reference") from error
    finally:
        for module in training:
            module.training = True


class _Filed(Keeper):
    def __init__(self, file: SpillFile) -> None:
        super().__init__()
        self._file = file

    def keep(self, reference: torch.Tensor) -> torch.Tensor:
        return self._file.put(reference)


@contextmanager
def _naming_reference() -> Generator[None]:
    try:
        yield
    except OperatorError as error:
        raise UsageError(f"{REFERENCE}: {error}") from error


class OwnModel:
    """A `UsageError` if the model can't be exported, or has another dtype or other inputs."""

    name = REFERENCE

    def __init__(self, replay: Replay, model: Any, method: str, example: Sequence[Any] = ()) -> None:
        from etviz.pipeline.capture import capture_reference

        inputs = replay.executions[0].inputs
        program = exported(model, example or inputs)
        self._constants: dict[str, torch.Tensor] = {}
        graph = capture_reference(program, method, self._constants)
        with _naming_reference():
            Side(graph)
        if len(graph.user_inputs()) != len(inputs):
            raise UsageError(f"the reference takes {len(graph.user_inputs())} inputs, the program {len(inputs)}")
        digests = {
            placeholder.name: (placeholder.target.rpartition("/")[2], digest_of(self._constants[placeholder.target]))
            for placeholder in graph.inputs
            if placeholder.target in self._constants
        }
        self._engine, self._replay = Stages(replay), replay
        self.paired = paired(replay, graph, digests)
        self.counterpart: Counterpart | None = None

    @_naming_reference()
    def of_runs(self, runs: Sequence[Run]) -> tuple[Run, ...]:
        graph, paired = self.paired.graph, self.paired.operators
        value_of = self._engine.runtime_value
        read = [[(gap, value_of(gap) or ("", None)) for gap in each.comparison.gaps] for each in runs]
        logged = [{operator: value for _, (operator, value) in reversed(values) if operator} for values in read]
        seen = {operator for values in logged for operator in values}
        known = {name for (name, _), operator in paired.items() if operator in seen}
        names: dict[tuple[int, int], str] = {}
        for at, node in enumerate(operators(graph.nodes)):
            node.instruction = at if node.name in known else -1
            for output in range(len(node.outputs) if node.name in known else 0):
                names[at, output] = paired.get((node.name, output), "")
        zeros = {target: torch.zeros_like(self._constants[target]) for target in self.paired.forgotten}

        def fresh() -> Evaluator:
            evaluator = Evaluator(graph, self._constants)
            evaluator.runtime_state |= zeros
            return evaluator

        lanes, comparisons, executions = InLanes(fresh(), measured=True), [], []
        inputs = [execution.inputs for execution in self._replay.executions]
        with SpillFile() as file:
            for run, compared in enumerate(runs):
                values: dict[int, list[Any]] = {}
                for (at, _), operator in names.items():
                    values.setdefault(at, []).append(logged[run].get(operator))
                values = {at: given for at, given in values.items() if any(value is not None for value in given)}
                log = GivenValues(values, self._replay.executions[run].log.outputs())
                executions.append(Execution(inputs[run], log))
                compare = partial(
                    compare_together,
                    logs=[log],
                    inputs=inputs[run],
                    run=run,
                    keeper=_Filed(file),
                    pairing="dataflow",
                    custom=compared.comparison.custom,
                )
                lanes.look_ahead(run, inputs[run:])
                comparisons += lanes.compare(run, inputs[run], compare)
                lanes.settle(comparisons[-1])
            judge_totals(comparisons, inputs, fresh)
        places = {operator: place for place, operator in names.items() if operator}
        own: dict[tuple[int, int], tuple[int, int]] = {}
        changed: list[Run] = []
        for item, compared, named in zip(runs, comparisons, read, strict=True):
            # several instructions have the value of one operator where all but the first pass it on
            first = {operator: (gap.instruction, gap.output) for gap, (operator, _) in reversed(named)}
            own |= {place: places[operator] for operator, place in first.items() if operator in places}
            known = {names[gap.instruction, gap.output]: gap for gap in compared.gaps}
            judged = item.comparison.judged
            gaps = [self._gap(gap, known.get(name), name, first, judged=judged) for gap, (name, _) in named]
            changed.append(item._replace(comparison=_joined(item.comparison, compared, gaps)))
        self.counterpart = Counterpart(Replay(fresh, executions), own)
        return tuple(changed)

    def of(self, comparison: ExecutionGaps, run: int, call: int | None = None) -> ExecutionGaps:
        gaps = [_without(gap, _UNKNOWN) for gap in comparison.gaps]
        return replace(comparison, gaps=gaps)

    def rungs(self, run: int) -> list[Stage]:
        form = ProgramForm(self.paired.graph, self._constants)
        names = self.paired.operators
        given = [execution.inputs for execution in self._replay.executions[: run + 1]]
        with SpillFile() as file:
            taken, noise, outputs = form.measured(given, dict.fromkeys(names, file.put), [run])
        values = {names[key]: value for key, value in taken[run].values.items()}
        known = {names[key]: rms for key, rms in noise[run].items() if key in names}
        return [Stage(REFERENCE, values, taken[run].outputs, known, outputs[run])]

    @property
    def notes(self) -> tuple[str, ...]:
        more = _listed(self.paired.added)
        fewer = _listed([short for short in self.paired.missing if short.startswith("aten.")])
        lacking = [f"{_listed(names)} behind {operator}" for operator, names in self.paired.lacking.items()]
        without = "; ".join(filter(None, [*lacking, fewer]))
        return tuple(
            text
            for text, told in (
                (f"Without a partner in the reference: {more}.", more),
                (f"Without a partner in the program: {without}.", without),
            )
            if told
        )

    def _gap(
        self, gap: Gap, compared: Gap | None, operator: str, first: Mapping[str, tuple[int, int]], *, judged: bool
    ) -> Gap:
        if compared is None or not operator:
            return _without(gap, _UNKNOWN)
        told = compared.note
        if operator in self.paired.added:
            told = "; ".join(filter(None, ("only the program has it: compared with what it reads", told)))
        if operator in self.paired.lacking:
            told = f"only the reference has {_listed(self.paired.lacking[operator])} behind it; {told}".rstrip("; ")
        place = {"instruction": gap.instruction, "output": gap.output, "node": gap.node, "source": gap.source}
        changed = replace(compared, **place, pairing=gap.pairing, rounds=gap.rounds, note=told, operators=gap.operators)
        if first[operator] != (gap.instruction, gap.output):
            changed.forget_introduced()
            changed.introduced_problem = f"instruction {first[operator][0]} has this value too"
        if not judged:
            changed.forget_total(gap.unpaired)
        return changed


def _joined(before: ExecutionGaps, compared: ExecutionGaps, gaps: list[Gap]) -> ExecutionGaps:
    changed = replace(before, gaps=gaps)
    if before.judged:
        changed.reference_outputs, changed.output_noise = compared.reference_outputs, compared.output_noise
        changed.output_imposed, changed.output_scales = compared.output_imposed, compared.output_scales
        changed.grows_at = []
    return changed


def _without(gap: Gap, reason: str) -> Gap:
    bare = without_reference(gap, reason)
    bare.introduced, bare.introduced_sums, bare.introduced_problem = None, None, reason
    return bare


def _listed(names: Sequence[str]) -> str:
    short = list(dict.fromkeys(names))
    more = f" and {len(short) - _LISTED} more" if len(short) > _LISTED else ""
    return ", ".join(short[:_LISTED]) + more


class OwnOutputs:
    """One tensor, or a list, for each execution; a `UsageError` if number or shapes are not the program's."""

    name = REFERENCE
    notes = ()
    counterpart = None

    def __init__(self, given: Sequence[Any]) -> None:
        several = [outputs if isinstance(outputs, (list, tuple)) else [outputs] for outputs in given]
        self._given = [list(items) for items in several]
        if not all(isinstance(output, torch.Tensor) for items in self._given for output in items):
            raise UsageError("reference must hold tensors: the outputs of each execution")

    def of_runs(self, runs: Sequence[Run]) -> tuple[Run, ...]:
        if len(self._given) != len(runs):
            raise UsageError(f"reference holds the outputs of {len(self._given)} executions, the run has {len(runs)}")
        changed_runs = []
        for run, expected in zip(runs, self._given, strict=True):
            outputs = run.comparison.runtime_outputs
            if len(outputs) != len(expected):
                raise UsageError(f"reference holds {len(expected)} outputs, the program has {len(outputs)}")
            for logged, wanted in zip(outputs, expected, strict=True):
                if as_tensor(logged) is not None and (reason := why_not_comparable(wanted, logged)):
                    raise UsageError(f"reference: {reason}")
            changed = self.of(run.comparison, 0)
            changed.reference_outputs, changed.judged, changed.grows_at = expected, True, []
            changed_runs.append(run._replace(comparison=changed))
        return tuple(changed_runs)

    def rungs(self, run: int) -> list[Stage]:
        return [Stage(REFERENCE, outputs=self._given[run])]

    def of(self, comparison: ExecutionGaps, run: int, call: int | None = None) -> ExecutionGaps:
        return replace(comparison, gaps=[without_reference(gap, _UNKNOWN) for gap in comparison.gaps])


def other_reference(
    replay: Replay, reference: Any, method: str, example: Sequence[Any] = ()
) -> OtherReference | OwnModel | OwnOutputs:
    """A stage's name, a model, or the outputs of each execution; `example` has arguments to export the model with."""
    if isinstance(reference, str):
        return OtherReference(replay, reference, method)
    if isinstance(reference, (torch.nn.Module, ExportedProgram)):
        return OwnModel(replay, reference, method, example)
    if isinstance(reference, (torch.Tensor, list, tuple)):
        return OwnOutputs([reference] if isinstance(reference, torch.Tensor) else reference)
    raise UsageError(
        "reference must be the name of a stage, a model, its outputs, or functions by operator, found "
        f"{type(reference).__name__}"
    )
