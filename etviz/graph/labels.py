"""Names of operators and rows, and their place in the model."""

from __future__ import annotations

import functools
import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import takewhile
from pathlib import PurePath
from typing import Any, Final, NamedTuple

from etviz.graph.ir import OBSERVED, Graph, Node, Ref
from etviz.graph.quantize_ops import DEQUANTIZE, QUANTIZE, conversion, is_dequantize
from etviz.graph.uses import only_moves, operators
from etviz.text import shortened

_FRAME: Final = re.compile(
    r'^[ \t]*File "(?P<file>[^"\n]+)", line (?P<line>\d+)(?:, in (?P<function>\S+))?', re.MULTILINE
)
_COPY: Final = re.compile(r"_?to_copy|.*clone_dim_order")
_FOREIGN: Final = re.compile(r"[/\\]site-packages[/\\](torch|torchao|executorch)[/\\]")
_CELL: Final = re.compile(r'(?<=")[^"\n]*[/\\]ipykernel_\d+[/\\]\d+\.py(?=")')
_TRACING: Final = re.compile(r"[/\\]site-packages[/\\]torch[/\\](_dynamo|_export|export|fx|_functorch)[/\\]")
_FEW: Final = 4
_LEVELS: Final = 2
"""Minimum number of parts of a module's path in a name."""

_PARTS: Final = re.compile(r"(#\S+ |)(.*?)( · .*|:\d+)", re.DOTALL)
"""A row's number, place and operator; or file and line."""
_LEGIBLE: Final = 3
_NUMBERED: Final = re.compile(r"_\d+$")
_NUMBERED_CONSTANT: Final = re.compile(r"_(frozen_param|param_constant|tensor_constant)\d+")
_TELLING: Final = (
    *("scaled_dot_product", "sdpa", "lstm", "gru", "conv", "linear", "addmm", "bmm", "matmul", "einsum", "embedding"),
    *("layer_norm", "group_norm", "rms_norm", "batch_norm", "softmax", "gelu", "silu"),
)
"""Operators that name a delegate, the most telling first."""


def describe(graph: Graph, node: Node, output: int) -> dict[str, Any]:
    maker, backend, named = node, graph.backend_id, node.origin
    if node.target == "delegate":
        inner = graph.inside(node)
        maker = _speaker(inner, output) or Node("", "")
        kind, op, backend = "delegate", "DELEGATE_CALL", inner.backend_id
        named = ", ".join(reference_operators(inner))
    elif backend:
        kind, op = "inner", node.target
    else:
        kind, op = "kernel", node.kernel or node.target
    about = {"kind": kind, "op": op, "backend": backend, "reference_ops": named}
    return about | {"module": maker.module, "source": source_line(maker.stack), "stack": maker.stack}


def debug_handles(graph: Graph, node: Node) -> tuple[int, ...]:
    inner = graph.subgraphs.get(node.subgraphs[0]) if node.target == "delegate" and node.subgraphs else None
    inner_handles = [handle for operator in inner.nodes for handle in operator.handles] if inner is not None else []
    return tuple(sorted({*node.handles, *inner_handles} - {-1, 0}))


def _maker(inner: Graph, output: int) -> Node | None:
    nodes = {node.name: node for node in inner.nodes}
    value = inner.outputs[output] if output < len(inner.outputs) else None
    node = nodes.get(value.name) if isinstance(value, Ref) else None
    while node is not None and (not node.stack or (conversion(node.target) and not node.module)):
        before = nodes.get(next(iter(node.reads()), ""))
        if before is None:
            break
        node = before
    return node


def _speaker(inner: Graph, output: int) -> Node | None:
    maker = _maker(inner, output)
    if maker is None or len({node.module for node in operators(inner.nodes) if node.module}) < 2:
        return maker
    nodes = {node.name: node for node in inner.nodes}
    wanted, before = [maker], {maker.name: maker}
    while wanted:
        for name in wanted.pop().reads():
            if name in nodes and name not in before:
                before[name] = nodes[name]
                wanted.append(nodes[name])
    told = [node for node in inner.nodes if node.name in before and node.module and not conversion(node.origin)]
    return min(reversed(told), key=lambda node: _rank(node.origin), default=maker)


def constant_names(graph: Graph) -> dict[str, str]:
    """The model's names of constants, by target.

    torch numbers the constants of a quantized module (``_frozen_param4``); they are named after the module that reads
    them: ``head.weight``.
    """
    names: dict[str, str] = {}
    for inner in graph.subgraphs.values():
        names |= constant_names(inner)
    constants = {placeholder.name: placeholder for placeholder in graph.inputs if placeholder.kind == "constant"}
    names |= {item.target: item.target.rpartition("/")[2] for item in constants.values() if item.target not in names}
    for node in graph.nodes:
        read = [constants[name] for name in node.reads() if name in constants]
        if read and (is_dequantize(node) or only_moves(node)):
            constants[node.name] = read[0]
            continue
        flat = [placeholder.meta is not None and len(placeholder.meta.shape) < 2 for placeholder in read]
        for at, placeholder in enumerate(read):
            if _NUMBERED_CONSTANT.fullmatch(names[placeholder.target]) and node.module:
                is_bias = flat[at] and (at > 0 or not all(flat))
                names[placeholder.target] = f"{node.module}.{'bias' if is_bias else 'weight'}"
    return names


def owners_of(graph: Graph) -> dict[int, Graph]:
    owners = {node.instruction: graph for node in graph.nodes if node.instruction >= 0}
    for node in graph.nodes:
        for branch in graph.branches(node):
            owners |= owners_of(branch)
    return owners


def inside_of(graph: Graph, instruction: int) -> Graph:
    """The graph inside a delegate call, empty for any other instruction."""
    owner = owners_of(graph).get(instruction, graph)
    node = next((item for item in owner.nodes if item.instruction == instruction), None)
    return owner.inside(node) if node is not None and node.target == "delegate" else Graph("")


@functools.lru_cache(maxsize=1 << 12)
def source_line(stack: str) -> str:
    r"""``file.py:12`` of the innermost frame in the user's code; else of the model; else empty.

    Examples
    --------
    >>> source_line('  File "/home/me/net.py", line 12, in forward\n    return x + y')
    'net.py:12'
    """
    frame = _own_frame(stack)
    return f"{PurePath(frame['file']).name}:{frame['line']}" if frame else ""


def source_code(stack: str) -> str:
    """The code at `source_line` as the trace quotes it, or empty. No file is opened."""
    frame = _own_frame(stack)
    text = stack[frame.end() :].split("\n", 2)[1:2] if frame else []
    return text[0].strip() if text and not _FRAME.match(text[0]) else ""


def _own_frame(stack: str) -> re.Match[str] | None:
    frames = [frame for frame in _FRAME.finditer(stack) if not _TRACING.search(frame["file"])]
    user_frames = [frame for frame in frames if not is_foreign(frame["file"])]
    return (user_frames or frames)[-1] if frames else None


def is_foreign(file: str) -> bool:
    return _FOREIGN.search(file) is not None


def with_cells(stack: str) -> str:
    return _CELL.sub(lambda found: cell_name(found[0]) or found[0], stack) if "ipykernel_" in stack else stack


def cell_name(file: str) -> str:
    shell = sys.modules.get("IPython")
    compiler = getattr(shell.get_ipython() if shell is not None else None, "compile", None)
    named = getattr(compiler, "format_code_name", lambda _: None)(file)
    return str(named[1]) if named else ""


def reference_operators(inner: Graph) -> list[str]:
    """Names of the exported operators that a delegate computes, in order.

    Conversions are included only if there is nothing else.
    """
    names = dict.fromkeys(node.origin for node in operators(inner.nodes) if node.origin)
    return [name for name in names if not conversion(name) and not _COPY.match(name)] or list(names)


def short_operator(name: str) -> str:
    """``native_layer_norm`` for ``aten::native_layer_norm.out`` and the edge operator."""
    plain = name.split("::")[-1]
    parts = plain.split(".")
    return parts[1] if "::" not in name and len(parts) == 3 else parts[0]


def node_label(graph: Graph, node: Node) -> str:
    """A node's short name, or a delegate's first operators: ``conv2d, relu, +12``."""
    if node.target not in ("delegate", OBSERVED) or not node.subgraphs:
        return short_operator(node.target)
    inner = graph.inside(node)
    names = reference_operators(inner)
    more = [f"+{len(names) - _FEW}"] if len(names) > _FEW else []
    return ", ".join([*names[:_FEW], *more]) or inner.backend_id


def operator_label(kind: str, op: str, reference_ops: str, output: float = 0) -> str:
    """A delegate's operators, or a kernel without ATen's namespace.

    Examples
    --------
    >>> operator_label("delegate", "DELEGATE_CALL", "conv2d, relu"), operator_label("kernel", "aten::add.out", "add")
    ('conv2d, relu', 'add.out')
    >>> operator_label("inner", "quantized_decomposed.quantize_per_tensor.default", "conv2d, relu")
    'conv2d, relu (quantized)'
    """
    known = kind in ("delegate", "inner") and bool(reference_ops)
    name = reference_ops if known else op.removeprefix("aten::")
    if known and kind == "inner" and not conversion(reference_ops):
        name += {QUANTIZE: " (quantized)", DEQUANTIZE: " (dequantized)"}.get(conversion(op), "")
    return f"{name} [{int(output)}]" if output > 0 else name


def _rank(name: str) -> int:
    return next((k for k, word in enumerate(_TELLING) if word in name), len(_TELLING))


@functools.lru_cache(maxsize=4096)
def salient_operator(reference_ops: str) -> str:
    """A delegate's most telling operator and the number of others.

    Examples
    --------
    >>> salient_operator("add, conv2d_1, relu"), salient_operator("scaled_dot_product_attention"), salient_operator("")
    ('conv2d +2', 'sdpa', '')
    """
    names = [_NUMBERED.sub("", name) for name in reference_ops.split(", ")]
    told = _plain(min(names, key=_rank))
    return f"{told} +{len(names) - 1}" if len(names) > 1 else told


def module_labels(modules: Iterable[str]) -> dict[str, str]:
    """A short name for each module: the parts that distinguish it.

    Examples
    --------
    >>> names = module_labels(["vit.layer.0.attention.self", "vit.layer.1.attention.self", "vit.norm"])
    >>> list(names.values())
    ['', '0.attention.self', '1.attention.self', 'norm']
    """
    paths = {module: module.split(".") for module in dict.fromkeys(modules) if module}
    levels = zip(*(parts[:-1] for parts in paths.values()), strict=False)
    shared = sum(1 for _ in takewhile(lambda level: len(set(level)) == 1, levels))
    ends = Counter(".".join(parts[-count:]) for parts in paths.values() for count in range(1, len(parts) + 1))
    labels = {"": ""}
    for module, parts in paths.items():
        most = len(parts) - shared
        enough = (count for count in range(_LEVELS, most) if ends[".".join(parts[-count:])] == 1)
        labels[module] = ".".join(parts[-next(enough, most) :])
    return labels


class RowAddress(NamedTuple):
    """The address of a row: ``#22``, ``#22[1]``, ``#22.3``, ``#22@1``.

    `inner` is the operator inside a delegate call, else -1. An `output` or `run` of 0 is not written.
    """

    instruction: int
    inner: int = -1
    output: int = 0
    run: int = 0

    def __str__(self) -> str:
        inner = f".{self.inner}" if self.inner >= 0 else ""
        output, run = f"[{self.output}]" if self.output else "", f"@{self.run}" if self.run else ""
        return f"#{self.instruction}{inner}{output}{run}"


def row_name(kind: str, op: str, reference_ops: str, module: str, output: float = 0) -> str:
    label = _with_place(".".join(module.split(".")[-_LEVELS:]), _operator_name(kind, op, reference_ops))
    return f"{label} [{int(output)}]" if output > 0 and not label.endswith("]") else label


def row_names(rows: Sequence[tuple[RowAddress, str, str, str, str]]) -> list[str]:
    places = module_labels(module for *_, module in rows)
    return [f"{address} {_with_place(places[module], _operator_name(*told))}" for address, *told, module in rows]


def _with_place(place: str, name: str) -> str:
    return f"{place} · {name}" if place else name


def _operator_name(kind: str, op: str, reference_ops: str) -> str:
    if kind == "delegate":
        return salient_operator(reference_ops) or "delegate"
    return operator_label(kind, op, reference_ops) if kind == "inner" else _plain(short_operator(op))


def _plain(name: str) -> str:
    return "sdpa" if "scaled_dot_product" in name else name.removeprefix("native_")


def describe_row(row: Any) -> str:
    if "name" in row:
        return str(row["name"])
    kind, op, reference_ops, module = (str(row[field] or "") for field in ("kind", "op", "reference_ops", "module"))
    return f"#{int(row['instruction'])} {row_name(kind, op, reference_ops, module, row.get('output', 0))}"


def short_name(text: str, letters: int) -> str:
    """Shorten a row's name or a line of code; the distinguishing part stays.

    Examples
    --------
    >>> short_name("#12 3.attention.self · linear +5", 28), short_name("modeling_swinv2.py:418", 12)
    ('#12 3.…tion.self · linear +5', '…inv2.py:418')
    """
    if len(text) <= letters:
        return text
    match = _PARTS.fullmatch(text)
    number, place, kept = match.groups() if match else ("", "", text)
    room = letters - len(number) - len(kept) - 1
    head = place.split(".")[0] + "."
    if room - len(head) >= _LEGIBLE and "." in place:
        return f"{number}{head}…{place[len(head) - room :]}{kept}"
    if room >= _LEGIBLE and place:
        return f"{number}…{place[-room:]}{kept}"
    return shortened(number + kept.removeprefix(" · "), letters)


def describe_outputs(node: Node) -> str:
    """``float32 [1, 8, 16]``; several outputs are separated by commas."""
    return ", ".join(f"{m.dtype} [{', '.join(map(str, m.shape))}]" for m in node.outputs if m is not None)


def together(nodes: Sequence[Node], unpaired: Sequence[int] = ()) -> str:
    """Operators with missing values, in words: ``instruction 3 (layer_norm), whose value was not logged``."""
    known = {node.instruction for node in nodes if node.instruction >= 0}
    unknown = len(known) < len(nodes)
    ids = sorted(known.union(unpaired if unknown else ()))
    names = ", ".join(dict.fromkeys(short_operator(node.target) for node in nodes))
    where = instructions_text(ids) if ids else "operators that no instruction is known for"
    missing = "not logged" if not unknown else "not paired" if not known else "not logged, or not paired"
    return f"{where} ({names}), whose value{'s were' if len(nodes) > 1 else ' was'} {missing}"


def instructions_text(instructions: Sequence[int]) -> str:
    """``instruction 3``, ``instructions 3 and 5``, ``instructions 3 to 9, 12 and 20``."""
    runs: list[list[int]] = []
    for at in instructions:
        if runs and at == runs[-1][-1] + 1:
            runs[-1].append(at)
        else:
            runs.append([at])
    parts = [part for run in runs for part in ([f"{run[0]} to {run[-1]}"] if len(run) > 2 else map(str, run))]
    text = " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))
    return f"instruction{'s' if len(instructions) > 1 else ''} {text}"
