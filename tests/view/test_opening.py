# pyright: reportPrivateUsage=false
"""What a view opens with: the payload comes along, and every zoom button that it offers can work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import etviz
from etviz.analysis import zooms
from etviz.analysis.analysis import Analysis
from etviz.errors import BackendRefusedError, EtvizError
from etviz.explain.zoom import zoom
from etviz.view.payload.program_payload import build_payload
from tests.programs import Executed


@pytest.fixture
def analysis(executed: Callable[[str], Executed]) -> Analysis:
    """Without what other tests zoomed into."""
    return Analysis(executed("residual_cnn").inspection.analysis.findings)


def zoomable(analysis: Analysis) -> list[int]:
    """The rows with a zoom button."""
    payload, buffers = build_payload(analysis)
    return np.flatnonzero(np.frombuffer(buffers[payload["zoomable"]["buffer"]], np.uint8)).tolist()


def test_the_payload_is_part_of_the_state_that_a_view_opens_with(analysis: Analysis) -> None:
    widget = etviz.Inspection(analysis).widget()
    opening = widget.get_state()["_opening"]
    result, buffers = build_payload(analysis)
    extra = {"changes": 0, "explanations": ["constants", "repro", "ladder"]}
    assert opening == {"result": result | extra, "buffers": buffers}
    assert widget._methods["hello"]({})[0]["changes"] == 0
    analysis.attribution()
    assert widget.get_state()["_opening"]["result"]["attribution"] is not None
    assert widget._methods["hello"]({})[0]["changes"] == 1


def test_without_a_payload_the_view_opens_and_asks_why(analysis: Analysis, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Analysis, __: None) -> Any:
        raise EtvizError("no payload")

    monkeypatch.setattr("etviz.view.widget.state.build_payload", fail)
    widget = etviz.Inspection(analysis).widget()
    assert widget.get_state()["_opening"] is None
    with pytest.raises(EtvizError, match="no payload"):
        widget._methods["payload"]({})


def test_what_this_machine_cannot_lower_has_no_button(analysis: Analysis, monkeypatch: pytest.MonkeyPatch) -> None:
    assert zoomable(analysis)
    monkeypatch.setattr(zooms, "lowers_here", lambda _: False)
    assert zoomable(analysis), "an interpreter runs what the .pte holds"
    monkeypatch.setattr(zooms, "interpreter_of", lambda _: None)
    assert zoomable(analysis) == []


def test_what_was_refused_has_no_button_any_more(analysis: Analysis, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise BackendRefusedError("XnnpackBackend", "lower", "no partition")

    monkeypatch.setattr(zoom, "compare_calls", refuse)
    before = zoomable(analysis)
    with pytest.raises(BackendRefusedError) as refused:
        analysis.zoom(before[0])
    assert "nstall" not in str(refused.value)
    after = zoomable(analysis)
    assert after == [row for row in before if analysis.zooms.call(row) != analysis.zooms.call(before[0])]


def test_a_backend_that_is_not_there_is_said_to_be_missing() -> None:
    error = BackendRefusedError("QnnBackend", "run", "error 0x20", missing=True)
    assert "Install a runtime that has this backend" in str(error)
