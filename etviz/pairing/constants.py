"""Which constants of a `.pte` are which weights of the reference: their content tells."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt
    import torch

    from etviz.artifacts.program.program import Method, Program, TensorSpec
    from etviz.graph.ir import Graph

    Bytes = npt.NDArray[np.uint8]

_SAMPLE: Final = 256
_BLOCK: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Constants:
    """What the content of constants tells.

    Attributes
    ----------
    domains
        By value id of the program, the names that a constant may have in the reference's graph.
    classes
        By name, the first of all names whose constants are equal.
    """

    domains: Mapping[int, frozenset[str]] = field(default_factory=dict)
    classes: Mapping[str, str] = field(default_factory=dict)


def match_constants(program: Program, method: Method, graph: Graph, weights: Mapping[str, torch.Tensor]) -> Constants:
    """Find the constants of a method among a graph's inputs.

    One that equals none of them may be any of its shape and type: then the files hold different weights.
    """
    named = {item.name: weights[item.target] for item in graph.inputs if item.target in weights}
    by_sample: dict[tuple[object, ...], list[str]] = {}
    classes: dict[str, str] = {}
    for name, tensor in named.items():
        alike = by_sample.setdefault(_key(tensor), [])
        equal = next((other for other in alike if equal_bytes(stored(named[other]), stored(tensor))), None)
        classes[name] = classes[equal] if equal is not None else name
        alike.append(name)
    domains: dict[int, frozenset[str]] = {}
    for value, item in enumerate(method.values):
        spec = item.tensor
        data = program.constant(spec) if spec is not None else None
        if spec is None or data is None:
            continue
        content = np.frombuffer(data, np.uint8)
        fitting = [name for name, tensor in named.items() if _fits(spec, tensor)]
        equal = [name for name in fitting if _holds(content, named[name], spec.dim_order)]
        domains[value] = frozenset(equal or fitting)
    return Constants(domains, classes)


def stored(tensor: torch.Tensor, dim_order: Sequence[int] = ()) -> Bytes:
    """The bytes of a tensor, one after the other, in a dimension order; no copy where it lies in it."""
    import torch

    ordered = tensor.detach().permute(tuple(dim_order)) if len(dim_order) == tensor.dim() else tensor.detach()
    return ordered.contiguous().reshape(-1).view(torch.uint8).numpy()


def equal_bytes(a: Bytes, b: Bytes) -> bool:
    """True if two arrays of bytes are the same; what differs early is told early."""
    if a.size != b.size:
        return False
    if not np.array_equal(_ends(a), _ends(b)):
        return False
    starts = range(0, a.size, _BLOCK)
    return all(np.array_equal(a[start : start + _BLOCK], b[start : start + _BLOCK]) for start in starts)


def _ends(data: Bytes) -> Bytes:
    return np.concatenate([data[:_SAMPLE], data[-_SAMPLE:]])


def _key(tensor: torch.Tensor) -> tuple[object, ...]:
    """What equal tensors have in common, and few others."""
    flat = tensor.detach().reshape(-1) if tensor.is_contiguous() else tensor.detach().contiguous().reshape(-1)
    return tensor.dtype, tuple(tensor.shape), stored(flat[:_SAMPLE]).tobytes()


def _fits(spec: TensorSpec, tensor: torch.Tensor) -> bool:
    return tuple(tensor.shape) == spec.sizes and str(tensor.dtype) == f"torch.{spec.dtype}"


def _holds(content: Bytes, tensor: torch.Tensor, dim_order: Sequence[int]) -> bool:
    return tensor.numel() > 0 and equal_bytes(content, stored(tensor, dim_order))
