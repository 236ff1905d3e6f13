"""Remembers which files this user's etviz wrote here.

Device, inode, size and times identify a file, so a copy counts as another one. The ledger is readable by its owner
only.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import tempfile
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from etviz.artifacts.files import PathLike, identity_told_by

logger = logging.getLogger(__name__)

_MOST: Final = 4000


def identity(path: PathLike) -> str:
    return _digest(identity_told_by(Path(path).stat()))


def _identities(paths: Iterable[PathLike]) -> list[str]:
    digests = []
    for path in paths:
        with contextlib.suppress(OSError):  # a file that is gone has none
            digests.append(identity(path))
    return digests


def is_known(paths: Iterable[PathLike]) -> bool:
    named = list(paths)
    digests = _identities(named)
    return len(digests) == len(named) and _found(digests) == set(digests)


def note_written(paths: Iterable[PathLike]) -> None:
    _add(_identities(paths))


def is_whole(path: PathLike) -> bool:
    """True if the checksums in this file were verified, or etviz wrote it here."""
    return any(_found((digest, f"{digest}+")) for digest in _identities([path]))


def note_whole(path: PathLike) -> None:
    _add([f"{digest}+" for digest in _identities([path])])


def alike(files: Mapping[str, PathLike], what: str) -> str:
    """A digest of the claim that these files agree in `what`; empty if one is missing."""
    digests = dict(zip(files, _identities(files.values()), strict=False))
    return f"{_digest(sorted([*digests.items(), ('what', what)]))}=" if len(digests) == len(files) else ""


def is_noted(what: str) -> bool:
    return bool(_found((what,)))


def note(what: str) -> None:
    _add([what])


def _digest(parts: Sequence[Any]) -> str:
    return hashlib.blake2b(repr(parts).encode(), digest_size=16).hexdigest()


def state_folder() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser() / "etviz"


def _place() -> Path:
    return state_folder() / "known-files.json"


def _read() -> list[str]:
    try:
        digests = json.loads(_place().read_bytes()[: _MOST * 64])
        return [digest for digest in digests if isinstance(digest, str)] if isinstance(digests, list) else []
    except (OSError, ValueError, RuntimeError):
        return []


def _found(digests: Iterable[str]) -> set[str]:
    known = {digest: at for at, digest in enumerate(_read())}
    common = known.keys() & set(digests)
    if any(known[digest] < _MOST // 2 and len(known) > _MOST // 2 for digest in common):
        _add(sorted(common))
    return common


def _add(digests: list[str]) -> None:
    added = set(digests)
    try:
        place = _place()
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _alone(place):
            kept = dict.fromkeys([*(digest for digest in _read() if digest not in added), *digests])
            with tempfile.NamedTemporaryFile("w", dir=place.parent, delete=False) as file:
                json.dump(list(kept)[-_MOST:], file)
            Path(file.name).replace(place)
    except (OSError, RuntimeError) as error:
        logger.debug("the ledger of known files can't be written: %s", error)


@contextlib.contextmanager
def _alone(place: Path) -> Generator[None]:
    """Wait, a second at most, until no other process writes the ledger: entries of both stay."""
    with open(place.with_suffix(".lock"), "wb") as lock:  # noqa: PTH123 - closed here
        with contextlib.suppress(ImportError):
            import fcntl

            for _ in range(100):
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    time.sleep(0.01)
        yield
