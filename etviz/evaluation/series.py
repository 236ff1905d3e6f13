"""Calls of a method that follow one another, evaluated operator by operator with the calls as a further axis."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

import torch

from etviz.evaluation.evaluator import Scope, check_result
from etviz.evaluation.several import Several, further_axis, over_axis
from etviz.evaluation.threads import threads_for
from etviz.evaluation.unpacked import elements
from etviz.graph.ir import CONTROL, Graph, Node, Ref, refs
from etviz.graph.uses import gives_number, is_stateful

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from etviz.evaluation.evaluator import Evaluator
    from etviz.evaluation.several import Axis

logger = logging.getLogger(__name__)
_TOGETHER: Final = 256 << 20
"""Maximum bytes of the values of calls that are evaluated at once."""
_BYTES: Final = 4
"""Of an element of a value."""


class Listener(Protocol):
    """See `etviz.evaluation.noise.Samples`."""

    values: Any

    def wants(self, node: Node) -> bool: ...

    def see(self, lanes: Any, node: Node, value: Any, perturbed: Any) -> None: ...

    def snapshot(self) -> Any: ...


class OfCalls:
    """A tensor or number in several calls; tensors have the calls as first axis where they can."""

    __slots__ = ("_each", "_whole")

    def __init__(self, each: Sequence[Any], whole: torch.Tensor | Several | None = None) -> None:
        self._each, self._whole = each, whole

    def __getitem__(self, call: int) -> Any:
        if not self._each:
            whole = self._whole
            each = whole.stacked.unbind() if isinstance(whole, Several) else whole.unbind() if whole is not None else ()
            self._each = [Several((), part) for part in each] if isinstance(whole, Several) else each
        return self._each[call]

    @property
    def whole(self) -> torch.Tensor | Several:
        """Raises `TypeError` or `RuntimeError` for numbers, and where shapes or types differ."""
        if self._whole is None:
            lanes = [value.stacked for value in self._each if isinstance(value, Several)]
            each = lanes or list(self._each)
            if any(value.dtype != each[0].dtype for value in each if isinstance(value, torch.Tensor)):
                raise TypeError("the type of a value differs between calls")
            self._whole = Several((), torch.stack(each)) if lanes else torch.stack(each)
        return self._whole


def of_calls(values: Sequence[Any]) -> Any:
    """From the values of all calls; what all of them share stays as it is."""
    first = values[0]
    if isinstance(first, (list, tuple)):
        return [of_calls(items) for items in zip(*values, strict=True)]
    number = not isinstance(first, (torch.Tensor, Several))
    if all(value is first or (number and type(value) is type(first) and value == first) for value in values):
        return first
    return OfCalls(values)


def in_call(value: Any, call: int) -> Any:
    if isinstance(value, OfCalls):
        return value[call]
    return [in_call(item, call) for item in value] if isinstance(value, (list, tuple)) else value


@dataclass(frozen=True, slots=True)
class InCall:
    """One call's part of the values of several; `beside` evaluates other graphs on a delegate's inputs in all calls."""

    env: Mapping[str, Any]
    call: int
    beside: Callable[[Graph, Node], list[Any]]

    def inside(self, inner: Graph, node: Node) -> list[Any]:
        return in_call(self.beside(inner, node), self.call)

    def __getitem__(self, name: str) -> Any:
        return in_call(self.env[name], self.call)

    def __contains__(self, name: str) -> bool:
        return name in self.env


def _differs(value: Any) -> bool:
    return any(map(_differs, value)) if isinstance(value, (list, tuple)) else isinstance(value, OfCalls)


@dataclass(frozen=True, slots=True)
class _Group:
    """One node, or several through which the state goes `in_turn`.

    `begins` are inputs that hold the state, `done` the names that nothing reads afterwards.
    """

    nodes: tuple[Node, ...]
    begins: tuple[str, ...]
    in_turn: bool
    done: tuple[str, ...]


def _groups(graph: Graph, ends: Mapping[str, str]) -> list[_Group]:
    """A graph's nodes, the end of a state before what reads it in the next call.

    `ends` maps the inputs that hold the state to the values that overwrite them.
    """
    nodes = {node.name: node for node in graph.nodes}
    place = {name: at for at, name in enumerate((*ends, *nodes))}
    members = _members(graph, ends, place) if ends else [[name] for name in place]
    last: dict[str, int] = {}
    for at, names in enumerate(members):
        read = (name for member in names for name in (nodes[member].reads() if member in nodes else (ends[member],)))
        last |= dict.fromkeys((*names, *read), at)
    done: dict[int, list[str]] = {}
    for name in last.keys() - {*refs(graph.outputs)}:
        done.setdefault(last[name], []).append(name)
    return [
        _Group(
            tuple(nodes[name] for name in names if name in nodes),
            tuple(name for name in names if name in ends),
            len(names) > 1,
            tuple(done.get(at, ())),
        )
        for at, names in enumerate(members)
    ]


def _members(graph: Graph, ends: Mapping[str, str], place: Mapping[str, int]) -> list[list[str]]:
    import networkx

    needs = networkx.DiGraph()
    needs.add_nodes_from(place)
    needs.add_edges_from((name, node.name) for node in graph.nodes for name in node.reads() if name in place)
    needs.add_edges_from((end, begin) for begin, end in ends.items() if end in place)
    parts = networkx.condensation(needs)
    members = [sorted(parts.nodes[at]["members"], key=place.__getitem__) for at in parts]
    order = networkx.lexicographical_topological_sort(parts, key=lambda at: place[members[at][-1]])
    return [members[at] for at in order]


Lane = dict[str, Any]


class Series:
    def __init__(self, evaluator: Evaluator) -> None:
        self.evaluator, self._graph = evaluator, evaluator.graph
        self._plans: dict[int, list[_Group]] = {}
        self._batched: dict[int, tuple[Node, Node | None]] = {}
        self._known: dict[int, tuple[Sequence[Any], list[InCall]]] = {}
        self._told: Sequence[Listener] = ()
        inputs = {placeholder.target: placeholder.name for placeholder in self._graph.inputs if placeholder.target}
        self._ends = {inputs[key]: name for key, name in self._graph.mutations.items() if key in inputs}
        self._needed = {*self._ends.values()}

    def run(self, calls: Sequence[Sequence[Any]]) -> Iterator[list[Any]]:
        """The outputs of each call, as `Evaluator.run` gives them without a replay; raises what it raises."""
        waiting = list(calls)
        while waiting:
            count, states, outputs = self._count(waiting), self.evaluator.states, None
            if count > 1:
                try:
                    outputs = self._together(waiting[:count])
                except Exception:  # one by one, the call that fails is known
                    logger.debug("%d calls are evaluated one by one", count, exc_info=True)
                    self.evaluator.states = states
            yield from outputs or (self.evaluator.run(inputs, replay=False) for inputs in waiting[:count])
            del waiting[:count]

    def apart(self) -> list[Node]:
        return [node for node, like in self._batched.values() if like is None]

    def _count(self, waiting: Sequence[Sequence[Any]]) -> int:
        evaluator = self.evaluator
        parts = (self._graph, *self._graph.subgraphs.values())
        single = evaluator.turns or any(node.target in CONTROL for part in parts for node in part.nodes)
        if single or not evaluator.limits.peak:
            return 1
        kinds = [_kind(inputs) for inputs in waiting[: max(1, _TOGETHER // evaluator.limits.peak)]]
        return next((at for at, kind in enumerate(kinds) if kind != kinds[0]), len(kinds))

    def look_ahead(self, number: int, calls: Sequence[Sequence[Any]], told: Sequence[Listener] = ()) -> bool:
        """Evaluate the call `number` of a program with a state, the first of `calls`, with as many as have room.

        `told`, one for each call, see its perturbed values. True if calls were evaluated.
        """
        if number in self._known or not self.evaluator.keeps_state:
            return False
        self._known = {number + at: item for at, item in enumerate(zip(calls, self._ahead(calls, told), strict=False))}
        return bool(self._known)

    def known(self, number: int, inputs: Sequence[Any]) -> list[InCall]:
        """Its plain values and the perturbed ones that are left; empty if a call so far had other inputs."""
        given, values = self._known.get(number, ((), []))
        if values and not all(a is b for a, b in zip(given, inputs, strict=True)):
            self._known, values = {}, []
        return values

    def _ahead(self, calls: Sequence[Sequence[Any]], told: Sequence[Listener]) -> list[list[InCall]]:
        nodes = [node for node in self._graph.nodes if not gives_number(node)]
        lanes = getattr(self.evaluator, "lanes", 0)
        sizes = [(1 + lanes * (node.name in self._needed), elements(meta)) for node in nodes for meta in node.outputs]
        kept = sum(times * (size or 0) for times, size in sizes) * _BYTES
        count = min(self._count(calls), _TOGETHER // max(1, kept + self.evaluator.limits.peak))
        if count < 2 or any(size is None for _, size in sizes):
            return []
        before = [samples.snapshot() for samples in told[:count]]
        try:
            self._told = told[:count]
            envs = self._evaluated(calls[:count], kept=True)
        except Exception:  # one by one, the call that fails is known
            logger.debug("%d calls are evaluated one by one", count, exc_info=True)
            for samples, values in zip(told, before, strict=False):
                samples.values = values
            return []
        finally:
            self._told = ()
        beside = partial(self._beside, envs[0], count, {})
        return [[InCall(env, at, beside) for env in envs] for at in range(count)]

    def _beside(self, env: Lane, count: int, known: dict[Any, Any], inner: Graph, node: Node) -> list[Any]:
        key = id(inner), node.name
        if key not in known:
            within = self.evaluator.bind(inner, self.evaluator.arguments(env, node)[0])
            self._walk(inner, [within], count)
            known[key] = inner, [self.evaluator.look_up(within, out) for out in inner.outputs]
        return known[key][1]

    def _together(self, calls: Sequence[Sequence[Any]]) -> Iterator[list[Any]]:
        evaluator, lanes = self.evaluator, self._evaluated(calls)
        calls_ends = (
            [{name: in_call(value, at) for name, value in lane.items()} for lane in lanes] for at in range(len(calls))
        )
        return (evaluator.end_call(*ends) for ends in calls_ends)

    def _evaluated(self, calls: Sequence[Sequence[Any]], *, kept: bool = False) -> list[Lane]:
        evaluator, graph, count = self.evaluator, self._graph, len(calls)
        evaluator.known = ()
        with threads_for(graph), torch.no_grad():
            env = evaluator.bind(graph, of_calls(calls))
            env |= {name: evaluator.look_up(env, Ref(name)) for name in self._ends}
            perturbed = evaluator.perturbed_lanes(env)
            lanes = [env] if perturbed is None else [env, perturbed]
            self._walk(graph, lanes, count, kept=kept)
        return lanes

    def _walk(self, graph: Graph, lanes: Sequence[Lane], count: int, *, kept: bool = False) -> None:
        ends = self._ends if graph is self._graph else {}
        if id(graph) not in self._plans:  # the evaluator keeps the graph, so its id stays its own
            self._plans[id(graph)] = _groups(graph, ends)
        for group in self._plans[id(graph)]:
            if group.in_turn:
                self._in_turn(graph, group, lanes, count)
            elif group.begins:
                (begin,) = group.begins
                for env in lanes:
                    env[begin] = OfCalls([env[begin], *(in_call(env[ends[begin]], at) for at in range(count - 1))])
            else:
                self._node(graph, group.nodes[0], lanes, count)
            if kept:
                self._let_go(group, *lanes)
                continue
            for name in group.done:
                for env in lanes:
                    value = env.pop(name)
                    if name in ends.values():
                        env[name] = in_call(value, count - 1)

    def _let_go(self, group: _Group, env: Lane, perturbed: Lane | None = None) -> None:
        """Tell the perturbed values; only state, outputs, and what delegates make of plain inputs is needed later."""
        if perturbed is None:
            return
        for node in group.nodes:
            for at, samples in enumerate(self._told):
                if samples.wants(node):
                    values = (in_call(lane[node.name], at) for lane in (env, perturbed))
                    samples.see(self.evaluator, node, *values)
            if node.target == "delegate" and all(env[name] is perturbed[name] for name in self.evaluator.reads(node)):
                self._needed.add(node.name)
        for name in group.done:
            if perturbed[name] is not env[name] and name not in self._needed:
                del perturbed[name]

    def _in_turn(self, graph: Graph, group: _Group, lanes: Sequence[Lane], count: int) -> None:
        names = (*group.begins, *(node.name for node in group.nodes))
        given = {name for node in group.nodes for name in node.reads()}.difference(names)
        by_lane: list[dict[str, list[Any]]] = [{name: [] for name in names} for _ in lanes]
        here: list[Lane] = []
        for at in range(count):
            ends = here or lanes
            begins = [{name: end[self._ends[name] if here else name] for name in group.begins} for end in ends]
            here = [
                begin | {name: in_call(env[name], at) for name in given}
                for env, begin in zip(lanes, begins, strict=True)
            ]
            for node in group.nodes:
                self._evaluate(graph, node, node, here)
            for values, env in zip(by_lane, here, strict=True):
                for name in names:
                    values[name].append(env[name])
        for env, values in zip(lanes, by_lane, strict=True):
            env |= {name: of_calls(each) for name, each in values.items()}

    def _node(self, graph: Graph, node: Node, lanes: Sequence[Lane], count: int) -> None:
        reads = self.evaluator.reads(node)
        if not any(_differs(env[name]) for env in lanes for name in reads):
            self._evaluate(graph, node, node, lanes)
        elif node.target == "getitem":
            for env in lanes:
                env[node.name] = self.evaluator.apply(graph, node, *self.evaluator.arguments(env, node))
        elif node.target == "delegate" and not is_stateful(graph.inside(node)):
            self._inside(graph.inside(node), node, lanes, count)
        elif not self._at_once(graph, node, lanes, count):
            by_lane: list[list[Any]] = [[] for _ in lanes]
            for at in range(count):
                here = [{name: in_call(env[name], at) for name in reads} for env in lanes]
                self._evaluate(graph, node, node, here)
                for values, env in zip(by_lane, here, strict=True):
                    values.append(env[node.name])
            for env, values in zip(lanes, by_lane, strict=True):
                env[node.name] = of_calls(values)

    def _evaluate(self, graph: Graph, node: Node, like: Node, lanes: Sequence[Lane]) -> None:
        evaluator, (env, *others) = self.evaluator, lanes
        scope = Scope(env, perturbed=others[0] if others else None)
        env[node.name] = evaluator.reference(graph, like, scope, *evaluator.arguments(env, like))
        check_result(node, env[node.name])

    def _inside(self, inner: Graph, node: Node, lanes: Sequence[Lane], count: int) -> None:
        evaluator = self.evaluator
        env = evaluator.bind(inner, evaluator.arguments(lanes[0], node)[0])
        users = [placeholder.name for placeholder in inner.user_inputs()]
        given = (evaluator.arguments(lane, node)[0] for lane in lanes[1:])
        within = [env, *(env | dict(zip(users, args, strict=False)) for args in given)]
        self._walk(inner, within, count)
        for lane, inner_env in zip(lanes, within, strict=True):
            lane[node.name] = [evaluator.look_up(inner_env, out) for out in inner.outputs]

    def _at_once(self, graph: Graph, node: Node, lanes: Sequence[Lane], count: int) -> bool:
        if id(node) not in self._batched:
            target = over_axis(node.target)
            self._batched[id(node)] = node, replace(node, target=target) if target is not None else None
        like = self._batched[id(node)][1]
        if like is None:
            return False
        try:
            with further_axis(count) as axis:
                here = [{name: _enter(env[name], axis) for name in self.evaluator.reads(node)} for env in lanes]
                for env, other in zip(here[1:], lanes[1:], strict=True):  # equal values stay the same object
                    env |= {name: here[0][name] for name in env if other[name] is lanes[0][name]}
                self._evaluate(graph, node, like, here)
                first, *others = (env[node.name] for env in here)
                values = [_left(first, axis)]
                values += [values[0] if other is first else _left(other, axis) for other in others]
        except Exception:  # in its own way
            logger.debug("%s is evaluated call by call", node.name, exc_info=True)
            self._batched[id(node)] = node, None
            return False
        for env, value in zip(lanes, values, strict=True):
            env[node.name] = value
        return True


def _enter(value: Any, axis: Axis) -> Any:
    if isinstance(value, (list, tuple)):
        return [_enter(item, axis) for item in value]
    if not isinstance(value, OfCalls):
        return value
    whole = value.whole
    return Several((), axis.enter(whole.stacked)) if isinstance(whole, Several) else axis.enter(whole)


def _left(value: Any, axis: Axis) -> Any:
    if isinstance(value, (list, tuple)):
        return [_left(item, axis) for item in value]
    if isinstance(value, Several):
        return OfCalls((), Several((), axis.leave(value.stacked))) if axis.has(value.stacked) else value
    return OfCalls((), axis.leave(value)) if axis.has(value) else value


def _kind(inputs: Sequence[Any]) -> tuple[Any, ...]:
    return tuple((item.shape, item.dtype) if isinstance(item, torch.Tensor) else type(item) for item in inputs)
