"""What a look inside of a delegate costs: ``python -m benchmarks.zoom`` prints one table.

The programs are a MobileNetV2-like network in static int8 through XNNPACK, whose larger delegate has 99 operators, and
one with five times its blocks. The child process is warm. With the `.pte` at hand what ran is run again; with the
record alone the delegate is lowered again, most of which is ExecuTorch's own passes. Beside the time of the clock
stands the processor time of this process, which waits for the child.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console
from rich.table import Table

from benchmarks.showcase import quantized

if TYPE_CHECKING:
    from collections.abc import Callable

_REPEAT: Final = 3
_LARGE: Final = 5
"""How many times the blocks the large program has: 499 operators in a delegate."""


def main() -> int:
    """Make the programs, measure and print; returns the exit status."""
    import etviz

    etviz.options.look_inside = "never"  # it would be looked into already
    with tempfile.TemporaryDirectory(prefix="etviz-bench-") as folder:
        files = quantized("mobilenet-int8", Path(folder))
        rows = [*_rows("the .pte", files, "2 s"), *_rows("the record alone", {**files, "pte": None})]
    with tempfile.TemporaryDirectory(prefix="etviz-bench-") as folder:
        rows += _rows("the .pte, the large program", quantized("mobilenet-int8", Path(folder), _LARGE), "10 s")
    table = Table("look inside, with", "values", "median", "processor", "to reach")
    for row in rows:
        table.add_row(*row)
    Console().print(table)
    return 0


def _rows(what: str, files: dict[str, Any], goal: str = "") -> list[tuple[str, ...]]:
    import etviz
    from etviz.pipeline.piece_program import edge_program, partition_marks
    from etviz.upstream.executorch import lower_again

    inspection = etviz.load(**{name: path for name, path in files.items() if path is not None})
    gaps = inspection.gaps
    calls = gaps[gaps["kind"] == "delegate"].drop_duplicates(["event_block", "instruction"])
    order = calls["reference_ops"].str.count(",").sort_values(kind="stable").index
    values = 0

    def look(row: int) -> None:
        nonlocal values
        inspection.analysis.inside = {}
        values = len(inspection.zoom(row).gaps)

    def row(name: str, work: Callable[[], None], goal: str = "", repeat: int = _REPEAT) -> tuple[str, ...]:
        seconds, processor = _median(work, repeat)
        return name, str(values), f"{seconds:.2f} s", f"{processor:.2f} s", goal

    first = row(f"{what}: the first, into the smallest delegate", lambda: look(order[0]), "0.5 s" if goal else "", 1)
    rows = [first, row(f"{what}: the largest delegate", lambda: look(order[-1]), goal)]
    if files["pte"] is None:
        piece = inspection.analysis.zooms.piece(order[-1])
        plain, _ = edge_program(piece.graph, piece.constants, piece.inputs)
        marks = partition_marks(plain, piece.graph.backend_id)
        made = (edge_program(piece.graph, piece.constants, piece.inputs, (), marks) for _ in range(_REPEAT))
        programs = [program for program, _ in made]

        def lower() -> None:
            lower_again(programs.pop(), piece.graph.backend_id, piece.graph.compile_specs)

        rows.append(row("… ExecuTorch's own passes of it", lower))
    return rows


def _median(work: Callable[[], None], repeat: int) -> tuple[float, float]:
    """Seconds, and seconds of this process's processor time."""
    found = []
    for _ in range(repeat):
        start = time.perf_counter(), time.process_time()
        work()
        found.append((time.perf_counter() - start[0], time.process_time() - start[1]))
    seconds, processor = map(statistics.median, zip(*found, strict=True))
    return seconds, processor


if __name__ == "__main__":
    sys.exit(main())
