"""Planned memory and what crosses the boundaries of delegates, by instruction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from etviz.artifacts.program.memory import planned_memory

if TYPE_CHECKING:
    import pandas as pd

    from etviz.artifacts.program.program import Method

_FROM_LEDGER: Final = ["instruction", "name", "kind", "backend", "module", "source"]


def memory_frame(method: Method, ledger: pd.DataFrame) -> pd.DataFrame:
    """See `Inspection.memory`; `ledger` is in program order."""
    found = planned_memory(method)
    frame = ledger[_FROM_LEDGER].copy()
    frame["live_bytes"] = [found.live.get(at, 0) for at in frame["instruction"]]
    frame["made_bytes"] = [found.made.get(at, 0) for at in frame["instruction"]]
    frame["boundary_bytes"] = (ledger["bytes_in"] + ledger["bytes_out"]).where(ledger["kind"] == "delegate", 0.0)
    frame.attrs["planned_bytes"] = found.planned
    return frame
