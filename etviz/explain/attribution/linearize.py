"""The reference in float64 with a gradient, and the difference that each instruction introduced.

Derivatives halfway between reference and runtime give the difference of an operator's outputs up to the third order; at
the reference only up to the second (midpoint rule).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import torch

from etviz.errors import EtvizError, FileChangedError, PairingError
from etviz.evaluation.interludes import TURN, Exchange, Interlude, Turn
from etviz.evaluation.interludes import Turns as CallTurns
from etviz.evaluation.interpreter import State
from etviz.evaluation.limits import nbytes
from etviz.evaluation.rounds import Course, Turns, stacked
from etviz.evaluation.values import Logged, flat_values
from etviz.explain.attribution.affine_end import AffineEnd, affine_end
from etviz.explain.attribution.differences import dot, narrowed
from etviz.explain.attribution.float64 import Float64, rounds
from etviz.explain.attribution.wide_constants import widen
from etviz.graph.ir import LOOPS, OBSERVED, Graph, Node, Ref, refs
from etviz.graph.loops import body_of
from etviz.graph.uses import item_of, only_moves
from etviz.tensors.blocks import equal
from etviz.tensors.finite import has_nonfinite

NEAR: Final = 1e-4
"""Threshold of the relative L2 distance of runtime and reference for derivatives at the halfway point."""
_SMALLEST, _LARGEST = 1e-30, 1e30
"""Differences between them are kept as float32."""


@dataclass(slots=True)
class NodeValues:
    """The values of one node; `middle` carries the gradient and equals `reference` if `near`.

    Bits of contributions: `reach`, on which this value depends; `rounded`, which pass a rounding on their way here;
    `parts`, `reach` by output.
    """

    reference: Any
    runtime: Any
    middle: Any
    near: bool = True
    reach: int = 0
    rounded: int = 0
    parts: tuple[int, ...] = ()

    @classmethod
    def same(cls, value: Any) -> NodeValues:
        return cls(value, value, value)

    @classmethod
    def of_list(cls, outs: Sequence[NodeValues]) -> NodeValues:
        lanes = cls([out.reference for out in outs], [out.runtime for out in outs], [out.middle for out in outs])
        lanes.near = all(out.near for out in outs)
        if all(out.runtime is out.reference for out in outs):
            lanes.runtime = lanes.reference
        lanes.parts = tuple(out.reach for out in outs)
        for out in outs:
            lanes.reach |= out.reach
            lanes.rounded |= out.rounded
        return lanes

    def item(self, at: int) -> NodeValues:
        reach = self.parts[at] if at < len(self.parts) else self.reach
        return NodeValues(self.reference[at], self.runtime[at], self.middle[at], self.near, reach, self.rounded)


@dataclass(slots=True)
class Contribution:
    """One output of an instruction; instruction −1 is a mutable buffer as earlier executions left it.

    `turn` is its execution in a loop. `difference` is runtime − local value, None if unknown (`problem`) or without a
    gradient (`replacement`: ``(where, runtime)`` of differing integers). `size` is its norm over the value's, or the
    share of differing integers. `influence` is Σ gradient · difference. `gradient` is kept for mutable buffers alone.
    """

    instruction: int
    output: int
    turn: int
    bit: int
    difference: torch.Tensor | None = None
    replacement: tuple[torch.Tensor, torch.Tensor] | None = None
    size: float = 0.0
    problem: str = ""
    excluded: int = 0
    influence: float | None = None
    gradient: torch.Tensor | None = None

    @property
    def key(self) -> tuple[int, int]:
        return self.instruction, self.output

    def measure(self, runtime: torch.Tensor, local: torch.Tensor, *, likely: bool = True) -> None:
        """With an unlikely difference, its elements are written only if there is one."""
        if not runtime.is_floating_point():
            where = runtime != local
            self.size = int(where.count_nonzero()) / max(1, where.numel())
            self.replacement = (where, runtime) if self.size else None
            return
        found = narrowed(runtime, local, wanted=likely)
        if found.largest == 0.0:
            return
        found = found if likely else narrowed(runtime, local)
        if not math.isfinite(found.largest):
            finite = torch.isfinite(runtime - local)
            same = (runtime == local) | (runtime.isnan() & local.isnan())
            self.excluded += int((~finite & ~same).sum())
            runtime, local = torch.where(finite, runtime, 0.0), torch.where(finite, local, 0.0)
            found = narrowed(runtime, local)
        self.size = found.norm / found.of_base if found.of_base else found.largest
        self.difference = found.value if _SMALLEST < found.largest < _LARGEST else runtime - local

    def collect(self, gradient: torch.Tensor | None) -> torch.Tensor | None:
        if gradient is None:
            return None
        clean = None
        influence = dot(gradient, self.difference) if self.difference is not None else 0.0
        if not math.isfinite(influence) or (self.difference is None and has_nonfinite(gradient)):
            finite = torch.isfinite(gradient)
            self.excluded += int((~finite).sum())
            gradient = clean = torch.where(finite, gradient, 0.0)
            influence = dot(gradient, self.difference) if self.difference is not None else 0.0
        if self.difference is not None:
            self.influence = influence + (self.influence or 0.0)
        if self.instruction < 0:
            self.gradient = gradient if self.gradient is None else self.gradient + gradient
        return clean

    def leave(self, arriving: Any, gradient: torch.Tensor) -> None:
        """Subtract what arrives at the affine end."""
        self.influence = (self.influence or 0.0) - dot(gradient, arriving)

    def inject(self, value: Any) -> Any:
        other = self.replacement[1] if self.replacement is not None else self.difference
        if other is None:
            return value
        if not isinstance(value, torch.Tensor) or value.shape != other.shape:
            kind = f"the shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else f"{type(value).__name__}"
            raise PairingError(f"The reference's value has {kind} where the difference has {tuple(other.shape)}")
        return torch.where(self.replacement[0], other, value) if self.replacement is not None else value + other


@dataclass(slots=True)
class Linearization:
    """Mutable buffers: `found` as earlier executions left them, `left` as this one leaves them.

    `whole` contributions have the runtime's difference to the reference; what arrives at their affine end leaves their
    influence.
    """

    contributions: list[Contribution] = field(default_factory=list)
    outputs: list[NodeValues] = field(default_factory=list)
    found: dict[str, Contribution] = field(default_factory=dict)
    left: dict[str, NodeValues] = field(default_factory=dict)
    missing: set[int] = field(default_factory=set)
    whole: list[Contribution] = field(default_factory=list)
    turns: Counter[tuple[int, int]] = field(default_factory=Counter)


class Linearizer:
    """Walks one method; stateful executions follow one another on the same object.

    `step` is called after each node, and when a gradient returns to a logged value.
    """

    def __init__(
        self,
        graph: Graph,
        float64: Float64,
        step: Callable[[], None] = lambda: None,
        turns: CallTurns = MappingProxyType({}),
    ) -> None:
        self.graph = graph
        self.float64 = float64
        self.step = step
        self.turns = turns
        self._exchange = Exchange()
        self.begun: tuple[State, list[Any]] = ({}, [])
        self.reference_state: State = {}
        self._runtime_state: State = {}
        self._middle_state: State = {}
        self._found = Linearization()
        self._gradients = True
        self._ends: dict[tuple[int, frozenset[str]], tuple[Node, AffineEnd | None]] = {}
        self.each_difference = False

    def run(self, inputs: Sequence[Any], logged: Logged, *, gradients: bool = True) -> Linearization:
        """Without `gradients`, only the mutable buffers are brought up to date."""
        number = self.reference_state.get(TURN, 0)
        turn = self.turns.get(number, Turn())
        for call in turn.before:
            self._beside(call)
        self._found, self._gradients, self._exchange = Linearization(), gradients, turn.exchange
        self._middle_state = dict(self.reference_state)
        takes = self._exchange.takes
        pairs = zip(self.graph.user_inputs(), inputs, strict=False)
        referred = [self.reference_state[takes[item.name]] if item.name in takes else value for item, value in pairs]
        self.begun = dict(self.reference_state), referred
        with torch.no_grad(), self.float64.constants.compact(self.float64.again):
            env = self._bind(self.graph, [NodeValues.same(widen(value)) for value in inputs])
            env |= {name: self._buffer(key) for name, key in takes.items()}
            self._walk(self.graph, env, logged)
            self._found.outputs = [self._look_up(env, out) for out in self.graph.outputs]
            self._found.left = {target: self._look_up(env, Ref(name)) for target, name in self.graph.mutations.items()}
            self._found.left |= {key: self._found.outputs[at] for at, key in self._exchange.gives.items()}
            for target, lanes in self._found.left.items():
                self.reference_state[target], self._runtime_state[target] = lanes.reference, lanes.runtime
        self.reference_state[TURN] = self._runtime_state[TURN] = number + 1
        return self._found

    def _beside(self, call: Interlude) -> None:
        evaluator = call.evaluator
        float64 = Float64(evaluator.constants, evaluator.limits, evaluator.graph)
        other = Linearizer(evaluator.graph, float64, self.step, {0: Turn(exchange=call.exchange)})
        begun = {name: widen(value) for name, value in evaluator.runtime_state.items()}
        other.states = call.there(self.reference_state), begun | call.there(self._runtime_state)
        other.run(call.inputs, call.logged, gradients=False)
        for state, theirs in zip((self.reference_state, self._runtime_state), other.states, strict=True):
            call.leave(state, theirs)

    @property
    def states(self) -> tuple[State, State]:
        return dict(self.reference_state), dict(self._runtime_state)

    @states.setter
    def states(self, states: tuple[State, State]) -> None:
        self.reference_state, self._runtime_state = map(dict, states)

    def _bind(self, graph: Graph, given: Sequence[NodeValues]) -> dict[str, NodeValues]:
        self.float64.state = {}
        env = {name: NodeValues.same(value) for name, value in self.float64.bind(graph, ()).items()}
        env |= {placeholder.name: lanes for placeholder, lanes in zip(graph.user_inputs(), given, strict=False)}
        known = (item for item in graph.inputs if item.kind != "user" and item.target in self.reference_state)
        return env | {placeholder.name: self._buffer(placeholder.target) for placeholder in known}

    def _buffer(self, target: str) -> NodeValues:
        reference, runtime = self.reference_state[target], self._runtime_state[target]
        lanes = NodeValues(reference, runtime, reference)
        if self._gradients and runtime is not reference and runtime.shape == reference.shape:
            contribution = self._contribution(-1, len(self._found.contributions))
            contribution.measure(runtime, reference)
            self._found.found[target] = contribution
            lanes.middle, lanes.near = self._link(contribution, lanes, near=True)
            lanes.reach = contribution.bit
        return lanes

    def _look_up(self, env: dict[str, NodeValues], leaf: Any) -> NodeValues:
        if not isinstance(leaf, Ref):
            return NodeValues.same(leaf)
        lanes = env[leaf.name]
        value = self.float64.look_up({leaf.name: lanes.reference}, leaf)
        return lanes if value is lanes.reference else NodeValues.same(value)

    def _walk(self, graph: Graph, env: dict[str, NodeValues], logged: Logged) -> None:
        last = self.float64.last_uses(graph)
        for node in graph.nodes:
            if node.target == "cond":
                env[node.name] = self._branch(graph, node, env, logged)
            elif node.target in LOOPS:
                env[node.name] = self._rounds(graph, node, env, logged)
            elif (item := item_of(node)) is not None:
                env[node.name] = self._look_up(env, node.args[0]).item(item[1])
            elif node.target == OBSERVED:
                env.update(self._observed(node, env, logged))
                env[node.name] = NodeValues.same(None)
            else:
                env[node.name] = self._call(graph, node, env, logged)
            for name in last.get(node.name, ()):
                env.pop(name, None)
            self.step()

    def _branch(self, graph: Graph, node: Node, env: dict[str, NodeValues], logged: Logged) -> NodeValues:
        predicate, operands = node.args
        branch = self.float64.taken(graph, node, self._look_up(env, predicate).reference)
        inner = self._bind(branch, [self._look_up(env, leaf) for leaf in operands])
        self._walk(branch, inner, logged)
        return NodeValues.of_list([self._look_up(inner, out) for out in branch.outputs])

    def _rounds(self, graph: Graph, node: Node, env: dict[str, NodeValues], logged: Logged) -> NodeValues:
        body, turns = body_of(graph, node), logged if isinstance(logged, Turns) else Turns(logged)
        carries, rows, operands = ([self._look_up(env, leaf) for leaf in part] for part in node.args)
        course = Course(carries, rows, operands)
        for at in range(len(course.rows[0].reference)):
            given = [*course.carries, *course.rows, *course.operands, NodeValues.same(at)]
            inner = self._bind(body, given)
            self._walk(body, inner, turns)
            course.end([self._look_up(inner, out) for out in body.outputs])
        with torch.set_grad_enabled(self._gradients):
            return NodeValues.of_list([*course.carries, *map(_stacked, course.results)])

    def _call(self, graph: Graph, node: Node, env: dict[str, NodeValues], logged: Logged) -> NodeValues:
        given = {name: self._look_up(env, Ref(name)) for name in node.reads()}
        stateful = node.target == "delegate" and bool(graph.inside(node).mutations)
        near = all(lanes.near for lanes in given.values()) and not stateful
        names = ["middle"] if near else ["middle", "reference"]
        moved = stateful or any(lanes.runtime is not lanes.reference for lanes in given.values())
        states = {"middle": self._middle_state, "reference": self.reference_state, "runtime": self._runtime_state}

        runtime = logged(node)
        if near and moved and self._gradients and not self.each_difference:
            lanes = self._affinely(graph, node, given, runtime)
            if lanes is not None:
                self._depend(graph, node, lanes, given, [True])
                return lanes

        def evaluate(*names: str) -> list[Any]:
            lanes = [({n: getattr(value, name) for n, value in given.items()}, states[name]) for name in names]
            return self.float64.side_by_side(graph, node, lanes, gradients=self._gradients and names[0] == "middle")

        problem, local = "", None
        with torch.set_grad_enabled(self._gradients):
            try:
                values = evaluate(*names, *(["runtime"] if moved and not stateful else []))
            except FileChangedError:
                raise
            except EtvizError:  # say which lane it is that fails
                values = evaluate(*names)
            if moved and len(values) == len(names):
                try:
                    values += evaluate("runtime")
                except FileChangedError:
                    raise
                except EtvizError as error:
                    problem = f"the operator fails on the runtime's inputs: {error}"
        middle = values[0]
        reference = _detached(middle) if near else values[1]
        local = values[-1] if moved and not problem else None if problem else reference
        computed = NodeValues(reference, local, middle, near)
        lanes = self._finish(node, computed, runtime, problem, list(given.values()))
        self._depend(graph, node, lanes, given, _passing(computed))
        return lanes

    def _affinely(self, graph: Graph, node: Node, given: dict[str, NodeValues], logged: Any) -> NodeValues | None:
        """Leave the affine end out on the runtime's inputs; None if it is needed there."""
        differ = frozenset(name for name, lanes in given.items() if lanes.runtime is not lanes.reference)
        if (id(node), differ) not in self._ends:
            self._ends[id(node), differ] = node, affine_end(graph, node, differ)
        end = self._ends[id(node), differ][1]
        if end is None or logged is None or len(logged) != 1 or not isinstance(logged[0], torch.Tensor):
            return None
        lanes = {n: v.middle for n, v in given.items()}, {n: v.runtime for n, v in given.items()}
        with torch.enable_grad():
            try:
                value, entering = self.float64.before_end(graph, node, end, lanes, self._middle_state)
            except FileChangedError:
                raise
            except EtvizError:
                return None
        (middle,), (runtime,) = flat_values(value), logged
        if not all(_is_comparable(*pair) for pair in [(middle, runtime), *entering]):
            return None
        whole, arriving = narrowed(runtime, middle), [(one, narrowed(other, one)) for one, other in entering]
        moving = [(one, found) for one, found in arriving if found.largest]
        if not all(_SMALLEST < found.largest < _LARGEST for _, found in [*moving, (middle, whole)]):
            return None
        if not all(one.requires_grad for one, _ in moving):
            return None
        contribution = self._contribution(node.instruction, 0)
        contribution.difference, contribution.size = whole.value, whole.norm / (whole.of_base or 1.0)
        self._found.whole.append(contribution)
        for one, found in moving:
            one.register_hook(partial(contribution.leave, found.value))
        out = NodeValues(middle.detach(), runtime.double(), middle, reach=contribution.bit)
        is_near = whole.norm <= NEAR * whole.of_base
        out.middle, out.near = self._link(contribution, out, near=True, unshifted=is_near)
        return NodeValues.of_list([out]) if isinstance(value, (list, tuple)) else out

    def _depend(
        self, graph: Graph, node: Node, lanes: NodeValues, given: dict[str, NodeValues], passes: list[bool]
    ) -> None:
        before = _union(given.values())
        for used in given.values():
            lanes.rounded |= used.rounded
        if _rounds(graph, node):
            lanes.rounded |= before
        if any(passes):
            lanes.reach |= before
        sources = [given] * len(lanes.parts)
        if node.target == "delegate":
            leading = _leading_to(graph.inside(node))
            sources = [{name: given[name] for at in ways for name in refs(node.args[at])} for ways in leading]
        lanes.parts = tuple(
            part | _union(names.values()) if go else part
            for part, names, go in zip(lanes.parts, sources, passes, strict=False)
        )

    def _finish(
        self, node: Node, computed: NodeValues, logged: Any, problem: str, given: Sequence[NodeValues]
    ) -> NodeValues:
        references, middles = flat_values(computed.reference), flat_values(computed.middle)
        locals_ = flat_values(computed.runtime) if computed.runtime is not None else [None] * len(references)
        if logged is None or len(logged) != len(references):
            self._found.missing |= {node.instruction} - {-1}
            logged = [None] * len(references)
        outs = []
        for output, (ref, loc, mid, run) in enumerate(zip(references, locals_, middles, logged, strict=True)):
            value, contribution = self._runtime_value(node, output, ref, loc, run, problem)
            out = NodeValues(ref, value, mid)
            moved = value is loc and only_moves(node) and [nbytes(lanes.reference) for lanes in given] == [nbytes(ref)]
            out.middle, out.near = self._link(contribution, out, near=computed.near, unshifted=moved)
            if contribution is not None:
                out.reach = contribution.bit
            outs.append(out)
        return NodeValues.of_list(outs) if isinstance(computed.reference, (list, tuple)) else outs[0]

    def _observed(self, node: Node, env: dict[str, NodeValues], logged: Logged) -> dict[str, NodeValues]:
        """If a delegate's inside is uncertain, its outputs replace the values that its arguments name."""
        names = list(refs(node.args))
        runtime = logged(node) if names else None
        if runtime is None or len(runtime) != len(names):
            self._found.missing.add(node.instruction)
            return {}
        outs: dict[str, NodeValues] = {}
        for output, (name, run) in enumerate(zip(names, runtime, strict=True)):
            old = env[name]
            value, contribution = self._runtime_value(node, output, old.reference, old.runtime, run, "")
            outs[name] = lanes = replace(old, runtime=value, parts=())
            if contribution is not None:
                lanes.middle, lanes.near = self._link(contribution, lanes, near=old.near)
                lanes.reach |= contribution.bit
        return outs

    def _runtime_value(
        self, node: Node, output: int, reference: Any, local: Any, logged: Any, problem: str
    ) -> tuple[Any, Contribution | None]:
        computed = local if local is not None else reference
        if not isinstance(logged, torch.Tensor) or not isinstance(reference, torch.Tensor):
            return computed, None
        if logged.shape != reference.shape:
            return computed, None
        wide = torch.float64 if reference.is_floating_point() else reference.dtype
        if not self._gradients:
            return logged.to(wide), None
        value = logged if logged.dtype == torch.float32 and wide == torch.float64 else logged.to(wide)
        contribution = self._contribution(node.instruction, output)
        if not isinstance(local, torch.Tensor) or local.shape != value.shape:
            contribution.problem = problem or "its shape on the runtime's inputs differs"
        else:
            contribution.measure(value, local, likely=not only_moves(node))
            if contribution.difference is None and contribution.replacement is None:
                value = local  # the same object tells that nothing differs
        return value.to(wide), contribution

    def _contribution(self, instruction: int, output: int) -> Contribution:
        turn = self._found.turns[instruction, output]
        self._found.turns[instruction, output] += 1
        contribution = Contribution(instruction, output, turn, 1 << len(self._found.contributions))
        self._found.contributions.append(contribution)
        return contribution

    def _link(
        self, contribution: Contribution | None, lanes: NodeValues, *, near: bool, unshifted: bool = False
    ) -> tuple[Any, bool]:
        """The point through which the gradient flows on, and whether it is the reference.

        `unshifted` values are as near to the reference as the value before.

        A new tensor, since one output may be computed from another.
        """
        middle = lanes.middle
        if not self._gradients:
            return middle, True
        if not isinstance(middle, torch.Tensor) or not middle.is_floating_point():
            return lanes.reference, True
        shift = None if near and unshifted else _shift(lanes.reference, lanes.runtime)
        if shift is not None or not near:
            target = lanes.reference if shift is None else lanes.reference + shift
            with torch.enable_grad():
                middle = middle + torch.nan_to_num(target - middle.detach(), 0.0, 0.0, 0.0)
        if contribution is not None and (middle.requires_grad or contribution.size):
            if not middle.requires_grad:
                middle = middle.detach().requires_grad_()
                middle.register_post_accumulate_grad_hook(_forget)
            with torch.enable_grad():
                middle = middle.view_as(middle)
            middle.register_hook(partial(_collect, self.step, contribution))
        return middle, shift is None


def _collect(
    step: Callable[[], None], contribution: Contribution, gradient: torch.Tensor | None
) -> torch.Tensor | None:
    step()
    return contribution.collect(gradient)


def _is_comparable(one: Any, other: Any) -> bool:
    tensors = isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor)
    return tensors and one.dtype == torch.float64 and other.is_floating_point() and one.shape == other.shape


def _stacked(rows: Sequence[NodeValues]) -> NodeValues:
    reference, middle = stacked([row.reference for row in rows]), stacked([row.middle for row in rows])
    same = all(row.runtime is row.reference for row in rows)
    runtime = reference if same else stacked([row.runtime for row in rows])
    lanes = NodeValues(reference, runtime, middle, all(row.near for row in rows), _union(rows))
    for row in rows:
        lanes.rounded |= row.rounded
    return lanes


def _union(lanes: Iterable[NodeValues]) -> int:
    reach = 0
    for lane in lanes:
        reach |= lane.reach
    return reach


def _rounds(graph: Graph, node: Node) -> bool:
    if node.target == "delegate":
        inner = graph.inside(node)
        return any(_rounds(inner, operator) for operator in inner.nodes)
    return rounds(node.target) and bool(node.reads())


def _leading_to(graph: Graph) -> list[set[int]]:
    known: dict[str, set[int]] = {placeholder.name: {at} for at, placeholder in enumerate(graph.user_inputs())}
    for node in graph.nodes:
        known[node.name] = {at for name in node.reads() for at in known.get(name, ())}
    return [{at for name in refs(out) for at in known.get(name, ())} for out in graph.outputs]


def _detached(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach()
    return [_detached(item) for item in value] if isinstance(value, (list, tuple)) else value


def _passing(computed: NodeValues) -> list[bool]:
    references, locals_ = flat_values(computed.reference), flat_values(computed.runtime)
    if len(locals_) != len(references):
        return [True] * len(references)
    middles = flat_values(computed.middle)
    return [
        getattr(m, "requires_grad", False) or not same(a, b, equal)
        for a, b, m in zip(references, locals_, middles, strict=True)
    ]


def same(reference: Any, runtime: Any, equal: Callable[[torch.Tensor, torch.Tensor], bool]) -> bool:
    if reference is runtime:
        return True
    if isinstance(reference, torch.Tensor) and isinstance(runtime, torch.Tensor):
        return equal(reference, runtime)
    return type(reference) is type(runtime) and bool(reference == runtime)


def _shift(reference: torch.Tensor, runtime: torch.Tensor) -> torch.Tensor | None:
    if runtime is reference or runtime.shape != reference.shape:
        return None
    found = narrowed(runtime, reference, wanted=False)
    if math.isfinite(found.largest + found.of_base):
        return None if found.norm <= NEAR * found.of_base else (runtime - reference) / 2
    shift = torch.nan_to_num(runtime - reference, 0.0, 0.0, 0.0)
    distance, scale = float(shift.norm()), float(torch.nan_to_num(reference, 0.0, 0.0, 0.0).norm())
    return None if distance <= NEAR * scale else shift / 2


def _forget(leaf: torch.Tensor) -> None:
    leaf.grad = None
