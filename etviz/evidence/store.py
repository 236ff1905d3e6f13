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
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from etviz.artifacts.files import open_artifact, parse_json, whole_file
from etviz.artifacts.program.program import read_program
from etviz.artifacts.scratch import Scratch
from etviz.errors import ArtifactError, UsageError
from etviz.evidence.subject import Subject, digest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pandas as pd
    from pyarrow.parquet import ParquetFile

FORMAT: Final = "etviz-study"
VERSION: Final = 1
LOWERED: Final = "lowered"
"""The folder that a model is lowered in before its files are adopted."""
_ABOUT: Final = "study.json"
_LARGEST: Final = 1 << 20
_ADVICE: Final = "give a folder that etviz.study() wrote, or an empty one"
_DELETE: Final = "delete it, and study again"
_ROOM: Final = 64 << 20
_PER_BYTE: Final = 256
"""Bytes in memory that a table may take, and as many more for each byte of its file: NaN take next to none there."""
_CODECS: Final = ("UNCOMPRESSED", "SNAPPY")
"""Which grow by what they repeat; others make gigabytes of nothing."""
_KINDS: Final = {"metrics": list, "tasks": list, "program": dict, "method": str, "title": str}
_LONGEST_HASH: Final = 128
_WHOLE: Final = ("input", "instruction", "output", "compared", "nonfinite", "worst_instruction")
_TEXTS: Final = (
    *("name", "status", "reason", "content"),
    *("kind", "op", "backend", "reference_ops", "module", "source", "stack", "metric"),
)
_MAY_LACK: Final = "matches"
"""The one column, of truth values, that need not have a value in each row. Those of other names are of numbers."""
_NEEDED: Final[Mapping[str, Sequence[str]]] = {
    "operators.parquet": ("instruction", "output"),
    "runs": ("input", "name", "status", "reason", "content"),
    "gaps": ("input", "instruction", "output"),
}
"""The columns without which a table, or those in a folder, are of no use."""
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

    def release(self) -> None:
        """Let others write."""
        if self._lock is not None:
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
            isinstance(name, str) and name not in (*_WHOLE, *_TEXTS, _MAY_LACK)
            for name in (*about.get("metrics", ()), *about.get("tasks", ()))
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
        return _read(self._file(*name.split("/")), None)

    def runs(self, columns: Sequence[str] | None = None) -> Iterator[tuple[int, pd.DataFrame]]:
        """The rows by input, chunk by chunk."""
        for number in self.done():
            yield number, _read(self._file("runs", f"{number:06}.parquet"), columns)

    def gaps(self, columns: Sequence[str] | None = None) -> Iterator[pd.DataFrame]:
        """The rows by input and value, chunk by chunk."""
        for number in self.done():
            yield _read(self._file("gaps", f"{number:06}.parquet"), columns)

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


def _read(path: Path, columns: Sequence[str] | None) -> pd.DataFrame:
    """The columns of a table that is not larger than it may be, and has those that it needs."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.exists():
        raise ArtifactError(path, "the file is gone from the study", "start it again, with the same folder=")
    data = bytes(open_artifact(path, "a table of a study", _DELETE))
    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        needed = _NEEDED.get(path.name) or _NEEDED.get(path.parent.name, ())
        if problem := _foreign(file, (*needed, *(columns or ()))) or _immodest(file, data):
            raise ArtifactError(path, problem, _DELETE)
        table = file.read(columns=list(columns) if columns is not None else None)
    except (OSError, ValueError, LookupError, TypeError, ArithmeticError, NotImplementedError, MemoryError) as error:
        raise ArtifactError(path, f"it can't be read ({' '.join(str(error).split())})", _DELETE) from error
    for name in table.column_names:
        if name != _MAY_LACK and table[name].null_count:
            raise ArtifactError(path, f"its column {name!r} does not have a value in each row", _DELETE)
    return table.replace_schema_metadata(None).to_pandas()


def _foreign(file: ParquetFile, needed: Sequence[str]) -> str:
    """Why a Parquet file is no table of a study, empty if it is: its columns are others, or of other types."""
    import pyarrow as pa

    schema = file.schema_arrow
    if missing := [name for name in needed if name not in schema.names]:
        return f"it has no column {missing[0]!r}"
    twice, count = Counter(schema.names).most_common(1)[0] if schema.names else ("", 0)
    if count > 1:
        return f"its column {twice!r} is there {count} times"
    for field in schema:
        kind, what = field.type, "numbers"
        fits = pa.types.is_float64(kind) or pa.types.is_int64(kind)
        if field.name in _WHOLE:
            what, fits = "whole numbers", pa.types.is_int64(kind)
        elif field.name in _TEXTS:
            what, fits = "texts", _is_text(kind)
        elif field.name == _MAY_LACK:
            what, fits = "truth values", pa.types.is_boolean(kind) or pa.types.is_null(kind)
        if not fits and (file.metadata.num_rows or not pa.types.is_null(kind)):
            return f"its column {field.name!r} does not hold {what}"
    return ""


def _immodest(file: ParquetFile, data: bytes) -> str:
    """Why a Parquet file is not read: it would take far more memory than its size justifies; empty if it is.

    A few bytes can stand for any number of equal values, so values are counted, and texts measured, before.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    most = _ROOM + _PER_BYTE * len(data)
    about = file.metadata
    cells = about.num_rows * about.num_columns
    if 8 * cells > most:
        return f"it has {about.num_rows:,} rows and {about.num_columns:,} columns in {len(data):,} bytes"
    for group in map(about.row_group, range(about.num_row_groups)):
        for chunk in map(group.column, range(group.num_columns)):
            if chunk.compression not in _CODECS:
                return f"it is compressed by {chunk.compression}, which no study is"
    texts = [field.name for field in file.schema_arrow if _is_text(field.type)]
    table = pq.ParquetFile(pa.BufferReader(data), read_dictionary=texts).read(columns=texts)
    size = 0
    for chunk in (chunk for column in table.columns for chunk in column.chunks):
        if not pa.types.is_dictionary(chunk.type):
            size += chunk.nbytes
            continue
        lengths = np.array([len(str(text)) for text in chunk.dictionary.to_pylist()], np.int64)
        size += int(lengths[chunk.indices.drop_null().to_numpy(zero_copy_only=False)].sum())
    return f"its texts would take {size:,} characters, from {len(data):,} bytes" if size > most else ""


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def require_parquet() -> None:
    """Refuse early where tables can't be written.

    Raises
    ------
    UsageError
        If pyarrow is not installed.
    """
    if importlib.util.find_spec("pyarrow") is None:
        raise UsageError("a study keeps its tables in Parquet, which needs pyarrow: pip install 'etviz[study]'")
