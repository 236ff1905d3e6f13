# pyright: reportPrivateUsage=false
"""Programs and their lowering, as executorch and torch.export have them.

Imports are inside the functions, because `import etviz` must not load torch or executorch.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import logging
import sys
import threading
import warnings
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from etviz.graph.labels import is_foreign

FxNode = Any
"""A `torch.fx.Node`. Its argument types are a union of everything."""

if TYPE_CHECKING:
    import torch
    from executorch.exir import EdgeProgramManager, ExecutorchProgramManager
    from torch.export import ExportedProgram


def emitted_programs(manager: ExecutorchProgramManager) -> dict[str, ExportedProgram]:
    """Emitted programs: out variants, `alloc` nodes, one node per instruction."""
    return {name: manager.exported_program(name) for name in sorted(manager.methods)}


def emitted_instructions(manager: ExecutorchProgramManager, method: str) -> list[str]:
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


def emitted_handles(manager: ExecutorchProgramManager, method: str) -> dict[int, tuple[int, ...]]:
    known: Any = manager.debug_handle_map
    return {
        at: tuple(handles) if isinstance(handles, (list, tuple)) else (handles,)
        for at, handles in known.get(method, {}).items()
    }


def delegated_listings(manager: EdgeProgramManager) -> dict[str, str]:
    """`format_delegated_graph` by method, before `to_executorch()` rewrites the program."""
    from executorch.exir.backend.utils import format_delegated_graph

    methods = sorted(manager.methods)
    return {name: format_delegated_graph(manager.exported_program(name).graph_module) for name in methods}


@contextlib.contextmanager
def swapped(owner: Any, **attributes: Any) -> Generator[None]:
    """Let upstream's class or module have other attributes."""
    kept = {name: getattr(owner, name) for name in attributes}
    try:
        for name, value in attributes.items():
            setattr(owner, name, value)
        yield
    finally:
        for name, value in kept.items():
            setattr(owner, name, value)


@contextlib.contextmanager
def refusals() -> Generator[dict[str, str]]:
    """Collect why partitioners leave nodes out: the last reason by node name."""
    from executorch.exir.backend.utils import WhyNoPartition, WhyNoPartitionReporter

    heard: dict[str, str] = {}

    def hearing(plain: Callable[..., None]) -> Callable[..., None]:
        def told(self: Any, node: Any, reason: str) -> None:
            heard[str(getattr(node, "name", node))] = str(reason)
            plain(self, node, reason)

        return told

    reporter = swapped(WhyNoPartitionReporter, report_reject=hearing(WhyNoPartitionReporter.report_reject))
    with swapped(WhyNoPartition, __call__=hearing(WhyNoPartition.__call__)), reporter:
        yield heard


def lowered_module(owner: torch.nn.Module, node: FxNode) -> Any | None:
    from executorch.exir.delegate import executorch_call_delegate

    if node.target is not executorch_call_delegate:
        return None
    return getattr(owner, str(node.args[0].target))


def exported_program(
    graph: torch.fx.Graph, state: dict[str, torch.Tensor], users: list[str], outputs: list[str]
) -> ExportedProgram:
    """An `ExportedProgram` in edge dialect around a finished fx graph.

    Float tensors of `state` become parameters, the others persistent buffers.
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


_NEEDS = {"OpenvinoBackend": "openvino"}
"""Packages that backends import and executorch does not install."""


def backend_module(backend_id: str) -> str:
    """Module of a backend's lowering, empty if unknown. Imports nothing."""
    details = getattr(sys.modules.get("executorch.exir.backend.backend_details"), "BackendDetails", None)
    for backend in details.__subclasses__() if details is not None else ():
        if backend.__name__ == backend_id and backend.__module__ != "__main__":
            return backend.__module__
    return _BACKENDS.get(backend_id, "")


@functools.lru_cache
def lowers_here(backend_id: str) -> bool:
    """True if a backend's module is known and installed.

    Other threads call this, so it imports nothing: executorch's packages have circular imports, which deadlock threads.
    """
    name = backend_module(backend_id)
    return bool(name) and (name in sys.modules or (_installed(name) and _installed(_NEEDS.get(backend_id, name))))


def _installed(name: str) -> bool:
    top, *rest = name.split(".")
    spec = importlib.util.find_spec(top)
    if spec is None or not rest:
        return spec is not None
    places = [Path(folder, *rest) for folder in spec.submodule_search_locations or ()]
    return any(place.with_suffix(".py").is_file() or (place / "__init__.py").is_file() for place in places)


def runs_here(backend_id: str) -> bool:
    try:
        from executorch.runtime import Runtime
    except ImportError:
        return False
    return Runtime.get().backend_registry.is_available(backend_id)


def partition_marks(program: ExportedProgram, backend_id: str) -> dict[str, dict[str, Any]]:
    """A partitioner's marks by node name, which its lowering needs.

    XNNPACK marks an operator's quantize and dequantize nodes.
    """
    if backend_id != "XnnpackBackend" or not any("quantize" in str(node.target) for node in program.graph.nodes):
        return {}
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.backends.xnnpack.utils.quant_utils import IS_IMPLICIT_Q_DQ_TAG as MARK

    XnnpackPartitioner().partition(program)
    return {node.name: {MARK: True} for node in program.graph.nodes if node.meta.get(MARK)}


def lower_again(program: ExportedProgram, backend_id: str, compile_specs: list[tuple[str, bytes]]) -> bytes:
    """With one call of `backend_id` (portable kernels if empty); raises the backend's error."""
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
    """Skip XNNPACK's patterns that can't match, because exporting them takes seconds."""
    if backend_id != "XnnpackBackend":
        yield
        return
    from executorch.backends.xnnpack.partition.graphs import bilinear_2d, sdpa

    targets = " ".join(str(node.target) for node in program.graph.nodes)
    masks = {} if "logical_not" in targets else {"get_graphs": list}
    resizes = {} if "upsample_bilinear2d" in targets else {"get_graphs_dict": dict}
    with swapped(sdpa, **masks), swapped(bilinear_2d, **resizes):
        yield


def is_allocation(node: FxNode) -> bool:
    from executorch.exir import memory

    return node.target in (memory.alloc, memory.free)


def is_view(node: FxNode) -> bool:
    """True for a view that the emitter may elide (`et_view` if its size is dynamic)."""
    from executorch.exir import memory

    return node.target is memory.view


@contextlib.contextmanager
def quietly() -> Generator[None]:
    """Keep log messages of upstream's libraries out of the user's notebook; errors are raised as well.

    Calls may nest and come from several threads.
    """
    _silence.begin()
    try:
        yield
    finally:
        _silence.end()


class _Silence:
    def __init__(self) -> None:
        self._lock, self._count, self._undo = threading.Lock(), 0, contextlib.ExitStack()

    def begin(self) -> None:
        with self._lock:
            self._count += 1
            if self._count > 1:
                return
            for logger in map(logging.getLogger, _TALKATIVE):
                self._undo.callback(logger.setLevel, logger.level)
                logger.setLevel(logging.CRITICAL)
            root = logging.getLogger()
            root.addFilter(_is_not_upstreams)
            self._undo.callback(root.removeFilter, _is_not_upstreams)
            self._undo.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")

    def end(self) -> None:
        with self._lock:
            self._count -= 1
            if not self._count:
                self._undo.close()


def _is_not_upstreams(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.CRITICAL or not is_foreign(record.pathname)


_TALKATIVE: Final = ("torch", "torch.utils._pytree", "torchao", "executorch")
_silence: Final = _Silence()
