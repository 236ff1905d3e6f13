"""Holds everything that etviz says of one program against everything else that it says of it.

Each rule compares two statements that a user can see at the same time: verdict, headline, first divergence, culprit,
proof, attribution, gate, the colour of a row and the buttons beside it. A rule that is broken gives one sentence.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

import etviz
from etviz.errors import EtvizError
from etviz.gate import Rules, check
from etviz.view.payload.program_payload import build_payload

EXPLAINED = "as much as rounding in this precision explains"
NOBODY = re.compile(r"[Nn]o operator (that was compared )?adds")


def contradictions(inspection: etviz.Inspection) -> list[str]:
    """The rules that the statements about a program break; empty if they all agree."""
    return [*_headline(inspection), *_gate(inspection), *_diagnosis(inspection), *_view(inspection)]


def _headline(inspection: etviz.Inspection) -> Iterator[str]:
    """Verdict, headline, facts and first divergence."""
    said, first = inspection.analysis.digest, inspection.first_divergence
    finding: Any = inspection.analysis.finder.finding()
    facts = {fact.label: fact for fact in said.facts}
    named = bool(finding and finding.level in ("warn", "bad") and not _names_nobody(finding.text))
    if first is None:
        if named and "Constants" not in facts and inspection.introduced:
            yield f"the headline accuses, and nothing diverges: {finding.text}"
        if "First divergence" in facts and not facts["First divergence"].value.startswith("none"):
            yield "the facts name a first divergence that there is not"
    else:
        yield from _named(said, finding, first)
    if "Constants" in facts and said.level != "bad":
        yield f"the .pte holds other weights, and the verdict is: {said.verdict}"
    if finding is not None and NOBODY.match(finding.text) and any(f.level == "bad" for f in said.facts):
        wrong = [fact.label for fact in said.facts if fact.level == "bad"]
        yield f"no operator adds error, says the headline; the facts on {', '.join(wrong)} are bad"
    yield from _created(inspection)


def _named(said: Any, finding: Any, first: Any) -> Iterator[str]:
    """Of a program with a first divergence."""
    facts = {fact.label: fact for fact in said.facts}
    if finding is None or (_names_nobody(finding.text) and "Constants" not in facts):
        yield f"row {first.name} diverges, and the headline names nobody"
    elif finding.row != first.name and "Constants" not in facts:
        yield f"row {first.name} diverges first, and the headline is about row {finding.row}"
    if said.level not in ("warn", "bad"):
        yield f"row {first.name} is named, and the verdict is {said.level}"
    if said.level != "bad" and finding is not None and finding.level == "bad":
        yield f"the headline is bad, the verdict {said.level}: {said.verdict}"
    if EXPLAINED in said.verdict:
        yield f"row {first.name} is named, and the verdict calls the difference rounding"
    if "First divergence" in facts and facts["First divergence"].row != first.name:
        yield f"row {first.name} diverges first, the facts say row {facts['First divergence'].row}"
    if "reference is at fault" in said.verdict:
        yield f"row {first.name} is named, and the verdict blames the reference"


def _created(inspection: etviz.Inspection) -> Iterator[str]:
    """Where NaN is said to begin."""
    nonfinite = next((fact for fact in inspection.analysis.digest.facts if fact.label == "Non-finite"), None)
    if nonfinite is None or "created at" not in nonfinite.value or nonfinite.row is None:
        return
    about = inspection.gaps.loc[nonfinite.row]
    if about["runtime_nan"] == 0 and about["status"] == "compared":
        yield f"NaN is said to be created at row {nonfinite.row}, whose Inf both sides have"


def _names_nobody(text: str) -> bool:
    return NOBODY.search(text) is not None or "is not known" in text


def _gate(inspection: etviz.Inspection) -> Iterator[str]:
    """The gate without limits."""
    said, first = inspection.analysis.digest, inspection.first_divergence
    result = check(inspection.analysis, Rules())
    if result.passed and said.level == "bad":
        yield f"the gate passes what the verdict calls bad: {said.verdict}"
    if result.passed and first is not None:
        yield f"the gate passes while row {first.name} is named"
    if not result.passed and said.level == "ok":
        yield f"the gate fails what the verdict calls right: {result}"
    missing = (inspection.outputs["status"] == "not compared").any()
    if result.passed and missing:
        yield "the gate passes although an output was not compared"
    if result.verdict != said.verdict:
        yield "the gate quotes another verdict"


def _diagnosis(inspection: etviz.Inspection) -> Iterator[str]:
    """Culprit, proof, shares and suspects."""
    said, first = inspection.analysis.digest, inspection.first_divergence
    body: dict[str, Any] = inspection.diagnosis(look_inside=False)
    culprit = body["culprit"]
    if (body["level"], body["verdict"]) != (said.level, said.verdict):
        yield "the diagnosis has another verdict"
    if first is not None and culprit is None and not inspection.analysis.findings.constants:
        yield f"row {first.name} is named, and the diagnosis has no culprit"
    if first is None and culprit is not None and not inspection.analysis.findings.constants:
        yield f"nothing diverges, and the diagnosis has the culprit {culprit['name']}"
    other = first is not None and culprit is not None and culprit["row"] != first.name
    if other and first is not None and culprit is not None and not inspection.analysis.findings.constants:
        yield f"row {first.name} diverges first, the culprit is row {culprit['row']}"
    names = [(item["name"], item.get("execution")) for item in body["suspects"]]
    if len(names) != len(set(names)):
        yield f"an instruction is suspicious more than once: {names}"
    if culprit is None:
        return
    proof = culprit["proof"]
    changed = [
        item
        for item in proof["outputs"]
        if item["rmse"] != item["without"] or item.get("status") != item.get("status_without")
    ]
    if proof["outputs"] and said.level == "bad" and not changed and not _is_unread(inspection, culprit["row"]):
        yield f"the proof changes nothing: {culprit['name']}"
    due = _worst_run(inspection)
    if inspection.analysis.tables.compared.in_turn:
        blocks = sorted(inspection.gaps["event_block"].unique())
        due = next((block for block in blocks if _diverges_in(inspection, block)), due)
    if first is not None and _diverges_in(inspection, due) and first["event_block"] != due:
        yield f"the culprit should be one of execution {due}, and is one of execution {first['event_block']}"
    again = [item for item in proof["outputs"] if item["matches"] is False]
    others = {item["name"] for item in body["suspects"]} - {culprit["name"]}
    if again and others and not any(name in proof["message"] for name in others):
        yield f"the proof does not suffice, and it does not say who else is at fault: {proof['message']}"
    share, total = culprit["share"], body["attribution"]["sum"]
    if share == 0 and total and said.level == "bad":
        yield f"{culprit['name']} is the culprit, with no share of the error"


def _worst_run(inspection: etviz.Inspection) -> int:
    """The execution whose outputs are off most."""
    known = inspection.outputs[inspection.outputs["status"] != "not compared"]
    if known.empty:
        return int(inspection.gaps["event_block"].min())
    broken = known["status"] != "compared"
    order: Any = known.assign(broken=broken, matches=known["matches"].astype(bool))
    worst = order.sort_values(["broken", "matches", "close"], ascending=[False, True, True])["event_block"]
    return worst.tolist()[0]


def _diverges_in(inspection: etviz.Inspection, run: int) -> bool:
    """True if a row of an execution is beyond its limit by what it introduced itself."""
    return run in inspection.gaps.loc[_beyond(inspection), "event_block"].tolist()


def _is_unread(inspection: etviz.Inspection, row: int) -> bool:
    return row in inspection.analysis.tables.unused


def _beyond(inspection: etviz.Inspection) -> list[int]:
    """The rows that the table marks by what they introduced: those that somebody reads."""
    tables = inspection.analysis.tables
    if not tables.introduced:
        return []
    looks, _ = tables.limits("introduced_severity")
    values = tables.rows["introduced_severity"].to_numpy(float)
    return [row for row in np.flatnonzero(values >= np.array(looks, float)).tolist() if row not in tables.unused]


def _view(inspection: etviz.Inspection) -> Iterator[str]:
    """What the view is given: colours, buttons, selection."""
    first = inspection.first_divergence
    payload, buffers = build_payload(inspection.analysis)
    yield from _names_and_buttons(inspection, payload, buffers)
    yield from _badges(inspection, payload)
    summary, finding = payload["summary"], payload["summary"]["finding"]
    said, headline = inspection.analysis.digest, inspection.analysis.finder.finding()
    if (None if finding is None else finding["text"]) != (None if headline is None else headline.text):
        yield "the view has another headline"
    if [fact["value"] for fact in summary["facts"]] != [fact.value for fact in said.facts]:
        yield "the view has other facts"
    if (summary["level"], summary["verdict"]) != (said.level, said.verdict):
        yield "the view has another verdict"
    beyond = _beyond(inspection)
    if beyond and first is None:
        yield f"row {beyond[0]} is coloured, and nothing diverges"
    if first is not None and int(str(first.name)) < len(inspection.gaps):
        gaps = inspection.gaps
        own = [row for row in beyond if gaps.loc[row, "event_block"] == first["event_block"]]
        before = [row for row in own if gaps.loc[row, "instruction"] < first["instruction"]]
        if before:
            yield f"row {before[0]} is coloured and comes before the first divergence, row {first.name}"
    if finding is not None and not 0 <= finding["row"] < payload["rows"]:
        yield f"the headline selects row {finding['row']} of {payload['rows']}"
    if first is None:
        return
    try:
        found = inspection.what_if(int(str(first.name)))
    except EtvizError:
        return
    pairs = zip(found.before["rmse"], found.after["rmse"], strict=True)
    if any(math.isnan(after) and not math.isnan(before) for before, after in pairs):
        yield f"the button of row {first.name} proves nothing"


def _names_and_buttons(inspection: etviz.Inspection, payload: Any, buffers: Any) -> Iterator[str]:
    """A name leads to its row, and a row has a zoom button where Python can zoom and has not yet."""
    zoomable, zooms = np.frombuffer(buffers[payload["zoomable"]["buffer"]], np.uint8), inspection.analysis.zooms
    for row in inspection.gaps.index:
        if bool(zoomable[row]) != (zooms.possible(row) and zooms.call(row) not in inspection.analysis.inside):
            yield f"the zoom button of row {row} says otherwise than Python"
        if inspection.analysis.rows.find(inspection.gaps["name"][row].split(" ", 1)[0]).number != row:
            yield f"the name of row {row} leads to another row"


def _badges(inspection: etviz.Inspection, payload: Any) -> Iterator[str]:
    """A zoom's badge says what the zoom says of itself, and an operator of an unfaithful one is not named."""
    shown = {(zoom["row"], zoom["faithful"]) for zoom in payload["zooms"]}
    own = {call: inner.findings.zoom for call, inner in inspection.analysis.inside.items()}
    gaps = inspection.analysis.tables.gaps
    first = {(gap.run, gap.instruction): row for row, gap in reversed(list(enumerate(gaps)))}
    if shown != {(first[call], zoom.faithful) for call, zoom in own.items() if zoom is not None}:
        yield f"the badges of zooms are {shown}, and the zooms say {own}"
    culprit = inspection.analysis.finder.decision().culprit
    if culprit is not None and culprit.place.inside is not None:
        zoom = own.get(culprit.place.inside)
        if zoom is not None and zoom.faithful is not True:
            yield f"{culprit.name} is named, and its zoom is not faithful: {zoom.message}"
