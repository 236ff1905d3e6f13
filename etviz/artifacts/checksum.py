"""A checksum of a large file in a fraction of the time that a cryptographic hash of all its bytes takes.

It tells by accident, not by malice, whether a record and a `.pte` belong together. The bytes are read as 64-bit words,
512 kB at a time as a square table; the SHA-256 of the sums of all rows and all columns is the checksum. One changed
word, two words that changed places, other weights, another length: each changes a sum.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import sys
import threading
from typing import Final

import numpy as np
import numpy.typing as npt

from etviz.artifacts.files import PathLike, open_artifact
from etviz.errors import ArtifactError
from etviz.native import table_sums

_SIDE: Final = 256
_BLOCK: Final = _SIDE * _SIDE * 8
_AT_ONCE: Final = 256
"""Tables between two words to the interpreter."""
NAME: Final = "sums-256x256"


def checksum_of(content: PathLike | bytes | memoryview) -> str:
    """The checksum of a file, or of bytes.

    Returns
    -------
    str
        ``sums-256x256:`` and 64 hexadecimal digits.

    Raises
    ------
    ArtifactError
        If the file can't be read.

    Examples
    --------
    >>> checksum_of(b"abc") == checksum_of(b"abc"), checksum_of(b"abc") == checksum_of(b"acb")
    (True, False)
    """
    if isinstance(content, (bytes, memoryview)):
        return _checksum(io.BytesIO(content), len(content))
    open_artifact(content, "an ExecuTorch program", "give the .pte").close()
    with io.FileIO(content) as file:  # read, not mapped: mapping a page takes longer than copying it
        return _checksum(file, os.fstat(file.fileno()).st_size)


def _checksum(file: io.BytesIO | io.FileIO, size: int) -> str:
    digest = hashlib.sha256(size.to_bytes(8, "little"))
    sums = np.empty((_AT_ONCE, 2, _SIDE), "<u8")
    left = size // _BLOCK
    while left:
        part = sums[: min(left, _AT_ONCE)]
        if _add_tables(file, part) < len(part):
            raise _shorter(file)
        digest.update(part.data)
        left -= len(part)
    rest = bytearray(size % _BLOCK)
    if not _fill(file, memoryview(rest)):
        raise _shorter(file)
    digest.update(rest)
    return f"{NAME}:{digest.hexdigest()}"


def _add_tables(file: io.BytesIO | io.FileIO, out: npt.NDArray[np.uint64]) -> int:
    """Write the row sums and the column sums of the next tables to `out`; returns how many tables there were."""
    if isinstance(file, io.FileIO) and sys.byteorder == "little":
        found = table_sums(file.fileno(), out)
        if found is not None:
            return found
    table = np.empty((_SIDE, _SIDE), "<u8")
    for done, (rows, columns) in enumerate(out):
        if not _fill(file, table.data.cast("B")):
            return done
        np.add.reduce(table, axis=1, out=rows)
        np.add.reduce(table, axis=0, out=columns)
    return len(out)


def _fill(file: io.BytesIO | io.FileIO, target: memoryview) -> bool:
    """Read until `target` is full; False if the file ends before."""
    while len(target) and (got := file.readinto(target)):
        target = target[got:]
    return not len(target)


def _shorter(file: io.BytesIO | io.FileIO) -> ArtifactError:
    return ArtifactError(getattr(file, "name", ""), "the file became shorter while it was read", "try again")


class Checking:
    """Computes a checksum in a thread of its own, while other files are read.

    Parameters
    ----------
    content
        As for `checksum_of`.
    """

    def __init__(self, content: PathLike | bytes | memoryview) -> None:
        self._content = content
        self._found: str | None = None
        self._thread = threading.Thread(target=self._run, name="etviz-checksum", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with contextlib.suppress(ArtifactError, OSError):  # whoever reads the file says so
            self._found = checksum_of(self._content)

    def agrees(self, stored: str) -> bool:
        """Wait, and tell if the content has a stored checksum, which records of version 1 have as a SHA-256."""
        self._thread.join()
        kind, _, digits = stored.partition(":")
        return _sha256_of(self._content) == digits if kind == "sha256" else self._found == stored


def _sha256_of(content: PathLike | bytes | memoryview) -> str:
    if not isinstance(content, (bytes, memoryview)):
        content = memoryview(open_artifact(content, "an ExecuTorch program", "give the .pte"))
    return hashlib.sha256(content).hexdigest()
