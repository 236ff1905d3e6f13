"""Which values inside a delegate exist while it runs, and which are only part of another one.

A backend runs several operators of the graph as one: a quantized operator is a dequantize, the operator, an activation
and a quantize; a batch norm disappears in the weights of the convolution before it. Asking for a value in between
would take these apart, and show another program than the one that ran.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from etviz.artifacts.ir import Graph, Node, Ref, refs

_ACTIVATIONS: Final = {"aten.relu.default", "aten.hardtanh.default", "aten.clamp.default", "aten.relu6.default"}
_BATCH_NORMS: Final = {
    "aten.native_batch_norm.default",
    "aten._native_batch_norm_legit_no_training.default",
    "aten._native_batch_norm_legit.default",
}
_FOLDING: Final = {"aten.convolution.default", "aten.linear.default", "aten.addmm.default"}
_COPIES: Final = {
    "aten.clone.default",
    "aten.alias_copy.default",
    "aten.lift_fresh_copy.default",
    "dim_order_ops._clone_dim_order.default",
}
_IN_KERNEL: Final = "it exists only inside of the kernel, which quantizes its input while it runs"
_CONSTANT: Final = "it is computed from constants while the model is lowered"


@dataclass(slots=True)
class Exposure:
    """What can be asked for.

    Attributes
    ----------
    candidates
        Names of the values, in program order.
    owners
        ``operator → operator`` that it is part of.
    hidden
        Why an operator has no value of its own.
    """

    candidates: list[str] = field(default_factory=list)
    owners: dict[str, str] = field(default_factory=dict)
    hidden: dict[str, str] = field(default_factory=dict)

    def parts(self, name: str) -> list[str]:
        """Operators that are part of this one, in program order."""
        return [part for part, owner in self.owners.items() if owner == name]


def expose(graph: Graph) -> Exposure:
    """Sort the values of a delegate's subgraph into those to ask for and those that do not exist by themselves.

    The graph's own outputs are no candidates: they are there anyway.
    """
    found = Exposure()
    users: dict[str, list[Node]] = {}
    for node in graph.nodes:
        for name in set(refs((node.args, node.kwargs))):
            users.setdefault(name, []).append(node)
    own = set(refs(graph.outputs))
    computed = {item.name for item in graph.inputs if item.kind != "constant"}
    for node in graph.nodes:
        if any(name in computed for name in refs((node.args, node.kwargs))):
            computed.add(node.name)
        if node.target == "getitem" or node.target.startswith("py."):
            continue
        names = list(values_of(node, users))
        if not computed.intersection((node.name,)):
            found.hidden[node.name] = _CONSTANT
        elif not own.intersection(names):
            _hide(found, node, users)
        if node.name not in found.hidden:
            found.candidates += [name for name in names if name not in own]
    return found


def values_of(node: Node, users: dict[str, list[Node]]) -> Iterator[str]:
    """Names of a node's tensors: its own, or those of the `getitem` nodes that take its outputs apart."""
    items = [user.name for user in users.get(node.name, ()) if user.target == "getitem"]
    if items:
        yield from items
    elif len(node.outputs) == 1 and node.outputs[0] is not None:
        yield node.name


def _hide(found: Exposure, node: Node, users: dict[str, list[Node]]) -> None:
    after = users.get(node.name, [])
    if _is(node, "dequantize"):
        source = node.args[0].name if node.args and isinstance(node.args[0], Ref) else ""
        found.hidden[node.name] = f"it is {source} as floats, which the operators that follow read as integers"
    elif _is(node, "choose_qparams") or (_is(node, "quantize") and any(isinstance(a, Ref) for a in node.args[1:3])):
        found.hidden[node.name] = _IN_KERNEL
    elif node.target in _COPIES:
        found.hidden[node.name] = "it copies its input, which the backend leaves out"
    elif len(after) == 1 and (owner := _owner(node, after[0], users)):
        found.owners[node.name] = owner
        found.hidden[node.name] = f"it is part of {owner}: the backend runs them as one operator"


def _owner(node: Node, after: Node, users: dict[str, list[Node]]) -> str:
    """The operator that a node with one user is part of, empty if it stands for itself."""
    if after.target in _BATCH_NORMS and node.target in _FOLDING:
        return after.name
    if _is(after, "quantize"):
        return after.name
    if after.target in _ACTIVATIONS:
        last = users.get(after.name, [])
        if len(last) == 1 and _is(last[0], "quantize"):
            return last[0].name
    return ""


def _is(node: Node, name: str) -> bool:
    """True for ``quantize_per_tensor``, ``quantize_affine`` and their like."""
    space, _, operator = node.target.partition(".")
    return space in ("quantized_decomposed", "torchao") and operator.startswith(name)
