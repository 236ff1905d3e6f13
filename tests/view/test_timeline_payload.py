"""The times of one execution, as a view draws them: every event once, nested, joined to the rows that it is of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from etviz.analysis.analysis import Analysis
from etviz.analysis.profile import Profile, spans
from etviz.errors import UsageError
from etviz.view.pages.report_page import report_page
from etviz.view.payload import timeline
from etviz.view.payload.program_payload import build_payload, table_rows
from etviz.view.payload.timeline import KINDS, OWN_CLOCK, build_timeline
from tests.programs import Executed
from tests.view.test_payload import decode, texts

Built = dict[str, Any]


@pytest.fixture
def analysis(executed: Callable[[str], Executed]) -> Analysis:
    return executed("residual_cnn").inspection.analysis


def built(analysis: Analysis, run: int = 0) -> Built:
    """A timeline with its columns decoded."""
    answer, buffers = build_timeline(analysis, {"run": run})
    columns = {
        name: decode(answer[name], buffers) for name in ("start", "length", "level", "kind", "row", "instruction")
    }
    words = {
        name: texts(decode(answer[name], buffers), answer[f"{name}s"]) for name in ("name", "operator", "confidence")
    }
    return answer | columns | words


def test_every_event_once_with_its_time(analysis: Analysis) -> None:
    found, events = built(analysis), analysis.profile.executions[0]
    start, length = spans(events, analysis.profile.factor)
    assert found["count"] == len(events)
    assert sorted(zip(found["start"], found["length"], strict=True)) == sorted(zip(start, length, strict=True))
    assert (np.diff(found["start"]) >= 0).all()
    latency = {
        int(at): long
        for at, long, kind in zip(found["instruction"], found["length"], found["kind"], strict=True)
        if KINDS[kind] == "call"
    }
    assert latency == pytest.approx(dict(analysis.latency))


def test_levels_do_not_overlap_and_the_inside_of_a_call_is_below_it(analysis: Analysis) -> None:
    found = built(analysis)
    end = found["start"] + found["length"]
    for level in range(int(found["level"].max()) + 1):
        at = np.flatnonzero(found["level"] == level)
        assert (found["start"][at][1:] >= end[at][:-1] - 1e-9).all()
    calls = {int(found["instruction"][at]): at for at in np.flatnonzero(found["kind"] == KINDS.index("call"))}
    inside = np.flatnonzero(found["kind"] == KINDS.index("operator"))
    assert len(inside) > 5
    for at in inside:
        call = calls[int(found["instruction"][at])]
        assert found["start"][call] <= found["start"][at]
        assert end[at] <= end[call] + 1e-9
        assert found["level"][at] > found["level"][call]


def test_calls_have_their_rows_and_operators_their_confidence(analysis: Analysis) -> None:
    found, (rows, _) = built(analysis), table_rows(analysis)
    calls = np.flatnonzero(found["kind"] == KINDS.index("call"))
    assert [int(rows["instruction"][found["row"][at]]) for at in calls] == found["instruction"][calls].tolist()
    worst = rows.groupby("instruction")["introduced_severity"].transform("max")
    for at in calls:
        row = found["row"][at]
        assert rows["introduced_severity"][row] == worst[row]
    events = analysis.events[analysis.events.operator != ""]
    told = {
        (name, int(at)): (op, sure)
        for name, at, op, sure in events[["name", "instruction", "operator", "confidence"]].itertuples(index=False)
    }
    assert told
    shown = zip(found["name"], found["instruction"], found["operator"], found["confidence"], strict=True)
    assert {(name, int(at)): (op, sure) for name, at, op, sure in shown if op} == told


def test_a_clock_of_its_own_begins_with_the_call(analysis: Analysis) -> None:
    profile = replace(analysis.profile, converter=lambda _name, time: float(time) * 3e-6)
    found = built(Analysis(replace(analysis.findings, profile=profile)))
    assert found["notes"] == [OWN_CLOCK]
    inside = np.flatnonzero(found["kind"] == KINDS.index("operator"))
    calls = {int(found["instruction"][at]): at for at in np.flatnonzero(found["kind"] == KINDS.index("call"))}
    for instruction in set(found["instruction"][inside].tolist()):
        own = inside[found["instruction"][inside] == instruction]
        assert found["start"][own].min() == pytest.approx(found["start"][calls[instruction]])
    plain = built(analysis)
    before = plain["length"][plain["kind"] == KINDS.index("operator")]
    np.testing.assert_allclose(np.sort(found["length"][inside]), np.sort(before * 3), rtol=1e-6, atol=1e-9)


def test_what_a_view_knows_before_it_asks(analysis: Analysis) -> None:
    payload, _ = build_payload(analysis)
    assert payload["timeline"] == {"runs": 1, "typical": 0, "note": analysis.profile.note, "distorted": True}
    for profile, distorted in ((Profile(), None), (replace(analysis.profile, distorted=False), False)):
        other, _ = build_payload(Analysis(replace(analysis.findings, profile=profile)))
        assert (other["timeline"] or {}).get("distorted") is distorted
    for wrong in (1, -1, None, True, "0"):
        with pytest.raises(UsageError, match="run must be one of the 1 timed executions"):
            build_timeline(analysis, {"run": wrong})


def test_a_report_looks_through_the_table_once_for_all_timelines(
    analysis: Analysis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It grew with the square of the executions."""
    looked: list[Analysis] = []
    monkeypatch.setattr(timeline, "table_rows", lambda one: looked.append(one) or table_rows(one))
    profile = replace(analysis.profile, blocks=[*analysis.profile.blocks] * 3)
    several = Analysis(replace(analysis.findings, profile=profile))
    assert len(several.profile.executions) == 3
    report_page(several, "none", "")
    assert looked == [several]
    known = timeline.EventNames(several)
    for run in range(3):
        assert build_timeline(several, {"run": run}, known) == build_timeline(several, {"run": run})
