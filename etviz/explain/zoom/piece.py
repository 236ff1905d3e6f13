"""Parts of a program that can run alone on their runtime inputs: one operator, or one delegate call."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from etviz.artifacts.record.weights import Aligned
from etviz.errors import UsageError
from etviz.evaluation.evaluator import Evaluator, Scope
from etviz.evaluation.interludes import Interlude
from etviz.evaluation.operator_rules import resolve
from etviz.evaluation.replay import Log, Replay, of_last_round, question
from etviz.evaluation.values import Value, flat_values
from etviz.graph.ir import CONTROL, OBSERVED, Graph, Input, Node, Ref, pairs_of_args
from etviz.graph.loops import COPY
from etviz.graph.quantize_ops import LIBRARIES
from etviz.graph.uses import items, operators
from etviz.pipeline.relower import Piece

if TYPE_CHECKING:
    import torch
    from typing_extensions import Self


_PLAIN: Final = ("delegate", *CONTROL, OBSERVED)


@dataclass(frozen=True, slots=True)
class Alone:
    """A piece with its eager outputs, in the operators' own precision."""

    piece: Piece
    expected: list[torch.Tensor]


@question
def operator_alone(replay: Replay, graph: Graph, owner: Graph, node: Node, run: int) -> Alone:
    """One operator with its inputs in one execution; of a loop, the last round's.

    `owner` is the method's graph or a branch. A `UsageError` if it can't run alone, or its inputs are not known.
    """
    _check(node, graph.backend_id)
    last: list[tuple[Value, dict[str, Any]]] = []

    def see(at: Node, scope: Scope, value: Value) -> None:
        if scope.local is not None:
            given = evaluator.arguments(scope.local, at)
            leaves = pairs_of_args((at.args, at.kwargs), given)
            last[:] = [(value, {leaf.name: value for leaf, value in leaves if isinstance(leaf, Ref)})]

    evaluator = Watcher(replay.fresh(), {node.instruction}, see)
    for earlier in replay.executions[:run]:
        evaluator.run(earlier.inputs)
    evaluator.run(replay.executions[run].inputs, lambda node, value: None, replay.executions[run].logged)
    if not last:
        raise UsageError(f"{node.name} was not executed, or its inputs are not known")
    result, arguments = last[0]
    if result.local is None or result.runtime is None:
        raise UsageError(f"{node.name} can't be taken out: {result.problem or 'its inputs or outputs were not logged'}")
    constants = {placeholder.name: placeholder for placeholder in owner.inputs if placeholder.kind == "constant"}
    inputs = [constants.get(name) or Input(name, "user") for name in arguments]
    values = [value for name, value in arguments.items() if name not in constants]
    expected = flat_values(result.local)
    alone = replace(node, instruction=-1)
    parts = range(len(expected)) if isinstance(result.local, (list, tuple)) else ()
    named = items(alone, [f"output_{at}" for at in parts])
    piece = Graph(node.name, inputs, [alone, *named], [Ref(part.name) for part in named or [alone]])
    piece.backend_id, piece.compile_specs = graph.backend_id, graph.compile_specs
    return Alone(Piece(piece, evaluator.constants, values, result.runtime), expected)


@question
def expected_outputs(replay: Replay) -> list[torch.Tensor]:
    return replay.fresh().run(replay.executions[0].inputs)


def _check(node: Node, backend: str) -> None:
    if node.kernel.startswith("executorch_prim::") or node.kernel == COPY or "." not in node.target:
        raise UsageError(f"{node.kernel or node.target} belongs to the runtime itself, so it can't run alone")
    if node.target.split(".")[0] in LIBRARIES and backend:
        raise UsageError("a quantized operator inside a delegate does not run alone; take the delegate's row")
    resolve(node.target)


class Watcher(Evaluator):
    """Shows the values of some instructions, and the environment in which they are computed, to `see`."""

    def __init__(
        self, evaluator: Evaluator, instructions: Container[int], see: Callable[[Node, Scope, Value], None]
    ) -> None:
        super().__init__(evaluator.graph, evaluator.constants, evaluator.limits)
        self._instructions, self._see, self.turns = instructions, see, evaluator.turns

    def beside(self, call: Interlude) -> Self:
        other = super().beside(call)
        other._instructions = ()
        return other

    def step(self, graph: Graph, node: Node, scope: Scope) -> Value:
        value = super().step(graph, node, scope)
        if node.instruction in self._instructions:
            self._see(node, scope, value)
        return value


def delegate_piece(owner: Graph, node: Node, log: Log, constants: Mapping[str, torch.Tensor], rounds: int = 0) -> Piece:
    """A delegate call as a piece that can run alone on its logged inputs; of a loop's `rounds`, the last one's.

    `owner` is the method's graph or a branch. A `UsageError` if the delegate's subgraph is not known, or an input of
    the call was not logged.
    """
    inner = owner.inside(node)
    if not inner.nodes:
        raise UsageError(
            f"the operators inside the delegate call {node.instruction} are not known; "
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
    for operator in operators(inner.nodes):
        if operator.target not in _PLAIN:
            resolve(operator.target)
    return Piece(inner, Aligned(constants), inputs, values[len(values) - count :], rounds=rounds)


def constant_inputs(owner: Graph, node: Node, constants: Mapping[str, torch.Tensor]) -> dict[int, torch.Tensor]:
    """Inputs that are constants, by position: an error in one is introduced by the call, not inherited."""
    fixed = {placeholder.name: placeholder.target for placeholder in owner.inputs if placeholder.kind != "user"}
    named = ((at, fixed.get(arg.name, "")) for at, arg in enumerate(node.args) if isinstance(arg, Ref))
    return {at: constants[target] for at, target in named if target in constants and target not in owner.mutations}
