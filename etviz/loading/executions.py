"""Every execution of a method against its reference, on the inputs that it had."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final

from tqdm.auto import tqdm

from etviz.analysis.findings import Compared
from etviz.artifacts.etdump.runtime_log import RuntimeLog
from etviz.artifacts.record.weights import CachedTensors
from etviz.comparison.by_handles import compare_by_handles
from etviz.comparison.exact import compare_together
from etviz.comparison.gap import ExecutionGaps, Keeper, Run
from etviz.comparison.in_lanes import InLanes, same
from etviz.comparison.input_checks import FIRST_FAR_OFF, OTHER_SIZES, Entrance, Inputs, forget, why_not
from etviz.comparison.judging import judge_totals
from etviz.comparison.logged_twice import LoggedTwice
from etviz.comparison.references import KEPT_BYTES
from etviz.comparison.truncated_buffer import blank_tail, drop_blank_tail
from etviz.comparison.undetermined import Undetermined
from etviz.errors import PairingError, UsageError
from etviz.evaluation.replay import Execution, Replay
from etviz.graph.state_threading import seen_later
from etviz.loading.kept_noise import KeptNoise
from etviz.loading.method_calls import named_calls, off_inputs, with_calls
from etviz.loading.paired import HANDLES
from etviz.pairing.handles import HandleGroups, logged_inputs_of, logged_tensors

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Sequence

    from etviz.artifacts.etdump.etdump import RunBlock
    from etviz.comparison.judging import Judge
    from etviz.evaluation.evaluator import Evaluator
    from etviz.evaluation.interpreter import State
    from etviz.graph.ir import Graph
    from etviz.loading.paired import Paired
    from etviz.tensors.custom_metrics import CustomMetrics

NO_INPUTS: Final = (
    "The inputs of the run are not known, so there is no reference; give inputs=, "
    "or an ETRecord with representative inputs."
)
_FORGOTTEN: Final = (
    "The program does not keep what {} held at first, so the run began with zeros there, and the reference with the "
    "model's values; let upstream keep them (InitializedMutableBufferPass)."
)
_MAYBE_FORGOTTEN: Final = (
    "Without the program (pte=) it is not known whether it keeps what {} held at first: the reference began with the "
    "model's values, the run with zeros unless upstream was asked to keep them (InitializedMutableBufferPass)."
)
_OR_OTHER_INPUTS: Final = "they are at fault, or the run had other inputs than inputs=."
_INPUTS_UNKNOWN: Final = "the inputs of the run are not known: only introduced gaps"
_OVERWRITTEN: Final = (
    "the state {} is not what the method left there, most likely as another method's execution wrote over it (Python's "
    "runtime gives all methods of a program the same memory)"
)
_UNKNOWN_START: Final = "what {} held at first is not known without the program (pte=)"
_NOT_PROVED: Final = (
    "There are several executions, and nothing that was logged says that these had the inputs that are known; "
    "give the inputs of each (inputs=)."
)
_ONE_FOR_ALL: Final = (
    "inputs= has one tuple, which is taken for {} of the {} executions; if they had different inputs, give a list with "
    "a tuple for each."
)
_OTHER_INPUTS: Final = (
    "the run most likely had other inputs. If it had these, say so with inputs=; then the first operators are at fault."
)
_TOGETHER: Final = 64 << 20


def compare_executions(
    paired: Paired,
    given: Any,
    *,
    ran_here: bool,
    introduced: bool,
    custom: CustomMetrics,
    judge: Judge | None = None,
) -> Compared:
    """If the program `ran_here` a moment ago, nobody doubts the inputs `given`, nor the debug buffer.

    Without a `judge` the noise of total gaps is measured.
    """
    calls = named_calls(given)
    if calls is not None:
        paired, given = with_calls(paired, calls)
    paired = paired.with_forgotten_state()
    artifacts, executions = paired.artifacts, paired.executions
    evaluator = paired.evaluator()
    candidates = _candidates(paired, evaluator.graph, given)
    if not candidates:
        return Compared(notes=(NO_INPUTS,))
    how = {"measured": judge is None, "named": given is not None, "ran_here": ran_here}
    stage = _InTurn(paired, evaluator, candidates, introduced, custom, **how)
    begun = tuple(paired.initial_state(evaluator)) if artifacts.program is None else ()
    known_inputs = _WhoseInputs(paired, stage.entrance, begun, each=ran_here or _each_is_given(paired, given))
    notes = dict.fromkeys((*_about_state(begun, _MAYBE_FORGOTTEN), *_about_state(paired.forgotten)))
    file = artifacts.buffer if "debug_buffer" in artifacts.named and not ran_here else None
    blank = blank_tail(file, artifacts.dump.tensor_refs()) if file is not None else None
    twice, runs, replayed = LoggedTwice(evaluator.graph) if not ran_here else None, [], []
    undetermined = Undetermined(evaluator.graph, known=paired.pairing != HANDLES)
    for one, states, comparison in stage.compared():
        inputs, log = one.inputs, one.log
        others = [] if given is not None else [i for i in range(len(candidates)) if i != one.expected]
        doubt = "" if ran_here else stage.doubt(inputs, comparison)
        while doubt and others:  # an ETDump does not say which inputs went in
            stage.lanes.states = states
            inputs = stage.choose(log, others.pop(0))
            comparison = stage.compare([log], inputs, one.run)[0]
            doubt = stage.doubt(inputs, comparison)
        sure = given is not None and inputs.known
        note = doubt + (_OR_OTHER_INPUTS if sure else _OTHER_INPUTS) if doubt else inputs.note
        wrong = not inputs.known or bool(note and inputs.index >= 0 and not sure)
        guessed = given is None and log.block.bundled_input_index is None and len(executions) > 1
        note = known_inputs.forget(one.at, inputs, comparison, note, wrong=wrong, guessed=guessed)
        lost = drop_blank_tail(comparison, log, blank) if blank is not None else ""
        if twice is not None and (foreign := twice.foreign_buffer(log)):
            return Compared(notes=(foreign,))  # one buffer is all executions'
        notes |= dict.fromkeys(filter(None, (note, lost, *undetermined.forget(comparison))))
        stage.lanes.settle(comparison)
        replayed.append(Execution(inputs.values, log))
        runs.append(Run(one.at, inputs.index, comparison))
    notes = dict.fromkeys((*stage.one_for_all(runs), *off_inputs(paired, replayed), *notes, *_failed_metrics(runs)))
    stage.lanes.judge(
        judge or judge_totals, [run.comparison for run in runs], [one.inputs for one in replayed], paired.evaluator
    )
    floats = paired.float_evaluator if paired.has_float else None
    return Compared(
        tuple(runs),
        Replay(paired.evaluator, replayed, floats, paired.stages),
        tuple(notes),
        in_turn=evaluator.keeps_state,
    )


def _about_state(targets: Iterable[str], text: str = _FORGOTTEN) -> Iterator[str]:
    if names := ", ".join(target.rpartition("/")[2] for target in targets):
        yield text.format(names)


def _candidates(paired: Paired, graph: Graph, given: Any) -> list[list[Any]]:
    candidates = paired.artifacts.inputs(given, paired.method, graph)
    if given is not None and 1 < len(candidates) != len(paired.executions):
        text = f"inputs holds {len(candidates)} tuples, the ETDump holds {len(paired.executions)} executions"
        advice = f"; {paired.doubt}" if paired.alike else ": give a tuple for each, in the order of the calls"
        raise UsageError(f"{text}{advice}")
    return candidates


def _each_is_given(paired: Paired, given: Any) -> bool:
    return len(paired.executions) == (len(given) if isinstance(given, list) else 1)


def _failed_metrics(runs: Sequence[Run]) -> list[str]:
    failed = Counter(text for run in runs for gap in run.comparison.gaps for text in gap.failed_metrics)
    return [f"{text[0].upper()}{text[1:]} ({count} of the values)." for text, count in failed.items()]


class _WhoseInputs:
    def __init__(self, paired: Paired, entrance: Entrance, begun: Sequence[str], *, each: bool) -> None:
        self._entrance, self._whose = entrance, "" if each else paired.doubt
        self._state = [target.rpartition("/")[2] for target in entrance.graph.mutations]
        self._shared, self._known = paired.shared_state(), bool(paired.turns)
        self._foreign = min(paired.foreign_executions, default=len(paired.artifacts.dump.blocks))
        self._stale = ""
        self._begun = [target.rpartition("/")[2] for target in begun]

    def forget(
        self, at: int, inputs: Inputs, comparison: ExecutionGaps, note: str, *, wrong: bool, guessed: bool
    ) -> str:
        """Return the reason; `at` is the position in the ETDump, `note` the note so far.

        Guessed inputs must be proved by logged values.
        """
        if self._whose:
            forget(comparison, self._whose)
            return f"{self._whose[0].upper()}{self._whose[1:]}."
        reason = _INPUTS_UNKNOWN if wrong else ""
        if guessed and not wrong and not self._entrance.proved(inputs, comparison):
            reason, note = _INPUTS_UNKNOWN, _NOT_PROVED
        if self._begun and not self._stale and not self._entrance.keeps_state(comparison):
            self._stale = _UNKNOWN_START.format(", ".join(self._begun))
        if at > self._foreign and not self._stale:
            if self._shared and self._known:
                pass
            elif self._shared:
                self._stale = (
                    f"the state {', '.join(self._shared)} is shared with another method, whose executions change it"
                )
            elif self._state and not self._entrance.keeps_state(comparison):
                self._stale = _OVERWRITTEN.format(", ".join(self._state))
        stale = self._stale
        if reason or stale:
            text = reason or f"{stale}: only introduced gaps"
            self._entrance.forget_totals(comparison, text, state=bool(stale))
        if stale and not reason:
            note = f"{stale[0].upper()}{stale[1:]}, so its total gaps are not known from then on."
        if reason and self._state:
            self._stale = stale or "what earlier executions left is not known, as their inputs are not"
        return note


@dataclass(frozen=True, slots=True)
class _Candidate:
    run: int
    at: int
    log: RuntimeLog
    expected: int
    inputs: Inputs

    def has_inputs_of(self, other: _Candidate) -> bool:
        return same(self.inputs.values, other.inputs.values)


class _InTurn:
    """Compares executions one by one, those without a state together where their inputs are the same."""

    def __init__(
        self,
        paired: Paired,
        evaluator: Evaluator,
        candidates: Sequence[Sequence[Any]],
        introduced: bool,
        custom: CustomMetrics,
        *,
        measured: bool,
        named: bool,
        ran_here: bool,
    ) -> None:
        if len(paired.executions) > 1:
            evaluator.constants = CachedTensors(evaluator.constants)
        kept = KeptNoise(paired, evaluator.graph) if len(paired.executions) == 1 else None
        self._groups = _groups(paired, evaluator)  # they tell which operators the graph's backends have
        self.lanes, self.entrance = InLanes(evaluator, measured=measured, kept=kept), Entrance(evaluator.graph)
        self._named, self._ran_here = named, ran_here
        self._paired, self._candidates, self._introduced = paired, candidates, introduced
        self._written = seen_later(paired.graph)
        self._shared = {"custom": custom, "keeper": Keeper(KEPT_BYTES)}

    def compared(self) -> Iterator[tuple[_Candidate, tuple[State, State, State], ExecutionGaps]]:
        executions = self._paired.executions
        with tqdm(total=len(executions), desc="compare", leave=False, delay=1) as progress:
            left = [self._one(run, at, block) for run, (at, block) in enumerate(executions)]
            while left:
                states = self.lanes.states
                together = self._together(left)
                self.lanes.look_ahead(left[0].run, [one.inputs.values for one in left])
                with _in_run(left[0].run if len(executions) > 1 else None):
                    comparisons = self.compare([one.log for one in left[:together]], left[0].inputs, left[0].run)
                for one, comparison in zip(left, comparisons, strict=False):
                    yield one, states, comparison
                progress.update(len(comparisons))
                del left[: len(comparisons)]

    def _one(self, run: int, at: int, block: RunBlock) -> _Candidate:
        log = RuntimeLog(block, self._paired.artifacts.buffer, self._written)
        told = block.bundled_input_index
        expected = told if told is not None and told < len(self._candidates) else run % len(self._candidates)
        return _Candidate(run, at, log, expected, self.choose(log, expected))

    def _together(self, left: Sequence[_Candidate]) -> int:
        evaluator = self.lanes.evaluator
        peak = evaluator.limits.peak
        if not peak or not evaluator.independent:
            return 1
        most = max(1, _TOGETHER // peak)
        return sum(1 for _ in takewhile(left[0].has_inputs_of, left[:most]))

    def choose(self, log: RuntimeLog, expected: int) -> Inputs:
        if self._named and self._ran_here:
            return Inputs(list(self._candidates[expected]), expected)
        takes = self.entrance.graph.user_inputs()
        if self._named and (reason := why_not(self._candidates[expected], takes)):
            several = len(self._candidates[expected]) > len(takes)
            advice = "; several executions are a list of tuples" if several else ""
            which = f"inputs[{expected}]: " if len(self._candidates) > 1 else ""
            raise UsageError(f"{which}{reason}: the run can't have had these inputs{advice}")
        logged = None if self._groups is None else logged_inputs_of(self._groups, log)
        return self.entrance.choose(log, self._candidates, expected, logged)

    def compare(self, logs: Sequence[RuntimeLog], inputs: Inputs, run: int) -> list[ExecutionGaps]:
        before = self.lanes.states
        comparisons = self._compare(logs, inputs, run, introduced=self._introduced)
        return self._explained(comparisons, logs, [inputs] * len(logs), run, before)

    def _compare(
        self, logs: Sequence[RuntimeLog], inputs: Inputs, run: int, *, introduced: bool
    ) -> list[ExecutionGaps]:
        given = {"logs": logs, "inputs": inputs.values, "run": run, "introduced": introduced} | self._shared
        if self._groups is None:
            compare = partial(compare_together, **given, pairing=self._paired.pairing)
        else:
            compare = partial(compare_by_handles, groups=self._groups, **given)
        return self.lanes.compare(run, inputs.values, compare)

    def _explained(
        self,
        comparisons: list[ExecutionGaps],
        logs: Sequence[RuntimeLog],
        inputs: Sequence[Inputs],
        run: int,
        before: tuple[State, State, State],
    ) -> list[ExecutionGaps]:
        for at, comparison in enumerate(comparisons if not self._introduced else ()):
            if self.entrance.starts_far_off(comparison):
                self.lanes.states = before
                comparisons[at : at + 1] = self._compare([logs[at]], inputs[at], run + at, introduced=True)
        return comparisons

    def one_for_all(self, runs: Sequence[Run]) -> Iterator[str]:
        taken = sum(1 for run in runs if run.input_index >= 0 and run.comparison.reference_outputs)
        if self._named and not self._ran_here and len(self._candidates) == 1 < taken:
            yield _ONE_FOR_ALL.format("each" if taken == len(runs) else taken, len(runs))

    def doubt(self, inputs: Inputs, comparison: ExecutionGaps) -> str:
        """Why the run may have had other inputs; empty without a reason. Whoever names inputs is believed."""
        if not inputs.known or inputs.index < 0:
            return ""
        if not self._named and self.entrance.has_other_sizes(comparison):
            return OTHER_SIZES
        return FIRST_FAR_OFF if self.entrance.is_doubtful(comparison, each=self._named) else ""


@contextmanager
def _in_run(run: int | None) -> Generator[None]:
    try:
        yield
    except PairingError as error:
        if run is None or type(error) is not PairingError:
            raise
        raise PairingError(f"Run {run}: {error.problem}", error.advice) from error


def _groups(paired: Paired, evaluator: Evaluator) -> HandleGroups | None:
    etrecord = paired.artifacts.etrecord
    if paired.pairing != HANDLES:
        return None
    handles = etrecord.debug_handles(paired.method) if etrecord else {}
    logged = next((logged_tensors(block) for _, block in paired.executions), {})
    return HandleGroups(evaluator.graph, paired.graph, handles, logged)
