"""Reads exported programs as `torch.export` serializes them (schema version 5 … 8).

Upstream's `deserialize` is slow and evaluates expressions from the file with sympy; here symbolic sizes stay text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from etviz.graph.inline import WRAPS, changes_nothing, unwrap
from etviz.graph.ir import MAX_DEPTH, WHOLE, Graph, Input, Json, Meta, Node, Ref, Tag, unfolds_too_far
from etviz.graph.ir_json import MalformedGraphError, check_references, shallow
from etviz.graph.labels import with_cells
from etviz.graph.language_operators import LANGUAGE_OPERATORS
from etviz.graph.loops import begin, make_body, rename
from etviz.graph.quantize_ops import spread_scales
from etviz.graph.state_threading import thread_state
from etviz.graph.uses import items

_NUMBERED: Final = "uint8 int8 int16 int32 int64 float16 float32 float64 complex32 complex64 complex128 bool bfloat16"
_FLOAT8: Final = {29: "float8_e4m3fn", 30: "float8_e5m2", 31: "float8_e4m3fnuz", 32: "float8_e5m2fnuz"}
_DTYPES: Final = dict(enumerate(_NUMBERED.split(), 1)) | {28: "uint16"} | _FLOAT8
_LAYOUTS: Final = {1: "sparse_coo", 2: "sparse_csr", 7: "strided"}
_MEMORY_FORMATS: Final = {1: "contiguous_format", 2: "channels_last", 3: "channels_last_3d", 4: "preserve_format"}
FUNCTIONALIZED: Final = ("higher_order.auto_functionalized", "higher_order.auto_functionalized_v2")
_LOOPS: Final = {"higher_order.map_impl": "map", "higher_order.scan": "scan"}
_PREFIXES: Final = ("executorch.exir.dialects.edge.ops.", "executorch.exir.dialects.edge._ops.", "torch.ops.")


def read_exported_program(data: Json) -> Graph:
    try:
        module = data["graph_module"]
        graph = _read_graph("", module["graph"], 0)
        _read_signature(graph, module["signature"])
        thread_state(graph)
        _check(graph)
        if unfolds_too_far(graph):
            raise MalformedGraphError("its branches are called far too often")
        spread_scales(graph)
        return graph
    except (KeyError, TypeError, AttributeError, IndexError, ValueError, RecursionError, OverflowError) as error:
        if isinstance(error, MalformedGraphError):
            raise
        raise MalformedGraphError(
            f"this is not a serialized exported program ({type(error).__name__}: {error})"
        ) from error


def _check(graph: Graph) -> None:
    for part in graph.subgraphs.values():
        _check(part)
    check_references(graph)


def _read_graph(name: str, data: Json, depth: int) -> Graph:
    if depth > MAX_DEPTH:
        raise MalformedGraphError("subgraphs are nested too deeply")
    graph = Graph(name)
    metas = {str(key): _read_meta(value) for key, value in data["tensor_values"].items()}
    for entry in data["inputs"]:
        value = _argument(entry, graph, depth)
        input_name = value.name if isinstance(value, Ref) else f"_constant_input_{len(graph.inputs)}"
        graph.inputs.append(Input(input_name, "user", meta=metas.get(input_name)))
    taken: set[str] = set()
    for entry in data["nodes"]:
        before = len(graph.nodes)
        _read_node(graph, entry, metas, depth, taken)
        taken.update(node.name for node in graph.nodes[before:])
    graph.outputs = [_argument(entry, graph, depth) for entry in data["outputs"]]
    return graph


def _read_node(graph: Graph, data: Json, metas: dict[str, Meta], depth: int, taken: set[str]) -> None:
    metadata, target = data.get("metadata") or {}, _short(str(data["target"]))
    if target.endswith("higher_order.cond"):
        _read_condition(graph, data, metas, depth)
        return
    if (loop := _LOOPS.get(target)) is not None:
        _read_loop(graph, data, metas, depth, loop)
        return
    if target in WRAPS and _read_wrapped(graph, data, depth):
        return
    names = _output_names(data)
    kwargs = {str(entry["name"]): _argument(entry["arg"], graph, depth) for entry in data["inputs"]}
    if target in FUNCTIONALIZED:
        target, kwargs, names = read_functionalized(target, kwargs, names)
    single = len(names) == 1 and "as_tensors" not in data["outputs"][0]
    node = Node(
        name=names[0] if single else str(data.get("name") or "+".join(names)),
        target=_python(target),
        kwargs=kwargs,
        outputs=tuple(metas.get(name) for name in names),
        handles=_handles(metadata.get("debug_handle")),
        origin=_origin(metadata.get("from_node"), str(data.get("name") or "") or (names[0] if names else "")),
        stack=with_cells(str(metadata.get("stack_trace") or "")),
        module=shallow(_module(metadata.get("nn_module_stack"))),
    )
    if node.target.startswith("py."):
        node.args, node.kwargs = tuple(kwargs.values()), {}
    if not single and (node.name in names or node.name in taken):
        node.name = f"{node.name}{WHOLE}"
    graph.nodes.append(node)
    if not single:
        graph.nodes += items(node, names, node.outputs)


def read_functionalized(target: str, kwargs: dict[str, Any], names: list[str]) -> tuple[str, dict[str, Any], list[str]]:
    operator = kwargs.pop("")
    if not (isinstance(operator, Tag) and operator.kind == "operator"):
        raise MalformedGraphError(f"{target} names no operator")
    bases = kwargs.pop("_all_bases", [])
    places = {key: kwargs.pop(key) for key in list(kwargs) if re.fullmatch(r"_\w+_base_index", key)}
    if any(key.startswith("_") for key in kwargs):
        raise MalformedGraphError(f"{operator.value} writes to a part of a value, which etviz does not follow")
    for key, at in places.items():
        kwargs[key.removeprefix("_").removesuffix("_base_index")] = None if at is None else bases[at]
    known = LANGUAGE_OPERATORS.get(operator.value)
    if known is not None:
        order = list(places.values()) or list(range(len(known.writes)))
        first = len(names) - len(order)
        names = [*names[: known.results], *(names[first + at] for at in order)]
    return operator.value, kwargs, names


def _short(target: str) -> str:
    for prefix in _PREFIXES:
        target = target.removeprefix(prefix)
    return target


def _read_condition(graph: Graph, data: Json, metas: dict[str, Meta], depth: int) -> None:
    predicate, true, false, operands = (_argument(entry["arg"], graph, depth) for entry in data["inputs"])
    names = _output_names(data)
    if not (isinstance(true, Tag) and isinstance(false, Tag) and isinstance(operands, list)):
        raise MalformedGraphError("a cond node has no two branches")
    for branch in {true.value, false.value}:
        rename(graph.subgraphs[branch], f"{branch}/")
    name = f"{names[0] if names else 'cond'}{WHOLE}"
    outputs = tuple(metas.get(output) for output in names)
    node = Node(name, "cond", (predicate, operands), outputs=outputs, subgraphs=(true.value, false.value))
    node.handles = _handles((data.get("metadata") or {}).get("debug_handle"))
    graph.nodes += [node, *items(node, names, outputs)]


def _read_loop(graph: Graph, data: Json, metas: dict[str, Meta], depth: int, target: str) -> None:
    others = dict(graph.subgraphs)
    body, *parts = (_argument(entry["arg"], graph, depth) for entry in data["inputs"])
    carries, rows, operands = parts if target == "scan" else ([], *parts)
    lists = isinstance(carries, list) and isinstance(rows, list) and isinstance(operands, list)
    if not (isinstance(body, Tag) and body.kind == "graph" and lists):
        raise MalformedGraphError(f"a {target} node has no body or no lists of arguments")
    names = _output_names(data)
    prefix = names[0] if names else target
    graph.subgraphs, inner, key = others, graph.subgraphs[body.value], f"{prefix}_{body.value}"
    if len(inner.inputs) < len(carries) + len(rows) or len(inner.outputs) < len(carries):
        raise MalformedGraphError(f"the body of a {target} node takes or gives too little")
    make_body(inner, prefix, len(carries), len(rows))
    graph.subgraphs[key] = inner
    first = begin(prefix, carries)
    outputs = tuple(metas.get(name) for name in names)
    args = ([Ref(node.name) for node in first], rows, operands)
    node = Node(f"{prefix}{WHOLE}", target, args, outputs=outputs, subgraphs=(key,))
    node.handles = _handles((data.get("metadata") or {}).get("debug_handle"))
    graph.nodes += [*first, node, *items(node, names, outputs)]


def _read_wrapped(graph: Graph, data: Json, depth: int) -> bool:
    """Add the operators of a wrapped graph; False under autocast, which changes them."""
    others = dict(graph.subgraphs)
    given = [_argument(entry["arg"], graph, depth) for entry in data["inputs"]]
    at = next((at for at, argument in enumerate(given) if isinstance(argument, Tag) and argument.kind == "graph"), -1)
    if at < 0:
        raise MalformedGraphError(f"a {data['target']} node has no graph")
    if not changes_nothing(_short(str(data["target"])), given):
        return False
    inner, names = graph.subgraphs[given[at].value], _output_names(data)
    graph.subgraphs = others
    unwrap(graph, inner, given[at + 1 :], names, f"{names[0] if names else inner.name}/")
    return True


def _python(target: str) -> str:
    module, _, name = target.rpartition(".")
    return f"py.{name}" if module in ("_operator", "operator", "builtins", "math") else target


def _output_names(node: Json) -> list[str]:
    names = []
    for kind, value in map(_only, node["outputs"]):
        names += map(_inner_name, value if kind in ("as_tensors", "as_optional_tensors") else [value])
    return names


def _inner_name(value: Json) -> str:
    if isinstance(value, dict):
        return str(value["name"]) if "name" in value else _inner_name(_only(value)[1])
    return str(value)


def _only(value: Json) -> tuple[str, Any]:
    if not isinstance(value, dict) or len(value) != 1:
        raise MalformedGraphError("an argument is not of one kind")
    return next(iter(value.items()))


def _argument(entry: Json, graph: Graph, depth: int) -> Any:
    kind, value = _only(entry)
    if kind in _SIMPLE:
        return _SIMPLE[kind](value)
    if kind in ("as_ints", "as_floats", "as_strings", "as_bools"):
        return [_SIMPLE[kind[:-1]](element) for element in value]
    if kind in ("as_tensors", "as_optional_tensors"):
        return [_optional(element) for element in value]
    if kind.startswith("as_sym_"):
        return [_size(element) for element in value] if kind.endswith("s") else _size(value)
    if kind == "as_graph":
        name = str(value["name"])
        graph.subgraphs[name] = _read_graph(name, value["graph"], depth + 1)
        return Tag("graph", name)
    raise MalformedGraphError(f"arguments of the kind {kind} are not known")


def _optional(element: Json) -> Any:
    if "name" in element:
        return Ref(str(element["name"]))
    kind, value = _only(element)
    return None if kind == "as_none" else Ref(str(value["name"]))


def _size(value: Json) -> Any:
    kind, inner = _only(value)
    if kind == "as_name":
        return Ref(str(inner))
    if isinstance(inner, (int, float, bool)):
        return inner
    raise MalformedGraphError(f"a size of the kind {kind} is not known")


def _integer(value: Json) -> int:
    number = int(value)
    if not -(1 << 63) <= number < 1 << 63:
        raise MalformedGraphError(f"an integer of {number.bit_length()} bits is no argument")
    return number


def _number(value: Json) -> float:
    if isinstance(value, str) and value in ("Infinity", "-Infinity", "NaN"):
        return float(value.replace("Infinity", "inf"))
    return float(value)


_SIMPLE: Final[dict[str, Callable[[Any], Any]]] = {
    "as_tensor": lambda v: Ref(str(v["name"])),
    "as_none": lambda v: None,
    "as_int": _integer,
    "as_float": _number,
    "as_string": str,
    "as_bool": bool,
    "as_operator": lambda v: Tag("operator", _short(str(v))),
    "as_scalar_type": lambda v: Tag("dtype", _DTYPES[v]),
    "as_layout": lambda v: Tag("layout", _LAYOUTS[v]),
    "as_memory_format": lambda v: Tag("memory_format", _MEMORY_FORMATS[v]),
    "as_device": lambda v: Tag("device", "cpu"),
}


def _read_meta(value: Json) -> Meta:
    sizes = []
    for size in value["sizes"]:
        kind, inner = _only(size)
        sizes.append(int(inner) if kind == "as_int" else str(inner.get("expr_str", "s")))
    return Meta(_DTYPES.get(value["dtype"], "unknown"), tuple(sizes))


def _read_signature(graph: Graph, data: Json) -> None:
    for placeholder, spec in zip(graph.inputs, data["input_specs"], strict=True):
        kind, value = _only(spec)
        if kind in ("parameter", "buffer", "tensor_constant"):
            placeholder.kind, placeholder.target = "constant", str(value[f"{kind}_name"])
    outputs = []
    for output, spec in zip(graph.outputs, data["output_specs"], strict=True):
        kind, value = _only(spec)
        if kind == "buffer_mutation" and isinstance(output, Ref):
            name = str(value["buffer_name"])
            graph.mutations[name] = output.name
            for placeholder in graph.inputs:
                if placeholder.target == name:
                    placeholder.kind = "buffer"
        else:
            outputs.append(output)
    graph.outputs = outputs


def _handles(value: Json) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"-?\d+", str(value)))) if value is not None else ()


_EXPORTED: Final = re.compile(r"(aten|torch\.ops|quantized_decomposed|torchao)\b")


def is_exported_operator(target: str) -> bool:
    return _EXPORTED.match(target) is not None


def _origin(value: Json, fallback: str) -> str:
    import orjson

    if not isinstance(value, str):
        return fallback
    try:
        sources = orjson.loads(value)
    except orjson.JSONDecodeError:
        return fallback
    ancestors: list[Json] = []
    while isinstance(sources, list) and sources and isinstance(sources[-1], dict):
        ancestors.append(sources[-1])
        sources = sources[-1].get("from_node")
    eldest = (ancestor for ancestor in reversed(ancestors) if "name" in ancestor)
    names = (ancestor["name"] for ancestor in eldest if is_exported_operator(str(ancestor.get("target", ""))))
    return str(next(names, fallback))


def _module(value: Json) -> str:
    if not isinstance(value, str) or not value:
        return ""
    parts = value.rsplit(";", 1)[-1].split(",")
    path = parts[1] if len(parts) > 2 else ""
    return "" if parts[-1].startswith("torch.export.") else path.removeprefix("L['self']").lstrip(".")
