"""The logits among a program's outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from etviz.errors import UsageError
from etviz.graph.ir import Ref

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from etviz.graph.ir import Graph


def logits_of(outputs: Sequence[Any]) -> torch.Tensor:
    """The first floating-point tensor of a call: float32, a row for each position; `UsageError` without one."""
    import torch

    for value in outputs:
        if isinstance(value, torch.Tensor) and value.is_floating_point() and value.ndim:
            return value.detach().float().reshape(-1, value.shape[-1])
    raise UsageError("the program returns no floating-point tensor, so it has no logits")


def vocabulary_of(graph: Graph) -> int | None:
    """None if it is not known before a run."""
    metas = {node.name: node.outputs[0] for node in graph.nodes if len(node.outputs) == 1}
    for value in graph.outputs:
        meta = metas.get(value.name) if isinstance(value, Ref) else None
        if meta is not None and "float" in meta.dtype and meta.shape:
            size = meta.shape[-1]
            return size if isinstance(size, int) else None
    return None
