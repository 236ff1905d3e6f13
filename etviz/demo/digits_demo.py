"""`etviz demo`: a real model from training to the verdict, and a planted fault, found and proved."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from tqdm.auto import tqdm

from etviz.api import debug, load
from etviz.artifacts.files import make_folder, whole_file
from etviz.artifacts.program.program import read_program
from etviz.artifacts.scratch import Scratch
from etviz.demo.digits import Digits, DigitsNet, accuracy, load_digits, train
from etviz.demo.planted import CHANNEL, FACTOR, plant
from etviz.errors import UsageError
from etviz.inspection import Inspection
from etviz.pipeline.device import ThisMachine, run_elsewhere
from etviz.pipeline.execute import execute
from etviz.pipeline.recipe import recipe

_CALIBRATION = 128
_BATCH = 10
_NEEDED = {"scikit-learn": "sklearn", "nbformat": "nbformat"}


@dataclass(frozen=True, slots=True)
class Planted:
    """The planted fault of the demo, and its proof.

    `accuracy` is a share of the test images; `proved` the one with the culprit's correct output substituted.
    """

    folder: Path
    what: str
    inspection: Inspection
    finding: str
    accuracy: float
    proved: float


@dataclass(frozen=True, slots=True)
class Demo:
    """Accuracies are shares of the test images, `inspection` is of the sound program."""

    inspection: Inspection
    folder: Path
    notebook: Path
    report: Path
    images: int
    float_accuracy: float
    executorch_accuracy: float
    planted: Planted


def run_demo(folder: Path, say: Callable[[str], None], runner: str | None = None) -> Demo:
    """Train, quantize, lower, run and compare; then plant a fault, and find and prove it.

    `runner`, ``cpp`` or another command as for `etviz run`, runs the program too.
    """
    missing = [name for name, module in _NEEDED.items() if find_spec(module) is None]
    if missing:
        raise UsageError(f"the demo needs {' and '.join(missing)}: pip install 'etviz[demo]'")
    command = find_runner() if runner == "cpp" else runner
    make_folder(folder)
    say("Training a digit classifier on 1,437 real images")
    digits = load_digits()
    model = train(digits)
    with torch.no_grad():
        float_accuracy = accuracy(model(digits.test_images), digits.test_labels)
    say(f"Float accuracy {100 * float_accuracy:.1f} %; quantizing to int8, lowering to XNNPACK, running, comparing")
    example = one_of_each(digits)
    calibration = [(part,) for part in digits.train_images[:_CALIBRATION].split(_BATCH) if len(part) == _BATCH]
    inspection = debug(model, (example,), recipe("xnnpack-int8", calibration=calibration), workdir=folder)
    if command is not None:
        say("Running the ExecuTorch program with the C++ runner" if runner == "cpp" else f"Running it with {command}")
        inspection = run_on_runner(folder, example, command)
    say(f"Running the ExecuTorch program on {len(digits.test_images)} test images")
    scores = _scores(folder / "model.pte", digits)
    planted = _planted(model, digits, example, folder, say)
    say("Looking into the culprit's delegate, and writing the report")
    planted.inspection.look_inside()
    title = "Digit classifier, int8 on XNNPACK, with a planted fault"
    return Demo(
        inspection,
        folder,
        write_notebook(folder),
        planted.inspection.to_html(folder / "report.html", tensors="worst", title=title),
        len(digits.test_images),
        float_accuracy,
        accuracy(scores, digits.test_labels),
        planted,
    )


def find_runner() -> str:
    """A command; a `UsageError` if the runner is not built."""
    for root in (Path.cwd(), Path(__file__).parents[2]):
        path = root / "examples" / "cpp_runner" / "build" / "etviz_runner"
        if path.is_file():
            return shlex.quote(str(path))
    raise UsageError("the C++ runner is not built; build it with: make runner")


def run_on_runner(folder: Path, example: torch.Tensor, command: str) -> Inspection:
    pte = folder / "model.pte"
    ran = run_elsewhere(ThisMachine(folder), pte, read_program(pte), "forward", [[example]], command, folder)
    if ran.etdump is None:
        raise UsageError("the demo shows an ETDump, and the runner's command wrote none")
    (folder / "debug_buffer.bin").unlink(missing_ok=True)  # of the run from Python
    etrecord = folder / "etrecord.bin"
    return load(ran.etdump, debug_buffer=ran.debug_buffer, pte=pte, etrecord=etrecord, inputs=(example,))


def one_of_each(digits: Digits) -> torch.Tensor:
    return torch.stack([digits.test_images[digits.test_labels == digit][0] for digit in range(10)])


def _batches(digits: Digits) -> list[torch.Tensor]:
    missing = -len(digits.test_images) % _BATCH
    return list(torch.cat([digits.test_images, digits.test_images[:missing]]).split(_BATCH))


def _scores(pte: Path, digits: Digits, workdir: Path | None = None) -> torch.Tensor:
    batches = _batches(digits)
    with tqdm(total=len(batches), desc="batches of test images", leave=False) as bar:

        def progress(done: int) -> None:
            bar.update(done - bar.n)

        outputs = execute(pte, [[images] for images in batches], workdir=workdir, progress=progress).outputs
    return torch.cat([run[0] for run in outputs])[: len(digits.test_images)]


def _planted(
    model: DigitsNet, digits: Digits, example: torch.Tensor, folder: Path, say: Callable[[str], None]
) -> Planted:
    device = folder / "planted"
    device.mkdir(exist_ok=True)
    shutil.copy(folder / "etrecord.bin", device / "etrecord.bin")
    plant(model, folder / "model.pte", device / "model.pte")
    what = f"the scale of class {CHANNEL} in the last layer's int8 weights ×{FACTOR:g}, in the .pte alone"
    say(f"Planting a fault: {what}")
    execute(device / "model.pte", [[example]], workdir=device)
    inspection = _load(device, device, [(example,)])
    inspection.attribution()
    finding = inspection.analysis.finder.finding()
    say("Proving it: the test images again, with what the culprit should have given")
    with Scratch() as scratch:
        scores = _scores(device / "model.pte", digits, Path(scratch))
        runs = _load(device, Path(scratch), [(images,) for images in _batches(digits)])
        proved = _without(runs, finding.row if finding is not None else 0, inspection)[: len(digits.test_images)]
    return Planted(
        device,
        what,
        inspection,
        finding.text if finding is not None else "",
        accuracy(scores, digits.test_labels),
        accuracy(proved, digits.test_labels),
    )


def _load(program: Path, run: Path, inputs: Sequence[Any]) -> Inspection:
    return load(
        run / "etdump.etdp",
        etrecord=program / "etrecord.bin",
        debug_buffer=run / "debug_buffer.bin",
        pte=program / "model.pte",
        inputs=list(inputs),
    )


def _without(runs: Inspection, row: int, planted: Inspection) -> torch.Tensor:
    culprit, gaps = planted.gaps.loc[row], runs.gaps
    same = (gaps["instruction"] == culprit["instruction"]) & (gaps["output"] == culprit["output"])
    return torch.cat([runs.what_if(int(index)).outputs[0] for index in gaps.index[same]])


def write_notebook(folder: Path) -> Path:
    import nbformat
    from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

    cells = [
        new_markdown_cell(
            "# A digit classifier on ExecuTorch\n\nTrained, quantized to int8, lowered to XNNPACK and run by "
            "`etviz demo`. In `planted` is a copy with a planted fault, as it would come back from a device. Run the "
            "cells; click a row, a node of the tree, or a fact in the header."
        ),
        new_code_cell(
            "import etviz\n\n"
            'inspection = etviz.load(\n    "planted/etdump.etdp", etrecord="planted/etrecord.bin", '
            'debug_buffer="planted/debug_buffer.bin", pte="planted/model.pte"\n)\n'
            "inspection"
        ),
        new_code_cell("inspection.attribution().head(3)"),
        new_code_cell("inspection.what_if(inspection.first_divergence)"),
        new_code_cell("print(inspection.summary())"),
        new_markdown_cell("Without the fault:"),
        new_code_cell(
            'etviz.load("etdump.etdp", etrecord="etrecord.bin", debug_buffer="debug_buffer.bin", pte="model.pte")'
        ),
    ]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    path = folder / "demo.ipynb"
    with whole_file(path, "the notebook") as partial:
        nbformat.write(new_notebook(cells=cells, metadata=kernel), partial)
    return path


__all__ = ["Demo", "DigitsNet", "Planted", "run_demo", "write_notebook"]
