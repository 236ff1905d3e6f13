"""A checksum of a large file in a fraction of the time that a cryptographic hash of all its bytes takes.

It tells by accident, not by malice, whether a record and a `.pte` belong together. The bytes are read as 64-bit words,
512 kB at a time as a square table; the SHA-256 of the sums of all rows and all columns is the checksum. One changed
word, two words that changed places, other weights, another length: each changes a sum.
"""

from __future__ import annotations

import hashlib
from typing import Final

import numpy as np

from etviz.artifacts.files import PathLike, open_artifact

_SIDE: Final = 256
_BLOCK: Final = _SIDE * _SIDE * 8
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
        data = memoryview(content)
    else:
        data = memoryview(open_artifact(content, "an ExecuTorch program", "give the .pte"))
    digest = hashlib.sha256(len(data).to_bytes(8, "little"))
    whole = len(data) // _BLOCK * _BLOCK
    for start in range(0, whole, _BLOCK):
        table = np.frombuffer(data, "<u8", _SIDE * _SIDE, start).reshape(_SIDE, _SIDE)
        digest.update(np.add.reduce(table, axis=1).tobytes())
        digest.update(np.add.reduce(table, axis=0).tobytes())
    digest.update(data[whole:])
    return f"{NAME}:{digest.hexdigest()}"


def agrees(content: PathLike | bytes | memoryview, stored: str) -> bool:
    """True if the content has a stored checksum, which records of version 1 have as a SHA-256."""
    kind, _, digits = stored.partition(":")
    if kind == "sha256":
        return _sha256_of(content) == digits
    return checksum_of(content) == stored


def _sha256_of(content: PathLike | bytes | memoryview) -> str:
    if not isinstance(content, (bytes, memoryview)):
        content = memoryview(open_artifact(content, "an ExecuTorch program", "give the .pte"))
    return hashlib.sha256(content).hexdigest()
