"""What if: the outputs as they would have been if some values had been exact; the proof of a diagnosis."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from etviz.comparison.outputs import outputs_frame
from etviz.errors import UsageError
from etviz.graph.labels import describe_row

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from etviz.analysis.rows import Place, Rows


@dataclass(frozen=True, slots=True, eq=False)
class WhatIf:
    """The outputs of some executions, as they were and as they would have been.

    Attributes
    ----------
    rows
        The gap rows whose values were taken as exact: their operators' own values on the runtime's inputs. For a row
        inside a delegate these are the rows of the delegate call.
    names
        What people call them.
    runs
        Numbers of the executions.
    before, after
        The final outputs against the reference, in the columns of `Inspection.outputs`: as the runtime had them, and
        as they would have been.
    outputs
        The final outputs as they would have been, in the order of `after`: tensors and plain values.
    """

    rows: tuple[int, ...]
    names: tuple[str, ...]
    runs: tuple[int, ...]
    before: pd.DataFrame
    after: pd.DataFrame
    outputs: list[Any]

    def __repr__(self) -> str:
        lines = [f"With {', '.join(self.names)} exact:"]
        for (_, was), (_, now) in zip(self.before.iterrows(), self.after.iterrows(), strict=True):
            run = f"run {int(was['event_block'])}, " if len(self.runs) > 1 else ""
            lines.append(f"{run}output {int(was['output'])}: rmse {was['rmse']:.3g} → {now['rmse']:.3g}")
        return "\n".join(lines)


def what_if(rows: Rows, chosen: Any) -> WhatIf:
    """See `Inspection.what_if`."""
    from etviz.explain.counterfactual import counterfactual

    places = list({place.at: place for row in _listed(chosen) for place in _own(rows, row)}.values())
    compared = rows.tables.compared
    if compared.replay is None:
        raise UsageError("There is no reference that could be run again, so there is no what if; see summary()")
    if any(place.gap.pairing == "handles" for place in places):
        raise UsageError(
            "what_if needs the operators of each instruction, and these artifacts only tell groups of them; "
            "give the program (pte=) and its ETRecord, or the record (record=)"
        )
    exact: dict[int, set[tuple[int, int]]] = {}
    for place in places:
        exact.setdefault(place.gap.run, set()).add((place.gap.instruction, place.gap.output))
    outputs = counterfactual(compared.replay, exact)
    runs = [compared.runs[number] for number in outputs]
    after = [
        run._replace(comparison=replace(run.comparison, runtime_outputs=given))
        for run, given in zip(runs, outputs.values(), strict=True)
    ]
    return WhatIf(
        tuple(place.at for place in places),
        tuple(describe_row(place.about) for place in places),
        tuple(outputs),
        outputs_frame(runs),
        outputs_frame(after),
        [value for given in outputs.values() for value in given],
    )


def _own(rows: Rows, row: Any) -> list[Place]:
    """The places of a row in the program; those of the delegate call for a row inside a delegate."""
    place = rows.find(row)
    if place.inside is None:
        return [place]
    own = enumerate(rows.tables.gaps)
    return [rows.find(at) for at, gap in own if (gap.run, gap.instruction) == place.inside]


def _listed(chosen: Any) -> Sequence[Any]:
    several = list(chosen) if isinstance(chosen, (list, tuple, set, frozenset, range)) else [chosen]
    if not several:
        raise UsageError("rows must name at least one row of gaps, found none")
    return several
