"""Evaluates a graph on the CPU, node by node, with two sets of inputs.

*Reference* values follow from the model's inputs alone. A node's *local* value is its operator's result on the
runtime's inputs; its distance to the runtime's output is what that operator introduced.
"""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any, Final

import torch

from etviz.errors import EtvizError, PairingError, UsageError
from etviz.evaluation import dynamic_quantization as dynamic
from etviz.evaluation.interludes import TURN, Interlude, Turn
from etviz.evaluation.interpreter import GraphInterpreter, Known, Prepared, State, Weight
from etviz.evaluation.language_kernels import OTHER_INPUTS
from etviz.evaluation.law import LastRounded, Sizing, noise_of, only_picks
from etviz.evaluation.limits import Limits, nbytes
from etviz.evaluation.operator_rules import UNSET, by_position
from etviz.evaluation.products import is_cut, products, weight_of
from etviz.evaluation.rounds import Course, Rounds, Turns
from etviz.evaluation.threads import threads_for
from etviz.evaluation.unpacked import Quantized
from etviz.evaluation.values import Chain, Logged, Perturbation, Seen, SeenTogether, Value, flat_values
from etviz.graph.ir import CONTROL, LOOPS, OBSERVED, Graph, Node, Ref, map_arg, refs
from etviz.graph.language_operators import LANGUAGE_OPERATORS
from etviz.graph.loops import body_of
from etviz.graph.quantize_ops import LINEAR, chooses_grid, converted, grid_arguments, is_conversion
from etviz.graph.uses import Uses, is_size, is_stateful, item_of, only_moves
from etviz.tensors.blocks import dtype_name
from etviz.tensors.metrics import AT_LEAST, BY_LAW, Noise

if TYPE_CHECKING:
    from typing_extensions import Self

    from etviz.evaluation.earlier import Multiples
    from etviz.evaluation.interludes import Turns as CallTurns

logger = logging.getLogger(__name__)

NoiseOf = Callable[..., list[Noise]]
_SUMS: Final = ("aten.add.Tensor", "aten.sub.Tensor")
_OTHER_BRANCH: Final = "the reference takes the other branch of torch.cond, so there is nothing to compare with"


@dataclass(frozen=True, slots=True)
class Scope:
    """A graph's values during its evaluation (`local` is None without a replay), and the listeners.

    `chains` belong to local values that the runtime did not log. Executions on the same inputs share `env`; the first
    has the `perturbed` lanes (`etviz.evaluation.noise.Lanes`).
    """

    env: dict[str, Any]
    local: dict[str, Any] | None = None
    seen: SeenTogether | None = None
    logged: Logged | None = None
    chains: dict[str, Chain] = field(default_factory=dict)
    perturbed: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Again:
    """Computes a node on the same arguments with another rounding.

    `perturbed` has its values in the evaluator's perturbed lanes, if these have the same arguments; `shown` their
    differences, if these were measured before.
    """

    evaluator: Evaluator
    graph: Graph
    node: Node
    args: Any
    kwargs: Any
    perturbed: Any = None
    shown: Sequence[Any] = ()

    @property
    def earlier(self) -> Multiples[tuple[int, int]] | None:
        return self.evaluator.earlier

    @property
    def key(self) -> int:
        return id(self.node)  # its graph is kept, so its id stays its own

    def __call__(self, rounding: Perturbation | None) -> Any:
        return self.evaluator.again(self.graph, self.node, self.args, self.kwargs, rounding)


class Evaluator(GraphInterpreter):
    """Evaluates one method in the program's types and within the limits.

    `rounding` perturbs operators that depend on inputs; `roundings` measure the noise of chains. `runtime_state` and
    `perturbed_state` hold mutable buffers that differ from the reference's. `turns` has other methods' calls. `known`
    has values of the next run that `etviz.evaluation.series.Series` evaluated ahead. `lanes_inside` evaluate delegates,
    by the id of their graph, which they keep. `shown_before` has the differences of delegates by name that were
    measured on the same inputs. `noises` receives those of introduced gaps, or has them; `steps_before` the steps of
    delegates, by name, on the same inputs.
    """

    def __init__(
        self,
        graph: Graph,
        constants: Mapping[str, torch.Tensor],
        limits: Limits | None = None,
        prepared: Prepared | None = None,
    ) -> None:
        super().__init__(constants, prepared)
        self.graph = graph
        self.limits = limits or Limits()
        self.rounding: Perturbation | None = None
        self.roundings: Sequence[Perturbation] = ()
        self.runtime_state: State = {}
        self.perturbed_state: State = {}
        self.turns: CallTurns = {}
        self.known: Sequence[Known] = ()
        self.lanes_inside: dict[int, Evaluator] = {}
        self.earlier: Multiples[tuple[int, int]] | None = None
        self.shown_before: Mapping[str, Sequence[Any]] = {}
        self.steps_before: dict[str, list[float | None]] | None = None
        self.noises: dict[str, list[Noise]] | None = None
        self._exchange = Turn().exchange
        self._rounding_last: dict[int, tuple[Graph, tuple[bool, LastRounded]]] = {}

    def run(
        self,
        inputs: Sequence[Any],
        seen: Seen | None = None,
        logged: Logged | None = None,
        *,
        replay: bool = True,
    ) -> list[Any]:
        """Evaluate on flat inputs; returns the reference outputs.

        `seen` is called after every node in program order, except in branches not taken. `replay` computes local values
        from `logged`; a graph with branches always has them, to know which branch the runtime took. Raises `UsageError`
        if the inputs do not fit, `PairingError` if an operator fails on the reference's values.
        """
        told = None if seen is None else (lambda node, values: seen(node, values[0]))
        return self.run_together(inputs, [logged], told, replay=replay)

    def run_together(
        self,
        inputs: Sequence[Any],
        logged: Sequence[Logged | None],
        seen: SeenTogether | None = None,
        *,
        replay: bool = True,
    ) -> list[Any]:
        """Evaluate once for several executions on the same flat inputs; several have to be `independent`."""
        _check_inputs(self.graph, inputs)
        self.limits.begin(inputs)
        turn = self.state.get(TURN, 0)
        with threads_for(self.graph), torch.no_grad():
            self._begin(self.turns.get(turn, Turn()), with_log=logged[0] is not None)
            env = self.bind(self.graph, inputs)
            env |= {name: self.state[key] for name, key in self._exchange.takes.items()}
            lanes = replay or self.has_branches
            scopes = [
                Scope(env, self.second_lane(env) if lanes and told is not None else None, seen, told) for told in logged
            ]
            scopes[0] = replace(scopes[0], perturbed=self.perturbed_lanes(env))
            self.replays = scopes[0].local is not None
            self._walk(self.graph, *scopes)
            if scopes[0].local is not None:
                self.end_second_lane(scopes[0].local)
            return self.end_call(env, scopes[0].perturbed)

    def end_call(self, env: Mapping[str, Any], perturbed: Mapping[str, Any] | None = None) -> list[Any]:
        """Keep the state that a call's values leave; returns its outputs."""
        outputs = self.results(self.graph, env)
        if perturbed is not None:
            self.end_perturbed_lanes(perturbed, outputs)
        self.state |= {key: outputs[at] for at, key in self._exchange.gives.items()}
        self.state[TURN] = self.state.get(TURN, 0) + 1
        self.forget_weights()
        return outputs

    def _begin(self, turn: Turn, *, with_log: bool) -> None:
        for call in turn.before:
            other = self.beside(call)
            logged = call.logged if with_log else None
            other.run(call.inputs, None if logged is None else (lambda node, value: None), logged)
            call.leave(self.state, other.state)
            call.leave(self.runtime_state, other.runtime_state)
            call.leave(self.perturbed_state, other.perturbed_state)
        self._exchange = turn.exchange

    def beside(self, call: Interlude) -> Self:
        other = copy.copy(self)
        for name in ("has_branches", "_giving_outputs", "_untold", "_note"):
            vars(other).pop(name, None)
        other.graph, other.constants = call.evaluator.graph, call.evaluator.constants
        other.prepared, other.roundings = call.evaluator.prepared, ()
        other.forget_weights()
        other._unpacked = other.prepared.unpacked
        other.turns = {0: Turn(exchange=call.exchange)}
        other.states = (
            call.there(self.state),
            call.evaluator.runtime_state | call.there(self.runtime_state),
            call.there(self.perturbed_state),
        )
        return other

    @property
    def keeps_state(self) -> bool:
        return bool(self.turns) or is_stateful(self.graph)

    @property
    def independent(self) -> bool:
        """True if no execution finds another one's state, and all take the same branches."""
        return not self.has_branches and not self.keeps_state

    @cached_property
    def has_branches(self) -> bool:  # or loops, whose carries tell what their operators had
        return any(node.target in CONTROL for node in self.graph.nodes)

    @property
    def states(self) -> tuple[State, State, State]:
        return dict(self.state), dict(self.runtime_state), dict(self.perturbed_state)

    @states.setter
    def states(self, states: tuple[State, State, State]) -> None:
        self.state, self.runtime_state, self.perturbed_state = map(dict, states)

    def second_lane(self, env: Mapping[str, Any]) -> dict[str, Any]:
        return {**env, **self._found(self.runtime_state)}

    def _found(self, state: State) -> State:
        by_name = {item.name: state[item.target] for item in self.graph.inputs if item.target in state}
        return by_name | {name: state[key] for name, key in self._exchange.takes.items() if key in state}

    def end_second_lane(self, local: Mapping[str, Any]) -> None:
        self.runtime_state |= {target: self.look_up(local, Ref(name)) for target, name in self.graph.mutations.items()}
        gives = self._exchange.gives.items()
        self.runtime_state |= {key: self.look_up(local, self.graph.outputs[at]) for at, key in gives}

    def perturbed_lanes(self, env: Mapping[str, Any]) -> dict[str, Any] | None:
        return None

    def is_unmoved(self, node: Node, scope: Scope) -> bool:
        """True if a node's arguments are the same in the perturbed lanes."""
        lanes = scope.perturbed or {}
        return all(lanes.get(name) is scope.env[name] for name in self.reads(node))

    def perturbed_branch(self, graph: Graph, node: Node, scope: Scope, branch: Graph) -> dict[str, Any] | None:
        """None if no lane takes the branch that the reference takes."""
        return None

    def end_perturbed_lanes(self, perturbed: Mapping[str, Any], plain: Sequence[Any]) -> None:
        """Told the perturbed values that are left at the end, and the outputs."""

    def call(self, graph: Graph, args: Sequence[Any]) -> list[Any]:
        env, live = self.bind(graph, args), self.limits.live
        self._walk(graph, Scope(env))
        self.limits.live = live
        return self.results(graph, env)

    def operator(self, graph: Graph, node: Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if node.target == "aten.copy_.default":
            return args[1].to(args[0].dtype).expand_as(args[0]).clone()
        if self._unpacked.holds(graph, node):
            weight = self._streamed(graph, node, args, kwargs)
            given = [*args, *kwargs.values()]
            return weight or self._unpacked.value(graph, node, given, partial(self._unpack, node, args, kwargs))
        if self.rounding is None or (type(self.rounding) is Sizing and id(node) not in self.rounding.wanted):
            return self._compute(node.target, args, kwargs)
        return self.rounding.call(self._compute, node, args, kwargs, delegated=graph.is_delegated(node))

    def _compute(self, target: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if target == LINEAR and weight_of(target, args, kwargs) is not None:
            return self.products(target, [(args, kwargs)])[0]
        return self.limits.call(target, args, kwargs)

    def products(self, target: str, given: Sequence[tuple[Sequence[Any], Mapping[str, Any]]]) -> list[Any]:
        lanes = [by_position(target, args, kwargs)[0] if kwargs else list(args) for args, kwargs in given]
        weight: Quantized = lanes[0][1]
        like = weight.like
        full = [[args[0], like, *args[2:]] for args in lanes]
        if not self.limits.is_plain(target) or not all(is_cut(weight, args) for args in full):
            whole = weight.whole()
            return [self.limits.call(target, [args[0], whole, *args[2:]], {}) for args in lanes]
        calls = [self.limits.admitted(target, args, {}) for args in full]
        return products(calls[0], weight, full)

    def _streamed(self, graph: Graph, node: Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Quantized | None:
        meta = node.outputs[0] if node.outputs else None
        if graph is self.graph or meta is None or meta.dtype != "float32" or not self._unpacked.streams(graph, node):
            return None
        weight = Quantized.of(node.target, args, kwargs, torch.float32) if self.limits.is_plain(node.target) else None
        return weight if weight is not None and weight.has_rows else None

    def _unpack(self, node: Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        made = None
        if node.outputs and node.outputs[0] is not None and node.outputs[0].dtype == "float32":
            elements = math.prod(size for size in node.outputs[0].shape if isinstance(size, int))
            if self.limits.is_plain(node.target) and self.limits.has_room(4 * elements):
                made = self._unpacked.dequantized(node.target, args, kwargs, torch.float32)
        return made if made is not None else self.limits.call(node.target, args, kwargs)

    def again(self, graph: Graph, node: Node, args: Any, kwargs: Any, rounding: Perturbation | None) -> Any:
        live, self.rounding = self.limits.live, rounding
        try:
            return self.apply(graph, node, args, kwargs)
        finally:
            self.limits.live, self.rounding = live, None

    def call_again(self, graph: Graph, args: Sequence[Any], rounding: Perturbation) -> list[Any]:
        live, self.rounding = self.limits.live, rounding
        try:
            return self.call(graph, args)
        finally:
            self.limits.live, self.rounding = live, None

    def _walk(self, graph: Graph, scope: Scope, *others: Scope) -> None:
        last, limits, env, seen = self.last_uses(graph), self.limits, scope.env, scope.seen
        scopes = (scope, *others)
        alone = not others and seen is None and scope.local is None and scope.perturbed is None
        if alone and scope.logged is None and type(self).step is Evaluator.step:
            self._values(graph, scope)
            return
        sizes: dict[str, int] = {}
        for node in graph.nodes:
            value = self.step(graph, node, scope)
            check_result(node, value.reference)
            values = [value, *(self._execution(graph, node, other, value) for other in others)]
            env[node.name] = value.reference
            extra = [item.local for item in values if item.local is not value.reference and item.local is not None]
            extra += [scope.perturbed.get(node.name)] if scope.perturbed is not None else []
            sizes[node.name] = limits.add((value.reference, extra))
            for each, lane_value in zip(scopes, values, strict=True):
                if each.local is not None:
                    self._go_on(graph, node, lane_value, each, each.local)
            if seen is not None and node.target != "cond":
                seen(node, values)
            for name in last.get(node.name, ()):
                env.pop(name, None)
                limits.live -= sizes.pop(name, 0)
                if scope.perturbed is not None:
                    scope.perturbed.pop(name, None)
                for each in scopes:
                    if each.local is not None:
                        each.local.pop(name, None)
                        each.chains.pop(name, None)

    def _values(self, graph: Graph, scope: Scope) -> None:
        last, limits, env, sizes = self.last_uses(graph), self.limits, scope.env, dict[str, int]()
        for node in graph.nodes:
            if node.target in CONTROL:
                plain = self.step(graph, node, scope).reference
            else:
                plain = self._plainly(graph, node, scope, *self.arguments(env, node))
            check_result(node, plain)
            env[node.name] = plain
            sizes[node.name] = limits.add(plain)
            for name in last.get(node.name, ()):
                env.pop(name, None)
                limits.live -= sizes.pop(name, 0)

    def _go_on(self, graph: Graph, node: Node, value: Value, scope: Scope, local: dict[str, Any]) -> None:
        local[node.name] = merge(node, value)
        if self.is_chained(node, value, scope):
            self.carry_on(graph, node, value, scope)
        for name, runtime in observed(node, value):
            local[name] = runtime
            scope.chains.pop(name, None)

    def is_chained(self, node: Node, value: Value, scope: Scope) -> bool:
        if not self.roundings or scope.local is None or value.local is None:
            return False
        item = item_of(node) if scope.chains else None
        if item is not None and item[0] in scope.chains and scope.chains[item[0]].has_logged(item[1]):
            return False
        chained = bool(scope.chains) and not scope.chains.keys().isdisjoint(self.reads(node))
        return chained or self._is_missing(node, value, scope)

    def _is_missing(self, node: Node, value: Value, scope: Scope) -> bool:
        reads = self.reads(node)
        if node.target in CONTROL:
            return id(node) in self._untold
        if not reads or node.target == OBSERVED or is_size(node) or _is_logged(node, value):
            return False
        of_weights = node.instruction >= 0 and any(isinstance(scope.env.get(name), Weight) for name in reads)
        writes = node.instruction >= 0 and node.target in LANGUAGE_OPERATORS  # a cache, at a place that may be wrong
        return of_weights or writes or not only_moves(node)  # the runtime's weights may be other ones

    def carry_on(self, graph: Graph, node: Node, value: Value, scope: Scope) -> None:
        """Record a chain's operators, so that none is blamed for another."""
        given = {name: (scope.local or {})[name] for name in self.reads(node)}
        chains = {name: scope.chains[name] for name in given if name in scope.chains}
        missing = self._is_missing(node, value, scope)
        before = tuple({member.name: member for chain in chains.values() for member in chain.nodes}.values())
        others = cache(partial(self._perturbed, graph, node, value.local, given, chains))
        plain = self._plain(graph, node, scope) if chains else None
        value.chain = Chain(before, others, plain=plain, earlier=self.earlier, key=id(node))
        if not _is_logged(node, value):
            logged = tuple(logged is not None for logged in value.runtime or ())
            scope.chains[node.name] = Chain((*before, node) if missing else before, others, logged, plain)
        elif plain is not None:
            steps = map(dynamic.step, flat_values(value.local), flat_values(plain))
            known = value.steps or [None] * len(value.runtime or ())
            value.steps = [max(a or 0.0, b or 0.0) or None for a, b in zip(steps, known, strict=True)]
            value.note = value.note or (self._note if graph is self.graph else dynamic.note(graph))

    def _perturbed(
        self, graph: Graph, node: Node, value: Any, local: Mapping[str, Any], chains: Mapping[str, Chain]
    ) -> tuple[Any, ...]:
        if not self.limits.has_room(len(self.roundings) * nbytes(value)):
            return ()
        results, before = [], {name: others for name, chain in chains.items() if (others := chain.others())}
        for at, rounding in enumerate(self.roundings):
            given = self.arguments({**local, **{name: others[at] for name, others in before.items()}}, node)
            try:
                results.append(self.again(graph, node, *given, rounding))
            except Exception:  # an operator may fail on perturbed values in its own way
                logger.debug("%s has no perturbed value", node.name, exc_info=True)
                return ()
        return tuple(results)

    def _plain(self, graph: Graph, node: Node, scope: Scope) -> Any:
        local, chains = scope.local or {}, scope.chains

        def plain(leaf: Any) -> Any:
            chain = chains.get(leaf.name) if isinstance(leaf, Ref) else None
            return chain.plain if chain is not None and chain.plain is not None else self.look_up(local, leaf)

        if _on_chosen_grid(node, chains):
            return plain(Ref(converted(node)))
        if all(chains[name].plain is None for name in node.reads() if name in chains):
            return None
        try:
            return self.again(graph, node, map_arg(node.args, plain), map_arg(node.kwargs, plain), None)
        except Exception:  # an operator may fail on other values in its own way
            logger.debug("%s has no value before its grid", node.name, exc_info=True)
            return None

    def step(self, graph: Graph, node: Node, scope: Scope) -> Value:
        if node.target == "cond":
            return self._branch(graph, node, scope)
        if node.target in LOOPS:
            try:
                return self.rounds(graph, node, scope)
            except (IndexError, RuntimeError, TypeError, ValueError) as error:
                if isinstance(error, EtvizError):
                    raise
                raise PairingError(f"The loop {node.name} can't be evaluated: {error}") from error
        local, logged = scope.local, scope.logged
        known = bool(self.known) and graph is self.graph
        args, kwargs = ([], {}) if known else self.arguments(scope.env, node)
        reference = self._plainly(graph, node, scope, args, kwargs)
        if logged is None:
            return Value(reference, None, None)
        if (found := _unset(node, reference, logged)) is not None:
            reference = found
            if scope.perturbed is not None:
                scope.perturbed[node.name] = found
        value = Value(reference, None, None)
        if self.is_dynamic(graph, node, replay=local is not None):
            value.steps, value.note = self.steps(graph, node, args, reference)
        return self._execution(graph, node, scope, value)

    def _plainly(self, graph: Graph, node: Node, scope: Scope, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        try:
            return self.reference(graph, node, scope, args, kwargs)
        except EtvizError:
            raise
        except Exception as error:
            why = f"The reference of {node.name} ({node.target}) can't be computed: {error}"
            raise PairingError(why, OTHER_INPUTS) from error

    def reference(self, graph: Graph, node: Node, scope: Scope, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if self.known and graph is self.graph:
            return self.known[0][node.name]
        return self.apply(graph, node, args, kwargs)

    def is_dynamic(self, graph: Graph, node: Node, *, replay: bool) -> bool:
        """True for a delegate that is judged by grids which it chooses at run time."""
        judged = node.target == "delegate" and (replay or node.name in self._giving_outputs)
        return judged and dynamic.is_dynamic(graph.inside(node))

    def steps(self, graph: Graph, node: Node, args: Sequence[Any], reference: Any) -> tuple[list[float | None], str]:
        """The `Value.steps` of a delegate's outputs, and their note."""
        inner = graph.inside(node)
        known = self.prepared.dynamic.get(id(inner))
        if known is None:  # as with `forms`
            known = self.prepared.dynamic[id(inner)] = inner, dynamic.OtherGrids.of(inner), dynamic.note(inner)
        _, grids, note = known
        steps = self.steps_before
        if steps is not None and node.name in steps:
            return steps[node.name], note
        together = self.known and graph is self.graph
        call = (lambda other, _: self.known[0].inside(other, node)) if together else self.call
        found = dynamic.steps(call, grids, args, reference)
        if steps is not None:
            steps[node.name] = found
        return found, note

    def _execution(self, graph: Graph, node: Node, scope: Scope, first: Value) -> Value:
        env, local, logged, reference = scope.env, scope.local, scope.logged, first.reference
        value = Value(reference, None, logged(node) if logged is not None else None)
        value.steps, value.note = first.steps, first.note
        if local is None:
            return value
        if node.target == OBSERVED:
            value.local = [self.look_up(local, leaf) for leaf in node.args]
            return value
        value.local = reference if logged is None or (unset := _unset(node, reference, logged)) is None else unset
        args, kwargs = self.arguments(local, node)
        if all(local[name] is env[name] for name in self.reads(node)):
            moved = scope.perturbed.get(node.name) if scope.perturbed and self.is_unmoved(node, scope) else None
            value.again = Again(self, graph, node, args, kwargs, moved, self.shown_before.get(node.name, ()))
            self._know_noise(graph, node, args, kwargs, value)
            return value
        sizing = self.sizing(graph.inside(node)) if node.target == "delegate" else None
        try:
            value.local = self.again(graph, node, args, kwargs, sizing)
            value.again = Again(self, graph, node, args, kwargs)
            self._know_noise(graph, node, args, kwargs, value, sizing)
        except Exception as error:  # noqa: BLE001 - any operator may fail in its own way on wrong values
            value.again = Again(self, graph, node, *self.arguments(env, node))
            value.local, value.problem = None, f"the operator fails on the runtime's inputs: {error}"
        return value

    def _know_noise(
        self, graph: Graph, node: Node, args: Any, kwargs: Any, value: Value, sizing: Sizing | None = None
    ) -> None:
        """Without the `sizing` of a delegate that `rounds_once`, it is computed again when its noise is asked for."""
        if node.target not in ("delegate", *CONTROL):
            law = partial(noise_of, self._compute, node, args, kwargs, value.local)
            value.noise = self.noted(graph, node, BY_LAW, law)
        elif node.target == "delegate":
            results = flat_values(value.local)
            if self.rounds_once(graph.inside(node)):
                again = partial(self.again, graph, node, args, kwargs)
                law = partial(self.noise_of_last, graph.inside(node), again, results, sizing)
                noise = self.noted(graph, node, BY_LAW, law)
                value.noise = lambda runtime: noise()
            elif sizing is not None:

                def least(output: int) -> Noise:
                    bound = partial(sizing.of_output, results, output)
                    return self.noted(graph, node, f"{AT_LEAST} {output}", lambda: [bound()])()[0]

                value.least = least

    def noted(self, graph: Graph, node: Node, how: str, noise: NoiseOf) -> NoiseOf:
        known, key = self.noises, f"{node.name} {how}"
        if known is None or graph is not self.graph:
            return noise

        def note(*given: Any) -> list[Noise]:
            if key not in known:
                known[key] = noise(*given)
            return known[key]

        return note

    def noise_of_last(
        self, graph: Graph, again: Callable[[Perturbation], Any], results: Sequence[Any], sizing: Sizing | None = None
    ) -> list[Noise]:
        """Noise of a graph's results by the operators that round them last, on known inputs.

        It is all of their noise if the graph `rounds_once`, else a lower bound.
        """
        if sizing is None:
            sizing = self.sizing(graph)
            again(sizing)
        return sizing.noise(results)

    def sizing(self, graph: Graph) -> Sizing:
        return Sizing(self._rounding(graph)[1])

    def rounds_once(self, graph: Graph) -> bool:
        """True if one operator rounds and all others only move elements or dequantize constants."""
        return self._rounding(graph)[0]

    def _rounding(self, graph: Graph) -> tuple[bool, LastRounded]:
        if id(graph) not in self._rounding_last:
            rounding = [item for item in graph.nodes if not only_picks(item) and not self._unpacked.holds(graph, item)]
            once = len(rounding) == 1 and not is_conversion(rounding[0]) and rounding[0].target not in CONTROL
            makers = {node.name: node for node in graph.nodes if node.target not in CONTROL}
            makers = {name: node for name, node in makers.items() if not self._unpacked.holds(graph, node)}
            last: LastRounded = [[(rounding[0], None)] if once else _rounding_by(makers, out) for out in graph.outputs]
            self._rounding_last[id(graph)] = graph, (once, last)  # the graph is kept, so its id stays its own
        return self._rounding_last[id(graph)][1]

    @cached_property
    def _untold(self) -> frozenset[int]:
        return frozenset(
            id(node)
            for node in self.graph.nodes
            for branch in self.graph.branches(node)
            if any(map(_has_no_instruction, branch.walk()))
        )

    @cached_property
    def _note(self) -> str:
        return dynamic.note(self.graph)

    @cached_property
    def _giving_outputs(self) -> frozenset[str]:
        uses = Uses(self.graph)
        return frozenset(uses.value(name)[0] for name in refs(self.graph.outputs))

    def _branch(self, graph: Graph, node: Node, scope: Scope) -> Value:
        branch, inner = self.enter(graph, node, scope.env)
        live, local, perturbed = self.limits.live, None, self.perturbed_branch(graph, node, scope, branch)
        if scope.local is None or scope.logged is None:
            self._walk(branch, Scope(inner, seen=scope.seen, perturbed=perturbed))
        else:
            ours, inner_local = self.enter(graph, node, scope.local)
            if ours is branch:
                self._walk(branch, Scope(inner, inner_local, scope.seen, scope.logged, perturbed=perturbed))
            else:
                self._walk(branch, Scope(inner, perturbed=perturbed))
                told = _without_reference(scope.seen)
                self._walk(ours, Scope(dict(inner_local), inner_local, told, scope.logged))
            local = [self.look_up(inner_local, out) for out in ours.outputs]
        if perturbed is not None and scope.perturbed is not None:
            scope.perturbed[node.name] = [self.look_up(perturbed, out) for out in branch.outputs]
        self.limits.live = live
        return Value([self.look_up(inner, out) for out in branch.outputs], local, None)

    def rounds(self, graph: Graph, node: Node, scope: Scope) -> Value:
        """Listeners receive all rounds of an operator at the end."""
        body, limits = body_of(graph, node), self.limits
        lanes = [scope.env, scope.local if scope.logged is not None else None, scope.perturbed]
        courses = [self._course(node, env) if env is not None else None for env in lanes]
        reference, local, perturbed = courses
        if reference is None:
            raise PairingError(f"The loop {node.name} has no values")
        turns = scope.logged if isinstance(scope.logged, Turns) else Turns(scope.logged) if scope.logged else None
        within = turns is scope.logged  # a loop in a loop: the outer one knows when all is told
        rounds = Rounds(limits, None if within else turns) if scope.seen is not None else None
        live = limits.live
        for at in range(reference.rounds):
            starts = [self.bind(body, course.given(at)) if course is not None else None for course in courses]
            env, local_env, other = starts
            self._walk(
                body, Scope(env or {}, local_env, rounds.see if rounds is not None else None, turns, perturbed=other)
            )
            for course, start in zip(courses, starts, strict=True):
                if course is not None and start is not None:
                    course.end([self.look_up(start, out) for out in body.outputs])
            held = sum(course.nbytes for course in courses if course is not None)
            limits.live = live + held + (rounds.nbytes if rounds is not None else 0)
        value = Value(reference.value(), local.value(reference) if local is not None else None, None)
        if perturbed is not None and scope.perturbed is not None:
            scope.perturbed[node.name] = perturbed.value()
        if rounds is not None and scope.seen is not None:
            rounds.tell(scope.seen)
        limits.live = live
        return value

    def _course(self, node: Node, env: Mapping[str, Any]) -> Course:
        carries, rows, operands = ([self.look_up(env, leaf) for leaf in part] for part in node.args)
        return Course(carries, rows, operands)


def _has_no_instruction(node: Node) -> bool:
    return node.instruction < 0 and not (node.target in CONTROL or is_size(node) or only_moves(node))


def _rounding_by(makers: Mapping[str, Node], result: Any) -> list[tuple[Node, int | None]]:
    """The last operator, and before a sum that of its term, if a single one is computed."""
    node, output = makers.get(result.name if isinstance(result, Ref) else ""), 0
    while node is not None and only_moves(node):
        source, output = item_of(node) or (next(iter(node.reads()), ""), 0)
        node = makers.get(source)
    if node is None:
        return []
    plain = node.target in _SUMS and len(node.args) == 2 and node.kwargs.get("alpha", 1) == 1
    terms = [term for leaf in node.args if (term := _rounding_by(makers, leaf))] if plain else []
    return [(node, output), *(terms[0] if len(terms) == 1 else ())]


def _on_chosen_grid(node: Node, chains: Mapping[str, Chain]) -> bool:
    grid = grid_arguments(node.target, node.args, node.kwargs)
    scale = chains.get(grid.scale.name) if grid is not None and isinstance(grid.scale, Ref) else None
    return scale is not None and any(map(chooses_grid, scale.nodes))


def check_result(node: Node, value: Any) -> None:
    if not node.outputs:
        return
    values = value if isinstance(value, (list, tuple)) else (value,)
    for meta, result in zip(node.outputs, values, strict=False):
        shape = getattr(result, "shape", None)
        if meta is None or shape is None or (shape == meta.shape and dtype_name(result.dtype) == meta.dtype):
            continue
        if meta.dtype == "unknown":
            continue
        known = all(isinstance(a, str) or a == b for a, b in zip(meta.shape, shape, strict=False))
        if len(shape) != len(meta.shape) or not known or str(result.dtype) != f"torch.{meta.dtype}":
            computed, told = f"{result.dtype} {list(shape)}", f"torch.{meta.dtype} {list(meta.shape)}"
            raise PairingError(
                f"The reference of {node.name} ({node.target}) is {computed}, the program says {told}",
                "give the files of one program",
            )


def _without_reference(seen: SeenTogether | None) -> SeenTogether | None:
    if seen is None:
        return None
    return lambda node, values: seen(node, [replace(v, reference=None, unpaired=_OTHER_BRANCH) for v in values])


def _unset(node: Node, reference: Any, logged: Logged) -> torch.Tensor | None:
    """What the runtime found in memory that nothing was written to: any content is right."""
    if node.target not in UNSET:
        return None
    runtime = logged(node)
    found = runtime[0] if runtime else None
    same = isinstance(found, torch.Tensor) and (found.shape, found.dtype) == (reference.shape, reference.dtype)
    return found if same else None


def _is_logged(node: Node, value: Value) -> bool:
    computed = flat_values(value.local if value.local is not None else value.reference)
    runtime = value.runtime or []
    return len(runtime) == len(computed) and all(logged is not None for logged in runtime)


def observed(node: Node, value: Value) -> Iterable[tuple[str, Any]]:
    return () if node.target != OBSERVED or value.runtime is None else zip(refs(node.args), value.runtime, strict=False)


def merge(node: Node, value: Value) -> Any:
    """Logged tensors, or computed ones where none were logged."""
    computed = value.local if value.local is not None else value.reference
    if value.runtime is None:
        return computed
    if isinstance(computed, (list, tuple)):
        if len(value.runtime) != len(computed):
            return computed
        return [r if r is not None else c for r, c in zip(value.runtime, computed, strict=True)]
    return value.runtime[0] if len(value.runtime) == 1 and value.runtime[0] is not None else computed


def _check_inputs(graph: Graph, inputs: Sequence[Any]) -> None:
    expected = graph.user_inputs()
    if len(inputs) != len(expected):
        raise UsageError(f"{graph.name} takes {len(expected)} inputs, found {len(inputs)}")
    for placeholder, value in zip(expected, inputs, strict=True):
        shape = getattr(value, "shape", None)
        if placeholder.meta is None or shape is None:
            continue
        fixed = [(a, b) for a, b in zip(placeholder.meta.shape, shape, strict=False) if isinstance(a, int)]
        if len(shape) != len(placeholder.meta.shape) or any(a != b for a, b in fixed):
            raise UsageError(
                f"input {placeholder.name} must have the shape {placeholder.meta.shape}, found {tuple(shape)}: "
                "the run can't have had these inputs"
            )
