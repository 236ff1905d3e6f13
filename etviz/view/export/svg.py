"""The delegated graph as SVG; each box stands below all that it reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any, Final

from etviz.analysis.analysis import Analysis
from etviz.artifacts.files import PathLike, check_target, write_file
from etviz.comparison.gap import WRONG
from etviz.errors import UsageError, during
from etviz.graph.edges import DataEdge
from etviz.graph.tree import Tree
from etviz.tensors.metrics import figure
from etviz.text import one_line, shortened
from etviz.view.export.model_explorer import rows_of_nodes

_FILLS: Final = {"ok": "#d9ead9", "warn": "#f3d27a", "bad": "#e0655f", "unknown": "#f4f5f6"}
_WIDTH, _HEIGHT, _GAP, _HEAD = 190, 40, 24, 26
_LONGEST: Final = 28


@dataclass(slots=True)
class _Box:
    node: int
    width: float = _WIDTH
    height: float = _HEIGHT
    x: float = 0.0
    y: float = 0.0
    inside: list[_Box] = field(default_factory=list)


@during("drawing the graph")
def write_svg(analysis: Analysis, path: PathLike, by: str) -> Path:
    target = check_target(path, "the graph")
    if by not in analysis.tables.rows:
        raise UsageError(f"by must be a column of gaps, found {by!r}")
    text = _picture(analysis, by)
    return write_file(target, "the graph", text)


def _picture(analysis: Analysis, by: str) -> str:
    tree, rows = analysis.tree, rows_of_nodes(analysis)
    root = tree.kind.index("method")
    whole = _layout(tree, root, analysis.edges)
    places: dict[int, tuple[float, float, _Box]] = {}
    _place(whole, 0.0, 0.0, places)
    del places[root]
    parts = [_node(analysis, box, x, y, rows.get(node), by) for node, (x, y, box) in places.items()]
    lines = (_line(places[e.source], places[e.target]) for e in _drawn(analysis.edges, places))
    width, height = whole.width, whole.height
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" font-family="sans-serif" font-size="11">\n<title>{_text(analysis.title)}</title>\n'
        + "\n".join([*parts, *lines])
        + "\n</svg>\n"
    )


def _children(tree: Tree, parent: int) -> list[int]:
    children, at, end = [], parent + 1, parent + tree.size[parent]
    while at < end:
        children.append(at)
        at += tree.size[at]
    return children


def _layout(tree: Tree, node: int, edges: Iterable[DataEdge]) -> _Box:
    edges = list(edges)
    children = _children(tree, node)
    if not children:
        return _Box(node)
    boxes = {child: _layout(tree, child, edges) for child in children}
    holder = {part: child for child in children for part in range(child, child + tree.size[child])}
    reads: dict[int, set[int]] = {child: set() for child in children}
    for edge in edges:
        source, target = holder.get(edge.source), holder.get(edge.target)
        if source is not None and target is not None and source < target:  # in program order, so without circles
            reads[target].add(source)
    layer: dict[int, int] = {}
    for child in children:
        layer[child] = max((layer[source] + 1 for source in reads[child]), default=0)
    layers: list[list[int]] = [[] for _ in range(max(layer.values()) + 1)]
    for child in children:
        layers[layer[child]].append(child)
    widths = [sum(boxes[child].width for child in row) + _GAP * (len(row) + 1) for row in layers]
    width, y = max(widths), float(_HEAD)
    for row, row_width in zip(layers, widths, strict=True):
        row.sort(key=lambda child: _middle(boxes, reads[child]))
        x = (width - row_width) / 2 + _GAP
        for child in row:
            boxes[child].x, boxes[child].y = x, y
            x += boxes[child].width + _GAP
        y += max(boxes[child].height for child in row) + _GAP
    return _Box(node, width, y, inside=list(boxes.values()))


def _middle(boxes: Mapping[int, _Box], sources: set[int]) -> float:
    return sum(boxes[source].x + boxes[source].width / 2 for source in sources) / len(sources) if sources else 0.0


def _place(box: _Box, x: float, y: float, places: dict[int, tuple[float, float, _Box]]) -> None:
    places[box.node] = x, y, box
    for inner in box.inside:
        _place(inner, x + inner.x, y + inner.y, places)


def _drawn(edges: Iterable[DataEdge], places: Mapping[int, Any]) -> list[DataEdge]:
    pairs = {(edge.source, edge.target): edge for edge in edges if edge.source < edge.target}
    ends = {node: node + 1 for node in places}
    for node, (_, _, box) in places.items():
        ends[node] = max((inner.node for inner in box.inside), default=node) + 1
    return [e for e in pairs.values() if e.source in places and e.target in places and e.target >= ends[e.source]]


def _node(analysis: Analysis, box: _Box, x: float, y: float, row: Any, by: str) -> str:
    tree, node = analysis.tree, box.node
    level = _level(analysis, row)
    label, value = _text(tree.label[node], _LONGEST), "" if row is None else _value(row, by)
    fill = _FILLS[level] if not box.inside else "none"
    border = {"bad": "#8c1d18", "warn": "#8a6100"}.get(level, "#8a8f98")
    told = [tree.label[node], tree.op[node], tree.shape[node], tree.module[node], tree.source[node]]
    tip = _text("; ".join(filter(None, [*told, "" if row is None else str(row["reason"] or "")])))
    below = "" if box.inside else f'<text x="{x + 8:.0f}" y="{y + 32:.0f}" fill="#333">{value}</text>'
    head = f"{label} {_text(tree.backend[node])} {value}" if box.inside else label
    return (
        f'<g data-level="{level}"><title>{tip}</title><rect x="{x:.0f}" y="{y:.0f}" width="{box.width:.0f}" '
        f'height="{box.height:.0f}" rx="5" fill="{fill}" stroke="{border}"/>'
        f'<text x="{x + 8:.0f}" y="{y + 16:.0f}" font-weight="bold">{head}</text>{below}</g>'
    )


def _level(analysis: Analysis, row: Any) -> str:
    if row is None:
        return "unknown"
    gap = analysis.tables.gaps[int(row.name)]
    return gap.level if gap.level != "unknown" or row["status"] not in WRONG else gap.total_level


def _value(row: Any, by: str) -> str:
    if row["status"] in WRONG:
        return _text(str(row["status"]))
    number = row[by]
    return f"{by.replace('_', ' ')} {figure(number)}" if isinstance(number, float) and number == number else ""


def _line(source: tuple[float, float, _Box], target: tuple[float, float, _Box]) -> str:
    (x0, y0, above), (x1, y1, below) = source, target
    start, end = (x0 + above.width / 2, y0 + above.height), (x1 + below.width / 2, y1)
    bend = max(12.0, (end[1] - start[1]) / 2)
    curve = f"{start[0]:.0f} {start[1] + bend:.0f} {end[0]:.0f} {end[1] - bend:.0f} {end[0]:.0f} {end[1]:.0f}"
    return f'<path d="M{start[0]:.0f} {start[1]:.0f}C{curve}" fill="none" stroke="#6b7280" stroke-opacity=".6"/>'


def _text(text: str, most: int = 400) -> str:
    return escape(shortened(one_line(text), most))
