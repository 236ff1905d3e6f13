"""Runs OpenVINO's model of a delegate in its runtime, with inner values as outputs.

On some processors OpenVINO computes float32 programs in bfloat16. The inner values are then those of the same model in
float32, so that they show faults of the model only.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import torch

from etviz.artifacts.program.openvino_model import Layer, OpenvinoModel, Port
from etviz.artifacts.program.payload import Payload
from etviz.graph.exposure import expose, parts_of_next
from etviz.graph.ir import Graph, Meta
from etviz.graph.uses import Uses
from etviz.pipeline.interpreters import ShownInside
from etviz.upstream.openvino import run_compiled

_SINGLE: Final = "f32"
_PRECISIONS: Final = {"bf16": "bfloat16", "f16": "float16"}
_MERGED: Final = "OpenVINO merges it with what follows"
_NO_VALUE: Final = "OpenVINO's model has no value of its shape and dtype under its name"


def show_inside(graph: Graph, payload: Payload, names: Sequence[str], inputs: Sequence[Any], path: Path) -> ShownInside:
    """`UsageError` for a payload that is not for the CPU; `ImportError` without the extra ``openvino``."""
    content, uses = bytes(payload.data), Uses(graph)
    model = OpenvinoModel(content)
    places = {name: port for name, port in _places(uses, list(model.layers())).items() if name in names}
    plain, precision = run_compiled(content, list(inputs))
    outputs, _ = run_compiled(model.returning(list(places.values())), list(inputs), _SINGLE)
    returned, added = outputs[: len(plain)], outputs[len(plain) :]
    inner = {name: _typed(value, uses.meta(uses.value(name))) for name, value in zip(places, added, strict=True)}
    gone = [name for name in names if name not in inner]
    parts = parts_of_next(graph, expose(graph), gone, inner)
    missing = {name: _MERGED if name in parts else _NO_VALUE for name in gone}
    return ShownInside(list(inner), [*returned, *inner.values()], missing, parts, plain, _PRECISIONS.get(precision, ""))


def _places(uses: Uses, layers: Sequence[Layer]) -> dict[str, Port]:
    """Where the model has values: a layer's is that of the last operator that is merged into it.

    A layer without an operator's name may be a step to another layer's operator.
    """
    ends, ports = {layer.name for layer in layers if layer.outputs}, dict[str, Port]()
    order = {name: at for at, name in enumerate(uses.nodes)}
    for layer in layers:
        if layer.name in order or ends.isdisjoint(layer.merged):
            whole = sorted({layer.name, *layer.merged - ends} & order.keys(), key=order.__getitem__)
            ports |= next(filter(None, (_values(uses, name, layer) for name in reversed(whole))), {})
    return ports


def _values(uses: Uses, operator: str, layer: Layer) -> dict[str, Port]:
    named = {name: uses.value(name)[1] for name in uses.outputs(uses.nodes[operator])}
    return {
        name: layer.outputs[output]
        for name, output in named.items()
        if output < len(layer.outputs) and _fits(layer.outputs[output], uses.meta(uses.value(name)))
    }


def _fits(port: Port, meta: Meta | None) -> bool:
    sizes = () if meta is None else meta.shape
    pairs = zip(port.sizes, sizes, strict=False)
    return len(port.sizes) == len(sizes) and all(a < 0 or not isinstance(b, int) or a == b for a, b in pairs)


def _typed(value: torch.Tensor, meta: Meta | None) -> torch.Tensor:
    """OpenVINO computes integers of 64 bits in 32, and truth values in 8."""
    if meta is None or value.is_floating_point() or "float" in meta.dtype:
        return value
    return value.to(getattr(torch, meta.dtype))
