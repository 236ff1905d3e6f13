"""What a person has to know first, in one sentence: which row to look at, and what is wrong with it."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from etviz.analysis.summary import first_divergence, row_level, row_of
from etviz.comparison.constants import differing
from etviz.comparison.gap import MISMATCH, shared_with
from etviz.comparison.inputs import FIRST_FAR_OFF
from etviz.graph.labels import describe_row

if TYPE_CHECKING:
    from etviz.analysis.attribution import Attributions
    from etviz.analysis.rows import Rows
    from etviz.analysis.tables import Tables
    from etviz.analysis.values import Values

logger = logging.getLogger(__name__)

_LARGE_SHARE: Final = 0.01


@dataclass(frozen=True, slots=True)
class Finding:
    """The sentence.

    Attributes
    ----------
    row
        The gap row to look at first.
    text
        The sentence.
    level
        ``ok``, ``warn`` or ``bad``.
    fingerprint
        The likely class of bug; empty if none is known.
    """

    row: int
    text: str
    level: str
    fingerprint: str = ""


class Finder:
    """Finds it in the newest comparison of a program.

    Parameters
    ----------
    rows, values, attributions
        Of the program.
    """

    def __init__(self, rows: Rows, values: Values, attributions: Attributions) -> None:
        self._rows, self._values, self._attributions = rows, values, attributions
        self._evidence: tuple[Tables, int, tuple[str, str]] | None = None

    def finding(self) -> Finding | None:
        """The sentence; None if nothing was compared."""
        tables = self._rows.tables
        if not len(tables):
            return None
        if constants := tables.constants:
            text = f"The .pte holds other weights than the reference: {differing(constants)}."
            return Finding(row_of(tables.rows, constants) or 0, text, "bad")
        divergent = first_divergence(tables.rows, tables.on_grid, tables.unused)
        if divergent is not None:
            return self._divergence(tables, divergent)
        known = "introduced_severity" in tables.rows and not tables.rows["introduced_severity"].isna().all()
        by = "introduced_severity" if known else "severity"
        worst = tables.ranked(by).iloc[0]
        name, row = _named(worst), _number(worst)
        if not known:
            level = row_level(worst, tables.on_grid, introduced=False)
            return Finding(row, f"The largest error is at {name}; what each operator adds itself is not known.", level)
        if tables.digest.level == "bad":
            text = f"The outputs differ, but no operator adds more error than its precision explains; {name} adds most."
            return Finding(row, text, "warn")
        if worst[by] == 0:
            return Finding(row, "No operator adds any error.", "ok")
        return Finding(row, f"No operator adds more error than its precision explains; {name} adds most.", "ok")

    def _divergence(self, tables: Tables, divergent: Any) -> Finding:
        row = _number(divergent)
        level = "bad" if divergent["status"] == MISMATCH else row_level(divergent, tables.on_grid)
        fingerprint, evidence = self._looks(tables, row)
        verb = "introduced it" if tables.digest.level == "bad" else "adds more error than its precision explains"
        shared = shared_with(str(divergent["reason"]))
        name = _named(divergent) + (f" ({shared})" if shared else "")
        doubted = any(note.startswith(FIRST_FAR_OFF) for note in tables.compared.notes)
        text = (
            ("If the run had these inputs, " if doubted else "")
            + f"{name} {verb}"
            + (f": {_continued(evidence)}" if evidence else "")
            + self._share(row)
        )
        return Finding(row, f"{text}.", level, fingerprint)

    def _looks(self, tables: Tables, row: int) -> tuple[str, str]:
        """The fingerprint of a row and what speaks for it; the view can do without."""
        held = self._evidence
        if held is not None and held[0] is tables and held[1] == row:
            return held[2]
        said = "", ""
        try:
            from etviz.tensors.fingerprints import in_short

            found = self._values.pair(row).fingerprints()
            if found:
                several = ", " in str(tables.rows["reference_ops"].loc[row])
                said = found[0]["name"], in_short(found[0]["evidence"], several=several)
        except Exception:
            logger.debug("no fingerprint of row %d", row, exc_info=True)
        self._evidence = tables, row, said
        return said

    def _share(self, row: int) -> str:
        frame = self._attributions.last
        share = 0.0 if frame is None else float(frame["share"].get(row, 0.0))
        return f"; {100 * share:.0f} % of the output's error" if share >= _LARGE_SHARE else ""


def _named(row: Any) -> str:
    return describe_row(row) + (f" ({row['source']})" if row["source"] else "")


def _continued(sentence: str) -> str:
    """A sentence behind a colon: its first word is written small, unless it is a name."""
    first = sentence.split(" ", 1)[0]
    return sentence[:1].lower() + sentence[1:] if first.istitle() else sentence


def _number(row: Any) -> int:
    return int(row.name)
