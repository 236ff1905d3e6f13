"""A piece of a program as a program of its own: built, lowered to its backend, run, with inner values as outputs."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from etviz.errors import UsageError
from etviz.graph.ir import Graph, Node, Ref, Tag, map_arg
from etviz.pipeline.xnnpack_payload import Payload, Unpacked, changes, transplant, unpack
from etviz.upstream.executorch import FxNode, exported_program, lower_again, partition_marks
from etviz.upstream.operators import edge_operator, in_order
from etviz.upstream.xnnpack import AddData, Edit, payloads

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch
    from torch.export import ExportedProgram

ATTEMPTS: Final = 40
"""Programs that are lowered at most, to find out which inner values a backend gives as outputs."""

Outputs = list[Any]
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
        args, kwargs = (node.args, node.kwargs) if node.args or target is None else in_order(target, node.kwargs)
        plain_args = map_arg(args, self._plain)
        plain_kwargs = map_arg(kwargs, self._plain)
        if target is None:
            self.values[node.name] = getattr(operator, node.target.removeprefix("py."))(*plain_args)
            return
        value = target(*plain_args, **plain_kwargs)
        if isinstance(value, (bool, int, float)):
            self.values[node.name] = value
            return
        args, kwargs = map_arg(args, self._node), map_arg(kwargs, self._node)
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


@dataclass(slots=True)
class PieceProgram:
    """A piece, and how to lower and run it with some of its inner values as outputs."""

    graph: Any
    constants: dict[str, Any]
    inputs: list[Any]
    pte: Path
    marks: Any = None
    step: str = ""
    edit: Edit | None = None
    names: list[str] = field(default_factory=list)

    def __call__(self, extra: Sequence[str]) -> Outputs:
        """Outputs of the piece, then the values of `extra`; raises whatever upstream raises."""
        import torch
        from executorch.runtime import Runtime, Verification

        self.step = "build"
        if self.marks is None:
            plain = edge_program(self.graph, self.constants, self.inputs)
            self.marks = partition_marks(plain, self.graph.backend_id)
        program = edge_program(self.graph, self.constants, self.inputs, extra, self.marks)
        self.names = [node.name for node in program.graph.nodes]
        self.step = "lower"
        with payloads(self.edit) if self.edit is not None else contextlib.nullcontext():
            content = lower_again(program, self.graph.backend_id, self.graph.compile_specs)
        self.step = "run"
        self.pte.write_bytes(content)
        method = Runtime.get().load_program(self.pte, verification=Verification.Minimal).load_method("forward")
        if method is None:
            raise RuntimeError("the runtime can't load it")
        given = [value for value in self.inputs if isinstance(value, torch.Tensor)]
        return [value.detach().clone() for value in method.execute(given)]


@dataclass(slots=True)
class Shown:
    """What can be seen: the values of `names`, after the piece's own outputs; and why others can't."""

    names: list[str]
    outputs: Outputs
    left_out: dict[str, str] = field(default_factory=dict)


def widest(attempt: Callable[[Sequence[str]], Outputs], candidates: Sequence[str]) -> Shown:
    """As many of the candidates as the backend gives at once.

    All of them, if it can; else halves of what is refused are tried again, so that one value that it can't give costs
    a few attempts and not all the others.
    """
    names = list(candidates)
    try:
        return Shown(names, attempt(names))
    except Exception as error:
        if not names:
            raise
        reason = reason_of(error)
    shown = Shown([], attempt([]))
    half = (len(names) + 1) // 2
    groups = [names] if len(names) == 1 else [names[:half], names[half:]]
    budget = ATTEMPTS
    while groups:
        group = groups.pop(0)
        if not budget or (len(group) == 1 == len(names)):
            shown.left_out |= dict.fromkeys(group, reason)
            continue
        budget -= 1
        trial = [name for name in names if name in group or name in shown.names]
        try:
            shown.outputs = attempt(trial)
            shown.names = trial
        except Exception as error:  # noqa: BLE001 - backends raise what they like
            reason = reason_of(error)
            half = (len(group) + 1) // 2
            if len(group) == 1:
                shown.left_out[group[0]] = reason
            else:
                groups[:0] = [group[:half], group[half:]]
    return shown


@dataclass(slots=True)
class AsItRan:
    """A piece with what the program that ran has otherwise: its outputs, and what each operator has, by name."""

    shown: Shown
    plain: Outputs
    altered: list[tuple[str, str]]


def as_it_ran(attempt: PieceProgram, ran: Payload, names: Sequence[str]) -> AsItRan | None:
    """Give a piece what the payload that ran has otherwise, and run it; None if it is another program, or no other."""
    seen: list[Unpacked] = []

    def look(payload: bytes, named: Mapping[str, bytes], _: AddData) -> bytes:
        seen.append(unpack(Payload(memoryview(payload), named)))
        return payload

    attempt.edit = look
    attempt([])
    found = changes(unpack(ran), seen[-1])
    if not found:
        return None
    attempt.edit = lambda payload, named, add: transplant(found, unpack(Payload(memoryview(payload), named)), add)
    plain = attempt([])
    shown = Shown(list(names), attempt(names))
    handles = dict(enumerate(attempt.names))
    return AsItRan(shown, plain, [(handles.get(change.handle, ""), str(change)) for change in found])


def reason_of(error: Exception) -> str:
    """The line of an error that says what happened; passes wrap it in how they were called."""
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    lines = str(cause).strip().splitlines()
    return (lines[0] if lines else type(cause).__name__)[:300]
