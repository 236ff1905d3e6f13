"""Matplotlib figures of an Inspection: the widget's charts without a browser.

The colours suit colour-blind readers and any background; the rest follows the current matplotlib style.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd

from etviz.analysis.analysis import Analysis
from etviz.artifacts.files import write_file
from etviz.comparison.gap import MISMATCH
from etviz.errors import UsageError, during
from etviz.graph.labels import describe_row, short_name
from etviz.tensors.metrics import METRICS, NAN
from etviz.text import shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes


REFERENCE: Final = "#0d84d8"
RUNTIME: Final = "#e8710a"
INTRODUCED: Final = "#d64550"
TOTAL: Final = "#8b93a1"
LOOK: Final = "#c76a0c"
FAULT: Final = "#b3261e"
_LEAST: Final = 0.1
"""Lower end of the severity axis; smaller errors look the same."""
_BANDS: Final = 16
_LETTERS: Final = 130
_NAMED: Final = 5
_FAINT: Final = 0.25
_LAYERS: Final = 60


class Plots:
    """Figures of one program; a `row` is as for `Inspection.row`, and every method returns matplotlib axes."""

    def __init__(self, analysis: Analysis) -> None:
        self._analysis = analysis

    @during("drawing a figure")
    def gaps(self, ax: Axes | None = None) -> Axes:
        """Severity along the program, as the view's profile shows it; `UsageError` if no value was compared.

        The total is a line; stems show the error that each operator introduces, coloured by how bad it is for its
        precision. Limits are dashed, the range that rounding explains is shaded, modules are bands. Unread values are
        left out.
        """
        from matplotlib.ticker import MaxNLocator

        tables = self._analysis.tables
        gaps = tables.rows.drop(index=list(tables.unused))
        if gaps.empty:
            raise UsageError("no value was compared, so there is no gap to draw; see inspection.coverage")
        gaps = gaps.sort_values(["event_block", "instruction", "output"], kind="stable")
        axes = _axes(ax, (9.0, 4.2))
        place = np.arange(len(gaps))
        total, introduced = (_finite(gaps[name]) for name in ("severity", "introduced_severity"))
        known = np.isfinite(introduced).any()
        name, severities = ("introduced_severity", introduced) if known else ("severity", total)
        look, fault = (np.array(ends)[gaps.index] for ends in tables.limits(name))
        mismatched = (gaps["status"] == MISMATCH).to_numpy()
        top = 2 * max(10.0, *(float(np.nanmax([*values, 0.0])) for values in (total, introduced, fault)))
        axes.set_yscale("log")
        axes.axhspan(_LEAST, 1, color=TOTAL, alpha=0.12, lw=0, zorder=0)
        axes.plot(place, np.fmax(total, _LEAST), color=TOTAL, lw=1.4, label="total", zorder=2)
        if known:
            colors = np.where((severities >= fault) | mismatched, FAULT, np.where(severities >= look, LOOK, TOTAL))
            axes.vlines(place, _LEAST, np.fmax(introduced, _LEAST), color=colors, lw=1.4, zorder=3)
            axes.scatter(place, np.fmax(introduced, _LEAST), s=12, c=colors, label="introduced", zorder=4)
        if mismatched.any():
            axes.plot(
                place[mismatched], np.full(mismatched.sum(), top / 1.3), "x", color=FAULT, ms=7, mew=2,
                label="NaN or Inf mismatch",
            )  # fmt: skip
        for ends, word, color in ((look, "look", LOOK), (fault, "fault", FAULT)):
            axes.step(place, ends, where="mid", color=color, lw=0.9, ls="--", zorder=1)
            if np.isfinite(ends[-1]):
                _write(axes, word, (1, ends[-1]), (3, -2), xycoords=("axes fraction", "data"), color=color)
        _write(axes, "noise", (1, 0.3), (3, -2), xycoords=("axes fraction", "data"), color=TOTAL)
        _bands(axes, list(gaps["module"].fillna("")))
        _name_worst(axes, gaps, severities, look)
        axes.set_ylim(_LEAST, top)
        axes.set_xlim(-0.7, len(gaps) - 0.3)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set(xlabel="value, in program order", ylabel="severity (1 = rounding or measured noise)")
        axes.set_title(shortened(self._analysis.title, 48), loc="left", fontsize="medium")
        axes.legend(loc="lower right", bbox_to_anchor=(1, 1), frameon=False, ncols=3, fontsize="small")
        return axes

    @during("drawing a figure")
    def histogram(self, row: Any, bins: int = 64, ax: Axes | None = None) -> Axes:
        """Reference and runtime values over shared bins; counts on a logarithmic axis where they differ much."""
        counted = self._analysis.values.histogram(row, bins)
        axes = _axes(ax, (6.4, 3.8))
        parts = (("reference (AOT)", counted.reference, REFERENCE), ("runtime", counted.runtime, RUNTIME))
        for label, counts, color in parts:
            if counts is not None:
                filled = label != "runtime"
                axes.stairs(
                    counts, counted.edges, color=color, lw=1.5, alpha=0.45 if filled else 1, fill=filled, label=label
                )
        most = [int(counts.max(initial=0)) for _, counts, _ in parts if counts is not None]
        seen = [counts[counts > 0] for _, counts, _ in parts if counts is not None]
        least = min((int(counts.min()) for counts in seen if len(counts)), default=1)
        if max(most) > 100 * least:
            axes.set_yscale("symlog", linthresh=1.0)
        axes.set_ylim(0)
        outside = int(counted.nonfinite.sum() - counted.nonfinite[0, 0]) if counted.nonfinite is not None else 0
        note = f", {outside} pairs with NaN or Inf left out" if outside else ""
        axes.set(xlabel=f"value{note}", ylabel="elements per bin", title=_row_title(self._analysis, row))
        axes.legend(frameon=False, fontsize="small")
        return axes

    @during("drawing a figure")
    def error_map(
        self,
        row: Any,
        of: str = "error",
        axes: Sequence[int] | None = None,
        index: Sequence[int] | None = None,
        ax: Axes | None = None,
    ) -> Axes:
        """A 2-D slice; every cell shows the worst element behind it, grey ones hold NaN or Inf."""
        from matplotlib.colors import Normalize, TwoSlopeNorm
        from matplotlib.ticker import MaxNLocator

        shown = self._analysis.values.error_map(row, of, axes, index)
        drawn = _axes(ax, (6.0, 4.6))
        height = len(shown.values)
        largest = max(abs(shown.low), abs(shown.high)) if np.isfinite(shown.low) else 1.0
        signed = of != "error"
        norm = TwoSlopeNorm(0.0, -(largest or 1.0), largest or 1.0) if signed else Normalize(0.0, largest or 1.0)
        sides = [shown.shape[axis] for axis in shown.axes]
        down, across = (sides if len(sides) == 2 else [1, *sides, 1][:2]) if height else (1, 1)
        values = shown.values if height else np.full((1, 1), NAN)
        drawn.set_facecolor("#9a9a9a")
        image = drawn.imshow(
            values,
            cmap="RdBu_r" if signed else "magma",
            norm=norm,
            interpolation="nearest",
            aspect="equal" if 0.2 < down / max(across, 1) < 5 else "auto",
            extent=(-0.5, across - 0.5, down - 0.5, -0.5),
        )
        words = {"error": "|runtime − reference|", "reference": "reference value", "runtime": "runtime value"}
        bar = drawn.figure.colorbar(image, ax=drawn, shrink=0.85)
        bar.set_label(words[of] + (" (largest of its cell)" if max(shown.block) > 1 else ""))
        place = [":" if axis in shown.axes else str(at) for axis, at in enumerate(shown.index)]
        drawn.set_title(f"{_row_title(self._analysis, row)}\n[{', '.join(place)}]", fontsize="medium")
        if shown.axes:
            drawn.set_xlabel(f"axis {shown.axes[-1]}")
        drawn.xaxis.set_major_locator(MaxNLocator(integer=True))
        drawn.yaxis.set_major_locator(MaxNLocator(integer=True))
        if len(shown.axes) == 2:
            drawn.set_ylabel(f"axis {shown.axes[0]}")
        else:
            drawn.set_yticks([])
        drawn.grid(visible=False)
        return drawn

    @during("drawing a figure")
    def channels(self, row: Any, axis: int = 1, ax: Axes | None = None) -> Axes:
        """RMSE (bars) and largest error (marks) for each index of an axis; the worst index is named."""
        from matplotlib.ticker import MaxNLocator

        channels = self._analysis.values.channel_error(row, axis)
        axes = _axes(ax, (7.2, 3.6))
        place = channels.index.to_numpy()
        rmse = _finite(channels["rmse"])
        if len(place) <= 200:
            axes.bar(place, rmse, width=0.8, color=INTRODUCED, alpha=0.85, label="RMSE")
        else:
            axes.fill_between(place, 0, rmse, step="mid", color=INTRODUCED, alpha=0.85, lw=0, label="RMSE")
        axes.plot(place, _finite(channels["max_abs"]), "_", color=TOTAL, ms=6, mew=1.5, label="largest |error|")
        if channels["share"].sum() > 0:
            worst = int(channels["share"].to_numpy().argmax())
            text = f"index {worst}: {channels['share'].iloc[worst]:.0%} of the squared error"
            _write(axes, text, (worst, rmse[worst]), (0, 4), ha="center")
        highest = np.nanmax([*_finite(channels["max_abs"]), 0.0])
        axes.set_ylim(0, 1.25 * highest or 1.0)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set(xlabel=f"index on {channels.index.name}", ylabel="error, in the tensor's units")
        axes.set_title(_row_title(self._analysis, row), fontsize="medium")
        axes.legend(frameon=False, fontsize="small", ncols=2)
        return axes

    @during("drawing a figure")
    def scatter(self, row: Any, bins: int = 128, ax: Axes | None = None) -> Axes:
        """Reference against runtime as a density, in fewer bins for few elements; equal values lie on the diagonal."""
        from matplotlib.colors import LogNorm

        elements = self._analysis.values.tensors(row)[1].numel()
        counted = self._analysis.values.scatter(row, min(bins, max(24, round(2 * elements**0.5))))
        axes = _axes(ax, (5.4, 4.6))
        shown = np.where(counted.counts > 0, counted.counts, NAN)
        norm = LogNorm(1, max(2, int(counted.counts.max(initial=0))))
        mesh = axes.pcolormesh(counted.edges, counted.edges, shown, cmap="cool", norm=norm)
        axes.axline((counted.edges[0], counted.edges[0]), slope=1, color=TOTAL, lw=0.9, ls="--", zorder=0.5)
        axes.grid(visible=False)
        axes.figure.colorbar(mesh, ax=axes, shrink=0.85, label="elements")
        axes.set(xlabel="reference value", ylabel="runtime value", aspect="equal")
        axes.set_title(_row_title(self._analysis, row), fontsize="medium")
        return axes

    @during("drawing a figure")
    def steps(self, by: str = "severity", ax: Axes | None = None) -> Axes:
        """A heat map of execution × layer, for example the decode steps of a language model.

        Each cell shows its worst value of the metric `by`, grey ones have no number. Layers are modules in program
        order, in as much detail as fits. Raises `UsageError` if the metric does not exist, or no value was compared.
        """
        from matplotlib.colors import LogNorm
        from matplotlib.ticker import MaxNLocator

        rows = self._analysis.tables.rows
        if by.removeprefix("introduced_") not in METRICS or by not in rows:
            raise UsageError(f"by must be a metric of gaps, found {by!r}")
        if rows.empty:
            raise UsageError("no value was compared, so there is no gap to draw; see inspection.coverage")
        table = step_table(rows, by)
        axes = _axes(ax, (9.0, 1.4 + 0.28 * len(table)))
        values = table.to_numpy(float)
        finite = values[np.isfinite(values) & (values > 0)]
        linear = METRICS[by.removeprefix("introduced_")].unit == "dB" or not len(finite)
        norm = None if linear else LogNorm(float(finite.min()), max(float(finite.max()), float(finite.min()) * 1.001))
        shown = np.where(np.isfinite(values) & (values > 0), values, NAN) if norm is not None else values
        mesh = axes.imshow(np.ma.masked_invalid(shown), aspect="auto", cmap="magma", norm=norm, interpolation="nearest")
        axes.set_facecolor(TOTAL)
        axes.grid(visible=False)
        axes.figure.colorbar(mesh, ax=axes, label=f"worst {by}")
        axes.set_xticks(range(len(table.columns)), list(table.columns), rotation=60, ha="right", fontsize="x-small")
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set(xlabel="layer, in program order", ylabel="execution")
        axes.set_title(shortened(self._analysis.title, 48), loc="left", fontsize="medium")
        return axes


Floats = np.ndarray[Any, np.dtype[np.float64]]


def step_table(rows: pd.DataFrame, by: str) -> pd.DataFrame:
    """The worst value of a metric for each execution (rows) and layer (columns, in program order)."""
    ordered = rows.sort_values(["event_block", "instruction"], kind="stable")
    paths = ordered["module"].fillna("").replace("", "(model)")
    names = paths
    for depth in range(1, 2 + int(paths.str.count(r"\.").max())):
        shorter = paths.str.split(".").str[:depth].str.join(".")
        if depth > 1 and shorter.nunique() > _LAYERS:
            break
        names = shorter
    better = METRICS[by.removeprefix("introduced_")].higher_is_better
    worst = ordered.groupby(["event_block", names.rename("layer")], sort=False)[by].agg("min" if better else "max")
    table = worst.unstack("layer")
    layers = ordered.assign(layer=names).groupby("layer")["instruction"].min().sort_values(kind="stable").index
    return table[list(layers)].sort_index().reset_index(drop=True)


def _bands(axes: Axes, modules: list[str]) -> None:
    bands: list[tuple[str, int, int]] = []
    for depth in range(1, 1 + max(path.count(".") + 1 for path in modules)):
        spans: list[tuple[str, int, int]] = []
        for at, path in enumerate(modules):
            text = ".".join(path.split(".")[:depth])
            if spans and (not path or spans[-1][0] == text):
                spans[-1] = (spans[-1][0], spans[-1][1], at + 1)
            else:
                spans.append((text, at, at + 1))
        if bands and len(spans) > _BANDS:
            break
        bands = spans
    for at, (text, first, end) in enumerate(bands):
        if at % 2 == 0:
            axes.axvspan(first - 0.5, end - 0.5, color=TOTAL, alpha=0.07, lw=0, zorder=0)
        if (end - first) * _LETTERS > len(text) * len(modules):
            middle = ((first + end - 1) / 2, 0)
            _write(axes, text, middle, (0, 3), xycoords=("data", "axes fraction"), ha="center", alpha=0.75)


def _name_worst(axes: Axes, gaps: pd.DataFrame, values: Floats, look: Floats) -> None:
    order = np.argsort(np.where(np.isfinite(values), values, -1.0))[::-1]
    taken: list[int] = []
    apart = 0.18 * len(gaps)
    for at in (int(k) for k in order):
        if len(taken) == _NAMED or not values[at] > 0 or (taken and not values[at] >= look[at]):
            return
        if any(abs(at - other) < apart for other in taken):
            continue
        taken.append(at)
        name = short_name(describe_row(gaps.iloc[at]), 32)
        offset, side = ((-4, 5), "right") if at > 0.8 * len(gaps) else ((4, 5), "left")
        _write(axes, name, (at, values[at]), offset, ha=side, zorder=5)


def _write(axes: Axes, text: str, place: tuple[float, float], offset: tuple[int, int], **more: Any) -> None:
    axes.annotate(text, place, xytext=offset, textcoords="offset points", fontsize="x-small", **more)


def _axes(ax: Axes | None, size: tuple[float, float]) -> Axes:
    if ax is None:
        import matplotlib.pyplot as plt

        _, ax = plt.subplots(figsize=size, layout="constrained")
    elif not hasattr(ax, "get_figure"):
        raise UsageError(f"ax must be Axes of matplotlib, found {type(ax).__name__}")
    ax.grid(axis="y", alpha=_FAINT, lw=0.6)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _finite(values: pd.Series) -> Floats:
    numbers = pd.to_numeric(values, errors="coerce").to_numpy(float)
    return np.where(np.isfinite(numbers), numbers, NAN)


def _row_title(analysis: Analysis, row: Any) -> str:
    place = analysis.rows.find(row)
    return f"{shortened(place.name, 48)} {list(place.about['shape'])} {place.about['dtype']}"


def save(draw: Callable[..., Axes], path: str | os.PathLike[str], *arguments: Any) -> Path:
    """A `UsageError` if matplotlib does not know the suffix, an `ArtifactError` if the file can't be written."""
    return write_file(path, "the picture", picture(draw, path, *arguments))


def picture(draw: Callable[..., Axes], name: str | os.PathLike[str], *arguments: Any) -> bytes:
    """Raises as `save`."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure, data, form = Figure(layout="constrained"), io.BytesIO(), Path(name).suffix.removeprefix(".")
    known = FigureCanvasAgg(figure).get_supported_filetypes()
    if form not in known:
        raise UsageError(f"a picture's name must end in one of {', '.join(f'.{one}' for one in known)}, found {name}")
    draw(*arguments, ax=figure.subplots())
    figure.savefig(data, format=form, bbox_inches="tight")
    return data.getvalue()
