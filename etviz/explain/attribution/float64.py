"""Evaluates a graph in float64, with a gradient for every operator that can have one.

Quantized integers travel as whole float64 values; the derivative of rounding is 1 within the range and 0 beyond it
(straight-through: Y. Bengio, N. Léonard, A. Courville, "Estimating or propagating gradients through stochastic
neurons", 2013). Rounding happens in float32, as in the program, so that ties fall on the same side.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import torch

from etviz.errors import EtvizError, PairingError
from etviz.evaluation.interpreter import GraphInterpreter, State
from etviz.evaluation.limits import Limits
from etviz.evaluation.operator_rules import by_position, constant, is_pointwise, resolve
from etviz.evaluation.products import is_cut, product, weight_of
from etviz.evaluation.rounds import Course
from etviz.evaluation.unpacked import Quantized
from etviz.evaluation.values import flat_values
from etviz.explain.attribution.affine_end import PRODUCTS, AffineEnd
from etviz.explain.attribution.differences import narrowed
from etviz.explain.attribution.wide_constants import WideConstants, widen
from etviz.graph.ir import LOOPS, Graph, Meta, Node, Ref, Tag, map_arg
from etviz.graph.loops import body_of
from etviz.graph.quantize_ops import LINEAR, QUANTIZE, GridArguments, conversion, granularity, grid_arguments
from etviz.tensors.finite import has_nonfinite

After = Callable[[Node, Any], Any]
_HALF_TO_FLOAT: Final = {"aten._softmax.default", "aten._log_softmax.default"}
_EMBEDDING: Final = "aten.embedding.default"
_BATCHED: Final = "aten.bmm.default"
_VIEWS: Final = {
    "aten.permute_copy.default": "aten.permute.default",
    "aten.transpose_copy.int": "aten.transpose.int",
    "aten.t_copy.default": "aten.t.default",
    "aten.view_copy.default": "aten.reshape.default",
    "aten.expand_copy.default": "aten.expand.default",
    "aten.unsqueeze_copy.default": "aten.unsqueeze.default",
    "aten.select_copy.int": "aten.select.int",
    "aten.slice_copy.Tensor": "aten.slice.Tensor",
    "aten.squeeze_copy.dims": "aten.squeeze.dims",
}
"""Copies that may be views here, because nothing is overwritten."""
_COPIES: Final = frozenset(("aten.clone.default", "dim_order_ops._clone_dim_order.default"))
_STEPS: Final = frozenset(f"aten.{name}.default" for name in ("round", "floor", "ceil", "trunc"))


@dataclass(frozen=True, slots=True)
class ExpansionPoint:
    at: int
    env: dict[str, Any]
    state: State


@dataclass(frozen=True, slots=True)
class _Evaluation:
    start: int
    env: dict[str, Any]
    state: State
    after: After | None = None
    gradient: bool = True
    left_out: frozenset[str] = frozenset()

    @classmethod
    def of(cls, point: ExpansionPoint, after: After | None) -> _Evaluation:
        return cls(point.at, dict(point.env), dict(point.state), after)


class Float64(GraphInterpreter):
    """Every value of the graph `seen` is computed; in other graphs, weights stay quantized until products take them."""

    constants: WideConstants

    def __init__(self, constants: Mapping[str, torch.Tensor], limits: Limits, seen: Graph | None = None) -> None:
        super().__init__(WideConstants(constants, _tables(seen) if seen is not None else ()))
        self._limits = limits
        self._seen = seen
        self._metas: dict[int, dict[str, Meta]] = {}

    def call(self, graph: Graph, args: Sequence[Any], after: After | None = None) -> list[Any]:
        return self._run(graph, self.bind(graph, args), after)

    def begin(self, graph: Graph, args: Sequence[Any], state: State) -> ExpansionPoint:
        self.state = dict(state)
        return ExpansionPoint(0, self.bind(graph, args), self.state)

    def advance(self, graph: Graph, point: ExpansionPoint, to: int, after: After | None = None) -> ExpansionPoint:
        lane = _Evaluation.of(point, after)
        self._walk(graph, [lane], to)
        return ExpansionPoint(to, lane.env, lane.state)

    def finish(
        self, graph: Graph, starts: Sequence[tuple[ExpansionPoint, After]], tell: Callable[[], None] = lambda: None
    ) -> list[list[Any]]:
        lanes = [_Evaluation.of(point, after) for point, after in starts]
        self._walk(graph, lanes, len(graph.nodes), tell)
        return [self._ended(graph, lane) for lane in lanes]

    def _run(self, graph: Graph, env: dict[str, Any], after: After | None) -> list[Any]:
        lane = _Evaluation(0, env, self.state, after)
        self._walk(graph, [lane], len(graph.nodes))
        return self._ended(graph, lane)

    def _ended(self, graph: Graph, lane: _Evaluation) -> list[Any]:
        self.state = lane.state
        return self.results(graph, lane.env)

    def _walk(
        self, graph: Graph, lanes: Sequence[_Evaluation], to: int, tell: Callable[[], None] = lambda: None
    ) -> None:
        last, first = self.last_uses(graph), min(lane.start for lane in lanes)
        for at, node in enumerate(graph.nodes[first:to], first):
            here = [lane for lane in lanes if lane.start <= at and node.name not in lane.left_out]
            for lane, value in zip(here, self._values(graph, node, here), strict=True):
                lane.env[node.name] = lane.after(node, value) if lane.after is not None else value
                for name in last.get(node.name, ()):
                    lane.env.pop(name, None)
            tell()

    def _values(self, graph: Graph, node: Node, lanes: Sequence[_Evaluation]) -> list[Any]:
        if node.target == "delegate":
            inner = graph.inside(node)
            given = [_Evaluation(0, self._bound(inner, node, lane), lane.state, None, lane.gradient) for lane in lanes]
            self._walk(inner, given, len(inner.nodes))
            return [self._ended(inner, lane) for lane in given]
        if self._unpacked.holds(graph, node):
            before = self._unpacked.before(graph, node)
            if all(lane.env[name] is lanes[0].env[name] for lane in lanes for name in before):
                return [self._value(graph, node, lanes[0])] * len(lanes)
            return [self._value(graph, node, lane) for lane in lanes]
        if len(lanes) > 1 and node.target in PRODUCTS:
            given = [_by_place(node, *self.arguments(lane.env, node)) for lane in lanes]
            if (weight := weight_of(node.target, given[0], {})) is not None:
                alone = 1 if lanes[0].gradient else 0
                with _gradients(lanes[0]):
                    first = self._products(weight, given[:alone]) if alone else []
                with _gradients(lanes[-1]):
                    return [*first, *self._products(weight, given[alone:])]
            return self._from_first(graph, node, lanes, given)
        return [self._value(graph, node, lane) for lane in lanes]

    def _from_first(
        self, graph: Graph, node: Node, lanes: Sequence[_Evaluation], given: Sequence[list[Any]]
    ) -> list[Any]:
        """Lanes differ by the product of the operands' difference: its float32 rounding is a ten-millionth."""
        first, values = given[0], [self._value(graph, node, lanes[0])]
        operand, weight = PRODUCTS[node.target]
        narrow = self.constants.narrow(first[weight]) if len(first) > weight else None
        for lane, operands in zip(lanes[1:], given[1:], strict=True):
            same = all(
                a is b or _equal(a, b) for at, (a, b) in enumerate(zip(first, operands, strict=True)) if at != operand
            )
            short = _short(operands[operand], first[operand]) if same and narrow is not None else None
            if short is None or narrow is None or operands[operand].shape != first[operand].shape:
                values.append(self._value(graph, node, lane))
                continue
            difference, factor = short
            value = values[0].detach()
            if factor:
                moved = self._limits.call(*_moved(node.target, difference, narrow.float(), operands))
                wide = moved.double()
                value = torch.add(value, wide, alpha=factor, out=wide)
            values.append(value)
        return values

    def side_by_side(
        self, graph: Graph, node: Node, given: Sequence[tuple[dict[str, Any], State]], *, gradients: bool
    ) -> list[Any]:
        lanes = [_Evaluation(0, env, state, None, gradients and not at) for at, (env, state) in enumerate(given)]
        return self._values(graph, node, lanes)

    def before_end(
        self, graph: Graph, node: Node, end: AffineEnd, given: tuple[dict[str, Any], dict[str, Any]], state: State
    ) -> tuple[Any, list[tuple[Any, Any]]]:
        """The value in the first of two lanes, and what enters the affine end in both of them."""
        first, second = {name: _entering(value, name in end.given) for name, value in given[0].items()}, given[1]
        entering = [(first[name], second[name]) for name in end.given]
        if node.target != "delegate":
            return self._values(graph, node, [_Evaluation(0, first, state)])[0], entering
        inner, ones, others = graph.inside(node), dict[str, Any](), dict[str, Any]()

        def enter(item: Node, value: Any) -> Any:
            return ones.setdefault(item.name, _entering(value, True)) if item.name in end.values else value

        def keep(item: Node, value: Any) -> Any:
            return others.setdefault(item.name, value) if item.name in end.values else value

        one, other = (self._bound(inner, node, _Evaluation(0, env, state)) for env in (first, second))
        without = _Evaluation(0, other, state, keep, gradient=False, left_out=end.nodes)
        lanes = [_Evaluation(0, one, state, enter), without]
        self._walk(inner, lanes, len(inner.nodes))
        return self._ended(inner, lanes[0]), entering + [(ones[name], others[name]) for name in end.values]

    def _bound(self, inner: Graph, node: Node, lane: _Evaluation) -> dict[str, Any]:
        self.state = lane.state
        return self.bind(inner, self.arguments(lane.env, node)[0])

    def _value(self, graph: Graph, node: Node, lane: _Evaluation) -> Any:
        with _gradients(lane):
            return self._evaluated(graph, node, lane)

    def _evaluated(self, graph: Graph, node: Node, lane: _Evaluation) -> Any:
        self.state = lane.state
        if node.target == "cond":
            return self._run(*self.enter(graph, node, lane.env), lane.after)
        if node.target in LOOPS:
            body, course = body_of(graph, node), Course(*self.arguments(lane.env, node)[0])
            for at in range(course.rounds):
                course.end(self._run(body, self.bind(body, course.given(at)), lane.after))
            return course.value()
        return self.apply(graph, node, *self.arguments(lane.env, node))

    def constant(self, tag: Tag) -> Any:
        value = super().constant(tag)
        return torch.float64 if tag.kind == "dtype" and value.is_floating_point else value

    def operator(self, graph: Graph, node: Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if self._unpacked.holds(graph, node):
            weight = self._streamed(graph, node, args, kwargs)
            given = [*args, *kwargs.values()]
            return weight or self._unpacked.value(graph, node, given, partial(self._unpack, graph, node, args, kwargs))
        if (weight := weight_of(node.target, args, kwargs)) is not None:
            return self._products(weight, [_by_place(node, args, kwargs)])[0]
        return self._compute(graph, node, args, kwargs)

    def _streamed(self, graph: Graph, node: Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Quantized | None:
        if graph is self._seen or not self._unpacked.streams(graph, node):
            return None
        weight = Quantized.of(node.target, args, kwargs, torch.float64) if self._limits.is_plain(node.target) else None
        return weight if weight is not None and weight.has_rows else None

    def _products(self, weight: Quantized, given: Sequence[list[Any]]) -> list[Any]:
        like = weight.like
        whole = not self._limits.is_plain(LINEAR) or not all(is_cut(weight, item) for item in given)
        matrix = weight.whole() if whole else like
        full = [[item[0], matrix, *item[2:]] for item in given]
        if whole:
            return [widen(self._limits.call(LINEAR, item, {})) for item in full]
        calls = [self._limits.admitted(LINEAR, item, {}) for item in full]
        bias = [*map(id, given[0][2:])]
        together = all(item[0].dim() > 1 and [*map(id, item[2:])] == bias for item in given)
        if len(given) == 1 or not together:
            return [product(call, weight, item) for call, item in zip(calls, full, strict=True)]
        value = product(calls[0], weight, [torch.cat([item[0].flatten(0, -2) for item in full]), like, *full[0][2:]])
        values = value.split([item[0].shape[:-1].numel() for item in full])
        return [part.view(*item[0].shape[:-1], -1) for part, item in zip(values, full, strict=True)]

    def _unpack(self, graph: Graph, node: Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        made = self._unpacked.dequantized(node.target, args, kwargs, torch.float64)
        return made if made is not None else self._compute(graph, node, args, kwargs)

    def _compute(self, graph: Graph, node: Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        target = node.target
        if target in ("aten.copy_.default", "aten.copy.default"):  # torch has no derivative of the latter
            into, source = [*args, *(kwargs[name] for name in ("self", "src")[len(args) :])][:2]
            return source.expand_as(into).clone()
        if target in _STEPS or granularity(target):
            return _rounded(target, by_position(target, args, kwargs)[0])
        if target in _HALF_TO_FLOAT:
            args, kwargs = [*by_position(target, args, kwargs)[0][:2], False], {}
        if (view := _VIEWS.get(target)) is not None:
            (args, kwargs), target = by_position(target, args, kwargs), view
        if target in _COPIES:
            args, kwargs, target = by_position(target, args, kwargs)[0][:1], {}, "aten.alias.default"
        try:
            if target in PRODUCTS:
                return self._product(node, _by_place(node, args, kwargs))
            if target == _BATCHED and torch.is_grad_enabled():
                return functions()[1].apply(*_by_place(node, args, kwargs), partial(self._limits.call, target))
            if (place := _of_one(target, args, kwargs)) is not None:
                before, after = args[:place], args[place + 1 :]

                def function(x: torch.Tensor) -> torch.Tensor:
                    return self._limits.call(target, [*before, x, *after], kwargs)

                return functions()[2].apply(args[place], function)
            value = widen(self._limits.call(target, args, kwargs))
            return value if target in _VIEWS.values() else _given_in_order(value)
        except EtvizError:
            raise
        except Exception:  # noqa: BLE001 - operators without a float64 kernel say so in many ways
            return self._narrow(graph, node, args, kwargs)

    def _product(self, node: Node, given: list[Any]) -> Any:
        operand, weight = PRODUCTS[node.target]
        x = given[operand]
        grads = [tensor for tensor in given if isinstance(tensor, torch.Tensor) and tensor.requires_grad]
        narrow = (
            self.constants.narrow_again(given[weight])
            if torch.is_grad_enabled() and [*map(id, grads)] == [id(x)]
            else None
        )
        if narrow is None or (backward := _backward(node.target, given, narrow)) is None:
            return widen(self._limits.call(node.target, given, {}))

        def forward(value: torch.Tensor) -> torch.Tensor:
            return widen(self._limits.call(node.target, [*given[:operand], value, *given[operand + 1 :]], {}))

        return functions()[0].apply(x, forward, backward)

    def again(self, address: int) -> Callable[[], torch.Tensor] | None:
        source = self._unpacked.source(address)
        return partial(self._weight, *source) if source is not None else None

    def _weight(self, graph: Graph, node: Node) -> Any:
        nodes = {item.name: item for item in graph.nodes}
        env = self.bind(graph, ())

        def look_up(leaf: Any) -> Any:
            known = not isinstance(leaf, Ref) or leaf.name in env
            return self.look_up(env, leaf) if known else self._weight(graph, nodes[leaf.name])

        return self.operator(graph, node, map_arg(node.args, look_up), map_arg(node.kwargs, look_up))

    def _narrow(self, graph: Graph, node: Node, args: Any, kwargs: Any) -> Any:
        if id(graph) not in self._metas:
            self._metas[id(graph)] = _metas(graph)
        metas = self._metas[id(graph)]

        def narrow(leaf: Any, value: Any) -> Any:
            if isinstance(leaf, Tag):
                return constant(leaf.kind, leaf.value)
            if not isinstance(value, torch.Tensor) or value.dtype != torch.float64:
                return value
            meta = metas.get(leaf.name) if isinstance(leaf, Ref) else None
            dtype = getattr(torch, meta.dtype, torch.float32) if meta is not None else torch.float32
            return value.to(dtype) if dtype.is_floating_point else value.detach().round().to(dtype)

        try:
            narrowed = _zip_args(node.args, args, narrow)
            return widen(self._limits.call(node.target, narrowed, _zip_args(node.kwargs, kwargs, narrow)))
        except Exception as error:
            raise PairingError(f"The reference of {node.name} ({node.target}) can't be computed: {error}") from error


def _given_in_order(value: Any) -> Any:
    """The batch norm of torch 2.13 reads the permuted gradient of a single image as if it was contiguous."""
    for result in flat_values(value):
        if isinstance(result, torch.Tensor) and result.requires_grad:
            result.register_hook(lambda gradient: gradient.contiguous() if gradient is not None else None)
    return value


def _entering(value: Any, enters: bool) -> Any:
    return value.view_as(value) if enters and isinstance(value, torch.Tensor) else value


def _gradients(lane: _Evaluation) -> Any:
    return torch.set_grad_enabled(lane.gradient and torch.is_grad_enabled())


def _equal(a: Any, b: Any) -> bool:
    return isinstance(a, (int, float, str, list, tuple)) and type(a) is type(b) and a == b


def _short(value: torch.Tensor, base: torch.Tensor | None = None) -> tuple[torch.Tensor, float] | None:
    value, base = value.detach(), base.detach() if base is not None else None
    found = narrowed(value, base)
    if not math.isfinite(found.largest):
        return None
    if found.value is not None and (not found.largest or 1e-15 < found.largest < 1e15):
        return found.value, 1.0 if found.largest else 0.0
    difference = value if base is None else value - base
    return (difference / found.largest).float(), found.largest


def _moved(
    target: str, difference: torch.Tensor, weight: torch.Tensor, given: Sequence[Any]
) -> tuple[str, list[Any], dict[str, Any]]:
    if target == "aten.addmm.default":
        return "aten.mm.default", [difference, weight], {}
    return target, [difference, weight, *([None] * (len(given) > 2)), *given[3:]], {}


def _backward(
    target: str, given: Sequence[Any], weight: Callable[[], torch.Tensor]
) -> Callable[[torch.Tensor], torch.Tensor] | None:
    shape = given[PRODUCTS[target][0]].shape
    if target == LINEAR:
        return lambda gradient: gradient @ weight().float()
    if target != "aten.convolution.default":
        plain = target == "aten.mm.default" or len(given) == 3
        return (lambda gradient: gradient @ weight().float().mT) if plain else None

    def convolution(gradient: torch.Tensor) -> torch.Tensor:
        like = gradient.new_empty(shape)
        mask = [True, False, False]
        return torch.ops.aten.convolution_backward(gradient, like, weight().float(), None, *given[3:9], mask)[0]

    return convolution if len(given) == 9 else None


def _of_one(target: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> int | None:
    """The place of the only tensor, if a gradient goes back to it."""
    if not torch.is_grad_enabled() or not is_pointwise(target):
        return None
    places = [at for at, value in enumerate(args) if isinstance(value, torch.Tensor)]
    alone = len(places) == 1 and not any(isinstance(value, torch.Tensor) for value in kwargs.values())
    return places[0] if alone and args[places[0]].requires_grad and args[places[0]].dtype == torch.float64 else None


@functools.cache
def functions() -> Any:
    class Product(torch.autograd.Function):
        """Its derivative in float32 suffices for shares, and spares a copy of the weight."""

        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, forward: Callable[..., torch.Tensor], backward: Any) -> torch.Tensor:
            ctx.by_operand, ctx.shape = backward, x.shape
            return forward(x)

        @staticmethod
        def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None]:
            (gradient,) = gradients
            short = _short(gradient) or (gradient.nan_to_num(0.0, 0.0, 0.0).float(), 1.0)
            by_operand = ctx.by_operand(short[0]).double().reshape(ctx.shape)
            return by_operand if short[1] in (0.0, 1.0) else by_operand * short[1], None, None

    class Batched(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, y: torch.Tensor, forward: Callable[..., torch.Tensor]) -> torch.Tensor:
            ctx.operands = [_short(operand) or (operand.detach(), 1.0) for operand in (x, y)]
            return forward([x, y], {})

        @staticmethod
        def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
            (x, by_x), (y, by_y) = ctx.operands
            gradient, factor = _short(gradients[0]) or (gradients[0], 1.0)
            return _times(gradient, y.mT, factor * by_y), _times(x.mT, gradient, factor * by_x), None

    class OfEach(torch.autograd.Function):
        """Its derivative in float32, which the program has, too."""

        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, function: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
            ctx.function, ctx.operand = function, x.float()
            return widen(function(x))

        @staticmethod
        def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
            gradient, factor = _short(gradients[0]) or (gradients[0], 1.0)
            found = _derived(ctx.function, ctx.operand, gradient).double()
            if has_nonfinite(found):
                found, factor = _derived(ctx.function, ctx.operand.double(), gradients[0]), 1.0
            return found if factor in (0.0, 1.0) else found.mul_(factor), None

    class Root(torch.autograd.Function):
        """A number whose derivative by `y` is given: torch imports a solver for roots that are no numbers."""

        @staticmethod
        def forward(ctx: Any, y: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
            ctx.gradient = gradient
            return y.new_zeros(())

        @staticmethod
        def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
            return ctx.gradient, None

    return Product, Batched, OfEach, Root


def backward(roots: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> None:
    """A backward pass from values and derivatives by them."""
    with torch.enable_grad():
        torch.autograd.backward([functions()[3].apply(y, gradient.to(y.dtype)) for y, gradient in roots])


def _derived(function: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    with torch.enable_grad():
        point = x.detach().requires_grad_()
        return torch.autograd.grad(functions()[3].apply(function(point), gradient.to(x.dtype)), point)[0]


def _times(x: torch.Tensor, y: torch.Tensor, factor: float) -> torch.Tensor:
    wide = torch.promote_types(x.dtype, y.dtype)
    product = (x.to(wide) @ y.to(wide)).double()
    return product if factor == 1.0 else product.mul_(factor)


def _by_place(node: Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    return by_position(node.target, args, kwargs)[0] if kwargs else list(args)


def _tables(graph: Graph) -> set[str]:
    tables, others = set[str](), set[str]()
    for part in _parts(graph):
        targets = {item.name: item.target for item in part.inputs if item.kind == "constant"}
        for node in part.nodes:
            table = node.kwargs.get("weight", node.args[0] if node.args else None)
            for name in node.reads():
                taken = node.target == _EMBEDDING and table == Ref(name)
                (tables if taken else others).add(targets.get(name, ""))
        others |= {targets.get(name, "") for name in part.results()}
    return tables - others


def _parts(graph: Graph) -> Iterator[Graph]:
    yield graph
    for part in graph.subgraphs.values():
        yield from _parts(part)


def rounds(target: str) -> bool:
    return target in _STEPS or (conversion(target) == QUANTIZE and bool(granularity(target)))


def _metas(graph: Graph) -> dict[str, Meta]:
    metas = {placeholder.name: placeholder.meta for placeholder in graph.inputs}
    metas |= {node.name: node.outputs[0] for node in graph.nodes if len(node.outputs) == 1}
    return {name: meta for name, meta in metas.items() if meta is not None}


def _zip_args(described: Any, values: Any, leaf: Callable[[Any, Any], Any]) -> Any:
    if isinstance(described, (list, tuple)):
        return [_zip_args(a, b, leaf) for a, b in zip(described, values, strict=False)]
    if isinstance(described, dict):
        return {key: _zip_args(item, values[key], leaf) for key, item in described.items()}
    return leaf(described, values)


def _rounded(target: str, args: Sequence[Any]) -> torch.Tensor:
    """The derivative is 1/scale within the range (straight-through)."""
    x, grid = args[0], grid_arguments(target, args, {})
    if grid is None:
        return _through(x, resolve(target)(x.detach()), 1.0)
    scale, zero = _spread(grid, grid.scale, x), _spread(grid, grid.zero_point, x)
    if conversion(target) != QUANTIZE:
        return (x.double() - zero) * scale
    narrow = [_float32(arg) if arg is x or arg is grid.scale else arg for arg in args]
    rounded = resolve(target)(*narrow).double()
    if not x.requires_grad:
        return rounded
    place = x.detach() / scale + zero
    inside = (place >= float(grid.qmin) - 0.5) & (place <= float(grid.qmax) + 0.5)
    return _through(x, rounded, inside.double() / scale)


def _float32(value: Any) -> Any:
    return value.detach().float() if isinstance(value, torch.Tensor) else value


def _spread(grid: GridArguments, value: Any, like: torch.Tensor) -> Any:
    if not isinstance(value, torch.Tensor) or value.numel() == 1:
        return float(value.detach() if isinstance(value, torch.Tensor) else value)
    blocks = list(zip(like.shape, grid.blocks(like.shape), strict=True))
    value = value.detach().double().reshape([1 if size == block else size // block for size, block in blocks])
    for axis, (size, block) in enumerate(blocks):
        if 1 < block < size:
            value = value.repeat_interleave(block, axis)
    return value


def _through(x: torch.Tensor, rounded: torch.Tensor, slope: Any) -> torch.Tensor:
    if not x.requires_grad:
        return rounded
    linear = x * slope
    return linear + (rounded - linear.detach())
