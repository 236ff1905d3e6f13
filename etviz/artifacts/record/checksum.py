"""The checksum of a `.pte`, which detects accidental mismatches, not malice."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import xxhash

from etviz.artifacts.files import PathLike, open_artifact
from etviz.artifacts.known_files import alike, is_noted, is_whole, note, note_whole
from etviz.artifacts.record.etrecord import ETRecord
from etviz.errors import ArtifactError

_BLOCK: Final = 1 << 19
_CHECKSUM: Final = "checksum"


def checksum_of(content: PathLike | bytes | memoryview) -> str:
    """``xxh3:`` and 32 hexadecimal digits.

    Examples
    --------
    >>> checksum_of(b"abc")
    'xxh3:06b05ab6733a618578af5f94892f3950'
    """
    digest = xxhash.xxh3_128()
    if isinstance(content, (bytes, memoryview)):
        digest.update(content)
        return f"xxh3:{digest.hexdigest()}"
    open_artifact(content, "an ExecuTorch program", "give the .pte").close()
    block = memoryview(bytearray(_BLOCK))
    with Path(content).open("rb", buffering=0) as file:  # read, not mapped: a file that is cut meanwhile does no harm
        while size := file.readinto(block):
            digest.update(block[:size])
    return f"xxh3:{digest.hexdigest()}"


class Verifying:
    def __init__(self, etrecord: ETRecord) -> None:
        self._etrecord = etrecord
        self._error: ArtifactError | None = None
        self._thread: threading.Thread | None = None
        if not is_whole(etrecord.path):
            self._thread = threading.Thread(target=self._run, name="etviz-crc", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        try:
            self._etrecord.check()
        except ArtifactError as error:
            self._error = error
        except ValueError:  # who reads the archive says so
            return
        else:
            note_whole(self._etrecord.path)

    def finish(self) -> None:
        if self._thread is not None:
            self._thread.join()
        if self._error is not None:
            raise self._error


class Checking:
    def __init__(self, content: PathLike | bytes | memoryview, files: Mapping[str, PathLike] | None = None) -> None:
        self._content = content
        self._checksum: str | None = None
        self._thread: threading.Thread | None = None
        self._state = alike(files, _CHECKSUM) if files else ""
        if not self._state or not is_noted(self._state):
            self._thread = threading.Thread(target=self._run, name="etviz-checksum", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        with contextlib.suppress(ArtifactError, OSError):  # whoever reads the file says so
            self._checksum = checksum_of(self._content)

    def agrees(self, stored: str) -> bool:
        if self._thread is None:
            return True
        self._thread.join()
        agrees = self._checksum == stored
        if agrees and self._state:
            note(self._state)
        return agrees
