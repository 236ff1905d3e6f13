"""The inside of a delegate as its backend logged it in the run itself: nothing is lowered again.

A backend gives each value that it logs an identifier of its own, and the delegate map (in the ETRecord) says of which
debug handles it is. Operators become others on the way: where {old 1, …, old n} became {new 1, …, new m}, each new one
carries the handles of all old ones. So the value of an identifier is that of the last operator that carries one of its
handles, the others of them are part of it; and where several identifiers have one operator, the last that was logged is
its value, those before are steps towards it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from etviz.comparison.exact import compare_exact
from etviz.comparison.references import KEPT_BYTES
from etviz.errors import UsageError
from etviz.evaluation.evaluator import Evaluator
from etviz.evaluation.replay import Execution, Replay
from etviz.explain.zoom.exposure import Exposure
from etviz.explain.zoom.zoom import InnerLog, Zoom, numbered
from etviz.graph.uses import operators

if TYPE_CHECKING:
    import torch

    from etviz.graph.ir import Graph, Node
    from etviz.pipeline.relower import Piece
    from etviz.tensors.custom_metrics import CustomMetrics

Identifier = int | str
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
        The delegate's map: identifiers, as text, to debug handles.
    """
    nodes = list(operators(graph.nodes))
    values: dict[str, tuple[Identifier, Any]] = {}
    parts: dict[str, str] = {}
    strange: dict[Identifier, None] = {}
    for identifier, value in logged:
        carried = set(handles.get(str(identifier), ()))
        group = [node for node in nodes if not carried.isdisjoint(node.handles)]
        if not group:
            strange[identifier] = None
            continue
        values[group[-1].name] = identifier, value
        parts |= {node.name: group[-1].name for node in group[:-1]}
    return Joined(values, {name: owner for name, owner in parts.items() if name not in values}, tuple(strange))


def logged_zoom(
    piece: Piece,
    logged: Sequence[tuple[Identifier, Any]],
    handles: Mapping[str, Sequence[int]],
    *,
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
    inputs = [(fixed or {}).get(at, value) for at, value in enumerate(piece.inputs)]
    weights = piece.constants
    comparison = compare_exact(Evaluator(graph, weights), log, inputs, budget=KEPT_BYTES, custom=custom)
    compared = {gap.instruction for gap in comparison.gaps}
    silent = f"{graph.backend_id} logged no value for it"
    for node in operators(graph.nodes):
        if node.instruction < 0 or node.instruction in compared:
            continue
        owner = nodes.get(joined.parts.get(node.name, ""))
        if owner is not None:
            reasons[node.instruction] = f"it is part of {owner.name}: the backend runs them as one operator"
            if owner.instruction in compared:
                comparison.grouped.add(node.instruction)
        comparison.reasons[node.instruction] = reasons.get(node.instruction, silent)
    replay = Replay(lambda: Evaluator(graph, weights), [Execution(inputs, log)])
    message = f"The inner values are those that {graph.backend_id} logged in the run itself."
    return Zoom(graph, comparison, replay, True, 0.0, message, tuple(_notes(joined, graph)))


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
