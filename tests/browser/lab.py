"""What a test does in JupyterLab: open a notebook, run it, look at its outputs, change the theme.

JupyterLab is asked through its own application object (`jupyterapp`, exposed for these tests), because its
commands and kernel states are stable where its menus and class names are not. What a user of etviz clicks,
the tests click.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from playwright.sync_api import Browser, ConsoleMessage, Error, Locator, Page, ViewportSize

from tests.browser.deadline import wait_until
from tests.browser.network import OfflineGuard
from tests.browser.notebooks import write_notebook
from tests.browser.server import JupyterServer

LOAD_TIMEOUT = 90.0
WAIT_TIMEOUT = 30.0
RUN_TIMEOUT = 180.0
BLANK = "about:blank"
VIEWPORT: ViewportSize = {"width": 1400, "height": 1000}
THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}

# Exactly what the status bar shows; a notebook that is run before it says idle may do nothing.
IDLE = "() => window.jupyterapp?.shell.currentWidget?.sessionContext?.kernelDisplayStatus === 'idle'"
RUN_ALL = """() => {
    window.etvizRun = { done: false };
    const ran = window.jupyterapp.commands.execute("notebook:run-all-cells");
    ran.finally(() => { window.etvizRun.done = true; });
}"""
OPEN = """async (path) => { await window.jupyterapp.commands.execute("docmanager:open", { path }); }"""
IN_FRONT = "(path) => window.jupyterapp.shell.currentWidget?.context?.path === path"
EXECUTE = """async (code) => {
    const kernel = window.jupyterapp.shell.currentWidget.sessionContext.session.kernel;
    const future = kernel.requestExecute({ code, store_history: false });
    let text = "";
    future.onIOPub = (message) => { text += message.content.text ?? message.content.evalue ?? ""; };
    await future.done;
    return text;
}"""
CLOSE_ALL = """() => {
    const { shell } = window.jupyterapp;
    const panels = ["left", "right"].flatMap((area) => [...shell.widgets(area)]);
    for (const widget of [...shell.widgets("main"), ...panels.filter((one) => one.hasClass("etviz-panel"))])
        widget.dispose();
    shell.collapseRight();
}"""
OUTPUTS = """() => window.jupyterapp.shell.currentWidget.content.model.sharedModel.cells.map(
    (cell) => cell.toJSON().outputs ?? [])"""


class Lab:
    """One browser page with JupyterLab in it."""

    def __init__(self, page: Page, server: JupyterServer, screenshots: Path) -> None:
        self.page = page
        self.server = server
        self.offline = OfflineGuard(page.context)
        self.console_errors: list[str] = []
        self._screenshots = screenshots
        page.set_default_timeout(WAIT_TIMEOUT * 1000)
        page.set_default_navigation_timeout(LOAD_TIMEOUT * 1000)
        page.on("console", self._note_console)
        page.on("pageerror", self._note_exception)

    def open(self, name: str, *cells: str, mode: Literal["lab", "doc", "notebooks"] = "lab") -> None:
        """Write the notebook `name`.ipynb with these cells, open it, and wait for its kernel.

        `mode` "lab" is the whole application, "doc" its single-document view, "notebooks" Notebook 7. Without cells, a
        notebook that is already in the server's folder is opened.
        """
        if cells:
            write_notebook(self.server.root / f"{name}.ipynb", *cells)
        path = "notebooks" if mode == "notebooks" else f"{mode}/tree"
        self.page.goto(f"{self.server.url}/{path}/{name}.ipynb?reset&token={self.server.token}")
        self.wait_idle(LOAD_TIMEOUT)
        self._wait_for_splash()

    def front(self, name: str, *cells: str) -> None:
        """Bring the notebook `name`.ipynb to the front of the page, and wait for its kernel; as for `open`.

        To load the page takes three times as long: it is done if nothing was opened in it before.
        """
        if self.page.url == BLANK:
            self.open(name, *cells)
            return
        if cells:
            write_notebook(self.server.root / f"{name}.ipynb", *cells)
        self.page.evaluate(OPEN, f"{name}.ipynb")
        self.page.wait_for_function(IN_FRONT, arg=f"{name}.ipynb")
        self.wait_idle(LOAD_TIMEOUT)

    def close_all(self) -> None:
        """Close notebooks and side panels unsaved, end their kernels, and forget the theme."""
        if "/lab/" in self.page.url:
            self.page.evaluate(CLOSE_ALL)
            self.set_theme("light")
        else:
            self.page.goto(BLANK)
        self.server.reset()

    def command(self, name: str) -> None:
        """Run a command of JupyterLab."""
        self.page.evaluate("async (name) => { await window.jupyterapp.commands.execute(name); }", name)

    def python(self, code: str) -> str:
        """Run code in the notebook's kernel and return what it printed."""
        return self.page.evaluate(EXECUTE, code)

    def wait_for_python(self, expression: str, value: object) -> None:
        """Wait until an expression has this value in the kernel: what a person does takes a moment to get there."""
        try:
            wait_until(
                lambda: self.python(f"print(({expression}) == {value!r})").strip() == "True", expression, WAIT_TIMEOUT
            )
        except TimeoutError:
            assert self.python(f"print(repr({expression}))").strip() == repr(value), expression

    def wait_idle(self, timeout: float = RUN_TIMEOUT) -> None:
        """Wait until the kernel of the notebook has nothing to do."""
        self.page.wait_for_function(IDLE, timeout=timeout * 1000)

    def run_all(self, timeout: float = RUN_TIMEOUT) -> None:
        """Run every cell and wait for the end; a cell that raised fails the test with its traceback."""
        self.page.evaluate(RUN_ALL)
        self.page.wait_for_function("() => window.etvizRun.done", timeout=timeout * 1000)
        self.wait_idle(timeout)
        for outputs in self.outputs():
            for output in outputs:
                assert output["output_type"] != "error", "\n".join(output["traceback"])

    def outputs(self) -> list[list[dict[str, Any]]]:
        """Return the outputs of each cell as the notebook format has them."""
        return self.page.evaluate(OUTPUTS)

    def output(self, selector: str) -> Locator:
        """Wait until `selector` is visible in the outputs of the notebook that is in front, and return it."""
        found = self.page.locator(f".jp-NotebookPanel:not(.lm-mod-hidden) .jp-OutputArea {selector}").first
        found.wait_for(state="visible")
        return found

    def set_theme(self, theme: Literal["light", "dark"]) -> None:
        """Change JupyterLab's theme and wait until it is applied."""
        command = "(theme) => window.jupyterapp.commands.execute('apputils:change-theme', { theme })"
        self.page.evaluate(command, THEMES[theme])
        self.page.locator(f"body[data-jp-theme-name='{THEMES[theme]}']").wait_for(state="attached")
        self._wait_for_splash()

    def screenshot(self, name: str, target: Locator | None = None) -> Path:
        """Write a picture of the page, or of `target`, into the folder of screenshots."""
        path = self._screenshots / f"{name}.png"
        if target is None:
            self.page.screenshot(path=path)
        else:
            target.screenshot(path=path)
        return path

    def _wait_for_splash(self) -> None:
        """Wait until the splash is gone that covers the page while JupyterLab loads or changes theme."""
        self.page.locator("#jupyterlab-splash").wait_for(state="detached")

    def _note_console(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.console_errors.append(f"{message.text} ({message.location.get('url', '')})")

    def _note_exception(self, error: Error) -> None:
        self.console_errors.append(f"uncaught: {error}")


@contextmanager
def open_lab(browser: Browser, server: JupyterServer, screenshots: Path) -> Generator[Lab]:
    """Give a fresh page; afterwards check that nothing left the machine."""
    context = browser.new_context(viewport=VIEWPORT, service_workers="block")
    try:
        lab = Lab(context.new_page(), server, screenshots)
        yield lab
        lab.offline.assert_offline()
    finally:
        context.close()
