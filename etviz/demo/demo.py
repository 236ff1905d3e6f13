"""`etviz demo`: a real model from training to the verdict, with every artifact left in a folder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tqdm.auto import tqdm

from etviz.api import debug
from etviz.artifacts.files import whole_file
from etviz.demo.digits import DigitsNet, accuracy, load_digits, train
from etviz.pipeline.execute import execute
from etviz.upstream.executorch import quietly

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from etviz.inspection import Inspection

_CALIBRATION = 128


@dataclass(frozen=True, slots=True)
class Demo:
    """What the demo made; accuracies are shares of the test images."""

    inspection: Inspection
    folder: Path
    notebook: Path
    report: Path
    images: int
    float_accuracy: float
    executorch_accuracy: float


def run_demo(folder: Path, say: Callable[[str], None]) -> Demo:
    """Train, quantize to int8, lower to XNNPACK, run with a debug buffer, compare, and test on real images.

    Parameters
    ----------
    folder
        Where artifacts, notebook and report go; made if it is missing.
    say
        Called with a sentence before each step.
    """
    import torch

    with quietly():
        from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
        from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
            XNNPACKQuantizer,
            get_symmetric_quantization_config,
        )
    folder.mkdir(parents=True, exist_ok=True)
    say("Training a digit classifier on 1,437 real images")
    digits = load_digits()
    model = train(digits)
    with torch.no_grad():
        float_accuracy = accuracy(model(digits.test_images), digits.test_labels)
    say(f"Float accuracy {100 * float_accuracy:.1f} %; quantizing to int8, lowering to XNNPACK, running, comparing")
    inspection = debug(
        model,
        (digits.test_images[:1],),
        partitioner=[XnnpackPartitioner()],
        quantizer=XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True)),
        calibration=[(image[None],) for image in digits.train_images[:_CALIBRATION]],
        workdir=folder,
    )
    say(f"Running the ExecuTorch program on {len(digits.test_images)} test images")
    with tqdm(total=len(digits.test_images), desc="test images", leave=False) as bar:
        runs = [[image[None]] for image in digits.test_images]

        def progress(done: int) -> None:
            bar.update(done - bar.n)

        outputs = execute(folder / "model.pte", runs, progress=progress).outputs
    scores = torch.cat([run[0] for run in outputs])
    say("Writing the report")
    return Demo(
        inspection,
        folder,
        write_notebook(folder),
        inspection.to_html(folder / "report.html", tensors="worst", title="Digit classifier, int8 on XNNPACK"),
        len(runs),
        float_accuracy,
        accuracy(scores, digits.test_labels),
    )


def write_notebook(folder: Path) -> Path:
    """Write a notebook that opens the artifacts of a folder."""
    import nbformat
    from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

    cells = [
        new_markdown_cell(
            "# A digit classifier on ExecuTorch\n\nTrained, quantized to int8, lowered to XNNPACK and run by "
            "`etviz demo`. Run the cells; click a row, a node of the tree, or a fact in the header."
        ),
        new_code_cell(
            "import etviz\n\n"
            'inspection = etviz.load(\n    "etdump.etdp", etrecord="etrecord.bin", '
            'debug_buffer="debug_buffer.bin", pte="model.pte"\n)\n'
            "inspection"
        ),
        new_code_cell("inspection.worst()"),
        new_code_cell("print(inspection.summary())"),
    ]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    path = folder / "demo.ipynb"
    with whole_file(path, "the notebook") as partial:
        nbformat.write(new_notebook(cells=cells, metadata=kernel), partial)
    return path


__all__ = ["Demo", "DigitsNet", "run_demo", "write_notebook"]
