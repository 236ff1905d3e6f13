"""Fixtures of the browser tests: one JupyterLab, one Chromium and one page of JupyterLab for all.

Screenshots go to the folder named by ETVIZ_SCREENSHOTS, else to a temporary one. A test that fails leaves
a picture of its page there.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from tests.browser.chromium import launch
from tests.browser.lab import WAIT_TIMEOUT, Lab, open_lab
from tests.browser.server import JupyterServer
from tests.kernels import Kernels
from tests.programs import Executed

HERE = Path(__file__).parent
FAILED = pytest.StashKey[bool]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder as a browser test."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker("browser")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let the fixtures know at teardown whether the test failed."""
    report = yield
    if report.when == "call":
        item.stash[FAILED] = report.failed
    return report


@pytest.fixture(scope="session")
def screenshots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder for screenshots."""
    chosen = os.environ.get("ETVIZ_SCREENSHOTS")
    folder = Path(chosen) if chosen else tmp_path_factory.mktemp("screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="package")
def jupyter_server(tmp_path_factory: pytest.TempPathFactory, kernels: Kernels) -> Iterator[JupyterServer]:
    """A running JupyterLab server."""
    server = JupyterServer(tmp_path_factory.mktemp("jupyter"), kernels)
    yield server
    server.stop()


@pytest.fixture(scope="package")
def artifacts(jupyter_server: JupyterServer, executed: Callable[[str], Executed]) -> Path:
    """The artifacts of a small, partly delegated model, in a folder of the server's root."""
    return Path(shutil.copytree(executed("residual_cnn").folder, jupyter_server.root / "artifacts"))


# Not for the session: while Playwright runs, its event loop makes asyncio.run fail in this thread,
# so that later tests outside this folder could not execute a notebook.
@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """A running Chromium."""
    with sync_playwright() as playwright:
        expect.set_options(timeout=WAIT_TIMEOUT * 1000)
        chromium = launch(playwright)
        yield chromium
        chromium.close()


@pytest.fixture(scope="package")
def _lab(browser: Browser, jupyter_server: JupyterServer, screenshots: Path) -> Iterator[Lab]:
    with open_lab(browser, jupyter_server, screenshots) as page:
        yield page


@pytest.fixture(scope="module")
def lab(_lab: Lab) -> Iterator[Lab]:
    """The page, with nothing open in it; the module's last test fails if anything left the machine."""
    yield _lab
    _lab.offline.assert_offline()
    _lab.close_all()


@pytest.fixture(autouse=True)
def _picture_of_a_failure(request: pytest.FixtureRequest) -> Iterator[None]:
    lab = request.getfixturevalue("lab") if "lab" in request.fixturenames else None
    if lab is not None:
        lab.console_errors.clear()
    yield
    if lab is not None and request.node.stash.get(FAILED, False):
        lab.screenshot(f"failed-{request.node.name}")
