"""How long a table of many rows takes: ``python -m benchmarks.rows``; 12 layers of the stack, executed 140 times.

Once all executions have the same inputs, which have one reference, and once each has its own. Processor time, medians:
of processes that import etviz and load (cold), and of loading where something was loaded before (warm).
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

_LAYERS: Final = 12
_EXECUTIONS: Final = 140
_CASES: Final = {"same": "the same inputs", "own": "inputs of its own"}


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rows", description=__doc__)
    parser.add_argument("--layers", type=int, default=_LAYERS, metavar="N", help="layers of the stack (%(default)s)")
    parser.add_argument("--executions", type=int, default=_EXECUTIONS, metavar="N", help="how many (%(default)s)")
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="repetitions (%(default)s)")
    parser.add_argument(
        "--cache", type=Path, default=Path("build/bench"), metavar="DIR", help="where artifacts are kept"
    )
    parser.add_argument("--load", nargs=3, metavar="FOLDER", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.load:
        folder, introduced, state = options.load
        _load(Path(folder), introduced=introduced == "introduced", warm=state == "warm")
        return 0
    table = Table("each execution had", "rows", "table, cold", "warm", "… and introduced gaps, cold", "warm")
    for case, title in _CASES.items():
        folder = _prepare(case, options.layers, options.executions, options.cache)
        columns = []
        for introduced in ("total", "introduced"):
            found = [_measured(folder, introduced) for _ in range(options.repeat)]
            rows, whole, own = (statistics.median(values) for values in zip(*found, strict=True))
            columns += [f"{int(rows):,}"] if introduced == "total" else []
            columns += [f"{whole:.2f} s", f"{own:.2f} s"]
        table.add_row(title, *columns)
    Console().print(table)
    return 0


def _prepare(case: str, layers: int, executions: int, cache: Path) -> Path:
    """A folder with the files of all executions, made where it is not in the cache yet."""
    import torch
    from torch.utils._pytree import tree_leaves

    from benchmarks import artifacts, models
    from etviz.pipeline.execute import execute

    program = next(item for item in artifacts.programs() if item.layers == layers)
    made = artifacts.prepare([program], cache, quick=False)[program.name].folder
    folder = made / f"{executions}-{case}"
    if not (folder / "inputs.pt").exists():
        example = tree_leaves(models.decoder_stack(layers)[1])
        several = [_inputs(example, seed) if case == "own" else example for seed in range(executions)]
        execute(made / "model.pte", several, workdir=folder)
        torch.save([tuple(item) for item in several], folder / "inputs.pt")
    return folder


def _inputs(example: Sequence[Any], seed: int) -> list[Any]:
    """Tokens that a seed chooses."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(0, int(value.max()) + 1, value.shape, generator=generator) for value in example]


def _measured(folder: Path, introduced: str) -> list[float]:
    """Rows, processor time of a process that imports and loads, and of one that has loaded something before."""
    found: list[float] = [0.0]
    for state in ("cold", "warm"):
        command = [sys.executable, "-m", "benchmarks.rows", "--load", str(folder), introduced, state]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        rows, seconds = map(float, done.stdout.split())
        found = [rows, *found[1:], seconds]
    return found


def _load(folder: Path, *, introduced: bool, warm: bool) -> None:
    """Load in this process; prints the rows, and the processor time."""
    import etviz

    etviz.options.isolation = "never"
    made = folder.parent
    given: dict[str, Any] = {"pte": made / "model.pte", "etrecord": made / "etrecord.bin", "introduced": introduced}
    if warm:
        len(etviz.load(made / "etdump.etdp", debug_buffer=made / "debug_buffer.bin", **given).gaps)
    start = time.process_time() if warm else 0.0
    if folder.name.endswith("own"):
        import torch

        given["inputs"] = torch.load(folder / "inputs.pt")
    rows = len(etviz.load(folder / "etdump.etdp", debug_buffer=folder / "debug_buffer.bin", **given).gaps)
    print(rows, time.process_time() - start)


if __name__ == "__main__":
    sys.exit(main())
