"""The delegated-graph tree as preorder arrays, by program order or by module hierarchy.

A node's subtree is the next `size` rows including its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Final

from etviz.graph.ir import CONTROL, Graph, Node, Ref
from etviz.graph.labels import describe_outputs, node_label, short_operator, source_line
from etviz.graph.uses import operators

KINDS: Final = ("program", "method", "delegate", "kernel", "inner", "module", "value")
_ITSELF, _NO_OUTPUT = -2, -1
"""Output numbers of an instruction, or an inner operator without an output."""
NAN: Final = float("nan")


@dataclass(slots=True)
class Tree:
    """Preorder arrays, one entry per node.

    `instruction` is -1 if the runtime executes nothing; `latency` is in milliseconds, NaN if unknown; `operators`
    counts the operators below. `by_inner` maps an instruction and a name inside to nodes.
    """

    depth: list[int] = field(default_factory=list)
    size: list[int] = field(default_factory=list)
    kind: list[str] = field(default_factory=list)
    label: list[str] = field(default_factory=list)
    backend: list[str] = field(default_factory=list)
    op: list[str] = field(default_factory=list)
    shape: list[str] = field(default_factory=list)
    module: list[str] = field(default_factory=list)
    source: list[str] = field(default_factory=list)
    stack: list[str] = field(default_factory=list)
    instruction: list[int] = field(default_factory=list)
    latency: list[float] = field(default_factory=list)
    operators: list[int] = field(default_factory=list)
    by_instruction: dict[int, int] = field(default_factory=dict)
    by_output: dict[tuple[int, int], int] = field(default_factory=dict)
    by_inner: dict[tuple[int, str], int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.depth)

    def node_of(self, instruction: int, output: int) -> int:
        return self.by_output.get((instruction, output), self.by_instruction.get(instruction, -1))

    def open(
        self, depth: int, kind: str, label: str, node: Node | None = None, backend: str = "", latency: float = NAN
    ) -> int:
        stack = node.stack if node else ""
        values = {
            "depth": depth,
            "size": 1,
            "kind": kind,
            "label": label,
            "backend": backend,
            "op": "" if node is None else node.target if kind == "inner" else node.kernel or node.target,
            "shape": describe_outputs(node) if node else "",
            "module": node.module if node else "",
            "source": source_line(stack),
            "stack": stack,
            "instruction": node.instruction if node else -1,
            "latency": latency,
            "operators": 0,
        }
        for name, value in values.items():
            getattr(self, name).append(value)
        return len(self.depth) - 1

    def close(self, index: int, operators: int) -> None:
        self.size[index] = len(self.depth) - index
        self.operators[index] = operators


def program_tree(
    graphs: Mapping[str, Graph], latency: Mapping[int, float] | None = None, ran: Sequence[Set[int]] = ()
) -> Tree:
    """`ran` holds the instructions of each execution, to mark taken branches."""
    tree, times = Tree(), latency or {}
    root = tree.open(0, "program", "program") if len(graphs) > 1 else -1
    depth, total = (1 if root >= 0 else 0), 0
    for method, graph in graphs.items():
        index = tree.open(depth, "method", method)
        count = _add_graph(tree, graph, depth + 1, times, ran)
        tree.close(index, count)
        total += count
    if root >= 0:
        tree.close(root, total)
    return tree


def _add_graph(tree: Tree, graph: Graph, depth: int, latency: Mapping[int, float], ran: Sequence[Set[int]]) -> int:
    count = 0
    for node in operators(graph.nodes):
        kind, backend, inside = "inner" if graph.backend_id else "kernel", graph.backend_id, Graph("")
        if node.target == "delegate":
            kind, inside = "delegate", graph.inside(node)
            backend = inside.backend_id
        time = latency.get(node.instruction, NAN) if node.target not in CONTROL else NAN
        index = tree.open(depth, kind, node_label(graph, node), node, backend, time)
        below = 0
        for branch in graph.branches(node):
            taken = _taken(branch, ran) if node.target == "cond" else ""
            inner = tree.open(depth + 1, "value", f"{branch.name}{taken}")
            size = _add_graph(tree, branch, depth + 2, latency, ran)
            tree.close(inner, size)
            below += size
        for operator in operators(inside.nodes):
            child = tree.open(depth + 1, "inner", short_operator(operator.target), operator, backend)
            tree.by_inner[node.instruction, operator.name] = child
            below += 1
        tree.close(index, below)
        count += below if node.target in ("delegate", *CONTROL) else 1
        if node.instruction >= 0:
            tree.by_instruction[node.instruction] = index
    return count


def _taken(graph: Graph, ran: Sequence[Set[int]]) -> str:
    of_branch = {node.instruction for node in graph.walk() if node.instruction >= 0}
    if not of_branch or not ran:
        return ""
    count = sum(not of_branch.isdisjoint(instructions) for instructions in ran)
    if count in (0, len(ran)):
        return " (taken)" if count else " (not taken)"
    return f" (taken in {count} of {len(ran)} executions)"


@dataclass(slots=True)
class _Module:
    children: dict[str, _Module] = field(default_factory=dict)
    leaves: list[tuple[str, Node, str, tuple[int, int]]] = field(default_factory=list)


def module_tree(graphs: Mapping[str, Graph], latency: Mapping[int, float] | None = None) -> Tree:
    tree, times = Tree(), latency or {}
    for method, graph in graphs.items():
        root = _Module()
        for kind, node, backend, key in _operators(graph):
            place = root
            for part in filter(None, node.module.split(".")):
                place = place.children.setdefault(part, _Module())
            place.leaves.append((kind, node, backend, key))
        index = tree.open(0, "method", method)
        tree.close(index, _add_module(tree, root, 1, "", times))
    return tree


def _operators(graph: Graph) -> list[tuple[str, Node, str, tuple[int, int]]]:
    rows = []
    for node in operators(graph.walk()):
        if node.target == "delegate":
            inner = graph.inside(node)
            produced = {o.name: i for i, o in reversed(list(enumerate(inner.outputs))) if isinstance(o, Ref)}
            for operator in operators(inner.nodes):
                key = (node.instruction, produced.get(operator.name, _NO_OUTPUT))
                rows.append(("inner", operator, inner.backend_id, key))
        elif node.target not in CONTROL:
            kind = "inner" if graph.backend_id else "kernel"
            rows.append((kind, node, graph.backend_id, (node.instruction, _ITSELF)))
    return rows


def _add_module(tree: Tree, module: _Module, depth: int, path: str, latency: Mapping[int, float]) -> int:
    count = len(module.leaves)
    for kind, node, backend, (instruction, output) in module.leaves:
        time = latency.get(instruction, NAN) if kind == "kernel" else NAN
        index = tree.open(depth, kind, short_operator(node.target), node, backend, time)
        if output != _ITSELF:
            tree.by_inner[instruction, node.name] = index
        if output == _ITSELF and instruction >= 0:
            tree.by_instruction[instruction] = index
        elif output >= 0:
            tree.by_output[instruction, output] = index
            tree.by_instruction.setdefault(instruction, index)
    for name, child in module.children.items():
        index = tree.open(depth, "module", name)
        tree.module[index] = f"{path}.{name}".lstrip(".")
        inside = _add_module(tree, child, depth + 1, tree.module[index], latency)
        tree.close(index, inside)
        count += inside
    return count
