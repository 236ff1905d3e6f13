"""Which values inside a delegate exist at run time, and which are fused.

A quantized operator is dequantize, operator, activation and quantize; a batch norm disappears in the convolution's
weights. Exposing a value in between would run another program.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

from etviz.graph.ir import Graph, Node, refs
from etviz.graph.quantize_ops import chooses_grid, converted, grid_arguments, is_dequantize, is_quantize
from etviz.graph.uses import Uses, item_of

ACTIVATIONS: Final = {"aten.relu.default", "aten.hardtanh.default", "aten.clamp.default", "aten.relu6.default"}
BATCH_NORMS: Final = {
    "aten.native_batch_norm.default",
    "aten._native_batch_norm_legit_no_training.default",
    "aten._native_batch_norm_legit.default",
}
_FOLDING: Final = {"aten.convolution.default", "aten.linear.default", "aten.addmm.default"}
COPIES: Final = {
    "aten.clone.default",
    "aten.alias_copy.default",
    "aten.lift_fresh_copy.default",
    "dim_order_ops._clone_dim_order.default",
    "et_copy._h2d_copy.default",
    "et_copy._d2h_copy.default",
}
_IN_KERNEL: Final = "it exists only inside the kernel, which quantizes its input while it runs"
_CONSTANT: Final = "it is computed from constants while the model is lowered"


@dataclass(slots=True)
class Exposure:
    """`owners` maps a fused operator to its owner; `hidden` gives the reason for other values."""

    candidates: list[str] = field(default_factory=list)
    owners: dict[str, str] = field(default_factory=dict)
    hidden: dict[str, str] = field(default_factory=dict)

    def parts(self, name: str) -> list[str]:
        return [part for part, owner in self.owners.items() if owner == name]


def parts_of_next(graph: Graph, exposure: Exposure, idle: Sequence[str], there: Collection[str]) -> dict[str, str]:
    """For values of operators that the backend does nothing for: the next value that is `there`, or is a result."""
    uses, parts = Uses(graph), dict[str, str]()
    for name in reversed(idle):
        after = [user.name for user in uses.users.get(name, ())]
        while after and (later := after.pop(0)):
            owner = exposure.owners.get(later, later)
            owner = parts.get(owner, owner)
            if owner in there or owner in uses.results:
                parts[name] = owner
                break
            after += [user.name for user in uses.users.get(owner, ())]
    return parts


def expose(graph: Graph) -> Exposure:
    exposure, uses = Exposure(), Uses(graph)
    outputs = set(refs(graph.outputs))
    computed = {placeholder.name for placeholder in graph.inputs if placeholder.kind != "constant"}
    for node in graph.nodes:
        if not computed.isdisjoint(node.reads()):
            computed.add(node.name)
        if item_of(node) is not None or node.target.startswith("py."):
            continue
        names = [name for name in uses.outputs(node) if uses.count(name)]
        if names == [node.name] and (len(node.outputs) != 1 or node.outputs[0] is None):
            names = []  # a list, or no tensor
        if node.name not in computed:
            exposure.hidden[node.name] = _CONSTANT
        elif outputs.isdisjoint(names):
            _hide(exposure, node, uses)
        if node.name not in exposure.hidden:
            exposure.candidates += [name for name in names if name not in outputs]
    return exposure


def _hide(exposure: Exposure, node: Node, uses: Uses) -> None:
    after = uses.users.get(node.name, [])
    if len(after) == 1 and item_of(after[0]) is not None:
        after = uses.users.get(after[0].name, [])
    grid = grid_arguments(node.target, node.args, node.kwargs) if is_quantize(node) else None
    if is_dequantize(node):
        exposure.hidden[node.name] = (
            f"it is {converted(node)} as floats, which the operators that follow read as integers"
        )
    elif chooses_grid(node) or (grid is not None and any(refs((grid.scale, grid.zero_point)))):
        exposure.hidden[node.name] = _IN_KERNEL
    elif node.target in COPIES:
        exposure.hidden[node.name] = "it copies its input, which the backend leaves out"
    elif len(after) == 1 and (owner := _owner(node, after[0], uses)):
        exposure.owners[node.name] = owner
        exposure.hidden[node.name] = f"it is part of {owner}: the backend runs them as one operator"


def _owner(node: Node, after: Node, uses: Uses) -> str:
    if after.target in BATCH_NORMS and node.target in _FOLDING:
        return after.name
    if is_quantize(after):
        return after.name
    if after.target in ACTIVATIONS:
        last = uses.users.get(after.name, [])
        if len(last) == 1 and is_quantize(last[0]):
            return last[0].name
    return ""
