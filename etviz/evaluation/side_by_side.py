"""Several executions of one program, evaluated side by side: each operator is looked up and checked once for all.

To walk a small program takes longer than to compute it. Here operators that treat each element by itself, with steps
that are rounded exactly, run once on the tensors of all executions; any other runs for one execution after the other.
So every value is, bit for bit, what the execution gives by itself.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final

from etviz.evaluation.evaluator import Scope, check_result, merge, observed
from etviz.evaluation.interpreter import Weight
from etviz.evaluation.products import weight_of
from etviz.evaluation.threads import threads_for
from etviz.evaluation.unpacked import elements
from etviz.evaluation.values import Logged, Value
from etviz.graph.ir import OBSERVED, Graph, Node

if TYPE_CHECKING:
    import torch

    from etviz.evaluation.evaluator import Evaluator
    from etviz.evaluation.values import Rounding, SeenTogether

logger = logging.getLogger(__name__)

MOST: Final = 32
"""Executions that go side by side."""
_LEAST: Final = 4
_BYTES: Final = 48 << 20
"""Of all values of all of them: beyond it, the computing takes longer than the walk."""
_WIDEST: Final = 8
_EXACT_NAMES: Final = """
aten.abs.default aten.add.Tensor aten.clamp.default aten.div.Tensor aten.hardtanh.default aten.maximum.default
aten.minimum.default aten.mul.Tensor aten.neg.default aten.relu.default aten.sub.Tensor
quantized_decomposed.dequantize_per_tensor.default quantized_decomposed.dequantize_per_tensor.tensor
quantized_decomposed.quantize_per_tensor.default quantized_decomposed.quantize_per_tensor.tensor
"""
_EXACT: Final = frozenset(_EXACT_NAMES.split())
"""Operators that give an element the same bits whatever lies beside it: one rounding a step, and no other kernel for
the end of a row."""


class _ApartError(Exception):
    """The executions can't go side by side."""


class Many:
    """A value of each execution: all of one type, and tensors all of one shape, dtype and layout.

    `stack` has tensors that are contiguous one behind the other; it is made of `items` when it is asked for, or they of
    it.
    """

    def __init__(self, *, items: list[Any] | None = None, stack: torch.Tensor | None = None) -> None:
        if items is not None:
            self.items = items
        if stack is not None:
            self.stack = stack

    @cached_property
    def items(self) -> list[Any]:
        """One for each execution."""
        return list(self.stack.unbind(0))

    @property
    def nbytes(self) -> int:
        """Bytes of all of them."""
        return len(self.items) * self.items[0].nbytes

    @cached_property
    def stack(self) -> torch.Tensor:
        """All of them."""
        import torch

        return torch.stack(self.items)


def how_many(graph: Graph) -> int:
    """How many executions of a program are worth to go side by side; 1 where they can't."""
    parts = (graph, *graph.subgraphs.values())
    sizes = [elements(meta) for part in parts for node in part.nodes for meta in node.outputs]
    if None in sizes:
        return 1
    fit = _BYTES // max(1, 2 * _WIDEST * sum(size or 0 for size in sizes))
    return min(MOST, fit) if fit >= _LEAST else 1


def evaluate(
    evaluator: Evaluator,
    inputs: Sequence[Sequence[Any]],
    logged: Sequence[Logged] = (),
    seen: SeenTogether | None = None,
    *,
    replay: bool = True,
) -> list[list[Any]] | None:
    """Evaluate some executions of a program that has no state; None where each has to be evaluated by itself.

    `inputs` and `logged` are as for `Evaluator.run`, of each execution, and so are the outputs that come back; `seen`
    is told the values of all executions, node by node.
    """
    import torch

    evaluator.limits.begin(inputs[0])
    try:
        with threads_for(evaluator.graph), torch.no_grad():
            return _Evaluation(evaluator, len(inputs), seen).run(inputs, logged, replay=replay)
    except Exception:  # whatever it is, an execution by itself tells it of its own values
        logger.debug("executions are evaluated one by one", exc_info=True)
        return None


def outputs(evaluator: Evaluator, inputs: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """What `Evaluator.run` gives for each of several flat inputs, which go side by side where they can.

    Raises
    ------
    UsageError, PairingError
        As `Evaluator.run`.
    """
    found: list[list[Any]] = []
    most = how_many(evaluator.graph) if evaluator.independent else 1
    for first in range(0, len(inputs), most):
        several = inputs[first : first + most]
        known = evaluate(evaluator, several) if len(several) > 1 else None
        found += known if known is not None else [evaluator.run(values) for values in several]
    return found


class _Evaluation:
    def __init__(self, evaluator: Evaluator, count: int, seen: SeenTogether | None) -> None:
        self._evaluator, self._count, self._seen = evaluator, count, seen

    def run(self, inputs: Sequence[Sequence[Any]], logged: Sequence[Logged], *, replay: bool) -> list[list[Any]]:
        """The outputs of the reference."""
        evaluator, graph = self._evaluator, self._evaluator.graph
        env = evaluator.bind(graph, [_many(list(values)) for values in zip(*inputs, strict=True)])
        local = dict(env) if replay and logged else None
        scopes = [Scope(env, local, None, told) for told in logged]
        last = evaluator.last_uses(graph)
        for node in graph.nodes:
            env[node.name] = self._value(graph, node, env)
            if self._seen is not None and scopes:
                self._seen(node, self._values(graph, node, env, local, scopes))
            for name in last.get(node.name, ()):
                for values in (env, local or {}, *(scope.chains for scope in scopes)):
                    values.pop(name, None)
        outputs = [evaluator.look_up(env, out) for out in graph.outputs]
        return list(map(list, _each(outputs, self._count)))

    def _values(
        self, graph: Graph, node: Node, env: dict[str, Any], local: dict[str, Any] | None, scopes: Sequence[Scope]
    ) -> list[Value]:
        """The values of a node in each execution; later nodes have what the runtime logged of it."""
        evaluator, count, again = self._evaluator, self._count, None
        logged = [scope.logged(node) if scope.logged is not None else None for scope in scopes]
        both = Value(env[node.name], None, _together(logged))
        if local is not None and node.target == OBSERVED:
            both.local = [evaluator.look_up(local, leaf) for leaf in node.args]
        elif local is not None:
            both.local, given = both.reference, env
            if not all(local[name] is env[name] for name in evaluator.reads(node)):
                both.local, given = self._value(graph, node, local), local
            if node.instruction >= 0:
                again = partial(self._again, graph, node, *evaluator.arguments(given, node))
        references = _each(both.reference, count)
        locals_ = references if both.local is both.reference else _each(both.local, count)
        values = list(map(Value, references, locals_, logged))
        if again is not None:
            for at, value in enumerate(values):
                value.again = partial(again, at)
        if evaluator.is_dynamic(graph, node, replay=local is not None):
            args, _ = evaluator.arguments(env, node)
            for value, own in zip(values, _each(args, count), strict=True):
                value.steps, value.note = evaluator.steps(graph, node, own, value.reference)
        if local is not None:
            self._go_on(graph, node, both, values, env, local, scopes)
        return values

    def _go_on(
        self,
        graph: Graph,
        node: Node,
        both: Value,
        values: Sequence[Value],
        env: dict[str, Any],
        local: dict[str, Any],
        scopes: Sequence[Scope],
    ) -> None:
        """Let later nodes have what the runtime had, as `Evaluator` does."""
        evaluator = self._evaluator
        local[node.name] = merge(node, both)
        if evaluator.is_chained(node, values[0], scopes[0]):  # so are the others
            for at, (value, scope) in enumerate(zip(values, scopes, strict=True)):
                evaluator.carry_on(graph, node, value, replace(scope, env=_of_all(env, at), local=_of_all(local, at)))
        for name, runtime in observed(node, both):
            local[name] = runtime
            for scope in scopes:
                scope.chains.pop(name, None)

    def _again(
        self, graph: Graph, node: Node, args: list[Any], kwargs: dict[str, Any], at: int, rounding: Rounding
    ) -> Any:
        """The value of a node in one execution with another rounding."""
        named = {name: _of(item, at) for name, item in kwargs.items()}
        return self._evaluator.again(graph, node, _of(args, at), named, rounding)

    def _value(self, graph: Graph, node: Node, env: dict[str, Any]) -> Any:
        args, kwargs = self._evaluator.arguments(env, node)
        value = self._apply(graph, node, args, kwargs)
        check_result(node, _of(value, 0))
        self._evaluator.limits.add(node.target, value)
        return value

    def _apply(self, graph: Graph, node: Node, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if node.target == "delegate":
            return self._call(graph.inside(node), args)
        if node.target in (OBSERVED, "getitem") or not _differs([*args, *kwargs.values()]):
            return self._evaluator.apply(graph, node, args, kwargs)
        each = self._arguments(args, kwargs)
        first = next(each)
        plain = self._evaluator.limits.is_plain(node.target)
        if plain and node.target in _EXACT and not kwargs and _is_stackable(args):
            function = self._evaluator.limits.admitted(node.target, *first, self._count)
            return Many(stack=function(*(item.stack if isinstance(item, Many) else item for item in args)))
        values = [self._evaluator.operator(graph, node, *first)]
        if weight_of(node, args, kwargs) is not None or not plain:
            return _many([*values, *(self._evaluator.operator(graph, node, *given) for given in each)])
        function = self._evaluator.limits.admitted(node.target, *first, self._count - 1)
        return _many([*values, *(function(*own, **named) for own, named in each)])

    def _call(self, graph: Graph, args: list[Any]) -> list[Any]:
        env, live = self._evaluator.bind(graph, args), self._evaluator.limits.live
        last = self._evaluator.last_uses(graph)
        for node in graph.nodes:
            env[node.name] = self._value(graph, node, env)
            for name in last.get(node.name, ()):
                env.pop(name, None)
        self._evaluator.limits.live = live
        return [self._evaluator.look_up(env, out) for out in graph.outputs]

    def _arguments(self, args: list[Any], kwargs: dict[str, Any]) -> Iterator[tuple[list[Any], dict[str, Any]]]:
        """What an operator takes in each execution."""
        named = _each(list(kwargs.values()), self._count)
        for own, values in zip(_each(args, self._count), named, strict=True):
            yield own, dict(zip(kwargs, values, strict=True))


def _differs(value: Any) -> bool:
    """True if not all executions have the same."""
    kind = type(value)
    return kind is Many or (kind in (list, tuple) and any(map(_differs, value)))


def _each(value: Any, count: int) -> list[Any]:
    """The value of each execution."""
    if type(value) is Many:
        return value.items
    if not _differs(value):
        return [value] * count
    return list(map(list, zip(*(_each(item, count) for item in value), strict=True)))


def _is_stackable(args: Sequence[Any]) -> bool:
    """True if what an operator takes are whole tensors of one shape and numbers, so that each element has its own."""
    import torch

    first = next((item.items[0] for item in args if type(item) is Many), None)
    if not isinstance(first, torch.Tensor) or not first.dim() or not first.is_contiguous():
        return False
    for item in args:
        if isinstance(item, Many):
            other = item.items[0]
            if not isinstance(other, torch.Tensor) or other.shape != first.shape or not other.is_contiguous():
                return False
        elif isinstance(item, (Weight, list, tuple)) or (isinstance(item, torch.Tensor) and item.dim()):
            return False
    return True


def _many(values: list[Any]) -> Any:
    """The values of all executions as one: the value itself where they have the same, item by item where it is a list.

    Raises
    ------
    _ApartError
        If they are of different kinds, or other numbers.
    """
    import torch

    first = values[0]
    if all(value is first for value in values):
        return first
    if isinstance(first, (list, tuple)):
        if any(len(value) != len(first) for value in values):
            raise _ApartError
        return [_many(list(items)) for items in zip(*values, strict=True)]
    if isinstance(first, torch.Tensor):
        kind = first.dtype, first.shape, first.stride()
        if any((value.dtype, value.shape, value.stride()) != kind for value in values):
            raise _ApartError
    else:
        raise _ApartError
    return Many(items=values)


def _of_all(env: Mapping[str, Any], at: int) -> dict[str, Any]:
    """The values of one execution, by name."""
    return {name: _of(value, at) for name, value in env.items()}


def _together(logged: list[list[Any] | None]) -> list[Any] | None:
    """What was logged in each execution, as one."""
    if any((item is None) is not (logged[0] is None) for item in logged):
        raise _ApartError
    return None if logged[0] is None else _many(logged)


def _of(value: Any, at: int) -> Any:
    """The value of one execution."""
    if isinstance(value, Many):
        return value.items[at]
    return [_of(item, at) for item in value] if isinstance(value, (list, tuple)) else value
