"""The two tensors of a row, where they differ, and what the difference looks like."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from etviz.analysis.rows import Located, Rows
from etviz.comparison.constants import SAME
from etviz.comparison.hypotheses import fits
from etviz.errors import EtvizError, UsageError, during
from etviz.tensors.channels import channel_error
from etviz.tensors.error_map import ErrorMap
from etviz.tensors.fingerprints import WEIGHTS, Fingerprint, fingerprints
from etviz.tensors.histogram import Histogram, histogram
from etviz.tensors.scatter import Scatter

if TYPE_CHECKING:
    import torch

    from etviz.comparison.gap import Gap


@dataclass(frozen=True, slots=True)
class RowPair:
    """The tensors of a row; `missing` says why there is no `reference`.

    `level` is of the introduced error where it is known, else of the total.
    """

    gap: Gap
    reference: torch.Tensor | None
    runtime: torch.Tensor
    missing: str = ""
    level: str = "bad"
    hypothesis: Fingerprint | None = None

    @property
    def scale(self) -> float | None:
        outputs, output = self.gap.node.outputs, self.gap.output
        meta = outputs[output] if output < len(outputs) else None
        return meta.scale if meta is not None else None

    @during("looking for classes of bugs")
    def fingerprints(self, *, force: bool = False) -> list[dict[str, Any]]:
        if self.reference is None or not (force or self.level != "ok"):
            return []
        candidates = fingerprints(self.reference, self.runtime, scale=self.scale, force=True)
        on_grid = self.scale is not None
        candidates = [item for item in candidates if fits(item.name, self.gap.operators, on_grid=on_grid)]
        best = self.hypothesis
        if best is not None:  # what it explains as well needs no other name
            candidates = [best, *(fingerprint for fingerprint in candidates if fingerprint.score > best.score)]
        return [asdict(fingerprint) for fingerprint in candidates]


class RowTensors:
    """`constants` is a weak method: its owner owns this."""

    def __init__(self, rows: Rows, check_files: Callable[[], None], constants: Callable[[], Any]) -> None:
        self._rows, self._check_files, self._constants = rows, check_files, constants

    @during("fetching the tensors of a row")
    def pair(self, row: Any) -> RowPair:
        self._check_files()
        place = self._rows.find(row)
        gap = place.gap
        if gap.unpaired:
            return RowPair(gap, None, gap.runtime, gap.unpaired)
        level = gap.total_level if gap.level == "unknown" else gap.level
        reference = gap.reference
        if reference is None and place.tables.recall is not None:
            reference = place.tables.recall.reference(gap)
        missing = "" if reference is not None else "it could not be computed again"
        hypothesis = self._hypothesis(place)
        if hypothesis is not None and self._is_refuted(place, hypothesis):
            hypothesis = None
        return RowPair(gap, reference, gap.runtime, missing, level, hypothesis)

    def _is_refuted(self, place: Located, hypothesis: Fingerprint) -> bool:
        """By the constants of the `.pte`: it has another one, or the weight that is said to differ."""
        if hypothesis.name != WEIGHTS and not place.tables.constants:
            return False
        constants = self._constants()
        if constants is None:
            return False
        try:
            table = constants(place.number)
        except EtvizError:
            return False
        read = dict(zip(table["name"], table["pte"], strict=True))
        blamed = read.keys() & set(hypothesis.evidence.split()) if hypothesis.name == WEIGHTS else set()
        differing = {item.name: item for item in place.tables.constants if item.name in read}
        if any(item.is_grid for item in differing.values()):
            return False  # a weight's steps make its numbers, too
        return not blamed & differing.keys() if differing else any(read[name] == SAME for name in blamed)

    def _hypothesis(self, place: Located) -> Fingerprint | None:
        gap, tables, beyond = place.gap, place.tables, ("warn", "bad")
        if gap.hypothesis is not None or place.inside is None or gap.level not in beyond:
            return gap.hypothesis
        wrong = [at for at, other in enumerate(tables.gaps) if other.level in beyond and at not in tables.unused]
        outer = (item for item in self._rows.tables.gaps if (item.run, item.instruction) == place.inside)
        hypothesis = next((outer_gap.hypothesis for outer_gap in outer if outer_gap.hypothesis is not None), None)
        return hypothesis if wrong == [place.at] and hypothesis is not None and hypothesis.name == WEIGHTS else None

    def tensors(self, row: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """``(reference, runtime)``; `UsageError` without one."""
        if isinstance(row, pd.Series) and "instruction" not in row and "output" in row:
            return self._final_output(row)
        pair = self.pair(row)
        if pair.reference is None:
            raise UsageError(f"row {self._rows.find(row).name} has no reference tensor: {pair.missing}")
        return pair.reference, pair.runtime

    def _final_output(self, row: pd.Series) -> tuple[torch.Tensor, torch.Tensor]:
        from etviz.comparison.measurement import as_tensor

        self._check_files()
        block, at = row["event_block"], row["output"]
        matching = self._rows.tables.outputs.query("event_block == @block and output == @at")
        if matching.empty or not matching.iloc[0].equals(row):
            raise UsageError(
                f"row must be a row of this Inspection's outputs, found output {at} of event block {block} "
                "with other values: it is a row of another Inspection"
            )
        run = next(run for run in self._rows.tables.compared.runs if run.event_block == block)
        sides = run.comparison.reference_outputs, run.comparison.runtime_outputs
        reference, runtime = (as_tensor(values[at]) if 0 <= at < len(values) else None for values in sides)
        if reference is None or runtime is None:
            what = "reference" if reference is None else "runtime"
            raise UsageError(
                f"output {at} of event block {row['event_block']} has no {what} tensor; run_outputs has "
                "what each execution returned"
            )
        return reference, runtime

    @during("counting a histogram")
    def histogram(self, row: Any, bins: int = 64) -> Histogram:
        pair = self.pair(row)
        return histogram(pair.reference, pair.runtime, bins)

    def fingerprints(self, row: Any, *, force: bool = False) -> pd.DataFrame:
        self.tensors(row)
        return pd.DataFrame(self.pair(row).fingerprints(force=force), columns=["name", "score", "evidence"])

    @during("measuring the channels")
    def channel_error(self, row: Any, axis: int = 1) -> pd.DataFrame:
        error = channel_error(*self.tensors(row), axis)
        columns = ("rmse", "max_abs", "share", "count", "nonfinite")
        index = pd.RangeIndex(len(error.rmse), name=f"axis {error.axis}")
        return pd.DataFrame({name: getattr(error, name) for name in columns}, index=index)

    @during("drawing an error map")
    def error_map(
        self,
        row: Any,
        of: str = "error",
        axes: Sequence[int] | None = None,
        index: Sequence[int] | None = None,
        size: int = 256,
    ) -> ErrorMap:
        from etviz.tensors.error_map import error_map

        return error_map(*self.tensors(row), of, axes, index, size)

    @during("counting a scatter plot")
    def scatter(self, row: Any, bins: int = 64) -> Scatter:
        from etviz.tensors.scatter import scatter

        return scatter(*self.tensors(row), bins)
