"""One instruction's operator as a piece that can run alone, with what the runtime had as its inputs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from etviz.errors import UsageError
from etviz.evaluation.evaluator import Evaluator, Scope
from etviz.evaluation.operators import resolve
from etviz.evaluation.values import Value, flat_values
from etviz.graph.ir import Graph, Input, Node, Ref, pairs_of_args
from etviz.graph.loops import COPY
from etviz.graph.quantize_ops import LIBRARIES
from etviz.graph.uses import items
from etviz.pipeline.relower import Piece

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch

    from etviz.evaluation.replay import Execution, Replay


@dataclass(frozen=True, slots=True)
class Alone:
    """A piece, and what it should give on its inputs: eager, in the operators' own precision."""

    piece: Piece
    expected: list[torch.Tensor]


def operator_alone(graph: Graph, owner: Graph, node: Node, replay: Replay, run: int) -> Alone:
    """Take one operator out of a program, with its inputs of one execution.

    `owner` is the graph that it stands in: the method, or one of its branches. A `UsageError` if it is no operator that
    can run alone, or its inputs are not known.
    """
    _check(node, graph.backend_id)
    evaluator = _Watcher(replay.fresh(), node)
    for earlier in replay.executions[:run]:
        evaluator.run(earlier.inputs)
    own = evaluator.watch(replay.executions[run])
    if own is None:
        raise UsageError(f"{node.name} was not executed, or its inputs are not known")
    if own.local is None or own.runtime is None:
        raise UsageError(f"{node.name} can't be taken out: {own.problem or 'its inputs or outputs were not logged'}")
    constants = {item.name: item for item in owner.inputs if item.kind == "constant"}
    inputs = [constants.get(name) or Input(name, "user") for name in evaluator.given]
    values = [value for name, value in evaluator.given.items() if name not in constants]
    expected = flat_values(own.local)
    alone = replace(node, instruction=-1)
    parts = range(len(expected)) if isinstance(own.local, (list, tuple)) else ()
    named = items(alone, [f"output_{at}" for at in parts])
    piece = Graph(node.name, inputs, [alone, *named], [Ref(part.name) for part in named or [alone]])
    piece.backend_id, piece.compile_specs = graph.backend_id, graph.compile_specs
    return Alone(Piece(piece, evaluator.constants, values, own.runtime), expected)


def _check(node: Node, backend: str) -> None:
    if node.kernel.startswith("executorch_prim::") or node.kernel == COPY or "." not in node.target:
        raise UsageError(f"{node.kernel or node.target} is the runtime's own and has no program of its own")
    if node.target.split(".")[0] in LIBRARIES and backend:
        raise UsageError("a quantized operator inside of a delegate does not run alone; take the delegate's row")
    resolve(node.target)


class _Watcher(Evaluator):
    """Keeps what one operator gave, and got last, by the names of its arguments."""

    def __init__(self, evaluator: Evaluator, node: Node) -> None:
        super().__init__(evaluator.graph, evaluator.constants, evaluator.limits)
        self._node = node
        self._value: Value | None = None
        self._called: dict[str, Any] = {}
        self.given: dict[str, Any] = {}

    def watch(self, execution: Execution) -> Value | None:
        """The operator's values in one execution, None if it has none."""
        self.run(execution.inputs, lambda node, value: None, execution.logged)
        return self._value

    def step(self, graph: Graph, node: Node, scope: Scope) -> Value:
        """The values of one node; of the watched one the last are kept, where a loop executes it often."""
        value = super().step(graph, node, scope)
        if node is self._node and scope.logged is not None:
            self._value, self.given = value, self._called
        return value

    def operator(self, graph: Graph, node: Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """What the operator of a node gives; the last arguments of the watched one are those of the runtime."""
        if node is self._node:
            leaves = pairs_of_args((node.args, node.kwargs), (args, kwargs))
            self._called = {leaf.name: value for leaf, value in leaves if isinstance(leaf, Ref)}
        return super().operator(graph, node, args, kwargs)
