# pyright: reportPrivateUsage=false
"""What a page sends to the kernel may be anything: it is answered, refused or ignored, and keeps the kernel alive."""

from __future__ import annotations

import gc
import math
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import traitlets

from etviz.view.widget.widget import InspectionWidget
from tests.programs import Executed

PLACE = {"title": "x", "area": "left", "pinned": False, "serial": 1}
REQUESTS: tuple[Any, ...] = (
    *(None, 3, [], "x", {}, {"id": None, "method": "hello"}, {"id": [], "method": "hello"}, {"id": 1}),
    *({"id": 1, "method": method} for method in (None, 3, [], "", "nope" * 1000, "__init__", "\x1b[31m")),
    *({"id": 1, "method": "hello", "params": params} for params in (3, [1], "x")),
    *({"id": 1, "method": "zoom", "params": params} for params in ([1], "x", {"row": {}})),
    *({"id": 1, "method": "tensor", "params": {"row": row}} for row in (None, -1, 10**30, math.inf, math.nan, "x", [])),
    {"id": 1, "method": "error_map", "params": {"row": "a" * 100_000}},
    *({"id": 1, "method": "tensor", "params": {"row": 0, "bins": bins}} for bins in (0, -1, 10**12, math.inf, "x")),
)


@pytest.fixture
def widget(executed: Callable[[str], Executed]) -> InspectionWidget:
    return executed("counter").load().widget()


def test_any_request(widget: InspectionWidget, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Any] = []
    monkeypatch.setattr(widget, "send", lambda content, buffers=None: sent.append(content))
    for request in REQUESTS:
        widget._handle_custom_msg(request, [])
    widget._jobs.wait(30)
    assert len(sent) > 10
    assert not [item for item in sent if "result" in item]
    assert all(len(item["error"]["message"]) < 1200 for item in sent if "error" in item)
    widget._handle_custom_msg({"id": 2, "method": "tensor", "params": {"row": 0}}, [])
    assert "result" in sent[-1]


@pytest.mark.parametrize(
    "value",
    [
        {},
        {**PLACE, "area": 5},
        {**PLACE, "serial": -1},
        {**PLACE, "serial": "1"},
        {**PLACE, "pinned": 1},
        {**PLACE, "x": 1},
    ],
)
def test_a_panel_that_is_no_place(value: Any, widget: InspectionWidget) -> None:
    with pytest.raises(traitlets.TraitError):
        widget.panel = value
    widget.panel = dict(PLACE)
    assert widget.panel == PLACE


def test_a_closed_widget_keeps_nothing(executed: Callable[[str], Executed]) -> None:
    """Nor its files: they are closed when nobody has the Inspection any more."""
    inspection = executed("counter").load()
    widget = inspection.widget()
    widget.close()
    gone = weakref.ref(inspection.analysis)
    del inspection, widget
    gc.collect()
    assert gone() is None
