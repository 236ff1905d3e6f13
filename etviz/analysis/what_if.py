"""The outputs if some values had been exact: the proof of a diagnosis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from etviz.comparison.final_outputs import outputs_frame
from etviz.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd

    from etviz.analysis.findings import Findings
    from etviz.analysis.rows import Call, Rows
    from etviz.analysis.zooms import Zooms


@dataclass(frozen=True, slots=True, eq=False)
class WhatIf:
    """The outputs of some executions, as they were and as they would have been.

    Attributes
    ----------
    rows
        The rows whose values were exact.
    runs
        Numbers of the executions; in a program with state, the later ones too.
    before, after
        The final outputs against the reference, in the columns of `Inspection.outputs`.
    outputs
        Those of `after`: tensors and plain values.
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
            blocks = list(dict.fromkeys(self.before["event_block"]))
            run = f"run {self.runs[blocks.index(was['event_block'])]}, " if len(self.runs) > 1 else ""
            lines.append(f"{run}output {int(was['output'])}: rmse {was['rmse']:.3g} → {now['rmse']:.3g}")
        return "\n".join(lines)


def what_if(rows: Rows, chosen: Any, insides: Mapping[Call, Findings], zooms: Zooms) -> WhatIf:
    from etviz.explain.counterfactual import counterfactual, outputs_inside

    places = list({place.number: place for place in map(rows.find, _listed(chosen))}.values())
    compared, counterpart = rows.tables.compared, rows.tables.counterpart
    if any(place.gap.pairing == "handles" for place in places):
        raise UsageError(
            "what_if needs the operators of each instruction, and these artifacts only tell groups of them; "
            "give the program (pte=) and its ETRecord, or the record (record=)"
        )
    exact: dict[int, set[tuple[int, int]]] = {}
    inner: dict[Call, set[tuple[int, int]]] = {}
    for place in places:
        value = place.gap.instruction, place.gap.output
        if place.inside is None:
            exact.setdefault(place.gap.run, set()).add(counterpart.value(*value))
        elif counterpart.own is not None:
            raise UsageError(
                "the reference is no form of the program: what_if takes rows of the program, not inner ones"
            )
        else:
            exact.setdefault(place.inside[0], set())
            inner.setdefault(place.inside, set()).add(value)
    instead: dict[int, dict[int, list[Any]]] = {}
    for (run, instruction), chosen_values in inner.items():
        replay, piece = insides[run, instruction].compared.replay, zooms.piece(zooms.first_row((run, instruction)))
        if replay is None:
            raise UsageError(f"the inside of #{instruction} can't be evaluated again; take the delegate's row")
        values = outputs_inside(replay, piece.outputs, chosen_values)
        instead.setdefault(run, {})[instruction] = values
    until = max(exact)
    while until + 1 < len(compared.runs) and compared.runs[until + 1].comparison.reference_outputs:
        until += 1
    outputs = counterfactual(counterpart.replay, exact, instead, until)
    runs = [compared.runs[number] for number in outputs]
    after = [
        run._replace(comparison=replace(run.comparison, runtime_outputs=given))
        for run, given in zip(runs, outputs.values(), strict=True)
    ]
    return WhatIf(
        tuple(place.number for place in places),
        tuple(place.name for place in places),
        tuple(outputs),
        outputs_frame(runs),
        outputs_frame(after),
        [value for given in outputs.values() for value in given],
    )


def _listed(chosen: Any) -> Sequence[Any]:
    several = list(chosen) if isinstance(chosen, (list, tuple, set, frozenset, range)) else [chosen]
    if not several:
        raise UsageError("rows must name at least one row of gaps, found none")
    return several
