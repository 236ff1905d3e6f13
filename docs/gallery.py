"""Live reports for the site: programs whose faults etviz names. ``python -m docs.gallery FOLDER`` writes them alone.

Each report is the HTML export itself. The faults of ExecuTorch are programs of `tests/zoo/test_found.py`, which checks
that they stay found; the folder beside each report runs the operator without etviz (`Inspection.repro`).
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import XNNPACKQuantizer, get_symmetric_quantization_config
from torch import nn
from torchao.quantization import Int8WeightOnlyConfig, quantize_
from tqdm.auto import tqdm

import etviz
from benchmarks.mobilenet import MobileNet
from benchmarks.models import vit
from etviz.demo.digits_demo import run_demo
from etviz.demo.language_model import STEP, run_language_demo
from etviz.errors import UsageError
from tests.vendors import models as tosa
from tests.zoo.models import Gelu, Shared, TalkingHeads

LARGEST: Final = 5_000_000
"""Maximum number of bytes of a report."""


@dataclass(frozen=True, slots=True)
class Exhibit:
    """One report of the gallery.

    Attributes
    ----------
    name
        File name without suffix.
    title
        For people.
    says
        A sentence about the program.
    make
        Makes the Inspection; receives a folder for its files.
    fault
        True for a fault of ExecuTorch, which gets a folder that shows it without etviz.
    """

    name: str
    title: str
    says: str
    make: Callable[[Path], etviz.Inspection]
    fault: bool = False


def _xnnpack(model: nn.Module, *inputs: torch.Tensor, workdir: Path, int8: bool = False) -> etviz.Inspection:
    given: dict[str, Any] = {"partitioner": [XnnpackPartitioner()], "workdir": workdir}
    if int8:
        config = get_symmetric_quantization_config(is_per_channel=True)
        given |= {"quantizer": XNNPACKQuantizer().set_global(config), "calibration": [inputs]}
    return etviz.debug(model.eval(), inputs, **given)


def _vit(workdir: Path) -> etviz.Inspection:
    model, inputs = vit(small=False)
    return _xnnpack(model, *inputs, workdir=workdir)


def _mobilenet(workdir: Path) -> etviz.Inspection:
    return _xnnpack(MobileNet(), torch.randn(1, 3, 64, 64), workdir=workdir, int8=True)


def _ethos_u(workdir: Path) -> etviz.Inspection:
    model, inputs = tosa.MODELS["cnn"]()
    recipe = etviz.recipe("ethos-u55", calibration=tosa.calibration(inputs))
    return etviz.debug(model, inputs, recipe, runner="emulated", workdir=workdir)


def _gelu(workdir: Path) -> etviz.Inspection:
    return _xnnpack(Gelu("tanh"), torch.randn(4, 32), workdir=workdir)


def _weight_only(workdir: Path) -> etviz.Inspection:
    model = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 16)).eval()
    quantize_(model, Int8WeightOnlyConfig())
    return _xnnpack(model, torch.randn(3, 32), workdir=workdir)


def _softmax(workdir: Path) -> etviz.Inspection:
    return _xnnpack(TalkingHeads(), torch.randn(1, 4, 6, 6), workdir=workdir)


def _bias(workdir: Path) -> etviz.Inspection:
    return _xnnpack(Shared(), torch.randn(4, 16), 1.5 * torch.randn(4, 16), workdir=workdir, int8=True)


def _resize(workdir: Path) -> etviz.Inspection:
    model = nn.Sequential(nn.Upsample(scale_factor=1.5, mode="bilinear"), nn.Conv2d(3, 4, 1))
    return _xnnpack(model, torch.randn(1, 3, 9, 7), workdir=workdir)


def _norm(workdir: Path) -> etviz.Inspection:
    return etviz.debug(nn.LayerNorm(24).eval(), (torch.randn(5, 24) + 300,), workdir=workdir)


def _wide_norm(workdir: Path) -> etviz.Inspection:
    model = nn.LayerNorm(256).bfloat16().eval()
    return etviz.debug(model, ((5 * torch.randn(6, 256)).bfloat16(),), workdir=workdir)


class _Compared(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x == 0.1).to(torch.float32) + 1


def _compared(workdir: Path) -> etviz.Inspection:
    return etviz.debug(_Compared(), (torch.tensor([0.1, 0.2]).bfloat16(),), workdir=workdir)


class _Exp(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.exp(x) + 1


def _nan(workdir: Path) -> etviz.Inspection:
    return _xnnpack(_Exp(), torch.tensor([[1.0, torch.nan, 2.0, 3.0]]), workdir=workdir)


class _Rsqrt(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.rsqrt(x)


def _rsqrt(workdir: Path) -> etviz.Inspection:
    return _xnnpack(_Rsqrt(), torch.tensor([[1.0, 0.0, 2.0, 3.0]]), workdir=workdir)


def _sigmoid(workdir: Path) -> etviz.Inspection:
    return _xnnpack(nn.Sigmoid(), torch.tensor([[1.0, -1e38, 2.0, 3.0]]), workdir=workdir)


def _small_epsilon(workdir: Path) -> etviz.Inspection:
    model = nn.LayerNorm(16, eps=1e-8).half().eval()
    return etviz.debug(model, (torch.ones(2, 16).half(),), workdir=workdir)


_fault = partial(Exhibit, fault=True)
EXHIBITS: Final = (
    Exhibit("vit", "ViT-B/16, float32 on XNNPACK", "403 values, none beyond its noise.", _vit),
    Exhibit("mobilenet-int8", "A MobileNetV2-like network, int8 on XNNPACK", "One delegate, zoomed.", _mobilenet),
    Exhibit(
        "ethos-u55",
        "A small CNN, int8 on Arm Ethos-U55",
        "The delegate is computed by Arm's TOSA reference model, operator by operator.",
        _ethos_u,
    ),
    _fault("gelu", "XNNPACK computes gelu(tanh) as the erf form", "The result is off by up to 4.7e-4.", _gelu),
    _fault(
        "weight-only-int8",
        "A linear layer with weight-only int8 weights is wrong on XNNPACK",
        "The result is off by orders of magnitude; the portable kernels are right.",
        _weight_only,
    ),
    _fault(
        "softmax-axis",
        "XNNPACK takes a softmax between convolutions over the channels",
        "The program asks for the last axis; `torch.softmax(x, 1)` gives XNNPACK's numbers.",
        _softmax,
    ),
    _fault(
        "shared-bias",
        "XNNPACK quantizes a bias once for a layer that is used twice",
        "The second result is off by bias · (scale / first scale − 1).",
        _bias,
    ),
    _fault(
        "resize-factor",
        "XNNPACK resizes by the ratio of the sizes instead of the given factor",
        "13 of 9 rows are not 1.5 times as many.",
        _resize,
    ),
    _fault(
        "layer-norm-digits",
        "The portable layer norm loses digits where the mean is large",
        "It takes the variance as the mean square less the squared mean.",
        _norm,
    ),
    _fault(
        "layer-norm-16-bit",
        "Layer norms of 256 and more 16-bit values are wrong",
        "The kernel reads the values as float32.",
        _wide_norm,
    ),
    _fault(
        "compared-16-bit",
        "A 16-bit tensor is compared with a number that is not rounded to 16 bits",
        "In torch, 0.1 in bfloat16 equals 0.1.",
        _compared,
    ),
    _fault("exp-nan", "XNNPACK's exp(NaN) is 0", "A NaN of the input disappears.", _nan),
    _fault("rsqrt-zero", "XNNPACK's rsqrt(0) is NaN", "IEEE 754 gives infinity.", _rsqrt),
    _fault("sigmoid-large", "XNNPACK's sigmoid(−1e38) is NaN", "The limit is 0.", _sigmoid),
    _fault(
        "layer-norm-epsilon",
        "The portable layer norm of float16 divides by zero for a small epsilon",
        "An epsilon of 1e-8 is 0 in float16; eager mode computes in float32.",
        _small_epsilon,
    ),
)


def write(folder: Path) -> list[str]:
    """Write all reports and a page that lists them; returns the pages of the site.

    Parameters
    ----------
    folder
        Is made.

    Raises
    ------
    ValueError
        If a report exceeds `LARGEST`, or etviz names no operator in the report of a fault.
    """
    folder.mkdir(parents=True)
    rows: dict[bool, list[str]] = {False: [], True: []}
    with tempfile.TemporaryDirectory(prefix="etviz-gallery-") as scratch:
        shutil.copy(run_demo(Path(scratch) / "demo", tqdm.write).report, folder / "demo.html")
        run_language_demo(Path(scratch) / "decode", tqdm.write).planted.to_html(folder / "decode.html")
        for exhibit in tqdm(EXHIBITS, desc="gallery", unit="report"):
            place = Path(scratch) / exhibit.name
            torch.manual_seed(0)
            inspection = exhibit.make(place)
            inspection.look_inside()
            report = inspection.to_html(folder / f"{exhibit.name}.html", title=exhibit.title)
            row = f"- [{exhibit.title}]({report.name}). {exhibit.says}"
            if exhibit.fault:
                first = inspection.first_divergence
                if first is None:
                    raise ValueError(f"{exhibit.name}: etviz names no operator")
                try:
                    inspection.repro(first["name"], place / "repro")
                except UsageError:  # a quantized operator does not run outside of its delegate
                    same = inspection.gaps["instruction"] == first["instruction"]
                    inspection.repro(inspection.gaps.index[same][0], place / "repro")
                shutil.make_archive(str(folder / f"{exhibit.name}-repro"), "zip", place / "repro")
                row += f" [Run it without etviz]({exhibit.name}-repro.zip)."
            rows[exhibit.fault].append(row)
    for report in folder.glob("*.html"):
        if report.stat().st_size > LARGEST:
            raise ValueError(f"{report}: {report.stat().st_size:,} bytes, more than {LARGEST:,}")
    (folder / "index.md").write_text(_PAGE.format(STEP, "\n".join(rows[False]), "\n".join(rows[True])), "utf-8")
    return ["gallery/index.md"]


_PAGE: Final = """# Gallery

Each link opens a live report: the HTML export as etviz writes it. Click a row, sort, search, press `?`.

## Programs

- [The demo's planted fault](demo.html). A digit classifier in int8, one scale of which is four times too small.
- [A language model's decode](decode.html). From step {} on, a planted fault of the cache changes the logits.
{}

## Faults of ExecuTorch 1.5.1 that etviz found

{}
"""


if __name__ == "__main__":
    write(Path(sys.argv[1]))
