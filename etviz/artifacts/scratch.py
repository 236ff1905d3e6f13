"""Temporary folders that are removed even if their process is killed.

Each folder is locked while in use, and unlocked when its process dies. The next process removes unlocked ones.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import stat
import tempfile
import time
import weakref
from pathlib import Path
from typing import Final

from etviz.errors import ArtifactError

_PREFIX: Final = "etviz-tmp-"
_NEW: Final = 60.0
"""Seconds after its creation in which a folder may still be unlocked."""
_LONGEST: Final = 5.0


class Scratch:
    """A new folder, readable by its owner only, removed with this object or with the process.

    Outside the system's temporary folder, its name begins with a dot, and failures raise `OSError`.
    """

    def __init__(self, folder: Path | None = None) -> None:
        prefix = _PREFIX if folder is None else f".{_PREFIX}"
        parent = Path(tempfile.gettempdir()) if folder is None else folder
        _sweep(parent, prefix)
        try:
            self.name = tempfile.mkdtemp(prefix=prefix, dir=parent)
        except OSError as error:
            if folder is not None:
                raise
            problem = f"no temporary folder can be made there ({error.strerror or error})"
            raise ArtifactError(parent, problem, "free some space, or set TMPDIR to another folder") from error
        self._end = weakref.finalize(self, _remove, self.name, _lock(self.name), os.getpid())

    def cleanup(self) -> None:
        self._end()

    def __enter__(self) -> str:
        return self.name

    def __exit__(self, *_: object) -> None:
        self.cleanup()


def _remove(name: str, held: int | None, owner: int) -> None:
    if owner == os.getpid():
        shutil.rmtree(name, ignore_errors=True)
        if held is not None:
            os.close(held)


def _lock(name: str | Path) -> int | None:
    try:
        import fcntl

        held = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (ImportError, OSError):
        return None
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(held)
        return None
    return held


def sweep() -> None:
    _sweep(Path(tempfile.gettempdir()), _PREFIX)


@functools.lru_cache(64)
def _sweep(parent: Path, prefix: str) -> None:
    """Once per place and up to a time limit; not where anyone may rename files."""
    end = time.monotonic() + _LONGEST
    with contextlib.suppress(OSError):
        mode = parent.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            return
        for path in parent.glob(f"{prefix}*"):
            if time.monotonic() > end:
                return
            with contextlib.suppress(OSError):  # another process may sweep too
                _sweep_one(path)


def _sweep_one(path: Path) -> None:
    status = path.lstat()
    is_ours = (
        status.st_uid == os.getuid() and stat.S_IMODE(status.st_mode) == stat.S_IRWXU and stat.S_ISDIR(status.st_mode)
    )
    if is_ours and time.time() - status.st_mtime > _NEW:
        held = _lock(path)
        if held is not None:
            _remove(str(path), held, os.getpid())
