"""A JupyterLab server of its own: free port, own token, this checkout's side panel, and none of the user's settings."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import ProxyHandler, Request, build_opener

import etviz
from tests.browser.deadline import wait_until
from tests.kernels import Kernels

START_TIMEOUT = 120.0
STOP_TIMEOUT = 20.0
SIDE_PANEL = Path(etviz.__file__).parent / "labextension"
NOTIFICATIONS = "@jupyterlab/apputils-extension/notification.jupyterlab-settings"
THEMES = "@jupyterlab/apputils-extension/themes.jupyterlab-settings"


def free_port() -> int:
    """Return a loopback port that nobody listens on at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def isolated_environment(home: Path) -> dict[str, str]:
    """Return the environment for a server whose settings, workspaces and kernels' homes are below `home`."""
    folders = {
        "HOME": "user",
        "IPYTHONDIR": "ipython",
        "JUPYTER_CONFIG_DIR": "config",
        "JUPYTER_DATA_DIR": "data",
        "JUPYTER_RUNTIME_DIR": "runtime",
        "JUPYTERLAB_SETTINGS_DIR": "settings",
        "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
        "MPLCONFIGDIR": "matplotlib",
    }
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("JUPYTER", "XDG_"))}
    for name, folder in folders.items():
        path = home / folder
        path.mkdir(parents=True, exist_ok=True)
        kept[name] = str(path)
    return kept


def silence_announcements(settings: Path) -> None:
    """Answer JupyterLab's question about news before it asks: it would cover the page."""
    path = settings / NOTIFICATIONS
    path.parent.mkdir(parents=True, exist_ok=True)
    answers = {"fetchNews": "false", "checkForUpdates": False, "doNotDisturbMode": True}
    path.write_text(json.dumps(answers), encoding="utf-8")


class JupyterServer:
    """A running JupyterLab; `root` is the folder that it serves."""

    def __init__(self, home: Path, kernels: Kernels) -> None:
        self.root = home / "root"
        self.root.mkdir(parents=True)
        self.token = secrets.token_hex(16)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._ready = False
        self._log = home / "server.log"
        self._direct = build_opener(ProxyHandler({}))
        environment = {**isolated_environment(home), "JUPYTER_PATH": str(kernels.path)}
        self._settings = Path(environment["JUPYTERLAB_SETTINGS_DIR"])
        self._extensions = home / "labextensions"
        self._extensions.mkdir()
        (self._extensions / "etviz").symlink_to(SIDE_PANEL)
        silence_announcements(self._settings)
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command(),
                cwd=self.root,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            wait_until(self._answers, f"JupyterLab at {self.url}", START_TIMEOUT, 0.2)
        except TimeoutError as error:
            raise RuntimeError(f"JupyterLab did not start:\n{self.log()}") from error
        finally:
            if not self._ready:
                self.stop()

    def log(self) -> str:
        """Return the end of what the server wrote."""
        return self._log.read_text(encoding="utf-8", errors="replace")[-4000:]

    def get(self, path: str) -> Any:
        """Return the JSON answer of the server's REST interface."""
        return self._ask("GET", path)

    def reset(self) -> None:
        """End every session with its kernel and forget the theme, so that no module sees another's."""
        sessions = [f"/api/sessions/{session['id']}" for session in self.get("/api/sessions")]
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda session: self._ask("DELETE", session), sessions))
        (self._settings / THEMES).unlink(missing_ok=True)

    def stop(self) -> None:
        """End the server with its kernels; harsher when it doesn't listen."""
        if self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _command(self) -> list[str]:
        options = {
            "ServerApp.ip": "127.0.0.1",
            "ServerApp.port": self.port,
            "ServerApp.port_retries": 0,
            "ServerApp.root_dir": self.root,
            "ServerApp.open_browser": False,
            "ServerApp.terminals_enabled": False,
            "IdentityProvider.token": self.token,
            "LabApp.expose_app_in_browser": True,
            "JupyterNotebookApp.expose_app_in_browser": True,
            "LabApp.extension_manager": "readonly",
            "LabApp.extra_labextensions_path": self._extensions,
            "LabApp.check_for_updates_class": "jupyterlab.NeverCheckForUpdate",
        }
        arguments = [f"--{name}={value}" for name, value in options.items()]
        if os.getuid() == 0:
            arguments.append("--allow-root")
        return [sys.executable, "-m", "jupyterlab", *arguments]

    def _answers(self) -> bool:
        if self._process.poll() is not None:
            raise RuntimeError(f"JupyterLab ended with {self._process.returncode}:\n{self.log()}")
        try:
            self._ready = bool(self.get("/api/status"))
        except (URLError, ConnectionError, TimeoutError):
            return False
        return self._ready

    def _ask(self, method: str, path: str) -> Any:
        headers = {"Authorization": f"token {self.token}"}
        request = Request(self.url + path, method=method, headers=headers)
        with self._direct.open(request, timeout=30) as answer:
            body = answer.read()
        return json.loads(body) if body else None
