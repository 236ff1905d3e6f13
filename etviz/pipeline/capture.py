"""An ExecuTorch program, as it was emitted, to etviz's own graph form.

Out variants map back to functional operators one to one, and every instruction has one node.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch.export import ExportedProgram, ExportGraphSignature

from etviz.errors import UsageError
from etviz.graph.from_export import FUNCTIONALIZED, is_exported_operator, read_functionalized
from etviz.graph.inline import unwrap
from etviz.graph.ir import CONTROL, LOOPS, Graph, Input, Meta, Node, Ref, Tag, renamed
from etviz.graph.labels import with_cells
from etviz.graph.loops import AFTER_ROUND, APPEND, COPY, RESET, ROUNDS, TAKE, begin, make_body, rename
from etviz.graph.quantize_ops import spread_scales
from etviz.graph.state_threading import Written, thread_state, written_by
from etviz.graph.uses import items
from etviz.pipeline.functional import functional
from etviz.upstream import executorch as et
from etviz.upstream import operators as ops
from etviz.upstream.executorch import FxNode
from etviz.upstream.libraries import is_users
from etviz.upstream.operators import operator_overload

if TYPE_CHECKING:
    from executorch.exir import ExecutorchProgramManager


_PLACEHOLDERS = ("_export_root", "_empty_nn_module_stack_from_metadata_hook")


def capture(manager: ExecutorchProgramManager) -> tuple[dict[str, Graph], dict[str, torch.Tensor]]:
    """Constants are ``<method>/<delegate>/<name>``, or ``<method>//<name>`` of the method."""
    graphs, constants = {}, {}
    for method, program in et.emitted_programs(manager).items():
        graph = capture_program(program, method, f"{method}/", constants)
        number_instructions(graph, et.emitted_instructions(manager, method))
        handles = et.emitted_handles(manager, method)
        for node in graph.walk():
            if node.instruction >= 0:  # upstream overwrites the handles of what it emits
                node.handles = handles.get(node.instruction, ())
        graphs[method] = graph
    return graphs, constants


def capture_program(program: ExportedProgram, name: str, prefix: str, constants: dict[str, torch.Tensor]) -> Graph:
    graph = _capture_graph(program.graph_module, name, prefix, constants)
    signature = program.graph_signature
    buffers, parameters = signature.inputs_to_buffers, signature.inputs_to_parameters
    lifted = signature.inputs_to_lifted_tensor_constants
    mutated = set(signature.buffers_to_mutate.values())
    for placeholder in graph.inputs:
        fqn = parameters.get(placeholder.name) or buffers.get(placeholder.name) or lifted.get(placeholder.name)
        if fqn is None:
            continue
        placeholder.kind = "buffer" if fqn in mutated else "constant"
        placeholder.target = f"{prefix}/{fqn}"
        tensor = program.state_dict.get(fqn, program.constants.get(fqn))
        if tensor is not None:
            constants[placeholder.target] = tensor.detach()
    _capture_mutations(graph, signature, prefix)
    thread_state(graph, _written)
    return graph


def _written(node: Node) -> Written:
    if not is_users(node.target):
        return written_by(node)
    schema = ops.schema_of(ops.operator_of(node.target))
    given = dict(zip((argument.name for argument in schema.arguments), node.args, strict=False)) | node.kwargs
    refs = (given.get(argument.name) for argument in schema.arguments if ops.is_written(argument))
    return None, [ref.name for ref in refs if isinstance(ref, Ref)]


def _capture_mutations(graph: Graph, signature: ExportGraphSignature, prefix: str) -> None:
    """In the emitted program, write-backs of buffers are `copy_` nodes, not outputs."""
    buffers = {i.name: i.target for i in graph.inputs if i.kind == "buffer"}
    for node in graph.nodes:
        if node.target == "aten.copy_.default" and isinstance(node.args[0], Ref) and node.args[0].name in buffers:
            graph.mutations[buffers[node.args[0].name]] = node.name
    if len(graph.outputs) == len(signature.output_specs):
        kept = []
        for output, spec in zip(graph.outputs, signature.output_specs, strict=True):
            if spec.kind.name == "BUFFER_MUTATION" and isinstance(output, Ref):
                graph.mutations[f"{prefix}/{spec.target}"] = output.name
            else:
                kept.append(output)
        graph.outputs = kept


def _capture_graph(module: torch.fx.GraphModule, name: str, prefix: str, constants: dict[str, torch.Tensor]) -> Graph:
    return _Capture(module, Graph(name), prefix, constants).run()


@dataclass(slots=True)
class _Capture:
    module: Any
    graph: Graph
    prefix: str
    constants: dict[str, torch.Tensor]

    def run(self) -> Graph:
        taken = set[str]()
        for node in self.module.graph.nodes:
            if node.op == "placeholder":
                self.graph.inputs.append(Input(node.name, "user", meta=_meta(node.meta.get("val"))))
            elif node.op == "output":
                outputs = node.args[0] if isinstance(node.args[0], (list, tuple)) else [node.args[0]]
                self.graph.outputs = [_argument(output) for output in outputs]
            elif node.op == "get_attr":
                self._attribute(node)
            elif (loop := ops.loop(node)) is not None:
                self.graph.nodes += self._loop(node, *loop)
            elif (wrapped := ops.wrapped(node)) is not None:
                taken.update(self._wrapped(node, *wrapped))
            elif (target := ops.higher_order(node)) in FUNCTIONALIZED:
                taken.update(self._functionalized(node, target))
            elif node.name not in taken and not et.is_allocation(node):
                self.graph.nodes.append(self._call(node))
        spread_scales(self.graph)
        return self.graph

    def _inside(self, name: str, prefix: str) -> Graph:
        return _capture_graph(getattr(self.module, name), name, prefix, self.constants)

    def _attribute(self, node: FxNode) -> None:
        value = _attribute(node)
        if isinstance(value, torch.Tensor):
            key = f"{self.prefix}/{self.graph.name}.{node.target}"
            self.constants[key] = value.detach()
            self.graph.inputs.append(Input(node.name, "constant", key, _meta(value)))

    def _call(self, fx: FxNode) -> Node:
        node = Node(fx.name, "", outputs=_metas(fx.meta.get("val")), **_origins(fx))
        lowered = et.lowered_module(self.module, fx)
        branches = ops.branches(fx)
        overload = operator_overload(fx.target)
        if lowered is not None:
            node.target, node.kernel = "delegate", "delegate"
            node.args = tuple(_argument(arg) for arg in fx.args[1:])
            name = str(fx.args[0])
            node.subgraphs = (name,)
            inner = capture_program(lowered.original_module, name, f"{self.prefix}{name}", self.constants)
            inner.backend_id = lowered.backend_id
            inner.compile_specs = [(spec.key, bytes(spec.value)) for spec in lowered.compile_specs]
            self.graph.subgraphs[name] = inner
        elif branches:
            node.target = "cond"
            node.args = (_argument(fx.args[0]), [_argument(arg) for arg in fx.args[3]])
            node.subgraphs = tuple(branches)
            for name in branches:
                self.graph.subgraphs[name] = self._inside(name, self.prefix)
                rename(self.graph.subgraphs[name], f"{name}/")
        elif overload is not None:
            functional = ops.functional_overload(overload)
            written = set(ops.out_arguments(overload))
            node.target, node.kernel = ops.qualified_name(functional), ops.kernel_name(overload)
            node.args = tuple(_argument(arg) for arg in fx.args)
            node.kwargs = {key: _argument(arg) for key, arg in fx.kwargs.items() if key not in written}
            meta = node.outputs[0] if node.outputs else None
            if meta is not None and ops.takes_dtype(functional) and not ops.takes_dtype(overload):
                node.kwargs["dtype"] = Tag("dtype", meta.dtype)  # an out variant reads it from `out`
        elif et.is_view(fx):
            node.target, node.kernel = "aten.view_copy.default", "executorch_prim::et_view.default"
            node.args = tuple(_argument(arg) for arg in fx.args)
        else:
            python = ops.python_operator(fx.target)
            node.target = "getitem" if python == "py.getitem" else python or f"unknown.{fx.target}"
            node.args = tuple(_argument(_written_by(arg)) for arg in fx.args)
        return node

    def _wrapped(self, fx: FxNode, name: str, given: Sequence[Any]) -> list[str]:
        inner = self._inside(name, f"{self.prefix}{fx.name}/")
        names = _names_of_items(fx, len(inner.outputs))
        unwrap(self.graph, inner, [_argument(argument) for argument in given], names, f"{fx.name}/")
        return names

    def _functionalized(self, fx: FxNode, target: str) -> list[str]:
        taken = _names_of_items(fx, len(fx.meta["val"]))
        metas = dict(zip(taken, _metas(fx.meta["val"]), strict=True))
        given = {"": Tag("operator", ops.qualified_name(fx.args[0]))}
        given |= {key: _argument(value) for key, value in fx.kwargs.items()}
        try:
            target, given, names = read_functionalized(target, given, taken)
        except ValueError as error:
            raise UsageError(str(error)) from None
        outputs = tuple(metas[name] for name in names)
        node = Node(names[0] if len(names) == 1 else fx.name, target, kwargs=given, outputs=outputs, **_origins(fx))
        self.graph.nodes += [node, *(items(node, names, outputs) if len(names) > 1 else ())]
        return taken

    def _loop(self, fx: FxNode, target: str, name: str, given: tuple[Any, Any, Any]) -> list[Node]:
        carries, rows, operands = ([_argument(argument) for argument in part] for part in given)
        key = f"{fx.name}_{name}"
        body = self.graph.subgraphs[key] = self._inside(name, f"{self.prefix}{key}.")
        make_body(body, fx.name, len(carries), len(rows))
        first = begin(fx.name, carries)
        args = ([Ref(node.name) for node in first], rows, operands)
        call = Node(fx.name, target, args, outputs=_metas(fx.meta.get("val")), subgraphs=(key,), **_origins(fx))
        for node in (*first, *body.nodes):
            node.stack, node.module = node.stack or call.stack, node.module or call.module
        return [*first, call]


def _names_of_items(node: FxNode, count: int) -> list[str]:
    names = [f"{node.name}.{at}" for at in range(count)]
    for user in node.users:
        names[user.args[1]] = user.name
    return names


def _written_by(value: Any) -> Any:
    """Emission lets `getitem` read the allocated list instead of the call that fills it."""
    if isinstance(value, fx.Node) and et.is_allocation(value):
        return next((user for user in value.users if value in user.kwargs.values()), value)
    return value


def _attribute(node: FxNode) -> Any:
    return getattr(node.graph.owning_module, str(node.target), None)


def _argument(value: Any) -> Any:
    if isinstance(value, fx.Node):
        if value.op == "get_attr" and isinstance(_attribute(value), fx.GraphModule):
            return Tag("graph", str(value.target))  # what an operator runs that is not known here
        return Ref(value.name)
    if isinstance(value, (list, tuple)):
        return [_argument(item) for item in value]
    if isinstance(value, (torch.dtype, torch.memory_format, torch.layout, torch.device)):
        return Tag(type(value).__name__, str(value).removeprefix("torch."))
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return Tag("symbol", str(value))
    return value


def _metas(value: Any) -> tuple[Meta | None, ...]:
    if isinstance(value, (list, tuple)):
        return tuple(_meta(item) for item in value)
    return (_meta(value),)


def _meta(value: Any) -> Meta | None:
    if not isinstance(value, torch.Tensor):
        return None
    shape = tuple(size if isinstance(size, int) else str(size) for size in value.shape)
    return Meta(str(value.dtype).removeprefix("torch."), shape)


def _origins(fx: FxNode) -> dict[str, Any]:
    handle = fx.meta.get("debug_handle")
    handles = handle if isinstance(handle, (list, tuple)) else (handle,) if isinstance(handle, int) else ()
    return {
        "handles": tuple(handles),
        "origin": _origin(fx),
        "stack": with_cells(str(fx.meta.get("stack_trace") or "")),
        "module": _module(fx.meta.get("nn_module_stack")),
    }


def _origin(fx: FxNode) -> str:
    name, sources = fx.name, fx.meta.get("from_node") or []
    while sources:
        source = sources[-1]
        if is_exported_operator(str(source.target)):
            name = source.name
        sources = source.from_node
    return name


def _module(stack: Any) -> str:
    if not stack:
        return ""
    path, kind = list(stack.values())[-1]
    if str(kind).startswith("torch.export.") or str(path) in _PLACEHOLDERS:
        return ""
    return re.sub(r"^L\['self'\]\.?|^L__self__\.?", "", str(path))


def number_instructions(graph: Graph, instructions: list[str]) -> bool:
    """Number each node by its instruction; False where they do not fit, and later nodes keep -1.

    A static view has no instruction; jumps, moves, and counts of a loop's rounds have no node.
    """
    position = 0
    for node in graph.walk():
        if node.target in LOOPS:
            position = _after_loop(node, instructions, position)
            continue
        if node.target in ("getitem", *CONTROL) or not (node.kernel or node.target.startswith("py.")):
            continue
        at = position
        while at < len(instructions) and instructions[at] in ("move", "jump", "free"):
            at += 1
        if node.kernel in (COPY, TAKE) and instructions[at : at + 1] == [ROUNDS]:
            at += 1
        kernel = instructions[at] if at < len(instructions) else ""
        if kernel == node.kernel or (node.target.startswith("py.") and kernel.startswith("executorch_prim::")):
            node.instruction, node.kernel, position = at, kernel, at + 1
        elif node.kernel != "executorch_prim::et_view.default":
            return False
    return True


def _after_loop(node: Node, instructions: list[str], position: int) -> int:
    results = len(node.outputs) - len(node.args[0])
    for kernel in (*[APPEND] * results, *AFTER_ROUND, RESET):
        while position < len(instructions) and instructions[position] in ("move", "jump", "free"):
            position += 1
        if position < len(instructions) and instructions[position] == kernel:
            position += 1
    return position


def check_reference(
    reference: ExportedProgram | Mapping[str, ExportedProgram] | None, methods: list[str]
) -> dict[str, ExportedProgram]:
    if reference is None:
        return {}
    if not isinstance(reference, Mapping):
        name = "forward" if "forward" in methods or len(methods) != 1 else methods[0]
        reference = {name: reference}
    for method, program in reference.items():
        if not isinstance(program, ExportedProgram):
            raise UsageError(
                f"reference must be an ExportedProgram of the float model, found {type(program).__name__}; "
                "export it with torch.export.export(model, example_inputs)"
            )
        if method not in methods:
            raise UsageError(f"reference is for the method {method}, the program has {', '.join(methods)}")
    return dict(reference)


def capture_reference(program: ExportedProgram, method: str, constants: dict[str, torch.Tensor]) -> Graph:
    """Weights are added to `constants` as ``reference/<method>//<name>``; `Node.origin` keeps the exported name."""
    graph = capture_program(program, method, f"reference/{method}/", constants)
    _join_shared(graph, constants)
    return functional(graph)


def _join_shared(graph: Graph, constants: Mapping[str, torch.Tensor]) -> None:
    # if a Python object holds a buffer too, an export that is not strict also lists it as a constant
    names: dict[tuple[Any, ...], str] = {}
    joined: dict[str, Ref] = {}
    for placeholder in graph.inputs:
        value = constants.get(placeholder.target)
        if value is not None and value.numel():
            place = value.data_ptr(), value.dtype, value.shape, value.stride()
            if (name := names.setdefault(place, placeholder.name)) != placeholder.name:
                joined[placeholder.name] = Ref(name)

    graph.inputs = [placeholder for placeholder in graph.inputs if placeholder.name not in joined]
    for node in graph.nodes if joined else ():
        node.args, node.kwargs = tuple(renamed(node.args, joined)), renamed(node.kwargs, joined)
    graph.outputs = renamed(graph.outputs, joined)
