# pyright: reportPrivateUsage=false
"""The only module that knows executorch's private or unstable names: an upgrade of executorch is one of this file.

Everything is imported inside the functions: `import etviz` must not load torch or executorch.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import logging
import operator
import sys
import warnings
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

FxNode = Any
"""A `torch.fx.Node`: the types of its arguments are a union of everything, which helps nobody here."""

if TYPE_CHECKING:
    import torch
    from executorch.exir import EdgeProgramManager, ExecutorchProgramManager
    from torch.export import ExportedProgram


def emitted_programs(manager: ExecutorchProgramManager) -> dict[str, ExportedProgram]:
    """The program of each method as it was emitted: out variants, `alloc` nodes, one node for an instruction."""
    return {name: manager.exported_program(name) for name in sorted(manager.methods)}


def emitted_instructions(manager: ExecutorchProgramManager, method: str) -> list[str]:
    """What each instruction of a method's chain is: ``aten::add.out``, ``delegate``, ``move``, ``jump`` or ``free``."""
    plans = {plan.name: plan for plan in manager.executorch_program.execution_plan}
    plan = plans[method]
    names = []
    for instruction in plan.chains[0].instructions:
        call: Any = instruction.instr_args
        kind = type(call).__name__
        if kind == "KernelCall":
            op = plan.operators[call.op_index]
            names.append(f"{op.name}.{op.overload}" if op.overload else op.name)
        else:
            names.append({"DelegateCall": "delegate", "MoveCall": "move", "FreeCall": "free"}.get(kind, "jump"))
    return names


def delegated_listings(manager: EdgeProgramManager) -> dict[str, str]:
    """The text of `format_delegated_graph` of each method; to be asked before `to_executorch()` rewrites it."""
    from executorch.exir.backend.utils import format_delegated_graph

    methods = sorted(manager.methods)
    return {name: format_delegated_graph(manager.exported_program(name).graph_module) for name in methods}


def lowered_module(owner: torch.nn.Module, node: FxNode) -> Any | None:
    """The `LoweredBackendModule` that a delegate call runs, None for any other call."""
    from executorch.exir.delegate import executorch_call_delegate

    if node.target is not executorch_call_delegate:
        return None
    return getattr(owner, str(node.args[0].target))


def edge_operator(target: str) -> Any:
    """The edge operator of a name such as ``aten.add.Tensor``.

    Raises
    ------
    AttributeError
        If there is none.
    """
    from executorch.exir.dialects._ops import ops

    namespace, name, overload = target.split(".")
    load_operator_library(namespace)
    return getattr(getattr(getattr(ops.edge, namespace), name), overload)


def exported_program(
    graph: torch.fx.Graph, state: dict[str, torch.Tensor], users: list[str], outputs: list[str]
) -> ExportedProgram:
    """An `ExportedProgram` in edge dialect around a finished fx graph.

    Parameters
    ----------
    graph
        Placeholders are named in `state` or in `users`.
    state
        Weights; floats become parameters, everything else persistent buffers.
    users, outputs
        Names of the user inputs and of the outputs.
    """
    import torch
    from executorch.exir import EdgeCompileConfig
    from executorch.exir.verification.verifier import EXIREdgeDialectVerifier
    from torch.export import ExportedProgram, ModuleCallEntry, ModuleCallSignature
    from torch.export import graph_signature as gs
    from torch.utils import _pytree as pytree

    specs = []
    for name, tensor in state.items():
        kind = gs.InputKind.PARAMETER if tensor.is_floating_point() else gs.InputKind.BUFFER
        persistent = None if kind is gs.InputKind.PARAMETER else True
        specs.append(gs.InputSpec(kind, gs.TensorArgument(name), name, persistent))
    specs += [gs.InputSpec(gs.InputKind.USER_INPUT, gs.TensorArgument(name), None) for name in users]
    results = [gs.OutputSpec(gs.OutputKind.USER_OUTPUT, gs.TensorArgument(name), None) for name in outputs]
    inside = pytree.tree_structure((tuple([0] * len(users)), {}))
    outside = pytree.tree_structure(tuple([0] * len(outputs)))
    call = ModuleCallEntry("", ModuleCallSignature([], [], inside, outside))
    weights = {
        name: torch.nn.Parameter(t.detach(), requires_grad=False) if t.is_floating_point() else t
        for name, t in state.items()
    }
    verifier = EXIREdgeDialectVerifier(edge_compile_config=EdgeCompileConfig(_check_ir_validity=False), class_only=True)
    return ExportedProgram(
        root=torch.nn.Module(),
        graph=graph,
        graph_signature=gs.ExportGraphSignature(specs, results),
        state_dict=weights,
        range_constraints={},
        module_call_graph=[call],
        verifiers=[verifier],  # pyright: ignore[reportArgumentType]
    )


_BACKENDS = {
    "XnnpackBackend": "executorch.backends.xnnpack.xnnpack_preprocess",
    "OpenvinoBackend": "executorch.backends.openvino.preprocess",
    "CoreMLBackend": "executorch.backends.apple.coreml.compiler",
    "VulkanBackend": "executorch.backends.vulkan.vulkan_preprocess",
    "QnnBackend": "executorch.backends.qualcomm.qnn_preprocess",
    "MPSBackend": "executorch.backends.apple.mps.mps_preprocess",
    "NeutronBackend": "executorch.backends.nxp.nxp_backend",
}


def backend_module(backend_id: str) -> str:
    """Name of the Python module with a backend's lowering, as far as known here; empty if not."""
    if "executorch.exir" in sys.modules:
        from executorch.exir.backend.backend_details import BackendDetails

        for backend in BackendDetails.__subclasses__():
            if backend.__name__ == backend_id and backend.__module__ != "__main__":
                return backend.__module__
    return _BACKENDS.get(backend_id, "")


def partition_marks(program: ExportedProgram, backend_id: str) -> dict[str, dict[str, Any]]:
    """What a backend's partitioner wrote on the nodes that it took, by name; its lowering relies on it.

    XNNPACK marks the quantize and dequantize nodes that belong to an operator there, and nowhere else. Its partitioner
    runs on `program` for these marks alone.
    """
    if backend_id != "XnnpackBackend" or not any("quantize" in str(node.target) for node in program.graph.nodes):
        return {}
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.backends.xnnpack.utils.quant_utils import IS_IMPLICIT_Q_DQ_TAG as MARK

    XnnpackPartitioner().partition(program)
    return {node.name: {MARK: True} for node in program.graph.nodes if node.meta.get(MARK)}


def lower_again(program: ExportedProgram, backend_id: str, compile_specs: list[tuple[str, bytes]]) -> bytes:
    """A `.pte` that consists of one call of `backend_id`, or, if that is empty, of the portable kernels alone.

    Raises whatever the backend raises where it refuses.
    """
    from executorch.exir import EdgeProgramManager
    from executorch.exir.backend.backend_api import to_backend
    from executorch.exir.backend.compile_spec_schema import CompileSpec

    if not backend_id:
        return EdgeProgramManager({"forward": program}).to_executorch().buffer
    specs = [CompileSpec(key, value) for key, value in compile_specs]
    with _needless_patterns_skipped(program, backend_id):
        lowered: Any = to_backend(backend_id, program, specs)
        return lowered.buffer(extract_delegate_segments=True)


@contextlib.contextmanager
def _needless_patterns_skipped(program: ExportedProgram, backend_id: str) -> Generator[None]:
    """Spare XNNPACK the patterns that can't match, for want of an operator: exporting them takes seconds."""
    if backend_id != "XnnpackBackend":
        yield
        return
    from executorch.backends.xnnpack.partition.graphs import bilinear_2d, sdpa

    targets = " ".join(str(node.target) for node in program.graph.nodes)
    kept = sdpa.get_graphs, bilinear_2d.get_graphs_dict
    try:
        if "logical_not" not in targets:
            sdpa.get_graphs = list
        if "upsample_bilinear2d" not in targets:
            bilinear_2d.get_graphs_dict = dict
        yield
    finally:
        sdpa.get_graphs, bilinear_2d.get_graphs_dict = kept


def is_allocation(node: FxNode) -> bool:
    """True for nodes that only reserve or free memory: nothing is executed for them."""
    from executorch.exir import memory

    return node.target in (memory.alloc, memory.free)


def is_view(node: FxNode) -> bool:
    """True for a view that the emitter may elide (`et_view` where its size is dynamic)."""
    from executorch.exir import memory

    return node.target is memory.view


def operator_overload(target: Any) -> torch._ops.OpOverload | None:
    """The ATen overload behind an edge or backend operator, or the overload itself; None for Python functions."""
    import torch
    from executorch.exir.dialects.edge._ops import EdgeOpOverload

    if isinstance(target, EdgeOpOverload):
        return target._op
    return target if isinstance(target, torch._ops.OpOverload) else None


def functional_overload(overload: torch._ops.OpOverload) -> torch._ops.OpOverload:
    """The functional operator that computes what an out variant writes; the overload itself where there is none.

    Two overloads of one packet belong together when they take the same arguments, by name and type, but for the ones
    that are written to; what the functional one takes besides must have a default (`full_like`'s dtype).
    """
    if not _written(overload):
        return overload
    wanted = {a.name: str(a.type) for a in overload._schema.arguments if not _is_written(a)}
    loose = overload
    for name in overload.overloadpacket.overloads():
        candidate = getattr(overload.overloadpacket, name)
        if _written(candidate):
            continue
        takes = {a.name: str(a.type) for a in candidate._schema.arguments}
        if takes == wanted:
            return candidate
        optional = {a.name for a in candidate._schema.arguments if a.has_default_value()}
        if wanted.items() <= takes.items() and takes.keys() - wanted.keys() <= optional:
            loose = candidate
    return loose


def out_arguments(overload: torch._ops.OpOverload) -> list[str]:
    """Names of the keyword arguments that an out variant writes to."""
    return [a.name for a in overload._schema.arguments if a.kwarg_only and _is_written(a)]


def takes_dtype(overload: torch._ops.OpOverload) -> bool:
    """True if the operator is told the dtype of its result; most out variants take it from what they write to."""
    return any(a.name == "dtype" for a in overload._schema.arguments)


def _is_written(argument: Any) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


def _written(overload: torch._ops.OpOverload) -> bool:
    return any(_is_written(a) for a in overload._schema.arguments)


def qualified_name(overload: torch._ops.OpOverload) -> str:
    """The name in etviz's graphs: ``aten.add.Tensor``."""
    namespace, name = overload._schema.name.split("::")
    return f"{namespace}.{name}.{overload._schema.overload_name or 'default'}"


def kernel_name(overload: torch._ops.OpOverload) -> str:
    """The name under which the runtime looks the operator up: ``aten::add.out``."""
    schema = overload._schema
    return f"{schema.name}.{schema.overload_name}" if schema.overload_name else schema.name


def python_operator(target: Any) -> str | None:
    """``py.add`` for `operator.add` and the like on sizes, None for anything else."""
    import torch

    if getattr(operator, getattr(target, "__name__", ""), None) is target:
        return f"py.{target.__name__}"
    named = {torch.sym_max: "py.sym_max", torch.sym_min: "py.sym_min", torch.sym_not: "py.sym_not"}
    named |= {torch.sym_float: "py.sym_float", torch.sym_int: "py.sym_int"}
    named |= {max: "py.max", min: "py.min", round: "py.round"}
    return named.get(target) if callable(target) else None


def branches(node: FxNode, owner: torch.nn.Module) -> list[tuple[str, torch.fx.GraphModule]]:
    """Names and graphs of the branches of a `torch.cond` node; empty for everything else."""
    import torch

    if node.target is not torch.ops.higher_order.cond:
        return []
    names = [str(arg.target) for arg in node.args[1:3]]
    return [(name, getattr(owner, name)) for name in names]


_LIBRARIES = {
    "quantized_decomposed": ("torch.ao.quantization.fx._decomposed",),
    "dim_order_ops": ("executorch.exir.passes.dim_order_ops_registry",),
    "torchao": ("torchao.quantization.pt2e",),
    "llama": ("executorch.extension.llm.custom_ops.custom_ops",),
}


@functools.cache
def load_operator_library(namespace: str) -> str:
    """Register the operators of a namespace beside ATen; returns what is missing, empty if nothing is."""
    for name in _LIBRARIES.get(namespace, ()):
        try:
            with quietly():
                importlib.import_module(name)
        except (ImportError, OSError) as error:
            return f"{name} can't be loaded ({error})"
    return ""


def register_quantized_operators() -> None:
    """Let quantize and dequantize that no backend takes be lowered to the portable quantized kernels."""
    importlib.import_module("executorch.kernels.quantized")


@contextlib.contextmanager
def quietly() -> Generator[None]:
    """Keep what upstream's libraries say about themselves out of the user's notebook."""
    loggers = [logging.getLogger(name) for name in ("torch", "torchao", "torch.utils._pytree", "root")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


_DIM_ORDER_KERNELS = {
    "dim_order_ops::_clone_dim_order.out": "dim_order_ops._clone_dim_order.default",
    "dim_order_ops::_to_dim_order_copy.out": "dim_order_ops._to_dim_order_copy.default",
}
"""Known without upstream's registry, whose import takes seconds."""


@functools.cache
def runtime_operator(kernel: str) -> tuple[str, tuple[tuple[str, Any], ...]] | None:
    """What a kernel such as ``aten::add.out`` computes.

    Returns
    -------
    tuple or None
        Name of the functional operator (``aten.add.Tensor``), and ``(name, default)`` of each argument that is read, in
        the order in which a program stores them; None for kernels that are no registered operators.
    """
    import torch

    if kernel in _DIM_ORDER_KERNELS:
        return _DIM_ORDER_KERNELS[kernel], (("self", None), ("non_blocking", False), ("dim_order", None))
    namespace, _, rest = kernel.partition("::")
    name, _, overload_name = rest.partition(".")
    load_operator_library(namespace)
    try:
        overload = getattr(getattr(getattr(torch.ops, namespace), name), overload_name or "default")
    except AttributeError:
        return None
    written = set(out_arguments(overload))
    read = tuple((a.name, a.default_value) for a in overload._schema.arguments if a.name not in written)
    return qualified_name(functional_overload(overload)), read
