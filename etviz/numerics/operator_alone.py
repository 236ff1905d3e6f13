"""One instruction's operator as a piece that can run alone, with what the runtime had as its inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from etviz.artifacts.ir import Graph, Input, Node, Ref, refs
from etviz.errors import UsageError
from etviz.numerics.comparison import logged_outputs
from etviz.numerics.operators import resolve
from etviz.numerics.reference import Evaluator, Value, flat_values
from etviz.numerics.replay import Replay
from etviz.pipeline.alone import Piece

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Alone:
    """A piece, and what it should give on its inputs: eager, in the operators' own precision."""

    piece: Piece
    expected: list[torch.Tensor]


def operator_alone(graph: Graph, owner: Graph, node: Node, replay: Replay, run: int) -> Alone:
    """Take one operator out of a program.

    Parameters
    ----------
    graph
        The method.
    owner
        The graph that the operator stands in: the method, or one of its branches.
    node
        The operator; not a delegate call.
    replay
        The method's executions.
    run
        Number of the execution to take its inputs from.

    Raises
    ------
    UsageError
        If it is no operator that can run alone, or its inputs are not known.
    PairingError
        If the reference can't be computed.
    """
    _check(node, graph.backend_id)
    evaluator = replay.fresh()
    for execution in replay.executions[:run]:
        evaluator.run(execution.inputs)
    sources = {name: _source(graph, owner, name) for name in dict.fromkeys(refs((node.args, node.kwargs)))}
    found, own = _values(evaluator, replay, run, node, sources)
    inputs, values = [], []
    for name, source in sources.items():
        if isinstance(source, Input) and source.kind == "constant":
            inputs.append(replace(source, name=name))
        else:
            inputs.append(Input(name, "user"))
            values.append(found[name])
    expected = flat_values(own.local)
    if own.local is None or own.runtime is None:
        raise UsageError(f"{node.name} can't be taken out: {own.problem or 'its inputs or outputs were not logged'}")
    alone = replace(node, instruction=-1)
    items = [Node(f"output_{k}", "getitem", (Ref(node.name), k)) for k in range(len(expected))]
    split = isinstance(own.local, (list, tuple))
    nodes, outputs = ([alone, *items], [Ref(i.name) for i in items]) if split else ([alone], [Ref(node.name)])
    piece = Graph(node.name, inputs, nodes, outputs, backend_id=graph.backend_id, compile_specs=graph.compile_specs)
    return Alone(Piece(piece, evaluator.constants, values, own.runtime), expected)


def _check(node: Node, backend: str) -> None:
    if node.kernel.startswith("executorch_prim::") or node.target == "aten.copy_.default" or "." not in node.target:
        raise UsageError(f"{node.kernel or node.target} is the runtime's own and has no program of its own")
    if node.target.split(".")[0] in ("quantized_decomposed", "torchao") and backend:
        raise UsageError("a quantized operator inside of a delegate does not run alone; take the delegate's row")
    resolve(node.target)


def _source(graph: Graph, owner: Graph, name: str) -> Node | Input:
    """What makes a value; the inputs of a branch are followed to where they come from."""
    while True:
        node = next((n for n in owner.nodes if n.name == name), None)
        if node is not None:
            return node
        place = next(i for i, item in enumerate(owner.inputs) if item.name == name)
        item = owner.inputs[place]
        if item.kind != "user" or owner is graph:
            return item
        above, call = next(_callers(graph, owner))
        operand = call.args[1][owner.user_inputs().index(item)]
        owner, name = above, operand.name


def _callers(graph: Graph, branch: Graph) -> Iterator[tuple[Graph, Node]]:
    for node in graph.nodes:
        for name in node.subgraphs if node.target == "cond" else ():
            if graph.subgraphs[name] is branch:
                yield graph, node
            else:
                yield from _callers(graph.subgraphs[name], branch)


def _values(
    evaluator: Evaluator, replay: Replay, run: int, node: Node, sources: Mapping[str, Node | Input]
) -> tuple[dict[str, Any], Value]:
    """The runtime's values of the sources, by name, and the values of the operator itself."""
    execution = replay.executions[run]
    given = dict(zip((i.name for i in evaluator.graph.user_inputs()), execution.inputs, strict=True))
    found: dict[str, Any] = {}
    own: list[Value] = []
    for name, source in sources.items():
        if isinstance(source, Input) and source.kind == "user":
            found[name] = given[source.name]
        elif isinstance(source, Input) and source.kind == "buffer":
            state = evaluator.state.get(source.target)
            found[name] = state if state is not None else evaluator.constants[source.target]
    names = {id(source): name for name, source in sources.items()}

    def seen(at: Node, value: Value) -> None:
        if id(at) in names:
            single = value.runtime is not None and len(value.runtime) == 1 and value.runtime[0] is not None
            found[names[id(at)]] = value.runtime[0] if single and value.runtime else value.local
        if at is node:
            own.append(value)

    evaluator.run(execution.inputs, seen, lambda at: logged_outputs(execution.log, at))
    if not own or any(name not in found for name, s in sources.items() if not _is_constant(s)):
        raise UsageError(f"{node.name} was not executed, or its inputs are not known")
    return found, own[0]


def _is_constant(source: Node | Input) -> bool:
    return isinstance(source, Input) and source.kind == "constant"
