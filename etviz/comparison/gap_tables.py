"""Gap rows and the coverage of every instruction as DataFrames."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from etviz.comparison.gap import COMPARED, EMPTY, GROUPED, NOT_COMPARED, WRONG, ExecutionGaps, Gap
from etviz.graph.labels import debug_handles, describe, owners_of
from etviz.tensors.histogram import statistics
from etviz.tensors.metrics import BUILT_IN, METRICS, NAN

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import pandas as pd

    from etviz.graph.ir import Graph

IDENTITY: Final = (
    *("event_block", "input_index", "instruction", "kind", "op", "backend", "output", "shape", "dtype"),
    *("reference_ops", "module", "source", "pairing"),
)
RANGES: Final = ("runtime_min", "runtime_max", "runtime_mean", "runtime_std")
"""Columns of a table without a reference, of finite elements."""
NONFINITE: Final = ("reference_nan", "reference_inf", "runtime_nan", "runtime_inf")
COLUMNS: Final = (
    *(*IDENTITY, *BUILT_IN, "noise", *NONFINITE, "non_finite", "latency_ms"),
    *(f"introduced_{name}" for name in BUILT_IN),
    *("introduced_noise", "introduced_non_finite", "status", "reason", "debug_handles"),
)
_DESCRIBED: Final = ("kind", "op", "backend", "reference_ops", "module", "source")
_TEXTS: Final = ("dtype", "pairing", "non_finite", "status", "reason")


def gap_frame(
    graph: Graph, runs: Sequence[tuple[int, int, ExecutionGaps]], latency: Mapping[int, float]
) -> tuple[pd.DataFrame, list[Gap]]:
    import pandas as pd

    gaps = [gap for _, _, comparison in runs for gap in comparison.gaps]
    custom = list(dict.fromkeys(name for _, _, comparison in runs for name in comparison.custom.names))
    counts = [len(comparison.gaps) for _, _, comparison in runs]
    columns: dict[str, Any] = {
        "event_block": np.repeat(np.array([block for block, _, _ in runs], np.int64), counts),
        "input_index": np.repeat(np.array([index for _, index, _ in runs], np.int64), counts),
        "instruction": np.array([gap.instruction for gap in gaps], np.int64),
        "output": np.array([gap.output for gap in gaps], np.int64),
        "shape": pd.Series([tuple(gap.runtime.shape) for gap in gaps], dtype=object),
        "latency_ms": np.array([latency.get(gap.instruction, NAN) for gap in gaps], float),
        "noise": np.array([gap.noise for gap in gaps], float),
        "introduced_noise": np.array([gap.introduced_noise for gap in gaps], float),
        "introduced_non_finite": np.array([gap.introduced_non_finite for gap in gaps], np.int64),
        "debug_handles": pd.Series([debug_handles(graph, gap.node) for gap in gaps], dtype=object),
    }
    columns |= {name: _spread([getattr(gap, name) for gap in gaps]) for name in _TEXTS}
    columns |= _described(graph, gaps) | nonfinite_columns(gaps)
    columns |= metric_columns([gap.metrics for gap in gaps], custom)
    introduced = metric_columns([gap.introduced for gap in gaps], custom)
    columns |= {f"introduced_{name}": values for name, values in introduced.items()}
    names = [*_columns(custom), "stack"]
    if gaps and all(gap.status == NOT_COMPARED for gap in gaps):
        columns |= _ranges(gaps)
        names[names.index("non_finite") : names.index("non_finite")] = RANGES
    return pd.DataFrame({name: columns[name] for name in names}), gaps


def _ranges(gaps: Sequence[Gap]) -> dict[str, Any]:
    ranges = [statistics(gap.runtime) for gap in gaps]
    return {
        name: [getattr(one, field) for one in ranges]
        for name, field in zip(RANGES, ("minimum", "maximum", "mean", "std"), strict=True)
    }


def _spread(values: Sequence[str]) -> Any:
    places: dict[str, int] = {}
    codes = [places.setdefault(value, len(places)) for value in values]
    return _taken(list(places), codes)


def _taken(texts: Sequence[str], codes: Any) -> Any:
    import pandas as pd

    return pd.Series(texts, dtype=str).array.take(np.asarray(codes, np.intp))


def _described(graph: Graph, gaps: Sequence[Gap]) -> dict[str, Any]:
    owners = owners_of(graph)
    places: dict[tuple[int, int], int] = {}
    abouts: list[dict[str, Any]] = []
    codes: list[int] = []
    for gap in gaps:
        place = places.setdefault((id(gap.node), gap.output), len(abouts))
        codes.append(place)
        if place == len(abouts):
            abouts.append(describe(owners.get(gap.instruction, graph), gap.node, gap.output))
    return {name: _taken([about[name] for about in abouts], codes) for name in (*_DESCRIBED, "stack")}


def metric_columns(rows: Sequence[dict[str, float] | None], custom: Sequence[str]) -> dict[str, Any]:
    built_in, unknown = itemgetter(*BUILT_IN), (NAN,) * len(BUILT_IN)
    values = np.array([built_in(row) if row is not None else unknown for row in rows], float)
    values = values.reshape(len(rows), len(BUILT_IN)).T.copy()
    return dict(zip(BUILT_IN, values, strict=True)) | {
        name: np.array([row.get(name, NAN) if row is not None else NAN for row in rows], float) for name in custom
    }


def nonfinite_columns(gaps: Sequence[Gap]) -> dict[str, Any]:
    columns = {name: np.zeros(len(gaps), np.int64) for name in NONFINITE}
    for row, gap in enumerate(gaps):
        if gap.total.count != gap.total.elements:
            for name, count in gap.total.nonfinite().items():
                columns[name][row] = count
    return columns


def _columns(custom: Sequence[str]) -> list[str]:
    total, introduced = COLUMNS.index("noise"), COLUMNS.index("introduced_noise")
    custom_introduced = [f"introduced_{name}" for name in custom]
    return [*COLUMNS[:total], *custom, *COLUMNS[total:introduced], *custom_introduced, *COLUMNS[introduced:]]


_NO_ELEMENTS: Final = "its values have no elements"


def coverage_frame(graph: Graph, runs: Sequence[tuple[int, int, ExecutionGaps]]) -> pd.DataFrame:
    """Every instruction: ``event_block, instruction, kind, op, backend, status, reason``, module and source."""
    import pandas as pd

    owners = owners_of(graph)
    nodes = sorted((node for node in graph.walk() if node.instruction >= 0), key=lambda node: node.instruction)
    abouts = [describe(owners.get(node.instruction, graph), node, 0) for node in nodes]
    runs = sorted(runs, key=lambda run: run[0])
    statuses: list[str] = []
    reasons: list[str] = []
    for _, _, comparison in runs:
        known = dict.fromkeys(comparison.empty, EMPTY) | dict.fromkeys(comparison.grouped, GROUPED)
        known |= {gap.instruction: COMPARED for gap in comparison.gaps if gap.status != NOT_COMPARED}
        of_run = [known.get(node.instruction, NOT_COMPARED) for node in nodes]
        why = {gap.instruction: gap.reason for gap in comparison.gaps if gap.status == NOT_COMPARED}
        why |= comparison.reasons
        told = [why.get(node.instruction, "") for node in nodes]
        statuses += of_run
        reasons += [_NO_ELEMENTS if status == EMPTY else reason for status, reason in zip(of_run, told, strict=True)]
    columns: dict[str, Any] = {
        "event_block": np.repeat(np.array([block for block, _, _ in runs], np.int64), len(nodes)),
        "instruction": np.tile(np.array([node.instruction for node in nodes], np.int64), len(runs)),
        "status": _spread(statuses),
        "reason": _spread(reasons),
    }
    codes = np.tile(np.arange(len(nodes)), len(runs))
    columns |= {name: _taken([about[name] for about in abouts], codes) for name in _DESCRIBED}
    names = ["event_block", "instruction", "kind", "op", "backend", "status", "reason"]
    names += ["reference_ops", "module", "source", "debug_handles"]
    handles = np.empty(len(nodes), object)
    handles[:] = [debug_handles(graph, node) for node in nodes]
    columns["debug_handles"] = handles[codes]
    return pd.DataFrame({name: columns[name] for name in names})


def ranking(frame: pd.DataFrame, by: str = "introduced_severity", labels: Sequence[str] = ()) -> str:
    """The metric to rank by: `by`, or its total if no introduced error is known; `rel_l2` for an unknown severity.

    In a table of several programs, each of the `labels` has a column of the metric.
    """

    def known(name: str) -> bool:
        columns = [f"{name}.{label}" for label in labels] or [name]
        return any(column in frame and frame[column].notna().any() for column in columns)

    total = by.removeprefix("introduced_")
    names = (by, total, "rel_l2") if total == "severity" else (by, total)
    return next(filter(known, names), total)


def rank(frame: pd.DataFrame, by: str, unread: Collection[int] = ()) -> pd.DataFrame:
    """`frame`, worst first: wrong shapes, dtypes, NaN and Inf, then by the column in its polarity, NaN last.

    By an introduced metric, a row that only passes NaN or Inf on is ranked by its number. Rows of `unread` values,
    whose errors do no harm, come last by every metric.
    """
    import pandas as pd

    metric = METRICS.get(by.removeprefix("introduced_"))
    ascending = metric.higher_is_better if metric else False
    wrong = frame["status"].isin(WRONG)
    if by.startswith("introduced_") and "introduced_non_finite" in frame:
        wrong &= (frame["introduced_non_finite"] > 0) | frame[by].isna()
    keys = {
        "unknown": frame[by].isna() & ~wrong,
        "unread": frame.index.isin(list(unread)) if metric else False,
        "right": ~wrong,
        "value": frame[by].mask(wrong),
    }
    order = pd.DataFrame(keys, index=frame.index).sort_values(
        list(keys), ascending=[True, True, True, ascending], na_position="last", kind="stable"
    )
    return frame.loc[order.index]
