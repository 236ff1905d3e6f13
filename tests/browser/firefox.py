"""The system's Firefox, driven by its own WebDriver BiDi: no driver program stands between.

https://w3c.github.io/webdriver-bidi; Firefox's remote agent speaks it over one WebSocket.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from websockets.sync.client import connect

from tests.browser.network import leaves_machine

# ensure_firefox.sh looks for the same names.
NAMES = ("firefox-esr", "firefox")
START_TIMEOUT = 60.0
TIMEOUT = 60.0
_LISTENING = re.compile(r"WebDriver BiDi listening on (ws://\S+)")
_PREFERENCES = {
    "app.normandy.enabled": False,
    "app.update.enabled": False,
    "browser.safebrowsing.malware.enabled": False,
    "browser.safebrowsing.phishing.enabled": False,
    "browser.startup.page": 0,
    "datareporting.policy.dataSubmissionEnabled": False,
    "network.captive-portal-service.enabled": False,
    "network.connectivity-service.enabled": False,
    "services.settings.server": "data:,#remote-settings-dummy/v1",
    "toolkit.telemetry.server": "",
}


def find_firefox() -> str | None:
    """The path of the browser: ETVIZ_FIREFOX, or the first of `NAMES` on the PATH; None if there is none."""
    return os.environ.get("ETVIZ_FIREFOX") or next(filter(None, map(shutil.which, NAMES)), None)


class Firefox:
    """A headless Firefox with an empty profile and one page; `requests` and `errors` are those of the page."""

    def __init__(self, program: str, width: int = 1400, height: int = 900) -> None:
        self._home = tempfile.TemporaryDirectory(prefix="etviz-firefox-")
        profile = Path(self._home.name)
        lines = [f"user_pref({json.dumps(name)}, {json.dumps(value)});" for name, value in _PREFERENCES.items()]
        (profile / "user.js").write_text("\n".join(lines), encoding="utf-8")
        self._log = profile / "firefox.log"
        command = [program, "--headless", "--no-remote", "--profile", str(profile), "--remote-debugging-port", "0"]
        environment = os.environ | {"HOME": str(profile), "MOZ_DISABLE_CONTENT_SANDBOX": "1"}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, "about:blank"], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment
            )
        self.requests: list[str] = []
        self.errors: list[str] = []
        self._ids = itertools.count()
        try:
            self._socket = connect(f"{self._address()}/session", max_size=1 << 27, proxy=None)
            self.ask("session.new", capabilities={})
            self._page = self.ask("browsingContext.getTree")["contexts"][0]["context"]
            self.ask("session.subscribe", events=["network.beforeRequestSent", "log.entryAdded"])
            self.ask(
                "browsingContext.setViewport",
                context=self._page,
                viewport={"width": width, "height": height},
            )
        except BaseException:
            self.close()
            raise

    def _address(self) -> str:
        deadline = time.monotonic() + START_TIMEOUT
        while time.monotonic() < deadline and self._process.poll() is None:
            found = _LISTENING.search(self._log.read_text(encoding="utf-8", errors="replace"))
            if found:
                return found[1]
            time.sleep(0.05)
        raise RuntimeError(f"Firefox did not start:\n{self._log.read_text(encoding='utf-8', errors='replace')[-2000:]}")

    def ask(self, method: str, **params: Any) -> Any:
        """Send a command and wait for its result; events that come before it are kept."""
        number = next(self._ids)
        self._socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            message = json.loads(self._socket.recv(timeout=TIMEOUT))
            if message.get("id") == number:
                if message["type"] == "error":
                    raise RuntimeError(f"{method}: {message['error']}: {message['message']}")
                return message["result"]
            self._note(message)

    def _note(self, message: dict[str, Any]) -> None:
        params = message.get("params", {})
        if message.get("method") == "network.beforeRequestSent":
            self.requests.append(params["request"]["url"])
        elif message.get("method") == "log.entryAdded" and params.get("level") == "error":
            self.errors.append(str(params.get("text")))

    def open(self, url: str) -> None:
        """Open a page and wait until it has loaded."""
        self.ask("browsingContext.navigate", context=self._page, url=url, wait="complete")

    def evaluate(self, expression: str) -> Any:
        """The value of an expression in the page: text, a number, true, false or None. A promise is waited for."""
        answer = self.ask("script.evaluate", expression=expression, target={"context": self._page}, awaitPromise=True)
        if answer["type"] == "exception":
            raise RuntimeError(answer["exceptionDetails"]["text"])
        return answer["result"].get("value")

    def wait_for(self, expression: str, timeout: float = TIMEOUT) -> None:
        """Wait until an expression is true."""
        deadline = time.monotonic() + timeout
        while not self.evaluate(expression):
            assert time.monotonic() < deadline, f"{expression} did not become true; errors: {self.errors}"
            time.sleep(0.05)

    def wait_for_in_frame(self, expression: str, timeout: float = TIMEOUT) -> None:
        """Wait until an expression is true in the page's first frame."""
        page = self._page
        try:
            self._page = self.ask("browsingContext.getTree", root=page)["contexts"][0]["children"][0]["context"]
            self.wait_for(expression, timeout)
        finally:
            self._page = page

    def click(self, selector: str) -> None:
        """Click with the mouse near the left of the first element that a selector finds."""
        place = f"document.querySelector({json.dumps(selector)})"
        self.evaluate(f"{place}.scrollIntoView({{ block: 'center' }})")
        box = f"{place}.getBoundingClientRect()"
        x = int(self.evaluate(f"{box}.left + Math.min(40, {box}.width / 2)"))  # a row is wider than its pane
        y = int(self.evaluate(f"{box}.top + {box}.height / 2"))
        steps = [
            {"type": "pointerMove", "x": x, "y": y},
            {"type": "pointerDown", "button": 0},
            {"type": "pointerUp", "button": 0},
        ]
        actions = [{"type": "pointer", "id": "mouse", "actions": steps}]
        self.ask("input.performActions", context=self._page, actions=actions)

    def press(self, key: str) -> None:
        """Press a key where the focus is; names are those of WebDriver's key table, as characters."""
        steps = [{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]
        self.ask("input.performActions", context=self._page, actions=[{"type": "key", "id": "keys", "actions": steps}])

    def screenshot(self, path: Path) -> None:
        """Write a picture of the page."""
        answer = self.ask("browsingContext.captureScreenshot", context=self._page)
        path.write_bytes(base64.b64decode(answer["data"]))

    def foreign(self) -> list[str]:
        """Requests of the page that would have left this machine."""
        self.evaluate("1")
        return [url for url in self.requests if leaves_machine(url)]

    def close(self) -> None:
        """End it."""
        if hasattr(self, "_socket"):
            self._socket.close()
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._home.cleanup()
