# pyright: reportPrivateUsage=false
"""The only module that knows executorch's private or unstable names: an upgrade of executorch is one of this file.

Everything is imported inside the functions: `import etviz` must not load torch or executorch.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import logging
import sys
import warnings
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

_MILLISECONDS: Final = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3, "cycles": 1.0}
_NANOSECONDS: Final = 1e6

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


@dataclass(frozen=True, slots=True)
class HeldEvent:
    """What an upstream Inspector keeps of an event: its times in nanoseconds, and the values of its first run.

    `chain` is -1 for the framework's own events; `inside` is the backend's identifier of an event inside a delegate.
    """

    name: str
    chain: int
    instruction: int
    inside: int | str | None
    ticks: list[int]
    metadata: list[bytes]
    values: list[Any]


@dataclass(frozen=True, slots=True)
class HeldRun:
    """One event block of an upstream Inspector; equal runs share one."""

    name: str
    index: int | None
    events: list[HeldEvent]
    outputs: list[Any]


@dataclass(frozen=True, slots=True)
class Held:
    """What an upstream Inspector keeps.

    `milliseconds` is one unit of its source time scale; `has_other_layouts` is True if its ETRecord's program has
    values that are not contiguous; `save_etrecord` writes its ETRecord, or nothing if it has none.
    """

    runs: list[HeldRun]
    milliseconds: float
    metadata_parser: Any
    has_other_layouts: bool
    save_etrecord: Callable[[str], None]


def held_by_inspector(inspector: Any) -> Held:
    """Everything that can be had from an upstream Inspector."""
    from executorch.devtools.inspector._inspector_utils import RESERVED_FRAMEWORK_EVENT_NAMES

    shown = _MILLISECONDS[inspector._target_time_scale.value] * _NANOSECONDS
    runs = []
    for block in inspector.event_blocks:
        events = [_held_event(event, shown, RESERVED_FRAMEWORK_EVENT_NAMES) for event in block.events]
        index = block.bundled_input_index
        known = index if index is not None and index >= 0 else None
        runs.append(HeldRun(block.name, known, events, list(block.run_output or [])))
    parsers = (event._delegate_metadata_parser for block in inspector.event_blocks for event in block.events)
    etrecord = inspector._etrecord
    return Held(
        runs,
        _MILLISECONDS[inspector._source_time_scale.value],
        next((parser for parser in parsers if parser is not None), None),
        any(not value.is_contiguous() for value in _edge_values(etrecord)),
        etrecord.save if etrecord is not None else lambda path: None,
    )


def _held_event(event: Any, shown: float, framework: Any) -> HeldEvent:
    raw = event.perf_data.raw if event.perf_data is not None else []
    metadata = event.raw_delegate_debug_metadatas
    return HeldEvent(
        event.name,
        -1 if event.name in framework else 0,
        event._instruction_id or 0,
        event.delegate_debug_identifier,
        [round(time * shown) for time in raw],
        [item.encode("latin-1") if isinstance(item, str) else bytes(item) for item in metadata],
        list(event.debug_data),
    )


def _edge_values(etrecord: Any) -> Iterator[Any]:
    """What the operators of an ETRecord's programs give, as fake tensors."""
    import torch

    edge = etrecord.edge_dialect_program if etrecord is not None else None
    programs = edge.values() if isinstance(edge, dict) else [edge] if edge is not None else []
    for program in programs:
        for node in program.graph.nodes:
            value = node.meta.get("val")
            if node.op == "call_function" and isinstance(value, torch.Tensor):
                yield value
