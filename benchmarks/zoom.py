"""What a look inside of a delegate costs: ``python -m benchmarks.zoom`` prints one table.

The program is a MobileNetV2-like network in static int8 through XNNPACK, whose larger delegate has 99 operators. The
child process is warm, as it is when a delegate has been looked into before. With the `.pte` at hand what ran is run
again; with the record alone the delegate is lowered again, most of which is ExecuTorch's own passes.
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


def main() -> int:
    """Make the program, measure and print; returns the exit status."""
    with tempfile.TemporaryDirectory(prefix="etviz-bench-") as folder:
        files = quantized("mobilenet-int8", Path(folder))
        rows = [*_rows("the .pte", files), *_rows("the record alone", {**files, "pte": None})]
    table = Table("look inside, with", "values", "median", "to reach")
    for row in rows:
        table.add_row(*row)
    Console().print(table)
    return 0


def _rows(what: str, files: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    import etviz
    from etviz.pipeline.piece_program import edge_program, partition_marks
    from etviz.upstream.executorch import lower_again

    inspection = etviz.load(**{name: path for name, path in files.items() if path is not None})
    gaps = inspection.gaps
    calls = gaps[gaps["kind"] == "delegate"].drop_duplicates(["event_block", "instruction"])
    order = calls["reference_ops"].str.count(",").sort_values(kind="stable").index
    inspection.zoom(order[0])  # the child imports what it needs
    values = 0

    def look() -> None:
        nonlocal values
        inspection.analysis.inside = {}
        values = len(inspection.zoom(order[-1]).gaps)

    rows = [(what, f"{_median(look):.2f} s", "2 s" if files["pte"] is not None else "")]
    if files["pte"] is None:
        piece = inspection.analysis.zooms.piece(order[-1])
        plain = edge_program(piece.graph, piece.constants, piece.inputs)
        marks = partition_marks(plain, piece.graph.backend_id)

        def lower() -> None:
            program = edge_program(piece.graph, piece.constants, piece.inputs, (), marks)
            start = time.perf_counter()
            lower_again(program, piece.graph.backend_id, piece.graph.compile_specs)
            passes.append(time.perf_counter() - start)

        passes: list[float] = []
        _median(lower)
        rows.append(("… ExecuTorch's own passes of it", f"{statistics.median(passes):.2f} s", ""))
    return [(name, str(values), seconds, goal) for name, seconds, goal in rows]


def _median(work: Callable[[], None]) -> float:
    found = []
    for _ in range(_REPEAT):
        start = time.perf_counter()
        work()
        found.append(time.perf_counter() - start)
    return statistics.median(found)


if __name__ == "__main__":
    sys.exit(main())
