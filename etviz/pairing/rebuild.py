"""Rebuilds the lowered graph, in the form of a record, from an ETRecord's edge graph and the derived pairing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from etviz.artifacts.program.program import Instruction, Method
from etviz.graph.ir import CONTROL, OBSERVED, Graph, Input, Node, Ref
from etviz.graph.uses import items
from etviz.pairing.branches import number_branches
from etviz.pairing.derive import Derived
from etviz.pairing.edge_values import EdgeValues


class InconsistentError(ValueError):
    """The derived pieces fit into no order, so none can be trusted."""


def rebuild(method: Method, edge: Graph, derived: Derived) -> Graph:
    """Raises `InconsistentError` if the derivation contradicts itself."""
    values = derived.edge
    graph = Graph(method.name, inputs=list(edge.inputs), outputs=list(edge.outputs), mutations=dict(edge.mutations))
    inside = {node.name for nodes in derived.insides.values() for node in nodes}
    claimed: set[str] = set()
    graph.nodes = [replace(node) for node in values.operators.values() if node.target in CONTROL]
    graph.subgraphs = {name: _copy(edge.subgraphs[name]) for node in graph.nodes for name in node.subgraphs}
    branched = number_branches(graph, method)
    parts: list[list[Node]] = []
    for call in method.instructions:
        if (control := branched.get(call.index)) is not None:
            if control.name not in claimed:
                claimed.add(control.name)
                parts.append(_operator(values, control))
            continue
        if call.kind not in ("kernel", "delegate"):
            continue
        if call.index in derived.insides:
            parts.append(_delegate(graph, values, derived, call, method))
        elif call.kind == "delegate":
            names = [name for at in range(len(call.outputs)) if (name := derived.values.get((call.index, at)))]
            inner = _lowered(graph, method, call)
            parts.append([_observed(call, "delegate", names if len(names) == len(call.outputs) else (), inner)])
        elif call.index in derived.written_back:
            parts.append([_write_back(edge, derived.written_back[call.index], call.index)])
        elif call.index in derived.operators:
            node = derived.operators[call.index]
            if node.name in claimed or node.name in inside:
                raise InconsistentError(f"{node.name} is claimed twice")
            claimed.add(node.name)
            parts.append(_operator(values, replace(node, instruction=call.index, kernel=str(call.operator))))
        else:
            parts.append([_observed(call, str(call.operator))])
    rest = [node for name, node in values.operators.items() if name not in claimed and name not in inside]
    parts.extend(_operator(values, replace(node, instruction=-1)) for node in rest)
    graph.delegated = derived.delegated.intersection(node.name for node in rest)
    graph.nodes = _ordered(parts, {placeholder.name for placeholder in edge.inputs})
    known = {part.name for part in (*graph.nodes, *graph.inputs)}
    for name in graph.results():
        if name not in known:
            raise InconsistentError(f"the output {name} is computed by nothing")
    return graph


def _copy(graph: Graph) -> Graph:
    return replace(graph, nodes=[replace(node) for node in graph.nodes])


def _write_back(edge: Graph, value: str, instruction: int) -> Node:
    target = next(buffer for buffer, source in edge.mutations.items() if source == value)
    args = (Ref(next(placeholder.name for placeholder in edge.inputs if placeholder.target == target)), Ref(value))
    name = f"instruction_{instruction}"
    return Node(name, "aten.copy_.default", args, instruction=instruction, kernel="aten::copy_")


def _operator(values: EdgeValues, node: Node) -> list[Node]:
    names = [name for name in values.given[node.name] if name != node.name]
    return [node, *items(node, names, [values.metas.get(name) for name in names])]


def _lowered(graph: Graph, method: Method, call: Instruction) -> Graph:
    number = sum(bool(known.backend_id) for known in graph.subgraphs.values())
    inner = Graph(f"lowered_module_{number}", backend_id=method.backend(call) or "")
    if call.delegate is not None and call.delegate < len(method.compile_specs):
        inner.compile_specs = list(method.compile_specs[call.delegate])
    graph.subgraphs[inner.name] = inner
    return inner


def _delegate(graph: Graph, values: EdgeValues, derived: Derived, call: Instruction, method: Method) -> list[Node]:
    nodes, inputs = derived.insides[call.index], derived.inputs[call.index]
    names = [derived.values[call.index, at] for at in range(len(call.outputs))]
    inner = _lowered(graph, method, call)
    made = {name for node in nodes for name in (node.name, *values.given[node.name])}
    known = {placeholder.name: placeholder for placeholder in graph.inputs}
    needed = dict.fromkeys(name for node in nodes for name in node.reads())
    inner.inputs = [Input(name, "user", meta=values.metas.get(name)) for name in inputs]
    inner.inputs += [known[name] for name in needed if name in known and name not in inputs and name not in made]
    inner.nodes = [part for node in nodes for part in _operator(values, replace(node, instruction=-1))]
    inner.outputs = [Ref(name) for name in names]
    node = _observed(call, "delegate", inputs, inner)
    node.target, node.outputs = "delegate", tuple(values.metas.get(name) for name in names)
    return [node, *items(node, names, node.outputs)]


def _observed(call: Instruction, kernel: str, names: Sequence[str] = (), inner: Graph | None = None) -> Node:
    return Node(
        f"instruction_{call.index}",
        OBSERVED,
        tuple(map(Ref, names)),
        outputs=(None,) * len(names),
        instruction=call.index,
        kernel=kernel,
        subgraphs=(inner.name,) if inner is not None else (),
    )


def is_complete(graph: Graph) -> bool:
    return all(node.target != OBSERVED for node in graph.nodes)


def _ordered(parts: Sequence[Sequence[Node]], given: set[str]) -> list[Node]:
    maker = {node.name: at for at, part in enumerate(parts) for node in part}
    needs = [
        [maker[name] for node in part for name in node.reads() if name not in given and maker.get(name, at) != at]
        for at, part in enumerate(parts)
    ]
    nodes: list[Node] = []
    state = [0] * len(parts)
    for start in range(len(parts)):
        stack = [start]
        while stack:
            at = stack[-1]
            if state[at] == 2:
                stack.pop()
                continue
            missing = [need for need in needs[at] if state[need] != 2]
            if not missing:
                nodes.extend(parts[at])
                state[at] = 2
                stack.pop()
            elif state[at] == 1 and any(state[need] == 1 for need in missing):
                raise InconsistentError("the calls need each other's values")
            else:
                state[at] = 1
                stack.extend(missing)
    return nodes
