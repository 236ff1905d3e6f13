"""Which constants of a `.pte` are which weights of the reference: their content tells."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt
    import torch

    from etviz.artifacts.program.program import Method, Program
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
    named = {item.name: in_place(weights, item.target) for item in graph.inputs if item.target in weights}
    alike: dict[tuple[object, ...], list[str]] = {}
    fitting: dict[tuple[object, ...], list[str]] = {}
    classes: dict[str, str] = {}
    for name, tensor in named.items():
        kind = tensor.dtype, tuple(tensor.shape)
        content = stored(tensor)
        others = alike.setdefault((*kind, _ends(content).tobytes()), [])
        equal = next((other for other in others if equal_bytes(stored(named[other]), content)), None)
        classes[name] = classes[equal] if equal is not None else name
        others.append(name)
        fitting.setdefault((str(tensor.dtype), kind[1]), []).append(name)
    domains: dict[int, frozenset[str]] = {}
    for value, item in enumerate(method.values):
        spec = item.tensor
        data = program.constant(spec) if spec is not None else None
        if spec is None or data is None:
            continue
        content = np.frombuffer(data, np.uint8)
        names, order = fitting.get((f"torch.{spec.dtype}", spec.sizes), []), tuple(spec.dim_order)
        near = names
        if names and order == tuple(range(len(order))):
            near = alike.get((named[names[0]].dtype, spec.sizes, _ends(content).tobytes()), [])
        equal = [name for name in near if content.size and equal_bytes(content, stored(named[name], order))]
        domains[value] = frozenset(equal or names)
    return Constants(domains, classes)


def in_place(weights: Mapping[str, torch.Tensor], name: str) -> torch.Tensor:
    """A constant, to look at its bytes: not copied where it is not aligned for its dtype."""
    return getattr(weights, "in_place", weights.__getitem__)(name)


def stored(tensor: torch.Tensor, dim_order: Sequence[int] = ()) -> Bytes:
    """The bytes of a tensor, one after the other, in a dimension order; no copy where it lies in it."""
    import torch

    plain = tensor.detach()
    order = tuple(dim_order) if len(dim_order) == tensor.dim() else tuple(range(tensor.dim()))
    if not plain.permute(order).is_contiguous() and plain.data_ptr() % plain.dtype.itemsize:
        raw = torch.empty(0, dtype=torch.uint8).set_(plain.untyped_storage()).clone()
        plain = raw.view(plain.dtype).as_strided(plain.shape, plain.stride(), plain.storage_offset())
    return plain.permute(order).contiguous().reshape(-1).view(torch.uint8).numpy()


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
