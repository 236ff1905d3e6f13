"""One comparison as tables, all of them computed from the same gaps."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from etviz.analysis.summary import Summary, first_divergence, summarize
from etviz.artifacts.files import collection_paused
from etviz.comparison.outputs import outputs_frame
from etviz.comparison.references import References
from etviz.comparison.tables import coverage_frame, gap_frame, rank
from etviz.graph.uses import unused
from etviz.tensors.metrics import limits

if TYPE_CHECKING:
    import pandas as pd

    from etviz.analysis.findings import Compared, Findings
    from etviz.comparison.constants import Difference


class Tables:
    """The tables of one comparison. Nothing in them changes; another comparison has tables of its own.

    Parameters
    ----------
    findings
        What is known of the program.
    compared
        The comparison.

    Attributes
    ----------
    rows
        A row for each compared value, with its ``stack``.
    gaps
        What is behind each row.
    """

    def __init__(self, findings: Findings, compared: Compared) -> None:
        self._findings = findings
        self.compared = compared
        with collection_paused():
            self.rows, self.gaps = gap_frame(findings.graph, compared.runs, findings.latency)

    def __len__(self) -> int:
        return len(self.gaps)

    @cached_property
    def coverage(self) -> pd.DataFrame:
        """Every instruction, with `status` and `reason`."""
        return coverage_frame(self._findings.graph, self.compared.runs)

    @cached_property
    def outputs(self) -> pd.DataFrame:
        """Each final output against the reference."""
        return outputs_frame(self.compared.runs)

    @cached_property
    def on_grid(self) -> frozenset[int]:
        """Rows whose values lie on a quantization grid."""
        metas = ((row, gap.node.outputs[gap.output : gap.output + 1]) for row, gap in enumerate(self.gaps))
        return frozenset(row for row, meta in metas if meta and meta[0] is not None and meta[0].scale is not None)

    @cached_property
    def unused(self) -> frozenset[int]:
        """Rows whose value nobody reads: an error in it does no harm."""
        values = unused(self._findings.graph)
        return frozenset(row for row, gap in enumerate(self.gaps) if (gap.node.name, gap.output) in values)

    def ranked(self, by: str) -> pd.DataFrame:
        """The rows, worst first by a column; see `rank`."""
        return rank(self.rows, by, self.unused)

    def limits(self, name: str) -> tuple[list[float], list[float]]:
        """From which severity each row deserves a look and is a fault, by its precision or its measured noise.

        `name` is ``severity`` or ``introduced_severity``; NaN where no severity is either.
        """
        noises = self.rows[name.replace("severity", "noise")]
        pairs = [
            limits("severity", str(dtype), on_grid=row in self.on_grid, noise=float(noise))
            for row, (dtype, noise) in enumerate(zip(self.rows["dtype"], noises, strict=True))
        ]
        return [look for look, _ in pairs], [fault for _, fault in pairs]

    @cached_property
    def first_divergence(self) -> pd.Series | None:
        """The row of the first instruction whose introduced error is more than its precision explains."""
        row = first_divergence(self.rows, self.on_grid, self.unused)
        return None if row is None else row.drop("stack")

    @cached_property
    def digest(self) -> Summary:
        """Verdict, facts and notes."""
        notes = [*self._findings.notes, *self.compared.notes]
        found, comparisons = self._findings, [run.comparison for run in self.compared.runs]
        return summarize(
            self.rows,
            self.coverage,
            self.outputs,
            found.delegation,
            notes,
            self.on_grid,
            found.constants,
            [item.judged for item in comparisons],
            self.unused,
            next((item.undetermined for item in comparisons if item.undetermined), ""),
        )

    @property
    def constants(self) -> tuple[Difference, ...]:
        """Constants of the `.pte` that are not those of the reference."""
        return self._findings.constants

    @property
    def known_digest(self) -> Summary | None:
        """The digest if it was asked for before; computes nothing."""
        return vars(self).get("digest")

    @property
    def introduced(self) -> bool:
        """True if introduced gaps are computed."""
        return any(gap.introduced is not None for gap in self.gaps)

    @cached_property
    def recall(self) -> References | None:
        """Gives back reference tensors that the comparison did not keep."""
        return References(self.compared.replay) if self.compared.replay is not None else None
