"""Values that a program does not determine: random numbers, and integers made of NaN and Inf.

Runtime and reference may both be right, so only introduced errors can be compared.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from etviz.graph.draws import drawing
from etviz.graph.labels import node_label, short_operator
from etviz.graph.quantize_ops import chooses_grid, is_quantize
from etviz.tensors.finite import has_nan, has_nonfinite
from etviz.tensors.metrics import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from etviz.comparison.gap import ExecutionGaps
    from etviz.evaluation.values import Perturbation
    from etviz.graph.ir import Graph, Node

logger = logging.getLogger(__name__)

_DRAWN: Final = "it draws random numbers"
_MADE: Final = "it puts NaN or Inf on an integer grid, where any number may come of it"
_FOLLOWS: Final = "it follows from {}: only introduced gaps"
_NUMBERS, _NONFINITE = "random numbers", "NaN or Inf that was put on an integer grid"
_INTEGERS: Final = frozenset({"uint8", "int8", "int16", "int32", "int64"})
_CASTS: Final = frozenset({"_to_copy", "_to_dim_order_copy", "to"})


def may_be_ill_defined(graph: Graph, node: Node, *, nan: bool) -> bool:
    """True if a node, or one in its delegate, makes integers in a way that is not defined for NaN or Inf.

    A given grid saturates Inf; a grid can't be chosen for Inf.
    """
    if chooses_grid(node) or (nan and is_quantize(node)) or _is_cast(node):
        return True
    parts = (graph.subgraphs[name] for name in node.subgraphs if name in graph.subgraphs)
    return any(may_be_ill_defined(part, inner, nan=nan) for part in parts for inner in part.nodes)


def is_ill_defined(again: Callable[[Perturbation], Any]) -> bool:
    """True if NaN or Inf comes to an ill-defined operator inside a node, which `again` computes.

    A mask of Inf often enters a delegate that quantizes something else.
    """
    watch = _Watch()
    try:
        again(watch)
    except Exception:
        logger.debug("it can't be computed on the runtime's inputs", exc_info=True)
        return False
    return watch.found


def _is_cast(node: Node) -> bool:
    return short_operator(node.target) in _CASTS and any(
        meta is not None and meta.dtype in _INTEGERS for meta in node.outputs
    )


class _Watch:
    def __init__(self) -> None:
        self.found = False

    def call(
        self,
        call: Callable[..., Any],
        node: Node,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        *,
        delegated: bool = False,
    ) -> Any:
        given = (*args, *kwargs.values())
        if chooses_grid(node) or _is_cast(node):
            self.found |= any(map(has_nonfinite, given))
        elif is_quantize(node):
            self.found |= any(map(has_nan, given))
        return call(node.target, args, kwargs)


class Undetermined:
    """The instructions that make undetermined numbers, or follow from them.

    If the graph's instructions are not `known` as the program's, all later ones may follow.
    """

    def __init__(self, graph: Graph, *, known: bool) -> None:
        self._graph, self._known = graph, known
        self._drawing = drawing(graph)
        self._random = self._following([node.name for node in self._drawing])

    def _following(self, names: Collection[str]) -> tuple[set[int], bool]:
        following, instructions = set(names), set[int]()
        for node in self._graph.nodes if names else ():
            if node.name in following or not following.isdisjoint(node.reads()):
                following.add(node.name)
                instructions.add(node.instruction)
        return instructions, not following.isdisjoint(self._graph.results())

    def forget(self, comparison: ExecutionGaps) -> Iterator[str]:
        if self._drawing:
            everything = {gap.instruction for gap in comparison.gaps}
            following, ends = self._random if self._known else (everything, True)
            makers = {node.instruction for node in self._drawing} if self._known else everything
            _forget(comparison, following, makers, _NUMBERS, _DRAWN if self._known else "", ends=ends)
            yield self._about_random()
        if comparison.ill_defined:
            yield self._without_ill_defined(comparison)

    def _without_ill_defined(self, comparison: ExecutionGaps) -> str:
        makers, first = comparison.ill_defined, min(comparison.ill_defined)
        nodes = [node for node in self._graph.nodes if node.instruction in makers]
        if self._known and len(nodes) == len(makers):  # none of them in a branch
            following, ends = self._following([node.name for node in nodes])
        else:
            following, ends = {gap.instruction for gap in comparison.gaps if gap.instruction >= first}, True
        _forget(comparison, following, makers, _NONFINITE, _MADE, ends=ends)
        label = next((f" {node_label(self._graph, node)}" for node in nodes if node.instruction == first), "")
        given = ", ".join(comparison.nonfinite_inputs)
        what = "that" if given else "NaN or Inf"
        return (
            (f"The input {given} holds NaN or Inf. " if given else "")
            + f"#{first}{label} puts {what} on an integer grid, which has neither: any number may come of it, at "
            "runtime another than in the reference. Later values are judged only by what each operator adds itself."
        )

    def _about_random(self) -> str:
        names = dict.fromkeys(node.origin or short_operator(node.target) for node in self._drawing)
        drop = any("dropout" in name for name in names)
        return (
            f"The program draws random numbers ({', '.join(names)}), at runtime others than in the reference: what "
            "follows from them is judged only by what each operator adds itself."
            + (" Dropout is for training: call model.eval() before the export." if drop else "")
        )


def _forget(
    comparison: ExecutionGaps, following: Collection[int], makers: Collection[int], what: str, makes: str, *, ends: bool
) -> None:
    for gap in comparison.gaps:
        if gap.instruction in makers:
            gap.introduced, gap.introduced_sums, gap.introduced_noise = None, None, UNKNOWN
            gap.unpaired = makes
        if gap.instruction in following:
            gap.forget_total(_FOLLOWS.format(what))
    if ends:
        comparison.reference_outputs, comparison.judged = [], False
        comparison.undetermined = f"follow from {what}"
