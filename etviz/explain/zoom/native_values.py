"""Evaluates the graph that ExecuTorch's native backend holds, in PyTorch's kernels."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from etviz.artifacts.flatbuffer import FlatBuffer, FlatTables
from etviz.artifacts.program.held import NATIVE, require_version
from etviz.artifacts.program.payload import Payload
from etviz.artifacts.scalar_types import SCALAR_TYPES
from etviz.errors import UsageError
from etviz.evaluation.evaluator import Evaluator
from etviz.graph.ir import Graph, Input, Node, Ref, Tag
from etviz.pipeline.interpreters import ShownInside

_NO_VALUE: Final = "the native graph has no value of this name"
_REFUSED: Final = "the delegate's native graph {}; etviz evaluates graphs of known sizes without branches and state"
_TENSOR, _NONE, _INT, _FLOAT, _BOOL, _TEXT, _DTYPE, _INTS, _FLOATS, _BOOLS, _TENSORS, _MAYBE = range(1, 13)
_SCALARS: Final = {_INT: "<i8", _FLOAT: "<f8", _BOOL: "<u1"}
_LISTS: Final = {_INTS: "<i8", _FLOATS: "<f8", _BOOLS: "<u1"}
_CALL: Final = 0


def show_inside(graph: Graph, payload: Payload, names: Sequence[str], inputs: Sequence[Any], path: Path) -> ShownInside:
    """`UsageError` for another version, dynamic sizes, branches, state, or packed weights."""
    native, keys = read_native(payload.data)
    constants = dict(_constants(keys, payload.named))
    known = {node.name for node in native.nodes}
    there = [name for name in names if name in known]
    asked = replace(native, outputs=[*native.outputs, *map(Ref, there)])
    if len(native.outputs) != len(graph.outputs):
        raise UsageError(f"the native graph returns {len(native.outputs)} values, the delegate {len(graph.outputs)}")
    given = {placeholder.name: value for placeholder, value in zip(graph.user_inputs(), inputs, strict=True)}
    ordered = [given[placeholder.name] for placeholder in native.user_inputs() if placeholder.name in given]
    outputs = Evaluator(asked, constants).run(ordered if len(ordered) == len(given) else list(inputs), replay=False)
    return ShownInside(there, [value.clone() for value in outputs], {n: _NO_VALUE for n in names if n not in known})


def read_native(data: memoryview) -> tuple[Graph, dict[str, FlatTables]]:
    """The first method's graph, and its constants by name."""
    require_version(data, *NATIVE)
    methods = FlatBuffer(data, "the delegate's payload", "native graph", "lower the model again").root().vectors(1)
    if not methods.length.any():
        raise UsageError("the delegate's native graph is empty; lower the model again")
    method = methods.tables().take(np.arange(1))
    if method.vectors(4).length.any():
        raise UsageError(_REFUSED.format("keeps state"))
    body, held = method.table(1), method.vectors(2).tables()
    constants = {str(name): held.take(np.array([at])) for at, name in enumerate(held.strings(0).tolist())}
    inputs = [Input(name, "constant", name) for name in constants]
    inputs += [Input(name, "user") for name in _texts(body, 1) if name not in constants]
    nodes = body.vectors(0).tables()
    calls = [nodes.take(np.array([at])) for at in np.flatnonzero(nodes.scalar(1, "<i1") == _CALL)]
    made = [node for call in calls for node in _nodes(call)]
    return Graph("native", inputs, made, [Ref(name) for name in _texts(body, 2)]), constants


def _nodes(call: FlatTables) -> Iterator[Node]:
    name, target = str(call.strings(0)[0]), str(call.strings(2)[0]).removeprefix("torch.ops.")
    given = call.vectors(3).tables()
    arguments = {
        str(key): _argument(given.take(np.array([at])).table(1)) for at, key in enumerate(given.strings(0).tolist())
    }
    results = call.vectors(4).tables()
    names = [str(result) for result in results.strings(0).tolist()]
    if results.vectors(3).length.any():
        names = _texts(results.take(np.arange(1)), 3)
    if len(names) == 1 and not results.vectors(3).length.any():
        yield Node(names[0], target, kwargs=arguments)
        return
    yield Node(name, target, kwargs=arguments)
    yield from (Node(result, "getitem", (Ref(name), at)) for at, result in enumerate(names))


def _argument(argument: FlatTables) -> Any:
    kind, value = int(argument.scalar(0, "<u1")[0]), argument.table(1)
    if kind in (_INT, _FLOAT, _BOOL, _INTS) and any(_texts_or_text(value, kind)):
        raise UsageError(_REFUSED.format("has sizes that depend on inputs"))
    if kind == _TENSOR:
        return Ref(str(value.strings(0)[0]))
    if kind in _SCALARS:
        number = value.scalar(0, _SCALARS[kind])[0].item()
        return bool(number) if kind == _BOOL else number
    if kind == _TEXT:
        return str(value.strings(0)[0])
    if kind == _DTYPE:
        return Tag("dtype", _dtype(int(value.scalar(0, "<i1")[0])))
    if kind in _LISTS:
        items = value.vectors(0, _LISTS[kind]).flat().tolist()
        return [bool(item) for item in items] if kind == _BOOLS else items
    if kind == _TENSORS:
        return [Ref(name) for name in _texts(value, 0)]
    if kind == _MAYBE:
        there = value.vectors(1, "<u1").flat().tolist()
        return [Ref(name) if has else None for name, has in zip(_texts(value, 0), there, strict=True)]
    if kind in (0, _NONE):
        return None
    raise UsageError(_REFUSED.format("has branches or arguments of a newer version"))


def _texts_or_text(value: FlatTables, kind: int) -> list[Any]:
    return _texts(value, 1) if kind == _INTS else value.strings(1).tolist()


def _texts(table: FlatTables, field: int) -> list[str]:
    return table.vectors(field).strings()[0]


def _dtype(code: int) -> str:
    scalar_type = SCALAR_TYPES.get(code)
    if scalar_type is None or not hasattr(torch, scalar_type.name):
        raise UsageError(f"the delegate's native graph has the unknown scalar type {code}")
    return scalar_type.name


def _constants(
    held: Mapping[str, FlatTables], named: Mapping[str, memoryview | bytes]
) -> Iterator[tuple[str, torch.Tensor]]:
    for name, table in held.items():
        key, meta = str(table.strings(1)[0]), table.table(2)
        if meta.has(3)[0] or table.scalar(4, "<u1")[0]:
            raise UsageError(_REFUSED.format(f"packs the weight {key}" if meta.has(3)[0] else f"changes {key}"))
        sizes = [int(size) for size in meta.vectors(1).tables().scalar(0, "<i8").tolist()]
        order = meta.vectors(2, "<i4").flat().tolist() or list(range(len(sizes)))
        dtype = getattr(torch, _dtype(int(meta.scalar(0, "<i1")[0])))
        data, count = named.get(key), math.prod(sizes)
        if data is None:
            raise UsageError(f"the program lacks the weight {key[:80]} of the delegate; give its .ptd (data=)")
        if sorted(order) != list(range(len(sizes))) or min(sizes, default=0) < 0 or count * dtype.itemsize > len(data):
            raise UsageError(f"the weight {key[:80]} has {len(data)} bytes, which do not fit its shape {sizes[:8]}")
        stored = torch.empty([sizes[axis] for axis in order], dtype=dtype)
        if count:
            stored = torch.frombuffer(bytearray(data[: count * dtype.itemsize]), dtype=dtype).reshape(stored.shape)
        yield name, stored.permute([order.index(axis) for axis in range(len(sizes))])
