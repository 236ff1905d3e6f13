"""A Chrome trace says what the ETDump says: read back with a parser of its own, beside the events and the gaps."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

from etviz.analysis.analysis import Analysis
from etviz.analysis.profile import Profile, spans
from etviz.artifacts.etdump.etdump import ProfileEvents
from etviz.errors import ArtifactError, UsageError
from etviz.view.export.chrome_trace import chrome_trace, write_chrome_trace
from tests.programs import Executed

CALLS = ("OPERATOR_CALL", "DELEGATE_CALL")


def refuse(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON")


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text("utf-8"), parse_constant=refuse)


@pytest.fixture
def trace(program: Executed, tmp_path: Path) -> dict[str, Any]:
    return read(program.inspection.export.chrome_trace(tmp_path / "trace.json"))


def complete(trace: dict[str, Any]) -> list[dict[str, Any]]:
    return [event for event in trace["traceEvents"] if event["ph"] == "X"]


def track_names(trace: dict[str, Any]) -> dict[int, str]:
    return {event["tid"]: event["args"]["name"] for event in trace["traceEvents"] if event["name"] == "thread_name"}


def test_durations_are_those_of_the_events(trace: dict[str, Any], program: Executed) -> None:
    durations = defaultdict(list)
    for event in complete(trace):
        args = event["args"]
        durations[args["block"], args["event"], args.get("instruction", -1)].append(event["dur"] / 1e3)
    expected = program.inspection.events.fillna({"instruction": -1})
    assert len(durations) == len(expected)
    for row in expected.itertuples():
        found = durations[row.event_block, row.name, row.instruction]
        assert len(found) == row.count
        np.testing.assert_allclose([np.mean(found), min(found), max(found)], [row.avg_ms, row.min_ms, row.max_ms])


def test_events_of_a_track_lie_beside_or_inside_of_each_other(trace: dict[str, Any]) -> None:
    tracks = defaultdict(list)
    for event in complete(trace):
        tracks[event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for intervals in tracks.values():
        assert intervals == sorted(intervals, key=lambda span: (span[0], -span[1]))
        for one, (_, end) in enumerate(intervals):
            for later_start, later_end in intervals[one + 1 :]:
                assert later_start >= end - 1e-6 or later_end <= end + 1e-6


def test_tracks_are_the_framework_the_kernels_and_each_backend(trace: dict[str, Any], program: Executed) -> None:
    names, coverage = track_names(trace), program.inspection.coverage
    assert {event["tid"] for event in complete(trace)} == set(names)
    for event in complete(trace):
        args, track = event["args"], names[event["tid"]]
        if "instruction" not in args:
            assert track == "framework"
        else:
            backend = "".join(coverage[coverage["instruction"] == args["instruction"]]["backend"].iloc[:1])
            assert track.startswith(backend or "portable kernels")
            assert (": operators" in track) == (event["cat"] == "operator")


def test_each_call_carries_the_gap_of_its_worst_output(trace: dict[str, Any], program: Executed) -> None:
    gaps, seen = program.inspection.gaps, set()
    for event in complete(trace):
        args = event["args"]
        if args["event"] not in CALLS:
            continue
        rows = gaps[gaps["instruction"] == args["instruction"]]
        if rows.empty:
            assert "severity" not in args
            continue
        seen.add(args["instruction"])
        row = rows[rows["output"] == args["output"]].iloc[0]
        assert (args["op"], args["source"], args["module"]) == (row["op"], row["source"], row["module"])
        assert args["shape"] == f"{row['dtype']} [{', '.join(map(str, row['shape']))}]"
        for name in ("severity", "introduced_severity", "rmse", "sqnr_db"):
            value = row[name]
            if np.isnan(value):
                assert name not in args
            else:
                assert float(args[name]) == value
        worst = rows["severity"].max()
        assert np.isnan(worst) or row["severity"] == worst or row["status"] == "non-finite mismatch"
    assert seen == set(gaps["instruction"])


def test_executions_follow_each_other(executed: Callable[[str], Executed]) -> None:
    inspection = executed("residual_cnn").inspection
    findings = inspection.analysis.findings
    twice = replace(findings.profile, blocks=[*findings.profile.blocks, findings.profile.blocks[-1]])
    trace = chrome_trace(Analysis(replace(findings, profile=twice)))
    spans = defaultdict(list)
    for event in complete(trace):
        spans[event["args"]["event_block"]].append((event["ts"], event["ts"] + event["dur"]))
    ends = [(min(start for start, _ in found), max(end for _, end in found)) for _, found in sorted(spans.items())]
    assert len(ends) == len(twice.blocks)
    assert all(later[0] > earlier[1] for earlier, later in pairwise(ends))


def test_a_clock_of_32_bits_goes_on_after_it_wrapped() -> None:
    start = np.array([2**32 - 100, 2**32 - 10, 30], np.uint64)
    end = np.array([2**32 - 50, 20, 60], np.uint64)
    begin, length = spans(events(start, end), 1e-3)
    np.testing.assert_allclose(begin, [0.0, 0.09, 0.13])
    np.testing.assert_allclose(length, [0.05, 0.03, 0.03])


def test_a_duration_that_is_not_known_is_not_made_up() -> None:
    begin, length = spans(events(np.array([2**40, 2**41], np.uint64), np.array([2**40 + 5, 7], np.uint64)), 1.0)
    assert np.isnan(length[1])
    assert np.isfinite(begin).all()
    assert spans(events(np.zeros(0, np.uint64), np.zeros(0, np.uint64)), 1.0)[0].size == 0


def events(start: Any, end: Any) -> ProfileEvents:
    count = len(start)
    number, text = np.zeros(count, np.int64), np.full(count, None, object)
    return ProfileEvents(text, number, number, text, text, start, end)


def test_what_can_not_be_written_is_said(executed: Callable[[str], Executed], tmp_path: Path) -> None:
    inspection = executed("counter").inspection
    with pytest.raises(ArtifactError, match="no folder"):
        inspection.export.chrome_trace(tmp_path / "missing" / "trace.json")
    untimed = Analysis(replace(inspection.analysis.findings, profile=Profile()))
    with pytest.raises(UsageError, match="no timed event"):
        write_chrome_trace(untimed, tmp_path / "trace.json")
    assert not list(tmp_path.iterdir())
