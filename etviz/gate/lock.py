"""The numerics lock: what every value was, to the bit, on each class of devices.

One file for all classes. A run is held against its own class, and the classes against each other: each pair parts at
one instruction, the first whose value is not the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from etviz.analysis.rows import row_keys
from etviz.artifacts.files import PathLike
from etviz.errors import ArtifactError, UsageError
from etviz.gate.checking import Case, Violation
from etviz.gate.document import Document
from etviz.graph.labels import describe_row
from etviz.tensors.digest import digest

if TYPE_CHECKING:
    from etviz.analysis.analysis import Analysis

_DOCUMENT: Final = Document(
    "a numerics lock",
    "etviz-numerics-lock",
    1,
    "write it with `etviz check ... --write-lock FILE --device CLASS`",
)


@dataclass(slots=True)
class Lock:
    """What is locked.

    Attributes
    ----------
    inputs
        Hash of the inputs that all classes ran on.
    names
        By key of a value (`row_keys`): what people call it; in program order.
    classes
        By class of devices, and by key: the hash of the value.
    """

    inputs: str = ""
    names: dict[str, str] = field(default_factory=dict)
    classes: dict[str, dict[str, str]] = field(default_factory=dict)

    def parting(self, a: str, b: str) -> str | None:
        """The key of the first value that two classes do not share; None if they share all."""
        return first_difference(self.names, self.classes[a], self.classes[b])


def first_difference(order: dict[str, str], a: dict[str, str], b: dict[str, str]) -> str | None:
    """The first key, in program order, under which two sets of hashes differ; one that only one has counts."""
    return next((key for key in order if a.get(key) != b.get(key)), None)


def lock_of(analysis: Analysis, device: str) -> Lock:
    """What a run would lock for its class of devices.

    Raises
    ------
    UsageError
        If nothing was compared, or the inputs are not known.
    """
    tables = analysis.tables
    if not len(tables):
        raise UsageError("nothing was compared, so there is nothing to lock; etviz info says what the files hold")
    replay = tables.compared.replay
    inputs = [value for execution in (replay.executions if replay is not None else ()) for value in execution.inputs]
    if not inputs:
        raise UsageError("the inputs of the run are not known, so it can't be held against other devices")
    keys = row_keys(tables.rows)
    names = {key: describe_row(row) for key, (_, row) in zip(keys, tables.rows.iterrows(), strict=True)}
    hashes = {key: digest([gap.runtime]).hex() for key, gap in zip(keys, tables.gaps, strict=True)}
    return Lock(digest(inputs).hex(), names, {device: hashes})


def compare_lock(analysis: Analysis, lock: Lock, device: str) -> tuple[Case, list[str]]:
    """Hold a run against the lock.

    Returns
    -------
    Case, list of str
        The check, which fails where the run parts from its own class; and for every other class where it parts from
        that one.

    Raises
    ------
    UsageError
        If the lock does not have the class, or was made with other inputs.
    """
    own = lock_of(analysis, device)
    if device not in lock.classes:
        known = ", ".join(lock.classes) or "none"
        raise UsageError(f"the lock has no class {device!r}, it has {known}; add it with --write-lock")
    if own.inputs != lock.inputs:
        raise UsageError("the lock was made with other inputs than those of this run, so they can't be compared")
    order = lock.names | {key: name for key, name in own.names.items() if key not in lock.names}
    now = own.classes[device]
    found = ()
    parted = first_difference(order, now, lock.classes[device])
    if parted is not None:
        count = sum(now.get(key) != lock.classes[device].get(key) for key in order)
        text = f"parts from {device} at {order[parted]}; {count} of {len(order)} values differ"
        found = (Violation("lock", count, 0, text),)
    notes = []
    for other, hashes in lock.classes.items():
        if other == device:
            continue
        parted = first_difference(order, now, hashes)
        notes.append(f"gives the same bits as {other}" if parted is None else f"parts from {other} at {order[parted]}")
    numbers = {"values": float(len(order)), "differing": found[0].found if found else 0.0}
    return Case(f"numerics lock, {device}", None, "program", "", found, numbers), notes


def read_lock(path: PathLike) -> Lock:
    """Read a lock.

    Raises
    ------
    ArtifactError
        If it is missing, damaged or of a newer version.
    """
    body = _DOCUMENT.read(path)
    try:
        classes = {str(name): _texts(hashes) for name, hashes in body["classes"].items()}
        return Lock(str(body["inputs"]), _texts(body["names"]), classes)
    except (KeyError, TypeError, AttributeError) as error:
        raise ArtifactError(path, f"its content is damaged ({error})", _DOCUMENT.advice) from error


def write_lock(path: PathLike, analysis: Analysis, device: str, before: Lock | None) -> None:
    """Lock a run for its class of devices; the other classes stay.

    Raises
    ------
    UsageError
        If the others ran on other inputs.
    ArtifactError
        If the file can't be written.
    """
    own = lock_of(analysis, device)
    if before is not None and before.classes.keys() - {device}:
        if before.inputs != own.inputs:
            raise UsageError("the other classes of this lock ran on other inputs; give this run the same ones")
        own.names = before.names | own.names
        own.classes = before.classes | own.classes
    _DOCUMENT.write(path, {"inputs": own.inputs, "names": own.names, "classes": own.classes})


def _texts(items: Any) -> dict[str, str]:
    return {str(key): str(value) for key, value in items.items()}


__all__ = ["Lock", "compare_lock", "first_difference", "lock_of", "read_lock", "write_lock"]
