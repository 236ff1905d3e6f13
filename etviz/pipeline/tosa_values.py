"""Runs the TOSA graph of a delegate in Arm's reference model, and finds in it the values of the delegate's operators.

Each operator became a group of TOSA operators, which carry its name. Its value is the tensor that leaves the group and
has its shape and dtype. Arm's passes lose the name of a table; it belongs to the operator that reads the same values.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from etviz.artifacts.program.payload import Payload, Specification
from etviz.artifacts.program.tosa_graph import TosaGraph, TosaTensor, is_tosa, read_tosa, returning
from etviz.errors import UsageError
from etviz.graph.exposure import Exposure, expose, parts_of_next
from etviz.graph.ir import Graph, Meta, Node, map_arg, refs
from etviz.graph.quantize_ops import is_dequantize
from etviz.graph.uses import Uses, item_of
from etviz.pipeline.interpreters import ShownInside
from etviz.upstream.tosa import as_bfloat16, run_reference_model

if TYPE_CHECKING:
    import torch

_NO_VALUE: Final = "its TOSA graph has no tensor with this value"
_NO_ORIGINS: Final = (
    "the record does not name the operators of the TOSA graph; write it with etviz.record where etviz[tosa] is "
    "installed"
)
_NO_GRAPH: Final = (
    "the .pte holds a binary that only the device runs, and the record has no TOSA graph for it; write the record "
    "with etviz.record where etviz[tosa] is installed"
)
_CHANNELS_LAST: Final = ("AVG_POOL2D", "CONV2D", "DEPTHWISE_CONV2D", "MAX_POOL2D", "TRANSPOSE_CONV2D", "RESIZE")
_PERMUTES: Final = ("aten.permute_copy.default", "aten.transpose_copy.int", "aten.t_copy.default")
_MERGED: Final = "the TOSA graph computes nothing for it alone"
_MOVES: Final = ("TRANSPOSE", "RESHAPE", "CONST_SHAPE")
_CONSTANTS: Final = ("CONST", "CONST_SHAPE")
_IMAGE: Final = 3


@dataclass(slots=True)
class Places:
    graph: Graph
    tosa: TosaGraph
    origins: Mapping[str, str]
    tensors: dict[str, str] = field(default_factory=dict)
    parts: dict[str, str] = field(default_factory=dict)
    last: dict[str, bool] = field(default_factory=dict)
    _nodes: dict[str, Node] = field(default_factory=dict)
    _moved: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._nodes = {node.name: node for node in self.graph.nodes}
        moves = (operator for operator in self.tosa.operators if operator.kind in ("TRANSPOSE", "RESHAPE"))
        self._moved = {operator.outputs[0]: operator.inputs[0] for operator in moves}
        self._find_layouts()
        exposure, uses = expose(self.graph), Uses(self.graph)
        for name in (*exposure.candidates, *refs(self.graph.outputs)):
            operator, _ = uses.value(name)
            group = {operator, name, *exposure.parts(operator)}
            fits = [tensor for tensor in self._finished(group) if self.fits(name, tensor)]
            fits = fits if self._computes(group) else []
            if fits:
                self.tensors[name] = fits[0]
        for name in exposure.candidates:
            if name not in self.tensors:
                self._find_unnamed(name, exposure, uses)
        self._find_twins()
        unnamed = [name for name in exposure.candidates if name not in self.tensors]
        idle = [name for name in unnamed if not self._computes((at := uses.value(name)[0], *exposure.parts(at)))]
        self.parts = parts_of_next(self.graph, exposure, idle, self.tensors)

    def _find_layouts(self) -> None:
        """Convolutions ask for channels last, the rest keep what they read."""
        self.last = dict.fromkeys(self.tosa.inputs, False)
        for operator in self.tosa.operators:
            data = [self.last[name] for name in operator.inputs if name in self.last]
            if operator.kind == "TRANSPOSE":
                source = self._nodes.get(self.origins.get(operator.outputs[0], ""))
                asked = source is not None and source.target in _PERMUTES
                channels_last = (
                    not asked and not any(data) and len(self.tosa.tensors[operator.outputs[0]].shape) >= _IMAGE
                )
            else:
                channels_last = operator.kind in _CHANNELS_LAST or any(data)
            if operator.kind not in _CONSTANTS:
                self.last |= dict.fromkeys(operator.outputs, channels_last)

    def _computes(self, group: Collection[str]) -> bool:
        """Moves of elements may be done in another order, so they do not count."""
        makers = (item for item in self.tosa.operators if item.outputs and self.origins.get(item.outputs[0]) in group)
        return any(operator.kind not in _MOVES for operator in makers)

    def _finished(self, group: Collection[str]) -> list[str]:
        finished: list[str] = []
        unfinished: set[str] = set()
        for operator in reversed(self.tosa.operators):
            if self.origins.get(operator.outputs[0] if operator.outputs else "") not in group:
                continue
            if operator.kind not in _MOVES or not unfinished.isdisjoint(operator.outputs):
                unfinished.update(operator.inputs)
            finished += [name for name in operator.outputs if name not in unfinished]
        return finished[::-1]

    def meta(self, name: str) -> Meta | None:
        uses = Uses(self.graph)
        return uses.meta(uses.value(name))

    def fits(self, name: str, tensor: str) -> bool:
        """In either layout and but for axes of size 1."""
        meta, known = self.meta(name), self.tosa.tensors.get(tensor)
        return meta is not None and known is not None and known.dtype == meta.dtype and bool(_orders(meta, known))

    def _find_unnamed(self, name: str, exposure: Exposure, uses: Uses) -> None:
        operator, _ = uses.value(name)
        group = {operator, *exposure.parts(operator)}
        read = {source for part in group for source in self._nodes[part].reads() if source not in group}
        sources = {self._before(source) for source in read}
        places = {self._root(self.tensors.get(source, source)) for source in sources}
        orphans = [
            item.outputs[0]
            for item in self.tosa.operators
            if item.outputs and item.outputs[0] not in self.origins and places & set(map(self._root, item.inputs))
        ]
        fits = [tensor for tensor in orphans if self.fits(name, tensor) and tensor not in self.tensors.values()]
        if len(fits) == 1:
            self.tensors[name] = fits[0]

    def _root(self, tensor: str) -> str:
        while tensor in self._moved:
            tensor = self._moved[tensor]
        return tensor

    def _find_twins(self) -> None:
        """Arm's passes compute equal values once, so operators with equal arguments share a tensor."""
        first: dict[str, str] = {}
        known: dict[Any, str] = {}
        for node in self.graph.nodes:
            given = map_arg((node.args, node.kwargs), lambda leaf: first.get(getattr(leaf, "name", ""), leaf))
            first[node.name] = twin = known.setdefault(f"{node.target} {given}", node.name)
            if twin != node.name and twin in self.tensors:
                self.tensors.setdefault(node.name, self.tensors[twin])

    def _before(self, name: str) -> str:
        node = self._nodes.get(name)
        while node is not None and (is_dequantize(node) or item_of(node) is not None):
            name = node.reads()[0]
            node = self._nodes.get(name)
        return name

    def restore(self, name: str, value: torch.Tensor) -> torch.Tensor:
        meta = self.meta(name)
        if meta is None:
            raise UsageError(f"the shape of {name} is not known")
        tensor = self.tensors[name]
        shape = tuple(map(int, meta.shape))
        orders = _orders(meta, self.tosa.tensors[tensor])
        if self.last.get(tensor, False) if len(orders) > 1 else orders[0]:
            return value.reshape(_moved(shape)).movedim(-1, 1).contiguous()
        return value.reshape(shape)


def _orders(meta: Meta, tensor: TosaTensor) -> list[bool]:
    if (shape := meta.sizes) is None:
        return []
    plain = [size for size in tensor.shape if size != 1]
    orders = [False] if [size for size in shape if size != 1] == plain else []
    if len(shape) >= _IMAGE and [size for size in _moved(shape) if size != 1] == plain:
        orders.append(True)
    return orders


def _moved(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (shape[0], *shape[2:], shape[1])


def show_inside(graph: Graph, payload: Payload, names: Sequence[str], inputs: Sequence[Any], path: Path) -> ShownInside:
    """`UsageError` without a TOSA graph, or if the model refuses it; `ImportError` without the extra ``tosa``."""
    specification = payload.specification or Specification()
    data = payload.data if is_tosa(payload.data) else specification.data
    if not data:
        raise UsageError(_NO_GRAPH)
    tosa = read_tosa(data)
    returned = list(tosa.outputs)
    if len(returned) != len(graph.outputs):
        raise UsageError(f"the TOSA graph returns {len(returned)} values, the delegate {len(graph.outputs)}")
    if not names:
        return ShownInside([], _run(graph, tosa, data, returned, inputs))
    if not specification.origins:
        return ShownInside([], _run(graph, tosa, data, returned, inputs), dict.fromkeys(names, _NO_ORIGINS))
    places = Places(graph, tosa, specification.origins)
    there = [name for name in names if name in places.tensors]
    outputs = _run(graph, tosa, data, [*returned, *(places.tensors[name] for name in there)], inputs)
    inner = [places.restore(name, value) for name, value in zip(there, outputs[len(returned) :], strict=True)]
    missing = {name: _MERGED if name in places.parts else _NO_VALUE for name in names if name not in places.tensors}
    return ShownInside(there, [*outputs[: len(returned)], *inner], missing, places.parts)


def _run(
    graph: Graph, tosa: TosaGraph, data: memoryview | bytes, wanted: list[str], inputs: Sequence[Any]
) -> list[Any]:
    import torch

    given = {placeholder.name: value for placeholder, value in zip(graph.user_inputs(), inputs, strict=True)}
    if not given.keys() >= set(tosa.inputs):
        if len(given) != len(tosa.inputs):
            raise UsageError(f"the TOSA graph takes {len(tosa.inputs)} inputs, the delegate {len(given)}")
        given = dict(zip(tosa.inputs, given.values(), strict=True))
    distinct = list(dict.fromkeys(wanted))
    arrays = [_array(given[name], tosa.tensors[name], name) for name in tosa.inputs]
    computed = dict(zip(distinct, run_reference_model(returning(data, distinct), arrays), strict=True))
    values = {name: _tensor(value, tosa.tensors[name]) for name, value in computed.items()}
    results, uses = [values[name] for name in wanted], Uses(graph)
    for at, name in enumerate(list(refs(graph.outputs))[: len(tosa.outputs)]):
        meta = uses.meta(uses.value(name))
        if meta is None or meta.sizes is None:
            raise UsageError(f"the shape of the output {name} is not known, and TOSA has no dynamic shapes")
        results[at] = results[at].reshape(meta.sizes).to(getattr(torch, meta.dtype))
    return [value.clone() for value in results]


def _array(value: Any, tensor: TosaTensor, name: str) -> Any:
    import torch

    if not isinstance(value, torch.Tensor) or tuple(value.shape) != tensor.shape:
        described = tuple(value.shape) if isinstance(value, torch.Tensor) else type(value).__name__
        raise UsageError(f"the TOSA graph takes {tensor.shape} as {name}, found {described}")
    dtype = str(value.dtype).removeprefix("torch.")
    if dtype != tensor.dtype:
        raise UsageError(f"the TOSA graph takes {tensor.dtype} as {name}, found {dtype}")
    plain = value.detach().contiguous()
    return as_bfloat16(plain.view(torch.int16).numpy()) if dtype == "bfloat16" else plain.numpy()


def _tensor(value: Any, tensor: TosaTensor) -> torch.Tensor:
    import torch

    plain = np.ascontiguousarray(value)
    if tensor.dtype == "bfloat16":
        return torch.from_numpy(plain.view(np.int16)).view(torch.bfloat16).reshape(tensor.shape)
    return torch.from_numpy(plain).reshape(tensor.shape)
