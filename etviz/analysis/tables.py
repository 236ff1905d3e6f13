"""The tables of one comparison."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from etviz.analysis.findings import Compared, Findings
from etviz.artifacts.files import collection_paused
from etviz.comparison.final_outputs import outputs_frame
from etviz.comparison.gap import NOT_COMPARED, WRONG, Gap
from etviz.comparison.gap_tables import coverage_frame, gap_frame, rank
from etviz.comparison.references import References
from etviz.errors import UsageError
from etviz.graph.ir import Graph
from etviz.graph.labels import RowAddress, row_names
from etviz.graph.uses import unused
from etviz.tensors.metrics import limits

if TYPE_CHECKING:
    import pandas as pd

    from etviz.comparison.constants import Difference
    from etviz.explain.stages.against import Counterpart


def address(gap: Gap, call: tuple[int, int] | None) -> RowAddress:
    if call is None:
        return RowAddress(gap.instruction, -1, gap.output, gap.run)
    return RowAddress(call[1], gap.instruction, gap.output, call[0])


class Tables:
    def __init__(self, findings: Findings, compared: Compared) -> None:
        self._findings = findings
        self.compared = compared
        with collection_paused():
            self.rows, self.gaps = gap_frame(findings.graph, compared.runs, findings.latency)
            told = (self.rows[column] for column in ("kind", "op", "reference_ops", "module"))
            addresses = (address(gap, findings.call) for gap in self.gaps)
            self.rows.insert(0, "name", row_names(list(zip(addresses, *told, strict=True))))
            self.rows["name"] = self.rows["name"].astype("str")  # also without a row

    def __len__(self) -> int:
        return len(self.gaps)

    @property
    def graph(self) -> Graph:
        return self._findings.graph

    @property
    def counterpart(self) -> Counterpart:
        """A `UsageError` if there is none."""
        reference, replay = self._findings.reference, self.compared.replay
        if reference is not None and reference.counterpart is None:
            raise UsageError(
                f"The outputs are compared with {reference.name}, whose operators can't be evaluated with this run's "
                "values, so no share of that error is known; give a model as the reference, or none"
            )
        if replay is None:
            raise UsageError(
                "There is no reference that could run again, so no share of an error is known; see summary()"
            )
        from etviz.explain.stages.against import Counterpart

        return Counterpart(replay) if reference is None or reference.counterpart is None else reference.counterpart

    @cached_property
    def addresses(self) -> dict[str, int]:
        return {name.split(" ", 1)[0]: at for at, name in reversed(list(enumerate(self.rows["name"])))}

    @cached_property
    def modules(self) -> dict[str, list[int]]:
        """Positions of the first execution's rows, without values that nobody reads."""
        modules: dict[str, list[int]] = {}
        for at, module in enumerate(self.rows["module"]):
            if module and at not in self.unused and self.gaps[at].run == self.gaps[0].run:
                modules.setdefault(module, []).append(at)
        return modules

    @cached_property
    def coverage(self) -> pd.DataFrame:
        return coverage_frame(self._findings.graph, self.compared.runs)

    @cached_property
    def outputs(self) -> pd.DataFrame:
        return outputs_frame(self.compared.runs)

    @cached_property
    def unused(self) -> frozenset[int]:
        """Rows whose value no operator reads: an error in it does no harm."""
        values = unused(self._findings.graph)
        return frozenset(row for row, gap in enumerate(self.gaps) if (gap.node.name, gap.output) in values)

    @cached_property
    def program_order(self) -> list[int]:
        places = [(gap.run, gap.instruction, gap.output) for gap in self.gaps]
        return sorted(range(len(self)), key=places.__getitem__)

    @cached_property
    def worst_run(self) -> int:
        """The execution with the worst final outputs; 0 if none was compared."""
        known = self.outputs[self.outputs["status"] != NOT_COMPARED]
        if known.empty:
            return 0
        keys = known.assign(right=~known["status"].isin(WRONG), matches=known["matches"].astype(bool))
        worst = keys.sort_values(["right", "matches", "close"], kind="stable").iloc[0]
        blocks = [run.event_block for run in self.compared.runs]
        return blocks.index(int(worst["event_block"]))

    def first_wrong(self, run: int) -> int | None:
        wrong = (at for at in self.program_order if self.gaps[at].run == run and at not in self.unused)
        return next((self.gaps[at].instruction for at in wrong if self.gaps[at].total_level in ("warn", "bad")), None)

    def level(self, row: int) -> str:
        gap = self.gaps[row]
        return gap.level if self.introduced else gap.total_level

    def ranked(self, by: str) -> pd.DataFrame:
        return rank(self.rows, by, self.unused)

    def limits(self, name: str) -> tuple[list[float], list[float]]:
        """The severities from which each row deserves a look and is a fault; NaN without a severity."""
        dtypes = self.rows["dtype"].astype(str)
        by_dtype = {dtype: limits("severity", dtype) for dtype in set(dtypes)}
        pairs = [by_dtype[dtype] for dtype in dtypes]
        return [look for look, _ in pairs], [fault for _, fault in pairs]

    @property
    def constants(self) -> tuple[Difference, ...]:
        return self._findings.constants

    @property
    def introduced(self) -> bool:
        return any(gap.introduced is not None or gap.introduced_different for gap in self.gaps)

    @cached_property
    def recall(self) -> References | None:
        return References(self.compared.replay) if self.compared.replay is not None else None
