"""A folder that all processes of a test run share: what one of them made, the others find."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock


class Shelf:
    """Makes each thing once, in the process that asks first."""

    def __init__(self, root: Path) -> None:
        self._root = root
        root.mkdir(parents=True, exist_ok=True)

    def folder(self, name: str, make: Callable[[Path], object]) -> Path:
        """The folder `name`; `make` fills it if it is not there, while whoever else wants it waits."""
        whole, partial = self._root / name, self._root / f"{name}.partial"
        with FileLock(self._root / f"{name}.lock"):
            if not whole.exists():
                shutil.rmtree(partial, ignore_errors=True)
                partial.mkdir()
                make(partial)
                partial.rename(whole)
        return whole
