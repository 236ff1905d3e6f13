"""The system's Chromium, driven by Playwright."""

from __future__ import annotations

import os
import shutil

from playwright.sync_api import Browser, Playwright

# ensure_chromium.sh looks for the same names.
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
)


def find_chromium() -> str:
    """Return the path of the browser: ETVIZ_CHROMIUM, or the first of `NAMES` on the PATH."""
    chosen = os.environ.get("ETVIZ_CHROMIUM")
    if chosen:
        return chosen
    for name in NAMES:
        path = shutil.which(name)
        if path:
            return path
    raise FileNotFoundError(
        f"The browser tests need Chromium: none of {', '.join(NAMES)} is on the PATH. "
        "Run tests/browser/ensure_chromium.sh, or set ETVIZ_CHROMIUM."
    )


def launch(playwright: Playwright) -> Browser:
    """Start a headless Chromium with an empty profile, and scrollbars that take room as on a desk."""
    return playwright.chromium.launch(
        executable_path=find_chromium(), headless=True, args=list(FLAGS), ignore_default_args=["--hide-scrollbars"]
    )
