"""Small programs that an environment of the matrix runs; prints one JSON object. Imports nothing of the tests."""

from __future__ import annotations

import importlib.metadata
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any


def installed(name: str) -> str:
    """The version of a package, empty if it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def tried(step: Callable[[], Any]) -> str:
    """``ok``, or what the step raised, in one line."""
    try:
        step()
    except Exception as error:  # noqa: BLE001 - the table shows whatever another version raises
        return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    return "ok"


def read(folder: Path, out: Path) -> dict[str, str]:
    """Read the artifacts of a folder, as somebody without executorch does."""
    import etviz

    loaded: list[Any] = []

    def load() -> None:
        inspection = etviz.load(folder)
        done = inspection.coverage["status"].isin(["compared", "grouped", "empty"])
        if inspection.gaps.empty or not done.all():
            raise ValueError(f"{int(done.sum())} of {len(done)} instructions were compared")
        if not inspection.outputs["matches"].all():
            raise ValueError(str(inspection.summary()))
        loaded.append(inspection)

    def first() -> Any:
        if not loaded:
            raise ValueError("nothing was loaded")
        return loaded[0]

    return {
        "load": tried(load),
        "attribution": tried(lambda: first().attribution()),
        "report": tried(lambda: first().to_html(out / "report.html")),
    }


def run(folder: Path) -> dict[str, str]:
    """Lower, run and compare small models on portable kernels and XNNPACK, in float and in int8."""
    import torch
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.backends.xnnpack.quantizer import xnnpack_quantizer as quantizers
    from torch import nn

    import etviz

    torch.manual_seed(0)
    parts = [nn.Linear(16, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 4), nn.Softmax(-1)]
    model, inputs = nn.Sequential(*parts).eval(), (torch.randn(3, 16),)
    config = quantizers.get_symmetric_quantization_config(is_per_channel=True)
    quantizer = quantizers.XNNPACKQuantizer().set_global(config)
    recipes: dict[str, dict[str, Any]] = {
        "portable": {},
        "xnnpack": {"partitioner": [XnnpackPartitioner()]},
        "xnnpack int8": {"partitioner": [XnnpackPartitioner()], "quantizer": quantizer, "calibration": [inputs]},
    }
    found = {}
    for name, recipe in recipes.items():
        workdir = folder / name.replace(" ", "-")

        def debug(workdir: Path = workdir, recipe: dict[str, Any] = recipe) -> None:
            inspection = etviz.debug(model, inputs, workdir=workdir, **recipe)
            if not inspection.outputs["matches"].all():
                raise ValueError(str(inspection.summary()))
            for row in inspection.gaps.index[inspection.gaps["kind"] == "delegate"]:
                inspection.zoom(row)

        found[f"debug and zoom ({name})"] = tried(debug)
    return found


def main() -> None:
    """``python program.py FOLDER``: read the artifacts of a folder, and run programs where executorch is installed."""
    about = {name: installed(name) for name in ("etviz", "torch", "executorch")} | {"python": sys.version.split()[0]}
    with tempfile.TemporaryDirectory() as folder:
        checks = read(Path(sys.argv[1]), Path(folder)) | (run(Path(folder)) if about["executorch"] else {})
    sys.stdout.write(json.dumps({"versions": about, "checks": checks}) + "\n")


if __name__ == "__main__":
    main()
