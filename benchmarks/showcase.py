"""What etviz finds in real models, and how long that takes: ``python -m benchmarks.showcase`` prints one table.

Three programs through XNNPACK: ViT-B/16 in float32, a MobileNetV2-like network in int8, and the demo's digit classifier
in int8. Each is looked at in a process of its own, so that its peak memory is its own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console
from rich.table import Table

from benchmarks.__main__ import CACHE
from benchmarks.artifacts import Artifacts, Program, prepare, programs
from benchmarks.tasks import Meter

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    import etviz

_LIMIT: Final = 1800.0
_CALIBRATION: Final = 16
_WIDTH: Final = 140
_TITLES: Final = {
    "vit": "ViT-B/16, float32",
    "mobilenet-int8": "MobileNetV2-like, int8",
    "digits-int8": "digit classifier, int8",
}
_ROWS: Final = {
    "title": "program",
    "size": "what it is",
    "compared": "compared",
    "load": "files → gap table",
    "output": "final output",
    "worst": "worst introduced",
    "diverges": "first divergence",
    "attribution": "attribution: sum, largest share",
    "attribution_time": "attribution: time, memory above the load",
    "zoom": "largest delegate, zoomed",
    "faithful": "… equals the fused run",
    "zoom_time": "zoom: first (starts a child), again, the slowest",
    "quantization": "worst by error_steps",
    "quantization_time": "quantization split: time",
}


def main() -> int:
    """Measure and print; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.showcase", description=__doc__)
    parser.add_argument("--only", action="append", choices=tuple(_TITLES), help="look at this program; may be repeated")
    parser.add_argument("--cache", type=Path, default=CACHE, metavar="DIR", help="where ViT's artifacts are kept")
    parser.add_argument("--child", type=Path, metavar="FILE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        options.child.write_text(json.dumps(look(options.only[0], options.cache)), encoding="utf-8")
        return 0
    found = [_in_child(name, options.cache) for name in options.only or _TITLES]
    table = Table(*("", *(item["title"] for item in found)), show_lines=True)
    for name, title in list(_ROWS.items())[1:]:
        table.add_row(title, *(item.get(name, "") for item in found))
    Console(width=max(_WIDTH, Console().width)).print(table)
    return 0


def _in_child(name: str, cache: Path) -> dict[str, str]:
    with tempfile.TemporaryDirectory(prefix="etviz-showcase-") as folder:
        answer = Path(folder) / "answer.json"
        command = [sys.executable, "-m", "benchmarks.showcase", "--only", name, "--cache", str(cache)]
        subprocess.run([*command, "--child", str(answer)], check=True, timeout=_LIMIT, stderr=subprocess.DEVNULL)
        return json.loads(answer.read_text(encoding="utf-8"))


def look(name: str, cache: Path) -> dict[str, str]:
    """Everything about one program, as the text of the table's cells by `_ROWS`."""
    import etviz

    program = next((item for item in programs() if item.name == name), None)
    if program is not None:
        inspection, seconds = _timed(lambda: etviz.load(**_files(program, cache)))
    else:
        with tempfile.TemporaryDirectory(prefix="etviz-showcase-") as folder:
            files = quantized(name, Path(folder))
            inspection, seconds = _timed(lambda: etviz.load(**files))
            return _about(name, inspection, seconds)
    return _about(name, inspection, seconds)


def _files(program: Program, cache: Path) -> dict[str, Any]:
    return _loadable(prepare([program], cache, quick=False)[program.name])


def _loadable(artifacts: Artifacts) -> dict[str, Any]:
    return {kind: path for kind, path in artifacts.paths.items() if kind != "alone"}


def quantized(name: str, folder: Path, times: int = 1) -> dict[str, Any]:
    """Quantize a model to int8 by PT2E, lower it to XNNPACK and run it; returns the files.

    The MobileNetV2-like network has so many `times` its blocks.
    """
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )

    import etviz

    model, batches = _digits() if name == "digits-int8" else _mobilenet(times)
    etviz.debug(
        model,
        batches[0],
        partitioner=[XnnpackPartitioner()],
        quantizer=XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True)),
        calibration=batches,
        workdir=folder,
    )
    return _loadable(Artifacts(folder))


def _digits() -> tuple[torch.nn.Module, list[tuple[torch.Tensor, ...]]]:
    from etviz.demo.digits import load_digits, train

    digits = load_digits()
    return train(digits), [(image[None],) for image in digits.train_images[:128]]


def _mobilenet(times: int) -> tuple[torch.nn.Module, list[tuple[torch.Tensor, ...]]]:
    import torch

    from benchmarks.mobilenet import mobilenet

    model = mobilenet(times=times)
    return model, [(torch.randn(1, 3, 64, 64),) for _ in range(_CALIBRATION)]


def _about(name: str, inspection: etviz.Inspection, seconds: float) -> dict[str, str]:
    gaps, worst = inspection.gaps, inspection.worst(1).iloc[0]
    delegates = gaps.loc[gaps["kind"] == "delegate", ["event_block", "instruction"]].drop_duplicates()
    coverage, first = inspection.coverage, inspection.first_divergence
    output = inspection.outputs.iloc[0]
    meter = Meter()
    shares, used = inspection.attribution(), meter.read()
    largest = shares.iloc[int(shares["share"].to_numpy().argmax())]
    cells = {
        "title": _TITLES[name],
        "size": f"{len(coverage)} instructions, {len(delegates)} delegates",
        "compared": f"{len(gaps)} values, {int((coverage['status'] != 'not compared').sum())} of {len(coverage)}",
        "load": f"{seconds:.2f} s",
        "output": f"rmse {output['rmse']:.2g}, SQNR {output['sqnr_db']:.0f} dB",
        "worst": f"{_name(worst)}: severity {worst['introduced_severity']:.3g}",
        "diverges": "none" if first is None else f"#{first['instruction']} {_name(first)}",
        "attribution": f"{shares.attrs['sum']:.3f}; {_name(largest)} {largest['share']:.0%}",
        "attribution_time": f"{used['seconds']:.2f} s, {used['peak_mb']:,.0f} MB",
    }
    return cells | _zoomed(inspection) | _split(inspection)


def _name(row: Any) -> str:
    words = row["reference_ops"].split(", ") if row["op"] == "DELEGATE_CALL" else [row["op"].removeprefix("aten::")]
    return ", ".join(words[:3]) + ("…" if len(words) > 3 else "")


def _zoomed(inspection: etviz.Inspection) -> dict[str, str]:
    """Zoom into the delegate with the most operators, and into the slowest; the second finds the child running."""
    gaps = inspection.gaps
    calls = gaps[gaps["kind"] == "delegate"].drop_duplicates(["event_block", "instruction"])
    size = calls["reference_ops"].str.count(",")
    order = size.sort_values(ascending=False, kind="stable").index
    inside, first = _timed(lambda: inspection.zoom(order[0]))
    inspection.analysis.inside = {}
    slowest = calls["latency_ms"].idxmax()
    again, other = (_timed(lambda row=row: inspection.zoom(row))[1] for row in (order[0], slowest))
    worst = inside.worst(1).iloc[0]
    verdict = {True: "bit for bit", None: "not known"}.get(inside.faithful, f"differs by {inside.deviation:.1e}")
    return {
        "zoom": f"{len(inside.gaps)} values; worst {_name(worst)}: severity {worst['introduced_severity']:.3g}",
        "faithful": verdict,
        "zoom_time": f"{first:.1f} s, {again:.1f} s, {other:.1f} s",
    }


def _split(inspection: etviz.Inspection) -> dict[str, str]:
    if not inspection.analysis.quantization.known:
        return {"quantization": "not quantized"}
    split, seconds = _timed(inspection.quantization)
    worst = split.sort_values("error_steps", ascending=False).iloc[0]
    return {
        "quantization": f"{worst['op']}: {worst['error_steps']:.2f} steps, {worst['saturated']:.1%} saturated",
        "quantization_time": f"{seconds:.2f} s",
    }


def _timed(work: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    return work(), time.perf_counter() - start


if __name__ == "__main__":
    sys.exit(main())
