# pyright: reportPrivateUsage=false, reportMissingImports=false
"""TOSA, the form through which Arm's backends lower: a delegate's graph, and the reference model.

Imports are inside the functions: Arm's passes take seconds; `ImportError` without the extra ``tosa``.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from etviz.errors import UsageError
from etviz.upstream.executorch import swapped

if TYPE_CHECKING:
    import numpy as np
    from torch.export import ExportedProgram

BACKENDS: Final = ("TOSABackend", "EthosUBackend", "VgfBackend")
_MARK: Final = "etviz_operator"
"""Key in a node's `meta`, which Arm's passes copy to the nodes they make."""


def specify(
    program: ExportedProgram, backend_id: str, compile_specs: Iterable[tuple[str, bytes]]
) -> tuple[bytes, dict[str, str]]:
    """The TOSA flatbuffer of a delegate, and the operator of each of its tensors.

    Each of `BACKENDS` goes through TOSA with the same passes; VGF adds two.
    """
    from executorch.backends.arm import _passes
    from executorch.backends.arm.tosa.backend import TOSABackend
    from executorch.exir.backend.compile_spec_schema import CompileSpec

    copied = copy.deepcopy(program)
    for node in copied.graph.nodes:
        node.meta[_MARK] = node.name
    origins: dict[str, str] = {}
    manager: Any = _passes.ArmPassManager
    original = manager.transform_to_backend_pipeline

    def transform(self: Any, exported_program: Any, graph_module: Any) -> Any:
        is_whole = graph_module is copied.graph_module  # and not a branch or a loop's body
        module = original(self, exported_program=exported_program, graph_module=graph_module)
        if is_whole:
            origins.update({node.name: node.meta[_MARK] for node in module.graph.nodes if _MARK in node.meta})
        return module

    spec, rewrites = _compile_spec(backend_id, [CompileSpec(key, value) for key, value in compile_specs])
    with swapped(manager, transform_to_backend_pipeline=transform), rewrites:
        return bytes(TOSABackend._preprocess(copied, spec).processed_bytes), origins


def _compile_spec(backend_id: str, specs: list[Any]) -> tuple[Any, contextlib.AbstractContextManager[None]]:
    from executorch.backends.arm.tosa.backend import TOSABackend

    if backend_id == "EthosUBackend":
        from executorch.backends.arm.ethosu.compile_spec import EthosUCompileSpec as Spec
    elif backend_id == "VgfBackend":
        from executorch.backends.arm.vgf.compile_spec import VgfCompileSpec as Spec
    else:
        from executorch.backends.arm.tosa.compile_spec import TosaCompileSpec as Spec
    spec: Any = Spec._from_list(specs)
    spec = spec if backend_id == "TOSABackend" else TOSABackend.filter_tosa_compile_specs(spec)
    return spec, _vgf_passes() if backend_id == "VgfBackend" else contextlib.nullcontext()


@contextlib.contextmanager
def _vgf_passes() -> Generator[None]:
    from executorch.backends.arm.vgf import backend

    kept = backend._snapshot_registered_pass_insertions()
    try:
        backend._register_vgf_rewrite_passes()
        yield
    finally:
        backend._restore_registered_pass_insertions(kept)


def as_bfloat16(bits: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    from ml_dtypes import bfloat16

    return bits.view(bfloat16)


def run_reference_model(graph: bytes, inputs: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
    """Outputs of a TOSA graph; `UsageError` if the model refuses it, or the specification leaves the result open."""
    import tosa_reference_model as model

    outputs, status = model.run(
        graph, list(inputs), verbosity="NONE", tosa_level="NONE", initialize_variable_tensor_from_numpy=True
    )
    if status != model.GraphStatus.TOSA_VALID:
        raise UsageError(f"the TOSA reference model refuses the graph: {status.name}")
    return outputs
