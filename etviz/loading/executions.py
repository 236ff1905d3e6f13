"""Every execution of a method against its reference, on the inputs that it had."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tqdm.auto import tqdm

from etviz.analysis.findings import Compared
from etviz.artifacts.etdump.runtime_log import RuntimeLog
from etviz.comparison.by_handles import compare_by_handles
from etviz.comparison.exact import compare_exact
from etviz.comparison.gap import Comparison, Run
from etviz.comparison.inputs import Inputs, choose_inputs, doubtful, forget_totals, proved, starts_far_off, why_not
from etviz.comparison.logged_twice import foreign_buffer
from etviz.comparison.noise import measure_total_noise
from etviz.comparison.references import KEPT_BYTES
from etviz.comparison.truncated_buffer import blank_tail, drop_blank_tail
from etviz.errors import UsageError
from etviz.evaluation.limits import Budget
from etviz.evaluation.replay import Execution, Replay
from etviz.loading.paired import HANDLES
from etviz.pairing.handles import HandleGroups, logged_inputs_of, logged_tensors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etviz.comparison.noise import Judge
    from etviz.evaluation.evaluator import Evaluator
    from etviz.graph.ir import Graph
    from etviz.loading.paired import Paired
    from etviz.tensors.custom_metrics import CustomMetrics

_NO_INPUTS: Final = (
    "The inputs of the run are not known, so there is no reference; give inputs=, "
    "or an ETRecord with representative inputs."
)
_FORGOTTEN: Final = (
    "The program does not keep what {} held at first, so the run began with zeros there, and the reference with the "
    "model's values; let upstream keep them (InitializedMutableBufferPass)."
)
_FIRST_FAR_OFF: Final = "The first operators are far off while the others are not: "
_OR_OTHER_INPUTS: Final = "they are at fault, or the run had other inputs than inputs=."
_INPUTS_UNKNOWN: Final = "the inputs of the run are not known: only introduced gaps"
_NOT_PROVED: Final = (
    "There are several executions, and nothing that was logged says that these had the inputs that are known; "
    "give the inputs of each (inputs=)."
)
_OTHER_INPUTS: Final = (
    "the run most likely had other inputs. If it had these, say so with inputs=; then the first operators are at fault."
)


def compare_executions(
    paired: Paired,
    given: Any,
    *,
    ran_here: bool,
    introduced: bool,
    custom: CustomMetrics,
    judge: Judge = measure_total_noise,
) -> Compared:
    """Compare every execution.

    Parameters
    ----------
    paired
        The method.
    given
        The inputs that the user gave, as for `load`.
    ran_here
        The program ran on `given` a moment ago, so they are not doubted when the first operators are far off.
    introduced
        Replay every instruction on the runtime's inputs.
    custom
        Metrics that users registered.
    judge
        Measures total gaps by their noise.

    Raises
    ------
    UsageError
        If the inputs do not fit.
    PairingError
        If the reference can't be computed.
    """
    paired = paired.with_forgotten_state()
    artifacts, executions = paired.artifacts, paired.executions
    work = Budget()
    evaluator = paired.evaluator(work)
    candidates = _candidates(paired, evaluator.graph, given)
    if not candidates:
        return Compared(notes=(_NO_INPUTS,))
    named = given is not None and not ran_here
    stage = _Stage(paired, evaluator, candidates, introduced, custom, named=named)
    known_inputs = _Judge(paired, evaluator.graph)
    notes = dict.fromkeys(
        [_FORGOTTEN.format(", ".join(name.rpartition("/")[2] for name in paired.forgotten))] if paired.forgotten else ()
    )
    refs = artifacts.dump.tensor_refs()
    file = artifacts.buffer if "debug_buffer" in artifacts.named else None
    blank = blank_tail(file, refs) if file is not None else None
    runs, replayed, budget = [], [], KEPT_BYTES
    for run, (at, block) in enumerate(tqdm(executions, desc="compare", leave=False, delay=1)):
        log = RuntimeLog(block, artifacts.buffer)
        told = block.bundled_input_index
        first = told if told is not None and told < len(candidates) else run % len(candidates)
        others = [] if given is not None else [i for i in range(len(candidates)) if i != first]
        states = stage.evaluator.states
        inputs, comparison, doubted = stage.compare(log, run, budget, first)
        doubted = doubted and not ran_here
        while doubted and others:  # an ETDump does not say which inputs went in
            stage.evaluator.states = states
            inputs, comparison, doubted = stage.compare(log, run, budget, others.pop(0))
        sure = given is not None and inputs.known
        note = _FIRST_FAR_OFF + (_OR_OTHER_INPUTS if sure else _OTHER_INPUTS) if doubted else inputs.note
        wrong = not inputs.known or bool(note and inputs.index >= 0 and not sure)
        guessed = given is None and told is None and len(executions) > 1
        note = known_inputs.forget(at, inputs, comparison, note, wrong=wrong, guessed=guessed)
        lost = drop_blank_tail(comparison, log, blank) if blank is not None else ""
        foreign = foreign_buffer(evaluator.graph, log)
        notes |= dict.fromkeys(filter(None, (foreign, note, lost)))
        budget -= comparison.kept
        replayed.append(Execution(inputs.values, log))
        runs.append(Run(at, inputs.index, comparison))
    notes |= dict.fromkeys(_failed_metrics(runs))
    known = [item.comparison if item.comparison.reference_outputs else Comparison() for item in runs]
    judge(known, [item.inputs for item in replayed], partial(paired.evaluator, work))
    floats = paired.float_evaluator if paired.has_float else None
    return Compared(tuple(runs), Replay(paired.evaluator, replayed, floats, paired.stages), tuple(notes))


def _candidates(paired: Paired, graph: Graph, given: Any) -> list[list[Any]]:
    """Flat inputs that the executions may have had."""
    candidates = paired.artifacts.inputs(given, paired.method, graph)
    if given is not None and 1 < len(candidates) != len(paired.executions):
        raise UsageError(f"inputs holds {len(candidates)} tuples, the ETDump holds {len(paired.executions)} executions")
    return candidates


def _failed_metrics(runs: Sequence[Run]) -> list[str]:
    """Which metrics that users registered failed, and how often."""
    failed = Counter(text for item in runs for gap in item.comparison.gaps for text in gap.failed_metrics)
    return [f"{text[0].upper()}{text[1:]} ({count} of the values)." for text, count in failed.items()]


class _Judge:
    """Takes back, of one execution after the other, what can't be said without knowing its inputs and its state."""

    def __init__(self, paired: Paired, graph: Graph) -> None:
        self._graph = graph
        self._shared = paired.shared_state()
        self._foreign = min(paired.foreign_executions, default=len(paired.artifacts.dump.blocks))
        self._stale = ""

    def forget(self, at: int, inputs: Inputs, comparison: Comparison, note: str, *, wrong: bool, guessed: bool) -> str:
        """Take it back, and say why.

        `at` is the position in the ETDump; `note` what is said already. The inputs are `wrong`, or `guessed`: then what
        was logged has to prove them.
        """
        reason = _INPUTS_UNKNOWN if wrong else ""
        if guessed and not wrong and not proved(self._graph, inputs, comparison):
            reason, note = _INPUTS_UNKNOWN, _NOT_PROVED
        if self._shared and at > self._foreign and not self._stale:
            self._stale = (
                f"the state {', '.join(self._shared)} is shared with another method, whose executions change it"
            )
        stale = self._stale
        if reason or stale:
            text = reason or f"{stale}: only introduced gaps"
            forget_totals(self._graph, comparison, text, state=bool(stale))
        if stale and not reason:
            note = f"{stale[0].upper()}{stale[1:]}, so its total gaps are not known from then on."
        if reason and self._graph.mutations:
            self._stale = stale or "what earlier executions left is not known, as their inputs are not"
        return note


class _Stage:
    """Compares one execution after the other on one evaluator: what one leaves in the state, the next one finds."""

    def __init__(
        self,
        paired: Paired,
        evaluator: Evaluator,
        candidates: Sequence[Sequence[Any]],
        introduced: bool,
        custom: CustomMetrics,
        *,
        named: bool,
    ) -> None:
        self.evaluator, self._named = evaluator, named
        self._candidates, self._introduced, self._custom = candidates, introduced, custom
        self._pairing = paired.pairing
        self._groups = _groups(paired, self.evaluator)

    def compare(self, log: RuntimeLog, run: int, budget: int, expected: int) -> tuple[Inputs, Comparison, bool]:
        """Compare on the expected candidate, or on what was logged; and say whether these inputs are to be doubted."""
        evaluator, groups = self.evaluator, self._groups
        logged = None if groups is None else logged_inputs_of(groups, log)
        inputs = choose_inputs(evaluator.graph, log, self._candidates, expected, logged)
        if self._named and inputs.index >= 0 and (reason := why_not(inputs.values, evaluator.graph.user_inputs())):
            raise UsageError(f"{reason}: these inputs belong to another model")
        if groups is None:
            compare = partial(
                compare_exact, evaluator, log, inputs.values, run=run, budget=budget, pairing=self._pairing
            )
        else:
            compare = partial(compare_by_handles, evaluator, log, inputs.values, groups, run=run, budget=budget)
        compare = partial(compare, custom=self._custom)
        before = evaluator.states
        comparison = compare(introduced=self._introduced)
        if not self._introduced and starts_far_off(evaluator.graph, comparison):  # introduced gaps tell why
            evaluator.states = before
            comparison = compare()
        known = inputs.known and inputs.index >= 0
        return inputs, comparison, known and doubtful(evaluator.graph, comparison)


def _groups(paired: Paired, evaluator: Evaluator) -> HandleGroups | None:
    """What debug handles tell, None where the graph of the reference has the instructions."""
    etrecord = paired.artifacts.etrecord
    if paired.pairing != HANDLES:
        return None
    handles = etrecord.debug_handles(paired.method) if etrecord else {}
    logged = next((logged_tensors(block) for _, block in paired.executions), {})
    return HandleGroups(evaluator.graph, paired.graph, handles, logged)
