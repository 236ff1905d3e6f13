"""Several executions of one program, evaluated side by side: each operator is looked up and checked once for all.

To walk a small program takes longer than to compute it. Here operators that treat each element by itself, with steps
that are rounded exactly, run once on the tensors of all executions; any other runs for one execution after the other.
So every value is, bit for bit, what the execution gives by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from etviz.evaluation.evaluator import Logged, Value, check_result, merge
from etviz.evaluation.interpreter import Weight
from etviz.evaluation.products import weight_of
from etviz.evaluation.threads import threads_for
from etviz.evaluation.unpacked import elements
from etviz.graph.ir import OBSERVED, Graph, Node, map_arg, refs

if TYPE_CHECKING:
    import torch

    from etviz.evaluation.evaluator import Evaluator

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

    @cached_property
    def stack(self) -> torch.Tensor:
        """All of them."""
        import torch

        return torch.stack(self.items)


@dataclass(frozen=True, slots=True)
class Known:
    """The values of one of several executions, computed already.

    `references` and `locals` are by node; there is no local value where it is the reference itself.
    """

    references: dict[str, Any]
    locals: dict[str, Any]
    at: int

    def reference(self, node: Node) -> Any:
        """See `etviz.evaluation.evaluator.Beforehand`."""
        return _of(self.references.get(node.name), self.at)

    def local(self, node: Node) -> Any:
        """See `etviz.evaluation.evaluator.Beforehand`."""
        return _of(self.locals.get(node.name), self.at)


def how_many(graph: Graph) -> int:
    """How many executions of a program are worth to go side by side; 1 where they can't."""
    parts = (graph, *graph.subgraphs.values())
    sizes = [elements(meta) for part in parts for node in part.nodes for meta in node.outputs]
    if None in sizes:
        return 1
    fit = _BYTES // max(1, 2 * _WIDEST * sum(size or 0 for size in sizes))
    return min(MOST, fit) if fit >= _LEAST else 1


def evaluate(
    evaluator: Evaluator, inputs: Sequence[Sequence[Any]], logged: Sequence[Logged], *, replay: bool
) -> list[Known] | None:
    """Evaluate some executions of a program that has no state; None where each has to be evaluated by itself.

    `inputs` and `logged` are as for `Evaluator.run`, of each execution.
    """
    import torch

    evaluator.limits.begin(inputs[0])
    try:
        with threads_for(evaluator.graph), torch.no_grad():
            known = _Evaluation(evaluator, len(inputs)).run(inputs, logged if replay else None)
    except Exception:  # noqa: BLE001 - whatever it is, an execution by itself tells it of its own values
        return None
    return [Known(*known, at) for at in range(len(inputs))]


def outputs(evaluator: Evaluator, inputs: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """What `Evaluator.run` gives for each of several flat inputs, which go side by side where they can.

    Raises
    ------
    UsageError, PairingError
        As `Evaluator.run`.
    """
    found, most = [], how_many(evaluator.graph) if evaluator.independent else 1
    for first in range(0, len(inputs), most):
        several = inputs[first : first + most]
        known = evaluate(evaluator, several, [], replay=False) if len(several) > 1 else None
        for values, evaluator.beforehand in zip(several, known or [None] * len(several), strict=True):
            found.append(evaluator.run(values))
    evaluator.beforehand = None
    return found


class _Evaluation:
    def __init__(self, evaluator: Evaluator, count: int) -> None:
        self._evaluator, self._count = evaluator, count

    def run(
        self, inputs: Sequence[Sequence[Any]], logged: Sequence[Logged] | None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """The references by node, and the local values that are others."""
        graph = self._evaluator.graph
        env = self._evaluator.bind(graph, [_many(list(values)) for values in zip(*inputs, strict=True)])
        references, others = {}, {}
        local = dict(env)
        last = self._evaluator.last_uses(graph)
        for node in graph.nodes:
            env[node.name] = reference = self._value(graph, node, env)
            if node.target not in (OBSERVED, "getitem"):
                references[node.name] = reference
            if logged is not None:
                self._replay(graph, node, reference, env, local, [told(node) for told in logged], others)
            for name in last.get(node.name, ()):
                env.pop(name, None)
                local.pop(name, None)
        return references, others

    def _replay(
        self,
        graph: Graph,
        node: Node,
        reference: Any,
        env: dict[str, Any],
        local: dict[str, Any],
        logged: list[list[Any] | None],
        others: dict[str, Any],
    ) -> None:
        """Go on with what the runtime logged of a node, as `Evaluator.step` does."""
        value = Value(reference, reference, _together(logged))
        if node.target == OBSERVED:
            local |= dict(zip(refs(node.args), value.runtime or [], strict=False))
        elif not all(local[name] is env[name] for name in self._evaluator.reads(node)):
            value.local = self._value(graph, node, local)
            if node.target != "getitem":
                others[node.name] = value.local
        local[node.name] = merge(node, value)

    def _value(self, graph: Graph, node: Node, env: dict[str, Any]) -> Any:
        args, kwargs = self._evaluator.arguments(env, node)
        value = self._apply(graph, node, args, kwargs)
        check_result(node, _of(value, 0))
        self._evaluator.limits.add(node.target, [_of(value, at) for at in range(self._count)])
        return value

    def _apply(self, graph: Graph, node: Node, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if node.target == "delegate":
            return self._call(graph.inside(node), args)
        found: list[Many] = []
        map_arg((args, kwargs), lambda leaf: found.append(leaf) if isinstance(leaf, Many) else None)
        if node.target in (OBSERVED, "getitem") or not found:
            return self._evaluator.apply(graph, node, args, kwargs)
        first = self._arguments(args, kwargs, 0)
        if node.target in _EXACT and not kwargs and _is_stackable(args, found[0]):
            function = self._evaluator.limits.admitted(node.target, *first, self._count)
            return Many(stack=function(*(item.stack if isinstance(item, Many) else item for item in args)))
        values = [self._evaluator.operator(graph, node, *first)]
        if weight_of(node, args, kwargs) is not None:
            others = (self._arguments(args, kwargs, at) for at in range(1, self._count))
            return _many([*values, *(self._evaluator.operator(graph, node, *given) for given in others)])
        function = self._evaluator.limits.admitted(node.target, *first, self._count - 1)
        for at in range(1, self._count):
            own, named = self._arguments(args, kwargs, at)
            values.append(function(*own, **named))
        return _many(values)

    def _call(self, graph: Graph, args: list[Any]) -> list[Any]:
        env, live = self._evaluator.bind(graph, args), self._evaluator.limits.live
        last = self._evaluator.last_uses(graph)
        for node in graph.nodes:
            env[node.name] = self._value(graph, node, env)
            for name in last.get(node.name, ()):
                env.pop(name, None)
        self._evaluator.limits.live = live
        return [self._evaluator.look_up(env, out) for out in graph.outputs]

    def _arguments(self, args: list[Any], kwargs: dict[str, Any], at: int) -> tuple[list[Any], dict[str, Any]]:
        return [_of(item, at) for item in args], {name: _of(item, at) for name, item in kwargs.items()}


def _is_stackable(args: Sequence[Any], like: Many) -> bool:
    """True if what an operator takes are whole tensors of one shape and numbers, so that each element has its own."""
    import torch

    first = like.items[0]
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
