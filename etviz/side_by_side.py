"""`etviz.compare`: two or more Inspections side by side, joined by operator.

Rows are joined where both programs execute the same operator of the same module; delegates that a partitioner cut
differently are joined by the source line of their last operator.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from etviz.analysis.analysis import Analysis
from etviz.analysis.rows import row_count, row_keys
from etviz.analysis.summary import Summary
from etviz.artifacts.files import PathLike, check_target, write_file
from etviz.comparison.gap_tables import ranking
from etviz.errors import UsageError, during
from etviz.explain.stages.against import OtherRun
from etviz.graph.labels import row_name
from etviz.inspection import Inspection
from etviz.tensors.metrics import METRICS
from etviz.text import one_line, printable
from etviz.view.pages.html_tables import comparison_fragment, comparison_summary
from etviz.view.pages.report_page import check_tensors, framed, report_page
from etviz.view.payload.beside import CHANGE, Beside, beside_names
from etviz.view.payload.program_payload import compared_rows
from etviz.view.widget.shown import Shown
from etviz.view.widget.state import ViewState

JOINED, BY_SOURCE, ALONE = "operator", "source", "alone"
_ROW: Final = ("instruction", "backend", "shape", "dtype", "latency_ms")
_SHOWN: Final = 12


class Comparison(Shown):
    """Inspections side by side; made by `etviz.compare`. A notebook shows it as the linked view of the first one.

    Attributes
    ----------
    view
        State that all its views share.
    """

    view: _ComparisonView

    def __init__(self, inspections: Mapping[str, Inspection]) -> None:
        self._inspections = dict(inspections)
        super().__init__(_ComparisonView({label: item.analysis for label, item in self._inspections.items()}))

    @property
    def inspections(self) -> dict[str, Inspection]:
        """By label; the others are compared with the first one."""
        return dict(self._inspections)

    @property
    def labels(self) -> list[str]:
        """The names of the Inspections, the first one's first."""
        return list(self._inspections)

    @property
    def table(self) -> pd.DataFrame:
        """A row for each operator, in program order.

        ``operator, module, source, joined`` (how the row was joined: ``operator``, ``source`` or ``alone``), then for
        each Inspection ``<column>.<label>``: its row in `gaps`, instruction, backend, shape, dtype, latency and every
        metric, total and introduced; NaN where the program lacks the row.
        """
        gaps = [inspection.gaps for inspection in self._all()]
        rows = _join(gaps, [len(inspection.analysis.tables) for inspection in self._all()])
        frames = [_one(frame) for frame in gaps]
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

    def _metrics(self) -> list[str]:
        names = [name for name in METRICS if any(name in inspection.analysis.tables.rows for inspection in self._all())]
        return [*names, *(f"introduced_{name}" for name in names)]

    def _all(self) -> Iterable[Inspection]:
        return self._inspections.values()

    @property
    def outputs(self) -> pd.DataFrame:
        """Their `outputs`, with a column `label`."""
        frames = [inspection.outputs.assign(label=label) for label, inspection in self._inspections.items()]
        return pd.concat([frame for frame in frames if not frame.empty] or frames[:1], ignore_index=True)

    @during("ranking the operators")
    def worst(self, n: int = 5, by: str = "introduced_severity") -> pd.DataFrame:
        """The operators that became worst from the first Inspection to another one.

        Parameters
        ----------
        by
            A metric, else `UsageError`; ``introduced_severity`` where it is known, else its total.

        Returns
        -------
        DataFrame
            Rows of `table` that all have, with a column ``change``: the largest ratio to the first Inspection (for
            metrics in dB, the largest loss in dB; severities count from 1 on, below is rounding), worst first. Where
            the first one's values are the reference, it is the metric itself. ``attrs`` has its name, ``change``, and
            the metric, ``by``.
        """
        count = row_count("n", n, sum(len(inspection.analysis.rows) for inspection in self._all()))
        metric = METRICS.get(by.removeprefix("introduced_"))
        if metric is None:
            raise UsageError(f"by must be a metric, found {by!r}; metrics are {', '.join(METRICS)}")
        table, apart = self.table, self.view.apart
        by = ranking(table, by, self.labels[1:] if apart else self.labels[:1])
        columns = [table[f"{by}.{label}"].astype(float) for label in self.labels]
        if by.removeprefix("introduced_") == "severity":  # below 1 there is nothing but rounding
            columns = [column.clip(lower=1.0) for column in columns]
        first, *others = columns
        rising = apart and METRICS[by.removeprefix("introduced_")].higher_is_better
        changes = [_change(first, other, metric.higher_is_better, metric.unit == "dB") for other in others]
        every = pd.concat(others if apart else changes, axis=1)
        changed = table.assign(change=every.min(axis=1) if rising else every.max(axis=1))
        changed = changed[changed["change"].notna()].sort_values("change", ascending=rising, kind="stable").head(count)
        change = "loss in dB" if metric.unit == "dB" else "times worse"
        changed.attrs |= {"by": by, "change": by if apart else change}
        return changed

    def summary(self) -> str:
        """Each verdict, the number of joined operators, the operator that became worst."""
        lines = [f"{label}: {digest.verdict}" for label, digest in _verdicts(self.view.analysis_by_label).items()]
        if self.view.apart:
            lines[0] = f"{self.labels[0]}: the reference of the others."
        table = self.table
        counts = table["joined"].value_counts()
        shared = int(counts.get(JOINED, 0) + counts.get(BY_SOURCE, 0))
        lines.append(f"{shared} of {len(table)} operators are in several programs.")
        worse = self.worst(1)
        row = worse.iloc[0] if len(worse) else None
        if row is not None and self.view.apart:
            differs = f"{row['operator']}, {worse.attrs['by']} {row['change']:.3g}" if row["change"] else "none"
            lines.append(f"Largest difference from {self.labels[0]}: {differs}.")
        elif row is not None and row["change"] > 1:
            lines.append(
                f"Worst change: {row['operator']} ({row['module'] or row['source']}), {row['change']:.3g} times."
            )
        return printable("\n".join(lines))

    @during("writing the report")
    def to_html(self, path: PathLike, by: str = "introduced_severity", tensors: str = "histograms") -> Path:
        """Write a report: the linked view of all programs, which needs no kernel and no network.

        Without scripts, and on paper, it shows the verdicts and every operator with the metric `by` side by side.

        Parameters
        ----------
        tensors
            As for `Inspection.to_html`.

        Raises
        ------
        UsageError
            If `by` is no metric, or `tensors` is unknown.
        ArtifactError
            If the file can't be written.
        """
        check_tensors(tensors)
        target = check_target(path, "the comparison")
        page = self.view.page(tensors, by)
        write_file(target, "the comparison", page)
        return Path(path)

    def __repr__(self) -> str:
        return f"<Comparison of {one_line(', '.join(self.labels))}>\n{self.summary()}"


class _ComparisonView(ViewState):
    def __init__(self, programs: dict[str, Analysis]) -> None:
        self.analysis_by_label = programs
        super().__init__(next(iter(programs.values())))
        self.sort_by = CHANGE

    @property
    def title(self) -> str:
        return " · ".join(self.analysis_by_label)

    @property
    def known_digest(self) -> None:
        """Several programs have no verdict in common."""

    @property
    def analyses(self) -> list[Analysis]:
        return list(self.analysis_by_label.values())

    @property
    def apart(self) -> bool:
        """Whether the first program's values are the reference of the others."""
        return any(isinstance(other.findings.reference, OtherRun) for other in self.analyses[1:])

    @property
    def beside(self) -> Beside:
        analyses = self.analyses
        frames = [compared_rows(analysis) for analysis in analyses]
        rows = _join(frames, [len(analysis.tables) for analysis in analyses])
        places = [[-1 if place is None else place for place in row] for _, row in rows]
        joined = np.array(places, np.int64).reshape(-1, len(analyses))
        labels, others = tuple(self.analysis_by_label), tuple(analyses[1:])
        return Beside(labels, others, tuple(frames), joined, self.title, self.apart)

    @property
    def rows(self) -> int:
        return super().rows + int((self.beside.joined[:, 0] < 0).sum())

    @property
    def columns(self) -> set[str]:
        return super().columns | beside_names(len(self.analysis_by_label))

    def page(self, tensors: str, by: str = "introduced_severity") -> bytes:
        compared = self._compared()
        summary = comparison_summary(_verdicts(self.analysis_by_label), compared.table, compared.worst(_SHOWN, by), by)
        return report_page(self.analysis, tensors, self.title, self.beside, summary)

    def static_html(self) -> str:
        worst = self._compared().worst(_SHOWN)
        return comparison_fragment(_verdicts(self.analysis_by_label), worst, "introduced_severity")

    def embedded_html(self) -> str:
        return framed(self.title, self.height, self.page, self.static_html())

    def _compared(self) -> Comparison:
        shown = self.shown() if self.shown is not None else None
        if isinstance(shown, Comparison):
            return shown
        return Comparison({label: Inspection(analysis) for label, analysis in self.analysis_by_label.items()})


def _verdicts(programs: Mapping[str, Analysis]) -> dict[str, Summary]:
    return {label: analysis.digest for label, analysis in programs.items()}


def _one(gaps: pd.DataFrame) -> pd.DataFrame:
    rows = gaps[gaps["event_block"] == gaps["event_block"].min()] if len(gaps) else gaps
    names = [
        row_name(*row) for row in rows[["kind", "op", "reference_ops", "module", "output"]].itertuples(index=False)
    ]
    return rows.assign(operator=names)


def _join(tables: Sequence[pd.DataFrame], counts: Sequence[int]) -> list[tuple[str, list[int | None]]]:
    """How each row is joined, and its index in every table.

    Rows inside delegates are joined with each other and with unpartnered own rows.
    """
    rows = _join_once([table[table.index < count] for table, count in zip(tables, counts, strict=True)])
    if any(len(table) > count for table, count in zip(tables, counts, strict=True)):
        alone = [[row[k] for how, row in rows if how == ALONE] for k in range(len(counts))]
        left = [
            table[table.index.isin([at for at in single if at is not None]) | (table.index >= count)]
            for table, single, count in zip(tables, alone, counts, strict=True)
        ]
        rows = [row for row in rows if row[0] != ALONE] + _join_once(left)
    order = [{place: at / len(table) for at, place in enumerate(table.index)} for table in tables]
    return sorted(rows, key=lambda row: next(where[p] for where, p in zip(order, row[1], strict=True) if p is not None))


def _join_once(tables: Sequence[pd.DataFrame]) -> list[tuple[str, list[int | None]]]:
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
    return rows


def _by_source(frame: pd.DataFrame, places: Any) -> dict[str, int]:
    rows = frame.loc[list(places)]
    names = [
        f"{module}|{source}|{output}" if module and source else ""
        for module, source, output in rows[["module", "source", "output"]].itertuples(index=False)
    ]
    counts = Counter(names)
    return {name: place for name, place in zip(names, rows.index, strict=True) if name and counts[name] == 1}


def _change(first: pd.Series, other: pd.Series, higher_is_better: bool, decibel: bool) -> pd.Series:
    with np.errstate(divide="ignore", invalid="ignore"):
        if decibel:
            return (first - other).where(np.isfinite(first) | np.isfinite(other))
        ratio = first / other if higher_is_better else other / first
    return ratio.where((first != 0) | (other != 0), 1.0)
