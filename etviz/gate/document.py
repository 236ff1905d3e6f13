"""JSON files for the gate, which state their format and version."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from etviz.artifacts.files import PathLike, open_artifact, parse_json, whole_file
from etviz.errors import ArtifactError

_LARGEST: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class Document:
    """A kind of file: its name for people, its format and version, and how to make it."""

    name: str
    form: str
    version: int
    advice: str

    def read(self, path: PathLike) -> dict[str, Any]:
        with open_artifact(path, self.name, self.advice) as data:
            if len(data) > _LARGEST:
                raise ArtifactError(path, f"it is larger than {self.name} can be", self.advice)
            try:
                body = parse_json(bytes(data))
            except ValueError as error:
                raise ArtifactError(path, f"it is not JSON ({error})", self.advice) from error
        if not isinstance(body, dict) or body.get("format") != self.form:
            raise ArtifactError(path, f"it is not {self.name}", self.advice)
        if body.get("version") != self.version:
            found = f"it has version {body.get('version')!r}; this etviz reads {self.version}"
            raise ArtifactError(path, found, self.advice)
        return body

    def write(self, path: PathLike, content: dict[str, Any]) -> None:
        body = {"format": self.form, "version": self.version, **content}
        with whole_file(path, self.name) as partial:
            partial.write_text(json.dumps(body, indent=1, allow_nan=False) + "\n", encoding="utf-8")
