"""The command line. Exit status 0: fine, 1: a check failed, 2: bad usage or a bad artifact."""

from __future__ import annotations

from etviz.cli.app import main

__all__ = ["main"]
