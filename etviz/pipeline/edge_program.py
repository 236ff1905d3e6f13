"""An etviz graph as an `ExportedProgram` in edge dialect, so that upstream can lower it once more.

The graph already holds the operators that the backend got, so nothing is exported or decomposed again: node for node
it becomes a call of the same edge operator. Shapes are those of the given inputs, never symbolic.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from etviz.artifacts.ir import Graph, Node, Ref, Tag, map_arg
from etviz.errors import UsageError
from etviz.executorch import FxNode, edge_operator, exported_program

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram


Marks = Mapping[str, dict[str, Any]]


@dataclass(slots=True)
class _Builder:
    """The fx graph under construction; `values` holds a fake tensor, or a plain value, for each name."""

    graph: Any
    nodes: dict[str, FxNode] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)

    def placeholder(self, name: str, value: Any) -> FxNode:
        node = self.graph.placeholder(name)
        node.name = name
        self.add(name, node, value)
        return node

    def add(self, name: str, node: FxNode, value: Any) -> None:
        node.meta["val"] = value
        node.meta["debug_handle"] = len(self.nodes)
        self.nodes[name], self.values[name] = node, value

    def call(self, node: Node) -> None:
        """Add a call; what is computed of sizes alone becomes a constant."""
        target: Any = operator.getitem if node.target == "getitem" else None
        if target is None and not node.target.startswith("py."):
            target = edge_operator(node.target)
        plain_args = map_arg(node.args, self._plain)
        plain_kwargs = map_arg(node.kwargs, self._plain)
        if target is None:
            self.values[node.name] = getattr(operator, node.target.removeprefix("py."))(*plain_args)
            return
        value = target(*plain_args, **plain_kwargs)
        if isinstance(value, (bool, int, float)):
            self.values[node.name] = value
            return
        args, kwargs = map_arg(node.args, self._node), map_arg(node.kwargs, self._node)
        self.add(node.name, self.graph.create_node("call_function", target, tuple(args), kwargs, node.name), value)

    def _plain(self, leaf: Any) -> Any:
        if isinstance(leaf, Ref):
            return self.values[leaf.name]
        return _constant(leaf)

    def _node(self, leaf: Any) -> Any:
        if isinstance(leaf, Ref):
            return self.nodes.get(leaf.name, self.values[leaf.name])
        return _constant(leaf)


def _constant(leaf: Any) -> Any:
    import torch

    if not isinstance(leaf, Tag):
        return leaf
    return torch.device("cpu") if leaf.kind == "device" else getattr(torch, leaf.value)


def edge_program(
    graph: Graph,
    constants: Mapping[str, torch.Tensor],
    inputs: Sequence[Any],
    extra: Sequence[str] = (),
    marks: Marks | None = None,
) -> ExportedProgram:
    """The program that upstream can lower.

    Parameters
    ----------
    graph
        Delegate's subgraph, or a graph with one operator; without mutable buffers.
    constants
        Tensors by `Input.target`.
    inputs
        One for each user input; tensors fix the shapes, plain values become constants of the program.
    extra
        Names of inner values that become outputs, after the graph's own.
    marks
        Further entries of nodes' `meta`, by name.

    Raises
    ------
    UsageError
        If the graph has state, or gives back something else than tensors that it computed.
    """
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    if graph.mutations or any(item.kind == "buffer" for item in graph.inputs):
        raise UsageError(f"{graph.name} keeps a state between runs, so it can't be run alone")
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    builder = _Builder(torch.fx.Graph())
    state: dict[str, torch.Tensor] = {}
    for item in (i for i in graph.inputs if i.kind != "user"):
        state[item.name] = constants[item.target]
        builder.placeholder(item.name, mode.from_tensor(state[item.name].detach(), static_shapes=True))
    users = []
    for item, value in zip(graph.user_inputs(), inputs, strict=True):
        if isinstance(value, torch.Tensor):
            builder.placeholder(item.name, mode.from_tensor(value, static_shapes=True))
            users.append(item.name)
        else:
            builder.values[item.name] = value
    with mode:
        for node in graph.nodes:
            builder.call(node)
    for name, mark in (marks or {}).items():
        builder.nodes[name].meta |= mark
    names = [_output(builder, out) for out in graph.outputs] + list(extra)
    builder.graph.output(tuple(builder.nodes[name] for name in names))
    return exported_program(builder.graph, state, users, names)


def _output(builder: _Builder, out: Any) -> str:
    if not isinstance(out, Ref) or out.name not in builder.nodes or builder.nodes[out.name].op == "placeholder":
        raise UsageError("the graph gives back a value that it does not compute")
    return out.name
