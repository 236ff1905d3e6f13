# pyright: reportPrivateUsage=false
"""A program of several methods: each is an Inspection of its own, and a view shows the one that is chosen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import etviz
from etviz.errors import UsageError
from etviz.view.widget.widget import InspectionWidget
from tests.kinds.making import Made
from tests.view.test_report import Container, Page

Sent = list[dict[str, Any]]


@pytest.fixture(scope="module")
def inspection(made: Callable[[str], Made]) -> etviz.Inspection:
    """Of one of two methods, the only one that was executed."""
    both = made("method_embed")
    etrecord, buffer, pte = (both.path(kind) for kind in ("etrecord", "debug_buffer", "pte"))
    return etviz.load(both.path("etdump"), etrecord=etrecord, debug_buffer=buffer, pte=pte, method="embed")


def test_each_method_is_an_inspection(inspection: etviz.Inspection) -> None:
    assert sorted(inspection.methods) == ["embed", "forward"]
    assert inspection.method("embed") is inspection
    other = inspection.method("forward")
    assert other is inspection.method("forward")
    assert other.method("embed") is inspection
    assert other.analysis.findings.method == "forward"
    assert len(inspection.gaps) > 0
    assert other.gaps.empty
    assert "no execution" in other.analysis.digest.verdict + " ".join(other.analysis.digest.notes)
    with pytest.raises(UsageError, match="method must be one of embed, forward, found 'generate'"):
        inspection.method("generate")


def test_a_view_shows_the_method_that_is_chosen(inspection: etviz.Inspection, monkeypatch: pytest.MonkeyPatch) -> None:
    widget, sent = InspectionWidget(inspection.view), Sent()
    for sender, name in ((widget, "send"), (widget._jobs, "_send")):
        monkeypatch.setattr(sender, name, lambda content, buffers=None: sent.append(content))
    try:
        inspection.selected = 0
        before = widget.payload()[0]
        assert (before["method"], sorted(before["methods"])) == ("embed", ["embed", "forward"])
        widget._handle_custom_msg({"id": 1, "method": "method", "params": {"method": "forward"}}, [])
        assert widget._jobs.wait(60)
        assert {"event": "changed"} in sent
        assert [item for item in sent if item.get("id") == 1] == [{"id": 1, "result": {"ok": True}}]
        after = widget.payload()[0]
        assert (after["method"], after["compared"]) == ("forward", 0)
        assert widget.selected is None
        widget.filter = "x"
        assert (inspection.selected, inspection.view.filter) == (0, "")
        assert inspection.method("forward").view.filter == "x"
        widget._handle_custom_msg({"id": 2, "method": "method", "params": {"method": "embed"}}, [])
        assert widget._jobs.wait(60)
        assert widget.selected == 0
        widget._handle_custom_msg({"id": 3, "method": "tensor", "params": {"row": 0}}, [])
        assert "result" in sent[-1]
        for wrong in ("nope", None, 3):
            widget._handle_custom_msg({"id": 4, "method": "method", "params": {"method": wrong}}, [])
            assert widget._jobs.wait(60)
            assert "error" in next(item for item in reversed(sent) if item.get("id") == 4)
    finally:
        widget.close()


def test_a_report_holds_the_methods_that_were_looked_at(inspection: etviz.Inspection, tmp_path: Path) -> None:
    inspection.method("forward")
    header = Container(Page(inspection.to_html(tmp_path / "report.html", tensors="none"))).header
    assert header["payload"]["methods"] == ["embed", "forward"]
    assert header["answers"]["method:1"]["result"] == {"method": "forward"}
