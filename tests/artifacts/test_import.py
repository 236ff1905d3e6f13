"""Looking at files needs neither torch nor executorch, and no patience."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.artifacts.conftest import Run

SCRIPT = """
import sys
from etviz.artifacts.program.bundled_program import read_bundled_program
from etviz.artifacts.etdump.debug_buffer import DebugBuffer
from etviz.artifacts.etdump.etdump import read_etdump
from etviz.artifacts.program.logged import debug_buffer_bytes
from etviz.artifacts.program.program import read_program
dump, program = read_etdump(sys.argv[1]), read_program(sys.argv[2])
assert dump.blocks and debug_buffer_bytes(program) > 0
assert not {"torch", "executorch", "pandas"} & set(sys.modules)
"""


def test_readers_load_neither_torch_nor_executorch(runs: dict[str, Run]) -> None:
    run = runs["partly"]
    command = [sys.executable, "-c", SCRIPT, str(run.etdump), str(run.pte)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
