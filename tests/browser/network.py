"""The page stays offline: requests that leave the machine are stopped, and every one is counted."""

from __future__ import annotations

from urllib.parse import urlsplit

from playwright.sync_api import BrowserContext, Page, Route, WebSocket

LOCAL_HOSTS = {"127.0.0.1", "localhost", "::1"}
INLINE_SCHEMES = {"data", "blob", "about", "file"}


def leaves_machine(url: str) -> bool:
    """Say whether a request to `url` would leave this machine."""
    parts = urlsplit(url)
    return parts.scheme not in INLINE_SCHEMES and parts.hostname not in LOCAL_HOSTS


class OfflineGuard:
    """Stops and counts what the pages of one browser context ask of other machines.

    HTTP requests are aborted here. A WebSocket can't be, but the browser resolves no foreign host
    (see `chromium.FLAGS`), so it fails by itself and is only counted.
    """

    def __init__(self, context: BrowserContext) -> None:
        self.requests: list[str] = []
        context.route(leaves_machine, self._stop)
        context.on("page", self._watch)

    def assert_offline(self) -> None:
        """Fail if anything was asked of another machine."""
        assert not self.requests, f"{len(self.requests)} requests left the page: {self.requests[:10]}"

    def _stop(self, route: Route) -> None:
        self.requests.append(route.request.url)
        route.abort()

    def _watch(self, page: Page) -> None:
        page.on("websocket", self._count)

    def _count(self, socket: WebSocket) -> None:
        if leaves_machine(socket.url):
            self.requests.append(socket.url)
