"""Runs a piece of a program as a separate program, with inner values as outputs."""

from __future__ import annotations

import keyword
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from etviz.artifacts.program.payload import Payload
from etviz.artifacts.program.xnnpack_payload import changes, pack_graph, unpack
from etviz.artifacts.scalar_types import SCALAR_TYPES
from etviz.errors import UsageError
from etviz.graph.admitted import may_be_lowered
from etviz.graph.ir import Graph, Meta, Node, Ref, Tag, map_arg, refs
from etviz.graph.python_operators import PYTHON, ArithmeticRefusedError, compute
from etviz.pipeline.interpreters import ShownInside
from etviz.pipeline.xnnpack_values import PayloadValues
from etviz.upstream.delegate_file import TensorPlace, delegate_program
from etviz.upstream.executorch import FxNode, exported_program, lower_again, partition_marks
from etviz.upstream.operators import edge_operator, in_order
from etviz.upstream.xnnpack import payloads

if TYPE_CHECKING:
    from torch.export import ExportedProgram


_NO_VALUE: Final = "the backend's program does not have this value"
ATTEMPTS: Final = 40
"""Maximum number of programs that are lowered to find inner values that a backend returns."""

Outputs = list[Any]
Marks = Mapping[str, dict[str, Any]]


@dataclass(slots=True)
class _Builder:
    """`values` holds a fake tensor, or a plain value, for each name.

    fx runs names of nodes as code, so only plain words are kept.
    """

    graph: Any
    nodes: dict[str, FxNode] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)

    def placeholder(self, name: str, value: Any) -> FxNode:
        node = self.graph.placeholder(self._word(name))
        node.name = node.target
        self.add(name, node, value)
        return node

    def _word(self, name: str) -> str:
        plain = name.isascii() and name.isidentifier() and not keyword.iskeyword(name) and name != "self"
        return name if plain else f"value_{len(self.nodes)}"

    def add(self, name: str, node: FxNode, value: Any) -> None:
        node.meta["val"] = value
        node.meta["debug_handle"] = len(self.nodes)
        self.nodes[name], self.values[name] = node, value

    def call(self, node: Node) -> None:
        target: Any = operator.getitem if node.target == "getitem" else None
        if target is None and not node.target.startswith("py."):
            if not may_be_lowered(node.target):
                raise UsageError(f"the program calls {node.target[:100]}, which etviz does not")
            target = edge_operator(node.target)
        args, kwargs = (node.args, node.kwargs) if node.args or target is None else in_order(target, node.kwargs)
        plain_args = map_arg(args, self._plain)
        plain_kwargs = map_arg(kwargs, self._plain)
        if target is None:
            if node.target not in PYTHON:
                raise UsageError(f"the program calls {node.target[:100]}, which etviz does not")
            try:
                self.values[node.name] = compute(node.target, list(plain_args))
            except ArithmeticRefusedError as error:
                raise UsageError(str(error)) from None
            return
        value = target(*plain_args, **plain_kwargs)
        if isinstance(value, (bool, int, float)):
            self.values[node.name] = value
            return
        args, kwargs = map_arg(args, self._node), map_arg(kwargs, self._node)
        self.add(
            node.name,
            self.graph.create_node("call_function", target, tuple(args), kwargs, self._word(node.name)),
            value,
        )

    def _plain(self, leaf: Any) -> Any:
        if isinstance(leaf, Ref):
            return self.values[leaf.name]
        return _constant(leaf)

    def _node(self, leaf: Any) -> Any:
        if isinstance(leaf, Ref):
            return self.nodes.get(leaf.name, self.values[leaf.name])
        return _constant(leaf)


def _constant(leaf: Any) -> Any:
    if not isinstance(leaf, Tag):
        return leaf
    return torch.device("cpu") if leaf.kind == "device" else getattr(torch, leaf.value)


def edge_program(
    graph: Graph,
    constants: Mapping[str, torch.Tensor],
    inputs: Sequence[Any],
    extra: Sequence[str] = (),
    marks: Marks | None = None,
) -> tuple[ExportedProgram, list[str]]:
    """The program that upstream can lower, and the names of its values in the graph, by debug handle.

    Tensor `inputs` fix the shapes, plain values become constants. `extra` values become outputs after the graph's own;
    `marks` are entries of nodes' `meta`. `UsageError` if the graph has state, or returns a value that it does not
    compute.
    """
    if graph.mutations or any(placeholder.kind == "buffer" for placeholder in graph.inputs):
        raise UsageError(f"{graph.name} keeps a state between runs, so it can't be run alone")
    state = {item.name: constants[item.target] for item in graph.inputs if item.kind != "user"}
    builder = _built(graph, state, inputs)
    users = [builder.nodes[item.name].name for item in graph.user_inputs() if item.name in builder.nodes]
    for node in builder.nodes.values():
        node.meta |= (marks or {}).get(node.name, {})
    results = [builder.nodes[name] for name in (*(_output(builder, out) for out in graph.outputs), *extra)]
    builder.graph.output(tuple(results))
    state = {builder.nodes[name].name: value for name, value in state.items()}
    return exported_program(builder.graph, state, users, [node.name for node in results]), list(builder.nodes)


def _built(graph: Graph, state: Mapping[str, torch.Tensor], inputs: Sequence[Any]) -> _Builder:
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    builder = _Builder(torch.fx.Graph())
    for name, value in state.items():
        builder.placeholder(name, mode.from_tensor(value.detach(), static_shapes=True))
    for placeholder, value in zip(graph.user_inputs(), inputs, strict=True):
        if isinstance(value, torch.Tensor):
            builder.placeholder(placeholder.name, mode.from_tensor(value, static_shapes=True))
        else:
            builder.values[placeholder.name] = value
    with mode:
        for node in graph.nodes:
            builder.call(node)
    return builder


def _output(builder: _Builder, out: Any) -> str:
    if not isinstance(out, Ref) or out.name not in builder.nodes or builder.nodes[out.name].op == "placeholder":
        raise UsageError("the graph returns a value that it does not compute")
    return out.name


@dataclass(slots=True)
class PieceProgram:
    graph: Graph
    constants: dict[str, Any]
    inputs: list[Any]
    pte: Path
    marks: Any = None
    step: str = ""
    names: list[str] = field(default_factory=list)

    def __call__(self, extra: Sequence[str]) -> Outputs:
        content = self.lower(extra)
        self.step = "run"
        return run_program(content, self.pte, self.inputs)

    def lower(self, extra: Sequence[str]) -> bytes:
        """Sets `names`, the program's nodes by debug handle."""
        self.step = "build"
        if self.marks is None:
            plain, _ = edge_program(self.graph, self.constants, self.inputs)
            self.marks = partition_marks(plain, self.graph.backend_id)
        program, self.names = edge_program(self.graph, self.constants, self.inputs, extra, self.marks)
        self.step = "lower"
        return lower_again(program, self.graph.backend_id, self.graph.compile_specs)


def run_program(content: bytes, pte: Path, inputs: Sequence[Any]) -> Outputs:
    from executorch.runtime import Runtime, Verification

    pte.write_bytes(content)
    method = Runtime.get().load_program(pte, verification=Verification.Minimal).load_method("forward")
    if method is None:
        raise RuntimeError("the runtime can't load it")
    given = [value for value in inputs if isinstance(value, torch.Tensor)]
    return [value.detach().clone() for value in method.execute(given)]


def widest(attempt: Callable[[Sequence[str]], Outputs], candidates: Sequence[str]) -> ShownInside:
    """Halves of a refused group are tried again."""
    names = list(candidates)
    try:
        return ShownInside(names, attempt(names))
    except Exception as error:
        if not names:
            raise
        reason = reason_of(error)
    shown = ShownInside([], attempt([]))
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


def show_inside(graph: Graph, payload: Payload, names: Sequence[str], inputs: Sequence[Any], pte: Path) -> ShownInside:
    """Run a payload of XNNPACK with inner values among its outputs: nothing is lowered.

    The graph has the debug handles that the payload was made with, else `UsageError`.
    """
    unpacked = unpack(payload)
    values = PayloadValues(graph, unpacked)
    returned = list(refs(graph.outputs))
    places = {name: place for name in dict.fromkeys((*returned, *names)) if (place := values.place(name)) is not None}
    if not places.keys() >= set(returned):
        raise UsageError("the payload does not return the outputs of the graph")
    at = dict(zip(places, values.give_out(list(places.values())), strict=True))
    shapes = _shapes(graph, values, list(places), inputs)
    given = {at[name]: (places[name].order(shape), dtype) for name, (shape, dtype) in shapes.items()}
    if sorted(given) != list(range(len(given))):
        raise UsageError("the payload has outputs that the graph does not return")
    tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
    begins = [_place(tuple(value.shape), value.dim_order(), value.dtype) for value in tensors]
    ends = [_place(shape, tuple(range(len(shape))), dtype) for shape, dtype in (given[at] for at in range(len(given)))]
    packed = pack_graph(unpacked)
    content = delegate_program(graph.backend_id, graph.compile_specs, packed, unpacked.used(), begins, ends)
    results = run_program(content, pte, inputs)
    shown = {name: places[name].restore(results[at[name]], shapes[name][0]) for name in places}
    missing = {name: _NO_VALUE for name in names if name not in places}
    there = [name for name in names if name in places]
    return ShownInside(there, [shown[name] for name in (*returned, *there)], missing)


def _place(shape: tuple[int, ...], dim_order: tuple[int, ...], dtype: torch.dtype) -> TensorPlace:
    code = next(code for code, item in SCALAR_TYPES.items() if item.name == str(dtype).removeprefix("torch."))
    return TensorPlace(shape, dim_order, code, dtype.itemsize)


def _shapes(
    graph: Graph, values: PayloadValues, names: Sequence[str], inputs: Sequence[Any]
) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
    metas = {name: values.meta(name) for name in names}
    known = {name: (meta.sizes, getattr(torch, meta.dtype)) for name, meta in metas.items() if meta.sizes is not None}
    if len(known) == len(metas):
        return known
    state = {placeholder.name: _like(placeholder.meta) for placeholder in graph.inputs if placeholder.kind != "user"}
    built = _built(graph, state, inputs).values
    return {name: (tuple(built[name].shape), built[name].dtype) for name in names}


def _like(meta: Meta | None) -> torch.Tensor:
    if meta is None or meta.sizes is None:
        raise UsageError("the shape of a constant is not known")
    return torch.empty(meta.sizes, dtype=getattr(torch, meta.dtype), device="meta")


def own_payload(attempt: PieceProgram) -> tuple[Graph, Payload]:
    seen: list[Payload] = []

    def look(payload: bytes, named: Mapping[str, bytes]) -> None:
        seen.append(Payload(memoryview(payload), named))

    with payloads(look):
        attempt.lower([])
    handles = {name: (at,) for at, name in enumerate(attempt.names)}
    graph = attempt.graph
    return replace(graph, nodes=[replace(node, handles=handles.get(node.name, ())) for node in graph.nodes]), seen[-1]


def alterations(attempt: PieceProgram, ran: Payload) -> list[tuple[str, str]]:
    """Names of operators and differences to XNNPACK's payload for the piece here."""
    _, lowered = own_payload(attempt)
    names = dict(enumerate(attempt.names))
    return [(names.get(change.handle, ""), str(change)) for change in changes(unpack(ran), unpack(lowered))]


def reason_of(error: Exception) -> str:
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    if isinstance(cause, MemoryError):
        return "it takes more memory than is free"
    lines = str(cause).strip().splitlines()
    return (lines[0] if lines else type(cause).__name__)[:300]
