"""The inside of a delegate as its backend logged it in the run itself: nothing is lowered again.

A backend gives each value that it logs an identifier of its own, and the delegate map (in the ETRecord) says of which
debug handles it is. Operators become others on the way: where {old 1, …, old n} became {new 1, …, new m}, each new one
carries the handles of all old ones. So the value of an identifier is that of the last operator that carries one of its
handles, the others of them are part of it; and where several identifiers have one operator, the last that was logged is
its value, those before are steps towards it.

These values are the run's own, so each has a total gap as every value of the program has: against the reference as it
follows from the program's inputs. What an operator introduced is told on what the delegate was given at runtime.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from etviz.comparison.exact import compare_exact
from etviz.comparison.gap import Keeper
from etviz.comparison.inputs import Entrance
from etviz.comparison.noise import measure_noise
from etviz.comparison.references import KEPT_BYTES
from etviz.errors import UsageError
from etviz.evaluation.evaluator import Evaluator, Scope
from etviz.evaluation.replay import Execution, Replay
from etviz.evaluation.values import Value
from etviz.explain.zoom.zoom import InnerLog, Zoom, numbered
from etviz.graph.exposure import Exposure
from etviz.graph.inline import inline
from etviz.graph.ir import Graph, Node
from etviz.graph.uses import operators
from etviz.pipeline.relower import same_bits

if TYPE_CHECKING:
    import torch

    from etviz.evaluation.spill import SpillFile
    from etviz.pipeline.relower import Piece
    from etviz.tensors.custom_metrics import CustomMetrics

Identifier = int | str
Call = tuple[int, int]
"""A delegate call: number of the execution, and of the instruction."""
Preprocessing = Callable[[Identifier, Any], Any]
"""Takes a backend's identifier and the tensor that it logged, and returns it as the operator's value."""
_NO_HANDLES: Final = "the delegate map names no operator of this graph for it"


@dataclass(frozen=True, slots=True)
class Joined:
    """Which operator each logged value is of.

    Attributes
    ----------
    values
        By name of the operator: the identifier, and the value that it logged last.
    parts
        By name of an operator without a value of its own: the one whose value it is part of.
    strange
        Identifiers that belong to no operator of the graph.
    """

    values: dict[str, tuple[Identifier, Any]]
    parts: dict[str, str]
    strange: tuple[Identifier, ...]


def join(graph: Graph, logged: Sequence[tuple[Identifier, Any]], handles: Mapping[str, Sequence[int]]) -> Joined:
    """Join logged values to operators.

    Parameters
    ----------
    graph
        Of the delegate.
    logged
        Identifiers and values, in the order of logging.
    handles
        The delegate's map: identifiers, as text, to debug handles. One that is not in it may be an operator's name.
    """
    nodes = list(operators(graph.nodes))
    named: dict[Identifier, list[Node]] = {node.name: [node] for node in nodes}
    values: dict[str, tuple[Identifier, Any]] = {}
    parts: dict[str, str] = {}
    strange: dict[Identifier, None] = {}
    for identifier, value in logged:
        carried = set(handles.get(str(identifier), ()))
        group = [node for node in nodes if not carried.isdisjoint(node.handles)] or named.get(identifier, [])
        if not group:
            strange[identifier] = None
            continue
        values[group[-1].name] = identifier, value
        parts |= {node.name: group[-1].name for node in group[:-1]}
    return Joined(values, {name: owner for name, owner in parts.items() if name not in values}, tuple(strange))


class _Arriving(Evaluator):
    """Evaluates a delegate on what the reference gives it, and its local values on what the runtime gave it."""

    def __init__(self, graph: Graph, constants: Mapping[str, torch.Tensor], runtime: Sequence[Any]) -> None:
        super().__init__(graph, constants)
        self._runtime = runtime

    def second_lane(self, env: Mapping[str, Any]) -> dict[str, Any]:
        """The environment with the runtime's inputs; one that is the reference's bit for bit stays the same object."""
        given = zip(self.graph.user_inputs(), self._runtime, strict=True)
        return {**env, **{item.name: value for item, value in given if not _same(env[item.name], value)}}


def _same(reference: Any, runtime: Any) -> bool:
    import torch

    both = isinstance(reference, torch.Tensor) and isinstance(runtime, torch.Tensor)
    return reference is runtime or (both and same_bits(reference, runtime))


class _Watcher(Evaluator):
    """Keeps what the reference gives to some delegate calls."""

    def __init__(self, evaluator: Evaluator, calls: Container[int]) -> None:
        super().__init__(evaluator.graph, evaluator.constants, evaluator.limits)
        self._calls = calls
        self.keep: Callable[[int, list[Any]], None] = lambda instruction, values: None

    def step(self, graph: Graph, node: Node, scope: Scope) -> Value:
        """The values of a node; the inputs of a watched call are kept before."""
        if node.target == "delegate" and node.instruction in self._calls:
            self.keep(node.instruction, self.arguments(scope.env, node)[0])
        return super().step(graph, node, scope)


def arrivals(replay: Replay, calls: Collection[Call], file: SpillFile) -> dict[Call, list[Any]]:
    """What the reference gives to some delegate calls, in one pass over the executions; tensors are kept in a file."""
    found: dict[Call, list[Any]] = {}
    evaluator = _Watcher(replay.fresh(), {instruction for _, instruction in calls})
    for run, execution in enumerate(replay.executions[: max((run for run, _ in calls), default=-1) + 1]):

        def keep(instruction: int, values: list[Any], run: int = run) -> None:
            if (run, instruction) in calls:
                found[run, instruction] = [file.put(v) if hasattr(v, "detach") else v for v in values]

        evaluator.keep = keep
        evaluator.run(execution.inputs)
    return found


def logged_zoom(
    piece: Piece,
    logged: Sequence[tuple[Identifier, Any]],
    handles: Mapping[str, Sequence[int]],
    *,
    arrived: Sequence[Any] | str,
    probed: tuple[float | None] | None = None,
    fixed: Mapping[int, torch.Tensor] | None = None,
    preprocessing: Preprocessing | None = None,
    custom: CustomMetrics | None = None,
) -> Zoom:
    """Compare what a backend logged inside of a delegate with the delegate's operators.

    Parameters
    ----------
    piece, fixed, custom
        As for `etviz.explain.zoom.zoom.zoom`.
    logged, handles
        As for `join`.
    arrived
        What the reference gives to the delegate; or, in words, why that is not known: then there are no total gaps.
    probed
        Where the values are those of a probe: how far it is from the program, None if that is not known.
    preprocessing
        Undoes what the backend did to a value: a layout, a quantization.

    Raises
    ------
    UsageError
        If `preprocessing` fails.
    """
    graph = numbered(piece.graph, Exposure())
    joined = join(graph, logged, handles)
    nodes = {node.name: node for node in graph.nodes}
    given: dict[int, list[Any]] = {}
    reasons: dict[int, str] = {}
    for name, (identifier, value) in joined.values.items():
        node = nodes[name]
        stored = _prepared(identifier, value, preprocessing)
        if problem := _misfit(node, stored):
            reasons[node.instruction] = f"{graph.backend_id} logged {problem} as {identifier!r}"
        else:
            given[node.instruction] = [stored]
    log = InnerLog(given, list(piece.outputs), {})
    own = [(fixed or {}).get(at, value) for at, value in enumerate(piece.inputs)]
    reference = own if isinstance(arrived, str) else arrived
    fresh = partial(_Arriving, graph, piece.constants, own)
    comparison = compare_exact(fresh(), log, reference, keeper=Keeper(KEPT_BYTES), custom=custom)
    compared = {gap.instruction for gap in comparison.gaps}
    if isinstance(arrived, str):
        Entrance(Graph(graph.name)).forget_totals(comparison, arrived)
    silent = f"{graph.backend_id} {'gives' if probed is not None else 'logged'} no value for it"
    for node in operators(graph.nodes):
        if node.instruction < 0 or node.instruction in compared:
            continue
        owner = nodes.get(joined.parts.get(node.name, ""))
        if owner is not None:
            reasons[node.instruction] = f"it is part of {owner.name}: the backend runs them as one operator"
            if owner.instruction in compared:
                comparison.grouped.add(node.instruction)
        comparison.reasons[node.instruction] = reasons.get(node.instruction, silent)
    replay = Replay(fresh, [Execution(reference, log)])
    faithful, deviation, message = _fidelity(graph.backend_id, probed)
    return Zoom(graph, comparison, replay, faithful, deviation, message, tuple(_notes(joined, graph)), logged=True)


def _fidelity(backend: str, probed: tuple[float | None] | None) -> tuple[bool | None, float, str]:
    if probed is None:
        return True, 0.0, f"The inner values are those that {backend} logged in the run itself."
    (deviation,) = probed
    start = "The inner values are those of probes, in which the delegate was lowered again"
    if deviation is None:
        return None, math.nan, f"{start}; whether it still gives what it gave in the program is not known."
    if deviation:
        return False, deviation, f"{start}; its output, or the program's, then differs by up to {deviation:.3g}."
    return True, 0.0, f"{start}; its outputs and the program's are still the same, bit for bit."


def measure_total_noise(replay: Replay, zooms: Mapping[Call, Zoom]) -> None:
    """Measure total gaps inside of delegates by their noise, which begins at the program's inputs."""
    suspicious = {
        (call, gap.source[0]): gap
        for call, zoom in zooms.items()
        for gap in zoom.comparison.gaps
        if not gap.unpaired and gap.is_suspicious(introduced=False)
    }
    flat = inline(replay.fresh().graph) if suspicious else None
    if flat is None:
        return
    names = {
        (call[0], f"{flat.inside[call[1]]}{name}"): gap
        for (call, name), gap in suspicious.items()
        if call[1] in flat.inside
    }

    def fresh() -> Evaluator:
        whole = replay.fresh()
        return Evaluator(flat.graph, whole.constants, whole.limits)

    given = [execution.inputs for execution in replay.executions]
    measure_noise([(run, name, gap) for (run, name), gap in names.items()], given, fresh)


def _prepared(identifier: Identifier, value: Any, preprocessing: Preprocessing | None) -> Any:
    import torch

    if preprocessing is None:
        return value
    try:
        found = preprocessing(identifier, value)
    except Exception as error:
        raise UsageError(f"preprocessing failed for {identifier!r}: {error}") from error
    if not isinstance(found, torch.Tensor):
        raise UsageError(f"preprocessing must return a tensor, found {type(found).__name__} for {identifier!r}")
    return found


def _misfit(node: Node, value: Any) -> str:
    """What is wrong with a value that can't be the operator's, empty if it may be."""
    import torch

    meta = node.outputs[0] if len(node.outputs) == 1 else None
    if not isinstance(value, torch.Tensor):
        return "a value that can't be read"
    dtype, shape = str(value.dtype).removeprefix("torch."), tuple(value.shape)
    if meta is None:
        return "one tensor for an operator with several outputs"
    same = len(shape) == len(meta.shape) and all(
        not isinstance(size, int) or size == got for size, got in zip(meta.shape, shape, strict=True)
    )
    if dtype == meta.dtype and same:
        return ""
    return f"{dtype} {shape}, the operator gives {meta.dtype} {meta.shape}; preprocessing= can undo that,"


def _notes(joined: Joined, graph: Graph) -> list[str]:
    if not joined.strange:
        return []
    named = ", ".join(repr(item) for item in joined.strange[:5])
    return [f"{graph.backend_id} logged {len(joined.strange)} values ({named}) of which {_NO_HANDLES}."]
