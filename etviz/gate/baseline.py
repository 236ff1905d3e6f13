"""The numbers of an earlier run in a JSON file, to fail on what became worse.

Rows are named by operator, module and place among their likes, so that an instruction which is added elsewhere does not
shift all others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from etviz.analysis.rows import row_keys
from etviz.artifacts.files import PathLike
from etviz.errors import ArtifactError
from etviz.gate.document import Document
from etviz.json_numbers import as_text
from etviz.tensors.metrics import METRICS

if TYPE_CHECKING:
    import pandas as pd

_DOCUMENT: Final = Document(
    "an etviz baseline", "etviz-baseline", 1, "write it with `etviz check ... --write-baseline FILE`"
)


@dataclass(slots=True)
class Baseline:
    """Metrics of each row, by `row_keys`; those that were not known are missing."""

    rows: dict[str, dict[str, float]] = field(default_factory=dict)


def baseline_of(gaps: pd.DataFrame) -> Baseline:
    """The baseline of a gap table. Infinite values are kept as text, which JSON has no number for."""
    rows = {}
    for key, values in zip(
        row_keys(gaps), gaps[[name for name in METRICS if name in gaps]].to_dict("records"), strict=True
    ):
        rows[key] = {str(name): float(value) for name, value in values.items() if not math.isnan(value)}
    return Baseline(rows)


def write_baseline(gaps: pd.DataFrame, path: PathLike) -> None:
    """Write the numbers of a gap table as a baseline.

    Raises
    ------
    ArtifactError
        If the file can't be written.
    """
    rows = {
        key: {name: as_text(value) for name, value in values.items()} for key, values in baseline_of(gaps).rows.items()
    }
    _DOCUMENT.write(path, {"rows": rows})


def read_baseline(path: PathLike) -> Baseline:
    """Read a baseline.

    Raises
    ------
    ArtifactError
        If it is missing, damaged or of a newer version.
    """
    body = _DOCUMENT.read(path)
    try:
        rows = {
            str(key): {str(name): float(value) for name, value in values.items()}
            for key, values in body["rows"].items()
        }
        if any(math.isnan(value) for values in rows.values() for value in values.values()):
            raise ValueError("a number is NaN, which nothing is worse than")
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ArtifactError(path, f"its rows are damaged ({error})", _DOCUMENT.advice) from error
    return Baseline(rows)
