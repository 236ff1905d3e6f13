"""Evaluating a graph in float64, with a gradient for every operator that can have one.

Attribution needs the reference without the rounding of float32, and derivatives. Floating values are widened, also
where the program asks for a narrower type. Quantized integers travel as float64 with whole values, and the derivative
of rounding is taken as 1 within the range and 0 beyond it (straight-through estimate: Y. Bengio, N. Léonard,
A. Courville, "Estimating or propagating gradients through stochastic neurons", 2013).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from etviz.artifacts.ir import OBSERVED, Graph, Meta, Node, Ref, Tag, map_arg, refs
from etviz.errors import EtvizError, PairingError
from etviz.numerics.operators import constant, resolve
from etviz.numerics.quantized import is_dequantize, is_rounding, positional, round_through, widen_dequantize
from etviz.numerics.reference import last_uses
from etviz.numerics.widened import Widened, widen

if TYPE_CHECKING:
    import torch

State = dict[str, Any]
After = Callable[[Node, Any], Any]
_HALF_TO_FLOAT: Final = {"aten._softmax.default", "aten._log_softmax.default"}


class Exact:
    """Evaluates the graphs of one method in float64.

    Parameters
    ----------
    constants
        Tensors by `Input.target`; each is widened when it is needed.
    """

    def __init__(self, constants: Mapping[str, torch.Tensor]) -> None:
        self.constants = Widened(constants)
        self._metas: dict[int, dict[str, Meta]] = {}

    def run(self, graph: Graph, args: Sequence[Any], state: State, after: After | None = None) -> list[Any]:
        """Evaluate a graph on flat inputs.

        Parameters
        ----------
        args
            One for each user input.
        state
            Mutable buffers by `Input.target`; written where the graph overwrites them.
        after
            May replace the value of each node.

        Raises
        ------
        PairingError
            If an operator fails.
        """
        env = self.inputs(graph, args, state)
        last = last_uses(graph)
        for node in graph.nodes:
            value = self._step(graph, node, env, state, after)
            env[node.name] = after(node, value) if after is not None else value
            for name in last.get(node.name, ()):
                env.pop(name, None)
        outputs = [self.look_up(env, out) for out in graph.outputs]
        state.update({target: self.look_up(env, Ref(name)) for target, name in graph.mutations.items()})
        return outputs

    def inputs(self, graph: Graph, args: Sequence[Any], state: State) -> dict[str, Any]:
        """The environment in which a graph starts; constants are there by their `Input` until they are needed."""
        given = iter(args)
        env: dict[str, Any] = {}
        for item in graph.inputs:
            if item.kind == "user":
                env[item.name] = next(given, None)
            elif item.target in state:
                env[item.name] = state[item.target]
            else:
                env[item.name] = Tag("weights", item.target)
        return env

    def look_up(self, env: Mapping[str, Any], leaf: Any) -> Any:
        """What an argument stands for."""
        import torch

        value = env[leaf.name] if isinstance(leaf, Ref) else leaf
        if not isinstance(value, Tag):
            return value
        if value.kind == "weights":
            return self.constants[value.value]
        found = constant(value.kind, value.value)
        return torch.float64 if value.kind == "dtype" and found.is_floating_point else found

    def apply(self, graph: Graph, node: Node, args: Any, kwargs: Any, state: State) -> Any:
        """The value of one node on widened arguments.

        Raises
        ------
        PairingError
            If the operator fails, in float64 as well as in the types of the program.
        """
        if node.target == "getitem":
            return args[0][args[1]]
        if node.target == OBSERVED:
            return args
        if node.target == "delegate":
            return self.run(graph.subgraphs[node.subgraphs[0]], args, state)
        if node.target == "aten.copy_.default":
            return args[1].expand_as(args[0]).clone()
        if is_rounding(node.target):
            return round_through(node.target, positional(node.target, args, kwargs))
        if is_dequantize(node.target):
            return widen_dequantize(node.target, positional(node.target, args, kwargs))
        if node.target in _HALF_TO_FLOAT:
            args, kwargs = [*positional(node.target, args, kwargs)[:2], False], {}
        try:
            return widen(resolve(node.target)(*args, **kwargs))
        except EtvizError:
            raise
        except Exception:  # noqa: BLE001 - operators without a float64 kernel say so in many ways
            return self._narrow(graph, node, args, kwargs)

    def _narrow(self, graph: Graph, node: Node, args: Any, kwargs: Any) -> Any:
        """Evaluate in the types of the program."""
        import torch

        metas = self._metas.setdefault(id(graph), _metas(graph))

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
            return widen(resolve(node.target)(*narrowed, **_zip_args(node.kwargs, kwargs, narrow)))
        except Exception as error:
            raise PairingError(f"The reference of {node.name} ({node.target}) can't be computed: {error}") from error

    def _step(self, graph: Graph, node: Node, env: dict[str, Any], state: State, after: After | None) -> Any:
        if node.target == "cond":
            predicate, operands = node.args
            branch = graph.subgraphs[node.subgraphs[0 if bool(self.look_up(env, predicate)) else 1]]
            return self.run(branch, [self.look_up(env, leaf) for leaf in operands], state, after)
        args = map_arg(node.args, lambda leaf: self.look_up(env, leaf))
        kwargs = map_arg(node.kwargs, lambda leaf: self.look_up(env, leaf))
        return self.apply(graph, node, args, kwargs, state)


def rounds(graph: Graph, node: Node) -> bool:
    """True if a node, or an operator inside of a delegate, rounds what flows through it."""
    if node.target == "delegate":
        inner = graph.subgraphs[node.subgraphs[0]]
        return any(rounds(inner, item) for item in inner.nodes)
    return is_rounding(node.target) and any(True for _ in refs(node.args))


def leading_to(graph: Graph) -> list[set[int]]:
    """For each output of a graph: positions of the user inputs that it depends on."""
    known: dict[str, set[int]] = {item.name: {at} for at, item in enumerate(graph.user_inputs())}
    for node in graph.nodes:
        known[node.name] = {at for name in refs((node.args, node.kwargs)) for at in known.get(name, ())}
    return [{at for name in refs(out) for at in known.get(name, ())} for out in graph.outputs]


def _metas(graph: Graph) -> dict[str, Meta]:
    found = {item.name: item.meta for item in graph.inputs}
    found |= {node.name: node.outputs[0] for node in graph.nodes if len(node.outputs) == 1}
    return {name: meta for name, meta in found.items() if meta is not None}


def _zip_args(described: Any, values: Any, leaf: Callable[[Any, Any], Any]) -> Any:
    if isinstance(described, (list, tuple)):
        return [_zip_args(a, b, leaf) for a, b in zip(described, values, strict=False)]
    if isinstance(described, dict):
        return {key: _zip_args(item, values[key], leaf) for key, item in described.items()}
    return leaf(described, values)
