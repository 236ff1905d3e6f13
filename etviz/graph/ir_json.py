"""`Graph` to JSON and back. Reading checks every field, since record files may be foreign."""

from __future__ import annotations

import base64
import binascii
import math
from typing import Any

from etviz.graph.ir import LOOPS, MAX_DEPTH, Graph, Input, Json, Meta, Node, Ref, Tag, unfolds_too_far
from etviz.graph.loops import is_whole
from etviz.graph.uses import item_of
from etviz.json_numbers import tagged

_TAGS = {"dtype", "memory_format", "layout", "device", "symbol", "graph"}
_LARGEST = 1 << 64
_DEEPEST_MODULE = 128
_INPUTS = {"user", "constant", "buffer"}


class MalformedGraphError(ValueError):
    pass


class TextTable:
    def __init__(self) -> None:
        self.texts: list[str] = [""]
        self._index: dict[str, int] = {"": 0}

    def add(self, text: str) -> int:
        if text not in self._index:
            self._index[text] = len(self.texts)
            self.texts.append(text)
        return self._index[text]


def dump_arg(value: Any) -> Json:
    if isinstance(value, Ref):
        return {"$": "ref", "v": value.name}
    if isinstance(value, Tag):
        return {"$": value.kind, "v": value.value}
    if isinstance(value, float):
        return tagged(value)
    if isinstance(value, (list, tuple)):
        return [dump_arg(item) for item in value]
    if isinstance(value, dict):
        return {"$": "dict", "v": [[key, dump_arg(item)] for key, item in value.items()]}
    if value is None or isinstance(value, (bool, int, str)):
        return value
    raise MalformedGraphError(f"an argument of type {type(value).__name__} has no JSON form")


def load_arg(value: Json, depth: int = 0) -> Any:
    if depth > MAX_DEPTH:
        raise MalformedGraphError("arguments are nested too deeply")
    if isinstance(value, int) and abs(value) > _LARGEST:
        raise MalformedGraphError(f"an integer of {value.bit_length()} bits is no argument")
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, list):
        return [load_arg(item, depth + 1) for item in value]
    if isinstance(value, dict) and set(value) == {"$", "v"}:
        kind, inner = value["$"], value["v"]
        if kind == "dict" and isinstance(inner, list):
            return {_text(key): load_arg(item, depth + 1) for key, item in map(_pair, inner)}
        if kind == "float" and inner in ("inf", "-inf", "nan"):
            return float(inner)
        if kind == "ref" and isinstance(inner, str):
            return Ref(inner)
        if kind in _TAGS and isinstance(inner, str):
            return Tag(kind, inner)
    raise MalformedGraphError(f"an argument is not in a known form: {str(value)[:60]}")


def dump_graph(graph: Graph, table: TextTable) -> Json:
    return {
        "name": graph.name,
        "inputs": [[i.name, i.kind, i.target, _dump_meta(i.meta)] for i in graph.inputs],
        "nodes": [_dump_node(node, table) for node in graph.nodes],
        "outputs": [dump_arg(out) for out in graph.outputs],
        "mutations": [[target, name] for target, name in graph.mutations.items()],
        "subgraphs": [[name, dump_graph(sub, table)] for name, sub in graph.subgraphs.items()],
        "backend_id": graph.backend_id,
        "compile_specs": [[key, base64.b64encode(value).decode()] for key, value in graph.compile_specs],
    }


def load_graph(data: Json, texts: list[str], depth: int = 0) -> Graph:
    if depth > MAX_DEPTH:
        raise MalformedGraphError("subgraphs are nested too deeply")
    try:
        graph = Graph(
            name=_text(data["name"]),
            inputs=[_load_input(entry) for entry in data["inputs"]],
            nodes=[_load_node(entry, texts) for entry in data["nodes"]],
            outputs=[load_arg(out) for out in data["outputs"]],
            mutations={_text(target): _text(name) for target, name in map(_pair, data["mutations"])},
            subgraphs={_text(name): load_graph(sub, texts, depth + 1) for name, sub in map(_pair, data["subgraphs"])},
            backend_id=_text(data["backend_id"]),
            compile_specs=[
                (_text(key), base64.b64decode(_text(value), validate=True))
                for key, value in map(_pair, data["compile_specs"])
            ],
        )
    except (KeyError, TypeError, IndexError, binascii.Error) as error:
        raise MalformedGraphError(f"a field is missing or has the wrong type ({error})") from error
    check_references(graph)
    if depth == 0 and unfolds_too_far(graph):
        raise MalformedGraphError("its subgraphs are called far too often")
    return graph


def check_references(graph: Graph) -> None:
    """Every value must be defined once and before its use."""
    known = {i.name for i in graph.inputs}
    for node in graph.nodes:
        _check_form(node)
        for name in node.reads():
            if name not in known:
                raise MalformedGraphError(f"node {node.name} uses {name}, which is not defined before it")
        for name in node.subgraphs:
            if name not in graph.subgraphs:
                raise MalformedGraphError(f"node {node.name} uses the subgraph {name}, which does not exist")
        if node.target in LOOPS and not is_whole(graph, node):
            raise MalformedGraphError(f"{node.name} is no whole {node.target}")
        if node.name in known:
            raise MalformedGraphError(f"two values are named {node.name}")
        known.add(node.name)
    for name in graph.results():
        if name not in known:
            raise MalformedGraphError(f"the output {name} is not defined")


def _check_form(node: Node) -> None:
    if node.target == "cond":
        ok = len(node.args) == 2 == len(node.subgraphs) and isinstance(node.args[1], list)
    elif node.target == "getitem":
        item = item_of(node)
        ok = item is not None and not isinstance(item[1], bool) and item[1] >= 0
    else:
        ok = node.target != "delegate" or len(node.subgraphs) == 1
    if not ok:
        raise MalformedGraphError(f"{node.name} is no whole {node.target}")


def _dump_node(node: Node, table: TextTable) -> Json:
    return [
        node.name,
        node.target,
        dump_arg(node.args),
        dump_arg(node.kwargs) if node.kwargs else None,
        [_dump_meta(meta) for meta in node.outputs],
        node.instruction,
        node.kernel,
        list(node.handles),
        node.origin,
        table.add(node.stack),
        table.add(node.module),
        list(node.subgraphs),
    ]


def _load_node(data: Json, texts: list[str]) -> Node:
    name, target, args, kwargs, outputs, instruction, kernel, handles, origin, stack, module, subgraphs = data
    loaded = load_arg(args)
    named = load_arg(kwargs) if kwargs is not None else {}
    if not isinstance(loaded, list) or not isinstance(named, dict):
        raise MalformedGraphError(f"the arguments of {name} are not a list")
    return Node(
        name=_text(name),
        target=_text(target),
        args=tuple(loaded),
        kwargs=named,
        outputs=tuple(_load_meta(meta) for meta in outputs),
        instruction=_integer(instruction, -1, (1 << 31) - 1),
        kernel=_text(kernel),
        handles=tuple(_integer(handle) for handle in handles),
        origin=_text(origin),
        stack=_lookup(texts, stack),
        module=shallow(_lookup(texts, module)),
        subgraphs=tuple(_text(sub) for sub in subgraphs),
    )


def _dump_meta(meta: Meta | None) -> Json:
    return None if meta is None else [meta.dtype, list(meta.shape), meta.scale]


def _load_meta(data: Json) -> Meta | None:
    if data is None:
        return None
    dtype, shape, scale = data
    if scale is not None and not isinstance(scale, (int, float)):
        raise MalformedGraphError("a quantization scale is not a number")
    sizes = tuple(size if isinstance(size, str) else _integer(size, 0) for size in shape)
    return Meta(_text(dtype), sizes, None if scale is None else _scale(scale))


def _load_input(data: Json) -> Input:
    name, kind, target, meta = data
    if kind not in _INPUTS:
        raise MalformedGraphError(f"input {name} is of the unknown kind {kind}")
    return Input(_text(name), kind, _text(target), _load_meta(meta))


def _pair(value: Json) -> tuple[Any, Any]:
    if not isinstance(value, list) or len(value) != 2:
        raise MalformedGraphError("expected a pair")
    return value[0], value[1]


def _text(value: Json) -> str:
    if not isinstance(value, str):
        raise MalformedGraphError(f"expected a text, found {type(value).__name__}")
    return value


def _integer(value: Json, least: int = -(1 << 63), most: int = (1 << 63) - 1) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise MalformedGraphError(f"expected an integer, found {type(value).__name__}")
    if not least <= value <= most:
        raise MalformedGraphError(f"an integer of {value.bit_length()} bits is not between {least} and {most}")
    return value


def _scale(value: float) -> float:
    try:
        scale = float(value)
    except OverflowError:
        scale = math.inf
    if not math.isfinite(scale):
        raise MalformedGraphError("a quantization scale is not finite")
    return scale


def shallow(module: str) -> str:
    return module if module.count(".") < _DEEPEST_MODULE else ".".join(module.split(".")[:_DEEPEST_MODULE])


def _lookup(texts: list[str], index: Json) -> str:
    position = _integer(index)
    if not 0 <= position < len(texts):
        raise MalformedGraphError(f"text {position} does not exist")
    return texts[position]
