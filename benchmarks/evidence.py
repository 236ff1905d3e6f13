"""What a study costs: ``python -m benchmarks.evidence`` prints one table.

The program is the demo's digit classifier in int8 through XNNPACK. Each row is taken in fresh processes; a first, small
study warms everything up and is not counted.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    import torch

_INPUTS: Final = 200
_MANY: Final = (20, 2000)
_WARM: Final = 4
_LIMIT: Final = 3600.0
_MB: Final = 1 << 20


def main() -> int:
    """Measure and print; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.evidence", description=__doc__)
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="repetitions (%(default)s)")
    parser.add_argument("--inputs", type=int, default=_INPUTS, metavar="N", help="inputs of a study (%(default)s)")
    parser.add_argument("--many", type=int, nargs=2, default=_MANY, metavar="N", help="inputs that memory is taken of")
    parser.add_argument("--child", nargs=3, metavar=("TASK", "INPUTS", "FILE"), help=argparse.SUPPRESS)
    parser.add_argument("--program", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        task, count, file = options.child
        Path(file).write_text(json.dumps(_TASKS[task](options.program, int(count))), encoding="utf-8")
        return 0
    with tempfile.TemporaryDirectory(prefix="etviz-bench-") as folder:
        _make(Path(folder))
        table = Table("what", "found", "to reach")
        for row in _rows(Path(folder), options.inputs, options.many, options.repeat):
            table.add_row(*row)
    Console().print(table)
    return 0


def _rows(folder: Path, inputs: int, many: tuple[int, int], repeat: int) -> list[tuple[str, str, str]]:
    def seconds(task: str, count: int = inputs) -> float:
        return statistics.median(_child(task, count, folder)["seconds"] for _ in range(repeat))

    base, each, upstream = (seconds(task) for task in ("read", "each", "upstream"))
    plain, one = (seconds(task) for task in ("plain", "study"))
    few, most = (_child("study", count, folder) for count in many)
    worker, workers = (_child(task, many[1], folder)["seconds"] for task in ("worker", "workers"))

    def against(found: float) -> str:
        return f"{found:.2f} s: {found / base:.2f}×, {found / each:.2f}×, {found / upstream:.2f}×"

    return [
        (f"running {inputs} inputs, and reading their buffers: as a study does, 32 at a time", f"{base:.2f} s", ""),
        ("… one input after the other, in the same child process", f"{each:.2f} s", ""),
        ("… one after the other, by upstream's bindings and Inspector", f"{upstream:.2f} s", ""),
        (f"a study of {inputs} inputs without introduced gaps, and how often each of these", against(plain), ""),
        (f"a study of {inputs} inputs, in one process", against(one), "1.3×"),
        (f"a study of {many[1]} inputs, in one process", f"{most['seconds']:.2f} s", ""),
        ("… by one worker of an executor", f"{worker:.2f} s", ""),
        ("… by two", f"{workers:.2f} s, {worker / workers:.2f}× as fast", "1.7×"),
        (
            f"peak memory, {many[0]} and {many[1]} inputs",
            " and ".join(f"{found['peak'] / _MB:.0f}" for found in (few, most)) + " MB",
            "flat",
        ),
    ]


def _child(task: str, count: int, folder: Path) -> dict[str, float]:
    answer = folder / "answer.json"
    command = [sys.executable, "-m", "benchmarks.evidence", "--program", str(folder)]
    command += ["--child", task, str(count), str(answer)]
    subprocess.run(command, check=True, timeout=_LIMIT, stderr=subprocess.DEVNULL)
    return json.loads(answer.read_text(encoding="utf-8"))


def _make(folder: Path) -> None:
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )

    import etviz
    from etviz.demo.digits import load_digits, train

    digits = load_digits()
    etviz.debug(
        train(digits, epochs=2),
        (digits.test_images[:1],),
        partitioner=[XnnpackPartitioner()],
        quantizer=XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True)),
        calibration=[(image[None],) for image in digits.train_images[:64]],
        workdir=folder,
    )


def _images(count: int, first: int = 0) -> list[torch.Tensor]:
    from etviz.demo.digits import load_digits

    images = load_digits().train_images
    return [images[at % len(images)][None] for at in range(first, first + count)]


def _study(program: Path, count: int, **options: Any) -> dict[str, float]:
    import etviz

    if "executor" in options:  # every worker finds out what does not change, as the one process does
        etviz.study(program, _images(8 * _WARM, first=count), **{**options, "chunk": _WARM})
    else:  # other images, of which the noise is not known yet
        etviz.study(program, _images(_WARM, first=count), **options)
    images = _images(count)
    start = time.perf_counter()
    study = etviz.study(program, images, **options)
    seconds = time.perf_counter() - start
    if int((study.inputs["status"] == "compared").sum()) != count:
        raise RuntimeError(study.summary())
    return {"seconds": seconds, "peak": float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)}


def _read(program: Path, count: int, at_once: int = 0) -> dict[str, float]:
    """Run so many inputs at once, as a study does if 0, and touch every tensor that was logged; nothing is compared."""
    from etviz.artifacts.etdump.runtime_log import RuntimeLog
    from etviz.evidence.runner import CHUNK
    from etviz.evidence.subject import subject_of

    size = at_once or CHUNK
    subject = subject_of(program, None, program, None)

    def run(images: list[torch.Tensor]) -> None:
        base = None
        for first in range(0, len(images), size):
            with tempfile.TemporaryDirectory(prefix="etviz-bench-") as folder:
                left = subject.run([[image] for image in images[first : first + size]], Path(folder))
                base = subject.pair(left, base)
                for _, block in base.executions:
                    log = RuntimeLog(block, base.artifacts.buffer)
                    for instruction in log.instructions:
                        for value in log.values(instruction):
                            value.clone()

    run(_images(_WARM))
    images = _images(count)
    start = time.perf_counter()
    run(images)
    return {"seconds": time.perf_counter() - start}


def _upstream(program: Path, count: int) -> dict[str, float]:
    """Run the inputs by the runtime's bindings, and have upstream's Inspector read what each logged.

    A method can't be executed again once its ETDump was written, and the Inspector refuses executions of one ETDump
    that logged different values; so the program is loaded for each input.
    """
    from executorch.devtools import Inspector
    from executorch.extension.pybindings.portable_lib import _load_for_executorch

    from etviz.evidence.subject import FILES, subject_of

    pte, size = str(program / FILES["pte"]), subject_of(program, None, program, None).buffer_bytes

    def run(images: list[torch.Tensor]) -> None:
        with tempfile.TemporaryDirectory(prefix="etviz-bench-") as folder:
            dump, buffer = str(Path(folder, "dump.etdp")), str(Path(folder, "buffer.bin"))
            for image in images:
                module = _load_for_executorch(pte, enable_etdump=True, debug_buffer_size=size)
                module.run_method("forward", (image,))
                module.write_etdump_result_to_file(dump, buffer)
                inspector = Inspector(etdump_path=dump, debug_buffer_path=buffer)
                if not any(event.debug_data for block in inspector.event_blocks for event in block.events):
                    raise RuntimeError("upstream's Inspector read no values")

    run(_images(_WARM))
    images = _images(count)
    start = time.perf_counter()
    run(images)
    return {"seconds": time.perf_counter() - start}


def _workers(program: Path, count: int, number: int) -> dict[str, float]:
    """Workers that are warm: starting them takes as long whatever they do."""
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    from etviz.evidence.runner import CHUNK

    with ProcessPoolExecutor(number, multiprocessing.get_context("spawn")) as pool:
        rounds = math.ceil(count / (number * CHUNK))
        return _study(program, count, executor=pool, chunk=math.ceil(count / (number * rounds)))


_TASKS: Final = {
    "read": _read,
    "each": lambda program, count: _read(program, count, 1),
    "upstream": _upstream,
    "plain": lambda program, count: _study(program, count, introduced=False),
    "study": _study,
    "worker": lambda program, count: _workers(program, count, 1),
    "workers": lambda program, count: _workers(program, count, 2),
}

if __name__ == "__main__":
    sys.exit(main())
