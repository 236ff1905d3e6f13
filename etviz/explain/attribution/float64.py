"""Evaluating a graph in float64, with a gradient for every operator that can have one.

Attribution needs the reference without the rounding of float32, and derivatives. Floating values are widened, also
where the program asks for a narrower type. Quantized integers travel as float64 with whole values, and the derivative
of rounding is taken as 1 within the range and 0 beyond it (straight-through estimate: Y. Bengio, N. Léonard,
A. Courville, "Estimating or propagating gradients through stochastic neurons", 2013). Rounding itself happens in
float32, as in the program, so that the same element falls on the same side of a tie.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from etviz.errors import EtvizError, PairingError
from etviz.evaluation.interpreter import Interpreter, State
from etviz.evaluation.limits import Limits
from etviz.evaluation.operators import Operator, constant, resolve
from etviz.evaluation.unpacked import Unpacked
from etviz.explain.attribution.constants import WideConstants, widen
from etviz.graph.ir import Graph, Meta, Node, Ref, Tag, map_arg
from etviz.graph.quantize_ops import QUANTIZE, GridArguments, conversion, granularity, grid_arguments

if TYPE_CHECKING:
    import torch

After = Callable[[Node, Any], Any]
_HALF_TO_FLOAT: Final = {"aten._softmax.default", "aten._log_softmax.default"}
_STEPS: Final = frozenset(f"aten.{name}.default" for name in ("round", "floor", "ceil", "trunc"))


@dataclass(frozen=True, slots=True)
class Point:
    """Where an evaluation stands: before which node, with which values and mutable buffers."""

    at: int
    env: dict[str, Any]
    state: State


class Float64(Interpreter):
    """Evaluates the graphs of one method in float64; constants are widened when they are needed."""

    constants: WideConstants

    def __init__(self, constants: Mapping[str, torch.Tensor], limits: Limits) -> None:
        super().__init__(WideConstants(constants))
        self._limits = limits
        self._metas: dict[int, dict[str, Meta]] = {}
        self._unpacked = Unpacked()

    def call(self, graph: Graph, args: Sequence[Any], after: After | None = None) -> list[Any]:
        """Evaluate a graph on flat inputs; `after` may replace the value of each node."""
        return self._run(graph, self.bind(graph, args), after)

    def begin(self, graph: Graph, args: Sequence[Any], state: State) -> Point:
        """Where the evaluation of a graph on flat inputs begins, with these mutable buffers."""
        self.state = dict(state)
        return Point(0, self.bind(graph, args), self.state)

    def advance(self, graph: Graph, point: Point, to: int, after: After | None = None) -> Point:
        """Evaluate from a point, which stays as it is, up to the node at `to`."""
        env, self.state = dict(point.env), dict(point.state)
        self._walk(graph, graph.nodes[point.at : to], env, after)
        return Point(to, env, dict(self.state))

    def finish(self, graph: Graph, point: Point, after: After | None = None) -> list[Any]:
        """Evaluate from a point to the end; the outputs."""
        return self.results(graph, self.advance(graph, point, len(graph.nodes), after).env)

    def _run(self, graph: Graph, env: dict[str, Any], after: After | None) -> list[Any]:
        self._walk(graph, graph.nodes, env, after)
        return self.results(graph, env)

    def _walk(self, graph: Graph, nodes: Sequence[Node], env: dict[str, Any], after: After | None) -> None:
        last = self.last_uses(graph)
        for node in nodes:
            if node.target == "cond":
                value: Any = self._run(*self.enter(graph, node, env), after)
            else:
                args, kwargs = self.arguments(env, node.args), self.arguments(env, node.kwargs)
                value = self.apply(graph, node, args, kwargs)
            env[node.name] = after(node, value) if after is not None else value
            for name in last.get(node.name, ()):
                env.pop(name, None)

    def constant(self, tag: Tag) -> Any:
        """The torch object that an argument names, float64 for every floating dtype."""
        import torch

        value = super().constant(tag)
        return torch.float64 if tag.kind == "dtype" and value.is_floating_point else value

    def operator(self, graph: Graph, node: Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """What an operator gives on widened arguments; a `PairingError` if it fails in the program's types too."""
        if self._unpacked.holds(graph, node):
            return self._unpacked.value(graph, node, partial(self._unpack, graph, node, args, kwargs))
        return self._compute(graph, node, args, kwargs)

    def _unpack(self, graph: Graph, node: Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        import torch

        made = self._unpacked.dequantized(node.target, args, kwargs, torch.float64)
        return made if made is not None else self._compute(graph, node, args, kwargs)

    def _compute(self, graph: Graph, node: Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        target = node.target
        if target in ("aten.copy_.default", "aten.copy.default"):  # torch has no derivative of the latter
            return args[1].expand_as(args[0]).clone()
        if target in _STEPS or granularity(target):
            return _rounded(target, _positional(target, args, kwargs))
        if target in _HALF_TO_FLOAT:
            args, kwargs = [*_positional(target, args, kwargs)[:2], False], {}
        try:
            return widen(self._limits.call(target, args, kwargs))
        except EtvizError:
            raise
        except Exception:  # noqa: BLE001 - operators without a float64 kernel say so in many ways
            return self._narrow(graph, node, args, kwargs)

    def again(self, address: int) -> Callable[[], torch.Tensor] | None:
        """What computes a dequantized weight at an address once more; None where there is none."""
        source = self._unpacked.source(address)
        return partial(self._weight, *source) if source is not None else None

    def _weight(self, graph: Graph, node: Node) -> Any:
        """A dequantized weight, from the constants alone."""
        nodes = {item.name: item for item in graph.nodes}
        env = self.bind(graph, ())

        def look_up(leaf: Any) -> Any:
            known = not isinstance(leaf, Ref) or leaf.name in env
            return self.look_up(env, leaf) if known else self._weight(graph, nodes[leaf.name])

        return self.operator(graph, node, map_arg(node.args, look_up), map_arg(node.kwargs, look_up))

    def _narrow(self, graph: Graph, node: Node, args: Any, kwargs: Any) -> Any:
        """Evaluate in the types of the program."""
        import torch

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


def rounds(target: str) -> bool:
    """True for operators whose derivative is 0 almost everywhere though they only round."""
    return target in _STEPS or (conversion(target) == QUANTIZE and bool(granularity(target)))


def _metas(graph: Graph) -> dict[str, Meta]:
    metas = {item.name: item.meta for item in graph.inputs}
    metas |= {node.name: node.outputs[0] for node in graph.nodes if len(node.outputs) == 1}
    return {name: meta for name, meta in metas.items() if meta is not None}


def _zip_args(described: Any, values: Any, leaf: Callable[[Any, Any], Any]) -> Any:
    if isinstance(described, (list, tuple)):
        return [_zip_args(a, b, leaf) for a, b in zip(described, values, strict=False)]
    if isinstance(described, dict):
        return {key: _zip_args(item, values[key], leaf) for key, item in described.items()}
    return leaf(described, values)


def _positional(target: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """All arguments of an operator by position; those that have to be named are left out."""
    function = resolve(target)
    if not isinstance(function, Operator):
        return [*args, *kwargs.values()]
    schema = function.schema
    names = [argument.name for argument in schema.arguments if not argument.kwarg_only]
    defaults = {argument.name: argument.default_value for argument in schema.arguments}
    return [*args, *(kwargs.get(name, defaults[name]) for name in names[len(args) :])]


def _rounded(target: str, args: Sequence[Any]) -> torch.Tensor:
    """What rounding, quantize and dequantize give; the derivative is 1/scale inside of the range (straight-through)."""
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
    import torch

    return value.detach().float() if isinstance(value, torch.Tensor) else value


def _spread(grid: GridArguments, value: Any, like: torch.Tensor) -> Any:
    """A scale or a zero point, of a shape that broadcasts with the value."""
    import torch

    if not isinstance(value, torch.Tensor) or value.numel() == 1:
        return float(value.detach() if isinstance(value, torch.Tensor) else value)
    blocks = list(zip(like.shape, grid.blocks(like.shape), strict=True))
    value = value.detach().double().reshape([1 if size == block else size // block for size, block in blocks])
    for axis, (size, block) in enumerate(blocks):
        if 1 < block < size:
            value = value.repeat_interleave(block, axis)
    return value


def _through(x: torch.Tensor, rounded: torch.Tensor, slope: Any) -> torch.Tensor:
    """`rounded` with the derivative `slope` by `x`."""
    if not x.requires_grad:
        return rounded
    linear = x * slope
    return linear + (rounded - linear.detach())
