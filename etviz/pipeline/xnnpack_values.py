"""Finds the values of a delegate's graph in its XNNPACK payload, and makes them outputs of the payload.

The bytes that ran are used, with every weight, grid and range. A node matches the operator of its kind that reads the
same values and, if need be, carries the same debug handle. An operator that XNNPACK left out (an activation in a
convolution's range, a batch norm in its weights) is part of the value before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from etviz.artifacts.program.xnnpack_payload import INPUT, INSERTED, OUTPUT, Json, UnpackedPayload, tensors_of
from etviz.errors import UsageError
from etviz.graph.exposure import ACTIVATIONS, BATCH_NORMS, COPIES
from etviz.graph.ir import Graph, Meta, Node
from etviz.graph.labels import short_operator
from etviz.graph.quantize_ops import DEQUANTIZE, QUANTIZE, chooses_grid, conversion
from etviz.graph.uses import item_of

if TYPE_CHECKING:
    import numpy.typing as npt
    import torch


_NONE: Final = 2**32 - 1
_CALLER: Final = -1
_IMAGE: Final = 4
_CHANNELS_LAST: Final = [0, 2, 3, 1]
_CHANNELS_FIRST: Final = [0, 3, 1, 2]
_KINDS: Final = {
    "XNNAdd": "add", "XNNSubtract": "sub", "XNNMultiply": "mul", "XNNDiv": "div", "XNNMaximum": "maximum",
    "XNNMinimum": "minimum", "XNNAbs": "abs", "XNNNegate": "neg", "XNNFloor": "floor", "XNNCeiling": "ceil",
    "XNNSquareRoot": "sqrt", "XNNReciprocalSquareRoot": "rsqrt", "XNNSquare": "pow square", "XNNExp": "exp",
    "XNNLog": "log", "XNNSin": "sin", "XNNCos": "cos", "XNNTanh": "tanh", "XNNSigmoid": "sigmoid", "XNNGelu": "gelu",
    "XNNELU": "elu", "XNNLeakyReLU": "leaky_relu", "XNNPReLU": "prelu _prelu_kernel", "XNNHardswish": "hardswish",
    "XNNClamp": "clamp relu relu6 hardtanh", "XNNSoftmax": "_softmax", "XNNFullyConnected": "linear addmm mm",
    "XNNBatchMatrixMultiply": "bmm mm matmul", "XNNConv2d": "convolution", "XNNDepthwiseConv2d": "convolution",
    "XNNConvTranspose2d": "convolution", "XNNAvgPooling2d": "avg_pool2d _adaptive_avg_pool2d",
    "XNNMaxPooling2d": "max_pool2d max_pool2d_with_indices", "XNNGlobalAvgPooling2d": "mean",
    "XNNArgMaxPooling2d": "max amax", "XNNStaticConstantPad": "constant_pad_nd", "XNNStaticSlice": "slice_copy",
    "XNNStaticResizeBilinear2D": "upsample_bilinear2d", "XNNStaticTranspose": "permute_copy transpose_copy t_copy",
    "XNNStaticReshape": "view_copy unsqueeze_copy squeeze_copy _unsafe_view",
    "XNNCopy": "clone _clone_dim_order alias_copy lift_fresh_copy _to_copy _to_dim_order_copy",
    **dict.fromkeys((f"XNNConcatenate{count}" for count in range(2, 6)), "cat"),
}  # fmt: skip
"""The edge operators that a node may be, by its kind."""
_MOVES: Final = ("XNNStaticTranspose", "XNNStaticReshape", "XNNCopy")
_TURNED: Final = {
    *("XNNConv2d", "XNNDepthwiseConv2d", "XNNConvTranspose2d", "XNNAvgPooling2d", "XNNMaxPooling2d"),
    *("XNNGlobalAvgPooling2d", "XNNArgMaxPooling2d", "XNNStaticResizeBilinear2D", "XNNPReLU"),
}
_PLAIN: Final = {"XNNStaticReshape", "XNNFullyConnected", "XNNBatchMatrixMultiply", "XNNScaledDotProductAttention"}
_COPIES: Final = {*map(short_operator, COPIES), "_to_copy", "_to_dim_order_copy", DEQUANTIZE}
_ACTIVATIONS: Final = set(map(short_operator, ACTIVATIONS))
_BATCH_NORMS: Final = set(map(short_operator, BATCH_NORMS))
_LEFT_OUT: Final = _COPIES | _ACTIVATIONS | _BATCH_NORMS
_FLOATS: Final = {1: "float32", 2: "float16", 14: "bfloat16"}
_DTYPES: Final = {**_FLOATS, 3: "int8", 4: "uint8"}


@dataclass(frozen=True, slots=True)
class Step:
    at: int
    kind: str
    handle: int
    reads: tuple[int, ...]
    writes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PayloadPlace:
    """In channels-last order if `turned`, only after its activation if `before`."""

    value: int
    turned: bool = False
    before: bool = False

    def order(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(shape[axis] for axis in _CHANNELS_LAST) if self.turned else shape or (1,)

    def restore(self, value: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
        return value.permute(*_CHANNELS_FIRST).contiguous() if self.turned else value.reshape(shape)


class PayloadValues:
    def __init__(self, graph: Graph, payload: UnpackedPayload) -> None:
        self._payload = payload
        self._tensors = {at: value["tensor_value"] for at, value in payload.tensors().items()}
        self._grids = {at: value.get("quant_params") or {} for at, value in payload.tensors().items()}
        self._steps = [self._step(at) for at in range(len(payload.graph["xnodes"]))]
        self._handled: dict[int, set[str]] = {}
        for node in graph.nodes:
            for handle in node.handles:
                self._handled.setdefault(handle, set()).add(_short(node))
        self._sources: dict[int, int] = {}
        for step in self._steps:
            if self._is_inserted(step):
                self._sources[step.writes[0]] = self._root(step.reads[0])
        self._left: dict[frozenset[int], list[Step]] = {}
        self._readers: dict[int, set[int]] = {}
        for value, tensor in self._tensors.items():
            if tensor["flags"] & OUTPUT:
                self._readers.setdefault(self._root(value), set()).add(_CALLER)
        for step in self._whole_steps():
            self._left.setdefault(self._roots(step.reads), []).append(step)
            for value in self._roots(step.reads):
                self._readers.setdefault(value, set()).add(step.handle)
        self._used = {name: {_CALLER} for name in graph.results()}
        for node in reversed(graph.nodes):
            passed = conversion(node.target) or item_of(node) is not None or _short(node) in _ACTIVATIONS
            handles = {*node.handles, *(self._used.get(node.name, ()) if passed else ())}
            for name in node.reads():
                self._used.setdefault(name, set()).update(handles)
        self._ids: dict[str, int] = {}
        self._metas: dict[str, Meta | None] = {}
        self._operators: dict[str, str] = {}
        self._holders: dict[int, list[Node]] = {}
        self._turned: dict[int, bool] = {}
        self._follow(graph)

    def _step(self, at: int) -> Step:
        kind, arguments = self._payload.node(at)
        named = list(tensors_of(arguments))
        reads = (value for name, value in named if not name.startswith("output") and not self._is_constant(value))
        writes = (value for name, value in named if name.startswith("output"))
        return Step(at, kind, self._payload.graph["xnodes"][at]["debug_handle"], tuple(reads), tuple(writes))

    def _whole_steps(self) -> list[Step]:
        whole = {step.writes[0]: step for step in self._steps if step.writes[0] not in self._sources}
        for value, step in list(whole.items()):
            if step.handle == INSERTED and "cat" in _KINDS.get(step.kind, "") and step.reads[0] in whole:
                part = whole.pop(step.reads[0])
                whole[value] = replace(step, handle=part.handle, reads=(*part.reads, *step.reads[1:]))
        return list(whole.values())

    def _is_constant(self, value: int) -> bool:
        return bool(self._tensors[value]["constant_buffer_idx"])

    def _is_inserted(self, step: Step) -> bool:
        if step.kind not in _MOVES or len(step.reads) != 1:
            return False
        return step.handle == INSERTED or self._handled.get(step.handle, set()).isdisjoint(_KINDS[step.kind].split())

    def _root(self, value: int) -> int:
        return self._sources.get(value, value)

    def _roots(self, values: Iterable[int]) -> frozenset[int]:
        return frozenset(map(self._root, values))

    def _follow(self, graph: Graph) -> None:
        given = sorted((t for t in self._tensors.values() if t["flags"] & INPUT), key=lambda t: t["external_id"])
        if len(given) != len(graph.user_inputs()):
            raise UsageError(f"the payload has {len(given)} inputs, the graph {len(graph.user_inputs())}")
        for placeholder, tensor in zip(graph.user_inputs(), given, strict=True):
            self._ids[placeholder.name] = tensor["id_out"]
            self._turned[tensor["id_out"]] = self._fits(tensor["id_out"], placeholder.meta) == [True]
        for step in self._steps:
            self._turned |= dict.fromkeys(step.writes, self._is_turned(step))
        nodes = {node.name: node for node in graph.nodes}
        for node in graph.nodes:
            item = item_of(node)
            if item is not None:
                metas = nodes[item[0]].outputs
                self._metas[node.name] = metas[item[1]] if item[1] < len(metas) else None
                self._operators[node.name] = item[0]
                if item[1] == 0 and item[0] in self._ids:
                    self._ids[node.name] = self._ids[item[0]]
                continue
            self._metas[node.name] = node.outputs[0] if len(node.outputs) == 1 else None
            reads = [self._ids[name] for name in node.reads() if name in self._ids]
            value = self._value(node, reads) if reads and not chooses_grid(node) else None
            if value is not None:
                self._ids[node.name] = value
                self._holders.setdefault(value, []).append(node)

    def _value(self, node: Node, reads: Sequence[int]) -> int | None:
        """The handle decides between several steps of the operator's kind that read the same values."""
        roots = self._roots(reads)
        fits = [step for step in self._left.get(roots, ()) if self._may_be(step, _short(node))]
        same = [step for step in fits if step.handle in node.handles or self._has_readers_of(node, step)]
        if same or (len(fits) == 1 and fits[0].handle != INSERTED and not conversion(node.target)):
            step = (same or fits)[0]
            self._left[roots].remove(step)
            return step.writes[0]
        implicit = _short(node) == QUANTIZE and self._tensors[reads[0]]["datatype"] not in _FLOATS
        return reads[0] if len(roots) == 1 and (implicit or _short(node) in _LEFT_OUT) else None

    def _has_readers_of(self, node: Node, step: Step) -> bool:
        if step.handle != INSERTED:  # a copy of a conversion, or a batch norm that no convolution takes in
            return False
        return not self._readers.get(step.writes[0], set()).isdisjoint(self._used.get(node.name, ()))

    def _may_be(self, step: Step, operator: str) -> bool:
        if step.kind == "XNNConvert":
            to_floats = self._tensors[step.writes[0]]["datatype"] in _FLOATS
            return operator == (DEQUANTIZE if to_floats else QUANTIZE)
        if step.handle == INSERTED and step.kind == "XNNDepthwiseConv2d":
            return operator in _BATCH_NORMS
        return operator in _KINDS.get(step.kind, "").split()

    def _is_turned(self, step: Step) -> bool:
        if step.kind == "XNNStaticTranspose" and step.writes[0] in self._sources:
            return self._payload.node(step.at)[1]["perm"] == _CHANNELS_LAST
        if step.kind in _TURNED or step.kind in _PLAIN:
            return step.kind in _TURNED
        return bool(step.reads) and all(self._turned.get(value, False) for value in step.reads)

    def _fits(self, value: int, meta: Meta | None) -> list[bool]:
        if meta is None:
            return []
        orders = [list(meta.shape) or [1]]
        orders += [[meta.shape[axis] for axis in _CHANNELS_LAST]] if len(meta.shape) == _IMAGE else []
        return [bool(turned) for turned, order in enumerate(orders) if _same(order, self._tensors[value]["dims"])]

    def meta(self, name: str) -> Meta:
        meta = self._metas[name]
        if meta is None:
            raise UsageError(f"the shape of {name} is not known")
        return meta

    def place(self, name: str) -> PayloadPlace | None:
        value, meta = self._ids.get(name), self._metas.get(name)
        if value is None or meta is None:
            return None
        holders = self._holders[value]
        first = [node.name for node in holders].index(self._operators.get(name, name))
        copies = _COPIES | {QUANTIZE} if _short(holders[first]) == QUANTIZE else _COPIES
        later = [node for node in holders[first + 1 :] if _short(node) not in copies]
        before = len(later) == 1 and _short(later[0]) in _ACTIVATIONS and self._tensors[value]["datatype"] in _FLOATS
        if later and not before:
            return None
        moved = [written for written, source in self._sources.items() if source == value]
        outputs_first = sorted([value, *moved], key=lambda held: not self._tensors[held]["flags"] & OUTPUT)
        for held in [value] if before else outputs_first:
            fits = self._fits(held, meta)
            if fits and _DTYPES.get(self._tensors[held]["datatype"]) == meta.dtype:
                turned = self._turned[held] if len(fits) > 1 else fits[0]
                return None if self._tensors[held]["flags"] & INPUT else PayloadPlace(held, turned, before)
        return None

    def grid(self, name: str) -> tuple[float, int] | None:
        grid = self._grids.get(self._ids.get(name, _NONE), {})
        return (grid["scale"], grid["zero_point"]) if "zero_point" in grid else None

    def filter_scales(self, name: str) -> tuple[npt.NDArray[np.float32], str] | None:
        """One for all channels of an operator's weight, one for each, or for each group; and the file's dtype."""
        value = self._argument(name, "filter_id")
        grid = self._grids.get(value, {})
        if "zero_point" in grid:
            return np.array([grid["scale"]], "<f4"), "float32"
        content = self._payload.content(grid["scale_buffer_idx"]) if "channel_dim" in grid else b""
        if "group_size" in grid and content and len(content) % 2 == 0:
            return (np.frombuffer(content, "<u2").astype("<u4") << 16).view("<f4"), "bfloat16"
        return (np.frombuffer(content, "<f4"), "float32") if content and len(content) % 4 == 0 else None

    def bias(self, name: str) -> npt.NDArray[np.int32 | np.float32] | None:
        """Whole numbers of a static layer's steps, or float32 where the input's grid is chosen at run time."""
        tensor = self._tensors.get(self._argument(name, "bias_id"), {})
        content = self._payload.content(tensor["constant_buffer_idx"]) if tensor else b""
        kind = "float32" if not tensor else _FLOATS.get(tensor["datatype"], "int32")
        return np.frombuffer(content, kind) if content and len(content) % 4 == 0 and kind.endswith("32") else None

    def constants(self, name: str) -> list[bytes]:
        """The constants of XNNPACK's operator for an operator of the graph."""
        read = (value for _, value in tensors_of(self._arguments(name)) if self._is_constant(value))
        return [self._payload.content(self._tensors[value]["constant_buffer_idx"]) for value in read]

    def _argument(self, name: str, argument: str) -> int:
        return self._arguments(name).get(argument, _NONE)

    def _arguments(self, name: str) -> Json:
        value = self._ids.get(name)
        step = next((step for step in self._steps if value in step.writes), None)
        return self._payload.node(step.at)[1] if step is not None else {}

    def give_out(self, places: Sequence[PayloadPlace]) -> list[int]:
        graph = self._payload.graph
        inputs = len(graph["input_ids"])
        external: list[int] = []
        behind: dict[int, Json] = {}
        for place in places:
            tensor = self._unfuse(place, behind) if place.before else self._tensors[place.value]
            if not tensor["flags"] & OUTPUT:
                tensor["flags"] |= OUTPUT
                tensor["external_id"] = graph["num_externs"]
                graph["num_externs"] += 1
                graph["output_ids"].append(tensor["id_out"])
            external.append(tensor["external_id"] - inputs)
        for at in sorted(behind, reverse=True):
            graph["xnodes"].insert(at + 1, behind[at])
        return external

    def _unfuse(self, place: PayloadPlace, behind: dict[int, Json]) -> Json:
        graph = self._payload.graph
        step = next(step for step in self._steps if place.value in step.writes)
        node = graph["xnodes"][step.at]
        tensor = {**self._tensors[place.value], "id_out": len(self._tensors), "flags": 0, "external_id": _NONE}
        self._tensors[tensor["id_out"]] = tensor
        graph["xvalues"].append({"xvalue_union_type": "XNNTensorValue", "xvalue_union": tensor})
        self._payload.node(step.at)[1]["output_id"] = tensor["id_out"]
        clamp = {"input_id": tensor["id_out"], "output_id": place.value, "flags": 0}
        about = {"xnode_union_type": "XNNClamp", "xnode_union": clamp, "debug_handle": INSERTED}
        behind[step.at] = about | {"output_min_max": node["output_min_max"]}
        node["output_min_max"] = None
        return tensor


def _short(node: Node) -> str:
    return conversion(node.target) or node.target.split(".")[1 if "." in node.target else 0]


def _same(shape: Sequence[int | str], dims: Sequence[int]) -> bool:
    return len(shape) == len(dims) and all(isinstance(a, str) or a == b for a, b in zip(shape, dims, strict=True))
