"""What the maker leaves behind, as a user finds it: this file needs nothing of executorch, and lowers nothing."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import etviz

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "etviz" / "zoo"
"""Where programs are kept, by their name and the digest of all that they are made from."""
FILES = {"etdump": "etdump.etdp", "etrecord": "etrecord.bin", "debug_buffer": "debug_buffer.bin"}
FILES |= {"pte": "model.pte", "record": "right.etviz"}
"""Names by argument of `etviz.load`; the record is not called ``model.etviz``, or it would be found unasked."""
FACTS = "facts.json"
WAYS = {"record": ("pte", "record"), "derived": ("pte",), "ETRecord": ()}
"""What is given to `etviz.load` beside ETDump, ETRecord and debug buffer."""


@dataclass(frozen=True)
class Made:
    """A program that ran."""

    name: str
    folder: Path

    @cached_property
    def facts(self) -> dict[str, Any]:
        """What the maker knows of it, independently of etviz."""
        return json.loads((self.folder / FACTS).read_text())

    def load(self, way: str) -> etviz.Inspection:
        """What a user of `etviz.load` sees, with the files of one of `WAYS`."""
        kinds = ("etrecord", "debug_buffer", *WAYS[way])
        given: dict[str, Any] = {kind: self.folder / FILES[kind] for kind in kinds}
        return etviz.load(self.folder / FILES["etdump"], **given)


def ratio(check: Mapping[str, float]) -> float:
    """How far a value is off, over what rounding explains."""
    return check["off"] / check["noise"] if check["noise"] else (math.inf if check["off"] else 0.0)
