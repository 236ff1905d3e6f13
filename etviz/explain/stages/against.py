"""Makes one stage, or another run, the reference of total gaps, in place of the lowered program."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from etviz.comparison.gap import COMPARED, MISMATCH, ExecutionGaps, Gap, Run
from etviz.comparison.measurement import measure, why_not_comparable
from etviz.errors import UsageError
from etviz.evaluation.replay import Replay
from etviz.explain.stages.stages import EXPORTED, NAMELESS, NO_PARTNER, QUANTIZED, Stage, StageError, Stages, evaluated
from etviz.tensors.metrics import NAN, UNKNOWN, Noise, Sums

_ALIASES: Final = {"exported_program": EXPORTED, "edge_dialect_exported_program": "edge"}
_UNKNOWN: Final = "it is no operator of the exported program, or lies on an unknown grid"


@dataclass(frozen=True, slots=True)
class Counterpart:
    """The operators that compute what the outputs are compared with.

    `own` has their ``(instruction, output)`` by the program's, None if they are the program's own.
    """

    replay: Replay
    own: Mapping[tuple[int, int], tuple[int, int]] | None = None

    def value(self, instruction: int, output: int) -> tuple[int, int]:
        if self.own is None:
            return instruction, output
        if (instruction, output) not in self.own:
            raise UsageError(f"the reference has no operator for output {output} of instruction {instruction}")
        return self.own[instruction, output]


class OtherRun:
    """The values of another run of the same program; a `UsageError` if no value has a partner there.

    Both runs round, so their difference has the noise of both.
    """

    notes: tuple[str, ...] = ()
    counterpart: Counterpart | None = None

    def __init__(self, runs: Sequence[Run], name: str) -> None:
        self.name, self._runs = name, [run.comparison for run in runs]
        self._values = [{(gap.instruction, gap.output): gap for gap in run.gaps} for run in self._runs]

    def rungs(self, run: int) -> list[Stage]:
        return []

    def of_runs(self, runs: Sequence[Run]) -> tuple[Run, ...]:
        if len(self._runs) not in (1, len(runs)):
            raise UsageError(f"{self.name} has {len(self._runs)} executions, this run has {len(runs)}")
        compared = tuple(run._replace(comparison=self.of(run.comparison, at)) for at, run in enumerate(runs))
        if all(gap.unpaired for run in compared for gap in run.comparison.gaps):
            raise UsageError(f"no value of this run has a partner in {self.name}: it is a run of another program")
        return compared

    def of(self, comparison: ExecutionGaps, run: int, call: int | None = None) -> ExecutionGaps:
        at = run if len(self._runs) > 1 else 0
        partners, other = self._values[at] if call is None else {}, self._runs[at]
        gaps = [self._gap(gap, partners.get((gap.instruction, gap.output)), comparison) for gap in comparison.gaps]
        known = {gap.instruction for gap in gaps if not gap.unpaired}
        reasons = {instruction: why for instruction, why in comparison.reasons.items() if instruction not in known}
        changed = replace(comparison, gaps=gaps, reasons=reasons)
        if call is None:
            changed.reference_outputs, changed.judged, changed.grows_at = list(other.runtime_outputs), True, []
            pairs = zip(comparison.output_noise, other.output_noise, strict=False)
            changed.output_noise = [_of_both(*pair) for pair in pairs]
        return changed

    def _gap(self, gap: Gap, other: Gap | None, comparison: ExecutionGaps) -> Gap:
        reason = "it logged no such value" if other is None else why_not_comparable(other.runtime, gap.runtime)
        if other is not None and other.node.kernel != gap.node.kernel:
            reason = f"there, it is {other.node.kernel}"
        if other is None or reason:
            return without_reference(gap, f"{NO_PARTNER} in {self.name}: {reason}")
        sums, metrics = measure(other.runtime, gap.runtime, gap.scale)
        metrics |= comparison.custom.measure(other.runtime, gap.runtime, gap.node.handles)[0]
        after = replace(gap, reference=other.runtime, total=sums, metrics=metrics, unpaired="", note="", noise=UNKNOWN)
        after.status = COMPARED if not sums.mismatched else MISMATCH
        if gap.unpaired or other.unpaired:
            after.metrics["severity"], after.note = NAN, "without a reference, the noise of its program is not known"
        elif not math.isnan(noise := _of_both(gap.noise, other.noise)):
            after.set_noise(noise)
        return after


def _of_both(one: Noise, other: Noise) -> Noise:
    """Noise of a difference; where one run's was not measured, it is within the other's."""
    known = max((noise for noise in (one, other) if not math.isnan(noise)), default=UNKNOWN)
    return Noise(math.sqrt(2) * known, known.how)


def without_reference(gap: Gap, reason: str) -> Gap:
    metrics = dict.fromkeys(gap.metrics, NAN)
    return replace(gap, reference=None, total=Sums(), metrics=metrics, unpaired=reason, noise=UNKNOWN)


class OtherReference:
    """A `UsageError` if the stage does not exist."""

    def __init__(self, replay: Replay, name: str, method: str) -> None:
        self._engine = Stages(replay)
        makers = self._engine.makers
        plain = name.removesuffix(f"/{method}")
        names = [name, plain, _ALIASES.get(plain, plain)]
        if QUANTIZED in makers and names[-1] == EXPORTED:
            names.append(QUANTIZED)
        known = next((item for item in names if item in makers), None)
        if known is None:
            raise UsageError(f"the files hold no stage {name!r} of {method}; they hold {', '.join(makers)}")
        self.name = known
        self._stages = evaluated(replay, known, list(range(len(replay.executions))))
        if problem := next((stage.problem for stage in self._stages if stage.problem), ""):
            raise StageError(f"the stage {known} can't be evaluated: {problem}")

    notes: tuple[str, ...] = ()
    counterpart: Counterpart | None = None

    def rungs(self, run: int) -> list[Stage]:
        return []

    def of_runs(self, runs: Sequence[Run]) -> tuple[Run, ...]:
        """Introduced gaps stay, because they depend on no reference."""
        return tuple(run._replace(comparison=self.of(run.comparison, at)) for at, run in enumerate(runs))

    def of(self, comparison: ExecutionGaps, run: int, call: int | None = None) -> ExecutionGaps:
        stage = self._stages[run]
        changed = replace(comparison, gaps=[self._gap(gap, stage, comparison, call) for gap in comparison.gaps])
        if call is None and comparison.judged:
            changed.reference_outputs, changed.output_noise = list(stage.outputs), list(stage.output_noise)
            changed.grows_at = []
        return changed

    def _gap(self, gap: Gap, stage: Stage, comparison: ExecutionGaps, call: int | None) -> Gap:
        operator, runtime = self._engine.runtime_value(gap, call) or ("", gap.runtime)
        expected = stage.values.get(operator)
        reason = NAMELESS if operator else _UNKNOWN
        if expected is not None:
            reason = why_not_comparable(expected, runtime)
        if not comparison.judged:
            reason = gap.unpaired
        if reason or expected is None:
            told = reason if not comparison.judged else f"{NO_PARTNER} in {self.name}: {reason}"
            return without_reference(gap, told)
        step = stage.steps.get(operator) or gap.scale
        sums, metrics = measure(expected, runtime, step)
        metrics |= comparison.custom.measure(expected, runtime, gap.node.handles)[0]
        after = replace(gap, runtime=runtime, reference=expected, total=sums, metrics=metrics, unpaired="")
        after.noise = UNKNOWN
        after.scale, after.status = step, COMPARED if not sums.mismatched else MISMATCH
        after.note = "compared as real numbers" if runtime is not gap.runtime else ""
        noise = stage.noise.get(operator, UNKNOWN)
        if not math.isnan(noise) and after.is_suspicious(introduced=False):
            after.set_noise(noise)
        return after
