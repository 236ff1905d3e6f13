"""A notebook that nbconvert exported shows the linked view, with no kernel and no network."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from IPython.core.formatters import DisplayFormatter
from nbconvert import HTMLExporter
from nbformat.v4 import new_code_cell, new_notebook, new_output
from playwright.sync_api import Browser, expect

import etviz
from tests.browser.network import OfflineGuard, leaves_machine
from tests.programs import Executed


@pytest.fixture(scope="module")
def exported(executed: Callable[[str], Executed], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A notebook with the output that a kernel's formatter makes of an Inspection."""
    etviz.options.embed = True
    try:
        data, metadata = DisplayFormatter().format(executed("residual_cnn").inspection)
    finally:
        etviz.options.embed = False
    cell = new_code_cell("inspection", outputs=[new_output("execute_result", data, metadata=metadata)])
    page = tmp_path_factory.mktemp("embed") / "embed.html"
    page.write_text(HTMLExporter().from_notebook_node(new_notebook(cells=[cell]))[0], "utf-8")
    return page


def test_an_exported_notebook_shows_the_linked_view(browser: Browser, exported: Path, screenshots: Path) -> None:
    context = browser.new_context(viewport={"width": 1300, "height": 900})
    guard = OfflineGuard(context)
    page, asked = context.new_page(), []
    page.on("request", lambda request: asked.append((request.frame, request.url)))
    page.goto(exported.as_uri())
    view = page.frame_locator("iframe").locator(".etviz")
    view.locator(".etv-table [data-row]", has_text="cumsum").first.click()
    expect(view.locator("[role=treegrid] [aria-selected=true]")).to_contain_text("cumsum")
    expect(view.locator("svg[role=img]").first).to_be_visible()
    page.screenshot(path=screenshots / "nbconvert-embedded.png")
    # nbconvert's own page asks for scripts, which it does not get; the report in it asks for nothing
    assert [url for frame, url in asked if frame != page.main_frame and leaves_machine(url)] == []
    assert set(guard.requests) == {url for _, url in asked if leaves_machine(url)}
    context.close()
