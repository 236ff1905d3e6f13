"""Inside one delegate: it runs again with inner values as outputs, on what the runtime gave it.

What the `.pte` holds of XNNPACK is given these outputs as it is; any other subgraph is lowered again. The reference is
the subgraph evaluated eagerly on the same inputs, so that what the delegate inherited is out of sight, and every inner
operator is compared as the instructions of a program are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from etviz.artifacts.record.weights import Aligned
from etviz.comparison.constants import differing
from etviz.comparison.exact import compare_exact
from etviz.comparison.gap import MISMATCH, Keeper
from etviz.comparison.noise import measure_total_noise
from etviz.comparison.references import KEPT_BYTES
from etviz.errors import UsageError
from etviz.evaluation.evaluator import Evaluator
from etviz.evaluation.operators import resolve
from etviz.evaluation.replay import Execution, Log, Replay, of_last_round
from etviz.graph.exposure import Exposure, expose
from etviz.graph.ir import CONTROL, OBSERVED, Graph, Node, Ref
from etviz.graph.labels import short_operator
from etviz.graph.quantize_ops import conversion
from etviz.graph.uses import Uses, item_of, operators
from etviz.pipeline.relower import AloneRun, Piece, alterations, run_alone, same_bits
from etviz.tensors.sums import sums_of

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import torch

    from etviz.comparison.constants import Difference
    from etviz.comparison.gap import Comparison
    from etviz.tensors.custom_metrics import CustomMetrics

_PLAIN: Final = ("delegate", *CONTROL, OBSERVED)
_NAMED: Final = 3
"""Operators that a note names at most."""


@dataclass(slots=True)
class Zoom:
    """The inside of one delegate call: its graph, the operators numbered in program order, compared as a program is.

    `faithful` is True if the zoomed program's outputs are the fused program's bit for bit, None where these were not
    logged; `deviation` the largest absolute difference between the two, NaN where not known; `message` says it in
    words. `logged` is True if nothing was run for it: the values are those of the run itself.
    """

    graph: Graph
    comparison: Comparison
    replay: Replay
    faithful: bool | None
    deviation: float
    message: str
    notes: tuple[str, ...] = ()
    logged: bool = False


@dataclass(slots=True)
class InnerLog:
    """What the zoomed program gave, by the number of the operator; None where the backend gives nothing out."""

    given: dict[int, list[Any]]
    results: list[Any]
    problems: dict[int, str]

    def values(self, instruction: int) -> list[Any]:
        """The outputs of an operator."""
        return list(self.given.get(instruction, ()))

    def some_values(self, instruction: int, first: int, count: int) -> list[Any]:
        """Some of them."""
        return self.values(instruction)[first : first + count]

    def last_values(self, instruction: int, count: int) -> list[Any] | None:
        """The last of them."""
        values = self.values(instruction)
        return values[-count:] if 0 < count <= len(values) else None

    def inside(self, instruction: int) -> list[tuple[int | str, Any]]:
        """Nothing: operators inside of a delegate have no inside."""
        return []

    def outputs(self) -> list[Any]:
        """The outputs of the delegate."""
        return list(self.results)


def delegate_piece(owner: Graph, node: Node, log: Log, constants: Mapping[str, torch.Tensor], rounds: int = 0) -> Piece:
    """A delegate call as a piece that can run alone on what the runtime logged; `owner` is the graph it stands in.

    Of one in a loop, which was executed so many `rounds`, it is the last.

    A `UsageError` if the call's inside is not known, or its inputs were not logged.
    """
    inner = owner.inside(node)
    if not inner.nodes:
        raise UsageError(
            f"the operators inside of the delegate call {node.instruction} are not known; "
            "load the record that was written with the .pte (record=)"
        )
    count = len(node.outputs)
    values = of_last_round(log.values(node.instruction), rounds)
    if len(values) != len(inner.user_inputs()) + count:
        raise UsageError(
            f"the runtime logged {len(values)} values of the delegate call {node.instruction}; "
            f"its {len(inner.user_inputs())} inputs and {count} outputs are needed to run it again"
        )
    inputs = values[: len(values) - count]
    if any(value is None for value in inputs):
        raise UsageError(f"an input of the delegate call {node.instruction} can't be read from the debug buffer")
    for item in operators(inner.nodes):
        if item.target not in _PLAIN:
            resolve(item.target)
    return Piece(inner, Aligned(constants), inputs, values[len(values) - count :], rounds=rounds)


def constant_inputs(owner: Graph, node: Node, constants: Mapping[str, torch.Tensor]) -> dict[int, torch.Tensor]:
    """The inputs of a delegate call that are constants of the program, by their position, as the reference has them.

    An error in one of them is not inherited from any operator: it belongs to who reads it.
    """
    fixed = {item.name: item.target for item in owner.inputs if item.kind != "user"}
    named = ((at, fixed.get(arg.name, "")) for at, arg in enumerate(node.args) if isinstance(arg, Ref))
    return {at: constants[target] for at, target in named if target in constants and target not in owner.mutations}


def zoom(
    piece: Piece,
    *,
    constants: Sequence[Difference] = (),
    fixed: Mapping[int, torch.Tensor] | None = None,
    timeout: float | None = None,
    progress: Callable[[int, int], None] | None = None,
    cancel: threading.Event | None = None,
    quiet: bool = False,
    custom: CustomMetrics | None = None,
) -> Zoom:
    """Look inside a delegate, from `delegate_piece`.

    The reference has the inputs that are `fixed` as they stand there, and the others as the runtime had them;
    `constants` are those of the piece of which the program has other versions.
    `progress` is told the steps done and their number; setting `cancel` stops it; `quiet` shows no
    progress. `custom` are the metrics that users registered. Fails as `run_alone` does.
    """
    known = all(value is not None for value in piece.outputs)
    exposure = expose(piece.graph)
    expected = piece.outputs if known else []
    run = run_alone(
        replace(piece, outputs=expected),
        exposure.candidates,
        timeout=timeout,
        progress=progress,
        cancel=cancel,
        quiet=quiet,
    )
    graph = numbered(piece.graph, exposure)
    log = _log(graph, run)
    weights = piece.constants
    inputs = [(fixed or {}).get(at, value) for at, value in enumerate(piece.inputs)]
    comparison = compare_exact(Evaluator(graph, weights), log, inputs, keeper=Keeper(KEPT_BYTES), custom=custom)
    _explain(comparison, graph, exposure, run)
    measure_total_noise([comparison], [inputs], lambda: Evaluator(graph, weights))
    faithful, deviation, message = _fidelity(piece, run, known, constants)
    altered: list[tuple[str, str]] = []
    if constants or any(gap.status == MISMATCH or gap.is_suspicious(introduced=True) for gap in comparison.gaps):
        altered = alterations(piece, timeout, cancel)
    notes = tuple(_other_constants(piece, inputs)) + _altered(comparison, graph, altered)
    if piece.rounds > 1:
        notes += (f"It was executed {piece.rounds} times in a loop; these are the values of the last time.",)
    if run.left_out:
        notes += (_left_out(piece, run, exposure),)
    replay = Replay(lambda: Evaluator(graph, weights), [Execution(inputs, log)])
    return Zoom(graph, comparison, replay, faithful, deviation, message, notes)


def numbered(inner: Graph, exposure: Exposure) -> Graph:
    """The subgraph with a number for each operator; an operator that others are part of is known by all their names."""
    nodes: list[Node] = []
    origins = {node.name: node for node in inner.nodes}
    for node in inner.nodes:
        if item_of(node) is not None or node.target.startswith("py."):
            nodes.append(replace(node, instruction=-1))
            continue
        parts = [origins[name] for name in exposure.parts(node.name)]
        if parts:
            known = dict.fromkeys(p.origin for p in (*parts, node) if p.origin and not conversion(p.origin))
            node = replace(node, origin=", ".join(known), stack=parts[0].stack, module=parts[0].module)
        nodes.append(replace(node, instruction=len(nodes)))
    return replace(inner, nodes=nodes)


def _log(graph: Graph, run: AloneRun) -> InnerLog:
    named = dict(run.values)
    named |= {out.name: value for out, value in zip(graph.outputs, run.outputs, strict=True) if isinstance(out, Ref)}
    uses, values = Uses(graph), dict[int, list[Any]]()
    for name, value in named.items():
        operator, output = uses.value(name)
        node = uses.nodes[operator]
        values.setdefault(node.instruction, [None] * max(len(node.outputs), 1))[output] = value
    missing = (number for number, value in values.items() if any(item is None for item in value))
    return InnerLog(values, list(run.outputs), dict.fromkeys(missing, "it is not given out"))


def _explain(comparison: Comparison, graph: Graph, exposure: Exposure, run: AloneRun) -> None:
    """Say of each operator without a value why it has none."""
    compared = {gap.instruction for gap in comparison.gaps}
    backend = graph.backend_id
    for node in graph.nodes:
        if node.instruction < 0 or node.instruction in compared:
            continue
        if node.name in exposure.hidden:
            comparison.reasons[node.instruction] = exposure.hidden[node.name]
        elif node.name in run.left_out:
            comparison.reasons[node.instruction] = f"{backend} does not give it out: {run.left_out[node.name]}"
        owner = next((n for n in graph.nodes if n.name == exposure.owners.get(node.name)), None)
        if owner is not None and owner.instruction in compared:
            comparison.grouped.add(node.instruction)


def _other_constants(piece: Piece, inputs: Sequence[Any]) -> Iterator[str]:
    """Name the constants that the runtime had otherwise."""
    for item, own, runtime in zip(piece.graph.user_inputs(), inputs, piece.inputs, strict=True):
        if own is not runtime and not same_bits(own, runtime):
            small = f": {runtime.item():.6g} for {own.item():.6g}" if own.numel() == runtime.numel() == 1 else ""
            yield f"The runtime's {item.name}, a constant that the delegate is given, is not the reference's{small}."


def _altered(comparison: Comparison, graph: Graph, altered: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """Say what the program that ran has otherwise, at the operators and as a note."""
    nodes = {node.name: node for node in graph.nodes}
    said = []
    for name, what in altered:
        node = nodes.get(name)
        said.append(f"{node.origin or short_operator(node.target) if node is not None else name} ({what})")
        for gap in comparison.gaps:
            if node is not None and gap.instruction == node.instruction:
                gap.add_note(f"the program that ran has {what}")
    if not said:
        return ()
    rest = f" and {len(said) - _NAMED} more" if len(said) > _NAMED else ""
    return (f"The program that ran has other operators than the reference: {', '.join(said[:_NAMED])}{rest}.",)


def _left_out(piece: Piece, run: AloneRun, exposure: Exposure) -> str:
    count, reason = len(run.left_out), next(iter(run.left_out.values()))
    return (
        f"{piece.graph.backend_id} does not give out {count} of {len(exposure.candidates)} inner values ({reason}); "
        "coverage says which."
    )


def _fidelity(
    piece: Piece, run: AloneRun, known: bool, constants: Sequence[Difference]
) -> tuple[bool | None, float, str]:
    if not known:
        return (
            None,
            math.nan,
            "The fused program's output can't be read, so it is not known whether the zoomed one's is the same.",
        )
    if all(map(same_bits, run.outputs, piece.outputs)):
        return True, 0.0, "The zoomed program gives the fused program's output bit for bit."
    deviation = _deviation(run.outputs, piece.outputs)
    plain = run.outputs if run.plain is None else run.plain
    if constants and run.lowered:
        cause = f"the program that ran has other weights than the reference: {differing(constants)}"
    elif all(map(same_bits, plain, piece.outputs)):
        cause = f"giving out the inner values changed how {piece.graph.backend_id} runs the operators"
    else:
        alone = _deviation(plain, piece.outputs)
        what = "lowered again" if run.lowered else "run again as it is,"
        why = "was lowered with other options, or has other weights" if run.lowered else "or its outputs were changed"
        cause = (
            f"so does the delegate {what} without them, by up to {alone:.3g}: "
            f"it ran on another machine or with another version, {why}"
        )
    return (
        False,
        deviation,
        f"The zoomed program's output differs from the fused program's by up to {deviation:.3g}: {cause}.",
    )


def _deviation(outputs: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> float:
    """Largest absolute difference; infinite where only one side is NaN or Inf, or the shapes differ."""
    worst = 0.0
    for a, b in zip(outputs, expected, strict=True):
        if a.shape != b.shape:
            return math.inf
        sums = sums_of(b, a)
        worst = max(worst, math.inf if sums.mismatched else sums.max_d)
    return worst
