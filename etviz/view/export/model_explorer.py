"""Files for Google's Model Explorer: the graph, and node data that colours it by error.

The forms follow `graph_builder.py` and `node_data_builder.py` in ``ai-edge-model-explorer`` 0.1. `ModelNodeData` has a
value per node id, one file per metric.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from contextlib import ExitStack
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

from etviz.analysis.analysis import Analysis
from etviz.artifacts.files import PathLike, check_target, whole_file
from etviz.comparison.gap import MISMATCH
from etviz.errors import UsageError, during
from etviz.graph.edges import DataEdge
from etviz.graph.tree import Tree
from etviz.tensors.metrics import METRICS
from etviz.view.export.figures import figures, worst_of

NODE_DATA: Final = ("severity", "introduced_severity")
_COLORS: Final = ("#f4f5f6", "#f3d27a", "#e8893c", "#b3202c")
_WORST: Final = {"bgColor": "#5c0a1a", "textColor": "#ffffff"}
_LEAVES: Final = ("kernel", "inner", "delegate")

Json = dict[str, Any]


@during("writing the graph for Model Explorer")
def write_model_explorer(analysis: Analysis, path: PathLike) -> list[Path]:
    target, graph = check_target(path, "the graph"), analysis.graph
    rows = rows_of_nodes(analysis)
    texts = {target: collection(analysis, rows)}
    for name in NODE_DATA:
        data = node_data(graph.name, name, rows)
        if data is not None:
            texts[target.with_name(f"{target.stem}.{name}.json")] = data
    with ExitStack() as stack:
        for file, content in texts.items():
            partial = stack.enter_context(whole_file(file, "the graph"))
            partial.write_text(json.dumps(content, allow_nan=False), "utf-8")
    return list(texts)


def collection(analysis: Analysis, rows: Mapping[int, Any]) -> Json:
    tree = analysis.tree
    edges = _shown_edges(tree, analysis.edges)
    spaces = _namespaces(tree)
    nodes = [
        _node(tree, node, spaces[node], edges.get(node, []), rows.get(node))
        for node, kind in enumerate(tree.kind)
        if kind in _LEAVES
    ]
    return {"label": analysis.title, "graphs": [{"id": analysis.graph.name, "nodes": nodes}]}


def node_data(graph: str, metric: str, rows: Mapping[int, Any]) -> Json | None:
    """None if no node has a value.

    Severities span decades, and Model Explorer blends colours evenly, so the gradient stops at the metric's float32
    thresholds. A non-finite mismatch is a text with its own colour.
    """
    results: dict[str, Json] = {}
    for node, row in rows.items():
        value = float(row[metric]) if row[metric] is not None else math.nan
        if row["status"] == MISMATCH or math.isinf(value):
            results[str(node)] = {"value": "non-finite", **_WORST}
        elif not math.isnan(value):
            results[str(node)] = {"value": value}
    if not results:
        return None
    numbers = [result["value"] for result in results.values() if not isinstance(result["value"], str)]
    about = {"name": metric.replace("_", " "), "results": results, "gradient": _gradient(metric, numbers)}
    return {graph: about}


def _gradient(metric: str, numbers: list[float]) -> list[Json]:
    low, high = min(numbers, default=0.0), max(numbers, default=0.0)
    if high <= low:
        return [{"stop": stop, "bgColor": _color(metric, high)} for stop in (0, 1)]
    limits = METRICS[metric.removeprefix("introduced_")].thresholds["float32"]
    stops = [low, *(limit for limit in limits if low < limit < high), high]
    return [{"stop": (stop - low) / (high - low), "bgColor": _color(metric, stop)} for stop in stops]


def _color(metric: str, value: float) -> str:
    warn, bad = METRICS[metric.removeprefix("introduced_")].thresholds["float32"]
    return _COLORS[(value >= warn) + (value >= bad) + (value > bad)]


def rows_of_nodes(analysis: Analysis) -> dict[int, Any]:
    if analysis.delegation is None:
        raise UsageError("the files do not hold the program, so there is no graph; give record=, or pte= and etrecord=")
    tree, gaps = analysis.tree, analysis.tables.rows
    where = list(zip(gaps["instruction"].tolist(), gaps["output"].tolist(), strict=True))
    nodes = [tree.by_instruction.get(instruction, -1) for instruction, _ in where]
    worst = worst_of(gaps, nodes)
    makers = {(edge.target, edge.argument): edge.source for edge in analysis.edges if _hands_up(tree, edge)}
    worst |= worst_of(gaps, [makers.get((node, out), -1) for node, (_, out) in zip(nodes, where, strict=True)])
    worst.pop(-1, None)
    return dict(sorted(worst.items()))


def _hands_up(tree: Tree, edge: DataEdge) -> bool:
    return edge.target < edge.source < edge.target + tree.size[edge.target]


def _shown_edges(tree: Tree, edges: list[DataEdge]) -> dict[int, list[DataEdge]]:
    shown: dict[int, list[DataEdge]] = {}
    for edge in edges:
        source, target = tree.kind[edge.source], tree.kind[edge.target]
        up = _hands_up(tree, edge)
        leaves = source in _LEAVES and target in _LEAVES
        direct = target != "delegate" and (source != "inner" or target == "inner")
        if leaves and (up or direct or (target == "delegate" and tree.size[edge.target] == 1)):
            shown.setdefault(edge.target, []).append(edge)
    return shown


def _namespaces(tree: Tree) -> list[str]:
    spaces = ["/".join(_part(part) for part in module.split(".") if part) for module in tree.module]
    for node, kind in enumerate(tree.kind):
        inside = range(node + 1, node + tree.size[node])
        if kind == "delegate" and inside:
            modules = [tree.module[member].split(".") for member in inside if tree.module[member]]
            shared = _shared(modules)
            name = f"{tree.backend[node] or 'delegate'} {tree.instruction[node]}"
            space = "/".join(_part(part) for part in (*shared, name))
            for member in (node, *inside):
                spaces[member] = space
    return spaces


def _shared(modules: list[list[str]]) -> list[str]:
    return [parts[0] for parts in takewhile(lambda parts: len(set(parts)) == 1, zip(*modules, strict=False))]


def _part(name: str) -> str:
    return name.replace("/", "|").replace(";", ",")


def _node(tree: Tree, node: int, space: str, edges: list[DataEdge], row: Any) -> Json:
    names = ("op", "shape", "backend", "module", "source")
    attributes: dict[str, Any] = {name: getattr(tree, name)[node] for name in names}
    attributes["instruction"] = str(tree.instruction[node]) if tree.instruction[node] >= 0 else ""
    attributes["latency (ms)"] = f"{tree.latency[node]:.6g}" if not math.isnan(tree.latency[node]) else ""
    if row is not None:
        attributes["status"] = row["status"]
        for name, value in figures(row).items():
            attributes[name] = f"{value:.6g}" if isinstance(value, float) else value
    outputs = [text for text in tree.shape[node].split("], ") if text]
    return {
        "id": str(node),
        "label": tree.label[node] if tree.kind[node] != "delegate" else tree.backend[node] or tree.label[node],
        "namespace": space,
        "attrs": [{"key": key, "value": value} for key, value in attributes.items() if value],
        "incomingEdges": [
            {"sourceNodeId": str(e.source), "sourceNodeOutputId": str(e.output), "targetNodeInputId": str(e.argument)}
            for e in edges
        ],
        "outputsMetadata": [
            {"id": str(at), "attrs": [{"key": "tensor_shape", "value": f"{text.rstrip(']')}]"}]}
            for at, text in enumerate(outputs)
        ],
    }
