"""Reads the Parquet tables of a study, which may come from other people.

Some damage makes pyarrow end the process, so a child process reads unknown tables first. Memory is limited.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from etviz.artifacts.files import open_artifact
from etviz.artifacts.known_files import alike, is_noted, note
from etviz.errors import ArtifactError, EtvizError, ExecutionError
from etviz.pipeline.service import serve
from etviz.pipeline.worker import Worker
from etviz.settings import options

if TYPE_CHECKING:
    import pandas as pd
    from pyarrow.parquet import ParquetFile

_DELETE: Final = "delete it, and study again"
_ROOM: Final = 64 << 20
_PER_BYTE: Final = 256
"""Maximum bytes of memory for each byte of a file, which holds equal numbers once."""
_CODECS: Final = ("UNCOMPRESSED", "SNAPPY")
"""Others may unpack a small file to gigabytes."""
_WHOLE: Final = ("input", "instruction", "output", "compared", "nonfinite", "worst_instruction")
_TEXTS: Final = (
    *("name", "status", "reason", "content"),
    *("kind", "op", "backend", "reference_ops", "module", "source", "stack", "metric"),
)
_TRUTH: Final = "matches"
TAKEN: Final = (*_WHOLE, *_TEXTS, _TRUTH)
_NEEDED: Final[Mapping[str, Sequence[str]]] = {
    "operators.parquet": ("instruction", "output"),
    "runs": ("input", "name", "status", "reason", "content"),
    "gaps": ("input", "instruction", "output"),
}
"""Of a table, or of the tables in a folder."""
_WORKER: Final = Worker("etviz.evidence.parquet")


def are_noted(paths: Sequence[Path]) -> bool:
    return options.isolation == "never" or (options.isolation == "auto" and is_noted(_alike(paths)))


def vet(paths: Sequence[Path]) -> None:
    try:
        _WORKER.run({"work": "read", "paths": [str(path) for path in paths]})
    except ExecutionError as error:
        if len(paths) == 1:
            problem = f"a child process failed to read it: {error.problem}"
            raise ArtifactError(paths[0], problem, _DELETE) from error
        for path in paths:
            vet([path])


def note_read(paths: Sequence[Path]) -> None:
    if together := _alike(paths):
        note(together)


def _alike(paths: Sequence[Path]) -> str:
    return alike({str(path): path for path in paths}, "tables that can be read")


def main(connection: int, parent: int) -> None:
    serve(connection, parent, ("pyarrow.parquet", "pandas"), {"read": _try})


def _try(request: dict[str, Any], step: Callable[[int], None]) -> dict[str, Any]:
    for path in request["paths"]:
        with suppress(EtvizError):
            read_table(Path(path), "")
    return {}


def read_table(path: Path, checksum: str, columns: Sequence[str] | None = None) -> pd.DataFrame:
    """An empty `checksum` (SHA-256, hexadecimal) skips its test; `ArtifactError` for a damaged or too large table."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.exists():
        raise ArtifactError(path, "the file is gone from the study", "start it again, with the same folder=")
    data = bytes(open_artifact(path, "a table of a study", _DELETE))
    if checksum and (digest := hashlib.sha256(data).hexdigest()) != checksum:
        raise ArtifactError(path, "the table was changed or damaged", _DELETE, expected=checksum, found=digest)
    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        needed = _NEEDED.get(path.name) or _NEEDED.get(path.parent.name, ())
        if problem := _foreign(file, (*needed, *(columns or ()))) or _immodest(file, data):
            raise ArtifactError(path, problem, _DELETE)
        table = file.read(columns=list(columns) if columns is not None else None)
    except (OSError, ValueError, LookupError, TypeError, ArithmeticError, NotImplementedError, MemoryError) as error:
        raise ArtifactError(path, f"it can't be read ({' '.join(str(error).split())})", _DELETE) from error
    for name in table.column_names:
        if name in (*_WHOLE, *_TEXTS) and table[name].null_count:
            raise ArtifactError(path, f"its column {name!r} does not have a value in each row", _DELETE)
    return table.replace_schema_metadata(None).to_pandas()


def _foreign(file: ParquetFile, needed: Sequence[str]) -> str:
    import pyarrow as pa

    schema = file.schema_arrow
    if missing := [name for name in needed if name not in schema.names]:
        return f"it has no column {missing[0]!r}"
    twice, count = Counter(schema.names).most_common(1)[0] if schema.names else ("", 0)
    if count > 1:
        return f"its column {twice!r} is there {count} times"
    known = dict.fromkeys(_WHOLE, ("whole numbers", ["int64"]))
    known |= dict.fromkeys(_TEXTS, ("texts", ["string", "large_string"])) | {_TRUTH: ("truth values", ["bool", "null"])}
    for field in schema:
        what, kinds = known.get(field.name, ("numbers", ["double", "int64"]))
        if str(field.type) not in kinds and (file.metadata.num_rows or not pa.types.is_null(field.type)):
            return f"its column {field.name!r} does not hold {what}"
    return ""


def _immodest(file: ParquetFile, data: bytes) -> str:
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
