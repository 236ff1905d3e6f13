"""A baseline: an earlier run's errors, and if wanted its bits on several classes of devices, in one JSON file.

Rows are named by operator, module and position among equal names.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, Final

from etviz.analysis.analysis import Analysis
from etviz.analysis.rows import row_keys
from etviz.artifacts.document import Document
from etviz.artifacts.files import PathLike
from etviz.errors import ArtifactError, UsageError
from etviz.graph.labels import describe_row
from etviz.json_numbers import as_text
from etviz.tensors.digest import digest
from etviz.tensors.metrics import METRICS

_DOCUMENT: Final = Document(
    "an etviz baseline", "etviz-baseline", 2, "write it with `etviz check ... --write-baseline FILE`"
)


@dataclass(frozen=True, slots=True)
class Baseline:
    """The stored numbers and bits.

    `rows` has, by `row_keys`, the row's known metrics; `names` the row's name for people; `bits`, by class of devices
    and key, the hash of the value; `inputs` the hash of the inputs, empty without bits.
    """

    rows: dict[str, dict[str, float]] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    inputs: str = ""
    bits: dict[str, dict[str, str]] = field(default_factory=dict)

    def parting(self, bits: dict[str, str], device: str) -> tuple[str, int] | None:
        """The first row with other bits, and the number of rows, missing ones included."""
        stored = self.bits[device]
        parted = [key for key in dict.fromkeys((*self.names, *bits)) if bits.get(key) != stored.get(key)]
        return (self.names.get(parted[0], parted[0]), len(parted)) if parted else None


def baseline_of(analysis: Analysis, device: str = "") -> Baseline:
    """With its bits if it is of a class of devices; a `UsageError` if nothing was compared."""
    gaps = analysis.gaps
    if gaps.empty:
        raise UsageError("nothing was compared, so there is no baseline; etviz info says what the files hold")
    keys = row_keys(gaps)
    numbers = gaps[[name for name in METRICS if name in gaps]].to_dict("records")
    rows = {
        key: {str(name): float(value) for name, value in values.items() if not math.isnan(value)}
        for key, values in zip(keys, numbers, strict=True)
        if not math.isnan(values["severity"])
    }
    names = {key: describe_row(row) for key, (_, row) in zip(keys, gaps.iterrows(), strict=True)}
    if not device:
        return Baseline(rows, names)
    return Baseline(rows, names, inputs_of(analysis), {device: bits_of(analysis)})


def inputs_of(analysis: Analysis) -> str:
    """Hash of all executions' inputs; a `UsageError` if they are not known."""
    replay = analysis.tables.compared.replay
    inputs = [value for execution in (replay.executions if replay is not None else ()) for value in execution.inputs]
    if not inputs:
        raise UsageError("the inputs of the run are not known, so its bits can't be compared with other devices")
    return digest(inputs).hex()


def bits_of(analysis: Analysis) -> dict[str, str]:
    gaps = analysis.gaps
    places = (analysis.rows.find(int(row)) for row in gaps.index)
    return {key: digest([place.gap.runtime]).hex() for key, place in zip(row_keys(gaps), places, strict=True)}


def write_baseline(analysis: Analysis, path: PathLike, device: str = "", before: Baseline | None = None) -> None:
    """For a class of devices, its bits beside those `before`; a `UsageError` if the others ran on other inputs."""
    baseline = baseline_of(analysis, device)
    if before is not None and before.bits and not device:
        baseline = replace(baseline, inputs=before.inputs, bits=before.bits)
    elif before is not None and before.bits.keys() - {device}:
        if before.inputs != baseline.inputs:
            raise UsageError("the other classes of this baseline ran on other inputs; give this run the same inputs")
        baseline = replace(baseline, names=before.names | baseline.names, bits=before.bits | baseline.bits)
    rows = {key: {name: as_text(value) for name, value in values.items()} for key, values in baseline.rows.items()}
    _DOCUMENT.write(path, {"rows": rows, "names": baseline.names, "inputs": baseline.inputs, "bits": baseline.bits})


def read_baseline(path: PathLike) -> Baseline:
    body = _DOCUMENT.read(path)
    try:
        rows = {
            str(key): {str(name): float(value) for name, value in values.items()}
            for key, values in body["rows"].items()
        }
        if any(math.isnan(value) for values in rows.values() for value in values.values()):
            raise ValueError("a number is NaN, which nothing is worse than")
        bits = {str(name): _texts(hashes) for name, hashes in body["bits"].items()}
        return Baseline(rows, _texts(body["names"]), str(body["inputs"]), bits)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ArtifactError(path, f"its rows are damaged ({error})", _DOCUMENT.advice) from error


def _texts(items: Any) -> dict[str, str]:
    return {str(key): str(value) for key, value in items.items()}
