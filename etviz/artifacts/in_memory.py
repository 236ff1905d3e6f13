"""Artifacts in memory: bytes, and upstream's `ETRecord` objects."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from etviz.artifacts.scratch import Scratch
from etviz.errors import UsageError


def as_files(artifacts: Mapping[str, Any]) -> tuple[dict[str, Any], Scratch | None]:
    """Artifacts as paths; bytes, and objects with upstream's ``save(path)``, go to a temporary folder."""
    files, scratch = dict(artifacts), None
    for kind, value in artifacts.items():
        is_bytes = isinstance(value, (bytes, bytearray, memoryview))
        save = getattr(value, "save", None)
        if not (is_bytes or (callable(save) and not hasattr(value, "__fspath__"))):
            continue
        scratch = scratch or Scratch()
        path = files[kind] = Path(scratch.name) / kind
        try:
            path.write_bytes(value) if is_bytes else save(str(path))  # pyright: ignore[reportOptionalCall]
        except Exception as error:
            raise UsageError(
                f"the {kind} in memory can't be saved ({error}); save it yourself, and give its path"
            ) from error
    return files, scratch
