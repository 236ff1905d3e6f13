"""The headline: the first sentence a person reads."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from etviz.analysis.attribution import Attributions
from etviz.analysis.culprits import Culprit, Decision, decide
from etviz.analysis.quantization import Quantization
from etviz.analysis.row_tensors import RowTensors
from etviz.analysis.rows import Rows
from etviz.analysis.summary import BEYOND, Summary, row_of, summarize
from etviz.comparison.gap import COMPARED, CREATED, MISMATCH, NOT_COMPARED
from etviz.comparison.input_checks import FIRST_FAR_OFF
from etviz.graph.labels import describe_row

if TYPE_CHECKING:
    import pandas as pd

    from etviz.analysis.findings import Findings
    from etviz.analysis.tables import Tables

logger = logging.getLogger(__name__)

_LARGE_SHARE: Final = 0.01
"""Threshold of a culprit's share of the output's error from which the headline states it."""
_ERROR: Final = "the output's error"


@dataclass(frozen=True, slots=True)
class Finding:
    """The headline; `row` is the gap row to look at first, `fingerprint` the likely class of bug."""

    row: int
    text: str
    level: str
    fingerprint: str = ""


class Finder:
    def __init__(
        self, findings: Findings, rows: Rows, values: RowTensors, attributions: Attributions, quantization: Quantization
    ) -> None:
        self._findings, self._rows, self._values, self._attributions = findings, rows, values, attributions
        self._quantization = quantization
        self._decided: tuple[tuple[Tables, object], Decision] | None = None
        self._summary: tuple[Decision, Summary] | None = None
        self._evidence: tuple[Decision, tuple[str, str]] | None = None

    def decision(self) -> Decision:
        key = self._rows.tables, self._rows.inside
        if self._decided is None or self._decided[0] != key:
            zooms = self._quantization.zooms
            self._decided = key, decide(self._rows, {call: zooms[call].faithful is True for call in zooms})
        return self._decided[1]

    def summary(self) -> Summary:
        decision = self.decision()
        if self._summary is None or self._summary[0] is not decision:
            self._summary = decision, summarize(self._findings, self._rows.tables, decision)
        return self._summary[1]

    @property
    def known_summary(self) -> Summary | None:
        return None if self._summary is None else self._summary[1]

    def first_divergence(self) -> pd.Series | None:
        culprit = self.decision().culprit
        return None if culprit is None else culprit.about.copy()

    def finding(self) -> Finding | None:
        from etviz.comparison.constants import GRIDS, differing, kind_of

        tables = self._rows.tables
        if not len(tables):
            return None
        constants, decision = tables.constants, self.decision()
        if constants and (decision.culprit is None or kind_of(constants) != GRIDS):  # an operator tells a grid's work
            text = f"The .pte holds other {kind_of(constants)} than the reference: {differing(constants)}."
            return Finding(row_of(tables.rows, constants) or 0, text, "bad")
        if decision.culprit is not None:
            return self._accusation(tables, decision, decision.culprit)
        introduced = tables.introduced and not tables.rows["introduced_severity"].isna().all()
        missing = (tables.coverage["status"] == NOT_COMPARED).any()
        nobody = "operator that was compared" if missing else "operator"
        worst = tables.ranked("introduced_severity" if introduced else "severity").iloc[0]
        name, row, bad = _named(worst), int(str(worst.name)), self.summary().level == "bad"
        if (other := decision.overwritten) is not None:
            nobody_else = f"; no {nobody} {BEYOND}" if introduced else ""
            return Finding(max(other.row, 0), _sentence(f"{other}{nobody_else}."), "warn")
        if not introduced:
            text = f"The largest error is at {name}; the error that each operator adds is not known."
            if math.isnan(worst["max_abs"]) and worst["status"] == COMPARED:
                text = "No value that was compared has an element that is finite on both sides."
            return Finding(row, text, tables.gaps[row].total_level)
        if bad and decision.skipped:
            text = f"{decision.skipped}, and the outputs differ; no operator that was compared {BEYOND}."
            return Finding(row, _sentence(text), "warn")
        if bad:
            return Finding(row, f"The outputs differ, but no {nobody} {BEYOND}; {name} adds most.", "warn")
        if worst["introduced_severity"] == 0:
            return Finding(row, f"No {nobody} adds any error.", "ok")
        return Finding(row, f"No {nobody} {BEYOND}; {name} adds most.", "ok")

    def _accusation(self, tables: Tables, decision: Decision, culprit: Culprit) -> Finding:
        name = culprit.named + (f" ({culprit.shared})" if culprit.shared else "")
        fingerprint, evidence = self._looks(decision, culprit)
        text = f"{name} {self._deed(tables, culprit)}"
        text += (f": {_continued(evidence)}" if evidence else "") + self._differing_grids(tables, culprit)
        text += self._share(decision, culprit)
        if self._is_doubted(tables, culprit):
            text = f"If the run had these inputs, {text}"
        if decision.skipped:
            text = f"{_sentence(decision.skipped)}. After it, {text}"
        return Finding(culprit.row, f"{text}.", culprit.level, fingerprint)

    def _differing_grids(self, tables: Tables, culprit: Culprit) -> str:
        from etviz.comparison.constants import differing

        inside = culprit.place.inside
        instruction = culprit.gap.instruction if inside is None else inside[1]
        told = differing([item for item in tables.constants if item.is_grid and item.instruction == instruction])
        return f"; in the .pte, {told}" if told else ""

    def _deed(self, tables: Tables, culprit: Culprit) -> str:
        gap = culprit.gap
        if gap.introduced_different:
            return f"gives another shape or dtype: {gap.unpaired}"
        if gap.introduced_non_finite and gap.introduced_sums is not None:
            classes = gap.introduced_sums.classes
            lost, made = sum(row[0] for row in classes[1:]), sum(classes[0][1:])
            if lost and not made:
                origin = _origin(tables, culprit)
                return f"loses NaN or Inf: {_elements(lost)} came out finite; {origin}"
            return f"creates NaN or Inf in {_elements(made or gap.introduced_non_finite)}"
        if gap.status == MISMATCH and gap.non_finite == CREATED:
            return "is the first to give NaN or Inf where the reference has none; its inputs at runtime were finite"
        return "introduced it" if self._outputs_differ(tables) else BEYOND

    def _outputs_differ(self, tables: Tables) -> bool:
        outputs = tables.outputs
        return bool(len(outputs)) and bool((outputs["matches"].astype(float) == 0.0).any())

    def _is_doubted(self, tables: Tables, culprit: Culprit) -> bool:
        noted = any(note.startswith(FIRST_FAR_OFF) for note in tables.compared.notes)
        if not noted or culprit.place.inside is not None:
            return False
        readers = tables.compared.runs[culprit.run].comparison.readers
        if readers is not None:
            return any(culprit.gap.instruction in reading for reading in readers.values())
        names = {placeholder.name for placeholder in tables.graph.user_inputs()}
        return not names.isdisjoint(culprit.gap.node.reads())

    def _looks(self, decision: Decision, culprit: Culprit) -> tuple[str, str]:
        if self._evidence is not None and self._evidence[0] is decision:
            return self._evidence[1]
        looks = "", ""
        try:
            from etviz.tensors.fingerprints import in_short

            fingerprints = self._values.pair(culprit.row).fingerprints()
            if fingerprints:
                several = ", " in str(culprit.about["reference_ops"])
                looks = fingerprints[0]["name"], in_short(fingerprints[0]["evidence"], several=several)
        except Exception:
            logger.debug("no fingerprint of row %d", culprit.row, exc_info=True)
        self._evidence = decision, looks
        return looks

    def _share(self, decision: Decision, culprit: Culprit) -> str:
        frame = self._attributions.last
        share = self._attributions.share(frozenset().union(*(item.sharing for item in decision.beside(culprit))))
        if frame is None or share is None or share < _LARGE_SHARE or culprit.gap.uncounted or frame.attrs["exact"]:
            return ""
        about = frame.attrs["about"]
        return f"; {100 * share:.0f} % of {f'the shift of {about}' if about else _ERROR}"


def _origin(tables: Tables, culprit: Culprit) -> str:
    for row in tables.program_order:
        gap = tables.gaps[row]
        if gap.run == culprit.run and gap.non_finite == CREATED and gap.total.nonfinite()["runtime_nan"]:
            return f"NaN arises at {describe_row(tables.rows.loc[row])}"
    return "they come from the inputs"


def _elements(count: int) -> str:
    return f"{count:,} element" + "s" * (count != 1)


def _named(row: Any) -> str:
    return describe_row(row) + (f" ({row['source']})" if row["source"] else "")


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _continued(sentence: str) -> str:
    first = sentence.split(" ", 1)[0]
    return sentence[:1].lower() + sentence[1:] if first.istitle() else sentence
