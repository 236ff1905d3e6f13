"""`etviz.compare`: two or more Inspections side by side, joined by operator.

The same model on two backends, before and after a change, or in float and in int8. Rows are joined where both programs
execute the same operator of the same module; what a partitioner cut differently is joined by the source line of what it
computes last; the rest stands alone and is never joined by a guess.
"""

from __future__ import annotations

import math
from collections import Counter
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import pandas as pd

from etviz.analysis.rows import row_keys
from etviz.artifacts.files import check_target, whole_file
from etviz.comparison.tables import ranking
from etviz.errors import UsageError, during
from etviz.graph.labels import row_name
from etviz.tensors.metrics import METRICS
from etviz.text import one_line, printable
from etviz.view.pages.report import check_tensors, framed, report_page
from etviz.view.pages.tables import comparison_fragment, comparison_summary
from etviz.view.payload.beside import CHANGE, Beside
from etviz.view.payload.program import compared_rows
from etviz.view.widget.state import ViewState

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

    from etviz.analysis.analysis import Analysis
    from etviz.analysis.summary import Summary
    from etviz.artifacts.files import PathLike
    from etviz.inspection import Inspection

JOINED, BY_SOURCE, ALONE = "operator", "source", "alone"
_ROW: Final = ("instruction", "backend", "shape", "dtype", "latency_ms")
_SHOWN: Final = 12


class Comparison(ViewState):
    """Inspections side by side; made by `etviz.compare`. A notebook shows it as the linked view of the first one.

    Attributes
    ----------
    inspections
        By label, in the order in which they were given; the first one is what the others are held against.
    """

    def __init__(self, inspections: dict[str, Inspection]) -> None:
        super().__init__(next(iter(inspections.values())).analysis)
        self.inspections = inspections
        self.sort_by = CHANGE

    @property
    def title(self) -> str:
        """The labels."""
        return " · ".join(self.labels)

    @property
    def known_digest(self) -> None:
        """Several programs have no verdict in common."""

    @property
    def analyses(self) -> list[Analysis]:
        """Those of all Inspections."""
        return [inspection.analysis for inspection in self._all()]

    @property
    def beside(self) -> Beside:
        """The other Inspections, joined to the first one row by row."""
        analyses = self.analyses
        frames = [compared_rows(analysis) for analysis in analyses]
        joined = _with_insides(self._joined, frames, [len(analysis.tables) for analysis in analyses])
        return Beside(tuple(self.labels), tuple(analyses[1:]), tuple(frames), joined, self.title)

    @property
    def labels(self) -> list[str]:
        """Names of the Inspections."""
        return list(self.inspections)

    @cached_property
    def table(self) -> pd.DataFrame:
        """A row for each operator, in program order.

        ``operator, module, source, joined`` (how the row was joined: ``operator``, ``source`` or ``alone``), then for
        each Inspection ``<column>.<label>``: its row in `gaps`, instruction, backend, shape, dtype, latency and every
        metric, total and introduced; NaN where the program has no such row.
        """
        rows = self._joined
        frames = [_one(inspection.gaps) for inspection in self.inspections.values()]
        columns = [*_ROW, *self._metrics()]
        records = []
        for how, places in rows:
            first = next(frame.loc[place] for frame, place in zip(frames, places, strict=True) if place is not None)
            record: dict[str, Any] = {name: first[name] for name in ("operator", "module", "source")}
            record["joined"] = how
            for label, frame, place in zip(self.labels, frames, places, strict=True):
                record[f"row.{label}"] = place if place is not None else pd.NA
                values = frame.loc[place] if place is not None else None
                for name in columns:
                    record[f"{name}.{label}"] = values.get(name, math.nan) if values is not None else math.nan
            records.append(record)
        named = [f"{name}.{label}" for label in self.labels for name in ("row", *columns)]
        return pd.DataFrame(records, columns=["operator", "module", "source", "joined", *named])

    @cached_property
    def _joined(self) -> list[tuple[str, list[int | None]]]:
        return _join([inspection.gaps for inspection in self._all()])

    def _metrics(self) -> list[str]:
        """The metrics that one of the Inspections has, total and introduced."""
        names = [name for name in METRICS if any(name in item.analysis.tables.rows for item in self._all())]
        return [*names, *(f"introduced_{name}" for name in names)]

    def _all(self) -> Iterable[Inspection]:
        return self.inspections.values()

    @cached_property
    def outputs(self) -> pd.DataFrame:
        """The final outputs of all Inspections: their `outputs`, with a column `label`."""
        frames = [inspection.outputs.assign(label=label) for label, inspection in self.inspections.items()]
        return pd.concat([frame for frame in frames if not frame.empty] or frames[:1], ignore_index=True)

    @during("ranking the operators")
    def worst(self, n: int = 5, by: str = "introduced_severity") -> pd.DataFrame:
        """The operators that became worst from the first Inspection to another one.

        Parameters
        ----------
        n
            Number of rows.
        by
            A metric; ``introduced_severity`` where it is known, else its total.

        Returns
        -------
        DataFrame
            Rows of `table` that all have, with a column ``change``: the largest ratio to the first Inspection (for
            metrics in dB, the largest loss in dB; severities count from 1 on, below is rounding), worst first.

        Raises
        ------
        UsageError
            If `by` is no metric.
        """
        metric = METRICS.get(by.removeprefix("introduced_"))
        if metric is None:
            raise UsageError(f"by must be a metric, found {by!r}; metrics are {', '.join(METRICS)}")
        table = self.table
        by = ranking(table, by, self.labels[:1])
        columns = [table[f"{by}.{label}"].astype(float) for label in self.labels]
        if by.removeprefix("introduced_") == "severity":  # below 1 there is nothing but rounding
            columns = [column.clip(lower=1.0) for column in columns]
        first, *others = columns
        changes = [_change(first, other, metric.higher_is_better, metric.unit == "dB") for other in others]
        found = table.assign(change=pd.concat(changes, axis=1).max(axis=1))
        found = found[found["change"].notna()]
        return found.sort_values("change", ascending=False, kind="stable").head(min(n, len(found)))

    def summary(self) -> str:
        """Short text: each verdict, how much was joined, what became worse."""
        lines = [f"{label}: {digest.verdict}" for label, digest in self._verdicts().items()]
        counts = self.table["joined"].value_counts()
        shared = int(counts.get(JOINED, 0) + counts.get(BY_SOURCE, 0))
        lines.append(f"{shared} of {len(self.table)} operators are in several programs.")
        worse = self.worst(1)
        if len(worse) and float(worse["change"].iloc[0]) > 1:
            row = worse.iloc[0]
            lines.append(
                f"Worst change: {row['operator']} ({row['module'] or row['source']}), {row['change']:.3g} times."
            )
        return printable("\n".join(lines))

    @during("writing the report")
    def to_html(self, path: PathLike, by: str = "introduced_severity", tensors: str = "histograms") -> Path:
        """Write a report: the linked view of all programs, which needs no kernel and no network.

        Without scripts, and on paper, it is the verdicts and every operator with the metric `by` side by side.

        Parameters
        ----------
        path
            The file; it appears under this name when it is whole.
        by
            A metric.
        tensors
            As for `Inspection.to_html`.

        Raises
        ------
        UsageError
            If `by` is no metric, or there is no such `tensors`.
        ArtifactError
            If the file can't be written.
        """
        check_tensors(tensors)
        target = check_target(path, "the comparison")
        page = self._page(tensors, by)
        with whole_file(target, "the comparison") as partial:
            partial.write_bytes(page)
        return Path(path)

    def _page(self, tensors: str, by: str = "introduced_severity") -> bytes:
        summary = comparison_summary(self._verdicts(), self.table, self.worst(_SHOWN, by), by)
        return report_page(self.analysis, tensors, self.title, self.beside, summary)

    def static_html(self) -> str:
        """Verdicts, and what became worse."""
        return comparison_fragment(self._verdicts(), self.worst(_SHOWN), "introduced_severity")

    def embedded_html(self) -> str:
        """The report as the output of a cell."""
        return framed(self.title, self.height, self._page, self.static_html())

    def widget(self, **options: Any) -> Any:
        """The widget; `options` set its traits (``height=800``)."""
        from etviz.view.widget.widget import InspectionWidget

        return InspectionWidget(self, **options)

    def show(self, sidebar: bool | Literal["left", "right"] = False) -> None:
        """Display the widget; as `Inspection.show`."""
        from etviz.view.widget.widget import show

        show(self, sidebar)

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        from etviz.view.widget.widget import mimebundle

        return mimebundle(self, **kwargs)

    def _verdicts(self) -> dict[str, Summary]:
        return {label: inspection.digest for label, inspection in self.inspections.items()}

    def __repr__(self) -> str:
        return f"<Comparison of {one_line(', '.join(self.labels))}>\n{self.summary()}"


def _one(gaps: pd.DataFrame) -> pd.DataFrame:
    """Gap rows of the first execution, with what they are called."""
    rows = gaps[gaps["event_block"] == gaps["event_block"].min()] if len(gaps) else gaps
    names = [
        row_name(*row) for row in rows[["kind", "op", "reference_ops", "module", "output"]].itertuples(index=False)
    ]
    return rows.assign(operator=names)


def _join(tables: Sequence[pd.DataFrame]) -> list[tuple[str, list[int | None]]]:
    """How each row is joined, and its index in every table."""
    frames = [_one(table) for table in tables]
    left = [dict(zip(row_keys(frame), frame.index, strict=True)) for frame in frames]
    rows: list[tuple[str, list[int | None]]] = []
    for how in (JOINED, BY_SOURCE):
        if how == BY_SOURCE:
            left = [_by_source(frame, keys.values()) for frame, keys in zip(frames, left, strict=True)]
        shared = [key for key in dict.fromkeys(k for keys in left for k in keys) if sum(key in k for k in left) > 1]
        for key in shared:
            rows.append((how, [keys.pop(key, None) for keys in left]))
    joined = {(i, place) for _, places in rows for i, place in enumerate(places) if place is not None}
    for i, frame in enumerate(frames):
        for place in frame.index:
            if (i, place) not in joined:
                rows.append((ALONE, [place if k == i else None for k in range(len(frames))]))
    order = [{place: at / len(frame) for at, place in enumerate(frame.index)} for frame in frames]
    return sorted(rows, key=lambda row: next(where[p] for where, p in zip(order, row[1], strict=True) if p is not None))


def _with_insides(
    joined: Sequence[tuple[str, list[int | None]]], frames: Sequence[pd.DataFrame], own: Sequence[int]
) -> npt.NDArray[np.int64]:
    """The row of each operator in every program, -1 for none; what is inside of delegates is joined to what is left."""
    rows = list(joined)
    if any(len(frame) > count for frame, count in zip(frames, own, strict=True)):
        alone = [
            [place for how, row in rows if how == ALONE and (place := row[k]) is not None] for k in range(len(own))
        ]
        rows = [row for row in rows if row[0] != ALONE]
        rows += _join(
            [
                frame.loc[[*left, *range(count, len(frame))]]
                for frame, left, count in zip(frames, alone, own, strict=True)
            ]
        )
    places = [[-1 if place is None else place for place in row] for _, row in rows]
    return np.array(places, np.int64).reshape(-1, len(own))


def _by_source(frame: pd.DataFrame, places: Any) -> dict[str, int]:
    """Rows by module and source line, where no other row of the program has the same."""
    rows = frame.loc[list(places)]
    names = [
        f"{module}|{source}|{output}" if module and source else ""
        for module, source, output in rows[["module", "source", "output"]].itertuples(index=False)
    ]
    counts = Counter(names)
    return {name: place for name, place in zip(names, rows.index, strict=True) if name and counts[name] == 1}


def _change(first: pd.Series, other: pd.Series, higher_is_better: bool, decibel: bool) -> pd.Series:
    """How much worse `other` is: a ratio, in dB a difference; NaN where one of them is not known."""
    with np.errstate(divide="ignore", invalid="ignore"):
        if decibel:
            return (first - other).where(np.isfinite(first) | np.isfinite(other))
        ratio = first / other if higher_is_better else other / first
    return ratio.where((first != 0) | (other != 0), 1.0)
