"""Side panels of JupyterLab: opened from Python, from a cell and from the list; moved, pinned, closed, reloaded."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.lab import LOAD_TIMEOUT, Lab
from tests.browser.notebooks import write_notebook
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


def test_running_the_cell_again_replaces_the_panel_where_it_is(shown: Lab) -> None:
    shown.run_all()
    rows(panel(shown)).first.wait_for()
    expect(shown.page.locator(PANEL)).to_have_count(1)
    expect(shown.page.locator(".jp-OutputArea .etv-elsewhere")).to_have_count(1)
    panel(shown).get_by_role("button", name="Move to the left side").click()
    rows(panel(shown, "left")).first.wait_for()
    expect(panel(shown)).to_have_count(0)
    expect(shown.output(".etv-elsewhere")).to_contain_text("left side panel")
    shown.page.wait_for_timeout(500)
    shown.run_all()
    rows(panel(shown, "left")).first.wait_for()
    python(shown, "inspection.show(sidebar='right')")
    rows(panel(shown)).first.wait_for()
    expect(shown.page.locator(PANEL)).to_have_count(1)


def test_closed_it_is_in_the_cell_again_and_a_button_moves_it_back(shown: Lab) -> None:
    panel(shown).get_by_role("button", name="Close").click()
    expect(shown.page.locator(PANEL)).to_have_count(0)
    cell = shown.output(".etviz:not(.etv-elsewhere)")
    rows(cell).first.wait_for()
    cell.get_by_role("button", name="Move to the side panel").click()
    rows(panel(shown)).first.wait_for()
    shown.output(".etv-elsewhere").get_by_role("button", name="Bring it back here").click()
    rows(cell).first.wait_for()
    expect(shown.page.locator(PANEL)).to_have_count(0)
    assert shown.console_errors == []


def execute(lab: Lab, command: str) -> None:
    """Run a command of JupyterLab."""
    lab.page.evaluate("async (command) => { await window.jupyterapp.commands.execute(command); }", command)


def reload(lab: Lab) -> None:
    """Save, and load the page again as a person would."""
    execute(lab, "docmanager:save")
    lab.page.reload()
    lab.wait_idle(LOAD_TIMEOUT)


def test_a_reload_brings_the_panel_back_once_and_no_closed_one(shown: Lab) -> None:
    shown.run_all()
    shown.run_all()
    rows(panel(shown)).first.wait_for()
    reload(shown)
    rows(panel(shown)).first.wait_for()
    expect(shown.page.locator(PANEL)).to_have_count(1)
    shown.output(".etv-elsewhere")

    execute(shown, "etviz:inspections")
    expect(panel(shown)).to_have_count(0)
    reload(shown)
    expect(shown.page.locator(PANEL)).to_have_count(1)
    expect(panel(shown)).to_have_count(0)
    shown.output(".etv-elsewhere").get_by_role("button", name="Show it").click()
    rows(panel(shown)).first.wait_for()

    panel(shown).get_by_role("button", name="Close").click()
    rows(shown.output(".etviz:not(.etv-elsewhere)")).first.wait_for()
    shown.page.wait_for_timeout(500)
    assert "None" in python(shown, "from etviz.view.panel import listing; print(listing().data[0]['area'])")
    reload(shown)
    rows(shown.output(".etviz:not(.etv-elsewhere)")).first.wait_for()
    expect(shown.page.locator(PANEL)).to_have_count(0)


def test_it_follows_its_notebook_unless_it_is_pinned(shown: Lab, artifacts: Path) -> None:
    write_notebook(shown.server.root / "other.ipynb", "1 + 1")
    go_to(shown, "other.ipynb")
    expect(shown.page.locator(PANEL)).to_have_count(0)
    go_to(shown, "panel.ipynb")
    rows(panel(shown)).first.wait_for()
    panel(shown).get_by_role("button", name="Pin").click()
    go_to(shown, "other.ipynb")
    rows(panel(shown)).filter(has_text="cumsum").first.click()
    expect(panel(shown).locator("[aria-selected='true'][data-row]")).to_contain_text("cumsum")
    expect(panel(shown).get_by_role("button", name="Pinned")).to_have_attribute("aria-pressed", "true")
    go_to(shown, "panel.ipynb")
    execute(shown, "docmanager:save")
    execute(shown, "application:close")
    expect(shown.page.locator(PANEL)).to_have_count(0)


def go_to(lab: Lab, name: str) -> None:
    """Open a notebook beside the others, or bring it to the front."""
    lab.page.evaluate("(path) => window.jupyterapp.commands.execute('docmanager:open', { path })", name)
    lab.page.wait_for_function(
        "(name) => window.jupyterapp.shell.currentWidget?.context?.path === name && "
        "window.jupyterapp.shell.currentWidget.sessionContext.kernelDisplayStatus === 'idle'",
        arg=name,
    )


def test_the_list_opens_an_inspection_without_a_cell(lab: Lab, artifacts: Path, screenshots: Path) -> None:
    lab.open("list", LOAD.format(artifacts.name))
    execute(lab, "etviz:inspections")
    listed = lab.page.locator(".etviz-list")
    expect(listed).to_contain_text("This kernel has no Inspection yet")
    assert "etviz" not in python(lab, "import sys; print([name for name in sys.modules if 'etviz' in name])")
    lab.run_all()
    entry = listed.locator(".etviz-entry")
    expect(entry).to_contain_text("model.pte (forward)inspection")
    lab.screenshot("panel-list", lab.page.locator("#jp-right-stack"))
    entry.click()
    rows(panel(lab)).first.wait_for()
    assert python(lab, "print(len(Out), In[-1][:6])").strip() == "0 import"
    panel(lab).get_by_role("button", name="Close").click()
    execute(lab, "etviz:inspections")
    listed.get_by_role("button", name="on the left").click()
    rows(panel(lab, "left")).first.wait_for()
    expect(listed).to_contain_text("in the left panel")
    expect(listed).to_contain_text("final output matches the reference")
    assert lab.console_errors == []


def test_a_restarted_kernel_leaves_no_dead_panel(shown: Lab) -> None:
    shown.page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.restartKernel()")
    expect(shown.page.locator(PANEL)).to_have_count(0)
    rows(shown.output(".etviz:not(.etv-elsewhere)")).first.wait_for()
    shown.wait_idle()
    shown.run_all()
    rows(panel(shown)).first.wait_for()


def test_where_the_extension_is_not_the_cell_shows_the_view_and_a_hint(lab: Lab, artifacts: Path) -> None:
    lab.page.route("**/extensions/etviz/**", lambda route: route.abort())
    lab.open("absent", LOAD.format(artifacts.name), "inspection.show(sidebar=True)")
    lab.run_all()
    expect(lab.output(".etv-elsewhere")).to_contain_text("Side panels need JupyterLab")
    view = lab.output(".etviz:not(.etv-elsewhere)")
    rows(view).first.wait_for()
    expect(view.get_by_role("button", name="Move to the side panel")).to_have_count(0)
