"""Attributes an output's error to instructions.

With Δy the error of the output and d the difference that an instruction introduced, its share is ⟨∂⟨y, Δy⟩/∂(its
output), d⟩ / ‖Δy‖². The shares add up to 1 if the program is linear within the error; their sum is the check. The
derivative by a buffer begins a backward pass in the execution that left it. An instruction without a derivative is
patched: its difference is put into the reference, which runs again; so are all if the sum is not 1.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch

from etviz.artifacts.buffers import give_back
from etviz.artifacts.files import collection_paused
from etviz.errors import PairingError, UsageError
from etviz.evaluation.evaluator import Evaluator
from etviz.evaluation.interludes import Turn
from etviz.evaluation.interpreter import State
from etviz.evaluation.replay import Execution, Replay, question
from etviz.evaluation.threads import threads_for
from etviz.evaluation.unpacked import has_unpacked, largest_value
from etviz.explain.attribution.float64 import After, ExpansionPoint, Float64, backward
from etviz.explain.attribution.linearize import Contribution, Linearization, Linearizer, NodeValues
from etviz.explain.attribution.wide_constants import widen
from etviz.graph.ir import Graph, Node
from etviz.text import SMALLEST_SHARE, percent

GRADIENT, STRAIGHT_THROUGH, PATCH, UNKNOWN = "gradient", "straight-through", "patch", "unknown"
PATCHES: Final = 8
"""Maximum number of instructions without a gradient that are patched, the largest differences first."""
PASSES: Final = 24
"""Maximum number of runs of the reference (plus one) if derivatives do not explain the error."""
TOLERANCE: Final = 0.05
"""Threshold of the sum's distance from 1 for doubting the shares."""
_NAMED: Final = 3
_ELEMENTS: Final = 1 << 22
"""Maximum number of elements in one operator's value, for all evaluations that run together."""
Progress = Callable[[int, int], None]
Loss = Callable[[list[Any]], Any]
NAN: Final = float("nan")


@dataclass(frozen=True, slots=True)
class Share:
    """NaN if unknown."""

    value: float
    method: str
    reason: str = ""


@dataclass(slots=True)
class Attribution:
    """Shares of all logged values by ``(instruction, output)``.

    `output` is None for a loss (`about`); `error` is ‖Δy‖, or the difference of the loss; `carried` the share of
    mutable buffers and inputs from earlier calls, `earlier` their instructions' shares by ``(run, instruction,
    output)``, `arrived` the shares of inputs that other methods gave.
    """

    shares: dict[tuple[int, int], Share]
    output: int | None
    error: float
    carried: float = 0.0
    earlier: dict[tuple[int, int, int], Share] = field(default_factory=dict)
    arrived: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    about: str = ""

    @property
    def sum(self) -> float:
        return self.carried + sum(share.value for share in self.shares.values() if share.value == share.value)


@question
def attribute(
    replay: Replay, run: int, output: int = 0, loss: Loss | None = None, progress: Progress | None = None
) -> Attribution:
    """Attribute the error of one final output, or of a loss.

    `loss` maps the list of final outputs (floating ones in float64) to a scalar tensor. `progress` may raise to stop. A
    `UsageError` if the output does not exist, or the loss is no differentiable scalar.
    """
    evaluator = replay.fresh()
    with threads_for(evaluator.graph), collection_paused():
        return _attribute(replay, evaluator, run, output, loss, progress)


def _attribute(
    replay: Replay, evaluator: Evaluator, run: int, output: int, loss: Loss | None, progress: Progress | None
) -> Attribution:
    evaluator.limits.begin(replay.executions[run].inputs)
    float64 = Float64(evaluator.constants, evaluator.limits, evaluator.graph)
    stateful = evaluator.keeps_state
    first = 0 if stateful else run
    steps = _Steps(progress, sum(1 for _ in evaluator.graph.walk()) * (run - first + 1) + 1)
    linearizer = Linearizer(evaluator.graph, float64, steps, evaluator.turns)
    states: list[tuple[State, State]] = []
    for index in range(first, run):
        execution = replay.executions[index]
        states.append(linearizer.states)
        linearizer.run(execution.inputs, execution.logged, gradients=False)
    states.append(linearizer.states)
    linearization, target = _linearized(replay.executions[run], linearizer, output, loss, steps)
    result = Attribution({}, output if loss is None else None, target.error)
    if target.error == 0.0:
        result.shares = {
            contribution.key: Share(0.0, GRADIENT)
            for contribution in linearization.contributions
            if contribution.instruction >= 0
        }
        result.notes.append("There is no error to attribute: runtime and reference are the same.")
        steps.catch_up()
        return result
    if _needs_each_difference(linearization, target):
        linearizer.states, linearizer.each_difference = states[-1], True
        linearization, target = _linearized(replay.executions[run], linearizer, output, loss, steps)
    steps.catch_up()
    before, given = linearizer.begun

    def patch(items: Sequence[Contribution]) -> float:
        return target.effect(patched(float64, evaluator.graph, given, before, items))

    _collect(result, linearization, target, patch, steps)
    if abs(result.sum - 1.0) > TOLERANCE:
        patches = Patches(float64, evaluator.graph, given, before, steps.stay)
        _refine(result, linearization, target, patches, steps)
    others = [call for turn in linearizer.turns.values() for call in turn.before]
    given_by_others = {key for call in others for key in call.exchange.gives.values()}
    influences = {key: item.influence or 0.0 for key, item in linearization.found.items() if key in given_by_others}
    result.arrived = {key: share for key, share in influences.items() if share}
    if result.carried:
        _follow(result, replay, linearizer, linearization, states, run, steps)
    _explain(result, linearization, target)
    return result


def _linearized(
    execution: Execution, linearizer: Linearizer, output: int, loss: Loss | None, steps: _Steps
) -> tuple[Linearization, ErrorTarget]:
    linearization = linearizer.run(execution.inputs, execution.logged)
    if not 0 <= output < len(linearization.outputs):
        raise UsageError(f"output must be from 0 to {len(linearization.outputs) - 1}, found {output}")
    target = ErrorTarget(linearization.outputs, execution.log.outputs(), output, loss)
    pairs = zip(target.middles, target.seeds, strict=True)
    roots = [(y, seed) for y, seed in pairs if seed is not None and getattr(y, "requires_grad", False)]
    steps.total += len(linearization.contributions)
    if roots:
        backward(roots)
        give_back()
    return linearization, target


def _needs_each_difference(linearization: Linearization, target: ErrorTarget) -> bool:
    """Whether differences are put into the reference, or a whole one has no influence."""
    influences = [c.influence or 0.0 for c in linearization.contributions if c.instruction < 0 or c.bit & target.reach]
    reaching = [contribution for contribution in linearization.whole if contribution.bit & target.reach]
    lacking = any(c.influence is None or c.excluded or not math.isfinite(c.influence) for c in reaching)
    return bool(linearization.whole) and (lacking or abs(sum(influences) - 1.0) > TOLERANCE)


def _follow(
    result: Attribution,
    replay: Replay,
    linearizer: Linearizer,
    linearization: Linearization,
    states: list[tuple[State, State]],
    run: int,
    steps: _Steps,
) -> None:
    steps.total += run * sum(1 for _ in linearizer.graph.walk())
    for index in range(run - 1, -1, -1):
        wanted = {target: item.gradient for target, item in linearization.found.items() if item.gradient is not None}
        if not wanted or linearizer.turns.get(index + 1, Turn()).before:
            break  # what another method left in between is not followed further
        execution, linearizer.states = replay.executions[index], states[index]
        linearization = linearizer.run(execution.inputs, execution.logged)
        ends = [(linearization.left[target], seed) for target, seed in wanted.items() if target in linearization.left]
        roots = [(lanes.middle, seed) for lanes, seed in ends if getattr(lanes.middle, "requires_grad", False)]
        if roots:
            backward(roots)
            give_back()
        reach = rounded = 0
        for lanes, _ in ends:
            reach, rounded = reach | lanes.reach, rounded | lanes.rounded
        contributions = [(item, _earlier_share(item, reach, rounded)) for item in linearization.contributions]
        shares = _by_output(
            [(item, share) for item, share in contributions if item.instruction >= 0 and share is not None]
        )
        result.earlier |= {(index, *key): share for key, share in shares.items()}
    steps.catch_up()


def _earlier_share(contribution: Contribution, reach: int, rounded: int) -> Share | None:
    if not contribution.bit & reach or not (contribution.size or contribution.problem):
        return None
    if contribution.influence is None or math.isnan(contribution.influence):
        return Share(NAN, UNKNOWN, contribution.problem or "no gradient, and it belongs to an earlier execution")
    return Share(
        contribution.influence, STRAIGHT_THROUGH if contribution.bit & rounded else GRADIENT, _left_out(contribution)
    )


class _Steps:
    def __init__(self, progress: Progress | None, total: int) -> None:
        self.progress, self.done, self.total = progress, 0, total

    def __call__(self) -> None:
        self.done += 1
        self.total = max(self.total, self.done)
        if self.progress is not None:
            self.progress(self.done, self.total)

    def stay(self) -> None:
        if self.progress is not None:
            self.progress(self.done, self.total)

    def catch_up(self) -> None:
        self.done = max(self.done, self.total - 1)
        self()


def _collect(
    result: Attribution,
    linearization: Linearization,
    target: ErrorTarget,
    patch: Callable[[Sequence[Contribution]], float],
    step: Callable[[], None],
) -> None:
    blocked: list[Contribution] = []
    pairs: list[tuple[Contribution, Share]] = []
    for contribution in linearization.contributions:
        if contribution.instruction < 0:
            result.carried += contribution.influence or 0.0
        elif contribution.problem:
            pairs.append((contribution, Share(NAN, UNKNOWN, contribution.problem)))
        elif not contribution.size:
            pairs.append((contribution, Share(0.0, GRADIENT, _left_out(contribution))))
        elif not contribution.bit & target.reach:
            pairs.append((contribution, Share(0.0, GRADIENT, "its error does not reach the output")))
        elif contribution.influence is not None:
            method = STRAIGHT_THROUGH if contribution.bit & target.rounded else GRADIENT
            pairs.append((contribution, Share(contribution.influence, method, _left_out(contribution))))
        else:
            blocked.append(contribution)
    blocked.sort(key=_by_size)
    for at, contribution in enumerate(blocked):
        if at < PATCHES:
            share = _patched_share(patch, contribution, "no gradient: its difference was put into the reference")
            step()
        else:
            share = Share(NAN, UNKNOWN, f"no gradient, and not among the {PATCHES} largest differences")
        pairs.append((contribution, share))
    result.shares |= _by_output(pairs)


def _by_output(pairs: Sequence[tuple[Contribution, Share]]) -> dict[tuple[int, int], Share]:
    parts: dict[tuple[int, int], list[Share]] = {}
    for contribution, share in pairs:
        parts.setdefault(contribution.key, []).append(share)
    return {key: _sum(shares) for key, shares in parts.items()}


def _sum(shares: Sequence[Share]) -> Share:
    if len(shares) == 1:
        return shares[0]
    methods = {share.method for share in shares if share.value}
    method = next((name for name in (UNKNOWN, PATCH, STRAIGHT_THROUGH) if name in methods), GRADIENT)
    reasons = dict.fromkeys(share.reason for share in shares if share.reason and share.method == method)
    return Share(sum(share.value for share in shares), method, "; ".join(reasons))


def _refine(
    result: Attribution, linearization: Linearization, target: ErrorTarget, patches: Patches, step: Callable[[], None]
) -> None:
    """If derivatives do not explain the error, put differences into the reference one by one; their steps add up."""
    estimate = result.sum
    known = (item for item in linearization.contributions if item.instruction >= 0 and not item.problem)
    parts = _parts([contribution for contribution in known if contribution.size and contribution.bit & target.reach])
    before, explained = dict(result.shares), 0.0
    pairs: list[tuple[Contribution, Share]] = []
    for part, outputs in zip(parts, patches.add(parts), strict=True):
        step()
        if outputs is None:  # the reference took another way: the part keeps what is known of it
            continue
        now = target.effect(outputs)
        pairs += zip(part, _shared_out(part, now - explained), strict=True)
        explained = now
    result.shares |= _by_output(pairs)
    if abs(result.sum - 1.0) >= abs(estimate - 1.0):
        result.shares = before
        return
    result.notes.append(
        f"Derivatives explain {100 * estimate:.3g} % of the error; so the differences were put into the reference, one "
        "after the other in program order, and each share is what its own adds to those before."
    )


def _patched_share(patch: Callable[[Sequence[Contribution]], float], contribution: Contribution, reason: str) -> Share:
    try:
        return Share(patch([contribution]), PATCH, reason)
    except PairingError as error:
        return Share(NAN, UNKNOWN, f"no gradient, and its difference can't be put into the reference: {error}")


def _parts(items: list[Contribution]) -> list[list[Contribution]]:
    alone = {id(item) for item in (items if len(items) <= PASSES else sorted(items, key=_by_size)[: PASSES // 2])}
    parts: list[list[Contribution]] = []
    for contribution in items:
        if parts and id(contribution) not in alone and id(parts[-1][-1]) not in alone:
            parts[-1].append(contribution)
        else:
            parts.append([contribution])
    return parts


def _shared_out(part: list[Contribution], value: float) -> list[Share]:
    reason = "its difference was put into the reference: derivatives do not explain the error"
    if len(part) == 1:
        return [Share(value, PATCH, reason)]
    sizes = [abs(contribution.influence or 0.0) for contribution in part]
    total = sum(sizes)
    portions = [size / total for size in sizes] if total else [1.0 / len(part)] * len(part)
    reason += f"; with {len(part) - 1} others at a time, and shared out by their derivatives"
    return [Share(value * portion, PATCH, reason) for portion in portions]


def _by_size(contribution: Contribution) -> float:
    return -contribution.size


def _left_out(contribution: Contribution) -> str:
    return f"{contribution.excluded} non-finite elements left out" if contribution.excluded else ""


def _explain(result: Attribution, linearization: Linearization, target: ErrorTarget) -> None:
    methods = [share.method for share in result.shares.values()]
    if target.excluded:
        result.notes.append(f"{target.excluded} elements of the output are NaN or Inf and were skipped.")
    if linearization.missing:
        count = len(linearization.missing)
        result.notes.append(f"{count} instructions were not compared: their errors count for the next instructions.")
    result.notes += _carried(result)
    if STRAIGHT_THROUGH in methods:
        result.notes.append("Derivatives through rounding are estimates (straight-through).")
    if abs(result.sum - 1.0) > TOLERANCE:
        result.notes.append(
            f"The shares add up to {100 * result.sum:.3g} %: {abs(100 * (1.0 - result.sum)):.3g} % of the error "
            f"{'is not explained' if result.sum < 1.0 else 'too much is claimed'}, since the program is not linear "
            "within this error, or part of it has no known cause. Take the shares as an order, not as amounts."
        )


def _carried(result: Attribution) -> Iterator[str]:
    by_run: dict[int, float] = {}
    for (run, _, _), share in result.earlier.items():
        by_run[run] = by_run.get(run, 0.0) + (0.0 if math.isnan(share.value) else share.value)
    text = f"{percent(result.carried)} were carried over from earlier calls"
    by_name = {f"run {run}": share for run, share in by_run.items()} | result.arrived
    by_name = {name: share for name, share in by_name.items() if abs(share) >= SMALLEST_SHARE}
    if not by_name and abs(result.carried) < SMALLEST_SHARE:
        return
    largest = sorted(by_name, key=lambda name: -abs(by_name[name]))[:_NAMED]
    if largest:
        text += ": " + ", ".join(f"{percent(by_name[name])} by {name}" for name in largest)
    rest = result.carried - sum(by_run.values()) - sum(result.arrived.values())
    if abs(rest) > TOLERANCE:
        text += f"; no instruction is known for {percent(rest)}"
    yield text + "."


def patched(
    float64: Float64, graph: Graph, inputs: Sequence[Any], state: State, items: Sequence[Contribution]
) -> list[Any]:
    with torch.no_grad():
        start = float64.begin(graph, [widen(value) for value in inputs], state)
        return float64.finish(graph, [(start, _putting_in(items))])[0]


def _putting_in(items: Sequence[Contribution]) -> After:
    differences: dict[tuple[int, int], dict[int, Contribution]] = {}
    for contribution in items:
        differences.setdefault((contribution.instruction, contribution.turn), {})[contribution.output] = contribution
    turns: Counter[int] = Counter()

    def after(node: Node, value: Any) -> Any:
        if node.instruction < 0:
            return value
        by_output = differences.get((node.instruction, turns[node.instruction]))
        turns[node.instruction] += 1
        if by_output is None:
            return value
        if isinstance(value, (list, tuple)):
            return [by_output[at].inject(part) if at in by_output else part for at, part in enumerate(value)]
        return by_output[0].inject(value) if 0 in by_output else value

    return after


class Patches:
    def __init__(
        self,
        float64: Float64,
        graph: Graph,
        inputs: Sequence[Any],
        state: State,
        tell: Callable[[], None] = lambda: None,
    ) -> None:
        self._float64, self._graph, self._tell = float64, graph, tell
        self._point = float64.begin(graph, [widen(value) for value in inputs], state)
        self._there: list[Contribution] = []
        self._places: dict[int, int] = {}
        for at, node in enumerate(graph.nodes):
            self._places.setdefault(node.instruction, at)
            for branch in graph.branches(node):
                self._places |= {inner.instruction: at for inner in branch.walk()}

    def add(self, parts: Sequence[Sequence[Contribution]]) -> Iterator[list[Any] | None]:
        together = _together(self._graph)
        for first in range(0, len(parts), together):
            group, following = parts[first : first + together], parts[first + together :][:1]
            try:
                yield from self._add([*group, *following], len(group))
            except PairingError:
                for at, part in enumerate(group):
                    try:
                        yield from self._add([part, *group[at + 1 :], *following], 1)
                    except PairingError:
                        yield None

    def _add(self, parts: Sequence[Sequence[Contribution]], number: int) -> list[list[Any]]:
        point, there = self._point, self._there
        starts: list[tuple[ExpansionPoint, After]] = []
        with torch.no_grad():
            for at, part in enumerate(parts[:number]):
                there = [*there, *part]
                after = _putting_in(there)
                following = (self._places[contribution.instruction] for contribution in (parts[at + 1 :] or [[]])[0])
                point = self._float64.advance(self._graph, point, min(following, default=len(self._graph.nodes)), after)
                starts.append((point, after))
            outputs = self._float64.finish(self._graph, starts, self._tell)
        give_back()
        self._point, self._there = point, there
        return outputs


def _together(graph: Graph) -> int:
    largest = largest_value(graph) if has_unpacked(graph) else None
    return max(1, min(PASSES, _ELEMENTS // max(1, largest))) if largest is not None else 1


class ErrorTarget:
    """The attributed quantity: `seeds` are its derivatives by the outputs, `error` its size."""

    def __init__(self, outputs: Sequence[NodeValues], logged: Sequence[Any], output: int, loss: Loss | None) -> None:
        self.references = [lanes.reference for lanes in outputs]
        self.middles = [lanes.middle for lanes in outputs]
        self.reach = self.rounded = 0
        for lanes in outputs if loss is not None else outputs[output : output + 1]:
            self.reach |= lanes.reach
            self.rounded |= lanes.rounded
        runtimes = [lanes.runtime for lanes in outputs]
        if len(logged) == len(outputs):
            runtimes = [_fitting(a, b, c) for a, b, c in zip(logged, self.references, runtimes, strict=True)]
        self.output, self.loss = output, loss
        self.excluded = 0
        self.seeds: list[torch.Tensor | None] = [None] * len(outputs)
        if loss is None:
            self.error = self._output_error(runtimes[output])
        else:
            self.error = self._loss_error(loss, runtimes)

    def _output_error(self, runtime: Any) -> float:
        reference = self.references[self.output]
        if not isinstance(reference, torch.Tensor) or not isinstance(runtime, torch.Tensor):
            raise UsageError(f"output {self.output} is not a tensor, so there is no error to attribute")
        if runtime.shape != reference.shape:
            raise UsageError(f"output {self.output} has another shape at runtime, so there is no error to attribute")
        self.delta = runtime.double() - reference.double()
        finite = torch.isfinite(self.delta)
        self.excluded = int((~finite).sum())
        self.delta = torch.where(finite, self.delta, 0.0)
        largest = float(self.delta.abs().max()) if self.delta.numel() else 0.0
        if largest == 0.0:
            return 0.0
        scaled = self.delta / largest
        self.norm = float((scaled * scaled).sum())
        self.seeds[self.output] = scaled / self.norm / largest
        return largest * self.norm**0.5

    def _loss_error(self, loss: Loss, runtimes: Sequence[Any]) -> float:
        self.base = _scalar(loss(list(self.references)))
        error = float(_scalar(loss(list(runtimes))) - self.base)
        with torch.enable_grad():
            points = [_halfway(a, b) for a, b in zip(self.references, runtimes, strict=True)]
            value = _scalar(loss(list(points)))
            leaves = [p for p in points if isinstance(p, torch.Tensor) and p.requires_grad]
            if not value.requires_grad:
                raise UsageError("loss must be differentiable by an output, found a value without a gradient")
            gradients = iter(torch.autograd.grad(value, leaves, materialize_grads=True))
        if not error:
            return 0.0
        for index, point in enumerate(points):
            if isinstance(point, torch.Tensor) and point.requires_grad:
                self.seeds[index] = next(gradients) / error
        return error

    def effect(self, outputs: Sequence[Any]) -> float:
        if self.loss is not None:
            return float(_scalar(self.loss(list(outputs))) - self.base) / self.error
        moved = outputs[self.output].double() - self.references[self.output].double()
        largest = float(self.delta.abs().max())
        return float((moved.nan_to_num(0.0, 0.0, 0.0) * (self.delta / largest)).sum()) / self.norm / largest


def _fitting(logged: Any, reference: Any, otherwise: Any) -> Any:
    if not isinstance(logged, torch.Tensor) or not isinstance(reference, torch.Tensor):
        return otherwise
    return logged.to(reference.dtype) if logged.shape == reference.shape else otherwise


def _halfway(reference: Any, runtime: Any) -> Any:
    if not isinstance(reference, torch.Tensor) or not reference.is_floating_point():
        return reference
    shift = torch.nan_to_num(runtime - reference, 0.0, 0.0, 0.0) / 2 if runtime.shape == reference.shape else 0.0
    return (reference + shift).detach().requires_grad_()


def _scalar(value: Any) -> torch.Tensor:
    if not isinstance(value, torch.Tensor) or value.numel() != 1 or not value.is_floating_point():
        kind = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__
        raise UsageError(f"loss must return a floating scalar tensor, found {kind}")
    return value.reshape(())
