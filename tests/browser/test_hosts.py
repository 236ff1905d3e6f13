"""Where the view runs beside JupyterLab: Notebook 7, marimo, a notebook reopened without its kernel, Firefox.

They take servers and a browser of their own, so `make test` leaves them out; `make hosts` runs them.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import Browser, Page, expect

import etviz
from tests.browser.deadline import wait_until
from tests.browser.firefox import Firefox, find_firefox
from tests.browser.lab import LOAD_TIMEOUT, Lab, open_lab
from tests.browser.network import OfflineGuard
from tests.browser.server import JupyterServer, free_port, isolated_environment
from tests.programs import Executed

pytestmark = pytest.mark.hosts

ROW = ".etv-table [data-row]"
LOAD = """
    import etviz
    inspection = etviz.load("artifacts/etdump.etdp", etrecord="artifacts/etrecord.bin",
                            debug_buffer="artifacts/debug_buffer.bin", pte="artifacts/model.pte")
"""
MARIMO = """
import marimo

app = marimo.App()


@app.cell
def load():
    import etviz

    folder = {folder!r}
    inspection = etviz.load(
        folder + "/etdump.etdp",
        etrecord=folder + "/etrecord.bin",
        debug_buffer=folder + "/debug_buffer.bin",
        pte=folder + "/model.pte",
    )
    inspection.observe(lambda change: print("selected", inspection.gaps.op.get(change.new), flush=True), "selected")
    return (inspection,)


@app.cell
def show(inspection):
    inspection
    return


if __name__ == "__main__":
    app.run()
"""


@pytest.fixture(scope="module")
def host(browser: Browser, jupyter_server: JupyterServer, screenshots: Path) -> Iterator[Lab]:
    """A page that waits longer: these servers start cold."""
    with open_lab(browser, jupyter_server, screenshots) as page:
        page.page.set_default_timeout(LOAD_TIMEOUT * 1000)
        yield page
    jupyter_server.reset()


def select_cumsum(page: Page) -> None:
    """Click the row of an operator and see its histograms."""
    page.locator(ROW, has_text="cumsum").first.click()
    expect(page.locator("[role=treegrid] [aria-selected=true]").first).to_contain_text("cumsum")
    expect(page.locator(".etviz svg[role=img]").first).to_be_visible()


def test_notebook_7(host: Lab, artifacts: Path) -> None:
    host.open("seven", LOAD, "inspection", mode="notebooks")
    host.console_errors.clear()  # what it says about itself while it opens is not ours
    host.run_all()
    host.output(ROW)
    select_cumsum(host.page)
    host.wait_for_python("'cumsum' in inspection.gaps.op.get(inspection.selected, '')", True)
    host.page.get_by_role("button", name="Attribute the output's error").click()
    host.wait_for_python("inspection.analysis.attributions.last is not None", True)
    host.screenshot("notebook-7")
    assert host.console_errors == []


def test_a_trusted_notebook_with_saved_state_is_there_without_its_kernel(host: Lab, artifacts: Path) -> None:
    """Where the host saves the state of widgets, the view is painted from it; what needs the kernel says so."""
    host.open("saved", LOAD, "inspection")
    host.command("@jupyter-widgets/jupyterlab-manager:saveWidgetState")
    host.run_all()
    host.output(ROW)
    host.command("docmanager:save")
    path = host.server.root / "saved.ipynb"
    wait_until(lambda: "widgets" in nbformat.read(path, 4).metadata, "the saved state", LOAD_TIMEOUT)
    host.server.reset()
    host.open("saved")
    host.output(ROW)
    expect(host.page.get_by_text("model not found")).to_have_count(0)
    assert "matches the reference" in host.output(".etv-verdict").inner_text()
    host.screenshot("reopened")


def test_marimo(browser: Browser, artifacts: Path, tmp_path: Path, screenshots: Path) -> None:
    """In its shadow root, with its kernel."""
    (tmp_path / "app.py").write_text(MARIMO.format(folder=str(artifacts)), encoding="utf-8")
    port, log = free_port(), tmp_path / "log"
    options = ("--headless", "--no-token", "--host", "127.0.0.1", "--port", str(port))
    command = [sys.executable, "-m", "marimo", "run", str(tmp_path / "app.py"), *options]
    with log.open("wb") as output:
        server = subprocess.Popen(
            command, cwd=tmp_path, env=isolated_environment(tmp_path / "home"), stdout=output, stderr=output
        )
    try:
        wait_until(lambda: b"URL" in log.read_bytes() or server.poll() is not None, "marimo", LOAD_TIMEOUT)
        context = browser.new_context(viewport={"width": 1400, "height": 900}, service_workers="block")
        guard = OfflineGuard(context)
        page = context.new_page()
        page.set_default_timeout(LOAD_TIMEOUT * 1000)
        page.goto(f"http://127.0.0.1:{port}/")
        page.locator(ROW).first.wait_for()
        assert page.evaluate("() => document.querySelector('.etviz') === null"), "not in a shadow root"
        select_cumsum(page)

        def is_known() -> bool:
            page.wait_for_timeout(100)  # lets the page's requests pass: the guard answers each of them
            return b"selected aten::cumsum" in log.read_bytes()

        wait_until(is_known, "the kernel knows the selection", LOAD_TIMEOUT)
        page.screenshot(path=screenshots / "marimo.png")
        context.close()
        assert [url for url in guard.requests if "etviz" in url] == []
    finally:
        server.terminate()
        server.wait()


@pytest.fixture(scope="module")
def firefox() -> Iterator[Firefox]:
    program = find_firefox()
    if program is None:
        pytest.skip("there is no Firefox: tests/browser/ensure_firefox.sh, or ETVIZ_FIREFOX")
    browser = Firefox(program)
    yield browser
    browser.close()


def test_the_report_in_firefox(
    firefox: Firefox, executed: Callable[[str], Executed], tmp_path: Path, screenshots: Path
) -> None:
    path = executed("residual_cnn").inspection.to_html(tmp_path / "report.html", tensors="worst")
    firefox.open(path.as_uri())
    firefox.wait_for(f"document.querySelectorAll('{ROW}').length > 4")
    firefox.evaluate(
        f"[...document.querySelectorAll('{ROW}')].find((row) => /cumsum/.test(row.textContent)).classList.add('mine')"
    )
    firefox.click(f"{ROW}.mine")
    firefox.wait_for("/cumsum/.test(document.querySelector('[role=treegrid] [aria-selected=true]')?.textContent)")
    firefox.wait_for("document.querySelector('.etviz svg[role=img]') !== null")
    firefox.press("\ue015")  # arrow down
    firefox.wait_for("!/cumsum/.test(document.querySelector('.etv-table [aria-selected=true]')?.textContent)")
    firefox.screenshot(screenshots / "firefox-report.png")
    assert firefox.foreign() == []
    assert firefox.errors == []


def test_an_embedded_report_in_firefox(firefox: Firefox, executed: Callable[[str], Executed], tmp_path: Path) -> None:
    """What a cell's output holds where reports are embedded: a frame without the rights of the page around it."""
    etviz.options.embed = True
    try:
        html = executed("residual_cnn").inspection._repr_mimebundle_()[0]["text/html"]  # pyright: ignore[reportPrivateUsage]
    finally:
        etviz.options.embed = False
    page = tmp_path / "page.html"
    page.write_text(f"<!doctype html><meta charset='utf-8'>{html}", encoding="utf-8")
    firefox.open(page.as_uri())
    firefox.wait_for("document.querySelector('iframe').clientHeight > 300")
    firefox.wait_for_in_frame(f"document.querySelectorAll('{ROW}').length > 4")
    assert firefox.foreign() == []
    assert firefox.errors == []
