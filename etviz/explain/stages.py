"""The forms of a program that its files hold, from the float model to what the runtime logged, operator by operator.

Every form is evaluated on the same inputs. Lowering keeps the name of an operator of the exported program, so values
are joined by that name, each where the next operators read it: a value that is put on a quantization grid is taken
after that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from etviz.comparison.gap import COMPARED, MISMATCH
from etviz.comparison.measurement import as_tensor, measure, why_not_comparable
from etviz.errors import EtvizError, FileChangedError, UsageError
from etviz.evaluation.evaluator import Evaluator
from etviz.evaluation.noise import total_noise
from etviz.evaluation.spill import SpillFile
from etviz.evaluation.values import Value, flat_values
from etviz.explain.quantization.operators import Values, find_partners
from etviz.graph.inline import Inlined, inline, without_mutation
from etviz.graph.ir import Graph, Node
from etviz.graph.quantize_ops import Grid, grid_of, is_dequantize, is_quantize
from etviz.graph.uses import Key
from etviz.tensors.metrics import NAN, Sums

if TYPE_CHECKING:
    import torch

    from etviz.comparison.gap import Comparison, Gap, Run
    from etviz.evaluation.replay import Replay

RUNTIME: Final = "runtime"
LOWERED: Final = "lowered"
FLOAT, EXPORTED, QUANTIZED = "float", "exported", "quantized"
NO_PARTNER: Final = "no partner"
NAMELESS: Final = "the stage has no operator of that name: it was decomposed or folded"
_ALIASES: Final = {"exported_program": EXPORTED, "edge_dialect_exported_program": "edge"}

Fresh = Callable[[], Evaluator]


@dataclass(slots=True)
class Stage:
    """One stage: its values by operator, and by place among the final outputs; and the noise of each.

    `steps` are those of the grids that values were put on.
    """

    name: str
    values: dict[str, torch.Tensor] = field(default_factory=dict)
    outputs: list[Any] = field(default_factory=list)
    noise: dict[str, float] = field(default_factory=dict)
    output_noise: list[float] = field(default_factory=list)
    steps: dict[str, float] = field(default_factory=dict)
    problem: str = ""


def stages_of(replay: Replay) -> dict[str, Fresh]:
    """Makers of evaluators of the stages before the runtime, by name, in the order of lowering."""
    fresh: dict[str, Fresh] = {FLOAT: replay.fresh_float} if replay.fresh_float is not None else {}
    kept = dict(replay.stages)
    if FLOAT in fresh and EXPORTED in kept:
        kept = {QUANTIZED: kept.pop(EXPORTED), **kept}
    return fresh | {**kept, LOWERED: replay.fresh}


def evaluated(name: str, make: Fresh, replay: Replay, run: int, file: SpillFile, lowered: Values) -> Stage:
    """A stage from its graph; one that can't be evaluated says why. `lowered` are the values of the last graph."""
    stage = Stage(name)
    try:
        original = make()
        flat = without_mutation(inline(original.graph).graph)
        partners = find_partners(Values(flat), lowered) if name == FLOAT else ()
        folded = {item.op: item.floating for item in partners if item.value is not None and not item.output}
        readings = {node: operator for operator, node in (folded or _readings(flat)).items()}

        def keep(node: Node, value: Value) -> None:
            for output, item in enumerate(flat_values(value.reference)):
                tensor = as_tensor(item)
                if tensor is not None and (operator := readings.get((node.name, output))) is not None:
                    stage.values[operator] = file.put(tensor)

        evaluator = Evaluator(flat, original.constants, original.limits)
        inputs = [execution.inputs for execution in replay.executions[: run + 1]]
        for given in inputs:
            stage.values.clear()
            stage.outputs = list(evaluator.run(given, keep))
        wanted = [(run, node) for node, _ in readings]
        noise, outputs = total_noise(lambda: Evaluator(flat, original.constants, original.limits), inputs, wanted)
        stage.noise = {
            readings[node, at]: rms for (of, node, at), rms in noise.items() if of == run and (node, at) in readings
        }
        stage.output_noise = outputs[run]
        metas = {node.name: node.outputs for node in flat.nodes}
        scales = {name: metas[node][at] for (node, at), name in readings.items() if at < len(metas.get(node, ()))}
        stage.steps = {name: meta.scale for name, meta in scales.items() if meta is not None and meta.scale}
    except FileChangedError:
        raise
    except EtvizError as error:
        stage.problem = str(error)
    return stage


def _readings(graph: Graph) -> dict[str, Key]:
    """By operator of the exported program: the value that the next operators read; of those that became one value."""
    values = Values(graph)
    found: dict[str, Key] = {}
    for operator in values.operators.values():
        for key in values.values_of(operator)[:1] if len(operator.last) == 1 else ():
            quantize = values.quantized.get(key)
            readers = values.readers.get((quantize.name, 0), ()) if quantize is not None else ()
            found[operator.name] = next(((node.name, 0) for node in readers if is_dequantize(node)), key)
    return found


class Places:
    """Where the runtime's values are in a lowered program whose delegates are unfolded, by operator."""

    def __init__(self, graph: Graph) -> None:
        self.flat: Inlined = inline(graph)
        self.values = Values(self.flat.graph)
        self._operators: dict[Key, str] = {}
        for operator, key in _readings(self.flat.graph).items():
            self._operators[key] = operator
            node = self.values.nodes.get(key[0])
            if node is not None and is_dequantize(node) and (source := next(iter(node.reads()), "")):
                self._operators[self.values.value(source)] = operator

    def find(self, gap: Gap, call: int | None = None) -> tuple[str, torch.Tensor] | None:
        """The operator of a gap and its runtime value, off its grid; None if it is of none. `call` if it is inside."""
        if call is not None:
            key = (self.flat.inside.get(call, "") + gap.source[0], gap.source[1])
        else:
            written = self.flat.written.get((gap.instruction, gap.output))
            if written is None:
                return None
            key = written
        key = key if key[1] else self.values.value(key[0])
        operator, node = self._operators.get(key), self.values.nodes.get(key[0])
        if operator is None:
            return None
        if node is None or not is_quantize(node):
            return operator, gap.runtime
        grid = grid_of(node)
        numbers = () if grid is None else (grid.scale, grid.zero_point, grid.qmin, grid.qmax)
        if not numbers or not all(isinstance(number, (int, float)) for number in numbers):
            return None
        return operator, Grid(float(numbers[0]), *(int(number) for number in numbers[1:])).dequantize(gap.runtime)


def runtime_stage(places: Places, replay: Replay, gaps: Sequence[Gap], run: int, lowered: Stage) -> Stage:
    """What the runtime logged; its noise is that of the lowered program."""
    stage = Stage(RUNTIME, noise=lowered.noise, output_noise=lowered.output_noise, steps=lowered.steps)
    for gap in gaps:
        found = places.find(gap) if gap.run == run else None
        if found is not None:
            stage.values.setdefault(*found)
    stage.outputs = replay.executions[run].log.outputs()
    return stage


class OtherReference:
    """One stage as the reference of total gaps, for every execution.

    Parameters
    ----------
    replay
        The executions.
    name
        Of the stage, or of the ETRecord's member; see `stages_of`.

    Raises
    ------
    UsageError
        If there is no such stage.
    """

    def __init__(self, replay: Replay, name: str, method: str) -> None:
        stages = stages_of(replay)
        plain = name.removesuffix(f"/{method}")
        names = [name, plain, _ALIASES.get(plain, plain)]
        if QUANTIZED in stages and names[-1] == EXPORTED:
            names.append(QUANTIZED)
        known = next((item for item in names if item in stages), None)
        if known is None:
            raise UsageError(f"the files hold no stage {name!r} of {method}; they hold {', '.join(stages)}")
        self.name = known
        self._places = Places(replay.fresh().graph)
        with SpillFile() as file:
            self._stages = [
                evaluated(known, stages[known], replay, run, file, self._places.values)
                for run in range(len(replay.executions))
            ]
        if problem := next((stage.problem for stage in self._stages if stage.problem), ""):
            raise UsageError(f"the stage {known} can't be evaluated: {problem}")

    def of_runs(self, runs: Sequence[Run]) -> tuple[Run, ...]:
        """The executions with this reference; what was introduced stays, for it depends on no reference."""
        return tuple(item._replace(comparison=self.of(item.comparison, at)) for at, item in enumerate(runs))

    def of(self, comparison: Comparison, run: int, call: int | None = None) -> Comparison:
        """One execution, or the inside of a delegate `call` of it, with this reference."""
        stage = self._stages[run]
        changed = replace(comparison, gaps=[self._gap(gap, stage, comparison, call) for gap in comparison.gaps])
        if call is None and comparison.judged:
            changed.reference_outputs, changed.output_noise = list(stage.outputs), list(stage.output_noise)
            changed.grows_at = []
        return changed

    def _gap(self, gap: Gap, stage: Stage, comparison: Comparison, call: int | None) -> Gap:
        found = self._places.find(gap, call)
        expected = stage.values.get(found[0]) if found is not None else None
        reason = "it is no operator of the exported program, or is on a grid that is not known"
        if found is not None:
            reason = why_not_comparable(expected, found[1]) if expected is not None else NAMELESS
        if not comparison.judged:
            reason = gap.unpaired
        if reason or found is None or expected is None:
            told = reason if not comparison.judged else f"{NO_PARTNER} in {self.name}: {reason}"
            metrics = dict.fromkeys(gap.metrics, NAN)
            return replace(gap, reference=None, total=Sums(), metrics=metrics, unpaired=told, noise=NAN)
        operator, runtime = found
        step = stage.steps.get(operator) or gap.scale
        sums, metrics = measure(expected, runtime, step)
        metrics |= comparison.custom.measure(expected, runtime, gap.node.handles)[0]
        after = replace(gap, runtime=runtime, reference=expected, total=sums, metrics=metrics, unpaired="", noise=NAN)
        after.scale, after.status = step, COMPARED if not sums.mismatched else MISMATCH
        after.note = "compared as real numbers" if runtime is not gap.runtime else ""
        noise = stage.noise.get(operator, NAN)
        if not math.isnan(noise) and after.is_suspicious(introduced=False):
            after.set_noise(noise)
        return after
