"""Waiting for something to become true, with a deadline instead of a sleep of hopeful length."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(probe: Callable[[], T | None], what: str, timeout: float, interval: float = 0.05) -> T:
    """Call `probe` until it gives something true, and return that.

    Raises
    ------
    TimeoutError
        After `timeout` seconds, naming `what` was waited for.
    """
    deadline = time.monotonic() + timeout
    while True:
        answer = probe()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout:g} s for {what}")
        time.sleep(interval)
