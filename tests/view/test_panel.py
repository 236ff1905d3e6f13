"""The kernel's side of side panels: where a view is asked to be, what other viewers show, what the list has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

import etviz
from etviz.errors import UsageError
from etviz.view.widget import panel
from etviz.view.widget.panel import NO_PANEL, listing, place
from etviz.view.widget.widget import InspectionWidget, open_listed
from tests.programs import Executed


@pytest.fixture
def inspection(executed: Callable[[str], Executed], monkeypatch: pytest.MonkeyPatch) -> etviz.Inspection:
    """An Inspection of a kernel that has shown nothing yet."""
    for name in ("_holders", "_listed", "_last"):
        monkeypatch.setattr(panel, name, type(getattr(panel, name))())
    program = executed("plain_cnn")
    return etviz.load(program.folder / "etdump.etdp", pte=program.folder / "model.pte")


@pytest.fixture
def shell() -> Iterator[InteractiveShell]:
    """IPython, as a kernel has it."""
    yield InteractiveShell.instance()
    InteractiveShell.clear_instance()


def shown(inspection: etviz.Inspection, sidebar: Any) -> dict[str, Any]:
    """What `show` displays."""
    with capture_output() as captured:
        inspection.show(sidebar=sidebar)
    return captured.outputs[0].data


def test_the_first_panel_is_on_the_right_and_later_ones_where_the_last_was(inspection: etviz.Inspection) -> None:
    first = place(inspection.analysis.title, True)
    assert first is not None
    assert first == {"title": inspection.analysis.title, "area": "right", "pinned": False, "serial": 1}
    widget = InspectionWidget(inspection.view, panel=first)
    widget.set_trait("panel", first | {"area": "left", "pinned": True})
    again = place(inspection.analysis.title, True)
    assert again == {"title": inspection.analysis.title, "area": "left", "pinned": True, "serial": 2}
    right = place(inspection.analysis.title, "right")
    assert right is not None
    assert right["area"] == "right"
    assert place(inspection.analysis.title, False) is None
    widget.close()


@pytest.mark.parametrize("sidebar", ["top", "", None, 1, ["left"]])
def test_another_side_is_refused(inspection: etviz.Inspection, sidebar: Any) -> None:
    with pytest.raises(UsageError, match="sidebar must be True, False, 'left' or 'right'"):
        inspection.show(sidebar=sidebar)


def test_viewers_without_side_panels_say_so_and_show_the_table(
    inspection: etviz.Inspection, shell: InteractiveShell
) -> None:
    usual, asked = shown(inspection, False), shown(inspection, "left")
    for kind in ("text/html", "text/plain"):
        assert NO_PANEL in asked[kind]
        assert NO_PANEL not in usual[kind]
    assert inspection.analysis.digest.verdict in asked["text/plain"]
    assert "application/vnd.jupyter.widget-view+json" in asked


def test_the_list_names_every_inspection_once_and_computes_nothing(
    inspection: etviz.Inspection, shell: InteractiveShell
) -> None:
    assert listing().data == []
    shell.user_ns.update(mine=inspection, same=inspection, _hidden=inspection, number=3)
    shell.user_ns["_oh"] = {4: inspection}
    (entry,) = listing().data
    assert (entry["name"], entry["title"], entry["area"]) == ("mine", inspection.analysis.title, None)
    assert entry["verdict"] is None
    assert inspection.analysis.finder.known_summary is None
    shown(inspection, "left")
    (entry,) = listing().data
    assert (entry["area"], entry["verdict"]) == ("left", inspection.analysis.digest.verdict)
    del shell.user_ns["mine"], shell.user_ns["same"], shell.user_ns["_hidden"]
    assert [entry["name"] for entry in listing().data] == ["Out[4]"]


def test_an_inspection_of_the_list_opens_and_its_widget_goes_with_the_panel(
    inspection: etviz.Inspection, shell: InteractiveShell
) -> None:
    shell.user_ns["mine"] = inspection
    (entry,) = listing().data
    open_listed(entry["token"], "left")
    (entry,) = listing().data
    assert entry["area"] == "left"
    widget: Any = panel._holders[inspection.analysis.title]  # pyright: ignore[reportPrivateUsage]
    widget.set_trait("panel", None)
    assert widget.comm is None
    assert listing().data[0]["area"] is None
    with pytest.raises(UsageError, match="this Inspection is gone"):
        open_listed("1", "right")
