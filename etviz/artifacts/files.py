"""Opens, identifies and writes files. A file is written as a whole or not at all."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import gc
import io
import json
import lzma
import math
import mmap
import os
import re
import shutil
import stat
import struct
import sys
import tempfile
import time
import zipfile
import zlib
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final

import orjson

from etviz.artifacts.scratch import Scratch
from etviz.errors import ArtifactError, FileChangedError, UsageError
from etviz.native import read

PathLike = str | os.PathLike[str]

_NO_DESCRIPTOR: Final[dict[str, Any]] = {"trackfd": False} if sys.version_info >= (3, 13) else {}
ARCHIVE_ERRORS: Final = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError, OSError, ValueError),
    *(NotImplementedError, RuntimeError, OverflowError),
)
_HEAD: Final = 64
_LOCAL_HEADER: Final = 30
_LOCK: Final = ".etviz-lock"
_MOMENT: Final = 1e-3
_RESIDENT: Final = 96 << 20
_LONGEST_PATH: Final = 4096
_LONGEST_NAME: Final = 255
_MOST_LINKS: Final = 40
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
    for start, mark, name in _MARKS:
        if head[start : start + len(mark)] == mark:
            return name
    return "a file of zeros" if head and not any(head) else None


SETTLES: Final = 3.0
"""Seconds from which the times of a file tell that it was written to: the coarsest file systems count in 2 seconds."""


class MappedFile(mmap.mmap):
    """A mapped file that detects writes, and truncation: reading truncated pages would end the process."""

    def opened(self, path: str, state: os.stat_result) -> None:
        self._path, self._state, self._looked = path, _state_of(state), -math.inf
        settled = time.time() - max(state.st_mtime, state.st_ctime) > SETTLES
        self.identity = identity_told_by(state) if settled else ()

    def check(self) -> None:
        """`FileChangedError`, up to a moment late."""
        if (moment := time.perf_counter()) - self._looked < _MOMENT:
            return
        with contextlib.suppress(OSError):  # it has another name now, or none, and stays as it is
            self._is_own(os.stat(self._path))  # noqa: PTH116 - asked for each tensor
        self._looked = moment

    def read_into(self, out: memoryview, start: int) -> bool:
        """Without mapping, in half the time; False if the file was renamed or removed."""
        with contextlib.suppress(OSError), open(self._path, "rb", buffering=0, opener=_without_waiting) as file:
            if self._is_own(os.fstat(file.fileno())):
                if read(file.fileno(), start, ctypes.addressof(ctypes.c_char.from_buffer(out)), len(out)):
                    return True
                file.seek(start)
                while out and (size := file.readinto(out)):
                    out = out[size:]
                return not out
        return False

    def _is_own(self, status: os.stat_result) -> bool:
        now = _state_of(status)
        if now != self._state and now[:2] == self._state[:2]:
            problem = "the file was cut or written to after it was opened"
            raise FileChangedError(self._path, problem, "load it again when it is complete")
        return now == self._state


def _state_of(status: os.stat_result) -> tuple[int, int, int, int]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def identity_told_by(status: os.stat_result) -> tuple[int, ...]:
    return *_state_of(status), status.st_ctime_ns


def identity_of(data: memoryview) -> tuple[int, ...]:
    """Device, inode, size and times of the mapped file when it was opened; empty for other memory and for new files."""
    return data.obj.identity if isinstance(data.obj, MappedFile) else ()


def check_unchanged(data: memoryview) -> None:
    if isinstance(data.obj, MappedFile):
        data.obj.check()


def open_artifact(path: PathLike, what: str, advice: str) -> MappedFile:
    """Map a file read-only; messages name it `what` ("an ETDump") and end with `advice`."""
    name = path_of(path, what)
    try:
        with open_plain(name) as file:
            kind = os.fstat(file.fileno())
            if not stat.S_ISREG(kind.st_mode):
                problem = f"this is a pipe or a device, not {what}"
                raise ArtifactError(name, problem, "copy what comes out of it to a file", expected=what)
            if kind.st_size == 0:
                raise ArtifactError(name, f"the file is empty; expected {what}", advice, expected=what)
            mapped = MappedFile(file.fileno(), 0, access=mmap.ACCESS_READ, **_NO_DESCRIPTOR)
            mapped.opened(name, kind)
            return mapped
    except FileNotFoundError:
        raise ArtifactError(name, "there is no such file", f"check the path, or {advice}", expected=what) from None
    except IsADirectoryError:
        problem = f"this is a directory, not {what}"
        raise ArtifactError(name, problem, "name the file inside it", expected=what) from None
    except (OSError, ValueError) as error:
        problem = f"the file can't be read ({getattr(error, 'strerror', None) or error})"
        raise ArtifactError(name, problem, "check its permissions", expected=what) from error


def path_of(path: object, what: str) -> str:
    name = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
    if not isinstance(name, str):
        raise UsageError(f"{what} must be given by its path, found {type(path).__name__}")
    try:
        encoded = os.fsencode(name)
    except UnicodeEncodeError:
        encoded = b"\0"
    if b"\0" in encoded or len(encoded) > _LONGEST_PATH or max(map(len, encoded.split(b"/"))) > _LONGEST_NAME:
        raise ArtifactError(name, "no file can have this name", "check the path", expected=what)
    return name


def open_plain(name: str) -> BinaryIO:
    return open(name, "rb", opener=_without_waiting)


def _without_waiting(name: str, flags: int) -> int:
    return os.open(name, flags | getattr(os, "O_NONBLOCK", 0))


def wrong_kind(path: PathLike, head: bytes, what: str, advice: str) -> ArtifactError:
    likeness = looks_like(head[:_HEAD])
    problem = f"this is not {what}; it looks like {likeness}" if likeness else f"this is not {what}"
    return ArtifactError(path, problem, advice, where=0, found=likeness, expected=what)


class Residency:
    """Releases the pages of a mapped file while it is read, to bound memory."""

    def __init__(self, data: memoryview) -> None:
        self._map = data.obj if isinstance(data.obj, mmap.mmap) else None
        self._read = 0

    def add(self, nbytes: int) -> None:
        self._read += nbytes
        if self._read > _RESIDENT and self._map is not None and hasattr(mmap, "MADV_DONTNEED"):
            self._read = 0
            self._map.madvise(mmap.MADV_DONTNEED)


class _BytesFile(io.RawIOBase):
    def __init__(self, data: memoryview) -> None:
        self._data, self._at = data, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: len(self._data)}[whence]
        self._at = max(0, base + offset)
        return self._at

    def readinto(self, buffer: Any) -> int:
        size = max(0, min(len(buffer), len(self._data) - self._at))
        buffer[:size] = self._data[self._at : self._at + size]
        self._at += size
        return size


def as_file(data: memoryview) -> io.BufferedReader:
    return io.BufferedReader(_BytesFile(data))


@contextmanager
def open_archive(data: memoryview) -> Generator[tuple[zipfile.ZipFile, dict[str, zipfile.ZipInfo]]]:
    """`ValueError` if the archive is damaged, a name occurs twice, or members overlap."""
    try:
        with zipfile.ZipFile(as_file(data)) as archive:
            members: dict[str, zipfile.ZipInfo] = {}
            for info in archive.infolist():
                if info.filename in members:
                    raise ValueError(f"the member {info.filename} is there twice")
                members[info.filename] = info
            if sum(info.compress_size for info in members.values()) > len(data):
                raise ValueError("its members overlap: together they are larger than the file")
            yield archive, members
    except ValueError:
        raise
    except ARCHIVE_ERRORS as error:
        raise ValueError(str(error) or type(error).__name__) from error


def stored_bytes(data: memoryview, info: zipfile.ZipInfo) -> memoryview:
    start = stored_at(data, info)
    return data[start : start + info.file_size]


def stored_at(data: memoryview, info: zipfile.ZipInfo) -> int:
    """`ValueError` if the member is compressed, encrypted, or missing."""
    if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1:
        raise ValueError(f"the member {info.filename} is compressed or encrypted, not stored as it is")
    head = bytes(data[info.header_offset : info.header_offset + _LOCAL_HEADER])
    start = info.header_offset + _LOCAL_HEADER
    start += int.from_bytes(head[26:28], "little") + int.from_bytes(head[28:30], "little")
    if head[:4] != b"PK\x03\x04" or start + info.file_size > len(data):
        raise ValueError(f"the member {info.filename} reaches beyond the end")
    return start


@contextmanager
def whole_file(path: PathLike, what: str, *, through: bool = True) -> Generator[Path]:
    """Yield a temporary path, which only the owner can read; it replaces `path` at the end, unless an error is raised.

    A link's file is replaced; without `through`, the link. A device, a pipe, and a file whose folder takes no other are
    written into. `what` has an article: "the report".
    """
    target = check_target(path, what) if through else Path(path)
    try:
        replaced = not through or _is_replaced(target)
        with Scratch(target.parent if replaced else None) as folder:
            partial = Path(folder) / target.name
            yield partial
            if replaced:
                if through and target.exists():
                    shutil.copymode(target, partial)
                partial.replace(target)
            else:
                with partial.open("rb") as content, target.open("ab" if _is_descriptor(target) else "wb") as file:
                    shutil.copyfileobj(content, file)
    except OSError as error:
        raise _unwritable(path, what, error) from error


def write_file(path: PathLike, what: str, content: str | bytes, *, through: bool = True) -> Path:
    with whole_file(path, what, through=through) as partial:
        partial.write_bytes(content.encode() if isinstance(content, str) else content)
    return Path(path)


def _is_replaced(target: Path) -> bool:
    if _is_descriptor(target) or (target.exists() and not target.is_file()):
        return False
    return not target.exists() or os.access(target.parent, os.W_OK | os.X_OK)


def _is_descriptor(target: Path) -> bool:
    """True for a name such as ``/dev/fd/63``, which the shell gives for ``>(command)``."""
    return re.fullmatch(r"/(dev|proc/(self|\d+)(/task/\d+)?)/fd/\d+", str(target)) is not None


def _followed(path: Path) -> Path:
    for _ in range(_MOST_LINKS):
        if _is_descriptor(path) or not path.is_symlink():
            return path
        path = Path(os.path.normpath(path.parent / path.readlink()))
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArtifactError(folder, f"the folder can't be made ({error.strerror})", "choose another one") from error
    if not os.access(folder, os.W_OK):
        raise ArtifactError(folder, "nothing can be written into the folder", "choose another one")


@contextmanager
def whole_files(folder: Path) -> Generator[Path]:
    """Yield a temporary folder; its files are moved to `folder` at the end, and mapped ones keep their content.

    `UsageError` if `folder` can't be written to.
    """
    with contextlib.ExitStack() as stack:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            fresh = Path(stack.enter_context(Scratch(folder)))
        except OSError as error:
            raise UsageError(f"workdir {folder} can't be written to ({error.strerror or error})") from error
        try:
            with room_for(folder):
                yield fresh
            for path in sorted(fresh.iterdir()):
                path.replace(folder / path.name)
        except OSError as error:
            raise _unwritable(folder, "the artifacts", error) from error


@contextmanager
def only_user(folder: Path) -> Generator[None]:
    """`UsageError` if another process holds the folder, or it can't be written to."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = open(folder / _LOCK, "wb")  # noqa: PTH123, SIM115 - closed below
    except OSError as error:
        raise UsageError(f"workdir {folder} can't be written to ({error.strerror or error})") from error
    with lock, contextlib.ExitStack() as stack:
        with contextlib.suppress(ImportError):  # where there are no such locks, nobody is kept out
            import fcntl

            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                problem = f"another run works in workdir {folder}; wait for it, or give another folder"
                raise UsageError(problem) from None
            stack.callback((folder / _LOCK).unlink, missing_ok=True)
        yield


@contextmanager
def whole_folder(path: Path, what: str) -> Generator[Path]:
    """Yield a temporary folder beside `path`; it replaces `path` at the end, or `path` stays."""
    try:
        with Scratch(path.parent) as folder:
            fresh, old = Path(folder, "new"), Path(folder, "old")
            fresh.mkdir()
            yield fresh
            if not path.exists():
                fresh.rename(path)
                return
            path.rename(old)
            try:
                fresh.rename(path)
            except OSError:
                old.rename(path)
                raise
    except OSError as error:
        raise _unwritable(path, what, error) from error


def check_target(path: PathLike, what: str) -> Path:
    """Refuse a folder and names that are invalid or can't be written; follow links."""
    target = Path(path_of(path, what))
    try:
        target = _followed(target)
        if target.is_dir():
            raise ArtifactError(path, f"this is a folder; {what} needs the name of a file", "add a file name")
        if _is_descriptor(target):
            return target
        if not target.parent.is_dir():
            raise ArtifactError(path, f"there is no folder {target.parent}", "make it, or choose another")
        exists = target.exists()
    except OSError as error:
        raise _unwritable(path, what, error) from error
    effective = os.access in os.supports_effective_ids
    if exists and not os.access(target, os.W_OK, effective_ids=effective):
        raise ArtifactError(path, "no permission to write to it", "choose another file")
    if not exists and not os.access(target.parent, os.W_OK | os.X_OK, effective_ids=effective):
        raise ArtifactError(path, f"no permission to write into {target.parent}", "choose another folder")
    return target


def _unwritable(path: PathLike, what: str, error: OSError) -> ArtifactError:
    if error.errno in (errno.EACCES, errno.EPERM):
        return ArtifactError(path, "no permission to write to it", "choose another file")
    if isinstance(error, BrokenPipeError):
        return ArtifactError(path, f"whoever read {what} went away", "let it read to the end")
    reason = error.strerror or type(error).__name__
    return ArtifactError(path, f"{what} can't be written ({reason})", "free some space, or choose another folder")


@contextmanager
def room_for(*folders: PathLike) -> Generator[None]:
    """Turn any failure on a full disk into an `ArtifactError`, before temporary files are removed."""
    try:
        yield
    except ArtifactError:
        raise
    except Exception as error:
        folder = _without_room(error, [*folders, tempfile.gettempdir()])
        if folder is None:
            raise
        problem, advice = "the disk is full, so files can't be written", "free some space, or choose another folder"
        raise ArtifactError(folder, problem, f"{advice} (TMPDIR is that of temporary files)") from error


def _without_room(error: BaseException, folders: Sequence[PathLike]) -> PathLike | None:
    for folder in folders:
        with contextlib.suppress(OSError):
            if shutil.disk_usage(folder).free < _ROOM:
                return folder
    chain: BaseException | None = error
    while chain is not None:
        if isinstance(chain, OSError) and chain.errno in NO_ROOM:
            return folders[0]
        chain = chain.__cause__ or chain.__context__
    return folders[0] if any(os.strerror(code) in str(error) for code in NO_ROOM) else None


_ROOM: Final = 64 << 10
NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_MOST_VALUES: Final = 3_000_000
_MOST_DIGITS: Final = 40
_SEPARATORS: Final = (b",", b"[", b"{", b":")


def parse_json(data: bytes | memoryview, most: int = _MOST_VALUES) -> Any:
    """Accepts Infinity and NaN, which upstream writes; `ValueError` for deep nesting and more than `most` values."""
    text = bytes(data)
    if len(text) > most and sum(map(text.count, _SEPARATORS)) > most:
        raise ValueError(f"it holds more than {most:,} values")
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        pass  # Infinity and NaN, and integers of more than 64 bits, are read by the standard library only
    try:
        body = json.loads(text, parse_int=_integer)
        if b"\\u" in text:
            json.dumps(body, ensure_ascii=False).encode("utf-8")
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except UnicodeEncodeError:
        raise ValueError("it holds half of a surrogate pair, which is no text") from None
    return body


def _integer(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise ValueError(f"it holds a number of {len(digits)} digits")
    return int(digits)


@contextlib.contextmanager
def collection_paused() -> Generator[None]:
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.collect(1)  # once; by itself, it would look at what is new as the first generation and as the second one
