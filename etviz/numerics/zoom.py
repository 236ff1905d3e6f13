"""Inside one delegate: its subgraph is lowered again with inner values as outputs, and run on what the runtime gave it.

The reference is the subgraph evaluated eagerly on the same inputs, so that what the delegate inherited is out of sight,
and every inner operator is compared as the instructions of a program are.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from etviz.artifacts.etdump import RunBlock
from etviz.artifacts.events import ProfileEvents
from etviz.artifacts.ir import Graph, Node, Ref
from etviz.errors import UsageError
from etviz.graph.exposure import Exposure, expose
from etviz.numerics.comparison import Comparison, compare_exact
from etviz.numerics.gap import compare
from etviz.numerics.operators import resolve
from etviz.numerics.recall import KEPT_BYTES
from etviz.numerics.reference import Evaluator
from etviz.numerics.replay import Execution, Replay
from etviz.numerics.runtime_log import RuntimeLog
from etviz.pipeline.alone import AloneRun, Piece, run_alone
from etviz.pipeline.alone_child import same_bits

if TYPE_CHECKING:
    import torch

_PLAIN: Final = ("getitem", "delegate", "cond", "observed")


@dataclass(frozen=True, slots=True)
class Zoom:
    """The inside of one delegate call.

    Attributes
    ----------
    graph
        The delegate's subgraph; the operators are numbered in program order.
    comparison, replay
        As of a program.
    faithful
        True if the zoomed program's outputs are the fused program's bit for bit; None where these were not logged.
    deviation
        Largest absolute difference between the two, NaN where not known.
    message
        The same in words.
    notes
        What else is to be said.
    """

    graph: Graph
    comparison: Comparison
    replay: Replay
    faithful: bool | None
    deviation: float
    message: str
    notes: tuple[str, ...] = ()


class InnerLog(RuntimeLog):
    """What the zoomed program gave, by the number of the operator."""

    def __init__(self, values: Mapping[int, list[Any]], outputs: Sequence[Any]) -> None:
        nothing: Any = np.empty(0)
        untimed = ProfileEvents(*(nothing for _ in fields(ProfileEvents)))
        super().__init__(RunBlock("Execute", None, (), untimed, (), ()), None)
        self._values = dict(values)
        self._outputs = list(outputs)

    @property
    def instructions(self) -> list[int]:
        """Numbers of the operators with values, ascending."""
        return sorted(self._values)

    def values(self, instruction: int) -> list[Any]:
        """The outputs of an operator, None where the backend gives none."""
        return list(self._values.get(instruction, ()))

    def outputs(self) -> list[Any]:
        """The outputs of the delegate."""
        return list(self._outputs)


def delegate_piece(owner: Graph, node: Node, log: RuntimeLog, constants: Mapping[str, torch.Tensor]) -> Piece:
    """A delegate call as a piece that can run alone.

    Parameters
    ----------
    owner
        The graph that the call stands in.
    node
        The call.
    log
        What the runtime logged.
    constants
        Tensors by `Input.target`.

    Raises
    ------
    UsageError
        If the call's inside is not known, or its inputs were not logged.
    """
    inner = owner.subgraphs.get(node.subgraphs[0]) if node.subgraphs else None
    if node.target != "delegate" or inner is None or not inner.nodes:
        raise UsageError(
            f"the operators inside of the delegate call {node.instruction} are not known; "
            "load the record that was written with the .pte (record=)"
        )
    values, count = log.values(node.instruction), len(node.outputs)
    if len(values) != len(inner.user_inputs()) + count:
        raise UsageError(
            f"the runtime logged {len(values)} values of the delegate call {node.instruction}; "
            f"its {len(inner.user_inputs())} inputs and {count} outputs are needed to run it again"
        )
    inputs = values[: len(values) - count]
    if any(value is None for value in inputs):
        raise UsageError(f"an input of the delegate call {node.instruction} can't be read from the debug buffer")
    for item in inner.nodes:
        if item.target not in _PLAIN:
            resolve(item.target)
    return Piece(inner, constants, inputs, values[len(values) - count :])


def zoom(
    piece: Piece,
    *,
    timeout: float | None = None,
    progress: Callable[[int, int], None] | None = None,
    cancel: threading.Event | None = None,
) -> Zoom:
    """Look inside a delegate.

    Parameters
    ----------
    piece
        The delegate, from `delegate_piece`.
    timeout
        Seconds for lowering and running it again.
    progress
        Is told the steps done and their number.
    cancel
        Stops it when it is set.

    Raises
    ------
    BackendRefusedError
        If the backend can't lower or run it here.
    ExecutionError
        If the child process fails, takes too long, or is cancelled.
    """
    known = all(value is not None for value in piece.outputs)
    exposure = expose(piece.graph)
    expected = piece.outputs if known else []
    run = run_alone(
        replace(piece, outputs=expected), exposure.candidates, timeout=timeout, progress=progress, cancel=cancel
    )
    graph = _numbered(piece.graph, exposure)
    log = _log(graph, run)
    constants = piece.constants
    comparison = compare_exact(Evaluator(graph, constants), log, piece.inputs, budget=KEPT_BYTES)
    _explain(comparison, graph, exposure, run)
    faithful, deviation, message = _fidelity(piece, run, known)
    notes = () if not run.left_out else (_left_out(piece, run, exposure),)
    replay = Replay(lambda: Evaluator(graph, constants), [Execution(piece.inputs, log)])
    return Zoom(graph, comparison, replay, faithful, deviation, message, notes)


def _numbered(inner: Graph, exposure: Exposure) -> Graph:
    """The subgraph with a number for each operator; an operator that others are part of is known by all their names."""
    nodes: list[Node] = []
    origins = {node.name: node for node in inner.nodes}
    for node in inner.nodes:
        if node.target == "getitem" or node.target.startswith("py."):
            nodes.append(replace(node, instruction=-1))
            continue
        parts = [origins[name] for name in exposure.parts(node.name)]
        if parts:
            known = dict.fromkeys(p.origin for p in (*parts, node) if p.origin and not p.origin.startswith("quantize"))
            node = replace(node, origin=", ".join(known), stack=parts[0].stack, module=parts[0].module)
        nodes.append(replace(node, instruction=len(nodes)))
    return replace(inner, nodes=nodes)


def _log(graph: Graph, run: AloneRun) -> InnerLog:
    found = dict(run.values)
    found |= {out.name: value for out, value in zip(graph.outputs, run.outputs, strict=True) if isinstance(out, Ref)}
    numbers = {node.name: node for node in graph.nodes}
    values: dict[int, list[Any]] = {}
    for name, value in found.items():
        node, index = numbers[name], 0
        if node.target == "getitem":
            node, index = numbers[node.args[0].name], node.args[1]
        values.setdefault(node.instruction, [None] * max(len(node.outputs), 1))[index] = value
    log = InnerLog(values, run.outputs)
    log.problems = dict.fromkeys((number for number, value in values.items() if None in value), "it is not given out")
    return log


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


def _left_out(piece: Piece, run: AloneRun, exposure: Exposure) -> str:
    count, reason = len(run.left_out), next(iter(run.left_out.values()))
    return (
        f"{piece.graph.backend_id} does not give out {count} of {len(exposure.candidates)} inner values ({reason}); "
        "coverage says which."
    )


def _fidelity(piece: Piece, run: AloneRun, known: bool) -> tuple[bool | None, float, str]:
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
    if all(map(same_bits, plain, piece.outputs)):
        cause = f"giving out the inner values changed how {piece.graph.backend_id} runs the operators"
    else:
        alone = _deviation(plain, piece.outputs)
        cause = (
            f"so does the delegate lowered again without them, by up to {alone:.3g}: "
            "it ran on another machine, with another version, or was lowered with other options"
        )
    return (
        False,
        deviation,
        f"The zoomed program's output differs from the fused program's by up to {deviation:.3g}: {cause}.",
    )


def _deviation(found: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> float:
    """Largest absolute difference; infinite where only one side is NaN or Inf, or the shapes differ."""
    worst = 0.0
    for a, b in zip(found, expected, strict=True):
        if a.shape != b.shape:
            return math.inf
        sums = compare(b, a)
        worst = max(worst, math.inf if sums.mismatched else sums.max_d)
    return worst
