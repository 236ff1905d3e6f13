"""The lowered graph again, from an ETRecord's edge graph and what was derived of the program.

The result has the form of a recorded graph, so everything that works on a record works on it: kernel calls carry their
instruction, delegates their inside. What could not be derived stays as plain edge operators without an instruction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from etviz.artifacts.ir import OBSERVED, Graph, Input, Meta, Node, Ref, refs
from etviz.artifacts.program import Method
from etviz.graph.branches import number_branches
from etviz.graph.derive import Derived
from etviz.graph.edge_values import EdgeValues


class InconsistentError(ValueError):
    """The derived pieces do not fit into one order: nothing of them can be trusted."""


@dataclass(slots=True)
class _Part:
    """A node to be placed, the values it needs, and those it gives."""

    nodes: list[Node]
    needs: list[str]
    gives: list[str] = field(default_factory=list)


def rebuild(method: Method, edge: Graph, derived: Derived) -> Graph:
    """The lowered graph of a method.

    Raises
    ------
    InconsistentError
        If what was derived contradicts itself.
    """
    values = EdgeValues(edge)
    graph = Graph(method.name, inputs=list(edge.inputs), outputs=list(edge.outputs), mutations=dict(edge.mutations))
    kernels = {call.index: str(call.operator) for call in method.instructions if call.kind == "kernel"}
    inside = {node.name for nodes in derived.insides.values() for node in nodes}
    parts: list[_Part] = []
    claimed: set[str] = set()
    conditions = [replace(node) for node in values.nodes.values() if node.target == "cond"]
    graph.subgraphs = {name: _copy(edge.subgraphs[name]) for node in conditions for name in node.subgraphs}
    graph.nodes = conditions
    branched = number_branches(graph, method)
    for call in method.instructions:
        if call.index in branched:
            continue
        if call.kind == "delegate" and call.index in derived.insides:
            backend = method.backend(call) or ""
            parts.append(_delegate(graph, values, derived, call.index, len(call.outputs), backend))
        elif call.kind == "delegate":
            part = _observed(graph, derived, call.index, len(call.outputs), method.backend(call) or "")
            parts.append(part or _unknown(graph, call.index, "delegate", method.backend(call) or ""))
        elif call.index in derived.written_back:
            parts.append(_write_back(edge, derived.written_back[call.index], call.index))
        elif call.index in derived.operators:
            node = derived.operators[call.index]
            if node.name in claimed or node.name in inside:
                raise InconsistentError(f"{node.name} is claimed twice")
            claimed.add(node.name)
            parts.append(_operator(values, replace(node, instruction=call.index, kernel=kernels[call.index])))
        elif call.kind == "kernel":
            parts.append(_unknown(graph, call.index, kernels[call.index]))
    rest = [n for n in values.nodes.values() if n.name not in claimed and n.name not in inside]
    parts.extend(_operator(values, replace(node, instruction=-1)) for node in rest)
    graph.nodes = _ordered(parts, {i.name for i in edge.inputs})
    for name in [*refs(graph.outputs), *graph.mutations.values()]:
        if name not in {n.name for n in graph.nodes} and name not in {i.name for i in graph.inputs}:
            raise InconsistentError(f"the output {name} is computed by nothing")
    return graph


def _copy(graph: Graph) -> Graph:
    return replace(graph, nodes=[replace(node) for node in graph.nodes])


def _write_back(edge: Graph, value: str, instruction: int) -> _Part:
    target = next(buffer for buffer, source in edge.mutations.items() if source == value)
    buffer = next(i.name for i in edge.inputs if i.target == target)
    node = Node(
        f"instruction_{instruction}",
        "aten.copy_.default",
        (Ref(buffer), Ref(value)),
        instruction=instruction,
        kernel="aten::copy_",
    )
    return _Part([node], [buffer, value], [node.name])


def _operator(values: EdgeValues, node: Node) -> _Part:
    names = values.outputs[node.name]
    items = [
        Node(name, "getitem", (Ref(node.name), i), outputs=(values.metas.get(name),))
        for i, name in enumerate(names)
        if name != node.name
    ]
    return _Part([node, *items], list(refs((node.args, node.kwargs))), [node.name, *(n.name for n in items)])


def _delegate(
    graph: Graph, values: EdgeValues, derived: Derived, instruction: int, outputs: int, backend: str
) -> _Part:
    nodes, inputs = derived.insides[instruction], derived.inputs[instruction]
    names = [derived.values[instruction, k] for k in range(outputs)]
    subgraph = Graph(f"lowered_module_{len(graph.subgraphs)}", backend_id=backend)
    own = {name for node in nodes for name in (node.name, *values.outputs[node.name])}
    known = {i.name: i for i in graph.inputs}
    subgraph.inputs = [Input(name, "user", meta=values.metas.get(name)) for name in dict.fromkeys(inputs)]
    needed = dict.fromkeys(n for node in nodes for n in refs((node.args, node.kwargs)))
    subgraph.inputs += [known[n] for n in needed if n in known and n not in inputs and n not in own]
    for node in nodes:
        subgraph.nodes.extend(_operator(values, replace(node, instruction=-1)).nodes)
    subgraph.outputs = [Ref(name) for name in names]
    graph.subgraphs[subgraph.name] = subgraph
    call = _call(instruction, "delegate", inputs, names, values.metas, subgraph.name)
    items = [Node(n, "getitem", (Ref(call.name), i), outputs=(values.metas.get(n),)) for i, n in enumerate(names)]
    return _Part([call, *items], list(inputs), [call.name, *names])


def _observed(graph: Graph, derived: Derived, instruction: int, outputs: int, backend: str) -> _Part | None:
    names = [derived.values.get((instruction, k)) for k in range(outputs)]
    found = [name for name in names if name is not None]
    if len(found) != outputs:
        return None
    subgraph = Graph(f"lowered_module_{len(graph.subgraphs)}", backend_id=backend)
    graph.subgraphs[subgraph.name] = subgraph
    call = _call(instruction, OBSERVED, found, found, {}, subgraph.name)
    return _Part([call], found, [call.name])


def _unknown(graph: Graph, instruction: int, kernel: str, backend: str = "") -> _Part:
    """An instruction of which nothing is known but that it is there."""
    node = Node(f"instruction_{instruction}", OBSERVED, instruction=instruction, kernel=kernel)
    if kernel == "delegate":
        subgraph = Graph(f"lowered_module_{len(graph.subgraphs)}", backend_id=backend)
        graph.subgraphs[subgraph.name] = subgraph
        node.subgraphs = (subgraph.name,)
    return _Part([node], [], [node.name])


def is_complete(graph: Graph) -> bool:
    """True if every instruction, and the inside of every delegate, is known."""
    return all(node.target != OBSERVED for node in graph.nodes)


def _call(
    instruction: int,
    target: str,
    args: Sequence[str],
    outputs: Sequence[str],
    metas: Mapping[str, Meta | None],
    name: str,
) -> Node:
    return Node(
        f"instruction_{instruction}",
        target,
        tuple(Ref(arg) for arg in dict.fromkeys(args)) if target == "delegate" else tuple(map(Ref, args)),
        outputs=tuple(metas.get(output) for output in outputs),
        instruction=instruction,
        kernel="delegate",
        subgraphs=(name,),
    )


def _ordered(parts: Sequence[_Part], given: set[str]) -> list[Node]:
    """Place the parts so that each value is made before it is used; calls keep the program's order."""
    maker = {name: index for index, part in enumerate(parts) for name in part.gives}
    nodes: list[Node] = []
    state = [0] * len(parts)
    for start in range(len(parts)):
        stack = [start]
        while stack:
            at = stack[-1]
            if state[at] == 2:
                stack.pop()
                continue
            open_needs = [maker[n] for n in parts[at].needs if n not in given and n in maker and state[maker[n]] != 2]
            if not open_needs:
                nodes.extend(parts[at].nodes)
                state[at] = 2
                stack.pop()
            elif state[at] == 1 and any(state[n] == 1 for n in open_needs):
                raise InconsistentError("the calls need each other's values")
            else:
                state[at] = 1
                stack.extend(open_needs)
    return nodes
