"""Which values of a graph are those of an exported operator.

Lowering turns one operator of the exported program into several nodes (``linear`` into permute and addmm), and
quantization puts conversions between them. All keep the operator's name as their origin, so its value is what leaves
the nodes of that name.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from etviz.artifacts.ir import Graph, Meta, Node, Ref, refs
from etviz.graph.inline import Key
from etviz.numerics.grids import is_conversion, is_dequantize, is_quantize


@dataclass(slots=True)
class Operator:
    """One operator of the exported program, as it stands in a graph.

    Attributes
    ----------
    name
        Its name in the exported program.
    nodes
        What computes it, without conversions.
    last
        The nodes among them whose value leaves it; more than one if it became several operators.
    """

    name: str
    nodes: list[Node] = field(default_factory=list)
    last: list[Node] = field(default_factory=list)

    @property
    def module(self) -> str:
        """Path of the module that called it, empty if no node tells."""
        return next((node.module for node in reversed(self.nodes) if node.module), "")


class Values:
    """The values of a graph without delegates, by the operator that makes them.

    Attributes
    ----------
    operators
        By name, in program order.
    users
        Nodes that read each value, in program order.
    quantized
        The first quantize that reads a value; `several` holds the values that are put on different grids.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.inputs = {item.name: item for item in graph.inputs}
        self.nodes = {node.name: node for node in graph.nodes}
        self.operators: dict[str, Operator] = {}
        self.users: dict[Key, list[Node]] = {}
        self.quantized: dict[Key, Node] = {}
        self.several: set[Key] = set()
        for node in graph.nodes:
            if node.target == "getitem":
                continue
            for name in refs((node.args, node.kwargs)):
                self.users.setdefault(self.key(name), []).append(node)
            if not is_conversion(node):
                name = node.origin or node.name
                self.operators.setdefault(name, Operator(name)).nodes.append(node)
        self.outputs = {self.key(name) for name in refs(graph.outputs)}
        self._find_last()
        self._find_quantized()

    def key(self, name: str) -> Key:
        """The value behind a name: `getitem` is an output of the node that it reads."""
        node = self.nodes.get(name)
        if node is not None and node.target == "getitem" and isinstance(node.args[0], Ref):
            source, output = self.key(node.args[0].name)
            if output == 0 and self.nodes.get(source) is not None and isinstance(node.args[1], int):
                return source, node.args[1]
        return name, 0

    def meta(self, key: Key) -> Meta | None:
        """What is known of a value, None if it is no tensor."""
        node = self.nodes.get(key[0])
        return node.outputs[key[1]] if node is not None and key[1] < len(node.outputs) else None

    def used_outputs(self, node: Node) -> list[int]:
        """Which outputs of a node are read, or are outputs of the program; the first if none is."""
        every = range(max(1, len(node.outputs)))
        return [i for i in every if (node.name, i) in self.users or (node.name, i) in self.outputs] or [0]

    def source(self, key: Key) -> Key:
        """The value that was quantized or dequantized to this one; itself if it is neither."""
        node = self.nodes.get(key[0])
        while node is not None and (is_quantize(node) or is_dequantize(node)) and isinstance(node.args[0], Ref):
            key = self.key(node.args[0].name)
            node = self.nodes.get(key[0])
        return key

    def owner(self, key: Key) -> str:
        """Name of the operator whose node makes a value, empty for inputs and conversions."""
        node = self.nodes.get(key[0])
        return "" if node is None or is_conversion(node) else node.origin or node.name

    def _find_last(self) -> None:
        read: dict[str, set[str]] = {}
        for (name, _), users in self.users.items():
            read.setdefault(name, set()).update(u.origin or u.name for u in users if not is_conversion(u))
        for operator in self.operators.values():
            operator.last = [node for node in operator.nodes if operator.name not in read.get(node.name, ())]

    def _find_quantized(self) -> None:
        for key, users in self.users.items():
            quantizes = [user for user in users if is_quantize(user) and self.key(_first(user)) == key]
            if quantizes:
                self.quantized[key] = quantizes[0]
                if any(_grid(q) != _grid(quantizes[0]) for q in quantizes):
                    self.several.add(key)


def _first(node: Node) -> str:
    return node.args[0].name if node.args and isinstance(node.args[0], Ref) else ""


def _grid(node: Node) -> tuple[object, ...]:
    return (node.target, *map(str, node.args[1:]), *map(str, node.kwargs.items()))
