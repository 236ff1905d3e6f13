"""What if: the outputs as they would have been, had some values been exact; the proof of a diagnosis."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from etviz.comparison.outputs import outputs_frame
from etviz.errors import UsageError
from etviz.graph.labels import describe_row

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from etviz.analysis.rows import Rows


@dataclass(frozen=True, slots=True, eq=False)
class WhatIf:
    """The outputs of one execution, as they were and as they would have been.

    Attributes
    ----------
    rows
        The gap rows whose values were taken as exact: what their operators give on their inputs.
    names
        What people call them.
    run
        Number of the execution.
    before, after
        The final outputs against the reference, in the columns of `Inspection.outputs`: as the runtime had them, and
        as they would have been.
    outputs
        The final outputs as they would have been: tensors and plain values.
    """

    rows: tuple[int, ...]
    names: tuple[str, ...]
    run: int
    before: pd.DataFrame
    after: pd.DataFrame
    outputs: list[Any]

    def __repr__(self) -> str:
        lines = [f"With {', '.join(self.names)} exact:"]
        for (_, was), (_, now) in zip(self.before.iterrows(), self.after.iterrows(), strict=True):
            lines.append(f"output {int(was['output'])}: rmse {was['rmse']:.3g} → {now['rmse']:.3g}")
        return "\n".join(lines)


def what_if(rows: Rows, chosen: Any) -> WhatIf:
    """See `Inspection.what_if`."""
    from etviz.explain.counterfactual import counterfactual

    places = [rows.own(row) for row in _listed(chosen)]
    compared = rows.tables.compared
    if compared.replay is None:
        raise UsageError("There is no reference that could be run again, so there is no what if; see summary()")
    runs = {place.gap.run for place in places}
    if len(runs) != 1:
        raise UsageError(f"rows must be of one execution, found rows of {len(runs)}")
    if any(place.gap.pairing == "handles" for place in places):
        raise UsageError(
            "what_if needs the operators of each instruction, and these artifacts only tell groups of them; "
            "give the program (pte=) and its ETRecord, or the record (record=)"
        )
    number = runs.pop()
    run = compared.runs[number]
    outputs = counterfactual(compared.replay, number, {(place.gap.instruction, place.gap.output) for place in places})
    return WhatIf(
        tuple(place.at for place in places),
        tuple(describe_row(place.about) for place in places),
        number,
        outputs_frame([run]),
        outputs_frame([run._replace(comparison=replace(run.comparison, runtime_outputs=outputs))]),
        outputs,
    )


def _listed(chosen: Any) -> Sequence[Any]:
    """One row or several; a row of gaps is one."""
    several = list(chosen) if isinstance(chosen, (list, tuple, set, frozenset, range)) else [chosen]
    if not several:
        raise UsageError("rows must name at least one row of gaps, found none")
    return several
