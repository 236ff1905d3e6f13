"""A graph that was derived from files, as upstream has it after lowering.

Upstream lowers one delegate after the other and sorts the whole graph anew for each, first in, first out.
"""

from __future__ import annotations

import itertools
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from etviz.graph.ir import CONTROL, Graph, Input, Node, Ref
from etviz.graph.listing import BODY, WRITE, own_name
from etviz.graph.uses import Uses, item_of

_DELEGATE: Final = "executorch_call_delegate"


def as_lowered(
    graph: Graph, edge: Graph | None, by_position: Callable[[str, Any, Any], tuple[list[Any], dict[str, Any]]]
) -> Graph:
    """`graph` with the names of the lowered program, in its order if it was derived from the graph `edge`.

    `by_position` orders arguments; constants of delegates and unread items are gone.
    """
    bodies = _bodies(edge or graph)
    graph, uses = _with_bodies(graph, bodies), Uses(graph)
    kept = [node for node in graph.nodes if node.target != WRITE and (item_of(node) is None or uses.count(node.name))]
    calls = {node.name: graph.inside(node) for node in kept if node.target == "delegate"}
    items = {call: [node.name for node in kept if (item_of(node) or ("",))[0] == call] for call in calls}
    insides, inputs = {call: calls[call].nodes for call in reversed(calls)}, graph.inputs
    if edge is not None:
        edge = _with_copies(_with_bodies(edge, bodies), calls)
        (kept, insides), inputs = _sorted(edge, calls, kept), edge.inputs
    everything = [node.name for part in (kept, *insides.values()) for node in part]
    fresh = itertools.count(1 + max((_number(name) for name in everything if name.startswith("getitem")), default=-1))
    names, inside = dict[str, str](), dict(graph.subgraphs)
    constants = {placeholder.name: at for at, placeholder in enumerate(inputs) if placeholder.kind != "user"}
    for call, nodes in insides.items():
        inner = calls[call]
        nodes = [_renamed(_in_order(node, by_position), names if edge else {}) for node in nodes]
        inner_inputs = _inputs(inner, nodes, constants) if edge else inner.inputs
        inside[inner.name] = replace(inner, inputs=inner_inputs, nodes=nodes)
        names |= {name: f"getitem_{at}" if (at := next(fresh)) else "getitem" for name in items[call]}
    called = (node.name for node in kept if node.name in calls)
    names |= {name: f"{_DELEGATE}_{at}" if at else _DELEGATE for at, name in enumerate(called)}
    kept = [_renamed(_in_order(node, by_position), names) for node in kept]
    mutations = {target: names.get(name, name) for target, name in graph.mutations.items()}
    outputs = [_with_names(value, names) for value in graph.outputs]
    made = replace(graph, nodes=kept, subgraphs=inside, mutations=mutations, outputs=outputs)
    uses, taken = Uses(made), {name for nodes in insides.values() for node in nodes for name in node.reads()}
    return replace(made, inputs=[i for i in inputs if i.kind == "user" or i.name not in taken or uses.count(i.name)])


def _bodies(graph: Graph) -> dict[str, tuple[str, list[str]]]:
    number, seen, bodies = itertools.count(), Counter[str](), dict[str, tuple[str, list[str]]]()
    for node in graph.nodes:
        if node.target in CONTROL:
            name = own_name(node.target)
            numbered = f"{name}_{seen[name]}" if seen[name] else name
            bodies[node.name] = numbered, [f"submodule_{next(number)}" for _ in node.subgraphs]
            seen[name] += 1
    return bodies


def _with_bodies(graph: Graph, bodies: Mapping[str, tuple[str, list[str]]]) -> Graph:
    nodes = list[Node]()
    for node in graph.nodes:
        if node.name in bodies:
            body_refs, args = list(map(Ref, bodies[node.name][1])), node.args
            before, after = (
                ([args[0]], [list(args[1])]) if node.target == "cond" else ([], args[node.target == "map" :])
            )
            nodes.extend(Node(body.name, BODY) for body in body_refs)
            node = replace(node, args=(*before, *body_refs, *after))
        nodes.append(node)
    names = {name: new_name for name, (new_name, _) in bodies.items()}
    outputs = [_with_names(value, names) for value in graph.outputs]
    return replace(graph, nodes=[_renamed(node, names) for node in nodes], outputs=outputs)


def _with_copies(edge: Graph, calls: dict[str, Graph]) -> Graph:
    """Each further reader has a copy of a constant that delegates share, as upstream's `duplicate_constant_node`."""
    held = {placeholder.name for inner in calls.values() for placeholder in inner.inputs if placeholder.kind != "user"}
    owners = {node.name: call for call, inner in calls.items() for node in inner.nodes}
    copies, inputs = dict[str, dict[str, str]](), list[Input]()
    users = Uses(edge).users
    for placeholder in edge.inputs:
        readers = [node.name for node in users.get(placeholder.name, ())]
        if placeholder.name in held and len({owners.get(name) for name in readers}) > 1:
            for at, name in enumerate(readers[1:]):
                inputs.append(replace(placeholder, name=f"{placeholder.name}_copy_{at}"))
                copies.setdefault(name, {})[placeholder.name] = inputs[-1].name
        inputs.append(placeholder)
    nodes = [_renamed(node, copies[node.name]) if node.name in copies else node for node in edge.nodes]
    return replace(edge, inputs=inputs, nodes=nodes)


def _sorted(edge: Graph, calls: dict[str, Graph], nodes: Sequence[Node]) -> tuple[list[Node], dict[str, list[Node]]]:
    """`nodes` and each delegate's inside, in the order of lowering.

    Merging partitioners begin at the last delegate. The order of instructions has the last word.
    """
    place, known = {node.name: at for at, node in enumerate(edge.nodes)}, {node.name: node for node in edge.nodes}
    wholes = {call: {node.name for node in inner.nodes} for call, inner in calls.items()}
    by_name = {node.name: known.get(node.name, node) for node in nodes}
    by_name |= {node.name: node for node in nodes if (item_of(node) or ("",))[0] in calls}
    run = [node.name for node in nodes if node.instruction >= 0]
    spans = {call: [place[name] for name in whole] or [0] for call, whole in wholes.items()}
    ways = [sorted(wholes, key=lambda call: -max(spans[call])), sorted(wholes, key=lambda call: min(spans[call]))]
    for tags in ways[:: -1 if _is_unmerged(edge, calls) else 1]:
        order, insides = _lower(edge, {call: wholes[call] for call in tags})
        at = {name: number for number, name in enumerate(order)}
        if by_name.keys() <= at.keys() and run == sorted(run, key=at.__getitem__):
            break
    else:
        order, insides = list(by_name), {call: sorted(wholes[call], key=place.__getitem__) for call in reversed(calls)}
    inside = {call: [known[name] for name in names] for call, names in insides.items()}
    return [by_name[name] for name in order if name in by_name], inside


def _is_unmerged(edge: Graph, calls: dict[str, Graph]) -> bool:
    makers = {node.name: call for call, inner in calls.items() for node in inner.nodes}
    given = {placeholder.name for placeholder in edge.inputs}
    for inner in calls.values():
        sources = {makers.get(placeholder.name, "") for placeholder in inner.inputs if placeholder.name not in given}
        if len(sources) == 1 and (one := calls.get(sources.pop())) and one.backend_id == inner.backend_id:
            return True
    return False


def _lower(edge: Graph, wholes: Mapping[str, set[str]]) -> tuple[list[str], dict[str, list[str]]]:
    results, inputs, insides = edge.results(), [placeholder.name for placeholder in edge.inputs], dict[str, list[str]]()
    order, reads = [node.name for node in edge.nodes], {node.name: node.reads() for node in edge.nodes}
    for call, whole in wholes.items():
        insides[call] = [name for name in order if name in whole]
        rest = [name for name in order if name not in whole]
        wanted = set(results).union(*(reads[name] for name in rest))
        given = [name for name in insides[call] if name in wanted]
        at = sum(name not in whole for name in order[: order.index(given[-1])]) if given else 0
        taken = tuple(dict.fromkeys(value for name in insides[call] for value in reads[name] if value not in whole))
        reads = {name: reads[name] for name in rest} | {call: taken} | dict.fromkeys(given, (call,))
        users: dict[str, dict[str, None]] = {value: {} for value in (*inputs, *reads)}
        for name in (*rest, call):
            for value in reads[name]:
                users[value][name] = None
        for user in [user for value in given for user in users[value]]:  # a user of a replaced input is filed anew
            for value in reads[user]:
                users[value][user] = users[value].pop(user, None)
        users[call] = dict.fromkeys(given)
        left = {name: len(set(values)) for name, values in reads.items()}
        queue = deque(n for n in (*inputs, *rest[:at], call, *given, *rest[at:]) if not left.get(n))
        order = []
        while queue:
            order.append(name := queue.popleft())
            for user in users[name]:
                left[user] -= 1
                if not left[user]:
                    queue.append(user)
        order = [name for name in order if name in reads]
    return order, insides


def _inputs(inner: Graph, nodes: Sequence[Node], constants: Mapping[str, int]) -> list[Input]:
    handed, made = {item.name for item in inner.inputs if item.kind == "user"}, {node.name for node in nodes}
    taken = dict.fromkeys(name for node in nodes for name in node.reads() if name not in made)
    places = {name: at for name, at in constants.items() if name not in handed}
    return [Input(name, "user") for name in sorted(taken, key=lambda name: places.get(name, len(constants)))]


def _number(name: str) -> int:
    last = name.rpartition("_")[2]
    return int(last) if last.isdecimal() else 0


def _in_order(node: Node, by_position: Callable[[str, Any, Any], tuple[list[Any], dict[str, Any]]]) -> Node:
    if not node.kwargs or "." not in node.target:
        return node
    args, kwargs = by_position(node.target, node.args, node.kwargs)
    return replace(node, args=tuple(args), kwargs=kwargs)


def _renamed(node: Node, names: Mapping[str, str]) -> Node:
    args, kwargs = _with_names(node.args, names), {key: _with_names(value, names) for key, value in node.kwargs.items()}
    return replace(node, name=names.get(node.name, node.name), args=args, kwargs=kwargs)


def _with_names(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, Ref):
        return Ref(names.get(value.name, value.name))
    return type(value)(_with_names(item, names) for item in value) if isinstance(value, (list, tuple)) else value
