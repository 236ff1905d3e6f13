"""Gap rows as a DataFrame, and the coverage of every instruction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from etviz.comparison.gap import COMPARED, EMPTY, GROUPED, MISMATCH, NOT_COMPARED, Comparison, Gap
from etviz.graph.labels import describe, owners_of
from etviz.tensors.metrics import BUILT_IN, METRICS, NAN

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import pandas as pd

    from etviz.graph.ir import Graph

IDENTITY: Final = (
    "event_block",
    "input_index",
    "instruction",
    "kind",
    "op",
    "backend",
    "output",
    "shape",
    "dtype",
    "reference_ops",
    "module",
    "source",
    "pairing",
)
NONFINITE: Final = ("reference_nan", "reference_inf", "runtime_nan", "runtime_inf")
COLUMNS: Final = (
    *IDENTITY,
    *BUILT_IN,
    "noise",
    *NONFINITE,
    "non_finite",
    "latency_ms",
    *(f"introduced_{name}" for name in BUILT_IN),
    "introduced_noise",
    "status",
    "reason",
)
_DESCRIBED: Final = ("kind", "op", "backend", "reference_ops", "module", "source")
_OWN: Final = (
    *("instruction", "output", "dtype", "pairing", "non_finite", "noise", "introduced_noise", "status", "reason"),
)
"""Columns that a gap has itself."""


def gap_frame(
    graph: Graph, runs: Sequence[tuple[int, int, Comparison]], latency: Mapping[int, float]
) -> tuple[pd.DataFrame, list[Gap]]:
    """One row for each compared value of ``(event block, input index, comparison)`` runs, and the gaps behind them."""
    import pandas as pd

    placed = [(block, index, gap) for block, index, comparison in runs for gap in comparison.gaps]
    gaps = [gap for _, _, gap in placed]
    custom = list(dict.fromkeys(name for _, _, comparison in runs for name in comparison.custom.names))
    abouts = _abouts(graph, gaps)
    columns = {
        "event_block": [block for block, _, _ in placed],
        "input_index": [index for _, index, _ in placed],
        "shape": [tuple(gap.runtime.shape) for gap in gaps],
        "latency_ms": [latency.get(gap.instruction, NAN) for gap in gaps],
    }
    columns |= {name: [about[name] for about in abouts] for name in (*_DESCRIBED, "stack")}
    columns |= {name: [getattr(gap, name) for gap in gaps] for name in _OWN}
    columns |= {name: [gap.metrics.get(name, NAN) for gap in gaps] for name in (*BUILT_IN, *custom)}
    counts = [gap.total.nonfinite() for gap in gaps]
    columns |= {name: [count[name] for count in counts] for name in NONFINITE}
    known = [gap.introduced or {} for gap in gaps]
    columns |= {f"introduced_{name}": [own.get(name, NAN) for own in known] for name in (*BUILT_IN, *custom)}
    names = [*_columns(custom), "stack"]
    frame = pd.DataFrame({name: columns[name] for name in names} if gaps else None, columns=names)
    return frame.astype(dict.fromkeys((*BUILT_IN, *custom), float)), gaps


def _abouts(graph: Graph, gaps: Sequence[Gap]) -> list[dict[str, Any]]:
    """What is said of each gap's node, which is the same in every execution."""
    owners = owners_of(graph)
    found: dict[tuple[int, int], dict[str, Any]] = {}
    for gap in gaps:
        key = id(gap.node), gap.output
        if key not in found:
            found[key] = describe(owners.get(gap.instruction, graph), gap.node, gap.output)
    return [found[id(gap.node), gap.output] for gap in gaps]


def _columns(custom: Sequence[str]) -> list[str]:
    """Those of the table, with the metrics that users registered after our own."""
    total, introduced = COLUMNS.index("noise"), COLUMNS.index("introduced_noise")
    own = [f"introduced_{name}" for name in custom]
    return [*COLUMNS[:total], *custom, *COLUMNS[total:introduced], *own, *COLUMNS[introduced:]]


_NO_ELEMENTS: Final = "its values have no elements"


def coverage_frame(graph: Graph, runs: Sequence[tuple[int, int, Comparison]]) -> pd.DataFrame:
    """Every instruction: ``event_block, instruction, kind, op, backend, status, reason`` and where it comes from."""
    import pandas as pd

    rows = []
    owners = owners_of(graph)
    for block, _, comparison in runs:
        statuses = dict.fromkeys(comparison.empty, EMPTY) | dict.fromkeys(comparison.grouped, GROUPED)
        statuses |= {gap.instruction: COMPARED for gap in comparison.gaps}
        for node in graph.walk():
            if node.instruction < 0:
                continue
            about = describe(owners.get(node.instruction, graph), node, 0)
            about.pop("stack")
            status = statuses.get(node.instruction, NOT_COMPARED)
            reason = _NO_ELEMENTS if status == EMPTY else comparison.reasons.get(node.instruction, "")
            rows.append(
                {"event_block": block, "instruction": node.instruction} | about | {"status": status, "reason": reason}
            )
    columns = ["event_block", "instruction", "kind", "op", "backend", "status", "reason"]
    return pd.DataFrame(rows, columns=[*columns, "reference_ops", "module", "source"]).sort_values(
        ["event_block", "instruction"], ignore_index=True
    )


def ranking(frame: pd.DataFrame, by: str = "introduced_severity", labels: Sequence[str] = ()) -> str:
    """The metric to rank by: `by`, or its total where the introduced error is known of no row.

    In a table of several programs, each of the `labels` has a column of the metric.
    """
    columns = [f"{by}.{label}" for label in labels] or [by]
    known = any(column in frame and frame[column].notna().any() for column in columns)
    return by if known else by.removeprefix("introduced_")


def rank(frame: pd.DataFrame, by: str, unread: Collection[int] = ()) -> pd.DataFrame:
    """`frame`, worst first: non-finite mismatches, then by the column in the direction of its polarity, NaN last.

    The rows of `unread` values, in which an error does no harm, come after those of others, by every metric.
    """
    import pandas as pd

    metric = METRICS.get(by.removeprefix("introduced_"))
    ascending = metric.higher_is_better if metric else False
    mismatch = frame["status"] == MISMATCH
    keys = {
        "unknown": frame[by].isna() & ~mismatch,
        "unread": frame.index.isin(list(unread)) if metric else False,
        "finite": ~mismatch,
        "value": frame[by],
    }
    order = pd.DataFrame(keys, index=frame.index).sort_values(
        list(keys), ascending=[True, True, True, ascending], na_position="last", kind="stable"
    )
    return frame.loc[order.index]
