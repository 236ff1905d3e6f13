"""Side panels of JupyterLab: opened from Python, from a cell and from the list; moved, pinned, closed, reloaded.

Each test has a program of its own name: a panel belongs to the title of its Inspection.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, expect

from tests.browser.deadline import wait_until
from tests.browser.geometry import assert_laid_out, box
from tests.browser.lab import LOAD_TIMEOUT, WAIT_TIMEOUT, Lab, open_lab
from tests.browser.server import JupyterServer

PANEL = ".etviz-panel"
LOAD = """
    import etviz
    inspection = etviz.load(f"{program}/etdump.etdp", etrecord=f"{program}/etrecord.bin",
                            debug_buffer=f"{program}/debug_buffer.bin", pte=f"{program}/{program}.pte")
"""
SHOW = "inspection.show(sidebar=True)"


@pytest.fixture
def title(request: pytest.FixtureRequest, artifacts: Path) -> str:
    """The name of a copy of the program, and of the folder that holds it with its artifacts."""
    name = request.function.__name__.removeprefix("test_")[:20]
    folder = Path(shutil.copytree(artifacts, artifacts.parent / name))
    (folder / "model.pte").rename(folder / f"{name}.pte")
    return name


@pytest.fixture(scope="module")
def notebook(lab: Lab) -> Lab:
    """One notebook and its kernel, for the programs of all tests."""
    lab.front("panel", LOAD, SHOW)
    return lab


@pytest.fixture
def shown(notebook: Lab, title: str) -> Iterator[Lab]:
    """The notebook, whose Inspection is in the side panel."""
    notebook.front("panel")
    run(notebook, title)
    yield notebook
    notebook.front("panel")
    notebook.python("import ipywidgets; ipywidgets.Widget.close_all()")
    expect(notebook.page.locator(PANEL)).to_have_count(0)


def run(lab: Lab, title: str) -> None:
    """Run the notebook on a program."""
    lab.python(f"program = {title!r}")
    lab.run_all()
    rows(panel(lab)).first.wait_for()


def panel(lab: Lab, area: str = "right") -> Locator:
    """The side panel that is in front on this side."""
    return lab.page.locator(f"#jp-{area}-stack {PANEL}:not(.lm-mod-hidden)")


def rows(view: Locator) -> Locator:
    """Rows of its table."""
    return view.locator(".etv-table [data-row]")


def test_shown_in_the_panel_it_is_linked_with_python_and_the_cell_says_where(shown: Lab, title: str) -> None:
    view = panel(shown)
    expect(view.locator(".etviz-panel-title")).to_have_text(f"{title}.pte (forward)")
    expect(view.locator(".etv-verdict")).to_contain_text("final output matches the reference")
    assert box(view)["width"] >= 400
    stub = shown.output(".etv-elsewhere")
    expect(stub).to_contain_text("is in the right side panel")
    rows(view).filter(has_text="cumsum").first.click()
    shown.wait_for_python("'cumsum' in inspection.gaps.op.get(inspection.selected, '')", True)
    for theme in ("dark", "light"):
        shown.set_theme(theme)
        assert_laid_out(view.locator(".etviz"), stacked=True)
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
    wait_for_area(shown, "left")
    shown.run_all()
    rows(panel(shown, "left")).first.wait_for()
    shown.python("inspection.show(sidebar='right')")
    rows(panel(shown)).first.wait_for()
    expect(shown.page.locator(PANEL)).to_have_count(1)


def wait_for_area(lab: Lab, area: str | None) -> None:
    """Wait until the kernel knows where the panel of `inspection` is."""
    lab.python("from etviz.view.widget.panel import listing")
    lab.wait_for_python("[entry['area'] for entry in listing().data if entry['name'] == 'inspection']", [area])


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


def reload(lab: Lab) -> None:
    """Save, and load the page again as a person would."""
    lab.command("docmanager:save")
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

    shown.command("etviz:inspections")
    expect(panel(shown)).to_have_count(0)
    reload(shown)
    expect(shown.page.locator(PANEL)).to_have_count(1)
    expect(panel(shown)).to_have_count(0)
    shown.output(".etv-elsewhere").get_by_role("button", name="Show it").click()
    rows(panel(shown)).first.wait_for()

    panel(shown).get_by_role("button", name="Close").click()
    rows(shown.output(".etviz:not(.etv-elsewhere)")).first.wait_for()
    wait_for_area(shown, None)
    reload(shown)
    rows(shown.output(".etviz:not(.etv-elsewhere)")).first.wait_for()
    expect(shown.page.locator(PANEL)).to_have_count(0)


def test_it_follows_its_notebook_unless_it_is_pinned(shown: Lab) -> None:
    panel(shown).locator("svg[role=img]").first.wait_for()
    scrolled = panel(shown).locator(".etviz")
    assert scrolled.evaluate("(view) => (view.scrollTop = 60, view.scrollTop)") == 60
    shown.front("other", "1 + 1")
    expect(shown.page.locator(PANEL)).to_have_count(0)
    shown.front("panel")
    rows(panel(shown)).first.wait_for()
    wait_until(
        lambda: scrolled.evaluate("(view) => view.scrollTop") == 60,
        "the panel to be scrolled as it was",
        WAIT_TIMEOUT,
    )
    panel(shown).get_by_role("button", name="Pin").click()
    shown.front("other")
    rows(panel(shown)).filter(has_text="cumsum").first.click()
    expect(panel(shown).locator("[aria-selected='true'][data-row]")).to_contain_text("cumsum")
    expect(panel(shown).get_by_role("button", name="Pinned")).to_have_attribute("aria-pressed", "true")
    shown.front("panel")
    shown.command("docmanager:save")
    shown.command("application:close")
    expect(shown.page.locator(PANEL)).to_have_count(0)


def test_the_list_opens_an_inspection_without_a_cell(
    browser: Browser, jupyter_server: JupyterServer, title: str, screenshots: Path
) -> None:
    with open_lab(browser, jupyter_server, screenshots) as notebook:
        notebook.open("list", LOAD)
        notebook.command("etviz:inspections")
        listed = notebook.page.locator(".etviz-list")
        expect(listed).to_contain_text("This kernel has no Inspection yet")
        assert "etviz" not in notebook.python("import sys; print([name for name in sys.modules if 'etviz' in name])")
        notebook.python(f"program = {title!r}")
        notebook.run_all()
        entry = listed.locator(".etviz-entry")
        expect(entry).to_contain_text(f"{title}.pte (forward)inspection")
        notebook.screenshot("panel-list", notebook.page.locator("#jp-right-stack"))
        entry.click()
        rows(panel(notebook)).first.wait_for()
        assert notebook.python("print(len(Out), In[-1][:6])").strip() == "0 import"
        panel(notebook).get_by_role("button", name="Close").click()
        notebook.command("etviz:inspections")
        listed.get_by_role("button", name="on the left").click()
        rows(panel(notebook, "left")).first.wait_for()
        expect(listed).to_contain_text("in the left panel")
        expect(listed).to_contain_text("final output matches the reference")
        assert notebook.console_errors == []
        panel(notebook, "left").get_by_role("button", name="Close").click()
        expect(notebook.page.locator(PANEL)).to_have_count(0)


def test_a_restarted_kernel_leaves_no_dead_panel(shown: Lab, title: str) -> None:
    shown.page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.restartKernel()")
    expect(shown.page.locator(PANEL)).to_have_count(0)
    rows(shown.output(".etviz:not(.etv-elsewhere)")).first.wait_for()
    shown.wait_idle()
    run(shown, title)


def test_where_the_extension_is_not_the_cell_shows_the_view_and_a_hint(
    browser: Browser, jupyter_server: JupyterServer, title: str, screenshots: Path
) -> None:
    with open_lab(browser, jupyter_server, screenshots) as lab:
        lab.page.route("**/extensions/etviz/**", lambda route: route.abort())
        lab.open("absent", f"program = {title!r}", LOAD, SHOW)
        lab.run_all()
        expect(lab.output(".etv-elsewhere")).to_contain_text("Side panels need JupyterLab")
        view = lab.output(".etviz:not(.etv-elsewhere)")
        rows(view).first.wait_for()
        expect(view.get_by_role("button", name="Move to the side panel")).to_have_count(0)
