"""Finds artifacts by name in a folder, a zip, a gzip file or a device's log with base64.

Archives are untrusted: only plain files of limited size are unpacked.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import os
import re
import shutil
import string
import zipfile
from collections import Counter
from collections.abc import Callable, Container, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final

from etviz.artifacts.files import ARCHIVE_ERRORS, NO_ROOM, PathLike, open_artifact, path_of
from etviz.artifacts.scratch import Scratch
from etviz.errors import ArtifactError, EtvizError, UsageError

USUAL: Final = {
    "etdump": ("etdump.etdp", "etdump.bin", "etdump.in", "model.etdump", "*.etdp", "*.etdump"),
    "etrecord": ("etrecord.bin", "*_etrecord.bin", "*etrecord*"),
    "debug_buffer": ("debug_buffer.bin", "debug_output.bin", "*debug*.bin"),
    "pte": ("model.pte", "*.pte", "*.bpte"),
    "record": ("model.etviz", "*.etviz"),
    "data": ("model.ptd", "*.ptd"),
    "timing": ("timing.etdp",),
}
"""File names by kind; the first name that matches one file wins."""
_NOT: Final = re.compile(r"probe-\d+\.pte|.*\.(gz|zip)")
_ALONE: Final = frozenset(name for names in USUAL.values() for name in names if "*" not in name)
_MOST_RATIO: Final = 200
_PACKED: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ALWAYS_ALLOWED: Final = 64 << 20
_MOST_FILES: Final = 10_000
_LONGEST_NAME: Final = 255
_STEP: Final = 1 << 20
_LOG_SIZE: Final = 1 << 30
_END: Final = re.compile(rb"\|\s*base64\s+(?:-d|--decode|-D)\s*>+\s*(?P<name>[\w.\-]+)")
_ECHO: Final = re.compile(rb"echo\s+")
_BASE64: Final = string.ascii_letters.encode() + string.digits.encode() + b"+/=" + string.whitespace.encode()
_BEGIN: Final = re.compile(rb"echo\s+[\"']?[A-Za-z0-9+/=]{16,}")
_LOG_ADVICE: Final = "copy the whole log, from the first 'echo' to the last '| base64 -d >file'"
_ARCHIVE_ADVICE: Final = "copy the archive again, or unpack it and give the folder"


@dataclass(frozen=True)
class Collection:
    """`keep_alive` holds unpacked files; `cycles`: a microcontroller's log reports cycles."""

    paths: dict[str, Path]
    cycles: bool = False
    keep_alive: Any = field(default=None, repr=False)


def is_collection(source: PathLike) -> bool:
    path = Path(path_of(source, "an ETDump, a folder or an archive"))
    if path.is_dir():
        return True
    return path.is_file() and _unpacker(path) is not None


def _is_readable_folder(path: Path) -> bool:
    try:
        return path.is_dir() and os.access(path, os.R_OK | os.X_OK)
    except OSError:  # whoever opens it says so
        return False


def programs(folder: Any) -> dict[str, dict[str, Path]] | None:
    """Files of several programs in a folder, by program: their names begin with that of a `.pte`.

    Files whose names do not are those of the only program without an ETDump.
    """
    path = Path(folder) if isinstance(folder, (str, os.PathLike)) else None
    if path is None or not _is_readable_folder(path):
        return None
    files = [file for file in sorted(path.iterdir()) if file.is_file()]
    names = [file.stem for file in files if file.suffix == ".pte" and not _NOT.fullmatch(file.name)]
    by_program: dict[str, list[Path]] = {name: [] for name in names}
    others: list[Path] = []
    for file in files:
        fitting = [name for name in names if file.name.startswith((f"{name}.", f"{name}_", f"{name}-"))]
        (by_program[max(fitting, key=len)] if fitting else others).append(file)
    kinds = {name: _by_kind(items) for name, items in by_program.items()}
    if len(alone := [name for name, paths in kinds.items() if "etdump" not in paths]) == 1:
        kinds[alone[0]] = _by_kind([*by_program[alone[0]], *others])
    whole = {name: paths for name, paths in kinds.items() if "etdump" in paths}
    return whole if len(whole) > 1 else None


def _by_kind(files: Sequence[Path]) -> dict[str, Path]:
    paths: dict[str, Path] = {}
    for kind, patterns in reversed(USUAL.items()):
        left = [path for path in files if path not in paths.values()]
        fitting = ([path for path in left if path.match(f"*{pattern.lstrip('*')}")] for pattern in patterns)
        if len(first := next(filter(None, fitting), [])) == 1:
            paths[kind] = first[0]
    return paths


def collect(source: PathLike, given: Container[str] = ()) -> Collection:
    """Find all but the `given` kinds; `UsageError` if several files match one kind."""
    path = Path(source)
    if path.is_dir():
        return _in_folder(path, given)
    kept = Scratch()
    folder = Path(kept.name)
    unpack = _unpacker(path)
    if unpack is None:
        raise ArtifactError(path, "this is neither a folder, nor an archive, nor a log with base64", "name the ETDump")
    unpack(path, folder)
    inner = list(folder.iterdir())
    again = _unpacker(inner[0]) if len(inner) == 1 else None
    if again is not None and again is not unpack:
        again(inner[0], folder)
        inner[0].unlink()
    collection = _in_folder(folder, given, path)
    return Collection(collection.paths, _from_log in (unpack, again), (kept, collection.keep_alive))


def may_be_artifact(path: Path) -> bool:
    name = Path(path.name.removesuffix(".gz"))
    return any(map(name.match, chain.from_iterable(USUAL.values())))


def by_name(folder: Path, kind: str, shown: Path | None = None) -> Path | None:
    for pattern in USUAL[kind]:
        candidates = (path for path in folder.glob(pattern) if path.is_file() and not _NOT.fullmatch(path.name))
        fitting = sorted(path for path in candidates if path.name == pattern or path.name not in _ALONE)
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            names = ", ".join(path.name for path in fitting[:4])
            raise UsageError(f"{shown or folder}: several files could be meant ({names}); name one with an option")
    return None


def _in_folder(folder: Path, given: Container[str], shown: Path | None = None) -> Collection:
    if not os.access(folder, os.R_OK | os.X_OK):
        raise ArtifactError(folder, "there is no permission to read the folder", "check its permissions")
    wanted = [kind for kind in USUAL if kind not in given]
    paths = {kind: path for kind in wanted if (path := by_name(folder, kind, shown)) is not None}
    patterns = [pattern for kind in wanted if kind not in paths for pattern in USUAL[kind]]
    named = [path for path in sorted(folder.glob("*.gz")) if any(map(Path(path.stem).match, patterns))]
    kept = None
    if packed := [path for path in named if path.is_file()]:
        kept = Scratch()
        budget = _budget(packed, Path(kept.name))
        for path in packed:
            budget -= _from_gzip(path, Path(kept.name), budget)
        for kind in wanted:
            if kind not in paths and (other := by_name(Path(kept.name), kind, shown or folder)) is not None:
                paths[kind] = other
    return Collection(paths, keep_alive=kept)


_Unpacker = Callable[[Path, Path], object]


def _unpacker(path: Path) -> _Unpacker | None:
    with path.open("rb") as file:
        head = file.read(4096)
    if head[:4] == b"PK\x03\x04":
        return None if _is_etrecord(path) else _from_zip
    if head[:2] == b"\x1f\x8b":
        return _from_gzip
    binary = b"\0" in head or head[8:12] == b"ED00"
    return _from_log if not binary and head and _mentions_base64(path) else None


def _is_etrecord(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            return "ETRECORD_V0" in archive.namelist()
    except ARCHIVE_ERRORS:
        return False


def _mentions_base64(path: Path) -> bool:
    return path.stat().st_size <= _LOG_SIZE and b"base64" in path.read_bytes()


def _from_zip(path: Path, folder: Path) -> None:
    with _reading(path, "zip archive"), zipfile.ZipFile(path) as archive:
        members = [info for info in archive.infolist() if not info.is_dir()]
        names = [PurePosixPath(info.filename.replace("\\", "/")).name for info in members]
        if problem := _why_not_unpacked(members, names, path.stat().st_size):
            raise ArtifactError(path, problem, "unpack it and give the folder that is meant")
        budget = _budget([path], folder)
        for info, name in zip(members, names, strict=True):
            if not _is_name(name) or (info.external_attr >> 28) == 0xA:
                continue
            with archive.open(info) as packed:
                budget -= _copy(path, packed, folder / name, budget)


def _why_not_unpacked(members: Sequence[zipfile.ZipInfo], names: Sequence[str], size: int) -> str:
    if len(members) > _MOST_FILES:
        return f"it holds more than {_MOST_FILES} files"
    if sum(info.compress_size for info in members) > size:
        return "its files overlap: together they are larger than the archive"
    if any(info.compress_type not in _PACKED for info in members):
        return "its files are packed in an unusual way"
    twice = [name for name, count in Counter(names).items() if count > 1]
    return f"two of its files are called {twice[0]}" if twice else ""


@contextmanager
def _reading(path: Path, what: str) -> Generator[None]:
    try:
        yield
    except EtvizError:
        raise
    except ARCHIVE_ERRORS as error:
        if getattr(error, "errno", None) in NO_ROOM:
            raise
        problem = f"the {what} is damaged ({error or type(error).__name__})"
        raise ArtifactError(path, problem, _ARCHIVE_ADVICE) from error


def _is_name(name: str) -> bool:
    return name not in ("", ".", "..") and len(os.fsencode(name)) <= _LONGEST_NAME


def _from_gzip(path: Path, folder: Path, budget: int | None = None) -> int:
    most = _budget([path], folder) if budget is None else budget
    with _reading(path, "gzip file"), gzip.open(path) as packed:
        return _copy(path, packed, folder / (path.stem if path.suffix == ".gz" else path.name), most)


def _budget(paths: Sequence[Path], folder: Path) -> int:
    free = shutil.disk_usage(folder).free // 2
    return min(max(_MOST_RATIO * sum(path.stat().st_size for path in paths), _ALWAYS_ALLOWED), free)


def _copy(path: Path, packed: IO[bytes] | gzip.GzipFile, target: Path, budget: int) -> int:
    copied = 0
    with target.open("wb") as file:
        while block := packed.read(_STEP):
            copied += len(block)
            if copied > budget:
                raise ArtifactError(
                    path,
                    f"it unpacks to more than {budget:,} bytes, far more than artifacts do",
                    "unpack it yourself if you trust it, and give the folder",
                )
            file.write(block)
    return copied


def _from_log(path: Path, folder: Path) -> None:
    text = bytes(open_artifact(path, "a device's log", _LOG_ADVICE))
    ends = count = 0
    for match in _END.finditer(text):
        begins, block = _echoed(text, ends, match.start())
        if begins < 0:
            continue
        name = match["name"].decode()
        if _BEGIN.search(text, ends, begins):
            raise ArtifactError(path, f"the base64 block before that of {name} is cut off", _LOG_ADVICE, where=ends)
        try:
            content = base64.b64decode(b"".join(block.split()), validate=True)
        except binascii.Error as error:
            problem = f"the base64 block of {name} is cut off or damaged ({error})"
            raise ArtifactError(path, problem, _LOG_ADVICE, where=begins) from error
        ends = match.end()
        if _is_name(name):
            (folder / name).write_bytes(content)
            count += 1
    if _BEGIN.search(text, ends):
        raise ArtifactError(path, "the last base64 block is cut off: no '| base64 -d >file' ends it", _LOG_ADVICE)
    if not count:
        raise ArtifactError(path, "the log holds no base64 block that ends with '| base64 -d >file'", _LOG_ADVICE)


def _echoed(text: bytes, start: int, end: int) -> tuple[int, bytes]:
    body = text[start:end].rstrip()
    body = body[:-1] if body[-1:] in (b"'", b'"') else body
    head = body.rstrip(_BASE64)
    block = body[len(head) :]
    before = head[:-1].rstrip()
    if head[-1:] in (b"'", b'"') and before.endswith(b"echo") and len(before) < len(head) - 1:
        return start + len(before) - len(b"echo"), block
    echo = _ECHO.search(block)
    return (start + len(head) + echo.start(), block[echo.end() :]) if echo else (-1, b"")
