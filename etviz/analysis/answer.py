"""Whether the classes or tokens that an output puts first are the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from etviz.graph.inline import inline
from etviz.graph.ir import refs
from etviz.graph.labels import short_operator

if TYPE_CHECKING:
    from collections.abc import Iterable

    from etviz.graph.ir import Graph

_TOP: Final = 5
_PRODUCTS: Final = frozenset(("linear", "addmm", "mm", "bmm", "matmul", "softmax", "log_softmax", "convolution"))


def score_outputs(graph: Graph) -> list[bool]:
    """True for each output that comes from a product or a softmax, apart from operators with a single input."""
    flat = inline(graph).graph
    return [_is_product(flat, name) for name in refs(flat.outputs)]


def _is_product(graph: Graph, name: str) -> bool:
    nodes = {node.name: node for node in graph.nodes}
    constants = {item.name for item in graph.inputs if item.kind != "user"}
    while (node := nodes.get(name)) is not None:
        if short_operator(node.target).lstrip("_") in _PRODUCTS:
            return True
        read = [each for each in node.reads() if each not in constants]
        if len(read) != 1:
            return False
        name = read[0]
    return False


def is_scores(value: Any) -> bool:
    """True for a floating tensor of shape [rows, classes] or [1, rows, classes]."""
    shape = list(getattr(value, "shape", ()))
    if shape[:-2] not in ([], [1]) or len(shape) < 2:
        return False
    return shape[-2] > 0 and shape[-1] > 1 and value.is_floating_point()


def is_one_row(value: Any) -> bool:
    return is_scores(value) and value.numel() == value.shape[-1]


def answer(outputs: Iterable[tuple[Any, Any]]) -> str:
    """Whether the largest score, and the five largest, are the same; empty without scores, or if one holds NaN."""
    firsts: list[tuple[int, int]] = []
    alike = fives = 0
    for reference, runtime in outputs:
        if not (is_scores(reference) and is_scores(runtime) and reference.shape == runtime.shape):
            continue
        if bool(reference.isnan().any()) or bool(runtime.isnan().any()):
            return ""
        sides = [side.reshape(-1, side.shape[-1]) for side in (reference, runtime)]
        firsts += zip(*(side.argmax(1).tolist() for side in sides), strict=True)
        if reference.shape[-1] > _TOP:
            best = [side.topk(_TOP).indices.sort(1).values for side in sides]
            fives += len(best[0])
            alike += int((best[0] == best[1]).all(1).sum())
    if not firsts:
        return ""
    changed = [pair for pair in firsts if pair[0] != pair[1]]
    if len(firsts) == 1:
        (was, now), five = firsts[0], ("" if not fives else ", top-5 the same" if alike else ", top-5 changes")
        text = f"top-1 changes from {was} to {now}" if changed else f"top-1 is the same ({was})"
    else:
        five = f", top-5 in {alike} of {fives}" if fives else ""
        text = f"top-1 is the same in {len(firsts) - len(changed)} of {len(firsts)} rows"
    return text + five
