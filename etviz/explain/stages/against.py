"""Makes one stage the reference of total gaps, in place of the lowered program."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from etviz.comparison.gap import COMPARED, MISMATCH
from etviz.comparison.measurement import measure, why_not_comparable
from etviz.errors import UsageError
from etviz.explain.stages.stages import EXPORTED, NAMELESS, NO_PARTNER, QUANTIZED, Stage, Stages, evaluated
from etviz.tensors.metrics import NAN, UNKNOWN, Sums

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etviz.comparison.gap import Comparison, Gap, Run
    from etviz.evaluation.replay import Replay

_ALIASES: Final = {"exported_program": EXPORTED, "edge_dialect_exported_program": "edge"}
_UNKNOWN: Final = "it is no operator of the exported program, or lies on an unknown grid"


class OtherReference:
    """A `UsageError` if the stage does not exist, or can't be evaluated."""

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
            raise UsageError(f"the stage {known} can't be evaluated: {problem}")

    notes: tuple[str, ...] = ()

    def rungs(self, run: int) -> list[Stage]:
        return []

    def of_runs(self, runs: Sequence[Run]) -> tuple[Run, ...]:
        """Introduced gaps stay, because they depend on no reference."""
        return tuple(item._replace(comparison=self.of(item.comparison, at)) for at, item in enumerate(runs))

    def of(self, comparison: Comparison, run: int, call: int | None = None) -> Comparison:
        stage = self._stages[run]
        changed = replace(comparison, gaps=[self._gap(gap, stage, comparison, call) for gap in comparison.gaps])
        if call is None and comparison.judged:
            changed.reference_outputs, changed.output_noise = list(stage.outputs), list(stage.output_noise)
            changed.grows_at = []
        return changed

    def _gap(self, gap: Gap, stage: Stage, comparison: Comparison, call: int | None) -> Gap:
        operator, runtime = self._engine.runtime_value(gap, call) or ("", gap.runtime)
        expected = stage.values.get(operator)
        reason = NAMELESS if operator else _UNKNOWN
        if expected is not None:
            reason = why_not_comparable(expected, runtime)
        if not comparison.judged:
            reason = gap.unpaired
        if reason or expected is None:
            told = reason if not comparison.judged else f"{NO_PARTNER} in {self.name}: {reason}"
            metrics = dict.fromkeys(gap.metrics, NAN)
            return replace(gap, reference=None, total=Sums(), metrics=metrics, unpaired=told, noise=UNKNOWN)
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
