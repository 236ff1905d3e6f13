"""Writing a file that a user named: it appears under its name whole, or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from etviz.artifacts.files import PathLike
from etviz.errors import ArtifactError


@contextmanager
def whole_file(path: PathLike, what: str) -> Generator[Path]:
    """Give a temporary name beside `path`; what was written there takes the place of `path` at the end.

    Parameters
    ----------
    path
        The file to make or to replace.
    what
        What is written, with its article: "the report".

    Raises
    ------
    ArtifactError
        If it can't be written: the disk is full, there is no permission. What stood under `path` before stays; after
        an interrupt, too.
    """
    target = check_target(path, what)
    partial = target.with_name(f".etviz-{os.getpid()}-{secrets.token_hex(4)}.partial")
    try:
        yield partial
        partial.replace(target)
    except OSError as error:
        raise _unwritable(path, what, error) from error
    finally:
        partial.unlink(missing_ok=True)


def check_target(path: PathLike, what: str) -> Path:
    """Refuse what can't be a file's name before any work is done for it.

    Raises
    ------
    ArtifactError
        If `path` is a folder, or its folder is missing or can't be written to.
    """
    target = Path(path)
    try:
        if target.is_dir():
            raise ArtifactError(path, f"this is a folder; {what} needs the name of a file", "add a file name")
        if not target.parent.is_dir():
            raise ArtifactError(path, f"there is no folder {target.parent}", "make it, or choose another")
    except OSError as error:
        raise _unwritable(path, what, error) from error
    effective = os.access in os.supports_effective_ids
    if not os.access(target.parent, os.W_OK | os.X_OK, effective_ids=effective):
        raise ArtifactError(path, f"no permission to write into {target.parent}", "choose another folder")
    return target


def _unwritable(path: PathLike, what: str, error: OSError) -> ArtifactError:
    reason = error.strerror or type(error).__name__
    return ArtifactError(path, f"{what} can't be written ({reason})", "free some space, or choose another folder")
