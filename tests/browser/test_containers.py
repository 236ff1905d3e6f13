"""The widget inside containers of ipywidgets: it takes the room that they give, and is never a thin line."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.geometry import box
from tests.browser.lab import Lab
from tests.browser.test_widget import LOAD

CONTAINERS = {
    "HBox": "w.HBox([w.IntSlider(), inspection.widget()])",
    "Tab": "w.Tab([inspection.widget(), w.Label('other')], titles=['one', 'two'])",
    "GridBox": "w.GridBox([inspection.widget(), inspection.widget()], layout={'grid_template_columns': '1fr 1fr'})",
}


@pytest.mark.parametrize("container", CONTAINERS)
def test_the_view_fills_its_container(lab: Lab, artifacts: Path, container: str) -> None:
    lab.front(
        f"containers-{container}", LOAD.format(artifacts.name), f"import ipywidgets as w\n{CONTAINERS[container]}"
    )
    lab.run_all()
    lab.output(".etviz .etv-table [data-row]")
    views = lab.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-OutputArea .etviz")
    area = box(lab.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-OutputArea-output").last)
    lab.screenshot(f"container-{container}")
    count = CONTAINERS[container].count("inspection.widget")
    expect(views).to_have_count(count)
    wide = [box(views.nth(at))["width"] for at in range(count)]
    least = 0.9 * (area["width"] - 320 * ("Slider" in CONTAINERS[container])) / count
    assert min(wide) >= least
    assert all(0 <= box(views.nth(at))["x"] - area["x"] <= area["width"] for at in range(count))
    views.first.locator(".etv-table [data-row]", has_text="cumsum").first.click()
    lab.wait_for_python("'cumsum' in inspection.gaps.op.get(inspection.selected, '')", True)
