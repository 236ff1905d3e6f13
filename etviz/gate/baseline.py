"""The numbers of an earlier run in a JSON file, to fail on what became worse.

Rows are named by operator, module and place among their likes, so that an instruction which is added elsewhere does not
shift all others.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from etviz.analysis.rows import row_keys
from etviz.artifacts.files import PathLike, open_artifact, whole_file
from etviz.errors import ArtifactError
from etviz.json_numbers import as_text
from etviz.tensors.metrics import METRICS

if TYPE_CHECKING:
    import pandas as pd

FORMAT: Final = "etviz-baseline"
VERSION: Final = 1
_ADVICE: Final = "write it with `etviz check ... --write-baseline FILE`"
_LARGEST: Final = 64 << 20


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
    body = {"format": FORMAT, "version": VERSION, "rows": rows}
    with whole_file(path, "the baseline") as partial:
        partial.write_text(json.dumps(body, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def read_baseline(path: PathLike) -> Baseline:
    """Read a baseline.

    Raises
    ------
    ArtifactError
        If it is missing, damaged or of a newer version.
    """
    data = open_artifact(path, "an etviz baseline", _ADVICE)
    if len(data) > _LARGEST:
        raise ArtifactError(path, "it is larger than any baseline", _ADVICE)
    try:
        body: Any = json.loads(bytes(data))
    except (ValueError, RecursionError) as error:
        raise ArtifactError(path, f"it is not JSON ({error})", _ADVICE) from error
    if not isinstance(body, dict) or body.get("format") != FORMAT:
        raise ArtifactError(path, "it is not an etviz baseline", _ADVICE)
    if body.get("version") != VERSION:
        raise ArtifactError(path, f"it has version {body.get('version')!r}; this etviz reads {VERSION}", _ADVICE)
    try:
        rows = {
            str(key): {str(name): float(value) for name, value in values.items()}
            for key, values in body["rows"].items()
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ArtifactError(path, f"its rows are damaged ({error})", _ADVICE) from error
    return Baseline(rows)
