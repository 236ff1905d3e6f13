"""A study's folder: files by content, Parquet tables, and nothing in it that is only half there.

    study.json              what is studied, and how
    artifacts/<sha256>.pte  the program's files
    operators.parquet       a row for each output of each instruction
    gaps/000000.parquet     a row for each input and value, with every metric; a file for each chunk of inputs
    runs/000000.parquet     a row for each input; written last, so a chunk is done if it is there
    kept/<sha256>.safetensors   the inputs that can be opened again
    table.parquet           the statistics, when the study is finished

pandas, DuckDB and everything else that knows Parquet read it without etviz.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from etviz.artifacts.files import open_artifact, parse_json, whole_file
from etviz.artifacts.program.program import read_program
from etviz.artifacts.scratch import Scratch
from etviz.errors import ArtifactError, UsageError
from etviz.evidence.subject import Subject, digest
from etviz.evidence.tables import TAKEN, note_read, read_table, vet

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pandas as pd

FORMAT: Final = "etviz-study"
VERSION: Final = 1
LOWERED: Final = "lowered"
"""The folder that a model is lowered in before its files are adopted."""
_ABOUT: Final = "study.json"
_LARGEST: Final = 1 << 20
_ADVICE: Final = "give a folder that etviz.study() wrote, or an empty one"
_DELETE: Final = "delete it, and study again"
_KINDS: Final = {"metrics": list, "tasks": list, "program": dict, "method": str, "title": str}
_LONGEST_HASH: Final = 128
_FOLDERS: Final = ("artifacts", "gaps", "runs", "kept")
_LEADS_OUT: Final = "it is a link, which may lead out of the study"
_ENDINGS: Final = {"pte": ".pte", "record": ".etviz", "etrecord": ".bin", "data": ".ptd"}


class Store:
    """One study's folder, open for reading; `claim` opens it for writing.

    Parameters
    ----------
    folder
        It may be missing; None makes a temporary one, which is gone when nothing refers to the store any more.
    """

    def __init__(self, folder: str | Path | None) -> None:
        self._temporary = Scratch() if folder is None else None
        self.folder = Path(self._temporary.name if self._temporary else folder or "").absolute()
        self._lock: Any = None
        self._sound = set[Path]()
        self._vetted = False

    def claim(self) -> None:
        """Make the folder, and keep every other writer out of it until `release`, or until this process ends.

        Raises
        ------
        UsageError
            If another process writes to it.
        ArtifactError
            If it can't be written to.
        """
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
                f"{self.folder}: another process writes to this study; wait for it, or choose another"
            ) from None
        except OSError as error:
            raise ArtifactError(self.folder, f"the study can't be written ({error.strerror})", _ADVICE) from error
        try:
            self._vet()
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Let others write."""
        if self._lock is not None:
            if self._vetted and self._temporary is None:
                note_read(self._tables())
            self._lock.release()
            self._lock = None

    def about(self) -> dict[str, Any]:
        """What is studied, and how; empty where nothing was begun.

        Raises
        ------
        ArtifactError
            If the file is damaged, or of a newer version.
        """
        path = self._file(_ABOUT)
        if not path.exists():
            return {}
        data = open_artifact(path, "the description of a study", _ADVICE)
        try:
            about = parse_json(data[:_LARGEST])
        except ValueError as error:
            raise ArtifactError(path, f"it is not JSON ({error})", _ADVICE) from error
        if not isinstance(about, dict) or about.get("format") != FORMAT:
            raise ArtifactError(path, "it does not describe a study", _ADVICE)
        if any(not isinstance(about.get(name, kind()), kind) for name, kind in _KINDS.items()) or not all(
            isinstance(name, str) and name not in TAKEN for name in (*about.get("metrics", ()), *about.get("tasks", ()))
        ):
            raise ArtifactError(path, "it does not describe a study", _ADVICE)
        if about.get("version") != VERSION:
            raise ArtifactError(path, f"it has version {about.get('version')!r}; this etviz reads {VERSION}", _ADVICE)
        return about

    def begin(self, about: Mapping[str, Any]) -> None:
        """Write down what is studied, or check that it is what was begun here.

        Raises
        ------
        UsageError
            If the folder holds another study.
        """
        about = {"format": FORMAT, "version": VERSION, **about}
        before = self.about()
        if not before:
            with whole_file(self.folder / _ABOUT, "the study") as partial:
                partial.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
            return
        different = [name for name in about if json.loads(json.dumps(about[name])) != before.get(name)]
        if different:
            raise UsageError(
                f"{self.folder} holds a study of something else ({', '.join(different)} differ"
                f"{'s' * (len(different) == 1)}); choose another folder, or delete this one"
            )

    def adopt(self, subject: Subject) -> Subject:
        """Put the program's files into the folder, under the hash of their content."""
        files = {}
        for kind, path in subject.files.items():
            name = digest(path)
            target = self.folder / "artifacts" / f"{name}{_ENDINGS[kind]}"
            if target.is_symlink() or not target.is_file() or digest(target) != name:
                with whole_file(target, "the program") as partial:
                    shutil.copyfile(path, partial)
            files[kind] = str(target)
        return Subject(files, subject.method, subject.title)

    def subject(self) -> Subject:
        """The program of a study that was begun.

        Raises
        ------
        ArtifactError
            If the folder does not hold it.
        """
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
                raise ArtifactError(path, "it is not the file that was studied: its content has another hash", _ADVICE)
            self._sound.add(path)
        method = str(about.get("method"))
        if method not in (item.name for item in read_program(files["pte"]).methods):
            raise ArtifactError(self.folder / _ABOUT, "it names a method that the program does not have", _ADVICE)
        return Subject({kind: str(path) for kind, path in files.items()}, method, str(about.get("title")))

    def done(self) -> list[int]:
        """Numbers of the chunks that are there, ascending."""
        names = self._names("runs", ".parquet")
        return sorted(int(name) for name in names if name.isdecimal() and name == f"{int(name):06}")

    def put_chunk(self, number: int, gaps: Mapping[str, Any], runs: Mapping[str, Any]) -> None:
        """Keep what a chunk of inputs gave."""
        self.put(gaps, f"gaps/{number:06}.parquet")
        self.put(runs, f"runs/{number:06}.parquet")

    def put(self, columns: Mapping[str, Any], name: str) -> None:
        """Write a table, whole or not at all."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pa.table({name: pa.array(values, from_pandas=False) for name, values in columns.items()})
        with whole_file(self.folder / name, "the study") as partial:
            pq.write_table(table, partial)

    def table(self, name: str) -> pd.DataFrame:
        """A table that is not in chunks."""
        return self._read(self._file(*name.split("/")))

    def runs(self, columns: Sequence[str] | None = None) -> Iterator[tuple[int, pd.DataFrame]]:
        """The rows by input, chunk by chunk."""
        for number in self.done():
            yield number, self._read(self._file("runs", f"{number:06}.parquet"), columns)

    def gaps(self, columns: Sequence[str] | None = None) -> Iterator[pd.DataFrame]:
        """The rows by input and value, chunk by chunk."""
        for number in self.done():
            yield self._read(self._file("gaps", f"{number:06}.parquet"), columns)

    def keep(self, name: str, data: bytes) -> None:
        """Keep an input, so that it can be opened again."""
        path = self._kept(name)
        if not path.is_file():
            with whole_file(path, "an input") as partial:
                partial.write_bytes(data)

    def drop(self, name: str) -> None:
        """Keep an input no longer."""
        self._kept(name).unlink(missing_ok=True)

    def kept(self, name: str) -> Path | None:
        """The file of an input that was kept: its content has the hash that names it."""
        path = self._kept(name)
        if not path.is_file():
            return None
        if digest(path) != name:
            raise ArtifactError(path, "it is not the input that was run: its content has another hash", _DELETE)
        return path

    def kept_names(self) -> set[str]:
        """Of all inputs that were kept."""
        return set(self._names("kept", ".safetensors"))

    def _kept(self, name: str) -> Path:
        if not _is_hash(name):
            raise ArtifactError(self.folder / "runs", f"{name[:_LONGEST_HASH]!r} is no input's name", _ADVICE)
        return self._file("kept", f"{name}.safetensors")

    def _file(self, *names: str) -> Path:
        """A file or folder of the study; a link is none, and neither is what one leads to."""
        path = self.folder
        try:
            for name in names:
                path /= name
                if path.is_symlink():
                    raise ArtifactError(path, _LEADS_OUT, _ADVICE)
        except OSError as error:
            raise _unreadable(path, error) from error
        return path

    def _read(self, path: Path, columns: Sequence[str] | None = None) -> pd.DataFrame:
        self._vet()
        return read_table(path, columns)

    def _vet(self) -> None:
        """Have the tables tried that others may have written: all of them, before the first one is read or written."""
        if not self._vetted:
            vet(self._tables())
            self._vetted = True

    def _tables(self) -> list[Path]:
        paths = (*self.folder.glob("*.parquet"), *self.folder.glob("*/*.parquet"))
        return sorted(path for path in paths if path.is_file() and not (path.is_symlink() or path.parent.is_symlink()))

    def _names(self, folder: str, ending: str) -> list[str]:
        """Of the files in one of its folders, without their ending."""
        path = self._file(folder)
        try:
            return [item.stem for item in path.iterdir() if item.suffix == ending]
        except OSError as error:
            raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> ArtifactError:
    return ArtifactError(path, f"a part of the study can't be read ({error.strerror})", _ADVICE)


def _is_hash(name: object) -> bool:
    """Whether it can be the hash that a file is named by."""
    return isinstance(name, str) and name.isascii() and name.isalnum() and len(name) <= _LONGEST_HASH


def require_parquet() -> None:
    """Refuse early where tables can't be written.

    Raises
    ------
    UsageError
        If pyarrow is not installed.
    """
    if importlib.util.find_spec("pyarrow") is None:
        raise UsageError("a study keeps its tables in Parquet, which needs pyarrow: pip install 'etviz[study]'")
