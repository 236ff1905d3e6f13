"""Inputs, time and error of each delegate and each portable kernel."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from etviz.artifacts.scalar_types import ITEM_SIZES
from etviz.errors import UsageError
from etviz.graph.ir import Graph, Meta, Node
from etviz.graph.labels import describe, owners_of, row_name
from etviz.graph.uses import Uses, operators

if TYPE_CHECKING:
    import pandas as pd

    from etviz.analysis.findings import Findings
    from etviz.analysis.tables import Tables

COLUMNS: Final = (
    *("instruction", "name", "kind", "backend", "operators", "operator_count", "module", "source"),
    *("inputs", "outputs", "bytes_in", "bytes_out", "latency_ms", "latency_share"),
    *("severity_in", "introduced_severity", "severity_out", "refused", "delegate_info"),
)
_NAN: Final = float("nan")


def ledger(graph: Graph, tables: Tables, findings: Findings, by: str) -> pd.DataFrame:
    import pandas as pd

    if by not in COLUMNS:
        raise UsageError(f"by must be a column of the ledger, found {by!r}; it has {', '.join(COLUMNS)}")
    latency, refusals = findings.latency, findings.refusals
    worst, total = _worst(tables), sum(latency.values())
    rows = []
    for instruction, owner in sorted(owners_of(graph).items()):
        uses = Uses(owner)
        for node in owner.nodes:
            if node.instruction == instruction:
                row = _row(owner, node, uses, latency.get(instruction, _NAN), total, worst)
                told = refusals.get(node.name) or refusals.get(node.origin, "")  # before it was decomposed, or after
                info = findings.delegate_info.get(owner.inside(node).name) if row["kind"] == "delegate" else None
                rows.append(row | {"refused": told if row["kind"] == "kernel" else "", "delegate_info": info})
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    ascending = not pd.api.types.is_numeric_dtype(frame[by]) or by == "instruction"
    key = (lambda column: column.map(str)) if by == "delegate_info" else None
    return frame.sort_values(by, ascending=ascending, na_position="last", kind="stable", ignore_index=True, key=key)


def _row(
    owner: Graph, node: Node, uses: Uses, latency: float, total: float, worst: Mapping[int, tuple[float, float]]
) -> dict[str, Any]:
    told = describe(owner, node, 0)
    inner = owner.inside(node) if node.target == "delegate" else None
    inside = Counter(item.target for item in operators(inner.nodes)) if inner is not None else Counter([node.target])
    read = list(dict.fromkeys(name for name in node.reads() if _is_computed(owner, name)))
    sources = [uses.nodes[uses.value(name)[0]].instruction for name in read if uses.value(name)[0] in uses.nodes]
    severity, introduced = worst.get(node.instruction, (_NAN, _NAN))
    return {
        "instruction": node.instruction,
        "name": row_name(told["kind"], told["op"], told["reference_ops"], told["module"]),
        **{name: told[name] for name in ("kind", "backend", "module", "source")},
        "operators": ", ".join(f"{name} × {count}" if count > 1 else name for name, count in inside.items()),
        "operator_count": sum(inside.values()),
        "inputs": len(read),
        "outputs": len(node.outputs),
        "bytes_in": _total(_meta(owner, uses, name) for name in read),
        "bytes_out": _total(node.outputs),
        "latency_ms": latency,
        "latency_share": latency / total if total else _NAN,
        "severity_in": max((worst.get(source, (_NAN, _NAN))[0] for source in sources), default=0.0, key=_known),
        "introduced_severity": introduced,
        "severity_out": severity,
    }


def _worst(tables: Tables) -> dict[int, tuple[float, float]]:
    gaps = tables.rows
    if gaps.empty:
        return {}
    worst = gaps.groupby("instruction")[["severity", "introduced_severity"]].max()
    return {int(row): (float(a), float(b)) for row, (a, b) in zip(worst.index, worst.to_numpy(), strict=True)}


def _is_computed(graph: Graph, name: str) -> bool:
    return not any(placeholder.name == name and placeholder.kind != "user" for placeholder in graph.inputs)


def _meta(graph: Graph, uses: Uses, name: str) -> Meta | None:
    given = next((placeholder.meta for placeholder in graph.inputs if placeholder.name == name), None)
    return uses.meta(uses.value(name)) or given


def _total(metas: Iterable[Meta | None]) -> float:
    return float(sum((_bytes(meta) for meta in metas), 0.0))


def _bytes(meta: Meta | None) -> float:
    if meta is None or meta.dtype not in ITEM_SIZES:
        return _NAN
    sizes = [size for size in meta.shape if isinstance(size, int)]
    return math.prod(sizes) * ITEM_SIZES[meta.dtype] if len(sizes) == len(meta.shape) else _NAN


def _known(value: float) -> float:
    return -1.0 if math.isnan(value) else value
