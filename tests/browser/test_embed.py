"""A notebook that nbconvert executed and exported shows the linked view, with no kernel and no network."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbconvert import HTMLExporter
from playwright.sync_api import Browser, expect

from tests.browser.network import OfflineGuard, leaves_machine
from tests.browser.notebooks import write_notebook

EMBEDDED = """
    import etviz
    etviz.options.embed = True
    etviz.load("etdump.etdp", debug_buffer="debug_buffer.bin", pte="model.pte", record="model.etviz",
               etrecord="etrecord.bin")
"""


@pytest.fixture(scope="module")
def exported(artifacts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("embed")
    notebook: Any = nbformat.read(write_notebook(folder / "embed.ipynb", EMBEDDED), as_version=4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_PATH", str(Path(sys.prefix) / "share" / "jupyter"))
        NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(artifacts)}}).execute()
    page = folder / "embed.html"
    page.write_text(HTMLExporter().from_notebook_node(notebook)[0], "utf-8")
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
