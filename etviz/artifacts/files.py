"""Opening a file that a user named, and telling what it is when it is not what was asked for."""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Final

from etviz.errors import ArtifactError

PathLike = str | os.PathLike[str]

_HEAD: Final = 64
_RESIDENT: Final = 384 << 20
_MARKS: Final = (
    (8, b"ED00", "an ETDump"),
    (4, b"BP08", "a BundledProgram (.bpte)"),
    (4, b"ET12", "an ExecuTorch program (.pte)"),
    (4, b"FT01", "an ExecuTorch data file (.ptd)"),
    (0, b"PK\x03\x04", "a zip archive (an ETRecord, a torch file or an exported program)"),
    (0, b"PK\x05\x06", "an empty zip archive"),
    (0, b"\x80\x02", "a Python pickle"),
    (0, b"\x1f\x8b", "a gzip file"),
    (0, b"\x7fELF", "an executable"),
    (0, b"{", "a JSON file"),
    (0, b"<", "an HTML or XML file"),
    (0, b"version https://git-lfs", "a Git LFS pointer, not the file itself"),
)


def looks_like(head: bytes) -> str | None:
    r"""Say what a file is by its first 64 bytes, None if nothing is recognised.

    Examples
    --------
    >>> looks_like(b"PK\x03\x04....")
    'a zip archive (an ETRecord, a torch file or an exported program)'
    """
    for start, mark, name in _MARKS:
        if head[start : start + len(mark)] == mark:
            return name
    return "a file of zeros" if head and not any(head) else None


def open_artifact(path: PathLike, what: str, advice: str) -> mmap.mmap:
    """Map a file read-only into memory.

    Parameters
    ----------
    path
        The file.
    what
        What it should be, with its article: "an ETDump".
    advice
        How such a file is made, for the message when it is missing or empty.

    Raises
    ------
    ArtifactError
        If it is missing, a directory, empty or unreadable.
    """
    name = os.fspath(path)
    if Path(name).is_dir():
        raise ArtifactError(name, f"this is a directory, not {what}", "name the file inside of it", expected=what)
    try:
        with Path(name).open("rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                raise ArtifactError(name, f"the file is empty; expected {what}", advice, expected=what)
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError:
        raise ArtifactError(name, "there is no such file", advice, expected=what) from None
    except (OSError, ValueError) as error:
        problem = f"the file can't be read ({getattr(error, 'strerror', None) or error})"
        raise ArtifactError(name, problem, "check its permissions", expected=what) from error


def wrong_kind(path: PathLike, head: bytes, what: str, advice: str) -> ArtifactError:
    """Make the error for a file that is not what it should be, saying what it looks like instead."""
    found = looks_like(head[:_HEAD])
    problem = f"this is not {what}; it looks like {found}" if found else f"this is not {what}"
    return ArtifactError(path, problem, advice, where=0, found=found, expected=what)


class Residency:
    """Gives the pages of a mapped file back to the system while it is read, so that they don't fill the memory.

    They stay in the system's cache; what is still in use is mapped again when it is touched.

    Parameters
    ----------
    data
        The mapped file, or a part of it.
    """

    def __init__(self, data: memoryview) -> None:
        self._map = data.obj if isinstance(data.obj, mmap.mmap) else None
        self._read = 0

    def add(self, nbytes: int) -> None:
        """Take note that so many bytes are being read."""
        self._read += nbytes
        if self._read > _RESIDENT and self._map is not None and hasattr(mmap, "MADV_DONTNEED"):
            self._read = 0
            self._map.madvise(mmap.MADV_DONTNEED)
