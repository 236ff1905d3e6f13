"""The rules by which a program's graphs are evaluated, for any kind of number."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from etviz.errors import PairingError
from etviz.evaluation.operator_rules import constant
from etviz.evaluation.rounds import Course
from etviz.evaluation.unpacked import Unpacked
from etviz.graph.ir import LOOPS, OBSERVED, Graph, Node, Ref, Tag
from etviz.graph.loops import body_of

if TYPE_CHECKING:
    import torch

    from etviz.evaluation.dynamic_quantization import OtherGrids

State = dict[str, Any]

_OTHERS: Final = frozenset(("getitem", "delegate", OBSERVED, *LOOPS))
"""Targets that are no operators."""

_SMALL: Final = 1 << 10
"""Bytes up to which a constant is kept, because finding it takes longer."""


class Environment(Protocol):
    def __getitem__(self, name: str, /) -> Any: ...


class Known(Environment, Protocol):
    """Values of a call that was evaluated with others (`etviz.evaluation.series.InCall`)."""

    def __contains__(self, name: str, /) -> bool: ...

    def inside(self, inner: Graph, node: Node) -> list[Any]: ...


@dataclass(frozen=True, slots=True)
class Weight:
    """A constant that is read when an operator needs it, and not kept."""

    target: str


class ArgumentForm:
    """The part of a node's arguments that is the same in every evaluation; `constant` gives tagged torch objects."""

    __slots__ = ("_keys", "_lists", "_plain", "_reads")

    def __init__(self, value: Any, constant: Callable[[Tag], Any]) -> None:
        self._keys = tuple(value) if isinstance(value, dict) else None
        self._plain: list[Any] = []
        self._reads: list[tuple[int, str]] = []
        self._lists: list[tuple[int, ArgumentForm]] = []
        for at, argument in enumerate(value.values() if isinstance(value, dict) else value):
            self._plain.append(constant(argument) if isinstance(argument, Tag) else argument)
            if isinstance(argument, Ref):
                self._reads.append((at, argument.name))
            elif isinstance(argument, (list, tuple, dict)):
                self._lists.append((at, ArgumentForm(argument, constant)))

    def fill(self, env: Environment, weight: Callable[[str], Any]) -> Any:
        values = self._plain.copy()
        for at, name in self._reads:
            value = env[name]
            values[at] = weight(value.target) if type(value) is Weight else value
        for at, form in self._lists:
            values[at] = form.fill(env, weight)
        return values if self._keys is None else dict(zip(self._keys, values, strict=True))


@dataclass(slots=True)
class Prepared:
    """By the ids of nodes and graphs, which it keeps alive."""

    forms: dict[int, tuple[Node, ArgumentForm, ArgumentForm, tuple[str, ...]]] = field(default_factory=dict)
    last_uses: dict[int, tuple[Graph, dict[str, list[str]]]] = field(default_factory=dict)
    small: dict[str, torch.Tensor] = field(default_factory=dict)
    dynamic: dict[int, tuple[Graph, OtherGrids, str]] = field(default_factory=dict)
    unpacked: Unpacked = field(default_factory=Unpacked)


class GraphInterpreter(ABC):
    """Gives each node's value from the values before it, for the kind of number that a subclass computes with.

    `constants` are tensors by `Input.target`. `state` holds mutable buffers. `prepared` may be shared between
    interpreters of the same kind, graphs and constants.
    """

    def __init__(self, constants: Mapping[str, torch.Tensor], prepared: Prepared | None = None) -> None:
        self.constants = constants
        self.state: State = {}
        self.prepared = prepared or Prepared()
        self._unpacked = self.prepared.unpacked
        self.replays = False
        self.forget_weights()

    @abstractmethod
    def operator(self, graph: Graph, node: Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any: ...

    @abstractmethod
    def call(self, graph: Graph, args: Sequence[Any]) -> list[Any]: ...

    def apply(self, graph: Graph, node: Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if node.target not in _OTHERS:
            return self.operator(graph, node, args, kwargs)
        if node.target == "getitem":
            return _item(*args)
        if node.target == "delegate":
            return self.call(graph.inside(node), args)
        if node.target in LOOPS:
            return self._loop(body_of(graph, node), Course(*args))
        return args

    def _loop(self, body: Graph, course: Course) -> list[Any]:
        for at in range(course.rounds):
            course.end(self.call(body, course.given(at)))
        return course.value()

    def enter(self, graph: Graph, node: Node, env: Mapping[str, Any]) -> tuple[Graph, dict[str, Any]]:
        predicate, operands = node.args
        branch = self.taken(graph, node, self.look_up(env, predicate))
        return branch, self.bind(branch, [self.look_up(env, leaf) for leaf in operands])

    def taken(self, graph: Graph, node: Node, predicate: Any) -> Graph:
        try:
            return graph.branches(node)[0 if bool(predicate) else 1]
        except (RuntimeError, TypeError, ValueError) as error:
            raise PairingError(f"The condition of {node.name} is neither true nor false: {error}") from error

    def bind(self, graph: Graph, args: Sequence[Any]) -> dict[str, Any]:
        given = iter(args)
        return {
            placeholder.name: next(given, None)
            if placeholder.kind == "user"
            else self.state.get(placeholder.target, Weight(placeholder.target))
            for placeholder in graph.inputs
        }

    def results(self, graph: Graph, env: Mapping[str, Any]) -> list[Any]:
        outputs = [self.look_up(env, out) for out in graph.outputs]
        self.state.update({target: self.look_up(env, Ref(name)) for target, name in graph.mutations.items()})
        return outputs

    def look_up(self, env: Environment, leaf: Any) -> Any:
        if isinstance(leaf, Ref):
            value = env[leaf.name]
            return self._kept(value.target) if isinstance(value, Weight) else value
        return self.constant(leaf) if isinstance(leaf, Tag) else leaf

    def forms(self, node: Node) -> tuple[Node, ArgumentForm, ArgumentForm, tuple[str, ...]]:
        """With the names that it reads."""
        known = self.prepared.forms.get(id(node))
        if known is None:  # the node is kept, so its id stays its own
            args, kwargs = (ArgumentForm(given, self.constant) for given in (node.args, node.kwargs))
            known = self.prepared.forms[id(node)] = node, args, kwargs, node.reads()
        return known

    def arguments(self, env: Environment, node: Node) -> tuple[list[Any], dict[str, Any]]:
        _, args, kwargs, _ = self.forms(node)
        return args.fill(env, self._read_once), kwargs.fill(env, self._read_once) if node.kwargs else {}

    def forget_weights(self) -> None:
        self._read: dict[str, torch.Tensor] = {}
        self._largest = self._held = 0

    def _read_once(self, target: str) -> torch.Tensor:
        small = self.prepared.small.get(target)
        if small is not None:
            return small
        weight = self._read.pop(target, None)
        if weight is None:
            weight = self._kept(target)
            self._held += weight.nbytes
            self._largest = max(self._largest, weight.nbytes)
        self._read[target] = weight
        most = (3 if self.replays else 1) * self._largest  # a gated perceptron, which is replayed as one, has three
        while self._held - weight.nbytes > most:
            self._held -= self._read.pop(next(iter(self._read))).nbytes
        return weight

    def reads(self, node: Node) -> tuple[str, ...]:
        return self.forms(node)[3]

    def _kept(self, target: str) -> torch.Tensor:
        weight = self.prepared.small.get(target)
        if weight is None:
            weight = weight_of(self.constants, target)
            if weight.nbytes <= _SMALL:
                self.prepared.small[target] = weight
        return weight

    def constant(self, tag: Tag) -> Any:
        return constant(tag.kind, tag.value)

    def last_uses(self, graph: Graph) -> dict[str, list[str]]:
        known = self.prepared.last_uses.get(id(graph))
        if known is None:  # as with `forms`
            known = self.prepared.last_uses[id(graph)] = graph, _last_uses(graph)
        return known[1]


def weight_of(constants: Mapping[str, torch.Tensor], target: str) -> torch.Tensor:
    if target not in constants:
        raise PairingError(
            f"The weights {target} are in none of the files",
            "give the ETRecord that was written together with the record (etrecord=)",
        )
    return constants[target]


def _last_uses(graph: Graph) -> dict[str, list[str]]:
    last: dict[str, str] = {}
    for node in graph.nodes:
        last[node.name] = node.name
        for name in node.reads():
            last[name] = node.name
    kept = {*graph.results()}
    plan: dict[str, list[str]] = {}
    for name, user in last.items():
        if name not in kept:
            plan.setdefault(user, []).append(name)
    return plan


def _item(values: Any, at: Any) -> Any:
    if not isinstance(values, (list, tuple)) or not isinstance(at, int):
        raise PairingError(f"The graph takes item {at!r} of something that is no list")
    return values[at]
