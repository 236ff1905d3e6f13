"""Evaluating a graph on the CPU, value by value, with two sets of inputs side by side.

The *reference* values follow from the model's inputs alone. The *local* value of a node is what the same operator
gives on what the runtime had as inputs; its distance to the runtime's output is what that operator introduced.
Values are freed when their last use is past.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from etviz.artifacts.ir import OBSERVED, Graph, Node, Ref, Tag, map_arg, refs
from etviz.errors import EtvizError, PairingError, UsageError
from etviz.numerics import dynamic
from etviz.numerics.limits import Limits
from etviz.numerics.operators import constant

if TYPE_CHECKING:
    import torch

Logged = Callable[[Node], "list[Any] | None"]
"""What the runtime logged as the outputs of a node, None where it logged nothing."""
Seen = Callable[[Node, "Value"], None]
_OTHER_BRANCH: Final = "the reference takes the other branch of torch.cond, so there is nothing to compare with"


@dataclass(slots=True)
class Value:
    """A node's values.

    `local` is computed from the runtime's inputs, None where that failed (`problem` says how); `runtime` is what was
    logged, None if nothing was. `unpaired` says why there is no `reference`. `steps` are those of `dynamic.steps`,
    `note` says what they mean.
    """

    reference: Any
    local: Any
    runtime: list[Any] | None
    problem: str = ""
    unpaired: str = ""
    steps: list[float | None] | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class _Constant:
    """A weight that is read when an operator needs it, and not kept."""

    name: str
    tensors: Mapping[str, torch.Tensor]

    def read(self) -> torch.Tensor:
        if self.name not in self.tensors:
            raise PairingError(
                f"The weights {self.name} are in none of the files",
                "give the ETRecord that was written together with the record (etrecord=)",
            )
        return self.tensors[self.name]


@dataclass(frozen=True, slots=True)
class _Scope:
    """The values of one graph while it is evaluated: reference, local (None without a replay); and who is told."""

    env: dict[str, Any]
    local: dict[str, Any] | None = None
    seen: Seen | None = None
    logged: Logged | None = None


class Evaluator:
    """Evaluates one method.

    Parameters
    ----------
    graph
        The method's graph.
    constants
        Tensors by `Input.target`.
    limits
        What an evaluation may take.

    Attributes
    ----------
    state
        Mutable buffers by `Input.target`; updated at the end of each run.
    """

    def __init__(self, graph: Graph, constants: Mapping[str, torch.Tensor], limits: Limits | None = None) -> None:
        self.graph = graph
        self.constants = constants
        self.limits = limits or Limits()
        self.state: dict[str, torch.Tensor] = {}
        self._last_uses: dict[int, tuple[Graph, dict[str, list[str]]]] = {}

    def run(
        self,
        inputs: Sequence[Any],
        seen: Seen | None = None,
        logged: Logged | None = None,
        *,
        replay: bool = True,
    ) -> list[Any]:
        """Evaluate on flat inputs.

        Parameters
        ----------
        inputs
            Tensors and plain values, one for each user input.
        seen
            Called after every node, in program order; branches that are not taken are not seen.
        logged
            If given, runtime values are told too.
        replay
            Compute the local values from them. A graph with branches has them in any case: they tell which branch the
            runtime took.

        Returns
        -------
        list
            The reference outputs.

        Raises
        ------
        UsageError
            If the inputs do not fit the graph.
        PairingError
            If an operator fails on the reference's own values.
        """
        import torch

        _check_inputs(self.graph, inputs)
        self.limits.begin(inputs)
        with torch.no_grad():
            env = self._inputs(self.graph, inputs)
            told = logged is not None and (replay or any(node.target == "cond" for node in self.graph.nodes))
            local = dict(env) if told else None
            self._walk(self.graph, _Scope(env, local, seen, logged))
            for target, name in self.graph.mutations.items():
                self.state[target] = _lookup(env, Ref(name))
            return [_lookup(env, out) for out in self.graph.outputs]

    def call(self, graph: Graph, args: Sequence[Any]) -> list[Any]:
        """Evaluate a delegate's subgraph on its inputs."""
        env, live = self._inputs(graph, args), self.limits.live
        self._walk(graph, _Scope(env))
        outputs = [_lookup(env, out) for out in graph.outputs]
        self.limits.live = live
        for target, name in graph.mutations.items():
            self.state[target] = _lookup(env, Ref(name))
        return outputs

    def _inputs(self, graph: Graph, args: Sequence[Any]) -> dict[str, Any]:
        env, given = {}, iter(args)
        for item in graph.inputs:
            if item.kind == "user":
                env[item.name] = next(given, None)
            elif item.target in self.state:
                env[item.name] = self.state[item.target]
            elif item.kind == "buffer" and item.target in self.constants:
                env[item.name] = self.constants[item.target]
            else:
                env[item.name] = _Constant(item.target, self.constants)
        return env

    def _walk(self, graph: Graph, scope: _Scope) -> None:
        last, limits = self._plan(graph), self.limits
        env, local, seen = scope.env, scope.local, scope.seen
        sizes: dict[str, int] = {}
        for node in graph.nodes:
            value = self._step(graph, node, scope)
            own = value.local if value.local is not value.reference else None
            sizes[node.name] = limits.add(node.target, (value.reference, own))
            env[node.name] = value.reference
            if local is not None:
                local[node.name] = _merge(node, value)
                if node.target == OBSERVED and value.runtime is not None:
                    local.update(zip(refs(node.args), value.runtime, strict=False))
            if seen is not None and node.target != "cond":
                seen(node, value)
            for name in last.get(node.name, ()):
                env.pop(name, None)
                limits.live -= sizes.pop(name, 0)
                if local is not None:
                    local.pop(name, None)

    def _step(self, graph: Graph, node: Node, scope: _Scope) -> Value:
        if node.target == "cond":
            return self._branch(graph, node, scope)
        env, local, logged = scope.env, scope.local, scope.logged
        args = map_arg(node.args, lambda leaf: _lookup(env, leaf))
        kwargs = map_arg(node.kwargs, lambda leaf: _lookup(env, leaf))
        try:
            reference = self._apply(graph, node, args, kwargs)
        except EtvizError:
            raise
        except Exception as error:
            raise PairingError(f"The reference of {node.name} ({node.target}) can't be computed: {error}") from error
        if local is None or logged is None:
            return Value(reference, None, logged(node) if logged is not None else None)
        runtime = logged(node)
        if node.target == OBSERVED:
            return Value(reference, None, runtime, "the operators inside of this delegate are not known")
        value = Value(reference, reference, runtime)
        if node.target == "delegate" and dynamic.is_dynamic(inner := graph.subgraphs[node.subgraphs[0]]):
            value.steps, value.note = dynamic.steps(self.call, inner, args, reference), dynamic.note(inner)
        if not any(local[name] is not env[name] for name in refs((node.args, node.kwargs))):
            return value
        args = map_arg(node.args, lambda leaf: _lookup(local, leaf))
        kwargs = map_arg(node.kwargs, lambda leaf: _lookup(local, leaf))
        try:
            value.local = self._apply(graph, node, args, kwargs)
        except Exception as error:  # noqa: BLE001 - any operator may fail in its own way on wrong values
            value.local, value.problem = None, f"the operator fails on the runtime's inputs: {error}"
        return value

    def _apply(self, graph: Graph, node: Node, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if node.target == OBSERVED:
            return args
        if node.target == "getitem":
            return _item(*args)
        if node.target == "delegate":
            return self.call(graph.subgraphs[node.subgraphs[0]], args)
        if node.target == "aten.copy_.default":
            return args[1].to(args[0].dtype).expand_as(args[0]).clone()
        return self.limits.call(node.target, args, kwargs)

    def _branch(self, graph: Graph, node: Node, scope: _Scope) -> Value:
        """Evaluate the branch that the reference takes, and that of the runtime if it is the other one."""
        env, local, seen, logged = scope.env, scope.local, scope.seen, scope.logged
        operands = node.args[1]
        branch = _taken(graph, node, env)
        inner = self._inputs(branch, [_lookup(env, leaf) for leaf in operands])
        live = self.limits.live
        if local is None or logged is None:
            self._walk(branch, _Scope(inner, seen=seen))
            own = None
        else:
            ours = _taken(graph, node, local)
            inner_local = self._inputs(ours, [_lookup(local, leaf) for leaf in operands])
            if ours is branch:
                self._walk(branch, _Scope(inner, inner_local, seen, logged))
            else:
                self._walk(branch, _Scope(inner))
                self._walk(ours, _Scope(dict(inner_local), inner_local, _without_reference(seen), logged))
            own = [_lookup(inner_local, out) for out in ours.outputs]
        self.limits.live = live
        return Value([_lookup(inner, out) for out in branch.outputs], own, None)

    def _plan(self, graph: Graph) -> dict[str, list[str]]:
        """Names of the values that are used for the last time by each node; the graph is kept, so its id stays its."""
        if id(graph) not in self._last_uses:
            self._last_uses[id(graph)] = graph, last_uses(graph)
        return self._last_uses[id(graph)][1]


def last_uses(graph: Graph) -> dict[str, list[str]]:
    """By node: the values that are used for the last time by it; outputs and what overwrites buffers are not freed."""
    last: dict[str, str] = {}
    for node in graph.nodes:
        last[node.name] = node.name
        for name in refs((node.args, node.kwargs)):
            last[name] = node.name
    kept = {*refs(graph.outputs), *graph.mutations.values()}
    plan: dict[str, list[str]] = {}
    for name, user in last.items():
        if name not in kept:
            plan.setdefault(user, []).append(name)
    return plan


def _taken(graph: Graph, node: Node, env: Mapping[str, Any]) -> Graph:
    """The branch of a `cond` that these values lead to."""
    predicate = _lookup(env, node.args[0])
    try:
        first = bool(predicate)
    except (RuntimeError, TypeError, ValueError) as error:
        raise PairingError(f"The condition of {node.name} is neither true nor false: {error}") from error
    return graph.subgraphs[node.subgraphs[0 if first else 1]]


def _without_reference(seen: Seen | None) -> Seen | None:
    """Show the values of a branch that only the runtime takes."""
    if seen is None:
        return None
    return lambda node, value: seen(node, replace(value, reference=None, unpaired=_OTHER_BRANCH))


def _lookup(env: Mapping[str, Any], leaf: Any) -> Any:
    if isinstance(leaf, Ref):
        value = env[leaf.name]
        return value.read() if isinstance(value, _Constant) else value
    if isinstance(leaf, Tag):
        return constant(leaf.kind, leaf.value)
    return leaf


def _item(values: Any, index: Any) -> Any:
    if not isinstance(values, (list, tuple)) or not isinstance(index, int):
        raise PairingError(f"The graph takes item {index!r} of something that is no list")
    return values[index]


def _merge(node: Node, value: Value) -> Any:
    """What later nodes take as this node's runtime value: the logged tensors where there are any."""
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
    for item, value in zip(expected, inputs, strict=True):
        shape = getattr(value, "shape", None)
        if item.meta is None or shape is None:
            continue
        fixed = [(a, b) for a, b in zip(item.meta.shape, shape, strict=False) if isinstance(a, int)]
        if len(shape) != len(item.meta.shape) or any(a != b for a, b in fixed):
            raise UsageError(
                f"input {item.name} must have the shape {item.meta.shape}, found {tuple(shape)}: "
                "these inputs belong to another model"
            )


def flat_values(value: Any) -> list[Any]:
    """A node's value as the list of outputs that the runtime logs: tensors of tuples and lists one after another."""
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in flat_values(item)]
    return [value]
