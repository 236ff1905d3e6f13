"""The operators of a float program and of the quantized one, paired by name.

Nodes that lowering makes of one exported operator, and conversions between them, keep the operator's name as their
origin. An operator's value is the value that leaves the nodes of that name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from etviz.graph.ir import Graph, Node, refs
from etviz.graph.quantize_ops import (
    chooses_grid,
    converted,
    grid_arguments,
    is_conversion,
    is_dequantize,
    is_quantize,
)
from etviz.graph.uses import Key, Uses, operators


@dataclass(slots=True)
class ExportedOperator:
    """Without conversions; several `last` ones if it became several operators."""

    name: str
    nodes: list[Node] = field(default_factory=list)
    last: list[Node] = field(default_factory=list)

    @property
    def module(self) -> str:
        return next((node.module for node in reversed(self.nodes) if node.module), "")

    @property
    def norm(self) -> Node | None:
        return next((node for node in self.nodes if "batch_norm" in node.target), None)


class OperatorValues(Uses):
    """The values of a graph without delegates, by exported operator.

    `quantized` is the first quantize that reads a value; `several` holds values put on different grids.
    """

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.inputs = {placeholder.name: placeholder for placeholder in graph.inputs}
        self.operators: dict[str, ExportedOperator] = {}
        self.readers: dict[Key, list[Node]] = {}
        self.quantized: dict[Key, Node] = {}
        self.several: set[Key] = set()
        for node in operators(graph.nodes):
            for name in dict.fromkeys(node.reads()):
                self.readers.setdefault(self.value(name), []).append(node)
            if not is_conversion(node) or self._has_grid_of_a_run(node):
                name = node.origin or node.name
                self.operators.setdefault(name, ExportedOperator(name)).nodes.append(node)
        self._returned = {self.value(name) for name in self.results}
        self._find_last()
        self._find_quantized()

    def _has_grid_of_a_run(self, node: Node) -> bool:
        grid = grid_arguments(node.target, node.args, node.kwargs) if is_quantize(node) else None
        return chooses_grid(node) or (grid is not None and any(name in self.nodes for name in refs(grid.scale)))

    def values_of(self, operator: ExportedOperator) -> list[Key]:
        node = operator.last[-1] if operator.last else operator.nodes[-1]
        every = [(node.name, output) for output in range(max(1, len(node.outputs)))]
        return [key for key in every if key in self.readers or key in self._returned] or every[:1]

    def on_grid(self, key: Key) -> Key | None:
        quantize = self.quantized.get(key)
        readers = self.readers.get((quantize.name, 0), ()) if quantize is not None else ()
        return next(((node.name, 0) for node in readers if is_dequantize(node)), None)

    def is_read_once(self, key: Key) -> bool:
        return len(self.readers.get(key, ())) == 1 and key not in self._returned

    def owner(self, key: Key) -> str:
        node = self.nodes.get(key[0])
        return "" if node is None or is_conversion(node) else node.origin or node.name

    def _find_last(self) -> None:
        read: dict[str, set[str]] = {}
        for (name, _), users in self.readers.items():
            read.setdefault(name, set()).update(u.origin or u.name for u in users if not is_conversion(u))
        for operator in self.operators.values():
            operator.last = [node for node in operator.nodes if operator.name not in read.get(node.name, ())]

    def _find_quantized(self) -> None:
        for key, users in self.readers.items():
            quantizes = [user for user in users if is_quantize(user) and self.value(converted(user)) == key]
            if quantizes:
                self.quantized[key] = quantizes[0]
                if len({_without_value(node) for node in quantizes}) > 1:
                    self.several.add(key)


def _without_value(node: Node) -> tuple[str, ...]:
    return (node.target, *map(str, node.args[1:]), *map(str, node.kwargs.items()))


@dataclass(frozen=True, slots=True)
class Partner:
    """One value of a float operator (`floating`), and its partner.

    `value` is the quantized graph's, before `quantize` puts it on a grid, None without a partner. `folded` is the batch
    norm that the operator took in.
    """

    op: str
    output: int
    module: str
    floating: Key
    value: Key | None = None
    quantize: Node | None = None
    folded: str = ""
    reason: str = ""
    note: str = ""


def find_partners(floats: OperatorValues, quantized: OperatorValues) -> Iterator[Partner]:
    norms = _folded_norms(floats, quantized)
    folded_into = {norm: operator for operator, norm in norms.items()}
    for name, operator in floats.operators.items():
        if name in folded_into:
            reason = f"batch norm was folded into the convolution {folded_into[name]}: no partner"
            yield Partner(name, 0, operator.module, floats.values_of(operator)[0], reason=reason)
            continue
        norm = norms.get(name, "")
        source = floats.operators[norm] if norm else operator
        for key in floats.values_of(source):
            if floats.meta(key) is not None:
                yield _partner(floats, quantized, operator, source, key, norm)


def _partner(
    floats: OperatorValues,
    quantized: OperatorValues,
    operator: ExportedOperator,
    source: ExportedOperator,
    key: Key,
    norm: str,
) -> Partner:
    name, module = operator.name, operator.module
    answer = quantized.operators.get(name)
    meta = floats.meta(key)
    node = answer.last[-1] if answer is not None and answer.last else None
    reason = ""
    if meta is not None and "float" not in meta.dtype:
        reason = f"its values are {meta.dtype}, no floating-point numbers"
    elif answer is None or node is None:
        reason = "it is not in the lowered program: dropped, or merged into another operator"
    elif len(answer.last) > 1 or len(source.last) > 1:
        reason = "lowering made several operators of it, whose values can't be distinguished"
    elif module and answer.module and module != answer.module:
        reason = f"the operator of this name belongs to the module {answer.module} in the lowered program"
    elif key[1] >= len(node.outputs):
        reason = "its outputs differ from the lowered program's"
    if reason or node is None:
        return Partner(name, key[1], module, key, reason=reason)
    value = (node.name, key[1])
    notes = [f"compared with {norm} of the float model, which was folded into it"] * bool(norm)
    notes += ["it is quantized in several ways, the first is shown"] * (value in quantized.several)
    return Partner(name, key[1], module, key, value, quantized.quantized.get(value), norm, note="; ".join(notes))


def _folded_norms(floats: OperatorValues, quantized: OperatorValues) -> dict[str, str]:
    norms = {}
    for name, operator in floats.operators.items():
        norm = operator.norm
        if norm is None or name in quantized.operators or not converted(norm):
            continue
        key = floats.value(converted(norm))
        before = floats.owner(key)
        if before in quantized.operators and floats.is_read_once(key):
            norms[before] = name
    return norms
