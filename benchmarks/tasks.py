"""What is measured, one function a task. Each runs in a fresh process, started by `measure.py`.

``python -m benchmarks.tasks request.json`` reads which task to run on which files, and writes what it found to the file
that the request names. Nothing heavy is imported here: what a task imports is part of what some tasks measure.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

Files = dict[str, str]
"""Paths by the name of `etviz.load`'s argument; ``alone`` is the `.pte` in a folder without a record."""
Result = dict[str, Any]

_MB: Final = 1 << 20


def import_etviz(files: Files, tiny: Files) -> Result:
    """`import etviz`."""
    start = time.perf_counter()
    importlib.import_module("etviz")
    return {"seconds": time.perf_counter() - start, "torch": "torch" in sys.modules}


def import_upstream(files: Files, tiny: Files) -> Result:
    """`import executorch.devtools`."""
    start = time.perf_counter()
    importlib.import_module("executorch.devtools")
    return {"seconds": time.perf_counter() - start, "torch": "torch" in sys.modules}


def metadata_etviz(files: Files, tiny: Files) -> Result:
    """What `etviz info` reads: events, instructions, and where every operator comes from. Imports are counted."""
    start = time.perf_counter()
    from etviz.artifacts.etdump.etdump import read_etdump
    from etviz.artifacts.program.program import read_program
    from etviz.artifacts.record.etrecord import ETRecord
    from etviz.artifacts.record.record_file import read_record
    from etviz.graph.tree import program_tree

    dump, program, etrecord = read_etdump(files["etdump"]), read_program(files["pte"]), ETRecord(files["etrecord"])
    tree = program_tree(read_record(files["record"]).graphs)
    handles = {method: etrecord.debug_handles(method) for method in etrecord.methods}
    seconds = time.perf_counter() - start
    found = len(dump.blocks) and len(handles) and len(tree)
    instructions = len(program.method("forward").instructions)
    return {"seconds": seconds, "torch": "torch" in sys.modules, "rows": instructions if found else 0}


def metadata_upstream(files: Files, tiny: Files) -> Result:
    """The same from upstream: an Inspector without a debug buffer. Imports are counted."""
    start = time.perf_counter()
    from executorch.devtools import Inspector

    inspector = Inspector(etdump_path=files["etdump"], etrecord=files["etrecord"])
    rows = sum(len(block.events) for block in inspector.event_blocks)
    return {"seconds": time.perf_counter() - start, "torch": "torch" in sys.modules, "rows": rows}


def version_command_etviz(files: Files, tiny: Files) -> Result:
    """`etviz --version`, from its start to its end."""
    return _command("--version")


def info_command_etviz(files: Files, tiny: Files) -> Result:
    """`etviz info` of a small program."""
    return _command("info", tiny["pte"])


def gaps_command_etviz(files: Files, tiny: Files) -> Result:
    """`etviz gaps` of a small program, and the seconds to its first sign of life."""
    given = [text for name, kind in WAYS["derived"].items() for text in (f"--{name.replace('_', '-')}", tiny[kind])]
    return _command("gaps", tiny["etdump"], *given)


def _command(*args: str) -> Result:
    """In a terminal, since elsewhere a command waits longer before it tells that it works."""
    import pty

    meter, (ours, theirs) = Meter(), pty.openpty()
    process = subprocess.Popen([sys.executable, "-m", "etviz.cli", *args], stdout=theirs, stderr=theirs)
    os.close(theirs)
    os.read(ours, 1)
    first = meter.read()["seconds"]
    with contextlib.suppress(OSError):  # the terminal's other end was closed
        while os.read(ours, 1 << 16):
            pass
    os.close(ours)
    if process.wait():
        raise RuntimeError(f"etviz {args[0]} ended with status {process.returncode}")
    return meter.read() | {"first": first}


WAYS: Final = {
    "record": {"etrecord": "etrecord", "debug_buffer": "debug_buffer", "pte": "pte"},
    "derived": {"etrecord": "etrecord", "debug_buffer": "debug_buffer", "pte": "alone"},
    "etrecord": {"etrecord": "etrecord", "debug_buffer": "debug_buffer"},
}
"""The files that are given, by the names of `etviz.load`'s arguments."""


def gaps_etviz(
    files: Files, tiny: Files, way: str = "record", *, cold: bool = False, kept: bool = False, foreign: bool = False
) -> Result:
    """From paths to the gap table with every metric; a second look at it; the table with introduced gaps; both again.

    A cold process has imported torch and etviz, and loaded nothing; in it only one of the two tables is measured, the
    second in another process (`gaps_introduced_etviz`).
    """
    load = _loader(way, kept=kept, foreign=foreign)
    if not cold:
        load(tiny, introduced=True)
    meter = Meter()
    inspection, gaps = load(files)
    found = meter.read() | {"rows": len(gaps), "compared": _compared(inspection)}
    start = time.perf_counter()
    inspection.gaps["sqnr_db"].min()
    found["again"] = time.perf_counter() - start
    del inspection, gaps
    if cold:
        return found
    found |= gaps_introduced_etviz(files, tiny, way, cold=True)
    for part, introduced in (("kept_", False), ("kept_whole_", True)):
        meter = Meter()
        load(files, introduced=introduced, kept=True)
        found |= {part + name: value for name, value in meter.read().items()}
    return found


def gaps_introduced_etviz(
    files: Files, tiny: Files, way: str = "record", *, cold: bool = False, kept: bool = False, foreign: bool = False
) -> Result:
    """From paths to the gap table with introduced gaps."""
    load = _loader(way, kept=kept, foreign=foreign)
    if not cold:
        load(tiny, introduced=True)
    meter = Meter()
    load(files, introduced=True)
    return {f"whole_{name}": value for name, value in meter.read().items()}


def pairing_etviz(files: Files, tiny: Files, way: str = "derived") -> Result:
    """From paths to which value answers which, before anything is evaluated."""
    from etviz.artifacts.files import collection_paused
    from etviz.loading.artifact_set import ArtifactSet
    from etviz.loading.paired import pair

    def paired(paths: Files) -> int:
        given: Any = {name: paths[kind] for name, kind in WAYS[way].items()}
        with collection_paused():  # as `etviz.load` has it
            artifacts = ArtifactSet.open(paths["etdump"], **given)
            found = pair(artifacts, artifacts.method("forward"))
            artifacts.finish()
        if found.pairing != way:
            raise RuntimeError(f"the pairing is {found.pairing}, {way} was expected")
        return sum(node.instruction >= 0 for node in found.graph.walk())

    paired(tiny)
    meter = Meter()
    instructions = paired(files)
    return meter.read() | {"rows": instructions, "compared": [instructions, instructions]}


def report_etviz(files: Files, tiny: Files) -> Result:
    """A report with the histograms of every row, in a process that has written none; the load is not counted."""
    inspection, gaps = _loader("record")(files)
    with tempfile.TemporaryDirectory(prefix="etviz-bench-") as folder:
        meter = Meter()
        path = inspection.to_html(Path(folder) / "report.html", tensors="histograms")
        return meter.read() | {"rows": len(gaps), "report_mb": Path(path).stat().st_size / _MB}


def _loader(way: str, *, kept: bool = False, foreign: bool = False) -> Any:
    import torch

    import etviz
    from etviz.artifacts.known_files import state_folder

    if foreign:
        etviz.options.isolation = "always"

    def load(paths: Files, *, introduced: bool = False, kept: bool = kept) -> Any:
        if not kept:  # the noise of this program on these inputs
            shutil.rmtree(state_folder() / "noise", ignore_errors=True)
        given: Any = {name: paths[kind] for name, kind in WAYS[way].items()}
        inspection = etviz.load(paths["etdump"], **given, introduced=introduced)
        return inspection, inspection.gaps

    torch.zeros(1).add_(1)
    return load


def attribution_etviz(files: Files, tiny: Files) -> Result:
    """Each instruction's share of the final error; the load is not counted."""
    load = _loader("record")
    load(tiny)[0].attribution()
    inspection, gaps = load(files)
    meter = Meter()
    inspection.attribution()
    return meter.read() | {"rows": len(gaps)}


def eager(files: Files, tiny: Files, program: str) -> Result:
    """One eager forward, the unit of the table: medians of seven, after one that is not counted."""
    import torch

    from benchmarks.artifacts import programs

    model, inputs = next(item for item in programs() if item.name == program).build()
    found = []
    with torch.no_grad():
        model(*inputs)
        for _ in range(7):
            meter = Meter()
            model(*inputs)
            found.append(meter.read())
    return {name: statistics.median(item[name] for item in found) for name in ("seconds", "processor")}


def _compared(inspection: Any) -> list[int]:
    status = inspection.coverage["status"]
    return [int((status != "not compared").sum()), len(status)]


def gaps_upstream(files: Files, tiny: Files, *, cold: bool = False) -> Result:
    """From paths to upstream's table of one metric; then a second metric."""
    from executorch.devtools import Inspector

    def load(paths: Files) -> Any:
        inspector = Inspector(
            etdump_path=paths["etdump"], etrecord=paths["etrecord"], debug_buffer_path=paths["debug_buffer"]
        )
        return inspector, inspector.calculate_numeric_gap("MSE")

    if not cold:
        load(tiny)
    meter = Meter()
    try:
        inspector, gaps = load(files)
    except Exception as error:  # noqa: BLE001 - that upstream raises, and when, is what is measured
        return meter.read() | {"error": type(error).__name__, "message": str(error)[:500]}
    found = meter.read() | {"rows": len(gaps)}
    start = time.perf_counter()
    inspector.calculate_numeric_gap("SNR")
    return found | {"again": time.perf_counter() - start}


class Meter:
    """Time, processor time and peak resident memory from its making to `read`.

    With `apart`, memory that is no part of a mapped file is asked for all the time, which takes a thread.
    """

    def __init__(self, *, apart: bool = False) -> None:
        gc.collect()
        _reset_peak()
        self._resident = _resident()
        self._apart = _Apart() if apart else None
        self._processor = _processor()
        self._start = time.perf_counter()

    def read(self) -> Result:
        """Seconds, and the largest resident set above that at the beginning, in MB (mapped files count too)."""
        seconds = time.perf_counter() - self._start
        processor = _processor() - self._processor
        found = {"seconds": seconds, "processor": processor, "peak_mb": max(0.0, _peak() - self._resident) / _MB}
        return found if self._apart is None else found | {"own_mb": self._apart.stop() / _MB}


def _processor() -> float:
    """Processor time of this process and of those that it started, in seconds."""
    import psutil

    waited = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = time.process_time() + waited.ru_utime + waited.ru_stime
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            seconds += sum(child.cpu_times()[:2])
    return seconds


class _Apart:
    """The most memory that is no part of a mapped file, above that at the beginning, asked for every few moments."""

    def __init__(self) -> None:
        self._start = self._most = _status("RssAnon") or 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self._thread.start()

    def _ask(self) -> None:
        while not self._done.wait(0.01):
            self._most = max(self._most, _status("RssAnon") or 0)

    def stop(self) -> int:
        """Bytes."""
        self._done.set()
        self._thread.join()
        return self._most - self._start


def _status(name: str) -> int | None:
    """A size of this process in bytes, from Linux."""
    path = Path("/proc/self/status")
    if not path.exists():
        return None
    for line in path.read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return None


def _reset_peak() -> None:
    path = Path("/proc/self/clear_refs")
    if path.exists() and os.access(path, os.W_OK):
        path.write_text("5")


def _resident() -> int:
    return _status("VmRSS") or _peak()


def _peak() -> int:
    unit = 1 if sys.platform == "darwin" else 1024
    return _status("VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


TASKS: Final[dict[str, Callable[..., Result]]] = {
    task.__name__: task
    for task in (
        import_etviz,
        import_upstream,
        metadata_etviz,
        metadata_upstream,
        version_command_etviz,
        info_command_etviz,
        gaps_command_etviz,
        gaps_etviz,
        gaps_introduced_etviz,
        pairing_etviz,
        report_etviz,
        attribution_etviz,
        gaps_upstream,
        eager,
    )
}


def main(request: str) -> int:
    """Run the task of a request file."""
    order = json.loads(Path(request).read_text(encoding="utf-8"))
    result = TASKS[order["task"]](order["files"], order["tiny"], **order["options"])
    Path(order["answer"]).write_text(json.dumps(result), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
