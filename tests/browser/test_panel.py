"""Side panels of JupyterLab: opened from Python, from a cell and from the list; moved, pinned, closed, reloaded."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.lab import Lab
from tests.browser.test_widget import LOAD, python

PANEL = ".etviz-panel"


@pytest.fixture
def shown(lab: Lab, artifacts: Path) -> Lab:
    """A notebook whose Inspection is in the side panel."""
    lab.open("panel", LOAD.format(artifacts.name), "inspection.show(sidebar=True)")
    lab.run_all()
    rows(panel(lab)).first.wait_for()
    return lab


def panel(lab: Lab, area: str = "right") -> Locator:
    """The side panel that is in front on this side."""
    return lab.page.locator(f"#jp-{area}-stack {PANEL}:not(.lm-mod-hidden)")


def rows(view: Locator) -> Locator:
    """Rows of its table."""
    return view.locator(".etv-table [data-row]")


def test_shown_in_the_panel_it_is_linked_with_python_and_the_cell_says_where(shown: Lab, screenshots: Path) -> None:
    view = panel(shown)
    title = python(shown, "print(inspection.title)").strip()
    expect(view.locator(".etviz-panel-title")).to_have_text(title)
    expect(view.locator(".etv-verdict-text")).to_contain_text("final output matches the reference")
    assert (view.bounding_box() or {})["width"] >= 400
    stub = shown.output(".etv-elsewhere")
    expect(stub).to_contain_text("is in the right side panel")
    rows(view).filter(has_text="cumsum").first.click()
    shown.page.wait_for_timeout(500)
    assert "cumsum" in python(shown, "print(inspection.gaps.op[inspection.selected])")
    for theme in ("light", "dark"):
        shown.set_theme(theme)
        shown.screenshot(f"panel-{theme}")
    assert shown.console_errors == []


def test_running_the_cell_again_replaces_the_panel(shown: Lab) -> None:
    for _ in range(2):
        shown.run_all()
        rows(panel(shown)).first.wait_for()
        expect(shown.page.locator(PANEL)).to_have_count(1)
        expect(shown.page.locator(".jp-OutputArea .etv-elsewhere")).to_have_count(1)
