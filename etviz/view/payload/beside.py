"""Other programs beside the one of a view, joined row by row.

The first program's rows keep their places, so every question about a row works here too; others' extra rows follow.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from etviz.analysis.analysis import Analysis
from etviz.analysis.summary import Fact
from etviz.comparison.gap import MISMATCH
from etviz.tensors.histogram import counts_over
from etviz.view.payload.columns import Column
from etviz.view.payload.wire import MessageBuffers

CHANGE: Final = "change"
_RATED: Final = ("introduced_severity", "severity")
_DISTANCE: Final = "rel_l2"
_WORDS: Final = {"introduced_severity": "introduced", "severity": "severity", _DISTANCE: "distance"}
LIMITS: Final = ("_look", "_fault")
_WORSE, _FAR_WORSE = 2.0, 10.0
"""Thresholds of ratios: a row deserves attention, and is a fault."""
_TAKEN: Final = ("kind", "op", "backend", "output", "shape", "dtype", "reference_ops", "module", "source")


def beside_names(programs: int) -> set[str]:
    numbers = range(2, programs + 1)
    return {CHANGE} | {f"{name}_{k}" for k in numbers for name in (*_RATED, "ratio", _DISTANCE)}


@dataclass(frozen=True, slots=True)
class Beside:
    """Programs beside a first one, whose label comes first.

    `joined` has a row for each operator: its row number in every program, -1 if the program has none. If `apart`, the
    first program's values are the reference of the others.
    """

    labels: tuple[str, ...]
    others: tuple[Analysis, ...]
    frames: tuple[pd.DataFrame, ...]
    joined: npt.NDArray[np.int64]
    title: str
    apart: bool = False

    def added(self) -> pd.DataFrame:
        records = []
        for places in self.joined[self.joined[:, 0] < 0]:
            at = next(k for k, place in enumerate(places) if place >= 0)
            about = self.frames[at].iloc[places[at]]
            reason = f"not in {self.labels[0]}, or nothing there is known to be the same operator"
            records.append(about[list(_TAKEN)].to_dict() | {"status": "not compared", "reason": reason})
        return pd.DataFrame(records)

    def places(self, rows: int, added: int) -> list[npt.NDArray[np.int64]]:
        """By other program and row of the view: its gap row, or -1; the last `added` rows are `added`'s."""
        of_others = [np.full(rows, -1, np.int64) for _ in self.others]
        present = self.joined[:, 0] >= 0
        for k, places in enumerate(of_others):
            places[self.joined[present, 0]] = self.joined[present, k + 1]
            if added:
                places[rows - added :] = self.joined[~present, k + 1]
        return of_others

    def add_columns(self, rows: pd.DataFrame, added: int) -> list[Column]:
        columns: list[Column] = []
        rated = next((name for name in _RATED if self._all_know(name, rows)), "")
        base = rows[rated].clip(lower=1.0).where(rows["status"] != MISMATCH, math.inf) if rated else None
        changes: dict[str, pd.Series] = {}
        for k, (places, other) in enumerate(zip(self.places(len(rows), added), self.others, strict=True)):
            there, number, label = places >= 0, k + 2, self.labels[k + 1]
            for name in (*_RATED, _DISTANCE) if self.apart else _RATED:
                if not _knows(name)(other):
                    continue
                frame = self.frames[k + 1]
                values = pd.to_numeric(frame[name]).mask(frame["status"] == MISMATCH, math.inf)
                taken = {name: values, **{limit: frame[limit] for limit in _limits(name) if limit in frame}}
                for part, all_values in taken.items():
                    picked = np.full(len(rows), math.nan)
                    picked[there] = np.asarray(all_values, float)[places[there]]
                    rows[part.replace(name, f"{name}_{number}")] = picked
                word = _WORDS[name]
                about = f"{word} of {label}".capitalize()
                columns.append(_column(f"{name}_{number}", f"{label}: {word}", f"{about}.", "beside"))
                if name == _DISTANCE:
                    changes[f"ratio_{number}"] = rows[f"{name}_{number}"]
            if base is not None and not self.apart:
                after = rows[f"{rated}_{number}"].clip(lower=1.0)
                with np.errstate(invalid="ignore"):
                    changes[f"ratio_{number}"] = (after / base).mask(np.isinf(after) & np.isinf(base), 1.0)
        if changes:
            about = f"Times worse than in {self.labels[0]}; what is below ideal rounding, or the measured noise, is 1."
            label, limits = ("times worse", (_WORSE, _FAR_WORSE))
            if self.apart:
                about, label, limits = (
                    f"Largest relative distance from the values of {self.labels[0]}.",
                    "distance",
                    None,
                )
            rows[CHANGE] = pd.concat(changes, axis=1).max(axis=1)
            columns.insert(0, _column(CHANGE, label, about, "ratio", limits))
            if len(changes) > 1 and not self.apart:
                for (name, values), label in zip(changes.items(), self.labels[1:], strict=True):
                    rows[name] = values
                    columns.append(_column(name, f"× {label}", about, "ratio", (_WORSE, _FAR_WORSE)))
        return columns

    def _all_know(self, name: str, rows: pd.DataFrame) -> bool:
        return name in rows and bool(rows[name].notna().any()) and all(map(_knows(name), self.others))

    def summary(self, rows: pd.DataFrame) -> dict[str, Any]:
        digests = [other.digest for other in self.others]
        shared = int(((self.joined >= 0).sum(axis=1) > 1).sum())
        worst = rows[CHANGE].max() if CHANGE in rows else math.nan
        level = "bad" if worst >= _FAR_WORSE else "warn" if worst >= _WORSE else "ok"
        level = "unknown" if math.isnan(worst) or self.apart else level
        verdict, finding = f"No operator became worse than in “{self.labels[0]}”.", None
        if math.isnan(worst):
            verdict = "No operator has a known error in several of the programs."
        elif self.apart and not worst:
            verdict = f"Every value is that of “{self.labels[0]}”."
        elif self.apart or level != "ok":
            row = int(np.nanargmax(rows[CHANGE].to_numpy(float)))
            verdict = f"An operator became {worst:.3g} times worse than in “{self.labels[0]}”."
            if self.apart:
                verdict = f"Values are up to {worst:.3g} (relative) from those of “{self.labels[0]}”."
            at = f"#{int(rows['instruction'].iloc[row])} " if pd.notna(rows["instruction"].iloc[row]) else ""
            source = rows["source"].iloc[row]
            by = f"relative distance {worst:.3g}" if self.apart else f"×{worst:.3g}"
            text = f"{at}{rows['op'].iloc[row]}{f' ({source})' if source else ''}: {by}"
            finding = {"row": row, "text": text, "level": level, "fingerprint": ""}
        others = zip(self.labels[1:], digests, strict=True)
        facts = [Fact(label, digest.verdict, digest.level) for label, digest in others]
        value = f"{shared} of {len(self.joined)} operators are in several programs"
        facts.append(Fact("Joined", value, "unknown"))
        return {"level": level, "verdict": verdict, "facts": [asdict(fact) for fact in facts], "finding": finding}

    def histograms(self, row: int, edges: Any, buffers: MessageBuffers) -> list[dict[str, Any]]:
        histograms = []
        for k, (label, other) in enumerate(zip(self.labels[1:], self.others, strict=True)):
            place = self.joined[self.joined[:, 0] == row, k + 1]
            if not len(place) or place[0] < 0:
                continue
            runtime = other.values.pair(int(place[0])).runtime
            counts = counts_over(runtime, edges)
            beyond = int(runtime.isfinite().sum()) - int(counts.sum())
            histograms.append({"label": label, "runtime": buffers.add_counts(counts), "beyond": beyond})
        return histograms

    def trees(self, rows: int, added: int) -> Iterator[tuple[str, Analysis, pd.DataFrame]]:
        parts = zip(self.labels[1:], self.others, self.frames[1:], self.places(rows, added), strict=True)
        for label, other, table, places in parts:
            yield label, other, table.reindex(np.where(places < 0, len(table), places)).reset_index(drop=True)


def _knows(name: str) -> Any:
    return lambda analysis: name in analysis.tables.rows and analysis.tables.rows[name].notna().any()


def _limits(name: str) -> Sequence[str]:
    return [f"{name}{end}" for end in LIMITS]


def _column(name: str, label: str, about: str, group: str, thresholds: tuple[float, float] | None = None) -> Column:
    return Column(name, label, "metric", group, about, "low", thresholds, visible=True)
