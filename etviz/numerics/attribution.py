"""Which share of an output's error each instruction caused.

With Δy the error of the output and d the difference that an instruction introduced, the instruction's share is
⟨∂⟨y, Δy⟩/∂(its output), d⟩ / ‖Δy‖². One backward pass gives the derivatives of all instructions. The shares add up to
1 as far as the program is linear within the error; their sum is the check. What has no derivative is patched: the
difference is put into the reference, which runs once more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from etviz.artifacts.ir import Node
from etviz.errors import UsageError
from etviz.numerics.comparison import logged_outputs
from etviz.numerics.contribution import Contribution
from etviz.numerics.error_target import ErrorTarget, Loss
from etviz.numerics.exact import Exact, State
from etviz.numerics.linearize import Linearization, Linearizer
from etviz.numerics.reference import Evaluator
from etviz.numerics.replay import Replay
from etviz.numerics.threads import threads_for
from etviz.numerics.widened import widen

GRADIENT, STRAIGHT_THROUGH, PATCH, UNKNOWN = "gradient", "straight-through", "patch", "unknown"
PATCHES: Final = 8
"""Instructions without a gradient that are patched, those with the largest differences first."""
TOLERANCE: Final = 0.1
"""How far the sum may be from 1 before the shares are doubted."""
Progress = Callable[[int, int], None]
NAN: Final = float("nan")


@dataclass(frozen=True, slots=True)
class Share:
    """The share of one output of an instruction, NaN if it is not known; `method` and `reason` say how it is known."""

    value: float
    method: str
    reason: str = ""


@dataclass(slots=True)
class Attribution:
    """Shares by ``(instruction, output)``, and what is to be said about them.

    Attributes
    ----------
    shares
        Of every logged value.
    output
        Index of the final output, None for a loss.
    error
        ‖Δy‖, or the difference of the loss.
    carried
        Share of what earlier executions left in mutable buffers.
    notes
        For people.
    """

    shares: dict[tuple[int, int], Share]
    output: int | None
    error: float
    carried: float = 0.0
    notes: list[str] = field(default_factory=list)

    @property
    def sum(self) -> float:
        """All known shares together: 1 if the linearization holds and nothing is missing."""
        return self.carried + sum(share.value for share in self.shares.values() if share.value == share.value)


def attribute(
    replay: Replay, run: int, output: int = 0, loss: Loss | None = None, progress: Progress | None = None
) -> Attribution:
    """Attribute the error of one final output, or of a loss, to the instructions.

    Parameters
    ----------
    replay
        What ran, on what.
    run
        Number of the execution.
    output
        Index of the final output.
    loss
        Function of the list of final outputs (float64 where they are floating) that gives a scalar tensor; its
        difference is attributed instead of an output's.
    progress
        Called with the steps done and their number; it may raise to stop.

    Raises
    ------
    UsageError
        If there is no such output, or the loss is no differentiable scalar.
    PairingError
        If the reference can't be evaluated.
    """
    evaluator = replay.fresh()
    with threads_for(evaluator.graph):
        return _attribute(replay, evaluator, run, output, loss, progress)


def _attribute(
    replay: Replay, evaluator: Evaluator, run: int, output: int, loss: Loss | None, progress: Progress | None
) -> Attribution:
    import torch

    exact = Exact(evaluator.constants)
    stateful = _stateful(evaluator.graph)
    first = 0 if stateful else run
    steps = _Steps(progress, sum(1 for _ in evaluator.graph.walk()) * (run - first + 1) + 1)
    linearizer = Linearizer(evaluator.graph, exact, steps)
    before: State = {}
    found = Linearization()
    for index in range(first, run + 1):
        execution = replay.executions[index]
        before = dict(linearizer.reference_state)

        def logged(node: Node, log: Any = execution.log) -> list[Any] | None:
            return logged_outputs(log, node)

        found = linearizer.run(execution.inputs, logged, gradients=index == run)
    if not 0 <= output < len(found.outputs):
        raise UsageError(f"output must be from 0 to {len(found.outputs) - 1}, found {output}")
    target = ErrorTarget(found.outputs, replay.executions[run].log.outputs(), output, loss)
    result = Attribution({}, output if loss is None else None, target.error)
    if target.error == 0.0:
        result.shares = {key: Share(0.0, GRADIENT) for key in found.contributions if key[0] >= 0}
        result.notes.append("There is no error to attribute: runtime and reference are the same.")
        steps.catch_up()
        return result
    pairs = zip(target.middles, target.seeds, strict=True)
    roots = [(y, seed) for y, seed in pairs if seed is not None and getattr(y, "requires_grad", False)]
    steps.total += len(found.contributions)
    if roots:
        torch.autograd.backward([y for y, _ in roots], [seed for _, seed in roots])
    steps.catch_up()

    def patch(contribution: Contribution) -> float:
        return target.effect(_patched(exact, linearizer, replay.executions[run].inputs, before, contribution))

    _collect(result, found, target, patch, steps)
    _refine(result, found, patch, steps)
    _explain(result, found, target)
    return result


class _Steps:
    """Counts steps for `progress`."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self.progress, self.done, self.total = progress, 0, total

    def __call__(self) -> None:
        self.done += 1
        self.total = max(self.total, self.done)
        if self.progress is not None:
            self.progress(self.done, self.total)

    def catch_up(self) -> None:
        """Count what turned out not to be needed as done."""
        self.done = max(self.done, self.total - 1)
        self()


def _collect(
    result: Attribution,
    found: Linearization,
    target: ErrorTarget,
    patch: Callable[[Contribution], float],
    step: Callable[[], None],
) -> None:
    """Turn influences into shares, and patch what has none."""
    blocked: list[Contribution] = []
    for key, item in found.contributions.items():
        if key[0] < 0:
            result.carried += item.influence or 0.0
        elif item.problem:
            result.shares[key] = Share(NAN, UNKNOWN, item.problem)
        elif not item.size:
            result.shares[key] = Share(0.0, GRADIENT, _left_out(item))
        elif not item.bit & target.reach:
            result.shares[key] = Share(0.0, GRADIENT, "its error does not reach the output")
        elif item.influence is not None:
            method = STRAIGHT_THROUGH if item.bit & target.rounded else GRADIENT
            result.shares[key] = Share(item.influence, method, _left_out(item))
        else:
            blocked.append(item)
    blocked.sort(key=_by_size)
    for at, item in enumerate(blocked):
        key = (item.instruction, item.output)
        if at < PATCHES:
            result.shares[key] = Share(patch(item), PATCH, "no gradient: its difference was put into the reference")
            step()
        else:
            result.shares[key] = Share(NAN, UNKNOWN, f"no gradient, and not among the {PATCHES} largest differences")


def _refine(
    result: Attribution, found: Linearization, patch: Callable[[Contribution], float], step: Callable[[], None]
) -> None:
    """Where derivatives do not explain the error, patch the largest differences; kept if that explains it better."""
    estimate = result.sum
    if abs(estimate - 1.0) <= TOLERANCE:
        return
    items = [item for item in found.contributions.values() if item.influence is not None and item.size]
    patched: dict[tuple[int, int], Share] = {}
    for item in sorted((item for item in items if item.instruction >= 0), key=_by_size)[:PATCHES]:
        reason = "its difference was put into the reference: derivatives do not explain the error"
        patched[item.instruction, item.output] = Share(patch(item), PATCH, reason)
        step()
    before = dict(result.shares)
    result.shares |= patched
    if abs(result.sum - 1.0) >= abs(estimate - 1.0):
        result.shares = before
        return
    result.notes.append(
        f"Derivatives explain {100 * estimate:.3g} % of the error; so the {len(patched)} largest differences were put "
        "into the reference, one at a time."
    )


def _by_size(item: Contribution) -> float:
    return -item.size


def _left_out(item: Contribution) -> str:
    return f"{item.excluded} non-finite elements left out" if item.excluded else ""


def _explain(result: Attribution, found: Linearization, target: ErrorTarget) -> None:
    methods = [share.method for share in result.shares.values()]
    if target.excluded:
        result.notes.append(f"{target.excluded} elements of the output are NaN or Inf and were left out.")
    if found.missing:
        result.notes.append(f"{found.missing} instructions logged nothing: their errors count for those that follow.")
    if result.carried:
        result.notes.append(f"{100 * result.carried:.3g} % were carried over from earlier executions in buffers.")
    if STRAIGHT_THROUGH in methods:
        result.notes.append("Derivatives through rounding are estimates (straight-through).")
    if abs(result.sum - 1.0) > TOLERANCE:
        result.notes.append(
            f"The shares add up to {100 * result.sum:.3g} %: the program is not linear within this error, or part of "
            "the error has no known cause. Take them as an order, not as amounts."
        )


def _patched(
    exact: Exact, linearizer: Linearizer, inputs: Sequence[Any], state: Mapping[str, Any], item: Contribution
) -> list[Any]:
    """The outputs of the reference with one difference in it."""
    import torch

    def after(node: Node, value: Any) -> Any:
        if node.instruction != item.instruction:
            return value
        if isinstance(value, (list, tuple)):
            return [item.inject(part) if at == item.output else part for at, part in enumerate(value)]
        return item.inject(value)

    with torch.no_grad():
        return exact.run(linearizer.graph, [widen(x) for x in inputs], dict(state), after)


def _stateful(graph: Any) -> bool:
    return bool(graph.mutations) or any(_stateful(inner) for inner in graph.subgraphs.values())
