"""Tables about a program that a view asks for by name: the constants of a row, a repro, the ladder, a fix."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from etviz.errors import UsageError
from etviz.tensors.metrics import figure

if TYPE_CHECKING:
    import pandas as pd

    from etviz.view.widget.state import ViewState

_MOST: Final = 50
_LADDER: Final = ("operator", "stage", "against", "rmse", "severity", "status")


def offered(state: ViewState) -> list[str]:
    if state.nodes == 0:  # no call of a language model is open
        return []
    findings = state.analysis.findings
    if state.analysis.tables.compared.replay is None:
        return []
    names = ["constants", "repro"] + ([] if findings.zoom is not None else ["ladder"])
    return names + (["suggest"] if state.suggest is not None and findings.made.get("model") is not None else [])


def explain(state: ViewState, params: dict[str, Any]) -> dict[str, Any]:
    """A table: ``title``, ``head``, ``rows`` of texts, and ``text`` below them."""
    what, row, analysis = params.get("what"), params.get("row"), state.analysis
    if what not in offered(state):
        raise UsageError(f"there is no explanation {str(what)[:40]!r} of this program")
    if what == "constants":
        frame = analysis.constants(row)
        return _table("Constants", frame, list(frame.columns), "" if len(frame) else "It reads none.")
    if what == "repro":
        path = Path(f"repro-{analysis.rows.find(row).number}").absolute()
        return _table("Repro", None, (), f"Written to {analysis.repro(row, path)}; run repro.py in it.")
    if what == "ladder":
        frame = analysis.ladder()
        wrong = frame[frame["status"] == "differs"].replace({"operator": {"": "final output"}})
        stages = ", ".join(dict.fromkeys([*frame["against"], *frame["stage"]]))
        told = f"No value differs beyond its noise between two stages: {stages}."
        return _table("Ladder: steps that differ beyond noise", wrong, _LADDER, "" if len(wrong) else told)
    suggestion: Any = state.suggest and state.suggest()
    frame = suggestion.table.reset_index(names="")
    return _table("Suggested fix", frame, list(frame.columns), f"{suggestion.reason}\n\n{suggestion.code}".strip())


def _table(title: str, frame: pd.DataFrame | None, columns: Sequence[str], text: str) -> dict[str, Any]:
    head = list(columns) if frame is not None and len(frame) else []
    rows = [] if frame is None else [[_cell(value) for value in row] for row in frame[head].head(_MOST).to_numpy()]
    return {"title": title, "head": head, "rows": rows if head else [], "text": text}


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return "–" if math.isnan(value) else figure(value, 4)
    return str(list(value) if isinstance(value, tuple) else value)
