"""A kernel that is busy, restarted or gone: the view shows what it has and says so, never an error."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.lab import RUN_ALL, Lab
from tests.browser.test_widget import LOAD

STATUS = "() => window.jupyterapp.shell.currentWidget.sessionContext.kernelDisplayStatus"
RESTART = "() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()"
SHUTDOWN = "() => window.jupyterapp.shell.currentWidget.sessionContext.session.shutdown()"


@pytest.fixture
def view(lab: Lab, artifacts: Path, request: pytest.FixtureRequest) -> Locator:
    """The widget of an Inspection, in a notebook of its own."""
    lab.front(f"kernel-{request.node.callspec.id}", LOAD.format(artifacts.name), "inspection")
    lab.run_all()
    view = lab.output(".etviz")
    view.locator(".etv-table [data-row]").first.wait_for()
    return view


def test_run_all_paints_the_view_while_a_slow_cell_runs_behind_it(lab: Lab, artifacts: Path) -> None:
    done = artifacts.parent / "done"
    wait = f"import time\nfrom pathlib import Path\nwhile not Path({done.name!r}).exists():\n    time.sleep(0.1)"
    lab.front("run-all", LOAD.format(artifacts.name), "inspection", wait)
    lab.page.evaluate(RUN_ALL)
    view = lab.output(".etviz")
    view.locator(".etv-table [data-row]").first.wait_for()
    expect(view.locator(".etv-verdict")).to_contain_text("final output matches the reference")
    expect(view.locator(".etv-kernel")).to_contain_text("The kernel is busy; this view follows.")
    assert lab.page.evaluate(STATUS) == "busy"
    view.locator(".etv-table [data-row]", has_text="cumsum").first.click()
    expect(view.locator("[role=alert], .etv-level-bad")).to_have_count(0)
    lab.screenshot("kernel-busy", view)
    done.touch()
    expect(view.locator("svg[role=img]")).to_have_count(2, timeout=60_000)
    expect(view.locator(".etv-kernel")).to_have_count(0)


@pytest.mark.parametrize("end", [RESTART, SHUTDOWN], ids=["restarted", "gone"])
def test_what_is_on_screen_outlives_the_kernel(lab: Lab, view: Locator, end: str) -> None:
    rows = view.locator(".etv-table [data-row]").count()
    lab.page.evaluate(end)
    view.locator(".etv-table [data-row]", has_text="cumsum").first.click()
    expect(view.locator(".etv-kernel")).to_contain_text("was restarted")
    expect(view.locator(".etv-bone, .etv-progress, .etv-zoom, [role=alert]")).to_have_count(0)
    expect(view.locator(".etv-table [data-row]")).to_have_count(rows)
    lab.screenshot("kernel-gone", view)


def test_a_view_taken_off_the_page_is_released(lab: Lab, artifacts: Path) -> None:
    """A cell that ran again or was cleared leaves no widget in the kernel once its program is let go."""
    names = "import gc\nfrom ipywidgets.widgets.widget import _instances\nfrom etviz.view.widget.widget import KEPT"
    load = f"etviz.load('{artifacts.name}/etdump.etdp')"
    next_view = f"KEPT.clear()\ngc.collect()\n{load}.widget().close()"
    counts = "sorted(view._view_count for view in _instances.values() if hasattr(view, 'selected'))"
    lab.front("released", f"import etviz\n{names}", f"{load}.show()", f"{load}.show()")
    for shown in (2, 4):
        lab.run_all()
        lab.wait_for_python(counts, [0] * (shown - 2) + [1, 1])
    lab.python(next_view)
    lab.wait_for_python(counts, [1, 1])
    lab.command("notebook:clear-all-cell-outputs")
    lab.wait_for_python(counts, [0, 0])
    lab.python(next_view)
    lab.wait_for_python("len(_instances)", 0)


def test_a_notebook_without_its_kernel_shows_the_table(lab: Lab, artifacts: Path) -> None:
    """Trusted, no saved widget state, another kernel: what ipywidgets calls "model not found"."""
    lab.front("reopened", LOAD.format(artifacts.name), "inspection")
    lab.run_all()
    lab.output(".etviz .etv-table [data-row]")
    lab.command("docmanager:save")
    lab.server.reset()
    lab.open("reopened")
    fallback = lab.output(".etviz-static")
    expect(fallback).to_contain_text("final output matches the reference")
    expect(fallback.locator("tbody tr").first).to_be_visible()
    expect(lab.page.locator(".jp-OutputArea", has_text="run the cell again").first).to_be_visible()
    expect(lab.page.locator(".jp-OutputArea", has_text="model not found")).to_have_count(0)
    lab.screenshot("reopened")
