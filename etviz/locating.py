"""The part of an Inspection that looks into one pair of tensors: where the error is, and what it looks like."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from etviz.whole import Whole

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from etviz.numerics.density import Scatter
    from etviz.numerics.location import ErrorMap


class Locating(Whole):
    """A part of `Inspection`."""

    def fingerprints(self, row: Any, *, force: bool = False) -> pd.DataFrame:
        """Likely classes of bug of a gap row: hypotheses with their evidence, best first.

        Tried are permuted layout, sign, dtype truncation, a shift by one, wrong zero-point, clipping, border pixels,
        a single bad channel, a scale factor, a constant offset and a constant output.

        Parameters
        ----------
        row
            Index of the gap row, or the row.
        force
            Also look at a row whose error is ordinary rounding, or inherited from earlier instructions.

        Returns
        -------
        DataFrame
            ``name``; ``score`` from 0.6 to 1, the share of the squared error that the hypothesis explains less what
            chance would; ``evidence``, a sentence. Empty where nothing fits.

        Raises
        ------
        UsageError
            If there is no such row, or it has no reference.
        """
        import pandas as pd

        from etviz.numerics.fingerprints import fingerprints, is_bad

        gap = self._gap(row)
        reference, runtime = self.tensors(row)
        meta = gap.node.outputs[gap.output] if gap.output < len(gap.node.outputs) else None
        scale = meta.scale if meta is not None else None
        own = gap.introduced_sums
        found = []
        if force or own is None or own.mismatched or is_bad(own, runtime.dtype, scale):
            found = fingerprints(reference, runtime, scale=scale, force=force)
        return pd.DataFrame([(f.name, f.score, f.evidence) for f in found], columns=["name", "score", "evidence"])

    def channel_error(self, row: Any, axis: int = 1) -> pd.DataFrame:
        """The error of a gap row for each index of an axis.

        Parameters
        ----------
        row
            Index of the gap row, or the row.
        axis
            The axis, negative from the end. A single number has one axis.

        Returns
        -------
        DataFrame
            By index on the axis: ``rmse`` and ``max_abs`` in the tensor's units, ``share`` of Σd², ``count`` of pairs
            that are finite in both, ``nonfinite`` ones that were left out.

        Raises
        ------
        UsageError
            If there is no such row or axis, or the row has no reference.
        """
        import pandas as pd

        from etviz.numerics.location import channel_error

        found = channel_error(*self.tensors(row), axis)
        columns = ("rmse", "max_abs", "share", "count", "nonfinite")
        index = pd.RangeIndex(len(found.rmse), name=f"axis {found.axis}")
        return pd.DataFrame({name: getattr(found, name) for name in columns}, index=index)

    def error_map(
        self,
        row: Any,
        of: str = "error",
        axes: Sequence[int] | None = None,
        index: Sequence[int] | None = None,
        size: int = 256,
    ) -> ErrorMap:
        """A 2-D slice of a gap row's error, reference or runtime values; see `etviz.numerics.location.error_map`."""
        from etviz.numerics.location import error_map

        return error_map(*self.tensors(row), of, axes, index, size)

    def scatter(self, row: Any, bins: int = 64) -> Scatter:
        """Reference against runtime values of a gap row as a density; see `etviz.numerics.density.scatter`."""
        from etviz.numerics.density import scatter

        return scatter(*self.tensors(row), bins)

    def plot_gaps(self, ax: Axes | None = None) -> Axes:
        """Severity along the program, total and introduced, with the thresholds and the worst rows named."""
        return _plots().plot_gaps(self, ax)

    def plot_histogram(self, row: Any, bins: int = 64, ax: Axes | None = None) -> Axes:
        """Reference and runtime values of a gap row over shared bins."""
        return _plots().plot_histogram(self, row, bins, ax)

    def plot_error_map(
        self,
        row: Any,
        of: str = "error",
        axes: Sequence[int] | None = None,
        index: Sequence[int] | None = None,
        ax: Axes | None = None,
    ) -> Axes:
        """A 2-D slice of a gap row; the arguments are those of `error_map`."""
        return _plots().plot_error_map(self, row, of, axes, index, ax)

    def plot_channels(self, row: Any, axis: int = 1, ax: Axes | None = None) -> Axes:
        """RMSE and largest error of a gap row for each index of an axis."""
        return _plots().plot_channels(self, row, axis, ax)

    def plot_scatter(self, row: Any, bins: int = 128, ax: Axes | None = None) -> Axes:
        """Reference against runtime values of a gap row, as a density."""
        return _plots().plot_scatter(self, row, bins, ax)


def _plots() -> Any:
    """The figures, looked up only when something is drawn: views know Inspections, not the reverse."""
    import importlib

    return importlib.import_module("etviz.view.plots")
