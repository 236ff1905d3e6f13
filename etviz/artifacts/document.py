"""JSON files that state their format and version."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from etviz.artifacts.files import PathLike, open_artifact, parse_json, write_file
from etviz.errors import ArtifactError

_OTHER_VERSION: Final = "read it with the etviz that wrote it, or write it again"


@dataclass(frozen=True, slots=True)
class Document:
    """A kind of file: its name for people, its format and version, how to make it, and its maximum bytes."""

    name: str
    form: str
    version: int
    advice: str
    most: int = 64 << 20

    def read(self, path: PathLike) -> dict[str, Any]:
        with open_artifact(path, self.name, self.advice) as data:
            if len(data) > self.most:
                raise ArtifactError(path, f"it is larger than {self.name} can be", self.advice)
            return self.parse(path, bytes(data))

    def parse(self, path: PathLike, text: bytes, where: str | None = None) -> dict[str, Any]:
        """`where` is the file's member that has the text."""
        subject = where or "it"
        try:
            body = parse_json(text)
        except ValueError as error:
            raise ArtifactError(path, f"{subject} is not JSON ({error})", self.advice, where=where) from error
        if not isinstance(body, dict) or body.get("format") != self.form:
            raise ArtifactError(path, f"{subject} is not {self.name}", self.advice, where=where)
        found, known = body.get("version"), self.version
        if found != known:
            problem = f"{subject} is {self.name} of version {found!r}; this etviz reads version {known}"
            raise ArtifactError(path, problem, _OTHER_VERSION, where=where, found=found, expected=known)
        return body

    def write(self, path: PathLike, content: Mapping[str, Any], *, through: bool = True) -> None:
        body = {"format": self.form, "version": self.version, **content}
        write_file(path, self.name, json.dumps(body, indent=1, allow_nan=False) + "\n", through=through)
