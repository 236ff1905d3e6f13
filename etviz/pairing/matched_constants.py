"""Matches the constants of a `.pte` with the reference's weights, by content."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from etviz.graph.ir import Graph

if TYPE_CHECKING:
    import torch

    from etviz.artifacts.program.program import Method, Program

Bytes = npt.NDArray[np.uint8]
VIEW: Final = "aten.view_copy.default"
_SAMPLE: Final = 256
_BLOCK: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Constants:
    """Matches of constants: `domains` are possible names by value id, `classes` maps a name to its first equal."""

    domains: Mapping[int, frozenset[str]] = field(default_factory=dict)
    classes: Mapping[str, str] = field(default_factory=dict)


def match_constants(program: Program, method: Method, graph: Graph, weights: Mapping[str, torch.Tensor]) -> Constants:
    """A constant without an equal input or view may be any of its shape and type: the files hold other weights."""
    kept = [item for item in graph.inputs if item.target in weights and item.kind != "buffer"]
    named = {placeholder.name: in_place(weights, placeholder.target) for placeholder in kept}
    inputs = frozenset(named)
    named |= _views(graph, named)
    alike: dict[tuple[object, ...], list[str]] = {}
    fitting: dict[tuple[object, ...], list[str]] = {}
    classes: dict[str, str] = {}
    members: dict[str, list[str]] = {}
    for name, tensor in named.items():
        kind, content = (str(tensor.dtype), tuple(tensor.shape)), stored(tensor)
        others = alike.setdefault((*kind, ends(content).tobytes()), [])
        equal = next((other for other in others if equal_bytes(stored(named[other]), content)), None)
        if equal is None:
            others.append(name)
            fitting.setdefault(kind, []).append(name)
        classes[name] = equal or name
        members.setdefault(classes[name], []).append(name)
    equals = {name: frozenset(same) for name, same in members.items()}
    anything = {kind: frozenset(n for name in names for n in members[name]) for kind, names in fitting.items()}
    domains: dict[int, frozenset[str]] = {}
    for value, program_value in enumerate(method.values):
        spec = program_value.tensor
        data = program.constant(spec) if spec is not None else None
        if spec is None or data is None:
            continue
        content, order, kind = np.frombuffer(data, np.uint8), tuple(spec.dim_order), (f"torch.{spec.dtype}", spec.sizes)
        near = fitting.get(kind, [])
        if order == tuple(range(len(order))):
            near = alike.get((*kind, ends(content).tobytes()), [])
        found = [equals[name] for name in near if content.size and equal_bytes(content, stored(named[name], order))]
        domains[value] = found[0] if len(found) == 1 else frozenset().union(*found) or anything.get(kind, frozenset())
    return Constants(domains, {name: first for name, first in classes.items() if name in inputs and first in inputs})


def _views(graph: Graph, constants: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Programs store them as constants of the view's shape."""
    views: dict[str, torch.Tensor] = {}
    for node in graph.nodes:
        if node.target != VIEW:
            continue
        name, meta = next(iter(node.reads()), ""), next(iter(node.outputs), None)
        source = views.get(name, constants.get(name))
        if source is None or meta is None or not source.is_contiguous():
            continue
        if meta.sizes is not None and math.prod(meta.sizes) == source.numel():
            views[node.name] = source.reshape(meta.sizes)
    return views


def in_place(weights: Mapping[str, torch.Tensor], name: str) -> torch.Tensor:
    return getattr(weights, "in_place", weights.__getitem__)(name)


def stored(tensor: torch.Tensor, dim_order: Sequence[int] = ()) -> Bytes:
    """Bytes in a dimension order, copied only if needed."""
    import torch

    plain = tensor.detach()
    order = tuple(dim_order) if len(dim_order) == tensor.dim() else tuple(range(tensor.dim()))
    if plain.is_contiguous() and order == tuple(range(tensor.dim())):
        return plain.reshape(-1).view(torch.uint8).numpy()
    if not plain.permute(order).is_contiguous() and plain.data_ptr() % plain.dtype.itemsize:
        raw = torch.empty(0, dtype=torch.uint8).set_(plain.untyped_storage()).clone()
        plain = raw.view(plain.dtype).as_strided(plain.shape, plain.stride(), plain.storage_offset())
    return plain.permute(order).contiguous().reshape(-1).view(torch.uint8).numpy()


def equal_bytes(a: Bytes, b: Bytes) -> bool:
    if a.size != b.size:
        return False
    if not np.array_equal(ends(a), ends(b)):
        return False
    starts = range(0, a.size, _BLOCK)
    return all(np.array_equal(a[start : start + _BLOCK], b[start : start + _BLOCK]) for start in starts)


def ends(data: Bytes) -> Bytes:
    return np.concatenate([data[:_SAMPLE], data[-_SAMPLE:]])
