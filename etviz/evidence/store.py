"""The folder of a study: files named by content, Parquet tables, and no file that is written in part.

study.json              the program, the metrics, the tasks
artifacts/<sha256>.pte  the program's files
operators.parquet       a row for each output of each instruction
gaps/000000.parquet     a row for each input and value; a file for each chunk
runs/000000.parquet     a row for each input; written last: its chunk is done
kept/<sha256>.safetensors   the inputs that can be opened again
table.parquet           the statistics of a finished study
checksums.txt           the SHA-256 of each table, as `sha256sum` writes it
"""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from etviz.artifacts.document import Document
from etviz.artifacts.files import open_artifact, whole_file, write_file
from etviz.artifacts.known_files import is_known, note_written
from etviz.artifacts.program.program import read_program
from etviz.artifacts.scratch import Scratch
from etviz.errors import ArtifactError, UsageError
from etviz.evidence.parquet import TAKEN, are_noted, note_read, read_table, vet
from etviz.evidence.subject import Subject, digest

if TYPE_CHECKING:
    import pandas as pd

FORMAT: Final = "etviz-study"
VERSION: Final = 2
LOWERED: Final = "lowered"
"""Folder in which a model is lowered before `Store.adopt` takes its files."""
_ABOUT: Final = "study.json"
_CHECKSUMS: Final = "checksums.txt"
_BATCH: Final = 64
_ADVICE: Final = "give a folder that etviz.study() wrote, or an empty one"
_DOCUMENT: Final = Document("the description of a study", FORMAT, VERSION, _ADVICE, most=1 << 20)
_DELETE: Final = "delete it, and study again"
_KINDS: Final = {"metrics": list, "tasks": list, "program": dict, "method": str, "title": str}
_LONGEST_HASH: Final = 128
_FOLDERS: Final = ("artifacts", "gaps", "runs", "kept")
_LEADS_OUT: Final = "it is a link, which may lead out of the study"
_ENDINGS: Final = {"pte": ".pte", "record": ".etviz", "etrecord": ".bin", "data": ".ptd"}


class Store:
    """None is a temporary folder that lives as long as the store; `claim` opens it for writing."""

    def __init__(self, folder: str | Path | None) -> None:
        self._temporary = Scratch() if folder is None else None
        self.folder = Path(self._temporary.name if self._temporary else folder or "").absolute()
        self._lock: Any = None
        self._sound = set[Path]()
        self._known: dict[str, str] | None = None
        self._vetted = set[Path]()
        self._unread: list[Path] | None = None

    def claim(self) -> None:
        """Keep other writers out until `release` or the end of this process; `UsageError` if another one writes."""
        from filelock import FileLock, Timeout

        for name in (*_FOLDERS, ".lock", LOWERED):
            self._file(name)
        try:
            for name in _FOLDERS:
                (self.folder / name).mkdir(parents=True, exist_ok=True)
            self._lock = FileLock(self.folder / ".lock")
            self._lock.acquire(timeout=0)
        except Timeout:
            self._lock = None
            raise UsageError(
                f"{self.folder}: another process writes to this study; wait for it, or choose another folder"
            ) from None
        except OSError as error:
            raise ArtifactError(self.folder, f"the study can't be written ({error.strerror})", _ADVICE) from error

    def release(self) -> None:
        if self._lock is not None:
            tables = self._tables()
            if self._temporary is None and self._vetted.issuperset(tables):
                note_read(tables)
            self._lock.release()
            self._lock = None

    def about(self) -> dict[str, Any]:
        path = self._file(_ABOUT)
        if not path.exists():
            return {}
        about = _DOCUMENT.read(path)
        if any(not isinstance(about.get(name, kind()), kind) for name, kind in _KINDS.items()) or not all(
            isinstance(name, str) and name not in TAKEN for name in (*about.get("metrics", ()), *about.get("tasks", ()))
        ):
            raise ArtifactError(path, "it does not describe a study", _ADVICE)
        return about

    def begin(self, about: Mapping[str, Any]) -> None:
        before = self.about()
        if not before:
            _DOCUMENT.write(self.folder / _ABOUT, about, through=False)
            return
        different = [name for name in about if json.loads(json.dumps(about[name])) != before.get(name)]
        if different:
            raise UsageError(
                f"{self.folder} holds another study ({', '.join(different)} differ"
                f"{'s' * (len(different) == 1)}); choose another folder, or delete this one"
            )

    def adopt(self, subject: Subject) -> Subject:
        files = {}
        for kind, path in subject.files.items():
            name = digest(path)
            target = self.folder / "artifacts" / f"{name}{_ENDINGS[kind]}"
            if target.is_symlink() or not target.is_file() or digest(target) != name:
                with whole_file(target, "the program", through=False) as partial:
                    shutil.copyfile(path, partial)
                if is_known([path]):
                    note_written([target])
            files[kind] = str(target)
        return Subject(files, subject.method, subject.title)

    def subject(self) -> Subject:
        about = self.about()
        named = about.get("program")
        if (
            not isinstance(named, dict)
            or "pte" not in named
            or not all(kind in _ENDINGS and _is_hash(name) for kind, name in named.items())
        ):
            raise ArtifactError(self.folder / _ABOUT, "it does not say which program was studied", _ADVICE)
        files = {kind: self._file("artifacts", f"{name}{_ENDINGS[kind]}") for kind, name in named.items()}
        for kind, path in files.items():
            if not path.is_file():
                raise ArtifactError(path, "the file is gone from the study", _ADVICE)
            if path not in self._sound and digest(path) != named[kind]:
                raise ArtifactError(path, "it is another file than the study began with: its hash differs", _ADVICE)
            self._sound.add(path)
        method = str(about.get("method"))
        if method not in (item.name for item in read_program(files["pte"]).methods):
            raise ArtifactError(self.folder / _ABOUT, "it names a method that the program does not have", _ADVICE)
        return Subject({kind: str(path) for kind, path in files.items()}, method, str(about.get("title")))

    def done(self) -> list[int]:
        names = self._names("runs", ".parquet")
        return sorted(int(name) for name in names if name.isdecimal() and name == f"{int(name):06}")

    def put_chunk(self, number: int, gaps: pd.DataFrame, runs: pd.DataFrame) -> None:
        self.put(gaps, f"gaps/{number:06}.parquet")
        self.put(runs, f"runs/{number:06}.parquet")

    def put(self, frame: pd.DataFrame, name: str) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pa.table({str(key): pa.array(frame[key].to_numpy(), from_pandas=False) for key in frame})
        with whole_file(self.folder / name, "the study", through=False) as partial:
            pq.write_table(table, partial)
            self._sign(name, digest(partial))
        self._vetted.add(self.folder / name)

    def _sign(self, name: str, checksum: str) -> None:
        known = self._checksums()
        lines = {**known, name: checksum} if name in known else {name: checksum}
        text = "".join(f"{value}  {key}\n" for key, value in lines.items())
        path = self._file(_CHECKSUMS)
        if name in known:
            write_file(path, "the study", text, through=False)
        else:
            with path.open("a", encoding="utf-8") as file:
                file.write(text)
        known[name] = checksum

    def _checksums(self) -> dict[str, str]:
        if self._known is None:
            path = self._file(_CHECKSUMS)
            data = bytes(open_artifact(path, "the checksums of a study", _ADVICE)) if path.exists() else b""
            pairs = (line.split(maxsplit=1) for line in data.decode(errors="replace").splitlines())
            self._known = {pair[1]: pair[0] for pair in pairs if len(pair) == 2}
        return self._known

    def runs(self, columns: Sequence[str] | None = None) -> Iterator[tuple[int, pd.DataFrame]]:
        """By chunk; an `ArtifactError` if two chunks hold the same input."""
        seen = set[int]()
        for number in self.done():
            frame = self.table(f"runs/{number:06}.parquet", columns)
            again = frame["input"].duplicated() | frame["input"].isin(seen)
            if again.any():
                path, twice = self.folder / f"runs/{number:06}.parquet", frame["input"][again].iloc[0]
                raise ArtifactError(path, f"input {twice} is there twice", _DELETE)
            seen.update(frame["input"].tolist())
            yield number, frame

    def gaps(self, columns: Sequence[str] | None = None, only: int | None = None) -> Iterator[pd.DataFrame]:
        for number in self.done() if only is None else [only]:
            yield self.table(f"gaps/{number:06}.parquet", columns)

    def keep(self, name: str, data: bytes) -> None:
        path = self._kept(name)
        if not path.is_file():
            write_file(path, "an input", data, through=False)

    def drop(self, name: str) -> None:
        self._kept(name).unlink(missing_ok=True)

    def kept(self, name: str) -> Path | None:
        path = self._kept(name)
        if not path.is_file():
            return None
        if digest(path) != name:
            raise ArtifactError(path, "it is another input than the study ran: its hash differs", _DELETE)
        return path

    def kept_names(self) -> set[str]:
        return set(self._names("kept", ".safetensors"))

    def _kept(self, name: str) -> Path:
        if not _is_hash(name):
            raise ArtifactError(self.folder / "runs", f"{name[:_LONGEST_HASH]!r} is no input's name", _ADVICE)
        return self._file("kept", f"{name}.safetensors")

    def _file(self, *names: str) -> Path:
        path = self.folder
        try:
            for name in names:
                path /= name
                if path.is_symlink():
                    raise ArtifactError(path, _LEADS_OUT, _ADVICE)
        except OSError as error:
            raise _unreadable(path, error) from error
        return path

    def table(self, name: str, columns: Sequence[str] | None = None) -> pd.DataFrame:
        path = self._file(*name.split("/"))
        if path not in self._vetted:
            self._vet(path)
        if path.exists() and name not in self._checksums():
            raise ArtifactError(path, f"{_CHECKSUMS} holds no checksum of the table", _DELETE)
        return read_table(path, self._checksums().get(name, ""), columns)

    def _vet(self, path: Path) -> None:
        if self._unread is None:
            self._unread = self._tables()
            if are_noted(self._unread):
                self._vetted.update(self._unread)
                return
        rest = [unread for unread in self._unread if unread >= path and unread not in self._vetted][:_BATCH] or [path]
        vet(rest)
        self._vetted.update(rest)
        if self._temporary is None and self._vetted.issuperset(self._unread):
            note_read(self._unread)

    def _tables(self) -> list[Path]:
        paths = (*self.folder.glob("*.parquet"), *self.folder.glob("*/*.parquet"))
        return sorted(path for path in paths if path.is_file() and not (path.is_symlink() or path.parent.is_symlink()))

    def _names(self, folder: str, ending: str) -> list[str]:
        path = self._file(folder)
        try:
            return [file.stem for file in path.iterdir() if file.suffix == ending]
        except OSError as error:
            raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> ArtifactError:
    return ArtifactError(path, f"a part of the study can't be read ({error.strerror})", _ADVICE)


def _is_hash(name: object) -> bool:
    return isinstance(name, str) and name.isascii() and name.isalnum() and len(name) <= _LONGEST_HASH


def require_parquet() -> None:
    if importlib.util.find_spec("pyarrow") is None:
        raise UsageError("a study writes Parquet tables, which needs pyarrow: pip install 'etviz[study]'")
