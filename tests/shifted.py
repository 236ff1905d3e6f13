"""A run whose debug buffer holds another number than the runtime gave: what is zoomed into it can't be faithful."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np

import etviz
from etviz.artifacts.etdump.etdump import read_etdump
from tests.conformance.cases import Case
from tests.programs import FILES, Executed


def load_shifted(
    program: Executed | Case, folder: Path, instruction: int, by: float, *, at: int = -1, **options: Any
) -> etviz.Inspection:
    """A copy of a program's artifacts: `by` is added to the first number of an instruction's output `at` some place."""
    there = {kind: program.path(kind) for kind in FILES if program.path(kind).exists()}
    copied: dict[str, Any] = {kind: shutil.copy(path, folder / path.name) for kind, path in there.items()}
    block = next(b for b in read_etdump(program.path("etdump")).blocks if b.name == "Execute")
    logged = [t for e in block.debug if e.instruction_id == instruction and e.chain >= 0 for t in e.tensors]
    data = np.memmap(copied["debug_buffer"], np.uint8, "r+")
    data[logged[at].offset :][:4].view(np.float32)[:] += np.float32(by)
    data.flush()
    return etviz.load(copied.pop("etdump"), **copied, **options)
