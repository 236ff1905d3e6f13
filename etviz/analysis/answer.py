"""Whether the classes or tokens that an output puts first are the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import isnan
from statistics import fmean
from typing import Any, Final

from etviz.analysis.findings import Findings
from etviz.analysis.tasks import TASKS, measured, top1, top5
from etviz.comparison.gap import ExecutionGaps
from etviz.graph.exposure import COPIES
from etviz.graph.inline import inline
from etviz.graph.ir import Graph, Node, Ref
from etviz.graph.labels import short_operator
from etviz.graph.quantize_ops import is_conversion

_TOP: Final = 5
_SOFTMAX: Final = frozenset(("softmax", "log_softmax"))
_PRODUCTS: Final = frozenset(("linear", "addmm", "mm", "bmm", "matmul", "convolution"))
_CLASSIFIERS: Final = frozenset(
    ("classifier", "classifiers", "head", "heads", "lm_head", "fc", "logits", "score", "cls")
)
"""Names of last layers that give a score for each class, as torchvision, timm and transformers call them."""
_ORDERED: Final = COPIES | {"aten._to_copy.default", "dim_order_ops._to_dim_order_copy.default"}


def best_of(findings: Findings, comparisons: Sequence[ExecutionGaps]) -> str:
    """The first numbers of a verdict; empty where neither the program nor a task says that an output holds scores."""
    known = score_outputs(findings)
    sides = [zip(known, item.reference_outputs, item.runtime_outputs, strict=False) for item in comparisons]
    said = answer((reference, runtime) for each in sides for scores, reference, runtime in each if scores)
    told = [said] if said else []
    for name, task in (findings.tasks if comparisons else {}).items():
        if said and task in (top1, top5):
            continue
        values, problems = zip(
            *(measured(task, item.reference_outputs, item.runtime_outputs) for item in comparisons), strict=True
        )
        problem = next(filter(None, problems), "")
        unknown = f"not known ({problem})" if problem else "not known"
        told.append(f"{name} {unknown if isnan(fmean(values)) else f'{fmean(values):.3g}'}")
    return ", ".join(told)


def score_outputs(findings: Findings) -> list[bool]:
    """True for each output that is a softmax over its last axis, or comes from a layer that is named as a classifier.

    Also for the first one if a task reads scores. A linear layer alone tells nothing: a regression ends in one, too.
    """
    if findings.zoom is not None:
        return []
    flat = inline(findings.graph).graph
    nodes = {node.name: node for node in flat.nodes}
    told = any(task in TASKS.values() for task in findings.tasks.values())
    return [
        (told and at == 0) or _is_softmax(nodes, output) or _is_classifier(flat, nodes, output)
        for at, output in enumerate(flat.outputs)
    ]


def _is_softmax(nodes: Mapping[str, Node], output: Any) -> bool:
    node = nodes.get(output.name) if isinstance(output, Ref) else None
    while node is not None and (is_conversion(node) or node.target in _ORDERED):
        node = nodes.get(next(iter(node.reads()), ""))
    if node is None or short_operator(node.target).lstrip("_") not in _SOFTMAX or not (meta := node.outputs[0]):
        return False
    dim = node.args[1] if len(node.args) > 1 else node.kwargs["dim"]  # serialized graphs name their arguments
    return dim in (-1, len(meta.shape) - 1)


def _is_classifier(graph: Graph, nodes: Mapping[str, Node], output: Any) -> bool:
    """Only operators with a single input follow the product of a classifier."""
    constants = {placeholder.name for placeholder in graph.inputs if placeholder.kind != "user"}
    node = nodes.get(output.name) if isinstance(output, Ref) else None
    while node is not None and short_operator(node.target) not in _PRODUCTS:
        read = [each for each in node.reads() if each not in constants]
        node = nodes.get(read[0]) if len(read) == 1 else None
    return node is not None and not _CLASSIFIERS.isdisjoint(node.module.split("."))


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
